"""The workers of a home as a process of their own: they claim and run jobs that other processes submit.

`detent serve` starts them as its child, so that code of users never runs in the server's process. They never own the home. When its
owner ends they keep what they have begun and wait for the next one; when none comes they end.
"""

from __future__ import annotations

import time
from typing import Final

from detent.owner.home import Home
from detent.owner.session import Session
from detent.runs.ending import Ending
from detent.runs.runtime import Runtime
from detent.workers.supervisor import Supervisor

LOOK_SECONDS: Final = 0.5
DRAIN_SECONDS: Final = 10.0


def work_until(home: Home, ending: Ending, *, workers: int | None, drain_seconds: float = DRAIN_SECONDS) -> None:
    """Run jobs until the end is asked for; then take nothing more and finish what is under way.

    After a signal that takes ``drain_seconds`` at most: attempts that are not done by then count as interrupted, and their jobs
    can be had at once by other workers. A server that has gone asks for no hurry. Raises what the workers ended by, if they did
    not end on request.
    """
    with (
        ending.caught(),
        Session(home, take_over=False) as session,
        Runtime(home, workers=workers, session=session) as work,
    ):
        supervisor = work.supervisor
        while not ending.asked.wait(LOOK_SECONDS):
            _check(supervisor)
        deadline: float | None = None
        while not ending.at_once.is_set() and not supervisor.drain(LOOK_SECONDS):
            _check(supervisor)
            if ending.signal and deadline is None:
                deadline = time.monotonic() + drain_seconds
            if deadline is not None and time.monotonic() > deadline:
                return
        _check(supervisor)


def _check(supervisor: Supervisor) -> None:
    if supervisor.failure is not None:
        raise supervisor.failure
