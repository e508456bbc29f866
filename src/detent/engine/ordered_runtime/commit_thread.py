"""The commit lane: one thread, one destination, strictly in order.

It is handed one run of seqs at a time, writes their values, and records where the destination stands before it says so. A
crash between the write and the record costs a repeat of that write, which the destination recognises by its seqs; a crash
after the record costs nothing. Values come from memory when they are small and from content when they are not.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from detent.canon import DIGEST_BYTES
from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.engine.commit_targets.api import NOTHING, CommitFailed, CommitTarget, Mark, Nothing
from detent.engine.desk import Desk
from detent.engine.ordered_runtime.chunk_result import ChunkResult, read_values
from detent.engine.ordered_runtime.notes import BEGIN, Notes, commit_name
from detent.engine.ordered_runtime.recall import Standing, values_of
from detent.errors import StoreCorrupt
from detent.ordered import Batch, Chunk, OrderedConfig, SeqState, chunk_of
from detent.ordered.outcomes import ITEM_HEAD, success_items
from detent.ordered.states import OUTCOME_WORDS
from detent.ordered.summary import BlockTree


@dataclass(frozen=True, slots=True)
class Held:
    """A chunk that waits for its commit: how its items ended, and their values, here or in content."""

    result: ChunkResult
    data: bytes | None
    digest: bytes
    """Of the report."""
    content: bytes | None = None
    """Of the content that holds the values, when the report does not."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A run of seqs whose turn it is, with how each ended."""

    first: int
    batches: Sequence[Batch]
    outcomes: Sequence[SeqState]
    digests: Sequence[bytes | None]
    held: Sequence[Held]
    """Of the chunks that it touches, in order; chunks without any value have none."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The destination has everything up to ``last``, and the ledger says so."""

    last: int


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The destination refused a write; nothing behind the last `Committed` has moved."""

    error: CommitFailed


@dataclass(frozen=True, slots=True)
class LaneBroken:
    """Something else than the destination failed: the run cannot go on."""

    error: BaseException


class CommitThread:
    """Writes and records. ``tell`` gets `Committed`, `WriteFailed` or `LaneBroken`, on this thread."""

    def __init__(
        self,
        desk: Desk,
        config: OrderedConfig,
        run_id: str,
        target: CommitTarget,
        notes: Notes,
        tell: Callable[[Committed | WriteFailed | LaneBroken], None],
    ) -> None:
        self._desk = desk
        self._config = config
        self._run_id = run_id
        self._target = target
        self._notes = notes
        self._tell = tell
        self._handed: SimpleQueue[Handed | None] = SimpleQueue()
        self._tree = BlockTree()
        self._counts = dict.fromkeys(OUTCOME_WORDS.values(), 0)
        self._closed = False
        self._standing, self._next_seq = Standing(), 0
        self._thread = threading.Thread(target=self._run, name="detent-commit", daemon=True)

    def open(self, standing: Standing, tree: BlockTree, counts: dict[str, int]) -> None:
        """Open the destination where the ledger says it stands. Raises `CommitFailed`."""
        recorded, cursor = standing.mark, standing.cursor
        self._tree = BlockTree(tree.size, list(tree.frontier.peaks), list(tree.items))
        self._counts = {**self._counts, **counts}
        self._standing = standing
        self._next_seq = self._target.open(self._run_id, recorded)
        if recorded is None and self._target.is_recorded and cursor == 0:
            self._notes.write(BEGIN, {"mark": self._target.begin().to_json()})
        self._thread.start()

    def hand(self, handed: Handed) -> None:
        """The next run of seqs."""
        self._handed.put(handed)

    def close(self) -> None:
        """Let the write at hand end, then let go of the destination."""
        self._notes.stop.set()
        if not self._closed and self._thread.is_alive():
            self._closed = True
            self._handed.put(None)
            self._thread.join()
        self._target.close()

    def _run(self) -> None:
        try:
            self._replay()
            while (handed := self._handed.get()) is not None:
                self._commit(handed)
        except BaseException as exc:  # noqa: BLE001 - the driver raises it where somebody sees it
            self._tell(LaneBroken(exc))

    def _replay(self) -> None:
        """Give a destination without a memory what was committed before, from the start (X-184)."""
        config, seq, standing = self._config, self._next_seq, self._standing
        end = standing.cursor if standing.boundary is None else min(standing.cursor, standing.boundary)
        while seq < end:
            chunk = chunk_of(seq, config.total, config.window_size, config.chunk_size)
            values = values_of(self._desk, self._run_id, chunk)
            last = min(chunk.last, end - 1)
            self._target.write(seq, [values.get(each, NOTHING) for each in range(seq, last + 1)])
            seq = last + 1

    def _commit(self, handed: Handed) -> None:
        values = _Values(self._desk, handed.held)
        first = done = handed.first
        mark: Mark | None = None
        failure: CommitFailed | None = None
        for batch in handed.batches:
            try:
                mark = self._target.write(batch.first, values.between(batch.first, batch.last, batch.writes))
            except CommitFailed as exc:
                failure = exc
                break
            done = batch.last + 1
        if done > first:
            self._record(first, done - 1, handed.outcomes[: done - first], handed.digests, mark)
            self._tell(Committed(done - 1))
        if failure is not None:
            self._tell(WriteFailed(failure))

    def _record(
        self,
        first: int,
        last: int,
        outcomes: Sequence[SeqState],
        digests: Sequence[bytes | None],
        mark: Mark | None,
    ) -> None:
        self._tree.extend(_items(first, outcomes, digests))
        for outcome, word in OUTCOME_WORDS.items():
            self._counts[word] += outcomes.count(outcome)
        said: dict[str, Any] = {"first": first, "last": last, "root": self._tree.root().hex(), **self._counts}
        if self._target.is_recorded and mark is not None:
            said["mark"] = mark.to_json()
        self._notes.write(commit_name(first, last), said)


def _items(first: int, outcomes: Sequence[SeqState], digests: Sequence[bytes | None]) -> list[bytes]:
    """The items as the bytes that the summary's tree is made of; `item_bytes` without a look at each."""
    if outcomes.count(SeqState.TERMINAL_SUCCESS) == len(outcomes):
        return success_items(first, digests[: len(outcomes)])  # type: ignore[arg-type]  # each success has one
    pack = ITEM_HEAD.pack
    return [
        pack(seq, outcome, 0) if digest is None else pack(seq, outcome, DIGEST_BYTES) + digest
        for seq, (outcome, digest) in enumerate(zip(outcomes, digests, strict=False), first)
    ]


class _Values:
    """The values of a run of seqs, chunk by chunk, so that no more than one is decoded at a time."""

    def __init__(self, desk: Desk, held: Sequence[Held]) -> None:
        self._desk = desk
        self._held = deque(held)
        self._seqs: list[int] = []
        self._values: list[JsonValue] = []
        """Of the successes that are decoded and not given out yet, in order, with their seqs."""

    def between(self, first: int, last: int, writes: Sequence[int]) -> list[JsonValue | Nothing]:
        """A value for each seq that is written, `NOTHING` for the others."""
        while writes and self._held and (not self._seqs or self._seqs[-1] < writes[-1]):
            held = self._held.popleft()
            seqs, values = read_values(self._read(held), held.result)
            self._seqs += seqs
            self._values += values
        start = bisect_left(self._seqs, first)
        end = start + len(writes)
        if self._seqs[start:end] != list(writes):
            raise StoreCorrupt(f"of the items from {first} to {last}, values are missing")
        values, self._seqs, self._values = self._values[start:end], self._seqs[end:], self._values[end:]
        if len(values) == last + 1 - first:
            return [*values]
        taken: list[JsonValue | Nothing] = [NOTHING] * (last - first + 1)
        for seq, value in zip(writes, values, strict=True):
            taken[seq - first] = value
        return taken

    def _read(self, held: Held) -> bytes:
        if held.data is not None:
            return held.data
        report = self._desk.report(held.digest)
        data = None if report is None else self._desk.value_bytes(report)
        if data is None:
            raise StoreCorrupt("a result that waits for its commit is gone", hint="it was erased; begin a new run")
        return data


def chunks_between(config: OrderedConfig, first: int, last: int) -> list[Chunk]:
    """The chunks that seqs ``first`` to ``last`` belong to."""
    chunks = []
    seq = first
    while seq <= last:
        chunk = chunk_of(seq, config.total, config.window_size, config.chunk_size)
        chunks.append(chunk)
        seq = chunk.last + 1
    return chunks
