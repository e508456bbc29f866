"""Many jobs, submitted in one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import Field

from detent.access.problem import problem_of
from detent.canon import digest
from detent.errors import DetentError, error_of
from detent.kernel.identity import chosen, same_partition
from detent.owner.kept_answers import DECIDED
from detent.owner.socket_messages import Answer as Decided
from detent.serve.call import Answer, Call, Shape
from detent.serve.routes.submit import (
    BODY_BYTES,
    SUBMITTING,
    JobAsked,
    insist_on_content,
    insist_on_scope,
    offer,
    payer_of,
)
from detent.serve.submitting import Offered
from detent.serve.table import READING, Route
from detent.serve.writing import Writing

ITEMS_MAX: Final = 1_000
BATCH_LABEL: Final = b"detent/batch-job/v1\0"


class BatchAsked(Shape):
    """Jobs to submit in one commit."""

    items: Annotated[list[JobAsked], Field(min_length=1, max_length=ITEMS_MAX)]
    atomic: bool = False
    """Whether all of them are submitted, or none."""


class BatchProblem(Shape):
    """Why one job of a batch was not submitted."""

    code: str
    title: str
    status: int
    detail: str
    retryable: bool


class BatchItem(Shape):
    """One job of a batch, or why there is none."""

    job_id: str | None = None
    status: str | None = None
    deduplicated: bool | None = None
    created_at: str | None = None
    problem: BatchProblem | None = None


class BatchTaken(Shape):
    """The jobs of a batch, in the order in which they were asked for."""

    items: list[BatchItem]


class _Batch:
    """One request on its way: what is offered at each place, and what is wrong there."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.asked: BatchAsked = call.body
        self.offered: dict[int, Offered] = {}
        self.faults: dict[int, DetentError] = {}

    async def check(self) -> None:
        """Find the places that name content which the workspace does not have."""
        for place, one in enumerate(self.asked.items):
            insist_on_scope(self.call, one)
            try:
                await insist_on_content(self.call, one)
            except DetentError as exc:
                self.faults[place] = exc

    def make(self) -> Writing:
        """Prepare every job; on the writing thread. All of them get ids of one partition, or of their sessions' partitions."""
        beside: str | None = None
        for place, one in enumerate(self.asked.items):
            try:
                if place not in self.faults:
                    job_id = self._id_of(place, payer_of(self.call, one) or beside)
                    beside = beside or job_id
                    self.offered[place] = offer(self.call, one, job_id)
            except DetentError as exc:
                self.faults[place] = exc
        if self.asked.atomic and self.faults:
            raise self.faults[min(self.faults)]
        once = self.call.once
        kept = [] if once is None or self.faults else [once.row(self.answer(), self.jobs)]
        submissions = [one.submission for one in self.offered.values() if one.submission is not None]
        return Writing(submissions, answers=kept, atomic=self.asked.atomic)

    def decide(self, decided: Sequence[Decided]) -> None:
        """Take note of what was refused. Under a key, a job that is there already was submitted by an earlier try."""
        refused = [answer.refusal for answer in decided if answer.refusal is not None]
        if refused and (self.asked.atomic or refused[0].code in {"IDEMPOTENCY_KEYS_FULL", DECIDED}):
            raise self.call.serving.hub.room.refusal_of(refused[0])
        new = [place for place, one in sorted(self.offered.items()) if one.submission is not None]
        for place, answer in zip(new, decided, strict=True):
            if answer.refusal is None or (answer.refusal.code == "CONFLICT" and self.call.once is not None):
                continue
            self.faults[place] = error_of(answer.refusal)
            del self.offered[place]

    @property
    def jobs(self) -> list[str]:
        """The jobs that it names."""
        return [one.job_id for one in self.offered.values()]

    def answer(self) -> Answer:
        """The jobs and problems, in the order in which they were asked for."""
        items = [self._item(place) for place in range(len(self.asked.items))]
        return Answer(BatchTaken(items=items).model_dump_json(exclude_none=True).encode())

    def _item(self, place: int) -> BatchItem:
        one = self.offered.get(place)
        if one is None:
            return BatchItem(problem=BatchProblem.model_validate(_short(problem_of(self.faults[place]).document(""))))
        return BatchItem(job_id=one.job_id, status=one.status, deduplicated=one.deduplicated, created_at=one.created_at)

    def _id_of(self, place: int, beside: str | None) -> str:
        """The id of a job. Under a key it is the same for every try, so that none is submitted twice."""
        once, backend = self.call.once, self.call.serving.submitting.backend
        if once is None:
            return backend.new_job_id(beside)
        named = once.scope + place.to_bytes(4, "big")
        candidates = (named if not number else named + number.to_bytes(4, "big") for number in count())
        ids = (str(UUID(bytes=digest(BATCH_LABEL, name)[:16], version=4)) for name in candidates)
        return chosen(ids, None if beside is None else same_partition(beside, backend.partitions))


async def post_batch(call: Call) -> Answer:
    """Submit up to 1,000 jobs in one commit. Each is decided for itself, unless they are all or none (`atomic`)."""
    batch = _Batch(call)
    await batch.check()
    batch.decide(await call.write(batch.make))
    answer = batch.answer()
    if batch.faults and call.once is not None:
        row = call.once.row(answer, batch.jobs)
        await call.write(lambda: Writing(answers=[row]))
    if call.serving.submitting.supersedes:
        for payload in [one.payload for one in batch.offered.values() if one.payload is not None]:
            await call.serving.writer.run(partial(call.serving.submitting.supersede, payload))
    return answer


def _short(problem: Mapping[str, Any]) -> dict[str, Any]:
    return {name: problem[name] for name in BatchProblem.model_fields}


ROUTES: Final = (
    Route(
        "POST",
        "/v1/jobs:batch",
        post_batch,
        "Submit up to 1,000 jobs in one commit.",
        "jobs:write",
        (*READING, *SUBMITTING),
        {200: BatchTaken},
        body=BatchAsked,
        body_bytes_max=BODY_BYTES,
        idempotent=True,
    ),
)
