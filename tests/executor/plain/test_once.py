"""Whatever is killed or cancelled, and when: every task is told of exactly once, and begun at most once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from detent.jobs.work import CANCELLED
from tests.executor.plain.rig import BASE, Rig, assignment

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 40)),
        st.tuples(st.just("pause"), st.just(1)),
        st.tuples(st.just("kill worker"), st.integers(0, 3)),
        st.tuples(st.just("cancel"), st.integers(0, 60)),
        st.tuples(st.just("look"), st.integers(0, 2)),
        st.tuples(st.just("kill host"), st.just(0)),
    ),
    min_size=3,
    max_size=14,
)


@given(actions=ACTIONS, many=st.booleans())
def test_every_task_is_told_of_once_and_begun_at_most_once(
    shared: Rig, actions: list[tuple[str, int]], many: bool
) -> None:
    """X-163, X-179"""
    try:
        _check(shared, actions, many)
    except BaseException:
        shared.restart()
        raise


def _check(shared: Rig, actions: list[tuple[str, int]], many: bool) -> None:
    noted = shared.live.parent / "noted"
    noted.write_bytes(b"")
    shared.done.clear()
    tasks: list[int] = []
    paused: list[int] = []
    shared.pool._dealer.task_us = 100.0 if many else 1e6
    for what, figure in actions:
        _act(shared, what, figure, noted, tasks, paused)
    for number in paused:
        shared.pool.cancel(number)
    shared.until(lambda: shared.done.keys() >= set(tasks))
    assert sorted(shared.done) == tasks
    assert len(shared.pool) == 0
    begun = Counter(noted.read_text().split())
    assert max(begun.values(), default=1) == 1
    for number in tasks:
        done = shared.done[number]
        assert done.ok or done.status == CANCELLED or done.lost, done
        assert str(number) in begun or not done.ok


def _act(rig: Rig, what: str, figure: int, noted: Path, tasks: list[int], paused: list[int]) -> None:
    if what in {"submit", "pause"}:
        for _ in range(figure):
            number = next(rig.numbers)
            rig.pool.submit(assignment(number, "work:note_number", str(noted), number, what == "pause", base=BASE))
            tasks.append(number)
            paused += [number] if what == "pause" else []
    elif what == "kill worker" and rig.pool.worker_pids:
        with suppress(ProcessLookupError):
            os.kill(rig.pool.worker_pids[figure % len(rig.pool.worker_pids)], signal.SIGKILL)
    elif what == "kill host":
        with suppress(ProcessLookupError):
            os.kill(rig.pool.host_pid, signal.SIGKILL)
    elif what == "cancel" and tasks:
        rig.pool.cancel(tasks[figure % len(tasks)])
    elif what == "look":
        rig.look(figure / 1000)
