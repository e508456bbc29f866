"""A run of a flow at a server: recorded here, sent with its code, and driven there whether this process lives or not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from detent.kernel.run import COMPLETED
from detent.remote.problems import AnswerInvalid
from detent.remote.runs import RemoteRun
from detent.runs.handle import FailedJob, RunResult
from detent.sdk.options import Duration, not_ended, waiting_seconds
from detent.sdk.remote_values import RemoteValues, jobs_of_run
from detent.sdk.run import REASONS_MAX, Run, RunFailed
from detent.words.states import OVER, SUCCEEDED

if TYPE_CHECKING:
    from detent.remote.http import Http
    from detent.remote.runs import Outcome

LOOK_SECONDS: Final = 30


class RemoteFlowHandle:
    """A run that `Client.submit` has begun at a server.

    It is on the ledger when `submit` returns, and goes on without this process. The same submission finds it again while it has not ended.
    """

    def __init__(self, http: Http, values: RemoteValues, run: RemoteRun) -> None:
        self._http, self._values, self._remote = http, values, run
        self._run: Run | None = None
        self._is_left_out = False

    @property
    def run_id(self) -> str:
        """What `detent show` and `detent explain` call it."""
        return self._remote.run_id

    @property
    def deduplicated(self) -> bool:
        """Whether it goes on with a run that was begun before and left unfinished."""
        return self._remote.view().resumed

    @property
    def status(self) -> str:
        """``running``, ``succeeded``, ``failed`` or ``cancelled``."""
        known = self._remote.view().status
        return known if known in OVER else self._remote.look().status

    def done(self) -> bool:
        """Whether it has ended."""
        return self.status in OVER

    def result(self, timeout: Duration | None = None) -> Any:
        """What the flow returned. Raises `RunFailed` if it did not succeed, `TimeoutError` if it has not ended in time."""
        ended = self.run(timeout)
        if self._is_left_out:
            raise AnswerInvalid(
                f"the result of run {self.run_id} is too large to be sent",
                hint="return large data as a detent.File; `detent show` tells what each step returned",
            )
        return ended.result()

    def run(self, timeout: Duration | None = None) -> Run:
        """The run once it has ended, with all its steps."""
        seconds = waiting_seconds("timeout", timeout)
        if not self.wait(seconds):
            raise not_ended(f"run {self.run_id}", seconds)
        if self._run is None:
            left = self._remote.outcome()
            self._is_left_out = left.result_left_out
            self._run = self._ended(left)
        return self._run

    def exception(self, timeout: Duration | None = None) -> RunFailed | None:
        """Why the run did not succeed; None if it did."""
        try:
            self.result(timeout)
        except RunFailed as exc:
            return exc
        return None

    def cancel(self) -> bool:
        """Cancel what is open of the run and end it; False when it has ended already."""
        if self.done():
            return False
        self._remote.cancel("cancelled by its client")
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end; False when the time is over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._remote.view().status not in OVER:
            left = LOOK_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
            if self._remote.look(int(min(LOOK_SECONDS, left))).status in OVER:
                break
            if deadline is not None and time.monotonic() >= deadline:
                return False
            if left < 1:
                time.sleep(min(left, 0.05))  # What is left of the time is shorter than a request can wait.
        return True

    def __repr__(self) -> str:
        return f"<run {self.run_id}: {self._remote.view().status}>"

    def _ended(self, left: Outcome) -> Run:
        view = self._remote.view()
        ok = view.status == SUCCEEDED
        value = self._values.restored(left.result, lambda: jobs_of_run(self._http, self.run_id)) if ok else None
        failed = tuple(FailedJob(one.step, one.job_id or "", one.message) for one in left.failures)
        status = COMPLETED if ok else view.status
        result = RunResult(
            self.run_id, view.name, status, view.note, value, view, failed, gives_result=left.gives_result
        )
        return Run(result, view.home, [one.where for one in left.failures[:REASONS_MAX] if one.where is not None])
