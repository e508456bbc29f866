"""Replay: apply the recorded commands again and compare every byte.

A fresh kernel is given the commands of every batch, in order. It must make the same records with the same evidence, at the
same positions and ticks. Replay shows that the owner decided as the kernel decides; it checks no signature, so it is no
substitute for verification, which in turn cannot know what the kernel would have made of a command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any, Final

from detent.canon import digest_text
from detent.canon.late import NamedTuple, dataclass
from detent.kernel import (
    History,
    Kernel,
    KernelConfig,
    MemoryHistory,
    Outcome,
    RaiseEpoch,
    commands_digest,
    decode_commands,
    plain_queue,
    transition_log_hash,
)
from detent.kernel.partition_state import MakeQueue
from detent.ledger.batch import BatchHeader, parse_batch
from detent.ledger.findings import FINDINGS, Finding
from detent.ledger.items import SCOPE_RUN, BatchItem, HeaderItem, PartialItem, Readable
from detent.ledger.loose import loose
from detent.ledger.trust_config import TrustFault

DIFFERENCES_MAX: Final = 100
"""Differences a report keeps; further ones are counted."""


class Difference(NamedTuple):
    """One place where the ledger is not what its commands lead to."""

    partition: int
    batch_no: int
    position: int | None
    problem: str

    def to_map(self) -> dict[str, object]:
        """The difference for JSON."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay says."""

    ok: bool
    differences: tuple[Difference, ...]
    differences_total: int
    batches: int
    commands: int
    records: int
    transition_log_hash: bytes | None
    """Hash over the heads of all jobs, as the replay made them (X-050)."""
    metrics: tuple[dict[str, object], ...] = ()
    """The kernel's metrics at the end, for each partition."""
    notes: tuple[str, ...] = ()
    """Why nothing could be replayed, where that is so."""

    @property
    def ambiguous_transitions(self) -> int:
        """Requests for a transition that were refused or in conflict, over all partitions (PIPE-007)."""
        return sum(int(str(metrics["ambiguous_transitions"])) for metrics in self.metrics)

    def to_map(self) -> dict[str, Any]:
        """The report for JSON."""
        log_hash = self.transition_log_hash
        return {
            "ok": self.ok,
            "differences": [difference.to_map() for difference in self.differences],
            "differences_total": self.differences_total,
            "batches": self.batches,
            "commands": self.commands,
            "records": self.records,
            "transition_log_hash": None if log_hash is None else digest_text(log_hash),
            "ambiguous_transitions": self.ambiguous_transitions,
            "metrics": list(self.metrics),
            "notes": list(self.notes),
        }


MakeHistory = Callable[[int], History]
AfterCommand = Callable[[int, Kernel, Outcome], None]
LogHeads = Callable[[int, History], Iterable[tuple[str, int, bytes]]]
AfterBatch = Callable[[int, int, Kernel], None]


def replay_items(
    items: Iterable[Readable],
    *,
    make_history: MakeHistory | None = None,
    ended_heads: LogHeads | None = None,
    make_queue: MakeQueue = plain_queue,
    after_command: AfterCommand | None = None,
    after_batch: AfterBatch | None = None,
) -> ReplayReport:
    """Replay a whole ledger.

    ``make_history`` gives each partition's kernel its past; in memory by default. A history that is not a `MemoryHistory`
    comes with ``ended_heads``, which lists the (job id, transitions, head) of the jobs that ended in it. ``after_command`` is
    handed the outcome of every command, ``after_batch`` the kernel as it stands after each batch, to look at and nothing else.
    The bundle of a run holds no commands: that is said in the report, which is not ok.
    """
    replay = _Replay(
        make_history or (lambda _: MemoryHistory()),
        ended_heads or _memory_heads,
        make_queue,
        after_command,
        after_batch,
    )
    for item in items:
        replay.take(item)
    return replay.report()


class _ObserverFailed(Exception):
    """The caller's own function failed, not the replay."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(slots=True)
class _Lane:
    """The replay of one partition."""

    number: int
    history: History
    kernel: Kernel | None = None
    lost: bool = False
    """The kernel could not go on; what follows would only be noise."""
    position: int = 0


@dataclass(slots=True)
class _Replay:
    make_history: MakeHistory
    ended_heads: LogHeads
    make_queue: MakeQueue
    after_command: AfterCommand | None
    after_batch: AfterBatch | None
    lanes: dict[int, _Lane] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    differences_total: int = 0
    batches: int = 0
    commands: int = 0
    records: int = 0
    notes: list[str] = field(default_factory=list)

    def take(self, item: Readable) -> None:
        """Replay the next item, if it is a batch."""
        if isinstance(item, Finding):
            kind, alien = FINDINGS[item.code], item.code == "NOT_A_BUNDLE"
            self._say(f"{kind.meaning}: {kind.usually}" if alien else f"the file cannot be read: {item.message}")
        elif isinstance(item, HeaderItem) and item.scope == SCOPE_RUN:
            self._say("this is the bundle of one run; commands are not in it, so there is nothing to replay")
        elif isinstance(item, PartialItem):
            self._say("a batch is there in part only; its commands are not in it")
        elif isinstance(item, BatchItem):
            self._batch(item)

    def _say(self, note: str) -> None:
        if note not in self.notes and len(self.notes) < DIFFERENCES_MAX:
            self.notes.append(note)

    def _batch(self, item: BatchItem) -> None:
        lane = self.lanes.get(item.partition)
        if lane is None:
            lane = self.lanes[item.partition] = _Lane(item.partition, self.make_history(item.partition))
        self.batches += 1
        header = parse_batch(item.body)
        if isinstance(header, TrustFault):
            self._differ(lane, self.batches - 1, None, header.message)
            lane.lost = True
        if lane.lost or isinstance(header, TrustFault):
            return
        try:
            self._apply(lane, header, item)
        except _ObserverFailed as failed:
            raise failed.cause from None  # A full disk or a closed pipe of the caller's says nothing about the ledger.
        except Exception as exc:  # noqa: BLE001 - commands are foreign bytes here, and any failure of the kernel on them is a difference
            self._differ(lane, header.batch_no, None, f"the commands cannot be applied: {type(exc).__name__}: {exc}")
            lane.lost = True

    def _apply(self, lane: _Lane, header: BatchHeader, item: BatchItem) -> None:
        if commands_digest(item.commands) != header.commands_digest:
            self._differ(lane, header.batch_no, None, "the commands are not those the batch record binds")
        commands = decode_commands(item.commands)
        if lane.kernel is None:
            config = next((command.config for command in commands if isinstance(command, RaiseEpoch)), None)
            lane.kernel = Kernel(
                KernelConfig() if config is None else KernelConfig.decode(config),
                make_queue=self.make_queue,
                history=lane.history,
            )
        made: list[tuple[bytes, bytes | None]] = []
        ticks: list[int] = []
        for command in commands:
            outcome = lane.kernel.apply(command)
            made += [(record.body, record.evidence) for record in outcome.records]
            ticks.append(lane.kernel.tick)
            if self.after_command is not None:
                try:
                    self.after_command(lane.number, lane.kernel, outcome)
                except Exception as exc:
                    raise _ObserverFailed(exc) from exc
        lane.kernel.drain_touched()
        self.commands += len(commands)
        self.records += len(made)
        self._compare(lane, header, item, made)
        if ticks and (ticks[0], ticks[-1]) != (header.first_tick, header.last_tick):
            self._differ(lane, header.batch_no, None, f"the replay went from tick {ticks[0]} to {ticks[-1]}")
        if self.after_batch is not None:
            self.after_batch(lane.number, header.batch_no, lane.kernel)

    def _compare(
        self, lane: _Lane, header: BatchHeader, item: BatchItem, made: list[tuple[bytes, bytes | None]]
    ) -> None:
        if header.first_position != lane.position:
            self._differ(
                lane, header.batch_no, None, f"the batch starts at {header.first_position}, not {lane.position}"
            )
        if len(made) != len(item.records):
            problem = f"the commands lead to {len(made)} records, the ledger has {len(item.records)}"
            self._differ(lane, header.batch_no, None, problem)
        for index, (ours, theirs) in enumerate(zip(made, item.records, strict=False)):
            if ours[0] != theirs[0]:
                self._differ(lane, header.batch_no, lane.position + index, _field_difference(ours[0], theirs[0]))
            elif ours[1] != theirs[1]:
                self._differ(lane, header.batch_no, lane.position + index, "the record's evidence differs")
        lane.position += len(made)

    def _differ(self, lane: _Lane, batch_no: int, position: int | None, problem: str) -> None:
        self.differences_total += 1
        if len(self.differences) < DIFFERENCES_MAX:
            self.differences.append(Difference(lane.number, batch_no, position, problem))

    def report(self) -> ReplayReport:
        """What the whole replay says."""
        lost = any(lane.lost for lane in self.lanes.values())
        kernels = [lane.kernel for _, lane in sorted(self.lanes.items()) if lane.kernel is not None]
        if not self.batches and not self.notes:
            self.notes.append("there are no batches to replay")
        return ReplayReport(
            ok=not self.differences_total and not self.notes,
            differences=tuple(self.differences),
            differences_total=self.differences_total,
            batches=self.batches,
            commands=self.commands,
            records=self.records,
            transition_log_hash=None if lost or not kernels else self._log_hash(),
            metrics=tuple(kernel.metrics_snapshot() for kernel in kernels),
            notes=tuple(self.notes),
        )

    def _log_hash(self) -> bytes:
        heads: list[tuple[str, int, bytes]] = []
        for lane in self.lanes.values():
            heads += self.ended_heads(lane.number, lane.history)
            if lane.kernel is not None:
                heads += [(job.job_id, job.transition_seq, job.head) for job in lane.kernel.jobs.values()]
        heads.sort(key=lambda head: head[0].encode())
        return transition_log_hash(len(heads), heads)


def _memory_heads(partition: int, history: History) -> Iterable[tuple[str, int, bytes]]:  # noqa: ARG001 - one history, one partition
    if not isinstance(history, MemoryHistory):
        return []
    return [(job.job_id, job.transition_seq, job.head) for job in history.jobs.values()]


def _field_difference(ours: bytes, theirs: bytes) -> str:
    """Name the fields in which two records differ."""
    left, right = loose(ours), loose(theirs)
    if not isinstance(left, dict) or not isinstance(right, dict):
        return "the record differs"
    names = sorted(str(name) for name in left.keys() | right.keys() if left.get(name) != right.get(name))
    return f"the record differs in {', '.join(names)[:200]}" if names else "the record is encoded otherwise"
