"""Random lives of jobs in the real kernel, as a watcher of the platform would see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import Refused
from detent.jobs import STATUS_MOVES, JobStatus, Timeline, project_job, timeline
from detent.kernel import Finish
from tests.kernel.builders import TENANT, body_of
from tests.kernel.walk import NUMBER_MAX, NUMBERS_PER_STEP, Numbers, Walk, numbers_from, walk_config

STEPS = st.lists(st.tuples(*[st.integers(0, NUMBER_MAX)] * NUMBERS_PER_STEP), min_size=1, max_size=60)
CODES = ("LIMIT_WALL", "PYTHON_EXCEPTION", "LIMIT_CPU", "WATCHDOG_WALL", "LIMIT_MEMORY", "WATCHDOG_IDLE")
RANK = {JobStatus.PENDING: 0, JobStatus.QUEUED: 1, JobStatus.RUNNING: 2}


class CodedWalk(Walk):
    """A walk whose failures have codes of deadlines and of others."""

    def _finish(self, tick: int, which: int, how: int, detail: int, more: int) -> Finish:
        finish = super()._finish(tick, which, how, detail, more)
        return finish if finish.ok else replace(finish, reason_code=CODES[more % len(CODES)])


def watched(settings_number: int, steps: Iterable[Numbers]) -> dict[str, list[JobStatus]]:
    """Walk, look at every job after every command, and compare with what its records tell."""
    walk = CodedWalk(walk_config(settings_number))
    bodies: dict[str, list[dict[str, Any]]] = defaultdict(list)
    histories: dict[str, list[JobStatus]] = defaultdict(lambda: [JobStatus.PENDING])
    for numbers in steps:
        _, outcome = walk.step(numbers)
        for record in outcome.records:
            if record.job_id is not None and record.kind in {"submitted", "transition"}:
                bodies[record.job_id].append(body_of(record))
        for job_id, told_by in bodies.items():
            state = walk.kernel.query(TENANT, job_id)
            assert not isinstance(state, Refused)
            view = project_job(state)
            if histories[job_id][-1] is not view.status:
                histories[job_id].append(view.status)
            told = timeline(told_by)
            assert (told.status, told.detail, told.attempt, told.reason_code) == (
                view.status,
                view.detail,
                view.attempt,
                view.reason_code,
            )
    for job_id, history in histories.items():
        check_history(history, timeline(bodies[job_id]))
    return histories


def check_history(history: list[JobStatus], told: Timeline) -> None:
    """A watcher's history is a path, never goes back, and is the one the records tell."""
    assert tuple(history) == told.history
    for before, after in pairwise(history):
        assert after in STATUS_MOVES[before]
        assert RANK.get(after, 3) > RANK.get(before, 3)


@given(st.integers(0, 15), STEPS)
def test_every_history_is_a_path_of_the_contracts_graph(settings_number: int, steps: list[Numbers]) -> None:
    """X-003, X-004, JOB-016..JOB-018"""
    watched(settings_number, steps)


@pytest.mark.parametrize("seed", range(6))
def test_long_histories_are_paths_and_never_go_back(seed: int) -> None:
    """X-003, X-004, JOB-016..JOB-018: stale, repeated and late messages of workers are among the commands."""
    watched(seed, numbers_from(seed, 150))


def test_the_walks_show_all_seven_moves() -> None:
    """X-003, JOB-012..JOB-015: a walk that showed fewer would prove less."""
    seen = {
        move
        for seed in range(6)
        for history in watched(seed, numbers_from(seed, 150)).values()
        for move in pairwise(history)
    }
    assert seen == {(source, target) for source, targets in STATUS_MOVES.items() for target in targets}
