"""Writing a trace: the recorded commands are decided again, and every request for a transition leaves its line.

The ledger holds what was committed; requests that were refused or in conflict are known from the commands alone. So a trace
is made by a replay, which compares every record on the way: a ledger that does not replay has no trace. Memory does not
grow with the ledger.

The trace of a run keeps the numbers ``t`` of its partition's whole trace, so that they agree with those of failures.

Reading a trace that someone hands in: every line is checked against the lines before it.

What a trace says of its origin is checked from the trace itself: the replay token of a header follows from its other fields,
every line carries the token of the header it stands under, the events are numbered in order, committed ones are legal
moves, and the last line has the count and the digest of all others. Whether the trace is that of a ledger, only a comparison
with the ledger shows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import field
from pathlib import Path

from detent.canon import decode_trusted
from detent.canon.late import dataclass
from detent.errors import InvalidInput, StoreCorrupt
from detent.inspect.replay import replay_reader
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
from detent.kernel import (
    LEGAL,
    TABLE_DIGEST,
    IterEvent,
    Kernel,
    KernelConfig,
    Outcome,
    Record,
    partition_of,
    run_end,
    run_header,
    transition_log_hash,
)
from detent.kernel.history import RUN_ENDED
from detent.kernel.manifest import id_fault
from detent.kernel.outcome import COMMITTED
from detent.kernel.policy import replay_token_of
from detent.kernel.records import SUBMITTED
from detent.kernel.trace import OriginDigest, run_commit, run_commit_record_hash
from detent.owner.home import Home
from detent.owner.wiring import Parts
from detent.runs.find_jobs import the_run
from detent.store.api import StoreReader
from detent.words.quantities import count_text

TakeLine = Callable[[Line, bytes], None]
"""Takes a line and its canonical CBOR."""


@dataclass(slots=True)
class Traced:
    """What a trace holds, in numbers."""

    ledger: str
    run_id: str | None
    events: int = 0
    committed: int = 0
    jobs: int = 0
    lines: int = 0
    transition_log_hash: bytes = b""
    run_commit_record_hash: bytes | None = None


def trace_home(home: Home, run: str | None, take: TakeLine, *, parts: Parts | None = None) -> Traced:
    """Hand every line of a home's trace to ``take``: of one run, or of everything.

    ``run`` is an id, its beginning, or the name of a workflow, which stands for its newest run. Raises `StoreCorrupt`, without a last line, when the ledger is not what its commands lead to.
    """
    chosen = parts or Parts()
    with chosen.open_snapshot(home.ledger) as reader:
        tracer = _Tracer(reader, None if run is None else the_run(reader, run).run_id, take)
        report = replay_reader(reader, chosen.make_queue, tracer.after_command)
        if not report.ok or report.transition_log_hash is None:
            what = next(iter(report.notes), None) or count_text(report.differences_total, "difference")
            raise StoreCorrupt(
                f"the ledger is not what its commands lead to, so it has no trace: {what}",
                hint="`detent replay` lists the differences",
            )
        return tracer.end(report.transition_log_hash)


@dataclass(slots=True)
class _Tracer:
    """Turns the outcomes of a replay into lines."""

    reader: StoreReader
    run_id: str | None
    take: TakeLine
    traced: Traced = field(init=False)
    origin: OriginDigest = field(default_factory=OriginDigest)
    lines: LinesDigest = field(default_factory=LinesDigest)
    configs: dict[int, KernelConfig] = field(default_factory=dict)
    jobs: set[str] = field(default_factory=set)
    """The jobs of the run that is traced."""
    header: tuple[int, bytes] | None = None
    """Partition and replay token of the last header."""
    config: KernelConfig = field(default_factory=KernelConfig)
    """That of the last header."""
    t: int = 0

    def __post_init__(self) -> None:
        self.traced = Traced(self.reader.origin, self.run_id)

    def after_command(self, partition: int, kernel: Kernel, outcome: Outcome) -> None:
        """Write what a command has led to: its events, and the commit record of a run that has ended."""
        before = self.configs.get(partition, kernel.config)
        self.configs[partition] = kernel.config
        for record in outcome.records:
            if record.kind == SUBMITTED and self._is_meant(record):
                if self.run_id is not None:
                    self.jobs.add(str(record.job_id))
                self.origin.arrive(str(record.job_id), record.evidence or b"")
        for event in outcome.events:
            if self.run_id is None or event.job_id in self.jobs:
                # An event of the time that passed before a new owner's command was decided under the configuration before it.
                now = kernel.config.replay_token == event.replay_token
                self._event(partition, event, kernel.config if now else before)
        for record in outcome.records:
            if record.kind == RUN_ENDED and self._is_meant(record):
                self._run_ended(record, kernel.config)

    def end(self, log_hash: bytes) -> Traced:
        """Write the last line, given the hash over the whole ledger's log."""
        if self.run_id is not None:
            heads = [
                (head.job_id, head.transition_seq, head.head) for head in self.reader.job_heads(run_id=self.run_id)
            ]
            log_hash = transition_log_hash(len(heads), sorted(heads))
        if self.header is None:
            partition = 0 if self.run_id is None else partition_of(self.run_id, self.reader.partitions)
            self._under(partition, self.configs.get(partition, KernelConfig()), self.t)
        traced = self.traced
        self._write(
            run_end(self.config, self.t, log_hash, traced.run_commit_record_hash)
            | {
                "jobs": self.origin.jobs,
                "arrivals_digest": self.origin.arrivals,
                "manifest_signatures_digest": self.origin.manifest_signatures,
                "lines": self.lines.lines,
                "lines_digest": self.lines.digest(),
            }
        )
        traced.jobs, traced.lines, traced.transition_log_hash = self.origin.jobs, self.lines.lines, log_hash
        return traced

    def _is_meant(self, record: Record) -> bool:
        return self.run_id is None or record.run_id == self.run_id

    def _event(self, partition: int, event: IterEvent, config: KernelConfig) -> None:
        self._under(partition, config, event.t)
        self.traced.events += 1
        self.traced.committed += event.status == COMMITTED
        self.t = event.t + 1
        self._write(event.to_map())

    def _under(self, partition: int, config: KernelConfig, t: int) -> None:
        """Write a header where the last one is of another partition or configuration."""
        if self.header == (partition, config.replay_token):
            return
        self.header, self.config = (partition, config.replay_token), config
        line = run_header(config, t) | {
            "trace_version": TRACE_VERSION,
            "ledger": self.traced.ledger,
            "run_id": self.run_id,
            "partition_id": partition,
            "table_digest": TABLE_DIGEST,
            "tick_ms": config.tick_ms,
        }
        self._write(line)

    def _run_ended(self, record: Record, config: KernelConfig) -> None:
        fields = decode_trusted(record.body)
        line = run_commit(fields["run_id"], fields["jobs_digest"], fields["job_count"], config.replay_token)
        self._under(config.partition_id, config, self.t)
        self._write(line)
        if self.run_id is not None:
            self.traced.run_commit_record_hash = run_commit_record_hash(line)

    def _write(self, line: Line) -> None:
        self.take(line, self.lines.take(line))


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
