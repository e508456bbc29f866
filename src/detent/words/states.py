"""The one table of states that people and programs read: of jobs, steps, runs and attempts.

The kernel's names (`detent.kernel.table`), the statuses that a run's end is recorded with (`detent.kernel.run`) and the
statuses in executors' reports (`detent.jobs.status`) are contract: they stay on the ledger, in bundles and in reports as
they are. Every command, every log and every JSON document says the words below, one for each thing: what succeeded is
``succeeded``, be it an attempt, a job, a step or a run. `word_of` is the only translation, and
`state_typed` reads what people type, in either spelling and either case.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

PENDING: Final = "pending"
"""A platform job that has been accepted and not submitted yet."""
QUEUED: Final = "queued"
"""A job that waits for a worker."""
WAITING: Final = "waiting"
"""A step: something it needs has not ended yet."""
READY: Final = "ready"
"""A step that could run and waits for its turn: in the queue, for a worker, for resources, or for its next attempt."""
RUNNING: Final = "running"
"""A worker is at it now; a run: it has not ended."""
RETRYING: Final = "retrying"
"""A job whose last attempt did not succeed and whose next one has not begun."""
INTERRUPTED: Final = "interrupted"
"""A run that has not ended and that no process works on."""
STOPPED: Final = "stopped"
"""A run that this process left as it stands, to be resumed."""
SUCCEEDED: Final = "succeeded"
REUSED: Final = "reused"
"""A step whose every result was there already."""
FAILED: Final = "failed"
TIMED_OUT: Final = "timed_out"
"""An attempt or a job that failed because its time was over."""
CANCELLED: Final = "cancelled"
SKIPPED: Final = "skipped"
"""A step that was not run, without anything having gone wrong in it: disabled, or skipped on the failure of another step."""
BLOCKED: Final = "blocked"
"""A step that will never run, because one that it needs did not succeed."""

JOB_STATES: Final = (QUEUED, RUNNING, RETRYING, SUCCEEDED, FAILED, CANCELLED)
STEP_STATES: Final = (WAITING, READY, RUNNING, SUCCEEDED, REUSED, FAILED, SKIPPED, BLOCKED, CANCELLED)
RUN_STATES: Final = (RUNNING, INTERRUPTED, STOPPED, SUCCEEDED, FAILED, CANCELLED)

DONE: Final = frozenset({SUCCEEDED, REUSED})
"""What has its result."""
OVER: Final = frozenset({SUCCEEDED, REUSED, FAILED, TIMED_OUT, SKIPPED, BLOCKED, CANCELLED})
"""What will not change any more."""

_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # The kernel's states of a job; RUNNING, SUCCEEDED and FAILED are statuses of reports as well.
        "QUEUED": QUEUED,
        "RUNNING": RUNNING,
        "RETRYING": RETRYING,
        "SUCCEEDED": SUCCEEDED,
        "FAILED": FAILED,
        "CANCELED": CANCELLED,
        # Where the statuses of reports and of platform jobs differ from them.
        "PENDING": PENDING,
        "CANCELLED": CANCELLED,
        "TIMED_OUT": TIMED_OUT,
        # The status that the end of a run is recorded with; the others are words already.
        "completed": SUCCEEDED,
    }
)
_KERNEL_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        QUEUED: "QUEUED",
        RUNNING: "RUNNING",
        RETRYING: "RETRYING",
        SUCCEEDED: "SUCCEEDED",
        FAILED: "FAILED",
        CANCELLED: "CANCELED",
    }
)
_SPELLINGS: Final[Mapping[str, str]] = MappingProxyType(
    {"canceled": CANCELLED, "completed": SUCCEEDED, "success": SUCCEEDED, "done": SUCCEEDED}
)


def word_of(name: str) -> str:
    """The word for a state, by the name that a record, a row or a report has for it; a word stands for itself."""
    return _WORDS.get(name, name)


def state_typed(text: str) -> str | None:
    """The word that is meant by what was typed: either spelling, either case, the kernel's names too; None: no state."""
    lowered = text.strip().lower()
    word = _SPELLINGS.get(lowered, lowered)
    return word if word in {*JOB_STATES, *STEP_STATES, *RUN_STATES} else None


def kernel_name(word: str) -> str:
    """The kernel's name for the state of a job."""
    return _KERNEL_NAMES[word]
