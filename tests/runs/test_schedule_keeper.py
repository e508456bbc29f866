"""The schedules of a server, kept: on a clock that jumps, with a host that only notes what it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from detent.access.schedules import Scheduled
from detent.contract.schedule import read_schedule
from detent.errors import DetentError, InvalidInput
from detent.runs.schedules.keeper import Keeper, outlook, run_id_of, runs_prefix, schedule_of_run, tick_of_run
from detent.testing.home import FakeClock

HOUR = 3_600_000
BEGUN_MS = 1_700_000_000_000 // HOUR * HOUR
"""An hour sharp."""


class Now(Executor):
    """Does everything at once, or when it is told to."""

    def __init__(self) -> None:
        self.holds = False
        self.held: list[tuple[Future[Any], Any]] = []

    def submit(self, work: Any, /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.held.append((future, lambda: work(*given, **named)))
        if not self.holds:
            self.go_on()
        return future

    def go_on(self) -> None:
        held, self.held = self.held, []
        for future, work in held:
            try:
                future.set_result(work())
            except DetentError as exc:
                future.set_exception(exc)


@dataclass
class Host:
    """Runs by their ids, open until they are ended by the test."""

    open: dict[str, str] = field(default_factory=dict)
    begun: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    failures: list[tuple[int, str]] = field(default_factory=list)
    refuses: bool = False

    def last_started(self, scheduled: Scheduled) -> str | None:
        own = [run_id for run_id, _, _ in self.begun if schedule_of_run(run_id) == scheduled.schedule_id]
        return max(own, default=None)

    def running(self) -> dict[str, str]:
        return dict(self.open)

    def begin(self, scheduled: Scheduled, tick_ms: int, about: Mapping[str, Any]) -> None:
        if self.refuses:
            raise InvalidInput("there is no such function", code="INVALID_PARAMS")
        run_id = run_id_of(scheduled.name, scheduled.schedule_id, tick_ms)
        self.begun.append((run_id, tick_ms, dict(about)))
        self.open[scheduled.schedule_id] = run_id

    def failed(self, scheduled: Scheduled, tick_ms: int, exc: DetentError) -> None:
        self.failures.append((tick_ms, exc.code))

    def end(self, schedule_id: str = "sch_a") -> None:
        del self.open[schedule_id]

    @property
    def hours(self) -> list[int]:
        return [(tick - BEGUN_MS) // HOUR for _, tick, _ in self.begun]


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock(BEGUN_MS)
        self.host, self.pool, self.woken = Host(), Now(), 0
        self.restart()

    def restart(self) -> None:
        """Another host, which knows the ledger alone."""
        self.keeper = Keeper(self.host, self.clock, self.pool, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def look(self, *schedules: Scheduled, hours: float = 0) -> int:
        self.clock.jump(round(hours * HOUR))
        return self.keeper.look(schedules)


def scheduled(**changes: Any) -> Scheduled:
    made = Scheduled("sch_a", "team", "nightly", {"every": "1h"}, bytes(32), {}, "p_ann", BEGUN_MS, BEGUN_MS)
    return replace(made, **changes)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_every_occurrence_is_begun_once_and_its_run_is_named_for_it(rig: Rig) -> None:
    assert rig.look(scheduled()) <= 20_000
    assert rig.host.begun == []
    for _ in range(3):
        rig.look(scheduled(), hours=1)
        for _ in range(3):
            rig.look(scheduled())
        rig.host.end()
        rig.look(scheduled())
    assert rig.host.hours == [1, 2, 3]
    run_id, _, about = rig.host.begun[0]
    assert run_id == "nightly.a.20231114t230000"
    assert about == {"scheduled_for": "2023-11-14T23:00:00Z", "schedule": {"every": "1h"}, "schedule_id": "sch_a"}
    assert rig.woken == 3


def test_occurrences_that_overlap_with_a_run_are_missed_and_the_next_run_says_so(rig: Rig) -> None:
    rig.look(scheduled())
    rig.look(scheduled(), hours=1)
    rig.look(scheduled(), hours=1)
    rig.look(scheduled(), hours=1)
    rig.host.end()
    rig.look(scheduled())
    rig.look(scheduled(), hours=1)
    assert rig.host.hours == [1, 4]
    assert rig.host.begun[1][2]["missed"]["reasons"] == {"overlap": 2}


def test_occurrences_wait_their_turn_where_the_contract_says_so(rig: Rig) -> None:
    one = scheduled(rule={"every": "1h", "overlap": "queue"})
    rig.look(one)
    for _ in range(3):
        rig.look(one, hours=1)
    assert rig.host.hours == [1]
    for _ in range(2):
        rig.host.end()
        rig.look(one)
        rig.look(one)
    assert rig.host.hours == [1, 2, 3]


def test_another_host_goes_on_behind_the_last_run_and_begins_none_twice(rig: Rig) -> None:
    rig.look(scheduled())
    rig.look(scheduled(), hours=1)
    rig.restart()
    rig.look(scheduled(), hours=0.01)
    assert rig.host.hours == [1]
    rig.look(scheduled(), hours=1)
    assert rig.host.hours == [1], "its run goes on: the restart changed nothing about that"
    rig.host.end()
    rig.restart()
    rig.look(scheduled(), hours=1)
    assert rig.host.hours == [1, 3]
    missed = rig.host.begun[1][2]["missed"]
    assert (missed["count"], missed["occurrences"][0]["at"]) == (1, "2023-11-15T00:00:00Z")


def test_what_passed_while_no_server_ran_is_missed_and_not_made_up_for(rig: Rig) -> None:
    rig.look(scheduled())
    rig.restart()
    rig.look(scheduled(), hours=5.5)
    assert rig.host.begun == []
    rig.look(scheduled(), hours=0.5)
    assert rig.host.hours == [6]
    assert rig.host.begun[0][2]["missed"]["reasons"] == {"down": 5}


def test_a_paused_schedule_begins_nothing_and_goes_on_from_where_it_is_resumed(rig: Rig) -> None:
    rig.look(scheduled())
    rig.look(scheduled(paused_ms=BEGUN_MS), hours=2)
    assert rig.host.begun == []
    resumed = scheduled(since_ms=rig.clock.wall_ms())
    rig.look(resumed)
    rig.look(resumed, hours=1)
    assert rig.host.hours == [3]
    assert "missed" not in rig.host.begun[0][2]
    rig.look(hours=1)
    assert rig.host.hours == [3], "deleted"


def test_a_run_that_is_being_begun_is_not_begun_again(rig: Rig) -> None:
    rig.pool.holds = True
    rig.look(scheduled())
    rig.look(scheduled(), hours=1)
    rig.look(scheduled())
    rig.look(scheduled(), hours=1)
    assert len(rig.pool.held) == 1
    rig.pool.go_on()
    rig.look(scheduled())
    assert (rig.host.hours, rig.pool.held) == ([1], [])


def test_an_occurrence_that_cannot_be_begun_is_told_and_missed(rig: Rig) -> None:
    rig.host.refuses = True
    rig.look(scheduled())
    rig.look(scheduled(), hours=1)
    rig.look(scheduled())
    assert rig.host.failures == [(BEGUN_MS + HOUR, "INVALID_PARAMS")]
    rig.host.refuses = False
    rig.look(scheduled(), hours=1)
    assert rig.host.hours == [2]
    assert rig.host.begun[0][2]["missed"]["reasons"] == {"refused": 1}


def test_a_rule_that_this_machine_cannot_follow_is_told_once_and_harms_no_other(rig: Rig) -> None:
    odd = scheduled(schedule_id="sch_b", rule={"cron": "0 * * * *", "timezone": "Nowhere/Atlantis"})
    for _ in range(3):
        rig.look(odd, scheduled(), hours=1)
        rig.look(odd, scheduled())
        rig.host.open.clear()
    assert len(rig.host.failures) == 1
    assert len(rig.host.begun) == 2


def test_two_schedules_of_one_contract_have_runs_of_their_own(rig: Rig) -> None:
    pair = scheduled(), scheduled(schedule_id="sch_b")
    rig.look(*pair)
    rig.look(*pair, hours=1)
    assert sorted(run_id for run_id, _, _ in rig.host.begun) == [
        "nightly.a.20231114t230000",
        "nightly.b.20231114t230000",
    ]


def test_the_id_of_a_run_tells_its_schedule_and_its_occurrence_to_the_millisecond() -> None:
    schedule = read_schedule({"every": "1500ms", "offset": "250ms"})
    tick = 1_500 * 1_000_000 + 250
    run_id = run_id_of("Größe & Co", "sch_b2", tick)
    assert run_id.startswith(runs_prefix("Größe & Co", "sch_b2"))
    assert (schedule_of_run(run_id), tick_of_run(schedule, run_id)) == ("sch_b2", tick)
    following = run_id_of("Größe & Co", "sch_b2", tick + 1_500)
    assert run_id < following
    for other in ("nightly-0123456789", "nightly.a", "nightly.a.20231114t2300", "a.b.99999999t999999"):
        assert tick_of_run(schedule, other) is None


@pytest.mark.parametrize(
    ("rule", "hours", "running", "count"),
    [
        ({"every": "1h"}, 0.5, False, None),
        ({"every": "1h"}, 1.001, False, None),
        ({"every": "1h"}, 1.5, False, 1),
        ({"every": "1h"}, 3.5, False, 3),
        ({"every": "1h"}, 1.001, True, 1),
        ({"every": "1h", "overlap": "queue"}, 3.5, True, None),
        ({"every": "1h", "overlap": "queue"}, 18.5, True, 2),
    ],
)
def test_what_was_missed_follows_from_the_last_occurrence_that_was_started(
    rule: dict[str, str], hours: float, running: bool, count: int | None
) -> None:
    now_ms = BEGUN_MS + round(hours * HOUR)
    ahead = outlook(read_schedule(rule), BEGUN_MS, now_ms, running=running)
    assert (None if ahead.missed is None else ahead.missed.count) == count
    assert ahead.upcoming[0] == BEGUN_MS + (int(hours) + 1) * HOUR
    assert len(ahead.upcoming) == 5
