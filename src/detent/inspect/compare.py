"""Comparing two histories: homes, bundles and traces, in any mixture, by the contract's equivalence procedure.

Each side is read once, forward, and its committed transitions are sorted into the canonical order in a map that spills to
disk, so memory does not grow with the ledger. Homes and bundles give whole records, traces give the decisions and the hash
over all records. A side that holds one run narrows the other to that run.

Nothing is verified here: `detent verify` says whether a ledger can be believed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from detent.canon import UINT64_MAX, decode_trusted, encode, sha256
from detent.canon.late import dataclass
from detent.errors import InvalidInput
from detent.inspect.audit import commits
from detent.inspect.trace import read_trace
from detent.inspect.trace_lines import END, HEADER, ITER
from detent.kernel import (
    ORCHESTRATOR_VERSION,
    TABLE_DIGEST,
    KernelConfig,
    LogComparison,
    LogDifference,
    LogEntry,
    compare_logs,
    transition_log_hash,
)
from detent.kernel.manifest import digest_fault, id_fault
from detent.kernel.outcome import COMMITTED
from detent.kernel.records import OWNER_EPOCH, RUN_STARTED, SUBMITTED, TRANSITION
from detent.kernel.trace import DECISION_FIELDS, DIFFERENT, E0, OriginDigest, TraceOrigin, incomparable
from detent.ledger.bundle import read_bundle
from detent.ledger.findings import Finding
from detent.ledger.items import BatchItem, HeaderItem, PartialItem
from detent.ledger.loose import loose
from detent.owner.home import Home
from detent.owner.wiring import Parts
from detent.runs.find_jobs import the_run
from detent.store.spill import SpilledHeads

HOME, BUNDLE, TRACE = "home", "bundle", "trace"
_HEADS, _LOG = b"h", b"t"
"""Beginnings of keys: a job's head, a transition."""
_SEQ_BYTES: Final = 8
_FORMS: Final[Mapping[type, Callable[[Any], bool]]] = {
    bytes: lambda value: digest_fault("", value) is None,
    str: lambda value: id_fault("", value) is None,
    int: lambda value: type(value) is int and 0 <= value < UINT64_MAX,
}
"""What the fields of a foreign record must be: digests, ids, numbers."""


class NotComparable(InvalidInput):
    """Two histories that different policies, arrivals or manifests would have made different anyway (PIPE-114)."""

    code = "NOT_COMPARABLE"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a history is read from."""

    what: str
    form: str
    place: Home | Path
    run_id: str | None = None
    """The run that it is about; None: a whole ledger."""


@dataclass(slots=True)
class History:
    """A history in its canonical order."""

    source: Source
    origin: TraceOrigin
    log_hash: bytes
    transitions: int
    log: SpilledHeads

    def entries(self) -> Iterator[LogEntry]:
        """Every committed transition, by job and number."""
        exact = self.source.form != TRACE
        for key, value in self.log.items(_LOG):
            job_id, seq = key[len(_LOG) : -_SEQ_BYTES - 1].decode(), int.from_bytes(key[-_SEQ_BYTES:], "big")
            token, data = value[:32], value[32:]
            fields = decode_trusted(data) | {"replay_token": token}
            yield LogEntry(job_id, seq, fields, data if exact else None)


@dataclass(frozen=True, slots=True)
class Compared:
    """The verdict on two comparable histories."""

    left: History
    right: History
    logs: LogComparison

    @property
    def same_log(self) -> bool:
        """Whether the transition logs are identical, record by record and by their hash."""
        return self.logs.log is None and self.left.log_hash == self.right.log_hash

    @property
    def decisions(self) -> str:
        """The level of equivalence of the transition decisions."""
        return E0 if self.logs.decisions is None else DIFFERENT

    @property
    def log(self) -> str:
        """The level of equivalence of the transition logs."""
        return E0 if self.same_log else DIFFERENT

    @property
    def difference(self) -> LogDifference | None:
        """The first record that differs; None where there is none, or where only the hash over all records shows one."""
        return self.logs.log


def compare(left: Source, right: Source, run: str | None, judge: Callable[[Compared], None]) -> None:
    """Compare two histories and hand the verdict to ``judge`` while both are open.

    Raises `NotComparable` for histories of different origin, `InvalidInput` for what cannot be read.
    """
    run_id = _the_run(left, right, run)
    with ExitStack() as stack:
        one, other = (_history(source, run_id, stack.enter_context(SpilledHeads())) for source in (left, right))
        verdict = Compared(one, other, compare_logs(one.entries(), other.entries()))
        if why := incomparable(one.origin, other.origin):
            first = verdict.difference
            where = (
                "" if first is None else f"; they first differ at job {first.job_id}, transition {first.transition_seq}"
            )
            raise NotComparable(
                f"{left.what} and {right.what} cannot be compared: {why}{where}",
                hint="compare histories of one ledger, or rank runs with `detent compare --rank`",
            )
        judge(verdict)


def find_source(place: Home | Path) -> Source:
    """A home, or a file by how it begins: a bundle or a trace. Raises `InvalidInput` for a file that cannot be read."""
    if isinstance(place, Home):
        return Source(str(place.ledger), HOME, place)
    if place.exists() and not place.is_file():
        raise InvalidInput(f"{place} is neither a home nor a plain file", hint="give a home, a bundle or a trace")
    try:
        with place.open("rb") as file:
            start = file.read(1)
    except OSError as exc:
        raise InvalidInput(
            f"{place} cannot be read: {exc.strerror or exc}", hint="give a home, a bundle or a trace"
        ) from exc
    if start == b"{" or start[:1] > b"\x9f":  # A JSON object, or a map of CBOR; a bundle begins with a byte string.
        with closing(read_trace(place)) as lines:
            return Source(str(place), TRACE, place, next(lines)["run_id"])
    with closing(_bundle(place)) as items:
        first = next(items)
        return Source(str(place), BUNDLE, place, first.run_id if isinstance(first, HeaderItem) else None)


def _the_run(left: Source, right: Source, run: str | None) -> str | None:
    """The run that is compared: the one asked for, or the one that a side is about."""
    if run is not None:
        for source in (left, right):
            if isinstance(source.place, Home):
                with Parts().open_reader(source.place.ledger) as reader:
                    run = the_run(reader, run).run_id
    named = list(dict.fromkeys(run_id for run_id in (run, left.run_id, right.run_id) if run_id is not None))
    if len(named) > 1:
        raise NotComparable(
            f"{left.what} and {right.what} cannot be compared: they are about different runs: {', '.join(named)}",
            hint="compare two histories of one run, or rank runs with `detent compare --rank`",
        )
    return next(iter(named), None)


def _history(source: Source, run_id: str | None, log: SpilledHeads) -> History:
    if source.form == TRACE:
        return _of_trace(source, run_id, log)
    gathered = _Gathered(source, run_id, log)
    if isinstance(source.place, Home):
        with Parts().open_snapshot(source.place.ledger) as reader:
            gathered.ledger = reader.origin
            for partition in range(reader.partitions):
                for _, records in commits(reader, partition):
                    gathered.take(partition, ((row.body, row.evidence) for row in records))
    else:
        for item in _bundle(source.place):
            if isinstance(item, HeaderItem):
                gathered.ledger = item.origin
            elif isinstance(item, BatchItem):
                gathered.take(item.partition, item.records)
            elif isinstance(item, PartialItem):
                gathered.take(item.partition, ((record.body, record.evidence) for record in item.records))
    return gathered.history()


def _bundle(path: Path) -> Generator[object]:
    """The items of a bundle; what is wrong with the file is an error."""
    with path.open("rb") as file:
        for item in read_bundle(file):
            if isinstance(item, Finding):
                raise InvalidInput(
                    f"{path} cannot be read: {item.message}",
                    hint="give a home, a bundle or a trace; `detent verify` says what is wrong with a bundle",
                )
            yield item


@dataclass(slots=True)
class _Gathered:
    """The records of a ledger, sorted as they come."""

    source: Source
    run_id: str | None
    log: SpilledHeads
    ledger: str = ""
    origin: OriginDigest = field(default_factory=OriginDigest)
    transitions: int = 0
    run_seen: bool = False
    policies: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """The queue policy and the replay token in force, for each partition."""

    def take(self, partition: int, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Take the records of a batch, in their order."""
        for body, evidence in records:
            fields = loose(body)
            kind = fields.get("kind") if isinstance(fields, dict) else None
            if kind == OWNER_EPOCH:
                policy = self._of(fields, "queue_policy_hash", bytes), self._of(fields, "replay_token", bytes)
                self.policies[partition] = policy
            elif kind == RUN_STARTED:
                self.run_seen = self.run_seen or fields.get("run_id") == self.run_id
            elif kind == SUBMITTED and self.run_id in {None, fields.get("run_id")}:
                job_id = self._of(fields, "job_id", str)
                self.origin.arrive(job_id, evidence or b"")
                self._head(job_id, 0, self._of(fields, "chain_hash", bytes))
            elif kind == TRANSITION:
                self._transition(partition, fields, body)
            elif not isinstance(kind, str):
                raise self._damaged("a record is not a map with a kind")

    def history(self) -> History:
        """What was taken, as a history."""
        if self.run_id is not None and not self.run_seen:
            raise InvalidInput(f"there is no run {self.run_id!r} in {self.source.what}", code="UNKNOWN_RUN")
        origin = TraceOrigin(
            ORCHESTRATOR_VERSION,
            TABLE_DIGEST,
            self.ledger,
            self.run_id,
            self.origin.queue_policies,
            self.origin.jobs,
            self.origin.arrivals,
            self.origin.manifest_signatures,
        )
        heads = (
            (key[len(_HEADS) :].decode(), int.from_bytes(value[:_SEQ_BYTES], "big"), value[_SEQ_BYTES:])
            for key, value in self.log.items(_HEADS)
        )
        count = sum(1 for _ in self.log.items(_HEADS))
        return History(self.source, origin, transition_log_hash(count, heads), self.transitions, self.log)

    def _transition(self, partition: int, fields: dict[str, Any], body: bytes) -> None:
        job_id, seq = self._of(fields, "job_id", str), self._of(fields, "transition_seq", int)
        if self.run_id is not None and self.log.get(_HEADS + job_id.encode()) is None:
            return  # A job of another run.
        default = KernelConfig()
        policy, token = self.policies.get(partition) or (default.queue_policy_hash, default.replay_token)
        self.origin.decide(policy)
        self._head(job_id, seq + 1, sha256(body))
        self.transitions += 1
        self.log.put(_key(job_id, seq), token + body)

    def _head(self, job_id: str, transitions: int, head: bytes) -> None:
        self.log.put(_HEADS + job_id.encode(), transitions.to_bytes(_SEQ_BYTES, "big") + head)

    def _of(self, fields: dict[str, Any], name: str, kind: type) -> Any:
        value = fields.get(name)
        if not _FORMS[kind](value):
            raise self._damaged(f"a record has no {name} as records have it")
        return value

    def _damaged(self, what: str) -> InvalidInput:
        return InvalidInput(
            f"{self.source.what} cannot be compared: {what}", hint="`detent verify` says what was changed"
        )


def _of_trace(source: Source, run_id: str | None, log: SpilledHeads) -> History:
    if source.run_id != run_id:
        raise NotComparable(
            f"{source.what} is the trace of the whole ledger, which does not say which jobs belong to run {run_id}",
            hint=f"write the trace of the run: `detent trace {run_id}`",
        )
    header: dict[str, Any] = {}
    end: dict[str, Any] = {}
    origin, transitions = OriginDigest(), 0
    for line in read_trace(Path(source.what)):
        if line["kind"] == HEADER:
            header = line
        elif line["kind"] == ITER and line["status"] == COMMITTED:
            origin.decide(header["queue_policy_hash"])
            transitions += 1
            decision = {name: line[name] for name in DECISION_FIELDS if name != "replay_token"}
            log.put(_key(line["job_id"], line["transition_seq"]), line["replay_token"] + encode(decision))
        elif line["kind"] == END:
            end = line
    said = TraceOrigin(
        header["orchestrator_version"],
        header["table_digest"],
        header["ledger"],
        header["run_id"],
        origin.queue_policies,
        end["jobs"],
        end["arrivals_digest"],
        end["manifest_signatures_digest"],
    )
    return History(source, said, end["transition_log_hash"], transitions, log)


def _key(job_id: str, transition_seq: int) -> bytes:
    """A key that sorts as the canonical order does; ids hold no zero byte."""
    return _LOG + job_id.encode() + b"\0" + transition_seq.to_bytes(_SEQ_BYTES, "big")
