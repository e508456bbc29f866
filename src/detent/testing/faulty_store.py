"""A store whose calls fail on demand.

A caller of a store can meet three faults: the call did nothing and said so, it did nothing with an unknown outcome, or it
took effect with an unknown outcome. Each fault is planned by the name of the call and by how many calls of that name
succeed before it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from detent.canon.show import a_or_an
from detent.errors import OutcomeUnknown, StoreUnavailable
from detent.store.api import Store


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
