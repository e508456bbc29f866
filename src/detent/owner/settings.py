"""``config.toml`` of a home: read strictly, turned into the kernel's configuration.

An unknown key is an error, not a comment: a misspelt limit that silently does nothing is worse than a refusal to start.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from detent.canon import ms_to_ticks, parse_digest
from detent.canon.amounts import CPU, RESOURCE_HINT, amount_fault, name_fault
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import DetentError, HomeError, InvalidInput
from detent.jobs.idempotency import IdempotencyLimits
from detent.kernel import BackoffSchedule, KernelConfig, LeasePolicy, QuotaPolicy
from detent.kernel.policy import INTERRUPTION_PAUSES, INTERRUPTIONS, RULES, UNLIMITED_QUOTA
from detent.scheduling.policy import SchedulingPolicy
from detent.store.no_follow import read_no_follow

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

[sandbox]
# What untrusted code needs to be run at all: "full", "full-rootless", "kernel-filter" or "none". `detent doctor` says what
# this machine has. Where it has less, such code is refused; lowering this lets it run, and every result says so.
required = "full-rootless"

[idempotency]
# How long an idempotency key is remembered, and how many keys at once; at the limit new keys are refused.
window_ms = 86400000
keys_max = 1000000

[resources]
# What this machine has besides processors, in whole numbers, for steps that say what they take: gpu = 1, memory_mb = 16000.
"""

_SECTIONS: dict[str, frozenset[str] | None] = {
    "ledger": frozenset({"origin", "root"}),
    "queue": frozenset({"capacity_per_class", "capacity_total", "admission_policy"}),
    "scheduling": None,
    "leases": None,
    "backoffs": None,
    "quotas": None,
    "kernel": frozenset({"seed", "on_quota_running", "runtime_class"}),
    "sandbox": frozenset({"required"}),
    "idempotency": frozenset({"window_ms", "keys_max"}),
    "resources": None,
}
SANDBOX_PROFILES = ("full", "full-rootless", "kernel-filter", "none")
"""How well untrusted code can be contained, strongest first: the names of the sandbox's profiles."""
SANDBOX_REQUIRED = "full-rootless"
"""What such code needs unless the settings say otherwise."""
DURATION_MS_MAX = 100 * 366 * 24 * 3_600_000
_IDEMPOTENCY_MAX = {"window_ms": DURATION_MS_MAX, "keys_max": 2**40}
_LEASE_KEYS = frozenset({"ttl_ms", "heartbeat_ms"})
_Policy = TypeVar("_Policy")


@dataclass(frozen=True, slots=True)
class Settings:
    """A home's settings, checked."""

    path: Path
    origin: str
    root: bytes
    raw: Mapping[str, Any]

    def kernel_config(self, *, partitions: int, partition_id: int, environment: Mapping[str, str]) -> KernelConfig:
        """The kernel's configuration for one partition; a fault names the file and the key."""
        kernel = self.raw.get("kernel", {})
        leases = self._each("leases", _lease)
        backoffs = self._each("backoffs", lambda name, delays: BackoffSchedule(name, tuple(map(_duration_ms, delays))))
        backoffs = backoffs or KernelConfig().backoff_schedules
        if all(schedule.backoff_schedule_id != INTERRUPTIONS for schedule in backoffs):
            backoffs = (*backoffs, INTERRUPTION_PAUSES)
        quotas = self._each("quotas", lambda _name, fields: QuotaPolicy(**fields))
        runtime_class = kernel.get("runtime_class", "CPU-only")
        if not isinstance(runtime_class, str):
            raise self._fault("kernel.runtime_class", "must be a text")
        policy = self.scheduling_policy()
        try:
            return KernelConfig(
                partitions=partitions,
                partition_id=partition_id,
                lease_policies=leases or KernelConfig().lease_policies,
                backoff_schedules=backoffs,
                quota_policies=(UNLIMITED_QUOTA, *quotas),
                queue=policy.queue_policy(),
                scheduling=policy.to_map(),
                on_quota_running=kernel.get("on_quota_running", "fail"),
                seed=kernel.get("seed", 0),
                environment={"runtime_class": runtime_class, **environment},
                rules=RULES,
            )
        except DetentError as exc:
            raise self._fault("kernel", exc) from exc

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
    def resources(self) -> Mapping[str, int]:
        """What the home counts besides its workers, with how much there is of each."""
        resources: Mapping[str, int] = self.raw.get("resources", {})
        return resources

    def _each(self, section: str, make: Callable[[str, Any], _Policy]) -> tuple[_Policy, ...]:
        """The policies of a section, by name."""
        made = []
        for name, entry in sorted(self.raw.get(section, {}).items()):
            try:
                made.append(make(name, entry))
            except (DetentError, TypeError) as exc:
                raise self._fault(f"{section}.{name}", exc) from exc
        return tuple(made)

    def _fault(self, key: str, what: object) -> HomeError:
        return HomeError(f"{self.path}: {key}: {what}", hint="correct the setting and start again")


def _lease(name: str, entry: Mapping[str, int]) -> LeasePolicy:
    return LeasePolicy(name, _duration_ms(entry["ttl_ms"]), _duration_ms(entry["heartbeat_ms"]))


def _duration_ms(value: int) -> int:
    """A duration in ticks, which are milliseconds; one so long that a sum with it would not fit is a slip of the pen."""
    ticks = ms_to_ticks(value, 1)
    if ticks > DURATION_MS_MAX:
        raise InvalidInput(f"{value} ms are more than a hundred years")
    return ticks


def read_settings(path: Path) -> Settings:
    """Read a home's settings; every fault names the file and the key."""
    tables = _read_tables(path, _SECTIONS, read_no_follow)
    for name, lease in tables.get("leases", {}).items():
        if not isinstance(lease, dict) or lease.keys() != _LEASE_KEYS:
            raise HomeError(f"{path}: leases.{name} needs exactly ttl_ms and heartbeat_ms")
    required = tables.get("sandbox", {}).get("required", SANDBOX_REQUIRED)
    if required not in SANDBOX_PROFILES:
        raise HomeError(
            f"{path}: sandbox.required: {show(required)} is not a profile", hint=f"known: {', '.join(SANDBOX_PROFILES)}"
        )
    _check_resources(path, tables.get("resources", {}))
    for name, value in tables.get("idempotency", {}).items():
        if type(value) is not int or not 1 <= value <= _IDEMPOTENCY_MAX[name]:
            raise HomeError(
                f"{path}: idempotency.{name}: {show(value)} is not a whole number from 1 to {_IDEMPOTENCY_MAX[name]:,}",
                hint="correct the setting and start again",
            )
    ledger = tables.get("ledger", {})
    try:
        origin, root = ledger["origin"], parse_digest(ledger["root"])
    except (KeyError, TypeError, DetentError) as exc:
        raise HomeError(
            f"{path}: [ledger] needs origin and root (sha256:...)", hint="restore it from a backup"
        ) from exc
    if not isinstance(origin, str):
        raise HomeError(f"{path}: ledger.origin must be a text")
    return Settings(path, origin, root, tables)


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
