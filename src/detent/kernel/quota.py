"""Resource accounting and the quota verdict: pure arithmetic on the job's ledger."""

from __future__ import annotations

from detent.canon import UINT64_MAX
from detent.canon.show import show
from detent.errors import Refused
from detent.kernel.commands import ReportUsage
from detent.kernel.job import Usage
from detent.kernel.policy import QUOTA_OK, UNLIMITED, QuotaPolicy

INT64_MIN = -(2**63)
"""The least integer a record, and so a recorded report, can hold."""
DELTAS = ("bytes_allocated", "io_bytes_read", "io_bytes_written", "gpu_time_ms", "cpu_time_ms")
COUNTERS = ("io_bytes_read", "io_bytes_written", "gpu_time_ms", "cpu_time_ms")


def quota_verdict(usage: Usage, policy: QuotaPolicy) -> str:
    """Compare a job's ledger with its budgets: ``OK`` or the first violated budget's code (PIPE-103, PIPE-106)."""
    checks = (
        (usage.gpu_time_ms, policy.gpu_time_budget_ms, "QUOTA_GPU_TIME"),
        (usage.cpu_time_ms, policy.cpu_time_budget_ms, "QUOTA_CPU_TIME"),
        (usage.io_bytes_read + usage.io_bytes_written, policy.io_bytes_budget, "QUOTA_IO_BYTES"),
        (usage.peak_bytes, policy.memory_bytes_budget, "QUOTA_MEMORY_BYTES"),
    )
    for used, budget, code in checks:
        if budget != UNLIMITED and used > budget:
            return code
    return QUOTA_OK


USED = ("peak_bytes", "io_bytes_read", "io_bytes_written", "gpu_time_ms", "cpu_time_ms")
"""What a finished attempt says that it used, in this order."""


def add_used(usage: Usage, used: object) -> Usage | Refused:
    """The ledger after an attempt that used so much in all; its memory is given back with its end."""
    if (
        type(used) is not tuple
        or len(used) != len(USED)
        or any(type(amount) is not int or amount < 0 for amount in used)
    ):
        message = f"used must be {len(USED)} integers of at least 0 ({', '.join(USED)}), not {show(used)}"
        return Refused("INVALID_PARAMS", message)
    peak, read, written, gpu, cpu = used
    return _in_bounds(
        Usage(
            usage.bytes_allocated,
            max(usage.peak_bytes, usage.bytes_allocated + peak),
            usage.io_bytes_read + read,
            usage.io_bytes_written + written,
            usage.gpu_time_ms + gpu,
            usage.cpu_time_ms + cpu,
        )
    )


def left_of(usage: Usage, policy: QuotaPolicy) -> QuotaPolicy | None:
    """What one more attempt may use of a job's budgets, as a quota of its own; None when nothing limits it."""
    if all(getattr(policy, name) == UNLIMITED for name in policy.BUDGETS):
        return None

    def left(budget: int, used: int) -> int:
        return budget if budget == UNLIMITED else max(0, budget - used)

    return QuotaPolicy(
        left(policy.gpu_time_budget_ms, usage.gpu_time_ms),
        left(policy.cpu_time_budget_ms, usage.cpu_time_ms),
        left(policy.io_bytes_budget, usage.io_bytes_read + usage.io_bytes_written),
        policy.memory_bytes_budget,  # A peak, not a sum: every attempt has all of it.
    )


def add_usage(usage: Usage, report: ReportUsage) -> Usage | Refused:
    """The ledger after a report; refuses what would make a counter shrink or leave uint64 (PIPE-098, PIPE-025)."""
    for name in COUNTERS:
        delta = getattr(report, name)
        if type(delta) is not int or delta < 0:
            return Refused("INVALID_PARAMS", f"{name} must be an integer of at least 0, not {show(delta)}")
    if type(report.bytes_allocated) is not int or report.bytes_allocated < INT64_MIN:
        message = f"bytes_allocated must be an integer of at least -2^63, not {show(report.bytes_allocated)}"
        return Refused("INVALID_PARAMS", message)
    allocated = usage.bytes_allocated + report.bytes_allocated
    return _in_bounds(
        Usage(
            allocated,
            max(usage.peak_bytes, allocated),
            usage.io_bytes_read + report.io_bytes_read,
            usage.io_bytes_written + report.io_bytes_written,
            usage.gpu_time_ms + report.gpu_time_ms,
            usage.cpu_time_ms + report.cpu_time_ms,
        )
    )


def _in_bounds(after: Usage) -> Usage | Refused:
    for name in ("bytes_allocated", "peak_bytes", *COUNTERS):
        value = getattr(after, name)
        if not 0 <= value <= UINT64_MAX:
            return Refused("INVALID_PARAMS", f"{name} would become {show(value)}, outside 0..2^64-1")
    return after
