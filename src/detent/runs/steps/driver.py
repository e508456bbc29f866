"""The driver: from a contract to finished work, one job for each action (X-023).

It has what is ready submitted, waits for news of the jobs, and ends the run when nothing is left. It holds nothing that is not
on the ledger: killed at any moment and started again, it finds the jobs of its run by their ids, which follow from the
recorded operation, and goes on (X-174). A full queue holds it back (X-031).

Here is what comes from outside: commits, attempts of this process's supervisor, requests to cancel or to stop. What they mean for the
run is `progress`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty
from typing import Any, Final

from detent.canon import decode
from detent.canon.late import dataclass
from detent.kernel import Evidence
from detent.kernel.history import RUN_ENDED, Record
from detent.owner.backend import Backend
from detent.reuse.work_keys import Options, WorkKeys
from detent.runs.record.identity import is_asked_to_cancel
from detent.runs.record.inputs import RunIdentity, RunInputs
from detent.runs.steps.next_work import Candidate
from detent.runs.steps.progress import RUN_CANCELLED, RunProgress
from detent.runs.submit.submitter import ENDED_ELSEWHERE, Events, Submitter
from detent.words.states import CANCELLED, RUNNING, STOPPED
from detent.workers.bench import Attempted
from detent.workers.supervisor import Supervisor

POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class _Cancel:
    reason: str


class Driver:
    """Drives one run. `run` returns when it has ended; `cancel` and `stop` may be called from other threads."""

    def __init__(
        self,
        backend: Backend,
        inputs: RunInputs,
        identity: RunIdentity,
        work_keys: WorkKeys,
        *,
        supervisor: Supervisor,
        options: Options | None = None,
        start: Callable[[], None] = lambda: None,
    ) -> None:
        self.backend = backend
        self.identity = identity
        self.status = RUNNING
        self.ended_ms: int | None = None
        self._events: Events[Sequence[Attempted] | Record | _Cancel | None] = Events(supervisor)
        self._stop = threading.Event()
        self._submitter: Submitter[Candidate] = Submitter(
            backend, supervisor, self._stop, run_id=identity.run_id, start=start
        )
        self.progress = RunProgress(backend, inputs, identity, work_keys, options or Options(), self._submitter)
        """Where the run stands."""

    # -- for others ----------------------------------------------------------------------------------------------------

    def attempted(self, attempted: Sequence[Attempted]) -> None:
        """Attempts have been closed by a supervisor of this process."""
        self._events.put(attempted)

    def observe(self, records: Sequence[Record]) -> None:
        """Commits of this home: what happens to the run's jobs beside what its own supervisor tells."""
        for record in records:
            if self._submitter.is_news(record):
                self._events.put(record)
            elif record.kind == RUN_ENDED and record.run_id == self.identity.run_id:
                # A run that waits for the jobs of others alone learns of its cancellation by nothing else.
                self._events.put(_Cancel(ENDED_ELSEWHERE))

    def cancel(self, reason: str = CANCELLED) -> None:
        """End the run as cancelled: its open jobs are cancelled, then the run is closed."""
        self._events.put(_Cancel(reason))

    def stop(self) -> None:
        """Leave the run as it stands: nothing is cancelled, and it can be resumed."""
        self._stop.set()
        self._events.put(None)

    def result(self, file: Callable[[dict[str, Any]], Any]) -> Any:
        """What the whole run gives back, as the contract says; ``file`` makes of a file's mapping what files are."""
        return self.progress.orders.result(file)

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Drive the run to its end and return its status; ``stopped`` when it was left as it stands."""
        progress = self.progress
        progress.begin()
        if progress.time_is_over:
            with self.backend.turn:
                progress.take_past()  # What it did counts, and what it left open has failed.
        progress.check_time()
        while True:
            with self.backend.turn:
                progress.offer()
            if progress.is_done:
                self.status = progress.end()
                self.ended_ms = self.backend.now_ms()
                return self.status
            if self._stop.is_set():
                self.status = STOPPED
                return self.status
            self._submitter.start()  # It waits for jobs, which nothing else may be at work on.
            self._take_events()
            self._submitter.check_supervisor()
            progress.check_time()

    def _take_events(self) -> None:
        """Wait for news, and take all there is. Nothing depends on being told: when none comes, the ledger is asked."""
        try:
            event = self._events.next(POLL_SECONDS)
        except Empty:
            if is_asked_to_cancel(self.backend.home.path, self.identity.run_id):
                self.progress.cancel(RUN_CANCELLED)
            for ended in self._submitter.poll():
                self.progress.ended(ended.job_id, ended.state, ended.digest, ended.report)
            return
        with self.backend.turn:
            while True:
                if isinstance(event, Record):
                    self._observed(event)
                elif isinstance(event, _Cancel):
                    self.progress.cancel(event.reason)
                else:
                    for one in event or ():
                        self.progress.ended(one.job_id, one.state, one.digest, one.report)
                try:
                    event = self._events.get_nowait()
                except Empty:
                    return

    def _observed(self, record: Record) -> None:
        body = decode(record.body) if record.kind == "transition" else None
        if isinstance(body, dict):
            digest = None if record.evidence is None else Evidence.decode(record.evidence).detail_digest
            self.progress.ended(record.job_id or "", str(body["to_state"]), digest)
