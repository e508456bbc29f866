"""`detent run --watch`: a contract whenever its schedule says, until Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from detent.cli.shell import Shell
from detent.errors import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from detent.reuse.work_keys import Options
    from detent.runs.handle import RunHandle
    from detent.runs.record.inputs import RunInputs
    from detent.runs.schedules.runner import Taken


class Interrupts:
    """Ctrl-C ends the watch after the run that is going; once more, or a request to terminate, at once.

    A run that is left in its middle is taken up again by the next watch.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._handle: RunHandle | None = None
        self._woken = threading.Event()

    def ending(self) -> bool:
        """Whether it has been asked for the end."""
        return self.asked > 0

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it is asked for the end."""
        self._woken.wait(seconds)

    def interrupted(self, number: int, _frame: FrameType | None = None) -> None:
        """A signal."""
        self.asked += 1
        handle = self._handle
        if handle is not None:
            if number == signal.SIGINT and self.asked == 1:
                handle.tell("the watch ends after this run; Ctrl-C again stops at once")
            else:
                handle.stop()
        self._woken.set()

    @contextmanager
    def minding(self, handle: RunHandle) -> Iterator[None]:
        """Know the run that is going."""
        self._handle = handle
        try:
            yield
        finally:
            self._handle = None

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals for as long as the block lasts."""
        before = {number: signal.signal(number, self.interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def watch_runs(
    shell: Shell, inputs: RunInputs, options: Options, *, workers: int | None, quiet: bool, drive: Callable[..., int]
) -> int:
    """Watch until the end is asked for. Every run answers with its own summary, or its own JSON document."""
    from detent.owner.ticks import SystemClock  # noqa: PLC0415
    from detent.runs.handle import RunHandle  # noqa: PLC0415
    from detent.runs.runtime import Runtime, home_at  # noqa: PLC0415
    from detent.runs.schedules.runner import Hands, Watching, schedule_of  # noqa: PLC0415

    schedule_of(inputs)  # No home is made for a contract that cannot be watched.
    home, interrupts = home_at(shell.home_option), Interrupts()

    def drive_one(run_inputs: RunInputs, taken: Taken) -> None:
        with Runtime(home, workers=workers) as work:
            handle = RunHandle(work, run_inputs, options=options, taken=taken)
            drive(shell, work, handle, quiet=quiet, catching=interrupts.minding)

    def say(text: str) -> None:
        shell.note(f"{time.strftime('%H:%M:%S')} {text}")

    hands = Hands(SystemClock(), interrupts.wait, drive_one, say, interrupts.ending)
    with interrupts.caught():
        Watching(home, inputs, hands).run()
    return EXIT_INTERRUPTED if interrupts.asked else 0
