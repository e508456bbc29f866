"""Writing a trace: the recorded commands are decided again, and every request for a transition leaves its line.

The ledger holds what was committed; requests that were refused or in conflict are known from the commands alone. So a trace
is made by a replay, which compares every record on the way: a ledger that does not replay has no trace. Memory does not
grow with the ledger.

The trace of a run keeps the numbers ``t`` of its partition's whole trace, so that they agree with those of failures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from detent.canon import decode_trusted
from detent.canon.late import dataclass
from detent.errors import StoreCorrupt
from detent.inspect.replay import replay_reader
from detent.inspect.trace_lines import TRACE_VERSION, Line, LinesDigest
from detent.kernel import (
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
from detent.kernel.outcome import COMMITTED
from detent.kernel.records import RUN_ENDED, SUBMITTED
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
