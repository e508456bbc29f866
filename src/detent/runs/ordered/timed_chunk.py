"""A chunk whose items have a limit each: an item that takes longer fails alone, and the others are not affected.

The first attempt computes as ever, and moves the time at which its supervisor loses patience from item to item. An item that
does not come to its end by then takes its worker with it: the attempt is over and what it had computed is lost. The next one,
in another worker, computes apart: in a process of its own that is killed when an item's time is over, and replaced for the
items behind it. So an item is given its whole time before it fails, no function can resist, the leftovers of an interrupted
one affect no other item, and without such an item nothing is forked and nothing is computed twice.

An item that ends by itself and too late has failed in either case: which one it was must not decide.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn, Self

from detent.executor.plain import current, processes, stored
from detent.runs.ordered.item_outcome import FAILED, SKIPPED, SUCCESS, ItemFailed

OVER_TIME: Final = "LIMIT_WALL"
CATEGORY: Final = "RESOURCE_LIMIT"
STARTING_MS: Final = 10_000
"""Time for a worker to get to its chunk at all, beside the limit of an item."""
LOADING_US: Final = 600_000_000
"""Time for the user's module to be loaded."""
_PATIENCE: Final = 5, 4
"""What the supervisor waits for an item, as a part of its limit: it hears of a new one only every quarter of it."""
_HEAD: Final = struct.Struct("<cI")
_READY, _ENDS = b"r", b"e"
_READ_BYTES: Final = 1 << 16

Outcome = tuple[str, Any]
"""How an item ended: with its value as bytes, with nothing, or with its error."""


def wall_ms(item_ms: int) -> int:
    """The limit that the job of such a chunk has for its supervisor; `ItemDeadline` moves it."""
    return item_ms * _PATIENCE[0] // _PATIENCE[1] + STARTING_MS


class ItemDeadline:
    """Tells the supervisor until when it is to wait. A process that is not a worker has no supervisor to tell."""

    def __init__(self, item_ms: int) -> None:
        self._running = current.running()
        self._wall_us = wall_ms(item_ms) * 1000
        self._limit_us = item_ms * 1000
        self._told_us = -self._limit_us

    def load(self) -> None:
        """The user's module is about to be loaded, which counts against no item."""
        self._tell(_now_us(), LOADING_US)

    def begin(self) -> int:
        """An item begins; when, in microseconds."""
        now = _now_us()
        if now - self._told_us >= self._limit_us * (_PATIENCE[0] - _PATIENCE[1]) // _PATIENCE[1]:
            self._tell(now, self._limit_us * _PATIENCE[0] // _PATIENCE[1])
            self._told_us = now
        return now

    def _tell(self, now_us: int, left_us: int) -> None:
        if self._running is not None:
            self._running.begun(max(0, now_us + left_us - self._wall_us))


class Judge:
    """Says how one item ended. Raises what ends the whole attempt, as `chunk.compute_chunk` does."""

    def __init__(
        self,
        one: Callable[[Any], bytes | None],
        told: Callable[[BaseException], dict[str, Any]],
        work: dict[str, Any],
        *,
        give_up: bool,
    ) -> None:
        self._one, self._told = one, told
        self._give_up = give_up
        self._again = work.get("over_time_again", False) and not give_up
        self.item_ms: int = work["item_ms"]

    def __call__(self, item: Any) -> Outcome:
        began = ended = _now_us()
        try:
            try:
                value = self._one(item)
            finally:
                ended = _now_us()  # Reporting an exception may take longer, which does not count against the item.
        except stored.Unfit as exc:
            if exc.category == "INTERNAL_ERROR" or not self._give_up:
                raise
            outcome: Outcome = FAILED, {"category": exc.category, "code": exc.code, "message": exc.message}
        except (Exception, SystemExit) as exc:
            if not self._give_up and not isinstance(exc, ItemFailed):
                raise
            outcome = FAILED, self._told(exc)
        else:
            outcome = (SKIPPED, None) if value is None else (SUCCESS, value)
        return outcome if ended - began <= self.item_ms * 1000 else self.over_time()

    def over_time(self) -> Outcome:
        """What becomes of an item that took too long: final, unless the user asked for another try after just that."""
        message = f"took longer than its limit of {self.item_ms} ms"
        if self._again:
            raise stored.Unfit(CATEGORY, OVER_TIME, message)
        return FAILED, {"category": CATEGORY, "code": OVER_TIME, "message": message}

    def raised(self, exc: BaseException) -> list[str]:
        """What ends the attempt, in words that another process can say."""
        if isinstance(exc, stored.Unfit):
            return [exc.category, exc.code, exc.message]
        said = self._told(exc)
        return [said["category"], said["code"], said["message"]]


def in_turn(items: Sequence[Any], judge: Judge, patience: ItemDeadline) -> Iterator[Outcome]:
    """Compute in this process; the supervisor ends it when an item does not end."""
    for item in items:
        patience.begin()
        yield judge(item)


def apart(items: Sequence[Any], judge: Judge, patience: ItemDeadline) -> Iterator[Outcome]:
    """Compute in processes of their own, and replace the one whose item does not end."""
    place = 0
    while place < len(items):
        with _Bench(items[place:], judge) as bench:
            bench.await_ready()
            while place < len(items):
                patience.begin()
                outcome = bench.outcome(judge.item_ms)
                place += 1
                yield judge.over_time() if outcome is None else outcome
                if outcome is None:
                    break


class _Bench:
    """A process that computes some items one after the other and says how each ended."""

    def __init__(self, items: Sequence[Any], judge: Judge) -> None:
        self._reading, writing = os.pipe()
        self._heard = bytearray()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        worker = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _be_the_bench(worker, writing, items, judge)
        os.close(writing)
        self._status: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._reading)
        if self._status is None:
            processes.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def await_ready(self) -> None:
        """Until it begins with its first item."""
        self._frame(None)

    def outcome(self, item_ms: int) -> Outcome | None:
        """How the next item ended; None when its time was over before. Raises what ends the attempt."""
        frame = self._frame(_now_us() + item_ms * 1000)
        if frame is None:
            return None
        kind, data = frame
        if kind == _ENDS:
            raise stored.Unfit(*json.loads(data))
        code = kind.decode()
        return code, data if code == SUCCESS else json.loads(data)

    def _frame(self, deadline_us: int | None) -> tuple[bytes, bytes] | None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        while True:
            if len(self._heard) >= _HEAD.size:
                kind, size = _HEAD.unpack_from(self._heard)
                if len(self._heard) >= _HEAD.size + size:
                    data = bytes(self._heard[_HEAD.size : _HEAD.size + size])
                    del self._heard[: _HEAD.size + size]
                    return kind, data
            left_us = None if deadline_us is None else deadline_us - _now_us()
            if left_us is not None and left_us <= 0:
                return None
            if poll.poll(None if left_us is None else left_us // 1000 + 1):
                more = os.read(self._reading, _READ_BYTES)
                if not more:
                    self._end_as_it_did()
                self._heard += more

    def _end_as_it_did(self) -> NoReturn:
        """The function ended its process: so does this one, and its waiting parent sees what it would have seen."""
        self._status = os.waitpid(self._pid, 0)[1]
        if os.WIFSIGNALED(self._status):
            number = os.WTERMSIG(self._status)
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        os._exit(os.waitstatus_to_exitcode(self._status) & 0xFF)


def _be_the_bench(worker: int, writing: int, items: Sequence[Any], judge: Judge) -> NoReturn:
    """In the fork: compute, say, and leave. Nothing behind this may run a second time."""
    try:
        processes.die_with_parent(worker)
        _say(writing, _READY, b"")
        for item in items:
            try:
                code, said = judge(item)
            except (Exception, SystemExit) as exc:  # noqa: BLE001 - raised again by the worker
                _say(writing, _ENDS, stored.written(judge.raised(exc)))
                break
            _say(writing, code.encode(), said if code == SUCCESS else stored.written(said))
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(0)


def _say(writing: int, kind: bytes, data: bytes) -> None:
    view = memoryview(_HEAD.pack(kind, len(data)) + data)
    while view:
        view = view[os.write(writing, view) :]


def _now_us() -> int:
    return time.monotonic_ns() // 1000
