"""Closes an ordered run that no process drives: cancelled where its destination stands."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

from detent.canon.destinations import function_of
from detent.errors import DetentError
from detent.kernel import Cancel, Command, EndRun, Run
from detent.kernel import run as run_status
from detent.kernel.run import CANCELLED_WITH_RUN
from detent.kernel.table import TERMINAL
from detent.owner.ask_again import ask_again
from detent.owner.backend import Backend
from detent.reuse.ingredients.environment import env_version
from detent.runs.ordered.notes import Notes, cancel_name
from detent.runs.ordered.recovery import Standing, standing
from detent.runs.ordered.snapshot_file import remove_snapshot
from detent.runs.ordered.spec import OrderedInputs, read_ordered
from detent.runs.record.identity import RunLock
from detent.targets import CommitFailed, parse_target
from detent.workers.identity import worker_identity


def notes_for(backend: Backend, run_id: str) -> Notes:
    """Notes of a run that this process does not drive."""
    identity = str(worker_identity(backend.random(4).hex()))
    return Notes(backend, run_id, worker=identity, label=run_id, env_version=env_version({}))


def end_run(backend: Backend, run_id: str, reason: str) -> bool:
    """End a run as cancelled where its destination stands; False when another process drives it, which is left to that one."""
    lock = RunLock.take(backend.home.path, run_id)
    if lock is None:
        return False
    try:
        with suppress(DetentError):  # Notes that were erased, or a run that was ended meanwhile: it only has to end.
            known = standing(backend, run_id)
            boundary = _reached(backend, run_id, known)
            said = {"boundary": boundary, "requested": 0, "reason": reason}
            notes_for(backend, run_id).write(cancel_name(boundary), said)
        while True:
            rows = backend.reader.jobs(run_id=run_id)
            left: list[Command] = [
                Cancel(0, backend.tenant, row.job_id, CANCELLED_WITH_RUN) for row in rows if row.state not in TERMINAL
            ]
            commands = [*left, EndRun(0, run_id, run_status.CANCELLED)]
            ask = partial(backend.session.ask, commands, partition=backend.session.partition(run_id), content=())
            answer = ask_again(ask, threading.Event())[-1]
            if answer.refusal is None or answer.refusal.code != "RUN_NOT_DONE":
                remove_snapshot(backend.home.path, run_id)
                return True
    finally:
        lock.release()


def _reached(backend: Backend, run_id: str, known: Standing) -> int:
    """The first item that the destination does not have.

    A driver that was killed may have written more than it recorded. A file is cut to the recorded length, as a resume would do,
    and a table says itself how far it is: otherwise what comes next would find some items there already, and add them again.
    A destination that cannot be opened now is taken to stand where the ledger says.
    """
    inputs = _inputs(backend, run_id)
    written = None if inputs is None else inputs.spec.commit
    if inputs is None or written is None or known.mark is None or function_of(written) is not None:
        return known.cursor
    target = parse_target(written, base=None if inputs.spec.base is None else Path(inputs.spec.base))
    try:
        return max(known.cursor, target.open(run_id, known.mark))
    except CommitFailed:
        return known.cursor
    finally:
        target.close()


def _inputs(backend: Backend, run_id: str) -> OrderedInputs | None:
    row = backend.reader.run(run_id)
    return None if row is None else read_ordered(backend.unsealed(Run.decode(row.body).inputs_digest))
