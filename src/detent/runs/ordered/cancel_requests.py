"""Cancellations that other processes ask for: a note each on the ledger, taken by the driver in the order of their numbers.

Only the driver knows which items have ended, so only the driver can resolve a boundary (X-069); a process that wants a run
cancelled therefore asks, and waits (X-193). The request is a note like any other: signed, durable before the driver sees it,
and still there for the process that takes the run up when the driver dies first.
"""

from __future__ import annotations

from collections.abc import Iterator

from detent.canon.late import dataclass
from detent.kernel import Record
from detent.kernel.run import CANCELLED
from detent.owner.backend import Backend
from detent.runs.ordered.notes import REQUEST, Notes, note, request_name


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

    def take(self) -> Iterator[Request]:
        """Those that are new, in order. Looks one job up by its name, so it can be asked often."""
        while self._backend.reader.job(f"{self._run_id}/{request_name(self._next)}") is not None:
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
