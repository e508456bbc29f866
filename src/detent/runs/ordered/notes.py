"""What an ordered run puts onto the ledger beside its chunks: where the destination stands, where it was cut, whose it is,
and what other processes have asked of the one that drives it.

A note is a job of kind ``seq`` that is submitted, begun and finished in one commit: the commit lane is its worker, and its
signed report is the note. So it needs no record kind of its own, waits in no queue, and is either on the ledger whole or not
at all. Its id says what it is about, so the notes of a run can be told apart without reading them, and none can be written
twice with another content.

Cancellations that other processes ask for: a note each on the ledger, taken by the driver in the order of their numbers.

Only the driver knows which items have ended, so only the driver can resolve a boundary (X-069); a process that wants a run
cancelled therefore asks, and waits (X-193). The request is a note like any other: signed, durable before the driver sees it,
and still there for the process that takes the run up when the driver dies first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Final

from detent.canon import json_digest, json_encode_trusted
from detent.canon.late import dataclass, pattern
from detent.canon.strict_json import JsonValue
from detent.errors import NO_ROOM, error_of
from detent.executor.own_targets import STATED
from detent.jobs.order import Call, JobLimits, Order, Origin, Retries
from detent.jobs.work import SUCCEEDED, Result, WorkReport
from detent.kernel import Command, Evidence, Finish, Record, Transition
from detent.kernel.evidence import DISPATCH, REASON_DISPATCHED
from detent.kernel.identity import id_in_run, lease_key, name_in_run
from detent.kernel.run import CANCELLED
from detent.kernel.table import State
from detent.owner.backend import Backend, commands_of, joined
from detent.owner.session import ask_again
from detent.store.api import StoreReader

PRIORITY: Final = 10
ROOM_SECONDS: Final = 0.05
BEGIN, COMMIT, SUMMARY, TAKEN = "begin", "commit", "summary", "taken"
REQUEST: Final = "request"
_NAME: Final = pattern(r"(commit|cancel|request)-(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class NoteName:
    """What a note is about."""

    kind: str
    """``begin``, ``commit``, ``cancel``, ``request``, ``summary`` or ``taken``."""
    first: int = 0
    last: int = -1


def commit_name(first: int, last: int) -> str:
    """The note that these seqs are committed."""
    return f"{COMMIT}-{first}-{last}"


def cancel_name(boundary: int) -> str:
    """The note that everything from here on is cancelled (X-069)."""
    return f"cancel-{boundary}"


def request_name(number: int) -> str:
    """The note that another process asks the driver to cancel the run; the first one has number 0."""
    return f"{REQUEST}-{number}"


def taken_name(run_id: str) -> str:
    """The note that a step of this run has gone on with what that of another one began."""
    return f"{TAKEN}-{run_id}"


def stated(said: JsonValue) -> JsonValue:
    """What the order of a note asks for; its worker is the commit lane, and the answer is already known."""
    return said


class Notes:
    """Writes the notes of one run. Safe for several threads."""

    def __init__(self, backend: Backend, run_id: str, *, worker: str, label: str, env_version: str) -> None:
        self._backend = backend
        self._run_id = run_id
        self._worker = worker
        self._label = label
        self._env_version = env_version
        self.stop = threading.Event()

    def write(self, name: str, said: JsonValue) -> bool:
        """Put a note onto the ledger; it is durable when this returns. A full queue makes it wait (X-031).

        A note of this name that is there already stays as it is, and the answer is False; for a commit that is an error.
        """
        backend = self._backend
        job_id = id_in_run(self._run_id, name, backend.partitions)
        step = name.partition("-")[0]
        order = Order(
            Call(kind="python", target=STATED, arguments=(name,)),
            f"{self._label}/{step}",
            JobLimits(retries=Retries(0, ())),
            Origin(run_id=self._run_id, step=step),
        )
        submission = backend.submission(
            order,
            job_id=job_id,
            job_kind="seq",
            priority=PRIORITY,
            key=None,
            run_id=self._run_id,
        )
        (submit,) = commands_of([submission])
        lease_id = lease_key(backend.tenant, job_id, 0, 0)
        value, value_content, inline = backend.stored_value(json_encode_trusted(said))
        now = backend.now_ms()
        reported = backend.sign(
            WorkReport(
                job_id=job_id,
                attempt_id=0,
                lease_id=lease_id,
                manifest_hash=submit.manifest.hash,  # type: ignore[union-attr]  # signed a moment ago
                nonce=backend.random(16),
                result=Result(status=SUCCEEDED, value=value, started_ms=now, finished_ms=now),
                value_content=value_content,
                value_digest=json_digest(json_encode_trusted(said)),
                env_version=self._env_version,
                worker=self._worker,
            )
        )
        begun = Evidence(DISPATCH, REASON_DISPATCHED, lease_id, self._worker)
        commands: list[Command] = [
            submit,
            Transition(0, backend.tenant, job_id, 0, 0, State.QUEUED.value, State.RUNNING.value, begun.encode()),
            Finish(0, job_id, lease_id, detail_digest=reported.digest),
        ]
        content = joined([submission.inline, reported.inline, inline])
        ask = partial(backend.session.ask, commands, content=content, work=[submission.work])
        while True:
            answers = ask_again(backend.session, ask, self.stop)
            refusal = next((answer.refusal for answer in answers if answer.refusal is not None), None)
            if refusal is None or (refusal.code == "CONFLICT" and name.partition("-")[0] != COMMIT):
                return refusal is None
            if refusal.code not in NO_ROOM or self.stop.wait(ROOM_SECONDS):
                raise error_of(refusal)


def notes_of(reader: StoreReader, run_id: str) -> Iterator[NoteName]:
    """The notes of a run, in no order, by their names."""
    for row in reader.jobs(run_id=run_id):
        if row.state == State.SUCCEEDED and (named := note_name(run_id, row.job_id)) is not None:
            yield named


def note_name(run_id: str, job_id: str) -> NoteName | None:
    """What a job of an ordered run is a note about; None for one that computes."""
    name = name_in_run(run_id, job_id)
    if name in {BEGIN, SUMMARY}:
        return NoteName(name)
    if name.startswith(f"{TAKEN}-"):
        return NoteName(TAKEN)
    match = _NAME.fullmatch(name)
    return None if match is None else NoteName(match[1], int(match[2]), int(match[3] or match[2]))


def note(backend: Backend, run_id: str, name: str) -> JsonValue:
    """What a note says; None when there is none, or it was erased."""
    found = backend.report_of(id_in_run(run_id, name, backend.partitions))
    return None if found is None else backend.value(found[1])


@dataclass(frozen=True, slots=True)
class Request:
    """One request to cancel a run."""

    at: int
    """The first item that is to be cancelled; 0: as early as possible."""
    reason: str


class Requests:
    """The requests that a run has received and its driver has not taken yet. For one thread."""

    def __init__(self, backend: Backend, run_id: str) -> None:
        self._backend = backend
        self._run_id = run_id
        self._prefix = f"{run_id}/{REQUEST}-"
        self._next = 0

    def is_one(self, record: Record) -> bool:
        """Whether a record says that a request was written."""
        return record.kind == "submitted" and (record.job_id or "").startswith(self._prefix)

    def _is_written(self, name: str) -> bool:
        return self._backend.reader.job(id_in_run(self._run_id, name, self._backend.partitions)) is not None

    def take(self) -> Iterator[Request]:
        """Those that are new, in order. Looks one job up by its name, so it can be asked often."""
        while self._is_written(request_name(self._next)):
            said = note(self._backend, self._run_id, request_name(self._next))
            self._next += 1
            known = said if isinstance(said, dict) else {}  # Erased: that it was asked for is known all the same.
            at, reason = known.get("at"), known.get("reason")
            yield Request(at if type(at) is int else 0, reason if type(reason) is str else CANCELLED)


def write_request(notes: Notes, request: Request) -> None:
    """Ask the driver of a run to cancel it. Raises an error with ``UNKNOWN_RUN`` when the run has ended meanwhile."""
    number = 0
    while not notes.write(request_name(number), {"at": request.at, "reason": request.reason}):
        number += 1
