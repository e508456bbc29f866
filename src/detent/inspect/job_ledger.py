"""What a job has used over all its attempts and how much its quota allows: the resource ledger of the contract (PIPE-097).

The ledger is the kernel's. The signed manifest of a job names its quota, by digest; what that quota allows is in
the configuration that an owner recorded. Only its name is the settings' of today: they may have changed since.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from detent.canon.grammar import POLICY_SECTIONS
from detent.canon.late import NamedTuple, dataclass
from detent.errors import DetentError
from detent.inspect.logs import attempts_of
from detent.jobs.order import Order
from detent.kernel import Job, KernelConfig, QuotaPolicy
from detent.kernel.policy import QUOTA_OK, UNLIMITED
from detent.kernel.quota import quota_verdict
from detent.owner.content import Content, order_of
from detent.owner.policies import Policies
from detent.owner.views import JobView
from detent.store.api import StoreReader
from detent.words.quantities import duration_text, size_text

GPU: Final = "gpu_ms"
IO: Final = "io_bytes"


class _Budget(NamedTuple):
    code: str
    setting: str
    what: str


_BUDGETS: Final = (
    _Budget("QUOTA_GPU_TIME", "gpu_time_budget_ms", "GPU time"),
    _Budget("QUOTA_CPU_TIME", "cpu_time_budget_ms", "CPU time"),
    _Budget("QUOTA_IO_BYTES", "io_bytes_budget", "input and output"),
    _Budget("QUOTA_MEMORY_BYTES", "memory_bytes_budget", "memory at once"),
)
"""In the order in which they are compared (PIPE-103)."""


@dataclass(frozen=True, slots=True)
class JobLedger:
    """The resource ledger of one job, with the quota that it is compared with."""

    job: Job
    quota: QuotaPolicy | None
    """None when no recorded configuration has it, which `detent verify` reports."""
    name: str | None
    """What the settings call the quota now."""
    by: str
    """Who chose it."""
    settings: Path
    unmeasured: frozenset[str] = frozenset()
    """What no attempt was measured for: ``gpu_ms`` where there is no GPU, ``io_bytes`` where the kernel does not count."""

    @property
    def used_text(self) -> str:
        """What was used, in one line."""
        usage = self.job.usage
        said = [
            f"{duration_text(usage.cpu_time_ms)} of CPU time",
            f"{size_text(usage.peak_bytes)} of memory at most",
        ]
        if IO in self.unmeasured:
            said.append("input and output not measured")
        else:
            said += [f"{size_text(usage.io_bytes_read)} read", f"{size_text(usage.io_bytes_written)} written"]
        said.append("GPU not measured" if GPU in self.unmeasured else f"{duration_text(usage.gpu_time_ms)} of GPU time")
        return ", ".join(said)

    @property
    def lines(self) -> tuple[str, ...]:
        """What the quota allows, and the line of it that ended the job, as sentences; nothing for an unlimited one."""
        if self.quota is None:
            return ()
        lines: list[str] = []
        for budget in _BUDGETS:
            allowed = getattr(self.quota, budget.setting)
            if allowed == UNLIMITED:
                continue
            used = (
                f"{self._amount(budget, self._used(budget))} of {self._amount(budget, allowed)} of {budget.what} used"
            )
            if self.job.reason_code == budget.code:
                lines.insert(0, f"{budget.setting} = {allowed} of {self.where} decided: {used}, over all attempts.")
            else:
                lines.append(f"{budget.setting} = {allowed} of {self.where}: {used}, over all attempts.")
        return tuple(lines)

    @property
    def where(self) -> str:
        """Where the quota is set, and who chose it."""
        if self.name is None:
            return f"a quota that {self.settings} does not define any more, {self.by}"
        return f"[quotas.{self.name}] in {self.settings}, {self.by}"

    def to_map(self) -> dict[str, object]:
        """As data."""
        usage, quota, absent = self.job.usage, self.quota, self.unmeasured
        budgets: dict[str, object] = {}
        if quota is not None:
            for setting in QuotaPolicy.BUDGETS:
                allowed = getattr(quota, setting)
                budgets[setting] = None if allowed == UNLIMITED else allowed
        return {
            "usage": {
                "bytes_allocated": usage.bytes_allocated,
                "peak_bytes": usage.peak_bytes,
                "io_bytes_read": None if IO in absent else usage.io_bytes_read,
                "io_bytes_written": None if IO in absent else usage.io_bytes_written,
                "gpu_time_ms": None if GPU in absent else usage.gpu_time_ms,
                "cpu_time_ms": usage.cpu_time_ms,
            },
            "quota": {
                "name": self.name,
                "quota_policy_hash": f"sha256:{self.job.quota_policy_hash.hex()}",
                "by": self.by,
                **budgets,
                "evaluation_rule_id": None if quota is None else quota.evaluation_rule_id,
                "verdict": None if quota is None else quota_verdict(usage, quota),
            },
            "lease_policy_id": self.job.lease_policy_id,
            "backoff_schedule_id": self.job.backoff_schedule_id,
        }

    @property
    def limited(self) -> bool:
        """Whether the quota limits anything, or is not known."""
        return self.quota is None or any(getattr(self.quota, name) != UNLIMITED for name in QuotaPolicy.BUDGETS)

    @property
    def quota_text(self) -> str:
        """The quota in a few words: its name, and whether the job has kept to it."""
        verdict = None if self.quota is None else quota_verdict(self.job.usage, self.quota)
        over = "" if verdict in (None, QUOTA_OK) else f", {verdict}"
        return f"{self.name or 'unnamed'} ({self.by}{over})"

    def _used(self, budget: _Budget) -> int:
        usage = self.job.usage
        return {
            "QUOTA_GPU_TIME": usage.gpu_time_ms,
            "QUOTA_CPU_TIME": usage.cpu_time_ms,
            "QUOTA_IO_BYTES": usage.io_bytes_read + usage.io_bytes_written,
            "QUOTA_MEMORY_BYTES": usage.peak_bytes,
        }[budget.code]

    @staticmethod
    def _amount(budget: _Budget, amount: int) -> str:
        return duration_text(amount) if budget.setting.endswith("_ms") else size_text(amount)


def ledger_of(reader: StoreReader, content: Content, view: JobView, policies: Policies, settings: Path) -> JobLedger:
    """The resource ledger of a job."""
    job = view.job
    order = order_of(content, view.row) if view.job.job_kind in {"action", "task"} else None
    name = _named(order) or policies.quota_name(job.quota_policy_hash)
    if (
        name is not None
        and policies.quotas.get(name) is not None
        and policies.quotas[name].hash() != job.quota_policy_hash
    ):
        name = None  # The settings call another one so by now.
    quota, by = _recorded_quota(reader, view), _chosen_by(order, job, policies)
    return JobLedger(job, quota, name, by, settings, _unmeasured(reader, content, view))


def _unmeasured(reader: StoreReader, content: Content, view: JobView) -> frozenset[str]:
    """What no attempt of a job was measured for. The kernel counts it as 0, which is not what it means."""
    usage = view.job.usage
    absent = {GPU, IO}
    for attempt in attempts_of(reader, content, view):
        absent &= attempt.unmeasured
    if usage.gpu_time_ms:
        absent.discard(GPU)
    if usage.io_bytes_read or usage.io_bytes_written:
        absent.discard(IO)
    return frozenset(absent)


def _named(order: Order | None) -> str | None:
    return None if order is None else order.limits.policies.get("quota")


def _chosen_by(order: Order | None, job: Job, policies: Policies) -> str:
    if order is not None and _named(order) is not None:
        return "named by the step" if order.origin.step is not None else "named by the task or its submission"
    if "quota" in policies.tenants.get(job.tenant_id, {}):
        return f"by [tenants.{job.tenant_id}]"
    return f"the default of [{POLICY_SECTIONS['quota']}]"


def _recorded_quota(reader: StoreReader, view: JobView) -> QuotaPolicy | None:
    """What the quota of a job allows, by the newest recorded configuration that has it."""
    found = None
    for record in reader.records_of_kind(view.row.partition, "owner_epoch"):
        try:
            config = None if record.evidence is None else KernelConfig.decode(record.evidence)
        except DetentError:
            continue  # For `verify` to report.
        if config is not None:
            found = config.quotas.get(view.job.quota_policy_hash, found)
    return found
