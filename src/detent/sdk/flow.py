"""`detent.flow`: a function whose tasks become the steps of a contract.

The function runs as plain Python, once, to see which tasks it calls with what; the tasks themselves do not run. So the
shape of a flow may depend on its arguments, never on the results of its steps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, overload

from detent.errors import InvalidInput
from detent.sdk.options import Duration, check_duration, duration
from detent.sdk.recording import Recording, current, nested, recording_of
from detent.sdk.reference import directory_of, refer, unwrapped
from detent.sdk.task import Task

if TYPE_CHECKING:
    from detent.contract.model import Contract
    from detent.sdk.run import Run

P = ParamSpec("P")
R = TypeVar("R")

MODES: Final = ("sequential", "parallel", "batch")


class Flow(Generic[P, R]):
    """A function that becomes a contract: `contract` records it, calling it runs it as it stands.

    Inside another flow a call adds this flow's steps to that one, with keys that begin with this flow's name.
    """

    __wrapped__: Callable[P, R]
    __name__: str
    __qualname__: str

    def __init__(self, function: Callable[P, R], name: str | None, settings: dict[str, Any]) -> None:
        _check_function(function)
        self.__wrapped__ = function
        self.name: str = function.__name__ if name is None else name
        self._settings = settings
        self._is_async = inspect.iscoroutinefunction(unwrapped(function))
        update_wrapper(self, function)
        if self._is_async and hasattr(inspect, "markcoroutinefunction"):  # Python 3.12
            inspect.markcoroutinefunction(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function with its tasks, here and now; inside a flow that is being recorded, add its steps."""
        if current() is None:
            return self.__wrapped__(*args, **kwargs)
        if "timeout" in self._settings:
            raise InvalidInput(
                f"flow {self.name!r} has a timeout, which only a whole run can have, and is called inside another flow",
                hint="leave its timeout out and give one to the tasks, or to the outer flow",
            )
        if self._is_async:
            return self._inlined(*args, **kwargs)  # type: ignore[return-value]
        with nested(self.name):
            return self.__wrapped__(*args, **kwargs)

    def record(self, *args: P.args, **kwargs: P.kwargs) -> Recording:
        """Call the function with its tasks recorded instead of run."""
        # A clean context: what the caller may be recording itself is left alone.
        recording = Recording(
            self.name,
            source=self._source(),
            base=directory_of(self.__wrapped__.__module__),
            settings=self._settings,
        )
        with recording_of(recording):
            result = self.__wrapped__(*args, **kwargs)
            returned = _completed(result) if inspect.iscoroutine(result) else result
        recording.result = recording.value(returned, f"what {self.name}() returns")
        return recording

    def contract(self, *args: P.args, **kwargs: P.kwargs) -> Contract:
        """The contract that this flow is when it is called with these arguments: checked, and nothing of it run."""
        return self.record(*args, **kwargs).contract()

    def run(self, *args: P.args, **kwargs: P.kwargs) -> Run:
        """Run the flow with these arguments on local workers, durably, and give the run; `result()` gives its value.

        Use `detent.run(flow.contract(...), workers=4)` to say more about how.
        """
        from detent.sdk.run import run  # noqa: PLC0415 - recording alone needs none of it

        return run(self.contract(*args, **kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> Flow[P, R]:
        if instance is None:
            return self
        raise InvalidInput(
            f"{self.__qualname__!r} is a method, and a flow must be a function",
            hint="make it a function at the top of its module",
        )

    def __repr__(self) -> str:
        return f"<flow {self.__module__}:{self.__qualname__}>"

    def __reduce__(self) -> str:
        return self.__qualname__

    def _source(self) -> str | None:
        try:
            return refer(self).target
        except InvalidInput:
            return None  # Defined inside a function, or typed at a prompt: it can be run from here alone.

    async def _inlined(self, *args: Any, **kwargs: Any) -> Any:
        with nested(self.name):
            return await self.__wrapped__(*args, **kwargs)  # type: ignore[misc]


@overload
def flow(function: Callable[P, R], /) -> Flow[P, R]: ...
@overload
def flow(
    *,
    name: str | None = None,
    mode: str | None = None,
    timeout: Duration | None = None,
    version: str | None = None,
    description: str | None = None,
) -> Callable[[Callable[P, R]], Flow[P, R]]: ...


def flow(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    mode: str | None = None,
    timeout: Duration | None = None,
    version: str | None = None,
    description: str | None = None,
) -> Any:
    """Make a function a flow: ``@detent.flow``, or ``@detent.flow(name="nightly", timeout="2h")``.

    * ``name``: the workflow's name; otherwise the function's
    * ``mode``: ``sequential``, ``parallel`` (unless told otherwise) or ``batch``
    * ``timeout``: limit of a whole run: seconds, ``"2h"`` or a timedelta; at least one second
    * ``version``: ``"1.2.3"``; ``description``: otherwise the first line of the docstring
    """
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise _no_flow(f"name={name!r:.80} is not allowed", "a flow's name is a text that is not empty")
    if mode is not None and mode not in MODES:
        raise _no_flow(f"mode={mode!r:.80} is not allowed", f"mode is one of {', '.join(MODES)}")
    if timeout is not None:
        from detent.contract.definition import RUN_TIMEOUT_MS_MIN  # noqa: PLC0415 - most flows have none

        check_duration("timeout", timeout, least_ms=RUN_TIMEOUT_MS_MIN)

    def decorated(given: Callable[P, R]) -> Flow[P, R]:
        about = {
            "mode": mode,
            "timeout": None if timeout is None else duration(timeout),
            "version": version,
            "description": _first_line(given) if description is None else description,
        }
        return Flow(given, name, {key: value for key, value in about.items() if value is not None})

    return decorated if function is None else decorated(function)


def _check_function(function: Any) -> None:
    if isinstance(function, Task | Flow):
        kind = type(function).__name__.lower()
        raise _no_flow(f"{function!r} is a {kind} already", "a function is a task or a flow, not both")
    if isinstance(function, type) or not callable(function) or not isinstance(getattr(function, "__name__", None), str):
        raise _no_flow(f"{function!r:.80} is not a function", "decorate a function that calls tasks")
    inner = unwrapped(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise _no_flow(
            f"flow {function.__name__!r} is a generator", "return what it gives, as a list, instead of yielding it"
        )


def _first_line(function: Callable[..., Any]) -> str | None:
    lines = (inspect.getdoc(function) or "").splitlines()
    return lines[0] if lines else None


def _completed(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What an async flow returns. It gets its own loop: while recording, no other work depends on it."""
    import asyncio  # noqa: PLC0415 - only for async flows
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415
    from contextvars import copy_context  # noqa: PLC0415

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner() as runner:
            return runner.run(coroutine)
    # A loop runs in this thread already, and loops do not nest.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()


def _no_flow(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, hint=hint)
