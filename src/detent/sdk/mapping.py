"""`Client.map`: one call for each element, its results in order.

Small elements run in chunks: one job for many of them, each with its own outcome, retries, output and proof
(`detent.jobs.elements`). How many is decided by how long they take (`detent.runs.submit.chunk_sizes`). An element that needs something for
itself, such as a limit of its time, is a job of its own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, TypeAlias

from detent.canon import json_decode_trusted
from detent.errors import InvalidInput, InvariantBroken
from detent.jobs.order import ElementOrder, unchunked
from detent.jobs.work import WorkReport
from detent.runs.single_jobs import ArrayRequest, SingleJobs, Ticket
from detent.runs.submit.calls import JobRequest
from detent.runs.submit.chunk_sizes import ChunkSizes

MAP_AHEAD: Final = 1000
"""Elements that `map` submits ahead of the results that were taken."""
FIRST: Final = 8
"""Elements for each worker that are submitted before it is known how long they take."""
ALONE: Final = 64
"""The same once it is known that they are jobs of their own, and at least so many:"""
ALONE_AHEAD: Final = 256
LOOK_SECONDS: Final = 0.05
"""How long the next result is waited for before it is looked what else has ended, and more is submitted."""
CHUNKS_AT_ONCE: Final = 4
"""Chunks submitted in one commit."""
LABEL: Final = ""
"""A map calls one function."""

Stored: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of one call, positional and named, as they are stored."""


class Mapped:
    """What one map has under way."""

    def __init__(
        self,
        jobs: SingleJobs,
        request: Callable[[Sequence[Any]], JobRequest],
        stored: Callable[[Sequence[Any]], Stored],
        submit: Callable[[Sequence[JobRequest]], list[Ticket]],
        calls: Iterator[tuple[Any, ...]],
        *,
        chunk: int | None,
        workers: int,
    ) -> None:
        self._jobs = jobs
        self._request = request
        self._stored = stored
        self._submit = submit
        self._calls = calls
        self._fixed = chunk
        self._sizes = ChunkSizes(chunk)
        self._workers = max(1, workers)
        self._under_way: deque[tuple[Ticket, int]] = deque()
        """What was submitted and not taken yet, in order: each job, and how many elements it has, 0 where it is not an array."""
        self._ahead = 0
        """Elements of all of them."""
        self._unlearned: deque[Ticket] = deque()
        """Jobs that nothing was learned from yet."""
        self._common: JobRequest | None = None
        """What the elements of chunks have in common; None before the first call, and where they are not chunked."""
        self._enough = 0
        """How many elements were to be ahead when it was last decided."""
        self._is_over = False

    def jobs(self) -> Iterator[tuple[Ticket, int]]:
        """Each job with how many elements it has, in order; they may not have ended."""
        self._submit_ahead()
        while self._under_way:
            ticket, count = self._under_way[0]
            yield ticket, count
            self._under_way.popleft()
            self._ahead -= count or 1
            if self._ahead < self._enough // 2:
                self._submit_ahead()

    def wait(self, ticket: Ticket, place: int | None, timeout: float | None) -> bool:
        """Wait for one result; False when the time is over.

        While it does not come, others may: they tell how long elements take, and make room.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._is_over and self._ahead < MAP_AHEAD:
                left = LOOK_SECONDS if left is None else min(LOOK_SECONDS, left)
            if self._jobs.wait(ticket, left, place):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            self._submit_ahead(more=FIRST * self._workers)

    def _submit_ahead(self, more: int = 0) -> None:
        """Submit what is to be ahead of the results: little before the duration of an element is known, unless ``more`` must be."""
        self._learn()
        self._enough = self._wanted()
        room = min(MAP_AHEAD, max(self._enough, self._ahead + more)) - self._ahead
        if self._is_over or room <= 0:
            return
        calls = list(islice(self._calls, room))
        self._is_over = len(calls) < room
        if calls and (size := self._size(calls)) > 1:
            self._submit_chunks(calls, size)
        elif calls:
            tickets = self._submit([self._request(args) for args in calls])
            self._unlearned.extend(tickets)
            self._under_way.extend((ticket, 0) for ticket in tickets)
            self._ahead += len(tickets)

    def _wanted(self) -> int:
        """How many elements are to be ahead: jobs of their own only as many as keep all workers busy, since they may turn out short."""
        if not self._sizes.is_known(LABEL):
            return FIRST * self._workers
        is_alone = self._sizes.next(LABEL, MAP_AHEAD, self._workers) == 1
        return max(ALONE_AHEAD, ALONE * self._workers) if is_alone and self._fixed is None else MAP_AHEAD

    def _size(self, calls: Sequence[tuple[Any, ...]]) -> int:
        """How many of these calls make one job."""
        size = self._sizes.next(LABEL, len(calls), self._workers)
        if size > 1 and self._common is None:
            first = self._request(calls[0])
            why = "its result may be reused" if first.reuse else unchunked(first.call, first.limits)
            if why and self._fixed is not None:
                raise InvalidInput(
                    f"{first.label} cannot run in chunks of {size}: {why}",
                    hint="leave chunk= out: then its calls are jobs of their own",
                )
            if why:
                self._sizes = ChunkSizes(1)
                return 1
            self._common = replace(first, call=replace(first.call, arguments=(), keywords={}))
        return size

    def _submit_chunks(self, calls: Sequence[tuple[Any, ...]], size: int) -> None:
        if self._common is None:
            raise InvariantBroken("chunks have a call in common")
        chunks = [
            ArrayRequest(self._common, tuple(ElementOrder(*self._stored(args)) for args in calls[start : start + size]))
            for start in range(0, len(calls), size)
        ]
        for start in range(0, len(chunks), CHUNKS_AT_ONCE):
            some = chunks[start : start + CHUNKS_AT_ONCE]
            tickets = self._jobs.submit_arrays(some)
            self._unlearned.extend(tickets)
            self._under_way.extend((ticket, len(chunk.elements)) for ticket, chunk in zip(tickets, some, strict=True))
            self._ahead += sum(len(chunk.elements) for chunk in some)

    def _learn(self) -> None:
        """Take note of how long elements took, of the jobs that have ended since.

        Of jobs of their own the shorter half counts: the first one in each worker loads the user's module, too.
        """
        waiting: deque[Ticket] = deque()
        alone: list[int] = []
        for ticket in self._unlearned:
            if not ticket.done:
                waiting.append(ticket)
            elif ticket.report is not None and not ticket.deduplicated:
                took = durations_us(ticket.report)
                if ticket.report.result.elements is None:
                    alone += took
                else:
                    self._sizes.learn(LABEL, took)
        self._sizes.learn(LABEL, sorted(alone)[: (len(alone) + 1) // 2])
        self._unlearned = waiting


def durations_us(report: WorkReport) -> Sequence[int]:
    """How long each element of a job took; of a job that is one, how long that did, which is known to the millisecond."""
    elements, result = report.result.elements, report.result
    if elements is not None:
        return [took for took, code in zip(elements.wall_us, elements.codes, strict=True) if code]
    return [max(1, result.finished_ms - result.started_ms) * 1000]


def plain_values(ticket: Ticket, first: int) -> list[Any] | None:
    """The values of all elements of an array from one on, read at once; None when they are not all plain ones in its report."""
    elements = None if ticket.report is None else ticket.report.result.elements
    if elements is None or not elements.ok or elements.contents:
        return None
    text = b",".join(value or b"" for value in elements.values[first:])
    if b'"$' in text:
        return None
    found = json_decode_trusted(b"[%b]" % text)
    return found if isinstance(found, list) else None
