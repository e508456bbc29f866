"""Faults on purpose: crash points of the owner, and a store whose calls fail.

Crash points: end the owner at a named moment, the way a power cut would.

An owner passes the same points in every turn: ``decided`` (the kernel has decided, nothing is written), ``sealed`` (the batch
is signed), ``appended`` (it is durable, not yet answered), ``committed`` (the last moment before the answers). A turn
without anything to write passes the first and the last.

Raising ends the owner and leaves the test alive: waiting callers get an error, and the next request opens the home again. Killing
ends the whole process with SIGKILL, so it belongs into a program that a test starts, not into the test.

A store whose calls fail on demand.

A caller of a store can meet three faults: the call did nothing and said so, it did nothing with an unknown outcome, or it
took effect with an unknown outcome. Each fault is planned by the name of the call and by how many calls of that name
succeed before it.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, cast

from detent.canon.show import a_or_an
from detent.errors import OutcomeUnknown, StoreUnavailable
from detent.store.api import Store

POINTS = ("decided", "sealed", "appended", "committed")


class Crash(StoreUnavailable):
    """The owner stopped at a crash point; nothing after that point happened."""


class CrashAt:
    """Raises `Crash`, or kills the process, the n-th time the owner passes a named point."""

    POINTS = POINTS

    def __init__(self, point: str, times: int = 1, *, kill: bool = False) -> None:
        if point not in POINTS:
            raise ValueError(f"there is no crash point {point!r}; known: {', '.join(POINTS)}")
        if times < 1:
            raise ValueError(f"a crash cannot come at time {times}: times are counted from 1")
        self.point = point
        self.left = times
        self.kill = kill

    def __call__(self, name: str) -> None:
        """Called by the owner at each of its points."""
        if name == self.point:
            self.left -= 1
            if self.left == 0:
                self._crash()

    def _crash(self) -> NoReturn:
        if self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise Crash(f"crash at {self.point}")


class CrashPoints:
    """The crash points of one home: counts how often each is passed, and crashes where it was told to.

    Only turns that write are looked at. An owner also takes turns in which nothing happens, whenever it looks at the clock;
    a crash in one of those would come at another moment each time. ``decided`` is left out for the same reason: when it is
    passed it is not yet known whether the turn will write, and from outside it cannot be told from ``sealed``.
    """

    names = POINTS[1:]

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        """How often each point was passed so far, in every session of the home."""
        self.crashes: list[str] = []
        """The points at which the owner was ended."""
        self._planned: list[CrashAt] = []
        self._last = ""

    def at(self, point: str, *, times: int = 1, kill: bool = False) -> None:
        """Crash the ``times``-th time from now that the owner passes ``point``. Refuses a point that does not exist."""
        if point not in self.names:
            raise ValueError(f"there is no crash point {point!r}; known: {', '.join(self.names)}")
        self._planned.append(CrashAt(point, times, kill=kill))

    def __call__(self, name: str) -> None:
        """Called by the owner at each of its points."""
        before, self._last = self._last, name
        if name not in self.names or (name == "committed" and before != "appended"):
            return
        self.passed[name] += 1
        for planned in self._planned:
            try:
                planned(name)
            except Crash:
                self.crashes.append(name)
                raise


class _Fault(NamedTuple):
    at: int
    error: BaseException
    done: bool


class Faults:
    """Which calls of a store go wrong, and how."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        """How often each method was called so far, the calls that went wrong included."""
        self._planned: defaultdict[str, list[_Fault]] = defaultdict(list)

    def fail(self, call: str, *, after: int = 0, error: BaseException | None = None) -> None:
        """The call after the next ``after`` ones does nothing and raises; `StoreUnavailable` unless told otherwise."""
        self._plan(call, after, error or StoreUnavailable(f"the store failed at {call}, as planned"), done=False)

    def lose(self, call: str, *, after: int = 0) -> None:
        """The call does nothing, and reports an unknown outcome."""
        self._plan(call, after, OutcomeUnknown(f"the store lost {a_or_an(call)}, as planned"), done=False)

    def hide(self, call: str, *, after: int = 0) -> None:
        """The call takes effect, and reports an unknown outcome."""
        self._plan(call, after, OutcomeUnknown(f"the store hid {a_or_an(call)}, as planned"), done=True)

    def _plan(self, call: str, after: int, error: BaseException, *, done: bool) -> None:
        self._planned[call].append(_Fault(self.calls[call] + after + 1, error, done))

    def _through(self, name: str, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.calls[name] += 1
        fault = next((fault for fault in self._planned[name] if fault.at == self.calls[name]), None)
        if fault is None:
            return method(*arguments, **named)
        if fault.done:
            method(*arguments, **named)
        raise fault.error


def faulty(store: Store, faults: Faults) -> Store:
    """The store, with every call going through ``faults`` first."""
    return cast("Store", _FaultyStore(store, faults))


class _FaultyStore:
    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if not callable(value):
            return value
        return lambda *arguments, **named: self._faults._through(name, value, *arguments, **named)  # noqa: SLF001
