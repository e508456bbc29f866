"""One verdict for every combination of what was seen: the order of the rules is the rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detent.errors import CODES
from detent.executor.sandbox.classify import Facts, classify
from detent.executor.sandbox.model import Evidence, Raised
from detent.jobs import ErrorCategory
from detent.jobs.status import TIMEOUT_CODES

VIOLATION = Facts(evidence=(Evidence("violation", "use the network", "socket", (2, 1, 0, 0, 0, 0)),))
RAISED = Facts(status=256, raised=Raised("ValueError", "no", "", 1, 1))

# Strongest first; each must win over all that follow.
ORDER = [
    ("SANDBOX_VIOLATION", VIOLATION),
    ("SANDBOX_VIOLATION", Facts(escaping_file="x")),
    ("LIMIT_MEMORY", Facts(oom_kills=1)),
    ("LIMIT_PROCESSES", Facts(process_refusals=1)),
    ("LIMIT_DISK", Facts(disk_full=True)),
    ("LIMIT_CPU", Facts(stop="cpu")),
    ("LIMIT_WALL", Facts(stop="wall")),
    ("LIMIT_OUTPUT", Facts(result_cut=True)),
    ("LIMIT_ARTIFACTS", Facts(too_many_files=True)),
    ("SANDBOX_FAILED", Facts(lost="gone")),
    ("ARTIFACT_NAME_INVALID", Facts(invalid_file="a name")),
    ("RESULT_INVALID", Facts(result_fault="not JSON")),
    ("PYTHON_EXCEPTION", RAISED),
    ("EXITED", Facts(status=3 << 8)),
    (None, Facts(status=0)),
]


def both(stronger: Facts, weaker: Facts) -> Facts:
    changes = {
        name: getattr(stronger, name)
        for name in Facts.__dataclass_fields__
        if getattr(stronger, name) != getattr(Facts(), name)
    }
    return replace(weaker, **changes)


@pytest.mark.parametrize(("code", "facts"), ORDER, ids=[str(code) for code, _ in ORDER])
def test_a_fact_alone_gives_its_code_and_the_code_its_category(code: str | None, facts: Facts) -> None:
    """JOB-060, X-146"""
    verdict = classify(facts)
    assert verdict.code == code
    if code is not None and code in CODES:
        assert verdict.category == CODES[code].category
    assert verdict.timed_out == (code in TIMEOUT_CODES)


@pytest.mark.parametrize("place", range(len(ORDER)))
def test_the_stronger_fact_decides_whatever_else_was_seen(place: int) -> None:
    """JOB-060"""
    code, facts = ORDER[place]
    for _, weaker in ORDER[place + 1 :]:
        if facts.stop is None or weaker.stop is None:
            assert classify(both(facts, weaker)).code == code


@pytest.mark.parametrize("status", [9, 11, 25, 31, 137 << 8, 139 << 8, 143 << 8, 159 << 8])
def test_no_exit_status_makes_more_of_itself_than_the_users_error(status: int) -> None:
    """JOB-060: a signal or status can be chosen by the guest, so it is evidence of nothing."""
    assert classify(Facts(status=status)).category is ErrorCategory.USER_CODE_ERROR


def test_a_peak_at_the_limit_counts_only_without_a_control_group() -> None:
    """JOB-037"""
    assert classify(Facts(status=0, memory_bytes_peak=100, memory_bytes_max=100)).code == "LIMIT_MEMORY"
    assert classify(Facts(status=0, memory_bytes_peak=99, memory_bytes_max=100)).code is None
    assert classify(Facts(status=0, memory_bytes_peak=10**9)).code is None


def test_an_unfinished_message_is_still_the_users_error() -> None:
    assert classify(replace(RAISED, stop="message", status=9)).code == "PYTHON_EXCEPTION"


def test_a_jail_that_is_lost_under_its_job_is_not_our_failure() -> None:
    """JOB-066: what is tried again by itself is only what no job can have caused."""
    assert classify(Facts(lost="gone")).category is ErrorCategory.INTERNAL_ERROR
    verdict = classify(Facts(lost="gone", lost_running=True))
    assert (verdict.category, verdict.code) == (ErrorCategory.RESOURCE_LIMIT, "SANDBOX_LOST")
