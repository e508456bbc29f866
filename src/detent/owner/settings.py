"""``config.toml`` of a home: read strictly, turned into the kernel's configuration.

An unknown key is an error, not a comment: a misspelt limit that silently does nothing is worse than a refusal to start.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from detent.access.destinations import read_networks
from detent.access.quotas import UploadQuota
from detent.canon import parse_digest
from detent.canon.grammar import CPU, RESOURCE_HINT, amount_fault, name_fault
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import DetentError, HomeError, InvalidInput
from detent.jobs.dedupe import SUPERSEDE_DEFAULT, IdempotencyLimits
from detent.jobs.repeats import PERCENT_MAX
from detent.kernel import KernelConfig
from detent.kernel.policy import RULES
from detent.owner.policies import (
    DURATION_MS_MAX,
    Policies,
    backoff_schedule,
    lease_policy,
    quota_policy,
    tenant_policies,
    with_defaults,
)
from detent.scheduling.policy import SchedulingPolicy
from detent.store.files import read_no_follow
from detent.workflow.vocabulary import STEP_TYPES

if TYPE_CHECKING:
    from detent.jobs.bounds import Bounds
    from detent.jobs.plans import Plans
    from detent.jobs.pools import Pool

TEMPLATE = """\
# The settings of this Detent home. Times are milliseconds. What is decided by them is hashed into every run's records,
# so a change takes effect, and is recorded, when the next owner opens the home.

[ledger]
origin = "{origin}"
# Others pin this digest to verify what is exported from here.
root = "{root}"

[queue]
capacity_per_class = 256
capacity_total = 2560
# Waiting jobs that one workspace may have, so that one that floods the queue leaves room for the others:
# capacity_per_tenant = 1000
# When it is full: "reject" the newcomer, "drop-lru" the oldest, or "shed-low-priority" for a higher class.
admission_policy = "reject"

[scheduling]
# "least-loaded" is the contract's order: most free memory first. "pack" fills the fullest replica that still fits.
placement_order = "least-loaded"

[leases.default]
ttl_ms = 30000
heartbeat_ms = 30000

[backoffs]
default = [1000, 2000, 4000]
# Pauses after an attempt whose process was killed from outside, as the kernel does when memory runs out.
# interruptions = [0, 0, 1000, 2000, 4000, 8000, 16000, 32000, 60000]

# A budget of a job over all its attempts, for work that names it (quota = "small"). [quotas.default] holds for all other work.
# [quotas.small]
# cpu_time_budget_ms = 60000
# memory_bytes_budget = 1073741824

[sandbox]
# What untrusted code needs to be run at all: "full", "full-rootless", "kernel-filter" or "none". `detent doctor` says what
# this machine has. Where it has less, such code is refused; lowering this lets it run, and every result says so.
required = "full-rootless"

[idempotency]
# How long an idempotency key is remembered, and how many keys at once; at the limit new keys are refused.
window_ms = 86400000
keys_max = 1000000

# Workers that only steps of one type get, beside those of --workers, in each process that works on this home:
# [workers.effect]
# count = 1

[metrics]
# Keep a file of metrics for node_exporter's textfile collector; `detent metrics` prints the same.
# textfile = "/var/lib/node_exporter/textfile/detent.prom"

[log]
# Write a JSON line for every attempt that is dispatched or over: to "stderr", or to a file.
# to = "/var/log/detent.jsonl"

[jobs]
# Platform jobs: whether a job for a newer revision of a document cancels unfinished ones for older revisions.
supersede = false
# How long the payload, result and files of an ended job are kept; `detent erase --expired` erases them then:
# retention_ms = 7776000000
# How much of its log and of its error a result keeps:
# max_log_entries = 200
# max_log_message_bytes = 4096
# max_error_details_bytes = 65536
# A workspace may ask for what its plan allows; the plan "default" is for every workspace that no plan names:
# [plans.default]
# timeout_ms = 60000
# memory_mb = 1024

[uploads]
# What `detent serve` takes from each workspace: what it may have stored, and how much a day.
# stored_bytes_max = 107374182400
# day_bytes_max = 107374182400
# day_count_max = 100000

[serve]
# Beside a server of several workspaces, commands and clients with workers of their own are refused: those workers would run the
# jobs of all workspaces. "join" allows it.
# embedded = "refuse"

[webhooks]
# Webhooks reach the public internet alone. Networks of your own that they may reach, too:
# allow = ["10.1.0.0/16"]

# Where the ledger is, if not in this directory; `detent copy` moves it there. See docs/how-to/postgresql.md.
# [store]
# url = "postgresql://user@host/database"
# Where content beyond 16 KiB is, if not in this directory: one that every machine with this ledger has mounted.
# [content]
# url = "file:///mnt/shared"

[resources]
# What this machine has besides processors, in whole numbers, for steps that say what they take: gpu = 1, memory_mb = 16000.
"""

_BOUNDS = ("max_log_entries", "max_log_message_bytes", "max_error_details_bytes")
REFUSE, JOIN = "refuse", "join"
"""The values of `[serve] embedded`."""
ACCESS_RATES = (
    *("reads_per_second", "writes_per_second", "requests_per_second_of_address"),
    *("failures_per_second", "logins_per_minute", "streams", "streams_of_server", "connections"),
)
"""How often callers of a server may ask."""
ACCESS_RATE_MAX = 1_000_000
_SECTIONS: dict[str, frozenset[str] | None] = {
    "ledger": frozenset({"origin", "root"}),
    "queue": frozenset({"capacity_per_class", "capacity_total", "capacity_per_tenant", "admission_policy"}),
    "scheduling": None,
    "leases": None,
    "backoffs": None,
    "quotas": None,
    "tenants": None,
    "kernel": frozenset({"seed", "on_quota_running", "runtime_class"}),
    "sandbox": frozenset({"required"}),
    "idempotency": frozenset({"window_ms", "keys_max"}),
    "resources": None,
    "workers": None,
    "pools": None,
    "metrics": frozenset({"textfile"}),
    "log": frozenset({"to"}),
    "plans": None,
    "uploads": frozenset({"stored_bytes_max", "day_bytes_max", "day_count_max"}),
    "jobs": frozenset({"supersede", "retention_ms", *_BOUNDS}),
    "access": frozenset(ACCESS_RATES),
    "webhooks": frozenset({"allow"}),
    "serve": frozenset({"embedded"}),
    "store": frozenset({"url", "url_file"}),
    "content": frozenset({"url"}),
}
AUDIT_PERCENT = "audit_percent"
POOL_WORKERS_MAX = 1024
"""Workers of one pool."""
STDERR = "stderr"
"""The destination of the log that is not a file."""
SANDBOX_PROFILES = ("full", "full-rootless", "kernel-filter", "none")
"""How well untrusted code can be contained, strongest first: the names of the sandbox's profiles."""
SANDBOX_REQUIRED = "full-rootless"
"""What such code needs unless the settings say otherwise."""
_IDEMPOTENCY_MAX = {"window_ms": DURATION_MS_MAX, "keys_max": 2**40}
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Settings:
    """A home's settings, checked."""

    path: Path
    origin: str
    root: bytes
    raw: Mapping[str, Any]

    def kernel_config(
        self, *, partitions: int, partition_id: int, environment: Mapping[str, str], serves: bool = False
    ) -> KernelConfig:
        """The kernel's configuration for one partition; a fault names the file and the key."""
        kernel = self.raw.get("kernel", {})
        runtime_class = kernel.get("runtime_class", "CPU-only")
        if not isinstance(runtime_class, str):
            raise self._fault("kernel.runtime_class", "must be a text")
        policy, policies = self.scheduling_policy(), self.policies()
        policies = policies.of_server() if serves else policies
        try:
            return KernelConfig(
                partitions=partitions,
                partition_id=partition_id,
                queue=policy.queue_policy(),
                scheduling=policy.to_map(),
                on_quota_running=kernel.get("on_quota_running", "fail"),
                seed=kernel.get("seed", 0),
                environment={"runtime_class": runtime_class, **environment},
                rules=RULES,
                lease_policies=policies.lease_policies,
                backoff_schedules=policies.backoff_schedules,
                quota_policies=policies.quota_policies,
            )
        except DetentError as exc:
            raise self._fault("kernel", exc) from exc

    def policies(self) -> Policies:
        """The quotas, leases and backoffs that jobs may name, and the tenants' own choices; a fault names file and key."""
        defined = with_defaults(
            self._each("quotas", quota_policy),
            self._each("leases", lease_policy),
            self._each("backoffs", backoff_schedule),
        )
        tenants = self._each("tenants", lambda _name, entry: tenant_policies(defined, entry))
        return replace(defined, tenants=tenants)

    def scheduling_policy(self) -> SchedulingPolicy:
        """The scheduler's configuration: the bounds under [queue], all else under [scheduling]."""
        bounds = dict(self.raw.get("queue", {}))
        capacity = {"capacity": bounds.pop("capacity_per_class")} if "capacity_per_class" in bounds else {}
        try:
            return SchedulingPolicy.from_settings({**self.raw.get("scheduling", {}), **capacity, **bounds})
        except DetentError as exc:
            raise self._fault("scheduling or queue", exc) from exc

    @property
    def sandbox_required(self) -> str:
        """The weakest profile of the sandbox under which untrusted code may run."""
        required: str = self.raw.get("sandbox", {}).get("required", SANDBOX_REQUIRED)
        return required

    @property
    def idempotency(self) -> IdempotencyLimits:
        """How long idempotency keys are remembered, and how many."""
        return IdempotencyLimits(**self.raw.get("idempotency", {}))

    @property
    def uploads(self) -> UploadQuota:
        """How much each workspace may upload."""
        return UploadQuota(**self.raw.get("uploads", {}))

    @property
    def plans(self) -> Plans:
        """What each workspace may ask for."""
        from detent.jobs.plans import read_plans  # noqa: PLC0415 - loads Pydantic, which most work never needs

        try:
            return read_plans(self.raw.get("plans", {}))
        except InvalidInput as exc:
            raise HomeError(f"{self.path}: {exc}", hint="correct the setting and start again") from exc

    @property
    def webhooks_allowed(self) -> tuple[str, ...]:
        """Networks that webhooks may reach beside the public internet."""
        return tuple(self.raw.get("webhooks", {}).get("allow", ()))

    @property
    def embedded_may_join(self) -> bool:
        """Whether processes with workers of their own may work beside a server of several workspaces."""
        return bool(self.raw.get("serve", {}).get("embedded", REFUSE) == JOIN)

    @property
    def access(self) -> Mapping[str, int]:
        """How often callers of a server may ask, where the settings say it."""
        access: Mapping[str, int] = self.raw.get("access", {})
        return access

    @property
    def supersede(self) -> bool:
        """Whether a platform job for a newer revision cancels unfinished ones for older revisions."""
        return bool(self.raw.get("jobs", {}).get("supersede", SUPERSEDE_DEFAULT))

    @property
    def retention_ms(self) -> int | None:
        """How long the content of an ended platform job is kept; None: for ever."""
        retention: int | None = self.raw.get("jobs", {}).get("retention_ms")
        return retention

    @property
    def bounds(self) -> Bounds:
        """How much a platform job's result keeps of its log and of its error."""
        from detent.jobs.bounds import Bounds  # noqa: PLC0415 - loads Pydantic, which most work never needs

        said = {name: value for name, value in self.raw.get("jobs", {}).items() if name in _BOUNDS}
        try:
            return Bounds(**said)
        except InvalidInput as exc:
            raise self._fault("jobs", exc) from exc

    @property
    def resources(self) -> Mapping[str, int]:
        """What the home counts besides its workers, with how much there is of each."""
        resources: Mapping[str, int] = self.raw.get("resources", {})
        return resources

    @property
    def step_pools(self) -> Mapping[str, int]:
        """How many workers the steps of a type have for themselves in each process, for types that have any."""
        found = self.raw.get("workers", {})
        return {name: entry["count"] for name, entry in sorted(found.items()) if name != AUDIT_PERCENT}

    @property
    def audit_percent(self) -> int:
        """How many in a hundred jobs of workers elsewhere are run again on another worker."""
        percent: int = self.raw.get("workers", {}).get(AUDIT_PERCENT, 0)
        return percent

    @property
    def pools(self) -> Mapping[str, Sequence[str]]:
        """Pools of workers elsewhere that come and go by themselves, each with the labels that its workers have."""
        return {name: entry for name, entry in self.raw.get("pools", {}).items() if type(entry) is list}

    @property
    def provisioned(self) -> Mapping[str, Pool]:
        """Pools whose hosts a server has started and replaced."""
        from detent.jobs.pools import read_pool  # noqa: PLC0415 - few homes have pools

        found = self.raw.get("pools", {})
        return {name: read_pool(name, entry) for name, entry in sorted(found.items()) if type(entry) is not list}

    @property
    def textfile(self) -> Path | None:
        """The file that metrics are kept in, if any."""
        return self._path("metrics", "textfile")

    @property
    def log(self) -> Path | str | None:
        """Where the structured log goes: ``stderr``, a file, or nowhere."""
        return STDERR if self.raw.get("log", {}).get("to") == STDERR else self._path("log", "to")

    def _path(self, section: str, key: str) -> Path | None:
        """A path that a setting names; a relative one starts where the home lies, not inside it: others read these files."""
        said = self.raw.get(section, {}).get(key)
        return None if said is None else self.path.parent.parent / Path(said).expanduser()

    def _each(self, section: str, make: Callable[[str, Any], _Made]) -> dict[str, _Made]:
        """What the entries of a section define, by name."""
        made = {}
        for name, entry in sorted(self.raw.get(section, {}).items()):
            try:
                made[name] = make(name, entry)
            except (DetentError, TypeError) as exc:
                raise self._fault(f"{section}.{name}", exc) from exc
        return made

    def _fault(self, key: str, what: object) -> HomeError:
        return HomeError(f"{self.path}: {key}: {what}", hint="correct the setting and start again")


def read_settings(path: Path) -> Settings:
    """Read a home's settings; every fault names the file and the key."""
    tables = _read_tables(path, _SECTIONS, read_no_follow)
    required = tables.get("sandbox", {}).get("required", SANDBOX_REQUIRED)
    if required not in SANDBOX_PROFILES:
        raise HomeError(
            f"{path}: sandbox.required: {show(required)} is not a profile", hint=f"known: {', '.join(SANDBOX_PROFILES)}"
        )
    _check_resources(path, tables.get("resources", {}))
    _check_numbers(path, "idempotency", tables.get("idempotency", {}), _IDEMPOTENCY_MAX)
    _check_numbers(path, "uploads", tables.get("uploads", {}), dict.fromkeys(tables.get("uploads", {}), 2**60))
    _check_webhooks(path, tables.get("webhooks", {}).get("allow", []))
    if (embedded := tables.get("serve", {}).get("embedded", REFUSE)) not in {REFUSE, JOIN}:
        raise HomeError(f"{path}: serve.embedded: is {show(embedded)}", hint=f"write embedded = {REFUSE!r} or {JOIN!r}")
    _check_numbers(path, "access", tables.get("access", {}), dict.fromkeys(ACCESS_RATES, ACCESS_RATE_MAX))
    _check_workers(path, tables.get("workers", {}))
    _check_pools(path, tables.get("pools", {}))
    for section, key in (("metrics", "textfile"), ("log", "to")):
        _check_path(path, f"{section}.{key}", tables.get(section, {}).get(key))
    _check_jobs(path, tables)
    ledger = tables.get("ledger", {})
    try:
        origin, root = ledger["origin"], parse_digest(ledger["root"])
    except (KeyError, TypeError, DetentError) as exc:
        raise HomeError(
            f"{path}: [ledger] needs origin and root (sha256:...)", hint="restore it from a backup"
        ) from exc
    if not isinstance(origin, str):
        raise HomeError(f"{path}: ledger.origin must be a text")
    settings = Settings(path, origin, root, tables)
    settings.policies()
    return settings


def _check_numbers(path: Path, section: str, said: Mapping[str, Any], most: Mapping[str, int]) -> None:
    for name, value in said.items():
        if type(value) is not int or not 1 <= value <= most[name]:
            raise HomeError(
                f"{path}: {section}.{name}: {show(value)} is not a whole number from 1 to {most[name]:,}",
                hint="correct the setting and start again",
            )


def _check_pools(path: Path, pools: Mapping[str, Any]) -> None:
    if not pools:
        return
    from detent.jobs.pools import read_pool  # noqa: PLC0415 - few homes have pools

    for name, entry in pools.items():
        try:
            read_pool(name, entry)
        except InvalidInput as exc:
            raise HomeError(f"{path}: pools.{show(name)}: {exc}", hint=exc.hint or "correct the setting") from exc


def _check_workers(path: Path, pools: Mapping[str, Any]) -> None:
    for name, entry in pools.items():
        if name == AUDIT_PERCENT:
            if type(entry) is not int or not 0 <= entry <= PERCENT_MAX:
                raise HomeError(
                    f"{path}: workers.{name}: {show(entry)} is not a whole number from 0 to {PERCENT_MAX}",
                    hint="correct the setting and start again",
                )
            continue
        if name not in STEP_TYPES:
            raise HomeError(
                f"{path}: workers.{show(name)} is not a type of steps", hint=f"known: {', '.join(sorted(STEP_TYPES))}"
            )
        count = entry.get("count") if isinstance(entry, dict) and entry.keys() == {"count"} else None
        if type(count) is not int or not 1 <= count <= POOL_WORKERS_MAX:
            raise HomeError(
                f"{path}: workers.{name} needs exactly count, a whole number from 1 to {POOL_WORKERS_MAX}",
                hint="correct the setting and start again",
            )


def _check_webhooks(path: Path, allowed: object) -> None:
    try:
        if not isinstance(allowed, list) or not all(isinstance(one, str) for one in allowed):
            raise InvalidInput('needs a list of networks, such as ["10.1.0.0/16"]')
        read_networks(allowed)
    except InvalidInput as exc:
        raise HomeError(f"{path}: webhooks.allow: {exc}", hint="correct the setting and start again") from exc


def _check_path(path: Path, key: str, said: object) -> None:
    if said is None:
        return
    if not isinstance(said, str) or not said or "\0" in said:
        raise HomeError(f"{path}: {key}: {show(said)} is not a path", hint="correct the setting and start again")
    if said.startswith("~"):
        try:
            Path(said).expanduser()
        except RuntimeError:
            raise HomeError(
                f"{path}: {key}: {show(said)} names a home directory that is not known", hint="write the path out"
            ) from None


def _check_jobs(path: Path, tables: Mapping[str, Any]) -> None:
    for name, value in tables.get("jobs", {}).items():
        wanted = bool if name == "supersede" else int
        if type(value) is not wanted:
            said = "true or false" if wanted is bool else "a whole number"
            raise HomeError(
                f"{path}: jobs.{name}: {show(value)} is not {said}", hint="correct the setting and start again"
            )
    settings = Settings(path, "", b"", tables)
    if settings.retention_ms is not None and not 1 <= settings.retention_ms <= DURATION_MS_MAX:
        raise HomeError(
            f"{path}: jobs.retention_ms: {settings.retention_ms} is not from 1 to {DURATION_MS_MAX:,}",
            hint="correct the setting and start again",
        )
    if tables.get("plans"):
        _ = settings.plans
    if tables.get("jobs", {}).keys() & set(_BOUNDS):
        _ = settings.bounds


def _check_resources(path: Path, resources: Mapping[str, Any]) -> None:
    for name, amount in resources.items():
        if name == CPU:
            raise HomeError(
                f"{path}: resources.{CPU}: each process says how many workers it has", hint="remove it; use --workers"
            )
        if fault := name_fault(name):
            raise HomeError(f"{path}: resources: {fault}", hint=RESOURCE_HINT)
        if fault := amount_fault(name, amount):
            raise HomeError(f"{path}: resources.{fault}", hint="correct the setting and start again")


def read_policy(path: Path) -> SchedulingPolicy:
    """Read a scheduling policy from a file of its own: [queue] and [scheduling] as a home's settings have them.

    What is left out has its default, as in a home. Every fault is an `InvalidInput` that names the file and the key.
    """
    try:
        tables = _read_tables(path, {name: _SECTIONS[name] for name in ("queue", "scheduling")})
        return Settings(path, "", b"", tables).scheduling_policy()
    except HomeError as exc:
        hint = "a policy file has the sections [queue] and [scheduling], as config.toml has them"
        raise InvalidInput(str(exc), hint=hint) from exc


def _read_tables(
    path: Path, sections: Mapping[str, frozenset[str] | None], read: Callable[[Path], bytes] = Path.read_bytes
) -> dict[str, Any]:
    """The sections of a file; none but these, and where their keys are known, none but those."""
    try:
        tables = tomllib.loads(read(path).decode())
    except FileNotFoundError:
        raise HomeError(f"{path} is missing", hint="this is not a Detent home; `detent init` makes one") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise HomeError(f"{path} cannot be read: {exc}", hint="correct the file and start again") from exc
    for section, keys in tables.items():
        allowed = sections.get(section, frozenset())
        if section not in sections:
            raise HomeError(f"{path}: unknown section [{section}]", hint=f"known: {', '.join(sorted(sections))}")
        if not isinstance(keys, dict):
            raise HomeError(f"{path}: {section} must be a section")
        if allowed is not None and (unknown := sorted(keys.keys() - allowed)):
            raise HomeError(f"{path}: unknown key {section}.{unknown[0]}", hint=f"known: {', '.join(sorted(allowed))}")
    return tables
