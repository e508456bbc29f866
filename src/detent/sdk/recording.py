"""A flow that is being recorded: its steps so far, under keys that are the same every time.

One context variable says which recording is under way, so threads and coroutines do not meet in one. A task that is
called while it is set adds a step and runs nothing. The weak spot: a thread that a flow itself starts knows nothing of the
recording, and tasks called there run at once.

A step of a flow that is being recorded: it stands for a result that does not exist yet.

A handle may be passed on, in an argument of another task or in what the flow returns, and nothing else. Python would
let most other uses through with a wrong answer (``if step`` is always true, ``step == 3`` always false, an f-string
shows an address), so all of them are refused here, with what to do instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from detent.errors import InvalidInput

if TYPE_CHECKING:
    from detent.contract.model import Contract
    from detent.executor.file import File
    from detent.sdk.reference import Reference

KEY_LENGTH_MAX: Final = 100
VALUE_DEPTH_MAX: Final = 48
"""Containers inside one another in an argument. The contract that holds the argument takes its own levels beside it."""
FLOWS_NESTED_MAX: Final = 8
"""Flows inside one another; each puts its name into the keys, and keys have an end."""

_NUMBER_LENGTH_MAX: Final = 8
_NOT_IN_KEYS: Final = re.compile(r"[^A-Za-z0-9_.-]")
_SHORT: Final = 1_000
_USUAL: Final = 1 << 63


class Recording:
    """The steps of one flow, in the order in which they were called."""

    __slots__ = ("_counts", "_taken", "base", "files", "name", "result", "settings", "source", "steps")

    def __init__(
        self,
        name: str,
        *,
        source: str | None = None,
        base: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.source = source or name
        """Where the flow stands: ``pipeline.py:nightly``, as a command line names it; its name where it has no such place."""
        self.base = base
        """Directory that file and module names start from; a script's own, once a task of it is recorded."""
        self.settings = dict(settings or {})
        """What the short form says beside the steps: mode, timeout, version, description."""
        self.steps: list[dict[str, Any]] = []
        """The steps as the short form writes them."""
        self.result: Any = None
        """What the flow gave back, with references for its steps."""
        self.files: dict[str, File] = {}
        """Files that were passed to its tasks, by digest."""
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def add(self, name: str, reference: Reference, step: Mapping[str, Any], *, is_async: bool = False) -> Step:
        """Record a step that calls a function, and give its handle."""
        if reference.base is not None:
            self.base = reference.base
        key = self.free_key(name)
        self.steps.append({"id": key, **step})
        return Step(key, self, is_async=is_async)

    def value(self, given: Any, what: str) -> Any:
        """A value as plain data: handles become references, files are named by digest, everything else gets its JSON form,
        and keys with a ``$`` are escaped (X-177).

        What has no JSON form is refused under the name ``what`` and the place inside it (X-170).
        """
        kind = type(given)
        if (kind is str and len(given) < _SHORT and given.isascii()) or (kind is int and -_USUAL < given < _USUAL):
            return given  # As nearly everything is: there is nothing to be looked for.
        from detent.canon import json_encode  # noqa: PLC0415 - `detent.task` alone needs none of it
        from detent.executor.file import File  # noqa: PLC0415
        from detent.executor.json_form import UNTOUCHED  # noqa: PLC0415
        from detent.sdk.bound import form_of  # noqa: PLC0415

        def special(value: Any) -> Any:
            if type(value) is Step:
                return {"$from": self._own(value, what).key}
            if not isinstance(value, File):
                return UNTOUCHED
            named = value.named()
            self.files[named["$file"]] = value
            return named

        data = form_of(given, what, special, depth_max=VALUE_DEPTH_MAX)
        json_encode(data, name=what)
        return data

    def needs(self, given: tuple[Any, ...], what: str) -> list[str]:
        """The keys of steps that something comes after; lists of steps are taken apart."""
        keys: dict[str, None] = {}
        for item in given:
            if isinstance(item, list | tuple):
                keys |= dict.fromkeys(self.needs(tuple(item), what))
            elif isinstance(item, Step):
                keys[self._own(item, what).key] = None
            else:
                from detent.canon.show import a_or_an  # noqa: PLC0415 - for mistakes alone

                raise InvalidInput(
                    f"{what} takes steps, not {a_or_an(type(item))}",
                    hint="pass what a task gave back inside this flow",
                )
        return list(keys)

    def document(self) -> dict[str, Any]:
        """The short form of the contract, as plain data."""
        written = {"name": self.name, **self.settings, "steps": self.steps}
        return written if self.result is None else {**written, "result": self.result}

    def contract(self) -> Contract:
        """The contract that this recording stands for: the same as if it had been written down."""
        from detent.contract import from_document  # noqa: PLC0415 - tasks alone need none of it

        contract = from_document(self.document(), name=self.source, base=self.base)
        return replace(contract, files=dict(self.files)) if self.files else contract

    def free_key(self, name: str) -> str:
        """``square``, then ``square-2``, ``square-3``: by the order of calls alone, so the same on every recording."""
        scope = _CURRENT.get()
        stem = ("" if scope is None else scope.prefix) + _NOT_IN_KEYS.sub("_", name)
        if not (stem[0].isalpha() or stem[0] == "_"):
            stem = "_" + stem
        if len(stem) > KEY_LENGTH_MAX - _NUMBER_LENGTH_MAX:
            raise InvalidInput(
                f"the key {stem!r} would be too long", hint="give a shorter name with name=, or nest fewer flows"
            )
        number = self._counts.get(stem, 0)
        while True:
            number += 1
            key = stem if number == 1 else f"{stem}-{number}"
            if key not in self._taken:
                break
        self._counts[stem] = number
        self._taken.add(key)
        return key

    def _own(self, step: Step, what: str) -> Step:
        if step.recording is not self:
            raise InvalidInput(
                f"{what}: step {step.key!r} belongs to another recording, of flow {step.recording.name!r}",
                hint="call its task inside this flow",
            )
        return step


@dataclass(frozen=True, slots=True)
class Scope:
    """Where in a recording a task is called: inside which flows that were called by flows."""

    recording: Recording
    prefix: str = ""
    depth: int = 0


# The place and not only the recording: two flows that one async flow awaits at once must not mix up their prefixes.
_CURRENT: ContextVar[Scope | None] = ContextVar("detent-recording", default=None)


def current() -> Recording | None:
    """The recording under way here, if any."""
    scope = _CURRENT.get()
    return None if scope is None else scope.recording


@contextmanager
def recording_of(recording: Recording) -> Iterator[Recording]:
    """Record into ``recording`` within the block, in this thread or coroutine alone."""
    token = _CURRENT.set(Scope(recording))
    try:
        yield recording
    finally:
        _CURRENT.reset(token)


@contextmanager
def nested(name: str) -> Iterator[None]:
    """Put a flow's name before the keys of the steps that are recorded within the block: ``inner.square``."""
    scope = _CURRENT.get()
    assert scope is not None
    if scope.depth == FLOWS_NESTED_MAX:
        raise InvalidInput(
            f"flow {name!r} is called {FLOWS_NESTED_MAX} flows deep", hint="a flow that calls itself never ends"
        )
    prefix = scope.recording.free_key(name) + "."
    token = _CURRENT.set(Scope(scope.recording, prefix, scope.depth + 1))
    try:
        yield
    finally:
        _CURRENT.reset(token)


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
