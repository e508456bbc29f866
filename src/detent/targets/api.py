"""What the commit lane asks of a destination, and what a destination may answer.

A run that writes is driven like this, and every target relies on the order::

    next_seq = target.open(run_id, recorded)     # recorded: the last mark on the ledger; None for a run without one
    if recorded is None and target.is_recorded:
        record(target.begin())                   # before the first write: it says where the run began
    mark = target.write(next_seq, values)        # durable when it returns
    record(mark)                                 # now, or later with others: a lost mark costs a repeat and no more
    target.close()

Seqs are contiguous: an entry that ended without a value (skip, fail, cancel) is passed as `NOTHING` in its place. A write may
begin below what the destination has already, for instance after `open` found a destination that is ahead of the ledger; those
entries are dropped and not written twice (ORD-034). A write that begins above leaves a gap and is a bug.

Values are stored values (`detent.jobs.values`) in which results are already resolved: strict JSON, files as ``{"$file": ...}``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final, Protocol, Self

from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.errors import DetentError, InvalidInput, InvariantBroken


class Nothing:
    """The type of `NOTHING`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = Nothing()
"""Stands among the values for a seq that is committed without a write."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a destination stands: what the runtime puts on the ledger after a write."""

    next_seq: int
    """The first seq that the destination does not have."""
    offset: int | None = None
    """The length of the file, for destinations that are files."""
    tail: str | None = None
    """SHA-256 of the last bytes before ``offset``, in hexadecimal digits, for destinations that are files."""

    def to_json(self) -> dict[str, JsonValue]:
        """The mark as a JSON value, without what it has not."""
        fields = {"next_seq": self.next_seq, "offset": self.offset, "tail": self.tail}
        return {name: value for name, value in fields.items() if value is not None}

    @staticmethod
    def from_json(value: JsonValue) -> Mark:
        """Read a mark back; raises `InvalidInput` for anything that `to_json` does not give."""
        if type(value) is not dict or not _MARK_FIELDS.issuperset(value) or "next_seq" not in value:
            raise InvalidInput(f"{value!r:.200} is not a mark of a destination")
        mark = Mark(value["next_seq"], value.get("offset"), value.get("tail"))
        numbers_fit = all(type(number) is int and number >= 0 for number in (mark.next_seq, mark.offset or 0))
        if not numbers_fit or (mark.offset is None) != (mark.tail is None) or type(mark.tail) not in {str, type(None)}:
            raise InvalidInput(f"{value!r:.200} is not a mark of a destination")
        return mark


_MARK_FIELDS: Final = frozenset({"next_seq", "offset", "tail"})


@dataclass(frozen=True, slots=True)
class Anew:
    """A destination that a new run does not simply add to: what is done about what it already holds (X-192)."""

    whose: Callable[[int, str], str | None]
    """The earlier run of the same work that left a file with this length and this digest of its end; None: no such run."""
    own_runs: Callable[[], Container[str]]
    """The runs of the same work."""
    replaces_own: bool = True
    """Whether what those runs left is taken away; otherwise it counts as anything else."""
    refuses_others: bool = False
    """Whether anything else is refused; otherwise it is set aside (a file) or added to (a table)."""


class CommitTarget(Protocol):
    """A destination of an ordered run. One thread uses it; nothing else writes there while it is open."""

    spec: str
    """The destination as it was written: ``jsonl:out.jsonl``."""
    is_recorded: bool
    """False: there is nothing to resume, no mark goes to the ledger, and every run begins at 0."""

    def open(self, run_id: str, recorded: Mark | None) -> int:
        """Bring the destination to what is recorded as committed, and say which seq comes next.

        That may be later than ``recorded`` where the destination itself knows what it has (SQLite). Raises `CommitFailed`.
        """

    def begin(self) -> Mark:
        """Where the destination stands. A new run records this before its first write, or a crash could not be repaired."""

    def write(self, first_seq: int, values: Sequence[JsonValue | Nothing]) -> Mark:
        """Commit the values of ``first_seq`` and those after it: all of them, durably, or none.

        A destination that takes its entries one by one may answer after some of them, with a mark that says which one comes
        next. Raises `CommitFailed`; then nothing has moved, and the same write may be tried again if it says so.
        """

    def close(self) -> None:
        """Let go of the destination; safe to call twice, and after a failure."""


class CommitFailed(DetentError):
    """The destination did not take a write. Says which and where; ``retryable`` says whether time may help."""

    code = "DOWNSTREAM_WRITE_FAILED"

    def __init__(
        self,
        message: str,
        *,
        spec: str = "",
        seq: int | None = None,
        code: str | None = None,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        retryable: bool | None = True,
    ) -> None:
        said: dict[str, Any] = {"target": spec} if spec else {}
        if seq is not None:
            said["seq"] = seq
        super().__init__(message, code=code, hint=hint, details={**said, **(details or {})}, retryable=retryable)
        self.spec = spec
        self.seq = seq


class DestinationChanged(CommitFailed):
    """Another program wrote to the destination, or replaced it. Nothing of it was overwritten."""

    def __init__(self, message: str, *, spec: str, hint: str | None = None, **details: Any) -> None:
        super().__init__(message, spec=spec, hint=hint, details=details, retryable=False)


class DestinationNotEmpty(CommitFailed):
    """The destination holds something that a new run would be mixed with. Nothing was touched."""

    code = "DESTINATION_NOT_EMPTY"

    @classmethod
    def holding(cls, what: str, *, spec: str, run_id: str | None = None, **details: Any) -> Self:
        """For a destination that holds ``what``; ``run_id`` is the run of the same map that left it there."""
        left = "" if run_id is None else f": run {run_id!r} of the same map left it there"
        replaces = " --force (force=True) replaces it," if run_id is not None else ""
        return cls(
            f"{what} already{left}",
            spec=spec,
            hint=f"nothing was written;{replaces} --append (append=True) adds to it; or choose another destination",
            details=details if run_id is None else {**details, "run_id": run_id},
            retryable=False,
        )


class DestinationBusy(CommitFailed):
    """Another run has the destination open."""


class ValueRefused(CommitFailed):
    """A value has no form in which this destination could hold it."""

    def __init__(self, message: str, *, spec: str, seq: int, hint: str | None = None) -> None:
        super().__init__(message, spec=spec, seq=seq, hint=hint, retryable=False)


def still_due(next_seq: int, first_seq: int, values: Sequence[JsonValue | Nothing]) -> Sequence[JsonValue | Nothing]:
    """The values that a destination standing at ``next_seq`` does not have yet; a gap is a broken invariant."""
    if first_seq > next_seq:
        raise InvariantBroken(
            f"seqs {next_seq}..{first_seq - 1} were never handed to the destination",
            details={"next_seq": next_seq, "first_seq": first_seq},
        )
    return values if first_seq == next_seq else values[next_seq - first_seq :]
