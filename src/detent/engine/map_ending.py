"""The end of an ordered run that nobody will go on with: cancelled where its destination stands, and closed."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from detent.engine.ordered_runtime.notes import Notes, cancel_name
from detent.engine.ordered_runtime.recall import standing
from detent.engine.ordered_runtime.spec import TERMINAL
from detent.engine.patience import ask_again
from detent.engine.run_identity import RunLock
from detent.errors import DetentError
from detent.kernel import Cancel, Command, EndRun

if TYPE_CHECKING:
    from detent.engine.work import Work


def end_run(work: Work, run_id: str, reason: str) -> bool:
    """End a run as cancelled at its cursor; False when another process drives it, which is left to that one."""
    desk = work.desk
    lock = RunLock.take(desk.home.path, run_id)
    if lock is None:
        return False
    try:
        with suppress(DetentError):  # Notes that were erased, or a run that was ended meanwhile: it only has to end.
            boundary = standing(desk, run_id).cursor
            notes = Notes(desk, run_id, worker=work.crew.identity, label=run_id, env_version=work.recipes.env_version)
            notes.write(cancel_name(boundary), {"boundary": boundary, "requested": 0, "reason": reason})
        while True:
            rows = desk.reader.jobs(run_id=run_id)
            left: list[Command] = [
                Cancel(0, desk.tenant, row.job_id, "WORKFLOW_CANCELLED") for row in rows if row.state not in TERMINAL
            ]
            commands = [*left, EndRun(0, run_id, "cancelled")]
            ask = partial(desk.session.ask, commands, partition=desk.session.partition(run_id), content=())
            answer = ask_again(ask, threading.Event())[-1]
            if answer.refusal is None or answer.refusal.code != "RUN_NOT_DONE":
                return True
    finally:
        lock.release()
