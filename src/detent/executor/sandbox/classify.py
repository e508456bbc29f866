"""Decides what an execution was, from what was seen outside the guest (C1 to C6).

The order is the whole rule: violation, then limits, then an answer that is not valid, then the user's own error. Among the
limits, those come first that explain the others: a job that met its memory limit may well have run out of time too.
The guest's exit status and signal decide nothing but the wording: it can choose both, SIGSYS and SIGKILL included.
Nothing a guest says, returns or does can lead to INTERNAL_ERROR, which is tried again: that is kept for a jail that could not be
built, or that went with the process that built it. A jail whose own first process ends under a job is lost to that job.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from detent.errors import registered
from detent.executor.sandbox.model import Evidence, Raised
from detent.jobs.category import ErrorCategory

PYTHON_EXCEPTION: Final = "PYTHON_EXCEPTION"
EXITED: Final = "EXITED"
KILLED: Final = "KILLED_BY_SIGNAL"
RESULT_INVALID: Final = "RESULT_INVALID"
NAME_INVALID: Final = "ARTIFACT_NAME_INVALID"

_LIMITS: Final = (
    ("memory", "LIMIT_MEMORY", "used more memory than it may"),
    ("processes", "LIMIT_PROCESSES", "started more processes than it may"),
    ("disk", "LIMIT_DISK", "filled the space or the number of files it may have"),
    ("cpu", "LIMIT_CPU", "used up its processor time"),
    ("wall", "LIMIT_WALL", "used up its time"),
    ("output", "LIMIT_OUTPUT", "returned more than it may"),
    ("artifacts", "LIMIT_ARTIFACTS", "left more files than it may"),
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the supervisor, init and the kernel saw; nothing here is the guest's word but ``raised``."""

    status: int | None = None
    stop: str | None = None
    """Why init ended the job, if it did."""
    evidence: tuple[Evidence, ...] = ()
    oom_kills: int = 0
    process_refusals: int = 0
    memory_bytes_peak: int = 0
    memory_bytes_max: int | None = None
    """Set where no control group counts memory: then a peak at the limit is what a counter would have said."""
    disk_full: bool = False
    result_cut: bool = False
    too_many_files: bool = False
    escaping_file: str | None = None
    """Name of an output that is not a plain file, or that points elsewhere."""
    invalid_file: str | None = None
    result_fault: str | None = None
    """Why the result is not strict JSON."""
    raised: Raised | None = None
    lost: str | None = None
    """Why the jail could not be built, or how it was lost."""
    lost_running: bool = False
    """Its first process ended in the middle of the job, with everything around it alive."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Category None is success."""

    category: ErrorCategory | None
    code: str | None
    message: str

    @property
    def timed_out(self) -> bool:
        """Deadlines are shown as TIMED_OUT, every other limit as FAILED (X-146)."""
        return self.code in {"LIMIT_WALL", "LIMIT_CPU"}


def classify(facts: Facts) -> Verdict:
    """The one verdict on an execution."""
    return (
        _violation(facts)
        or _limit(facts)
        or _lost(facts)
        or _invalid(facts)
        or _user_error(facts)
        or Verdict(None, None, "done")
    )


def _violation(facts: Facts) -> Verdict | None:
    seen = next((one for one in facts.evidence if one.kind == "violation"), None)
    if seen is not None:
        where = f" ({seen.path})" if seen.path else ""
        return _registered("SANDBOX_VIOLATION", f"tried to {seen.what}: {seen.syscall}{where}")
    if facts.escaping_file is not None:
        return _registered("SANDBOX_VIOLATION", f"left something other than a plain file: {facts.escaping_file!r}")
    return None


def _limit(facts: Facts) -> Verdict | None:
    met = {one.what for one in facts.evidence if one.kind == "limit"}
    if facts.stop is not None:
        met.add(facts.stop)
    if facts.oom_kills or (facts.memory_bytes_max is not None and facts.memory_bytes_peak >= facts.memory_bytes_max):
        met.add("memory")
    for seen, name in (
        (facts.process_refusals, "processes"),
        (facts.disk_full, "disk"),
        (facts.result_cut, "output"),
        (facts.too_many_files, "artifacts"),
    ):
        if seen:
            met.add(name)
    for name, code, message in _LIMITS:
        if name in met:
            return _registered(code, message)
    return None


def _lost(facts: Facts) -> Verdict | None:
    if facts.lost is None:
        return None
    return _registered("SANDBOX_LOST" if facts.lost_running else "SANDBOX_FAILED", facts.lost)


def _invalid(facts: Facts) -> Verdict | None:
    if facts.invalid_file is not None:
        return Verdict(ErrorCategory.VALIDATION_ERROR, NAME_INVALID, facts.invalid_file)
    if facts.result_fault is not None:
        return Verdict(ErrorCategory.VALIDATION_ERROR, RESULT_INVALID, facts.result_fault)
    return None


def _user_error(facts: Facts) -> Verdict | None:
    category = ErrorCategory.USER_CODE_ERROR
    if facts.raised is not None:
        return Verdict(category, PYTHON_EXCEPTION, f"{facts.raised.type}: {facts.raised.message}")
    if facts.status is None or facts.status == 0:
        return None
    if os.WIFSIGNALED(facts.status):
        number = os.WTERMSIG(facts.status)
        return Verdict(category, KILLED, f"ended by signal {number}")
    return Verdict(category, EXITED, f"ended with exit status {os.WEXITSTATUS(facts.status)}")


def _registered(code: str, message: str) -> Verdict:
    return Verdict(ErrorCategory(registered(code).category or ""), code, message)
