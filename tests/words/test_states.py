"""One table of states: every name that is stored has its word, and what people type is understood."""

from __future__ import annotations

import pytest

from detent.jobs.status import JobStatus
from detent.kernel.run import RUN_STATUSES
from detent.kernel.table import TERMINAL, State
from detent.words.states import (
    JOB_STATES,
    OVER,
    RUN_STATES,
    STEP_STATES,
    kernel_name,
    state_typed,
    word_of,
)


def test_every_state_of_the_kernel_has_its_word_and_back() -> None:
    assert tuple(map(word_of, State)) == JOB_STATES
    assert [kernel_name(word_of(state)) for state in State] == [state.value for state in State]
    assert {word_of(state) for state in State} & OVER == {word_of(state) for state in TERMINAL}


def test_what_succeeded_has_one_word_everywhere() -> None:
    assert {word_of(name) for name in (State.SUCCEEDED, JobStatus.SUCCEEDED, "completed")} == {"succeeded"}
    assert {word_of(name) for name in (State.CANCELED, JobStatus.CANCELLED, "cancelled")} == {"cancelled"}


def test_every_recorded_status_has_a_word() -> None:
    assert {word_of(status) for status in RUN_STATUSES} <= {*RUN_STATES} & OVER
    assert {word_of(status) for status in JobStatus} <= {*JOB_STATES, "pending", "timed_out"}


def test_words_stand_for_themselves() -> None:
    words = {*JOB_STATES, *STEP_STATES, *RUN_STATES}
    assert {word: word_of(word) for word in words} == {word: word for word in words}


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ("cancelled", "cancelled"),
        ("CANCELED", "cancelled"),
        ("Cancelled", "cancelled"),
        ("COMPLETED", "succeeded"),
        ("SUCCEEDED", "succeeded"),
        (" failed ", "failed"),
        ("lost", None),
        ("", None),
    ],
)
def test_either_spelling_and_either_case_are_understood(typed: str, word: str | None) -> None:
    assert state_typed(typed) == word
