"""A kernel, some workers and a destination around an ordered run, on one thread, driven by one random stream.

It behaves as the real ones do: a chunk is one job, an attempt of it covers the seqs that have not ended, a lease can lapse
and its worker answer all the same, a write can fail and be repeated, the runtime can die and be resumed from what is committed.
Which of all the things that can happen next does happen is drawn; nothing is drawn about the outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from detent.canon import encode, sha256
from detent.canon.merkle import leaf_hash, root_of
from detent.ordered import (
    Action,
    Boundary,
    Commit,
    Complete,
    Discard,
    Dispatch,
    Envelope,
    Fatal,
    OrderedConfig,
    OrderedRun,
    SeqState,
    Summary,
    Withdraw,
    WriteAgain,
    resume_after,
)
from detent.ordered.run import FAILURE_POLICY

SUCCESS, SKIP, FAIL, CANCEL = (
    SeqState.TERMINAL_SUCCESS,
    SeqState.TERMINAL_SKIP,
    SeqState.TERMINAL_FAIL,
    SeqState.TERMINAL_CANCEL,
)
CODES = {"lapse": "LEASE_EXPIRED", "lost": "WORKER_LOST"}


@dataclass(frozen=True, slots=True)
class Item:
    """One entry: how it ends, how large its payload is, and what goes wrong before."""

    outcome: SeqState = SUCCESS
    size: int = 1
    faults: tuple[str, ...] = ()
    """Each one of ``retry`` (a failure that is tried again), ``lapse`` (of the lease) and ``lost`` (its worker died)."""
    filtered: bool = False
    """Skipped before there is a job."""

    def envelope(self, seq: int) -> Envelope:
        payload = sha256(b"payload %d" % seq) if self.outcome is SUCCESS else None
        code = "BAD_INPUT" if self.outcome is FAIL else None
        return Envelope(self.outcome, payload, self.size, None, code)


@dataclass(slots=True)
class Job:
    """A chunk as the kernel has it: an attempt ends when nothing of it is in flight, by whatever cause."""

    first: int
    last: int
    attempt: int = 0
    running: bool = False


@dataclass(slots=True)
class World:
    """The surroundings of one run, and what they have seen of it."""

    config: OrderedConfig
    items: Sequence[Item]
    random: Random
    write_faults: int = 0
    """How many writes fail, at moments that are drawn."""
    lives: int = 0
    """How often the runtime dies and is resumed from what is committed, at moments that are drawn."""
    run: OrderedRun = field(init=False)
    offers: list[Dispatch] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    commit: Commit | None = None
    batch: int = 0
    again_ms: int | None = None
    late: list[tuple[int, int]] = field(default_factory=list)
    faults: dict[int, list[str]] = field(default_factory=dict)
    destination: dict[int, bytes | None] = field(default_factory=dict)
    highest_written: int = -1
    cursor_log: list[int] = field(default_factory=list)
    discards: list[Discard] = field(default_factory=list)
    boundaries: list[Boundary] = field(default_factory=list)
    withdrawn: list[Withdraw] = field(default_factory=list)
    runs: list[tuple[int, int]] = field(default_factory=list)
    end: Complete | Fatal | None = None

    def __post_init__(self) -> None:
        self.run = OrderedRun(self.config)
        self.faults = {seq: list(item.faults) for seq, item in enumerate(self.items) if item.faults}

    def live(self, cancel_at: int | None = None, steps: int | None = None) -> World:
        """Let things happen until the run has ended; ``cancel_at`` asks for a cancellation at a moment that is drawn.

        ``steps`` is how many things happen at most.
        """
        self.take(self.run.begin())
        while self.end is None and steps != 0:
            steps = None if steps is None else steps - 1
            choices = self.choices()
            if cancel_at is not None and self.random.random() < 0.05:
                self.take(self.run.cancel(cancel_at))
                cancel_at = None
            elif self.lives and self.random.random() < 0.05:
                self.lives -= 1
                self.restart()
            elif not choices:
                self.take(self.run.idle())
            else:
                name, argument = choices[self.random.randrange(len(choices))]
                getattr(self, f"do_{name}")(argument)
            self.watch()
        return self

    def choices(self) -> list[tuple[str, object]]:
        """Everything that could happen next."""
        found: list[tuple[str, object]] = [("confirm", None)] if self.offers else []
        self.jobs = [job for job in self.jobs if self.run.ledger.held_spans(job.first, job.last + 1)]
        for job in self.jobs:
            flying = self.run.ledger.spans(SeqState.IN_FLIGHT, job.first, job.last)
            found += [("answer", (job, seq)) for first, last in flying for seq in range(first, last + 1)]
            if job.running and not flying:
                job.running, job.attempt = False, job.attempt + 1
            if not flying and self.run.ledger.spans(SeqState.DISPATCHED, job.first, job.last):
                found.append(("start", job))
        found += [("late", item) for item in self.late]
        if self.commit is not None:
            found.append(("write", None))
        if self.again_ms is not None:
            found.append(("wait", None))
        return found

    def do_confirm(self, _: object) -> None:
        offer = self.offers.pop(0)
        for seq in self.run.open_seqs(offer.first, offer.last):
            if self.items[seq].filtered:
                self.take(self.run.skipped(seq, seq))
        self.jobs.append(Job(offer.first, offer.last))
        self.take(self.run.dispatched(offer.first, offer.last, "owner"))

    def do_start(self, job: Job) -> None:
        job.running = True
        self.take(self.run.started(job.first, job.last, job.attempt, f"worker-{self.random.randrange(3)}"))

    def do_answer(self, choice: tuple[Job, int]) -> None:
        job, seq = choice
        fault = self.faults[seq].pop(0) if self.faults.get(seq) else None
        if fault is None:
            self.take(self.run.finished(seq, job.attempt, self.items[seq].envelope(seq)))
        elif fault == "retry":
            self.take(self.run.failed(seq, job.attempt, "INTERNAL_ERROR"))
        else:
            flying = self.run.ledger.spans(SeqState.IN_FLIGHT, job.first, job.last)
            self.late += [(each, job.attempt) for first, last in flying for each in range(first, last + 1)][:2]
            self.take(self.run.lapsed(job.first, job.last, job.attempt, CODES[fault], interrupted=fault == "lost"))

    def do_late(self, item: tuple[int, int]) -> None:
        self.late.remove(item)
        seq, attempt = item
        before = len(self.discards)
        self.take(self.run.finished(seq, attempt, self.items[seq].envelope(seq)))
        assert len(self.discards) == before + 1

    def do_write(self, _: object) -> None:
        assert self.commit is not None
        batch = self.commit.batches[self.batch]
        if self.write_faults and self.random.random() < 0.3:
            self.write_faults -= 1
            # The destination may have taken it all the same: the repeat is harmless, because it is keyed by seq.
            if self.random.random() < 0.5:
                self.write(batch.writes)
            self.commit, self.batch = None, 0
            self.take(self.run.write_failed("disk full"))
            return
        self.write(batch.writes)
        self.cursor_log.append(batch.last)
        self.batch += 1
        if self.batch == len(self.commit.batches):
            self.commit, self.batch = None, 0
        self.take(self.run.committed(batch.last))

    def do_wait(self, _: object) -> None:
        assert self.again_ms is not None
        now_ms, self.again_ms = self.again_ms, None
        self.take(self.run.tick(now_ms))

    def write(self, seqs: Sequence[int]) -> None:
        for seq in seqs:
            envelope = self.run.envelope(seq)
            assert envelope is not None
            if seq not in self.destination:
                assert seq > self.highest_written, "the destination is filled strictly in order"
                self.highest_written = seq
            assert self.destination.setdefault(seq, envelope.payload_digest) == envelope.payload_digest

    def restart(self) -> None:
        """The runtime dies, and the next one knows what the ledger has: outcomes below the cursor, recorded boundaries.

        The kernel gives the jobs of the open windows again; answers to the old runtime find no one.
        """
        outcomes = self.run.ledger.terminal_outcome[: self.run.ledger.next_commit_seq]
        committed = [
            self.items[seq].envelope(seq) if outcome in (SUCCESS, FAIL) else Envelope(SeqState(outcome))
            for seq, outcome in enumerate(outcomes)
        ]
        recorded = [boundary.resolved for boundary in self.boundaries if boundary.reason != FAILURE_POLICY]
        self.run = resume_after(self.config, committed, boundary=min(recorded, default=None))
        self.offers, self.jobs, self.late, self.commit, self.batch, self.again_ms = [], [], [], None, 0, None
        self.take(self.run.begin())

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Dispatch():
                    self.offers.append(action)
                case Commit():
                    assert self.commit is None, "one commit at a time"
                    self.commit, self.batch = action, 0
                    self.runs.append((action.first, action.last))
                case WriteAgain():
                    self.again_ms = action.at_ms
                case Withdraw():
                    self.withdrawn.append(action)
                case Boundary():
                    self.boundaries.append(action)
                case Discard():
                    self.discards.append(action)
                case Complete() | Fatal():
                    self.end = action

    def watch(self) -> None:
        """What must hold at every moment, counted anew from the arrays."""
        run, ledger = self.run, self.run.ledger
        states, outcomes = ledger.seq_state, ledger.terminal_outcome
        assert ledger.terminal_count == sum(1 for code in outcomes if code)
        assert ledger.committed_count == ledger.next_commit_seq == states.count(SeqState.COMMITTED)
        assert set(states[: ledger.next_commit_seq]) <= {SeqState.COMMITTED}
        held = [*run.commits.envelope_by_seq]
        assert all(states[seq] == outcomes[seq] for seq in held), "only what has ended and is not committed is held"
        assert len(held) + ledger.dispatched_count + ledger.in_flight_count <= self.config.count_max
        bytes_held = sum(envelope.size for envelope in run.commits.envelope_by_seq.values())
        assert run.commits.buffered_bytes == bytes_held <= self.config.buffered_bytes_max
        assert len(run.windows.active()) <= 2
        assert ledger.max_seen_seq < max(run.windows.limit, 1)


def expected_outcomes(config: OrderedConfig, items: Sequence[Item], boundary: int | None = None) -> list[SeqState]:
    """What a run must come to, by the contract's words: below the boundary the natural end, from it on a cancellation."""
    natural = [SKIP if item.filtered else item.outcome for item in items]
    end = len(items) if boundary is None else min(boundary, len(items))
    fails = [seq for seq in range(end) if natural[seq] is FAIL]
    if config.failure_policy == "stop" and fails:
        end = min(end, (fails[0] // config.window_size + 2) * config.window_size)
    return natural[:end] + [CANCEL] * (len(items) - end)


def expected_summary(items: Sequence[Item], outcomes: Sequence[SeqState]) -> Summary:
    """The summary written out again with the ledger's tree, as an independent check."""
    written = []
    for seq, outcome in enumerate(outcomes):
        payload = sha256(b"payload %d" % seq) if outcome is SUCCESS else b""
        written.append(seq.to_bytes(8, "big") + bytes((outcome, len(payload))) + payload)
    blocks = [b"".join(written[start : start + 64]) for start in range(0, len(written), 64)]
    root = root_of([leaf_hash(b"detent/ordered/block/v1\x00" + block) for block in blocks])
    counts = [sum(1 for outcome in outcomes if outcome is kind) for kind in (SUCCESS, SKIP, FAIL, CANCEL)]
    return Summary(len(outcomes), counts[0], counts[1], counts[2], counts[3], root)


def expected_digest(summary: Summary) -> bytes:
    """The summary's digest by its formula."""
    names = ("total", "success", "skip", "fail", "cancel", "root")
    body = encode({name: getattr(summary, name) for name in names})
    return sha256(b"detent/ordered/summary/v1\x00" + body)
