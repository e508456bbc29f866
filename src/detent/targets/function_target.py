"""``module:function``: the user's own function gets each value, with a token that tells a repeat from a new entry.

At least once: a process that dies after the call and before the record calls again. A function that keeps the token beside
what it writes, and looks there first, makes it exactly once.
"""

from __future__ import annotations

import inspect
import math
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

from detent.canon.late import NamedTuple
from detent.canon.strict_json import JsonValue
from detent.errors import DetentError, InvalidInput, InvariantBroken
from detent.executor.plain.loading import Loader, LoadFailed
from detent.targets.api import CommitFailed, Mark, Nothing, still_due
from detent.targets.render import unescaped

SLICE_SECONDS: Final = 0.2
"""After this long a write answers with the entries that the function has taken, so that they are recorded before the others."""


class CommitToken(NamedTuple):
    """Names one entry of one run, however often it is handed over. As text: ``RUN/SEQ``."""

    run_id: str
    seq: int

    def __str__(self) -> str:
        return f"{self.run_id}/{self.seq}"


class FunctionTarget:
    """Calls ``function(value, token)`` for each entry, or ``function(value)`` if that is all it takes.

    A function whose first parameter is called ``values`` is called once for a batch, with two lists: values and tokens.
    ``restore`` makes of a stored value what the function is to see; without it, files are the mappings that name them.
    A write that has taken longer than ``slice_seconds`` ends behind the entry at hand, and its mark says which comes next.
    """

    is_recorded = True

    def __init__(
        self,
        spec: str,
        load: Callable[[], Callable[..., Any]],
        restore: Callable[[JsonValue], Any] = unescaped,
        slice_seconds: float = math.inf,
    ) -> None:
        self.spec = spec
        self._slice_seconds = slice_seconds
        self._load = load
        self._restore = restore
        self._call: Callable[[Any, Any], object] | None = None
        self._is_batched = False
        self._run_id = ""
        self._next_seq = 0

    def open(self, run_id: str, recorded: Mark | None) -> int:
        """Load the function."""
        self._run_id = run_id
        self._next_seq = 0 if recorded is None else recorded.next_seq
        self._call, self._is_batched = self._prepared()
        return self._next_seq

    def check(self) -> None:
        """Load the function; refuse, with `InvalidInput`, one that cannot be the destination."""
        try:
            self._prepared()
        except CommitFailed as exc:
            raise InvalidInput(str(exc), hint=exc.hint, details={"target": self.spec}) from exc

    def insist_on_room(self) -> None:
        """What a function has done with earlier values, nothing here can know."""

    def holds(self, run_id: str, recorded: Mark | None, rows: int) -> bool:  # noqa: ARG002
        """Taken as yes: it had every value, and what it did with them is its own affair."""
        return True

    def begin(self) -> Mark:
        """Which entry comes next."""
        return Mark(self._next_seq)

    def write(self, first_seq: int, values: Sequence[JsonValue | Nothing]) -> Mark:
        """Call the function; what it raises is a failure of the destination. Entries before it are not repeated."""
        if self._call is None:
            raise InvariantBroken(f"{self.spec} is written to and not open")
        due = still_due(self._next_seq, first_seq, values)
        end = self._next_seq + len(due)
        items = [(seq, value) for seq, value in enumerate(due, self._next_seq) if not isinstance(value, Nothing)]
        began = time.monotonic()
        try:
            if not self._is_batched:
                for seq, value in items:
                    self._next_seq = seq
                    self._call(self._restore(value), CommitToken(self._run_id, seq))
                    if time.monotonic() - began >= self._slice_seconds:
                        self._next_seq = seq + 1
                        return Mark(seq + 1)
            elif items:
                tokens = [CommitToken(self._run_id, seq) for seq, _ in items]
                self._call([self._restore(value) for _, value in items], tokens)
        except Exception as exc:
            raise self._failed(exc, self._next_seq if not self._is_batched else items[0][0]) from exc
        self._next_seq = end
        return Mark(end)

    def close(self) -> None:
        """Let go of the function."""
        self._call = None

    def _prepared(self) -> tuple[Callable[[Any, Any], object], bool]:
        """The function as something to be called with values and tokens, and whether it takes batches."""
        try:
            function = self._load()
        except LoadFailed as exc:
            because = "" if exc.cause is None else f": {type(exc.cause).__name__}: {exc.cause}"
            hint = "a destination is append:FILE, jsonl:FILE, sqlite:FILE#TABLE or module:function"
            raise CommitFailed(f"{exc.message}{because}", spec=self.spec, hint=hint, retryable=False) from exc
        if inspect.iscoroutinefunction(function):
            raise self._unfit("is a coroutine function; a destination is a plain function")
        shape = _parameters(function)
        if shape is not None and not shape:
            raise self._unfit("takes no argument")
        takes_token = shape is None or len(shape) > 1
        call = function if takes_token else lambda value, _: function(value)
        return call, shape is not None and shape[0] == "values"

    def _unfit(self, what: str) -> CommitFailed:
        hint = "it is called as function(value, token), or as function(values, tokens) for batches"
        return CommitFailed(f"{self.spec} {what}", spec=self.spec, hint=hint, retryable=False)

    def _failed(self, exc: Exception, seq: int) -> CommitFailed:
        frames = traceback.extract_tb(exc.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        return CommitFailed(
            f"{self.spec} failed at seq {seq}: {type(exc).__name__}: {exc}",
            spec=self.spec,
            seq=seq,
            hint=exc.hint if isinstance(exc, DetentError) else None,
            details={"error": type(exc).__name__, "place": place},
            retryable=exc.retryable if isinstance(exc, DetentError) else True,
        )


def function_target(
    spec: str, base: str | None = None, restore: Callable[[JsonValue], Any] = unescaped
) -> FunctionTarget:
    """A function by name, found as tasks are: ``module:function`` or ``file.py:function``, from ``base`` first."""
    return FunctionTarget(spec, lambda: Loader().load(base, spec).function, restore, SLICE_SECONDS)


def _parameters(function: Callable[..., Any]) -> list[str] | None:
    """The names of the positional parameters, `*args` as two; None when a function does not say (some built-in ones)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    names = [item.name for item in parameters if item.kind in {item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD}]
    rest = [name for item in parameters if item.kind is item.VAR_POSITIONAL for name in (f"*{item.name}", "")]
    return names + rest
