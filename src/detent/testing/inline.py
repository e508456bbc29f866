"""Work without processes: an executor that calls the user's functions here, one after the other, where a test can steer them.

Real workers take a moment to start and another to answer, and they cannot be stopped between two lines. This executor runs each
function on the thread of the supervisor that claimed it, in the order in which it was given out; what it cannot show is what only a
process can do: crash, exit, be killed in the middle. A function steers its own outcome by raising `Fails` or `Lost`.

    executor = InlineLane(content=home.path / "content")
    with Runtime(home.home, executors=executor.executors) as runtime: ...
"""

from __future__ import annotations

import importlib
import runpy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import iscoroutine
from pathlib import Path
from typing import Any, Final

from detent.errors import InvalidInput
from detent.executor.assignment import VALUE_BYTES_MAX, Assignment
from detent.executor.file import File
from detent.executor.own_targets import HELD_BY
from detent.executor.plain import stored
from detent.jobs.elements import FAILED as ELEMENT_FAILED
from detent.jobs.elements import OPEN, Elements
from detent.jobs.elements import SUCCEEDED as ELEMENT_OK
from detent.jobs.values import restored
from detent.jobs.work import CANCELLED, FAILED, SUCCEEDED, Failure, Result, failure_parts, status_after
from detent.owner.ticks import SystemClock

SLOTS: Final = 64


class Fails(Exception):
    """Raised in a function to have its attempt fail in a category and under a code of the test's choice."""

    def __init__(self, category: str = "INTERNAL_ERROR", code: str = "FAILED", message: str = "as planned") -> None:
        super().__init__(message)
        self.failure = Failure(category, code, message)


class Lost(Exception):
    """Raised in a function to have its attempt end as if its worker had been killed (X-163)."""


class InlineLane:
    """An executor for ``python`` work, and what its supervisor sleeps on. ``slots`` is how many assignments it takes at once.

    Functions come from ``functions`` by their target, else from their file below the order's ``base``, else by import. Those
    whose target is in `held` wait until `release`; ``on_idle`` is called whenever the supervisor has nothing to do.
    """

    def __init__(
        self,
        *,
        content: Path,
        slots: int = SLOTS,
        functions: dict[str, Callable[..., Any]] | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self.content = str(content)
        self.slots = slots
        self.functions = functions or {}
        self.began: list[Assignment] = []
        """Every assignment that was begun, in that order: one for each attempt."""
        self.cancelled: list[int] = []
        self.held: set[str] = set()
        """Targets that do not begin before they are released."""
        self.on_idle: Callable[[], None] = lambda: None
        self._clock_ms = SystemClock().wall_ms if clock_ms is None else clock_ms
        self._pending: deque[Assignment] = deque()
        self._finished: list[tuple[int, Result]] = []
        self._bell = threading.Event()
        self._taken = False
        """Whether a supervisor works with it."""
        self._files: dict[tuple[str, int, int], dict[str, Any]] = {}

    def executors(self, _backend: object) -> tuple[dict[str, InlineLane], InlineLane]:
        """What a runtime takes as its ``executors``.

        Refuses a second supervisor until the first one has closed: each numbers its assignments itself, so either could
        take the results of the other.
        """
        if self._taken:
            raise InvalidInput(
                "this executor already works for another supervisor",
                hint="make one for each; an idle runtime, or a client with workers=0, needs none",
            )
        self._taken = True
        return {"python": self}, self

    def wanted(self) -> int:
        """How many more it takes."""
        return max(0, self.slots - len(self._pending))

    def take(self, assignment: Assignment) -> None:
        """Queue an assignment."""
        self._pending.append(assignment)

    def cancel(self, number: int) -> None:
        """Drop an assignment that has not begun; there is no other moment at which a supervisor could ask for that."""
        self.cancelled.append(number)
        for assignment in [one for one in self._pending if one.number == number]:
            self._pending.remove(assignment)
            self._finished.append((number, Result(status=CANCELLED)))

    def finished(self) -> Sequence[tuple[int, Result]]:
        """Run what is not held, one piece for each call, and return the results."""
        ready = next((one for one in self._pending if one.order.call.target not in self.held), None)
        if ready is not None:
            self._pending.remove(ready)
            self._finished.append((ready.number, self._run(ready)))
        back, self._finished = self._finished, []
        return back

    def run_one(self, target: str) -> None:
        """Run the oldest assignment of a held target; for `on_idle`, which is called on the supervisor's own thread."""
        ready = next(one for one in self._pending if one.order.call.target == target)
        self._pending.remove(ready)
        self._finished.append((ready.number, self._run(ready)))
        self.wake()

    def release(self, target: str | None = None) -> None:
        """Let held work begin: of one target, or all of it. From any thread."""
        self.held = self.held - {target} if target is not None else set()
        self.wake()

    def waiting(self, target: str) -> int:
        """How many assignments of a target were taken and have not begun."""
        return len(self.waiting_jobs(target))

    def waiting_jobs(self, target: str) -> list[str]:
        """Their jobs."""
        return [one.job_id for one in list(self._pending) if one.order.call.target == target]

    def wait(self, timeout: float) -> None:
        """Sleep until `wake`, unless there is work."""
        if any(one.order.call.target not in self.held for one in self._pending):
            return
        self.on_idle()
        self._bell.wait(timeout)
        self._bell.clear()

    def wake(self) -> None:
        """End a `wait`; from any thread."""
        self._bell.set()

    def close(self) -> None:
        """Nothing of it outlives the call."""
        self._pending.clear()
        self._taken = False

    def _run(self, assignment: Assignment) -> Result:
        return self._run_array(assignment) if assignment.order.elements else self._run_alone(assignment)

    def _run_array(self, assignment: Assignment) -> Result:
        """Run the elements of an array one after the other: those that an earlier attempt did not settle."""
        order, earlier = assignment.order, assignment.earlier
        count = len(order.elements)
        before = earlier or Elements(bytes(count), [None] * count, [0] * count, [0] * count)
        codes, values = bytearray(before.codes), list(before.values)
        started_ms, wall_us = list(before.started_ms), list(before.wall_us)
        failures, attempts = dict(before.failures), dict(before.attempts)
        first: Failure | None = None
        for place in before.again(assignment.retried):
            result = self._run_alone(replace(assignment, order=order.of_element(place)))
            if result.lost:
                codes[place] = OPEN
                break
            codes[place], values[place] = (ELEMENT_OK if result.ok else ELEMENT_FAILED), result.value
            started_ms[place] = result.started_ms
            wall_us[place] = (result.finished_ms - result.started_ms) * 1000
            attempts.pop(place, None)
            failures.pop(place, None)
            if result.failure is not None:
                failures[place] = failure_parts(result.failure)
        elements = Elements(
            bytes(codes), values, started_ms, wall_us, before.contents, failures, before.streams, attempts
        )
        lost = bool(elements.open())
        again = elements.again(assignment.retried)
        for place in [*again, *sorted(failures)] if not lost else ():
            first = first or Failure(**failures[place])
        ended_ms = self._clock_ms()
        return Result(
            status=FAILED if lost else SUCCEEDED if first is None else status_after(first),
            failure=first,
            started_ms=min(filter(None, started_ms), default=ended_ms),
            finished_ms=ended_ms,
            lost=lost,
            elements=elements,
        )

    def _run_alone(self, assignment: Assignment) -> Result:
        self.began.append(assignment)
        started_ms = self._clock_ms()
        value, failure, lost = None, None, False
        try:
            value = self._call(assignment)
        except Fails as exc:
            failure = exc.failure
        except Lost:
            lost = True
        except stored.Unfit as exc:
            failure = Failure(exc.category, exc.code, exc.message)
        except Exception as exc:  # noqa: BLE001 - any exception of the user's code is its outcome
            failure = Failure("USER_CODE_ERROR", "PYTHON_EXCEPTION", str(exc), type(exc).__name__)
        finished_ms, wall_ms = self._clock_ms(), assignment.order.limits.wall_ms
        if wall_ms is not None and finished_ms - started_ms > wall_ms:
            value, failure = None, Failure("RESOURCE_LIMIT", "LIMIT_WALL", f"its {wall_ms} ms had elapsed")
        status = FAILED if lost else SUCCEEDED
        return Result(
            status=status if failure is None else status_after(failure),
            value=value,
            failure=failure,
            started_ms=started_ms,
            finished_ms=finished_ms,
            lost=lost,
        )

    def _call(self, assignment: Assignment) -> bytes:
        order = assignment.order

        def seen(value: Any) -> Any:
            return restored(value, assignment.load, lambda file: File.kept(file, self.content))

        function = self._function(order.call.base, str(order.call.target))
        given = function(*(seen(value) for value in order.call.arguments), **seen(dict(order.call.keywords)))
        if iscoroutine(given):
            import asyncio  # noqa: PLC0415 - only where a function is async

            given = asyncio.run(given)
        return stored.result(given, self.content, VALUE_BYTES_MAX)

    def _function(self, base: str | None, target: str) -> Callable[..., Any]:
        if target in self.functions:
            return self.functions[target]
        module, _, name = target.partition(":")
        module = HELD_BY.get(target, module)
        path = Path(base or "", module if module.endswith(".py") else f"{module.replace('.', '/')}.py")
        found = self._names(path)[name] if path.is_file() else getattr(importlib.import_module(module), name)
        function: Callable[..., Any] = getattr(found, "__wrapped__", found)
        return function

    def _names(self, path: Path) -> dict[str, Any]:
        """What a file defines, as it is now."""
        state = path.stat()
        key = (str(path), state.st_mtime_ns, state.st_size)
        if key not in self._files:
            self._files[key] = runpy.run_path(str(path))
        return self._files[key]
