"""A run of a flow that a client has begun: driven by a thread of this process, recorded from its first moment."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

from detent.sdk.options import Duration, not_ended, waiting_seconds
from detent.sdk.run import Run, RunFailed, run_of
from detent.words.states import FAILED, RUNNING

if TYPE_CHECKING:
    from detent.runs.handle import RunHandle
    from detent.runs.runtime import Runtime


class FlowHandle:
    """A run that `Client.submit` has begun.

    It is on disk when `submit` returns, and goes on as long as its client is open. What is left of it when the process ends
    is taken up by the same submission again, by `flow.run()` or by `detent run`.
    """

    def __init__(self, work: Runtime, handle: RunHandle) -> None:
        self._work = work
        self._handle = handle
        self._run: Run | None = None
        self._error: BaseException | None = None
        self._unsaid: tuple[str, ...] = ()
        """Warnings about the flow that were not given yet."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._drive, name="detent-flow", daemon=True)

    def start(self) -> None:
        """Have the run recorded, and drive it."""
        self._handle.begin()
        self._thread.start()

    @property
    def run_id(self) -> str:
        """What `detent show` and `detent explain` call it."""
        return self._handle.run_id

    @property
    def deduplicated(self) -> bool:
        """Whether it goes on with a run that was begun before and left unfinished."""
        return self._handle.resumed

    @property
    def status(self) -> str:
        """``running``, ``succeeded``, ``failed`` or ``cancelled``; ``stopped`` for one that its client left unfinished."""
        if self._run is not None:
            return self._run.status
        return FAILED if self._error is not None else RUNNING

    def done(self) -> bool:
        """Whether nothing more will happen to it here."""
        return self._ended.is_set()

    def result(self, timeout: Duration | None = None) -> Any:
        """What the flow returned. Raises `RunFailed` if it did not succeed, `TimeoutError` if it has not ended in time.

        ``timeout`` is a number of seconds, a text such as ``"5m"``, or a timedelta.
        """
        return self.run(timeout).result()

    def run(self, timeout: Duration | None = None) -> Run:
        """The run once it has ended, with all its steps."""
        seconds = waiting_seconds("timeout", timeout)
        if not self._ended.wait(seconds):
            raise not_ended(f"run {self.run_id}", seconds)
        if self._run is None:
            raise self._error or RunFailed(f"run {self.run_id} was not driven")
        said, self._unsaid = self._unsaid, ()
        for text in said:
            warnings.warn(text, stacklevel=2)
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
        self._handle.cancel("cancelled by its client")
        return True

    def wait(self, timeout: float) -> bool:
        """Wait for its end; False when the time is over."""
        return self._ended.wait(timeout)

    def leave(self) -> None:
        """Leave the run as it stands, to be taken up again, and drive it no longer."""
        self._handle.stop()
        self._thread.join()

    def __repr__(self) -> str:
        return f"<run {self.run_id}: {self.status}>"

    def _drive(self) -> None:
        try:
            self._run = run_of(self._work, self._handle.run())
            self._unsaid = self._run.warnings
        except BaseException as exc:  # noqa: BLE001 - told to the caller who asks for the result
            self._error = exc
        finally:
            self._ended.set()
