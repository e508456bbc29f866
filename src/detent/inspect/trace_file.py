"""Reading a trace that someone hands in: every line is checked against the lines before it.

What a trace says of its origin is checked from the trace itself: the replay token of a header follows from its other fields,
every line carries the token of the header it stands under, the events are numbered in order, committed ones are legal
moves, and the last line has the count and the digest of all others. Whether the trace is that of a ledger, only a comparison
with the ledger shows.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from detent.errors import InvalidInput
from detent.inspect.trace_lines import (
    COMMIT,
    END,
    HEADER,
    ITER,
    TRACE_VERSION,
    Line,
    LinesDigest,
    TraceInvalid,
    read_lines,
)
from detent.kernel import LEGAL
from detent.kernel.manifest import id_fault
from detent.kernel.outcome import COMMITTED
from detent.kernel.policy import replay_token_of
from detent.kernel.trace import run_commit_record_hash

_SAME = ("ledger", "run_id", "orchestrator_version", "table_digest")
"""What all headers of a trace agree in."""
_EDITED = "it was edited, or written by another program: write it again with `detent trace`"


def read_trace(path: Path) -> Generator[Line]:
    """Every line of a trace, the last one included. Raises `TraceInvalid` where the file is not a whole, untouched trace."""
    try:
        file = path.open("rb")
    except OSError as exc:
        raise InvalidInput(
            f"{path} cannot be read: {exc.strerror or exc}", hint="give the path of a trace that `detent trace` wrote"
        ) from exc
    with file:
        check = _Check()
        try:
            for line in read_lines(file):
                check.take(line)
                yield line
            check.insist_on_end()
        except TraceInvalid as exc:
            raise TraceInvalid(f"{path}: {exc}", hint=exc.hint, details={"file": str(path)}) from exc


class _Check:
    """Holds what the next line must agree with."""

    def __init__(self) -> None:
        self._digest = LinesDigest()
        self._header: Line | None = None
        self._commit: bytes | None = None
        self._next_t = 0
        self._ended = False

    def take(self, line: Line) -> None:
        """Check the next line."""
        kind = line["kind"]
        if self._ended:
            raise self._fault("it goes on after its end")
        if kind == HEADER:
            self._take_header(line)
        elif self._header is None:
            raise self._fault("it does not begin with a run_header")
        elif line["replay_token"] != self._header["replay_token"]:
            raise self._fault(f"a {kind} carries another replay token than the header before it")
        elif kind == ITER:
            self._take_event(line)
        elif kind == COMMIT:
            self._commit = run_commit_record_hash(line)
        if kind == END:
            self._take_end(line)
        else:
            self._digest.take(line)

    def insist_on_end(self) -> None:
        """The file is over."""
        if not self._ended:
            raise TraceInvalid("the trace is cut off: there is no run_end", hint="write it again with `detent trace`")

    def _take_header(self, line: Line) -> None:
        if line["trace_version"] != TRACE_VERSION:
            raise TraceInvalid(
                f"the trace is of version {line['trace_version']}, this program reads version {TRACE_VERSION}",
                hint="write it again with this version's `detent trace`",
            )
        ids = (line["numeric_policy_id"], line["ordering_policy_id"], line["parallel_policy_id"])
        said = (line["orchestrator_version"], line["seed"], line["prng_family"], ids)
        if replay_token_of(*said, line["environment_policy_hash"], line["queue_policy_hash"]) != line["replay_token"]:
            raise self._fault("the replay token of a header does not follow from its fields")
        first = self._header or line
        if differs := next((name for name in _SAME if line[name] != first[name]), None):
            raise self._fault(f"two headers say different things of {differs}")
        if line["run_id"] is not None and (fault := id_fault("run_id", line["run_id"])):
            raise self._fault(fault)
        if self._header is None or line["partition_id"] != self._header["partition_id"]:
            self._next_t = line["t"]
        self._header = line

    def _take_event(self, line: Line) -> None:
        if fault := id_fault("job_id", line["job_id"]):
            raise self._fault(fault)
        if line["t"] < self._next_t or self._is_gap(line["t"]):
            raise self._fault(f"event {line['t']} is not the next one, which would be {self._next_t}")
        if line["status"] == COMMITTED and (line["from_state"], line["to_state"]) not in LEGAL:
            raise self._fault(f"event {line['t']} commits {line['from_state']}->{line['to_state']}, which is not legal")
        self._next_t = line["t"] + 1

    def _is_gap(self, t: int) -> bool:
        """The trace of one run lacks the events of all others; that of a ledger lacks none."""
        return self._header is not None and self._header["run_id"] is None and t != self._next_t

    def _take_end(self, line: Line) -> None:
        self._ended = True
        if (line["lines"], line["lines_digest"]) != (self._digest.lines, self._digest.digest()):
            raise self._fault("the lines are not those that run_end counts and digests")
        if "run_commit_record_hash" in line and line["run_commit_record_hash"] != self._commit:
            raise self._fault("run_end names another commit record than the one before it")

    def _fault(self, what: str) -> TraceInvalid:
        return TraceInvalid(f"the trace contradicts itself at line {self._digest.lines + 1}: {what}", hint=_EDITED)
