"""What-if on a recorded ledger: what is read from it, what has to be estimated, and a difference to the last job."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detent.canon import encode
from detent.errors import CODES, InvalidInput
from detent.inspect.export import export
from detent.inspect.traffic import Recorder
from detent.inspect.what_if import ADMISSION_CODES, what_if_file, what_if_home
from detent.kernel import (
    Claim,
    Command,
    Dispatch,
    Finish,
    Grant,
    Heartbeat,
    Order,
    RaiseEpoch,
    Submit,
    encode_commands,
)
from detent.ledger.items import BatchItem
from detent.owner.session import Session
from detent.owner.settings import read_policy
from detent.owner.wiring import Parts
from detent.scheduling import SchedulingPolicy
from detent.scheduling.orders import write_request
from detent.scheduling.what_if import Attempt, Came, Fate, WorkerCame, WorkerLeft, simulate
from detent.scheduling.what_if_figures import Waits
from detent.testing import FakeClock
from tests.homes import EARLY_MS, RUN, fresh
from tests.kernel.builders import OWNER_KEY_ID, verified
from tests.owner.homes import House as RealHouse
from tests.scheduling.fleets import generic, needs, replica
from tests.scheduling.test_scheduler import House, scheduled


class Taped(House):
    """A kernel with its scheduler, of which every recorded command and record is kept as a ledger would keep it."""

    def __init__(self, **policy: Any) -> None:
        super().__init__(**policy)
        settings = scheduled(**policy)
        self.items: list[BatchItem] = []
        assert self.apply(RaiseEpoch(0, 1, OWNER_KEY_ID, settings.encode())).ok

    def apply(self, command: Command) -> Any:
        outcome = super().apply(command)
        if outcome.recorded and hasattr(self, "items"):
            records = [(record.body, record.evidence) for record in outcome.records]
            self.items.append(BatchItem(0, b"", b"", encode_commands([command]), records))
        return outcome

    def recorder(self) -> Recorder:
        recorder = Recorder()
        for item in self.items:
            recorder.batch(item)
        return recorder

    def attempts(self, job_id: str) -> tuple[Attempt, ...]:
        inputs = self.recorder().traffic().inputs
        (work,) = [one.work for one in inputs if isinstance(one, Came) and one.work.arrival.job_id == job_id]
        return work.attempts


def seen(fates: dict[str, Fate]) -> dict[str, tuple[Any, ...]]:
    return {
        job_id: (fate.state, fate.came_tick, fate.started_tick, tuple(fate.replicas)) for job_id, fate in fates.items()
    }


# -- what is read ------------------------------------------------------------------------------------------------------


class Pushed(Taped):
    """Plays random traffic with the ticks, durations and outcomes of a seed, placing work the moment it can be."""

    def play(self, seed: int) -> None:
        rng = random.Random(seed)
        self.ends: list[tuple[int, int, Grant, bool | None]] = []
        arrivals = list(zip(sorted(rng.sample(range(400), 60)), range(60), strict=True))
        for tick, number in arrivals:
            self._until(tick, rng)
            self.ask(f"job-{number}", priority=rng.choice((1, 5, 9)), requirements=needs(), session_id=f"s{number % 3}")
            if number % 9 == 0:
                self.cancel(f"job-{rng.choice(arrivals)[1]}")
            self._place(rng)
        self._until(10_000, rng)

    def _place(self, rng: random.Random) -> None:
        for grant in self.apply(Dispatch(self.tick, 100)).grants:
            ok = rng.random() < 0.7 or (None if rng.random() < 0.3 else False)
            self.ends.append((self.tick + rng.randint(1, 90), len(self.ends), grant, ok))

    def _until(self, tick: int, rng: random.Random) -> None:
        while True:
            due = self.kernel.next_due()
            ticks = [end[0] for end in self.ends] + ([] if due is None else [due])
            if not ticks or min(ticks) > tick:
                self.tick = tick
                return
            self.at(min(ticks))
            for end in sorted(end for end in self.ends if end[0] <= self.tick):
                self.ends.remove(end)
                if end[3]:
                    self.finish(end[2])
                else:
                    self.fail(end[2], category="INTERNAL_ERROR" if end[3] is None else "BAD")
            self._place(rng)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("admission_policy", ["reject", "drop-lru", "shed-low-priority"])
def test_traffic_that_was_placed_at_once_is_simulated_as_it_was(seed: int, admission_policy: str) -> None:
    """The model against the kernel itself: under its own policy a recorded history comes out again, job for job."""
    house = Pushed(capacity=4, capacity_total=6, admission_policy=admission_policy)
    for one in (replica("a", max_slots=1), replica("b", free_vram_mb=500, max_slots=2)):
        assert house.order("replica_register", replica=one.to_map()).ok
    house.play(seed)
    recorder = house.recorder()
    recorded, again = recorder.fates(), simulate(recorder.traffic())
    assert len(recorded) > 20
    assert seen(again) == seen(recorded)


def test_an_attempt_is_as_long_as_its_lease_was_held_and_ends_as_it_did() -> None:
    house = Taped()
    grant = house.start("job")
    house.at(30)
    house.fail(grant)
    house.at(50)
    (grant,) = house.claim()
    house.at(57)
    house.finish(grant)
    assert house.attempts("job") == (Attempt(30, "retrying", delay_ticks=10), Attempt(7, "succeeded"))


def test_a_cut_attempt_holds_its_place_until_its_lease_would_have_ended_or_its_worker_said_so() -> None:
    """X-092"""
    house = Taped()
    for job_id in ("silent", "beating", "confirmed"):
        house.submit(job_id)
    grants = {grant.job_id: grant for grant in house.claim(3)}
    house.tick = 90
    house.apply(Heartbeat(90, "beating", grants["beating"].lease_id, progress=True))
    for job_id in grants:
        house.cancel(job_id)
    # No replica is registered in this house, so its scheduler holds no place that could be given back; a fleet's does.
    confirmed = Order(95, "job_stopped", encode({"job_id": "confirmed"}))
    house.items.append(BatchItem(0, b"", b"", encode_commands([confirmed]), []))
    assert house.attempts("silent") == (Attempt(None, "failed", hold_ticks=10),)
    assert house.attempts("beating") == (Attempt(None, "failed", hold_ticks=60, progress=(90,)),)
    assert house.attempts("confirmed") == (Attempt(None, "failed", hold_ticks=5),)


def test_what_never_ran_is_taken_to_need_the_median_of_its_kind() -> None:
    house = Taped()
    for length in (10, 20, 90):
        grant = house.start(f"ran-{length}")
        house.at(house.tick + length)
        house.finish(grant)
    assert house.start("running")
    house.at(house.tick + 5)
    house.submit("waiting")
    house.submit("other", job_kind="action")
    assert house.attempts("waiting") == house.attempts("other") == (Attempt(20, "succeeded"),)
    assert house.attempts("running") == (Attempt(20, "succeeded"),)
    house.at(house.tick + 60)
    assert house.attempts("running") == (Attempt(65, "succeeded"),)
    recorder = house.recorder()
    recorder.traffic()
    assert (recorder.estimates.never_ran, recorder.estimates.unfinished, recorder.estimates.unknown) == (2, 1, 0)


def test_workers_count_from_their_first_lease_to_their_last_and_there_is_always_one() -> None:
    house = Taped()
    for number in range(4):
        house.submit(f"job-{number}")
    two = house.claim(2, "early")
    house.at(10)
    (one,) = house.claim(1, "late")
    house.at(20)
    for grant in (*two, one):
        house.finish(grant)
    house.at(50)
    house.claim(1, "last")
    came = [one for one in house.recorder().traffic().inputs if isinstance(one, WorkerCame | WorkerLeft)]
    assert came == [
        WorkerCame(0, "early", 2),
        WorkerCame(10, "late", 1),
        WorkerLeft(20, "early"),
        WorkerCame(50, "last", 1),
        WorkerLeft(50, "late"),
    ]


def test_a_registered_replica_is_no_worker_of_the_open_pool() -> None:
    house = Taped()
    house.order("replica_register", replica=generic("g").to_map())
    house.submit()
    assert house.push() == [("job-1", "g")]
    assert house.recorder().workers == {}


def test_what_a_job_used_comes_with_its_job() -> None:
    house = Taped()
    house.order("session_open", session_id="s", tokens=100, time_ms=None, cost=None)
    house.apply(Submit(0, verified("job"), None, write_request(session_id="s", prompt_tokens=50)))
    (grant,) = house.claim()
    house.tick = 5
    house.order("session_settle", job_id="job", tokens=1, time_ms=0, cost=0)
    house.finish(grant)
    inputs = house.recorder().traffic().inputs
    (work,) = [one.work for one in inputs if isinstance(one, Came)]
    assert work.settled == encode({"job_id": "job", "tokens": 1, "time_ms": 0, "cost": 0})
    assert [getattr(one, "name", None) for one in inputs].count("session_settle") == 0


def test_a_refused_submission_that_was_recorded_is_an_arrival() -> None:
    """It was recorded because time had passed with it."""
    house = Taped(capacity_total=1)
    grant = house.start("running")
    house.submit("queued")
    house.tick = 100
    assert house.submit("refused").refusal is not None
    recorder = house.recorder()
    assert recorder.fates()["refused"].state == "refused"
    assert [one.tick for one in recorder.traffic().inputs if isinstance(one, Came)] == [0, 0, 100]
    assert grant.job_id == "running"


# -- a home ------------------------------------------------------------------------------------------------------------


def recorded_home(directory: Path) -> RealHouse:
    """Ten seconds of a worker that takes one second for a job, and of a job every half second, in a queue of two."""
    house = RealHouse(directory)
    settings = house.home.path / "config.toml"
    text = settings.read_text().replace("capacity_total = 2560", "capacity_total = 2")
    settings.write_text(text.replace('admission_policy = "reject"', 'admission_policy = "drop-lru"'))
    clock = FakeClock(EARLY_MS)
    with house.session(Parts(clock=clock)) as session:
        running: Grant | None = None
        for step in range(20):
            if running is not None and step % 2 == 0:
                (answer,) = session.ask([Finish(0, running.job_id, running.lease_id)])
                assert answer.refusal is None
                running = None
            running = running or claimed(session)
            if step < 8:
                (answer,) = session.ask([house.submit(f"job-{step}")])
                assert answer.refusal is None
            running = running or claimed(session)
            clock.jump(500)
    return house


def claimed(session: Session) -> Grant | None:
    return next(iter(session.ask([Claim(0, "worker")])[0].grants), None)


def policy_file(directory: Path, text: str) -> Path:
    path = directory / "policy.toml"
    path.write_text(text)
    return path


def test_a_home_under_another_policy_and_its_bundle_the_same(tmp_path: Path) -> None:
    """OC-CORE-1002a, X-082"""
    house = recorded_home(tmp_path)
    other = read_policy(policy_file(tmp_path, "[queue]\ncapacity_total = 2\n"))
    difference = what_if_home(house.home, other)
    assert difference.recorded.states == difference.before.states
    assert difference.recorded.waits == difference.before.waits
    assert [(one.name, one.before, one.after) for one in difference.settings] == [
        ("admission_policy", "drop-lru", "reject")
    ]
    # The fourth job finds the last place. Who drops the oldest drops it for the sixth, who rejects keeps it, so the fifth
    # and the seventh begin a second later, and the eighth finds no room.
    assert difference.turned == (("evicted", "refused", 1), ("evicted", "succeeded", 1), ("succeeded", "refused", 1))
    assert (difference.before.states["evicted"], difference.after.states["refused"]) == (2, 2)
    assert difference.before.waits == Waits(6, 833, 1000, 1500, 1500)
    assert difference.after.waits == Waits(6, 1167, 1000, 2000, 2000)
    assert [(change.job_id, change.before_ms, change.after_ms) for change in difference.wait_changes] == [
        ("job-4", 1000, 2000),
        ("job-6", 1000, 2000),
    ]
    assert difference.placements == ()
    whole = export(house.home, tmp_path / "all.detent", environment=house.environment)
    assert what_if_file(whole.path, other).to_map() == difference.to_map()


def test_a_home_under_its_own_policy_is_no_different(tmp_path: Path) -> None:
    house = recorded_home(tmp_path)
    difference = what_if_home(house.home, house.home.settings().scheduling_policy())
    assert difference.same
    assert difference.settings == ()
    assert difference.before == difference.after


def test_what_could_not_be_known_is_said(tmp_path: Path) -> None:
    house = recorded_home(tmp_path)
    with house.session(Parts(clock=FakeClock(EARLY_MS + 60_000))) as session:
        assert session.ask([replace(house.submit("never"), request=write_request(requirements=needs()))])[0].refusal
        assert session.ask([house.submit("waiting")])[0].refusal is None
    notes = " ".join(what_if_home(house.home, SchedulingPolicy()).notes)
    assert "is not tried again. The decision log has 1 of it." in notes
    assert "the median of its kind: 3 jobs" in notes
    assert "1 worker with 1 place in all" in notes
    assert CODES.keys() >= ADMISSION_CODES


def test_a_played_home_with_runs_retries_and_cancellations_is_simulated(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    difference = what_if_home(played.home, SchedulingPolicy())
    assert difference.same
    states = difference.recorded.states
    assert (states["succeeded"], states["failed"], states["cancelled"], states["unfinished"]) == (3, 1, 1, 1)
    assert difference.before.states["succeeded"] == 4


def test_what_holds_no_commands_is_refused(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    run = export(played.home, tmp_path / "run.detent", run_id=RUN, environment=played.environment)
    with pytest.raises(InvalidInput, match="bundle of one run; commands are not in it"):
        what_if_file(run.path, SchedulingPolicy())
    with pytest.raises(InvalidInput, match=r"nix\.detent cannot be read"):
        what_if_file(tmp_path / "nix.detent", SchedulingPolicy())
    whole = export(played.home, tmp_path / "all.detent", environment=played.environment).path
    whole.write_bytes(whole.read_bytes()[:-400])
    with pytest.raises(InvalidInput, match="cannot be read"):
        what_if_file(whole, SchedulingPolicy())
    played.edit(lambda database: database.execute("UPDATE batches SET commands = x'81816178'"))
    with pytest.raises(InvalidInput, match="a batch that cannot be read"):
        what_if_home(played.home, SchedulingPolicy())


# -- the policy file ---------------------------------------------------------------------------------------------------


def test_a_policy_file_reads_as_a_homes_settings_do(tmp_path: Path) -> None:
    text = '[queue]\ncapacity_per_class = 7\n[scheduling]\nplacement_order = "pack"\nsession_budgets = {tokens = 5}\n'
    expected = {"capacity": 7, "placement_order": "pack", "session_budgets": {"tokens": 5}}
    assert read_policy(policy_file(tmp_path, text)) == SchedulingPolicy.from_settings(expected)
    assert read_policy(policy_file(tmp_path, "")) == SchedulingPolicy()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[queue]\nsize = 3\n", "unknown key queue.size"),
        ("[scheduling]\nplacement = 'pack'\n", "no setting 'placement'"),
        ("[kernel]\nseed = 1\n", r"unknown section \[kernel\]"),
        ("queue = 3\n", "queue must be a section"),
        ("[queue]\nadmission_policy = 'drop-all'\n", "admission_policy must be one of"),
        ("[queue]\ncapacity_total = 0\n", "capacity_total"),
        ("[queue\n", "cannot be read"),
    ],
)
def test_a_bad_policy_file_is_refused_by_its_name_and_key(tmp_path: Path, text: str, said: str) -> None:
    path = policy_file(tmp_path, text)
    with pytest.raises(InvalidInput, match=said) as caught:
        read_policy(path)
    assert str(path) in str(caught.value)
    with pytest.raises(InvalidInput, match="is missing"):
        read_policy(tmp_path / "nix.toml")
