"""A step of a flow that is being recorded: it stands for a result that does not exist yet.

A handle may be passed on, in an argument of another task or in what the flow returns, and nothing else. Python would
let most other uses through with a wrong answer (``if step`` is always true, ``step == 3`` always false, an f-string
shows an address), so all of them are refused here, with what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, NoReturn, Protocol

from detent.errors import InvalidInput


class OfFlow(Protocol):
    """The recording that a step belongs to."""

    @property
    def name(self) -> str: ...


class NotAValue(InvalidInput, TypeError):
    """A step was used as if its result were there already."""


class NoSuchAttribute(NotAValue, AttributeError):
    """An attribute of a step's result was asked for; an `AttributeError` too, so that ``hasattr`` answers no."""


class Step:
    """The handle of one recorded step. Pass it to other tasks, or return it from the flow."""

    __slots__ = ("_is_async", "_key", "_recording")

    def __init__(self, key: str, recording: OfFlow, *, is_async: bool = False) -> None:
        self._key = key
        self._recording = recording
        self._is_async = is_async

    @property
    def key(self) -> str:
        """The step's key: what plans and errors call it."""
        return self._key

    @property
    def recording(self) -> OfFlow:
        """The recording it belongs to; a handle means nothing anywhere else."""
        return self._recording

    def __repr__(self) -> str:
        return f"<step {self._key!r} of {self._recording.name!r}>"

    def __await__(self) -> Generator[Any, None, Step]:
        """``await task(...)`` in an async flow: nothing runs while recording, so there is nothing to wait for."""
        if not self._is_async:
            raise _refusal(self, "await it", "only async tasks are awaited: leave `await` out")
        return self
        yield  # Never reached; it makes this a generator, which is what `await` asks for.

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Step):
            return self is other
        raise _refusal(self, "compare it", _IN_A_TASK)

    def __ne__(self, other: object) -> bool:
        return not self == other

    # Handles go into sets and dictionaries as themselves.
    __hash__ = object.__hash__

    def __copy__(self) -> Step:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Step:
        return self

    def __getattr__(self, name: str) -> NoReturn:
        raise _refusal(self, f"read its attribute {name!r}", _IN_A_TASK, NoSuchAttribute)


_IN_A_TASK: Final = "do it inside a task: write a function with @detent.task and pass the step to it"
_BRANCH: Final = (
    "decide inside a task; the shape of a flow may depend on its arguments, never on the results of its steps"
)
_MAP: Final = "`other_task.map(step)` runs a task for each element; or loop inside a task and pass the step to it"
_TEXT: Final = "build the text inside a task and pass the step to it; repr(step) names the step"

_OPERATORS: Final = tuple(
    prefix + name
    for name in "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor".split()
    for prefix in ("", "r", "i")
    if prefix + name != "idivmod"
)
_REFUSED: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "use it as a condition": (("bool",), _BRANCH),
    "loop over it": (("iter", "next", "reversed", "aiter"), _MAP),
    "take its length": (("len", "length_hint"), _MAP),
    "index it": (("getitem", "setitem", "delitem", "contains"), _IN_A_TASK),
    "make text of it": (("str", "format", "bytes"), _TEXT),
    "call it": (("call",), _IN_A_TASK),
    "use it in `with`": (("enter", "exit", "aenter", "aexit"), _IN_A_TASK),
    "make a number of it": (("int", "float", "complex", "index", "round", "trunc", "floor", "ceil"), _IN_A_TASK),
    "order it": (("lt", "le", "gt", "ge"), _IN_A_TASK),
    "pickle it": (("reduce", "reduce_ex", "getstate"), "handles live only while their flow is recorded"),
    "calculate with it": (
        ("neg", "pos", "abs", "invert", *_OPERATORS),
        _IN_A_TASK,
    ),
}


def _refusal(step: Step, what: str, hint: str, kind: type[NotAValue] = NotAValue) -> NotAValue:
    return kind(
        f"step {step.key!r} has no result yet, so a flow cannot {what}: a flow is only recorded, its tasks run later",
        hint=hint,
        details={"step": step.key},
    )


def _refusing(what: str, hint: str) -> Callable[..., NoReturn]:
    def refused(self: Step, *_: object) -> NoReturn:
        raise _refusal(self, what, hint)

    return refused


for _what, (_names, _hint) in _REFUSED.items():
    for _name in _names:
        setattr(Step, f"__{_name}__", _refusing(_what, _hint))
