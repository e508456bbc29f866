"""The policies that a home defines by name: quotas, leases, backoffs, and which of them hold for a job.

A job's own name comes first, then its tenant's under ``[tenants.NAME]``, then ``default``. A home always has a default of each
kind, whether its settings write one or not; the default quota allows everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Final

from detent.canon import ms_to_ticks
from detent.canon.grammar import POLICY_DEFAULT, POLICY_SECTIONS, policy_name_fault, unknown_policies
from detent.canon.late import NamedTuple, dataclass
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.kernel import BackoffSchedule, Job, KernelConfig, LeasePolicy, QuotaPolicy
from detent.kernel.policy import (
    DEFAULT_BACKOFF,
    DEFAULT_LEASE,
    INTERRUPTION_PAUSES,
    INTERRUPTIONS,
    UNLIMITED,
    UNLIMITED_QUOTA,
)

DURATION_MS_MAX: Final = 100 * 366 * 24 * 3_600_000
WEBHOOKS: Final = BackoffSchedule(
    "webhook", (1_000, 10_000, 60_000, 600_000, 1_800_000, 3_600_000, 10_800_000, 21_600_000)
)
"""The pauses between the tries of a delivery where the settings define no other: 1 s to 6 h. Only homes that serve have it."""
REMOTE: Final = "remote"
REMOTE_LEASE: Final = LeasePolicy(REMOTE, 60_000, 60_000)
"""The lease of workers elsewhere where the settings define no other. Only homes that serve have it."""
_LEASE_KEYS: Final = frozenset({"ttl_ms", "heartbeat_ms"})
_DELAYS: Final = "delays_ms"
_RULE: Final = "evaluation_rule_id"


class Chosen(NamedTuple):
    """The policies of one job, as its manifest names them."""

    quota_policy_hash: bytes
    lease_policy_id: str
    backoff_schedule_id: str


@dataclass(frozen=True, slots=True)
class Policies:
    """Every policy of a home by its kind and name, and the names that hold for a tenant's jobs."""

    quotas: Mapping[str, QuotaPolicy]
    leases: Mapping[str, LeasePolicy]
    backoffs: Mapping[str, BackoffSchedule]
    tenants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of_server(self) -> Policies:
        """These policies with what a server needs beside them."""
        return replace(
            self,
            leases={REMOTE: REMOTE_LEASE, **self.leases},
            backoffs={WEBHOOKS.backoff_schedule_id: WEBHOOKS, **self.backoffs},
        )

    def lease_ms(self, lease_policy_id: str, beside: str | None) -> int:
        """For how long a worker may count on the lease of a job, from each time it is heard of; ``beside`` is its claim's policy."""
        shortest = min(self.leases.values(), key=lambda one: one.lease_ttl_ticks)
        both = [self.leases.get(name, shortest) for name in (lease_policy_id, beside) if name is not None]
        return min(max(one.lease_ttl_ticks for one in both), max(one.heartbeat_extension_ticks for one in both))

    @property
    def known(self) -> dict[str, tuple[str, ...]]:
        """The names that a job may use, by kind."""
        named = {"quota": self.quotas, "lease": self.leases, "backoff": self.backoffs}
        return {kind: tuple(sorted(name for name in table if name != INTERRUPTIONS)) for kind, table in named.items()}

    def chosen(self, names: Mapping[str, str], tenant: str) -> Chosen:
        """The policies of a tenant's job that names these itself; refuses a name that is not defined here."""
        if unknown := unknown_policies(names, self.known):
            _, message, hint = unknown[0]
            raise InvalidInput(message, code="POLICY_UNKNOWN", hint=hint)
        named = {**dict.fromkeys(POLICY_SECTIONS, POLICY_DEFAULT), **self.tenants.get(tenant, {}), **names}
        return Chosen(self.quotas[named["quota"]].hash(), named["lease"], named["backoff"])

    def quota_name(self, quota_policy_hash: bytes) -> str | None:
        """What the settings call a quota; None when they have changed since, or never named it."""
        return next((name for name, quota in self.quotas.items() if quota.hash() == quota_policy_hash), None)

    @property
    def lease_policies(self) -> tuple[LeasePolicy, ...]:
        """The leases as a kernel's configuration lists them."""
        return tuple(self.leases[name] for name in sorted(self.leases))

    @property
    def backoff_schedules(self) -> tuple[BackoffSchedule, ...]:
        """The backoffs as a kernel's configuration lists them, the pauses after interruptions among them."""
        schedules = tuple(self.backoffs[name] for name in sorted(self.backoffs))
        return schedules if INTERRUPTIONS in self.backoffs else (*schedules, INTERRUPTION_PAUSES)

    @property
    def quota_policies(self) -> tuple[QuotaPolicy, ...]:
        """The quotas as a kernel's configuration lists them: by what they allow, so two names for the same are one."""
        quotas = (UNLIMITED_QUOTA, *(self.quotas[name] for name in sorted(self.quotas)))
        return tuple({quota.hash(): quota for quota in quotas}.values())


def with_defaults(
    quotas: Mapping[str, QuotaPolicy],
    leases: Mapping[str, LeasePolicy],
    backoffs: Mapping[str, BackoffSchedule],
) -> Policies:
    """The policies that settings define, and the defaults that they leave out."""
    return Policies(
        {POLICY_DEFAULT: UNLIMITED_QUOTA, **quotas},
        {POLICY_DEFAULT: DEFAULT_LEASE, **leases},
        {POLICY_DEFAULT: DEFAULT_BACKOFF, **backoffs},
    )


def quota_policy(name: str, entry: Any) -> QuotaPolicy:
    """``[quotas.NAME]``: a budget that is left out is unlimited."""
    _insist_on_name("quota", name)
    fields = _table(entry, (*QuotaPolicy.BUDGETS, _RULE))
    return QuotaPolicy(**{**dict.fromkeys(QuotaPolicy.BUDGETS, UNLIMITED), **fields})


def lease_policy(name: str, entry: Any) -> LeasePolicy:
    """``[leases.NAME]``: how long a lease holds, and how far a heartbeat extends it."""
    if type(entry) is not dict or entry.keys() != _LEASE_KEYS:
        raise InvalidInput("needs exactly ttl_ms and heartbeat_ms")
    return LeasePolicy(name, _duration_ms(entry["ttl_ms"]), _duration_ms(entry["heartbeat_ms"]))


def backoff_schedule(name: str, entry: Any) -> BackoffSchedule:
    """``[backoffs.NAME]`` with ``delays_ms``, or ``NAME = [...]`` under ``[backoffs]``."""
    delays = _table(entry, (_DELAYS,)).get(_DELAYS) if type(entry) is dict else entry
    if type(delays) is not list:
        raise InvalidInput(f"needs a list of delays in milliseconds, such as [1000, 2000], not {show(delays)}")
    return BackoffSchedule(name, tuple(map(_duration_ms, delays)))


def tenant_policies(policies: Policies, entry: Any) -> dict[str, str]:
    """``[tenants.NAME]``: the policies of its jobs that name none themselves."""
    names = _table(entry, tuple(POLICY_SECTIONS))
    for kind, name in names.items():
        _insist_on_name(kind, name)
    if unknown := unknown_policies(names, policies.known):
        raise InvalidInput(f"{unknown[0].message}: {unknown[0].hint}")
    return names


def carried_over(config: KernelConfig, present: KernelConfig, jobs: Iterable[Job]) -> KernelConfig:
    """A new configuration with the policies that live jobs still go by, although the settings have dropped them.

    A changed quota is another policy with another hash. Jobs keep the one that they were submitted under: without it their
    ledger could not be judged, and the home could not be opened.
    """
    used = {(job.lease_policy_id, job.backoff_schedule_id, job.quota_policy_hash) for job in jobs}
    leases = {lease for lease, _, _ in used} - config.leases.keys()
    backoffs = {backoff for _, backoff, _ in used} - config.backoffs.keys()
    quotas = {quota for _, _, quota in used} - config.quotas.keys()
    if not (leases or backoffs or quotas):
        return config
    return replace(
        config,
        lease_policies=(*config.lease_policies, *(present.leases[name] for name in sorted(leases))),
        backoff_schedules=(*config.backoff_schedules, *(present.backoffs[name] for name in sorted(backoffs))),
        quota_policies=(*config.quota_policies, *(present.quotas[named] for named in sorted(quotas))),
    )


def _insist_on_name(kind: str, name: object) -> None:
    if fault := policy_name_fault(kind, name):
        raise InvalidInput(fault)


def _table(entry: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    if type(entry) is not dict:
        raise InvalidInput(f"must be a section with {', '.join(keys)}, not {show(entry)}")
    if unknown := sorted(entry.keys() - set(keys)):
        raise InvalidInput(f"has no key {unknown[0]!r:.80}; known: {', '.join(keys)}")
    return entry


def _duration_ms(value: int) -> int:
    """A duration in ticks, which are milliseconds; one so long that a sum with it would not fit is a slip of the pen."""
    ticks = ms_to_ticks(value, 1)
    if ticks > DURATION_MS_MAX:
        raise InvalidInput(f"{value} ms are more than a hundred years")
    return ticks
