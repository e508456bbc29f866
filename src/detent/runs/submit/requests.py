"""Requests under a client's idempotency key: which job answers one, and what is remembered for the next (JOB-029 to JOB-033).

Answers are kept beside the ledger and are not signed. They lead to a job; what that job's submitter signed decides whether it is the
job of this request (X-196).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from detent.errors import IdempotencyKeysFull, Refused, StoreCorrupt, error_of
from detent.jobs.dedupe import Repeated, StoredAnswer, decide_idempotency
from detent.jobs.kept_answer import WHOLE
from detent.jobs.order import Order
from detent.owner.backend import Backend
from detent.owner.kept_answers import free_job_id, request_digest
from detent.owner.socket_messages import Answer
from detent.store.api import AnswerRow


class KeptRequests:
    """The requests that a home remembers, by the digests of their keys' scopes."""

    def __init__(self, backend: Backend, window_ms: int) -> None:
        self._backend = backend
        self._window_ms = window_ms

    def next_job_id(self, scope: bytes) -> str:
        """The id for the next job under a key. Ask before `job_of`: the process that takes the id leaves an answer."""
        return free_job_id(scope, lambda taken: self._backend.reader.job(taken) is not None)

    def job_of(self, scope: bytes, body: bytes, is_same: Callable[[Order], bool]) -> str | None:
        """The job that a key stands for; None when it is unused. Refuses another body under the same key (JOB-032).

        ``is_same`` tells whether an order does what is asked for, where it is not of this very request: then it had done the same
        before, and was found by its key.
        """
        row = self._backend.reader.answer(scope)
        stored = None if row is None else StoredAnswer(row.body_digest, row.response, row.stored_at_ms)
        decided = decide_idempotency(stored, body_digest=body, now_ms=self._backend.now_ms(), window_ms=self._window_ms)
        if isinstance(decided, Refused):
            raise error_of(decided, hint="use another key for another request")
        if not isinstance(decided, Repeated) or decided.response[:1] == WHOLE:
            return None  # A whole answer is a server's, whose keys have scopes of their own.
        job_id = decided.response.decode()
        submitted = self._backend.submitted([job_id]).get(job_id)
        if submitted is None or not (request_digest(submitted.order) == body or is_same(submitted.order)):
            raise StoreCorrupt(
                f"the answer kept for this idempotency key names job {job_id!r}, which was asked to do something else",
                hint="run `detent verify`; use another idempotency key to have the work done",
                details={"job_id": job_id},
            )
        return job_id

    def row(self, scope: bytes, body: bytes, job_id: str) -> AnswerRow:
        """What is remembered of a request that a job answers."""
        return AnswerRow(scope, body, job_id.encode(), self._backend.now_ms())


def insist_on_kept(answers: Sequence[Answer]) -> None:
    """Raise when a key cannot be remembered: nothing was submitted then, and known keys are still answered."""
    for answer in answers:
        if answer.refusal is not None and answer.refusal.code == IdempotencyKeysFull.code:
            raise IdempotencyKeysFull(
                answer.refusal.message,
                hint="try again when the oldest key has had its time, or raise idempotency.keys_max in config.toml",
                details=answer.refusal.details,
            )
