"""Arrays in a pool: the elements of one assignment, dealt to workers in pieces, and put together again.

A piece is a task like any other to the dealer. It begins as the whole array, because most are short; a worker hands back what
it has not begun when its time is over, and that goes on in smaller pieces, so that long elements run beside each other. When a
worker is gone, what it wrote down stays done, the element it was at is the one that ended it, and the rest goes on elsewhere.
Not so an element whose worker was ended from outside: it stays open for the next attempt, which is not its failure (X-163).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Final

from detent.executor.assignment import Assignment
from detent.executor.plain import heard, verdict, wire
from detent.jobs.elements import FAILED, OPEN, SUCCEEDED, TIMED_OUT, Elements
from detent.jobs.work import SUCCEEDED as OK
from detent.jobs.work import TIMED_OUT as OVER_TIME
from detent.jobs.work import (
    Failure,
    Result,
    Usage,
    failure_parts,
    status_after,
    stream_parts,
)

PIECES_FROM: Final = 1 << 48
"""Numbers of pieces begin here: those of assignments count from 1."""
LOST: Final = Failure("INTERNAL_ERROR", "WORKER_LOST", "the worker of an element was ended from outside")


class Array:
    """One assignment with elements, under way in a pool."""

    def __init__(self, task: Assignment) -> None:
        self.task = task
        count, earlier = len(task.order.elements), task.earlier
        self.places = list(range(count)) if earlier is None else earlier.again(task.retried)
        """What this attempt computes."""
        self.pieces: dict[int, Sequence[int]] = {}
        """The places of those under way, by the numbers of their pieces."""
        self._heard: dict[int, Sequence[wire.ElementRead]] = {}
        self._codes = bytearray(count) if earlier is None else bytearray(earlier.codes)
        self._values: list[bytes | None] = [None] * count if earlier is None else list(earlier.values)
        self._started_ms = [0] * count if earlier is None else list(earlier.started_ms)
        self._wall_us = [0] * count if earlier is None else list(earlier.wall_us)
        kept = Elements(b"", [], [], []) if earlier is None else earlier
        self._contents, self._failures = dict(kept.contents), dict(kept.failures)
        self._streams, self._attempts = dict(kept.streams), dict(kept.attempts)
        for place in self.places:
            self._codes[place] = OPEN
            for column in (self._contents, self._failures, self._streams, self._attempts):
                column.pop(place, None)
        self._usage = Usage()
        self._process = ""
        self._begun_us = self._ended_us = 0

    def hear(self, read: wire.DoneRead) -> None:
        """A worker said how the elements of a piece ended; the message of the last one's exception may still follow."""
        ended = heard.elements(read.value, self.pieces[read.number])
        if not ended:
            raise heard.Garbled("a piece of an array ended without an element")
        self._heard[read.number] = ended

    def take(self, piece: int, read: wire.DoneRead, process: str, message: str | None) -> tuple[Sequence[int], int]:
        """What a worker said of a piece is complete; the places that it has not begun, and how many fit into a slice, by what it took."""
        places = self.pieces.pop(piece)
        done = self._settle_all(self._heard.pop(piece), message)
        self._spent(heard.usage(read), read.started, read.started + read.wall, process)
        each_us = max(1, read.wall // done)
        return places[done:], max(1, wire.SLICE_US // each_us)

    def bury(self, piece: int, journal: bytes, end: verdict.Ended, process: str) -> Sequence[int]:
        """How a piece ended whose worker is gone; the places that it had not begun."""
        places = self.pieces.pop(piece)
        try:
            done = self._settle_all(heard.elements(journal, places), None)
        except heard.Garbled:
            done = 0  # A journal that no worker writes counts for nothing.
        result = verdict.ended(self.task, end, process, over_time=False)
        self._spent(result.usage, end.started_us, end.ended_us, process)
        if done < len(places) and result.failure is not None and not result.lost:
            streams = [stream_parts(result.stdout), stream_parts(result.stderr)]
            times = end.started_us // 1000, max(0, end.ended_us - end.started_us)
            self._failed(places[done], result.failure, streams if any(one[0] for one in streams) else None, times)
        return places[done + 1 :]

    def drop(self, piece: int) -> None:
        """A piece is not computed."""
        self.pieces.pop(piece)

    def result(self) -> Result:
        """What came of the attempt."""
        elements = Elements(
            bytes(self._codes),
            self._values,
            self._started_ms,
            self._wall_us,
            self._contents,
            self._failures,
            self._streams,
            self._attempts,
        )
        lost = OPEN in elements.codes
        failure = LOST if lost else _failure(elements, self.task.retried)
        return Result(
            status=OK if failure is None else status_after(failure),
            failure=failure,
            usage=self._usage,
            started_ms=self._begun_us // 1000,
            finished_ms=self._ended_us // 1000,
            process=self._process,
            lost=lost,
            elements=elements,
        )

    def _settle_all(self, ended: Sequence[wire.ElementRead], message: str | None) -> int:
        """Take over how some elements ended; how many these are."""
        for count, one in enumerate(ended, 1):
            streams = None
            if one.stdout or one.stderr:
                streams = [
                    stream_parts(heard.stream(one.stdout, bool(one.flags & wire.OUT_CUT))),
                    stream_parts(heard.stream(one.stderr, bool(one.flags & wire.ERR_CUT))),
                ]
            times = min(one.started, heard.COUNT_MAX) // 1000, min(one.wall, heard.COUNT_MAX)
            try:
                if one.flags & wire.OK:
                    self._values[one.place] = heard.value(one.value)
                    self._settle(one.place, SUCCEEDED, streams, times)
                else:
                    told = heard.failure(one.error, message if count == len(ended) else None)
                    self._failed(one.place, told, streams, times)
            except heard.Garbled as exc:
                self._failed(one.place, verdict.misused(str(exc)), streams, times)
        return len(ended)

    def _failed(self, place: int, failure: Failure, streams: list[list[object]] | None, times: tuple[int, int]) -> None:
        self._failures[place] = failure_parts(failure)
        self._values[place] = None
        self._settle(place, TIMED_OUT if status_after(failure) == OVER_TIME else FAILED, streams, times)

    def _settle(self, place: int, code: int, streams: list[list[object]] | None, times: tuple[int, int]) -> None:
        self._codes[place] = code
        self._started_ms[place], self._wall_us[place] = times
        if streams is not None:
            self._streams[place] = streams

    def _spent(self, usage: Usage, begun_us: int, ended_us: int, process: str) -> None:
        spent = self._usage
        self._usage = replace(
            usage,
            cpu_ms=spent.cpu_ms + usage.cpu_ms,
            wall_ms=spent.wall_ms + usage.wall_ms,
            memory_bytes_peak=max(spent.memory_bytes_peak, usage.memory_bytes_peak),
            io_bytes_read=spent.io_bytes_read + usage.io_bytes_read,
            io_bytes_written=spent.io_bytes_written + usage.io_bytes_written,
            unmeasured=tuple(sorted({*spent.unmeasured, *usage.unmeasured})),
        )
        self._process = process
        self._begun_us = min(self._begun_us or begun_us, begun_us)
        self._ended_us = max(self._ended_us, ended_us)


def _failure(elements: Elements, retried: Container[str]) -> Failure | None:
    """Why an array failed: by the first element that did, before all by one that is tried again. None when all succeeded."""
    if elements.ok:
        return None
    again = (place for place in sorted(elements.failures) if elements.failures[place]["category"] in retried)
    first = next(again, min(elements.failures))
    failed = Failure(**elements.failures[first])
    said = ": ".join(text for text in (failed.type, failed.message) if text)
    count = f"{len(elements.failures)} of {len(elements)} elements failed"
    return Failure(failed.category, failed.code, f"{count}; element {first}: {said}" if said else count)
