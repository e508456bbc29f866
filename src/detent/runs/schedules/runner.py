"""Running a contract by its schedule: asks a `Watch` what to do, does it, and goes on from the ledger after a restart.

Every occurrence has one run, also with several watchers: its ids follow from the occurrence, and the run's lock decides between two
watchers on one home. Between runs nothing is open, so that a watcher holds no resources and code is read afresh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final
from uuid import UUID

from detent.canon import digest_text, json_digest, json_encode
from detent.canon.late import dataclass
from detent.contract.schedule import Schedule
from detent.errors import DetentError, InvalidInput
from detent.kernel import Run
from detent.kernel.run import RUNNING
from detent.owner.content import Content, open_value
from detent.owner.home import Home
from detent.owner.ticks import Clock
from detent.owner.wiring import Parts
from detent.runs.record.identity import new_run_id
from detent.runs.record.inputs import RunIdentity, RunInputs, RunLock, parse_inputs
from detent.runs.schedules.due import Due, Missed, Sleep, Watch, last_started_ms, occurrence_id, scheduled_for_ms
from detent.runs.schedules.times import moment_text
from detent.store.api import StoreReader

RUNS_SEARCHED_MAX: Final = 2_000
"""Newest runs of a home in which those of the schedule are looked for."""
SCHEDULED_SEEN_MAX: Final = 50
"""Runs of the schedule after which no older one is looked at."""
_WHY: Final = {
    "down": "no process was watching",
    "late": "this process was asleep or busy",
    "overlap": "the run before it was still going",
    "queue_full": "too many were waiting already",
    "refused": "its run could not be started",
}

Taken = tuple[RunIdentity, RunLock]
Drive = Callable[[RunInputs, Taken], object]
"""Drives a run to its end, or raises."""


@dataclass(slots=True)
class Hands:
    """What the loop needs from its caller."""

    clock: Clock
    wait: Callable[[float], None]
    """Wait for so many seconds, or less when asked to end."""
    drive: Drive
    say: Callable[[str], None]
    ending: Callable[[], bool]
    """Whether it has been told to end."""


def schedule_of(inputs: RunInputs) -> Schedule:
    """The schedule of a contract; `InvalidInput` says what to write when it has none."""
    schedule = inputs.contract.schedule
    if schedule is None:
        raise InvalidInput(
            f"{inputs.contract.name} has no schedule",
            hint="write `schedule: {every: 15m}` or `schedule: {cron: '0 6 * * 1-5'}` into it, or leave --watch out",
        )
    return schedule


class Watching:
    """One contract with its parameters, run by its schedule."""

    def __init__(self, home: Home, inputs: RunInputs, hands: Hands, *, parts: Parts | None = None) -> None:
        self._schedule = schedule_of(inputs)
        self._home, self._inputs, self._hands = home, inputs, hands
        self._parts = parts or Parts()
        values = json_encode([inputs.contract.base, dict(inputs.params)], name="params")
        # Two watchers with other parameters are two schedules, even of one contract.
        self._series = f"{inputs.name} {digest_text(json_digest(values))}"
        self._announced: int | None = None

    def run(self) -> None:
        """Watch until told to end, or until the schedule has no occurrence left."""
        hands = self._hands
        abouts, left = self._earlier()
        left_ms = None if left is None else scheduled_for_ms(left[0].about)
        watch = Watch(self._schedule, hands.clock, last_started_ms(abouts), running_ms=left_ms)
        if left is not None and left_ms is not None:
            self._go_on(watch, left_ms, *left)
        while not hands.ending():
            action = watch.next_action(hands.clock.wall_ms())
            if isinstance(action, Missed):
                self._say_missed(action)
            elif isinstance(action, Due):
                self._start(watch, action)
            elif action.next_ms is None:
                hands.say("the schedule has no occurrence left")
                return
            else:
                self._sleep(action)

    def _start(self, watch: Watch, due: Due) -> None:
        tick_ms = due.tick_ms
        taken = self._take(tick_ms)
        if taken is None:
            watch.started(tick_ms)
            self._say_missed(watch.ended(tick_ms, self._hands.clock.wall_ms()))
            self._hands.say(f"{self._moment(tick_ms)} is run, or was run, by another process")
            return
        inputs = replace(self._inputs, about=watch.to_inputs(tick_ms))
        try:
            self._hands.drive(inputs, taken)
        except DetentError as exc:
            self._hands.say(f"error: {exc} ({exc.code})")
            if not self._exists(taken[0].run_id):
                watch.refused(tick_ms)
                self._hands.say(f"no run could be started for {self._moment(tick_ms)}; the next run records it")
                return
        finally:
            taken[1].release()
        watch.started(tick_ms)
        self._say_missed(watch.ended(tick_ms, self._hands.clock.wall_ms()))

    def _go_on(self, watch: Watch, tick_ms: int, inputs: RunInputs, taken: Taken) -> None:
        self._hands.say(f"goes on with run {taken[0].run_id}, which was started for {self._moment(tick_ms)}")
        try:
            self._hands.drive(inputs, taken)
        finally:
            taken[1].release()
        self._say_missed(watch.ended(tick_ms, self._hands.clock.wall_ms()))

    def _exists(self, run_id: str) -> bool:
        with self._parts.open_reader(self._home.ledger) as reader:
            return reader.run(run_id) is not None

    def _take(self, tick_ms: int) -> Taken | None:
        """The run of an occurrence, ours to drive; None when another process has it or it is over."""
        operation_id = occurrence_id(self._series, tick_ms)
        run_id = new_run_id(self._inputs.name, lambda size: operation_id.bytes[:size])
        lock = RunLock.take(self._home.path, run_id)
        if lock is None:
            return None
        with self._parts.open_reader(self._home.ledger) as reader:
            row = reader.run(run_id)
        if row is None:
            return RunIdentity(run_id, operation_id), lock
        if row.status == RUNNING:
            return RunIdentity(run_id, UUID(Run.decode(row.body).operation_id), resumed=True), lock
        lock.release()
        return None

    def _earlier(self) -> tuple[list[Mapping[str, Any]], tuple[RunInputs, Taken] | None]:
        """What earlier runs of this schedule say about themselves, and the one that was left unfinished, taken."""
        abouts: list[Mapping[str, Any]] = []
        left: tuple[RunInputs, Taken] | None = None
        with self._parts.open_reader(self._home.ledger) as reader:
            for row in islice(reader.runs(), RUNS_SEARCHED_MAX):
                run = Run.decode(row.body)
                document = self._document(reader, run) if row.name == self._inputs.name else None
                if document is None:
                    continue
                abouts.append(document["about"])
                if row.status == RUNNING and left is None:
                    left = self._left(run, document)
                if len(abouts) == SCHEDULED_SEEN_MAX:
                    break
        return abouts, left

    def _left(self, run: Run, document: dict[str, Any]) -> tuple[RunInputs, Taken] | None:
        lock = RunLock.take(self._home.path, run.run_id)
        if lock is None:
            return None
        try:
            inputs = parse_inputs(document, run.run_id)
        except DetentError:
            lock.release()
            return None
        return inputs, (RunIdentity(run.run_id, UUID(run.operation_id), resumed=True), lock)

    def _document(self, reader: StoreReader, run: Run) -> dict[str, Any] | None:
        """The inputs of a run of this very schedule; None for any other."""
        try:
            data = Content(reader, self._home.content_files()).get(run.inputs_digest)
            document = None if data is None else open_value(data)
        except DetentError:
            return None
        if not isinstance(document, dict) or not isinstance(about := document.get("about"), dict):
            return None
        base, params = self._inputs.contract.base, dict(self._inputs.params)
        same = (document.get("base"), document.get("params")) == (base, params)
        return document if same and scheduled_for_ms(about) is not None else None

    def _sleep(self, action: Sleep) -> None:
        if action.next_ms is not None and action.next_ms != self._announced:
            self._announced = action.next_ms
            self._hands.say(f"next run of {self._inputs.name} at {self._moment(action.next_ms)}")
        self._hands.wait(action.ms / 1000)

    def _say_missed(self, missed: Missed | None) -> None:
        if missed is None:
            return
        first, last = self._moment(missed.first_ms), self._moment(missed.last_ms)
        when = first if missed.count == 1 else f"{missed.count:,} occurrences from {first} to {last}"
        self._hands.say(f"missed {when}: {_WHY.get(missed.reason, missed.reason)}; the next run records it")

    def _moment(self, moment_ms: int) -> str:
        return moment_text(moment_ms, self._schedule.timezone).replace("T", " ")
