"""Runs that a driver host begins by schedules: what the keeper (`schedules/keeper.py`) needs from the ledger and from the host.

The schedules are read off the ledger again before each run is begun, under a lock for each schedule. So once `refresh` has returned
for a schedule that was paused or deleted, no further run of it begins.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from detent.access.changes import Change, server_principal
from detent.access.schedules import FAILED, Scheduled, Schedules
from detent.errors import DetentError
from detent.kernel.records import OPERATED
from detent.kernel.run import RUNNING
from detent.owner.operating import commit, new_request_id, opened, operate
from detent.owner.views import Times
from detent.runs.record.inputs import RETRY_OF, RunIdentity, RunInputs, parse_inputs
from detent.runs.runtime import Runtime
from detent.runs.schedules.due import occurrence_id
from detent.runs.schedules.keeper import SCHEDULE_ID, Keeper, run_id_of, runs_prefix, schedule_of_run

BEGUN_AT_ONCE: Final = 4
"""Runs that are begun together."""
ROUTE: Final = "schedules"
"""What the records of a host say in place of a route."""


class ScheduledRuns:
    """The schedules of a server, followed. `look` and what the keeper calls are for one thread, the rest for any."""

    def __init__(
        self,
        work: Runtime,
        begin: Callable[[Scheduled, RunIdentity, RunInputs], None],
        driven: Callable[[], Iterable[str]],
        wake: Callable[[], None],
    ) -> None:
        """``begin`` has a run recorded and driven; ``driven`` are the runs that the host drives; ``wake`` asks for a look."""
        self._work, self._begin, self._driven = work, begin, driven
        self._schedules, self._at = Schedules(), 0
        self._reading = threading.Lock()
        self._beginning: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """By schedule: held while a run of it is begun."""
        self._resumed: dict[str, str] = {}
        """Runs that were taken up again, each with its schedule: one that began anew has an id that does not tell."""
        pool = ThreadPoolExecutor(BEGUN_AT_ONCE, "detent-schedules")
        self._keeper = Keeper(self, work.parts.clock, pool, wake)

    # -- for the host --------------------------------------------------------------------------------------------------

    def look(self) -> float:
        """Begin what is due; for how many seconds nothing else will be."""
        self._read()
        return self._keeper.look(self._schedules) / 1000

    def refresh(self, schedule_id: str) -> None:
        """Go by the ledger as it is now. A run of this schedule that is being begun is recorded when this returns."""
        self._read()
        with self._beginning[schedule_id]:
            pass

    def resumed(self, run_id: str, about: Mapping[str, Any]) -> None:
        """Take note of a run that is taken up again, by what its inputs say."""
        if isinstance(schedule_id := about.get(SCHEDULE_ID), str) and RETRY_OF not in about:
            self._resumed[run_id] = schedule_id

    def keep_open(self, run_ids: set[str]) -> None:
        """Forget runs that are not among those that have not ended."""
        self._resumed = {run_id: name for run_id, name in self._resumed.items() if run_id in run_ids}

    # -- for the keeper ------------------------------------------------------------------------------------------------

    def last_started(self, scheduled: Scheduled) -> str | None:
        """The run of a schedule's last occurrence that was started."""
        prefix = runs_prefix(scheduled.name, scheduled.schedule_id)
        row = self._work.backend.reader.last_run_prefixed(scheduled.workspace, prefix)
        return None if row is None else row.run_id

    def running(self) -> dict[str, str]:
        """The schedules whose runs have not ended, each with such a run."""
        runs = [*(row.run_id for row in self._work.backend.reader.runs(status=RUNNING)), *self._driven()]
        named = {run_id: name for run_id in runs if (name := schedule_of_run(run_id)) is not None}
        return {schedule_id: run_id for run_id, schedule_id in (self._resumed | named).items()}

    def begin(self, scheduled: Scheduled, tick_ms: int, about: Mapping[str, Any]) -> None:
        """Have the run of an occurrence recorded and driven, unless the schedule was paused or deleted meanwhile."""
        own = scheduled.schedule_id
        run_id = run_id_of(scheduled.name, own, tick_ms)
        with self._beginning[own]:
            self._read()
            known = self._schedules.schedule(scheduled.workspace, own)
            if known is None or known.paused_ms is not None or known.since_ms != scheduled.since_ms:
                return
            backend = self._work.backend
            inputs = replace(parse_inputs(backend.unsealed(scheduled.inputs), run_id), about=about)
            try:
                self._begin(scheduled, RunIdentity(run_id, occurrence_id(own, tick_ms)), inputs)
            except DetentError:
                if backend.reader.run(run_id) is None:  # Otherwise a host that is about to end has begun it.
                    raise

    def failed(self, scheduled: Scheduled, tick_ms: int, exc: DetentError) -> None:
        """Record that no run could be begun for an occurrence: once, until one can be, or it fails otherwise."""
        known = self._schedules.schedule(scheduled.workspace, scheduled.schedule_id)
        if known is None or self._is_known(known, exc.code):
            return
        change = Change(FAILED, "schedule", known.schedule_id, known.workspace, {"tick_ms": tick_ms})
        command = operate(
            server_principal(known.workspace),
            change,
            request_id=new_request_id(),
            route=ROUTE,
            reason=str(exc),
            outcome_code=exc.code,
        )
        with contextlib.suppress(DetentError):  # The next one that fails says it.
            commit(self._work.session, [command])

    # -- inside --------------------------------------------------------------------------------------------------------

    def _is_known(self, scheduled: Scheduled, code: str) -> bool:
        failure = scheduled.failure
        if failure is None or failure.code != code:
            return False
        last = self.last_started(scheduled)
        return last is None or last < run_id_of(scheduled.name, scheduled.schedule_id, failure.tick_ms)

    def _read(self) -> None:
        """Take in what operators did since the last look."""
        reader = self._work.backend.reader
        with self._reading:
            rows = list(reader.records_of_kind(0, OPERATED, self._at))
            times = Times.of(reader) if rows else Times()
            for row in rows:
                body, evidence = opened(row)
                if body:
                    self._schedules.apply(body, evidence, at_ms=times.ms(body["tick"]))
                self._at = row.position + 1
