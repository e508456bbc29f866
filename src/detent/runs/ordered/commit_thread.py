"""The commit lane: one thread, one destination, strictly in order.

It is handed one run of seqs at a time, writes their values, and records where the destination stands before it says so. A
crash between the write and the record costs a repeat of that write, which the destination recognises by its seqs; a crash
after the record costs nothing. Values come from memory when they are small and from content when they are not.

A destination may be slow, and it may never answer. A slow one is recorded every `RECORD_SECONDS`, and can be cut off between
two writes. For one that never answers the driver asks `write_seconds`; `close` waits for it for a while and then leaves the
thread behind, with the destination: it is still writing there, so nothing else may close or reopen it in this process.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final

from detent.canon import DIGEST_BYTES
from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.errors import StoreCorrupt
from detent.ordered import Batch, Chunk, OrderedConfig, SeqState, chunk_of
from detent.ordered.actions import BlockTree
from detent.ordered.digests import ITEM_HEAD, success_items
from detent.ordered.states import OUTCOME_WORDS
from detent.owner.backend import Backend
from detent.runs.ordered.chunk_result import ChunkResult, read_values
from detent.runs.ordered.notes import BEGIN, Notes, commit_name
from detent.runs.ordered.recovery import Standing, values_of
from detent.targets.api import NOTHING, CommitFailed, CommitTarget, Mark, Nothing

RECORD_SECONDS: Final = 0.2
"""How long a destination may be at one commit before what it has taken so far is recorded."""
LEAVE_SECONDS: Final = 10.0
"""How long a write at hand may take to return when the run is left."""


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
class Drained:
    """Everything that was handed before has been written, or dropped because of a limit, and has been told."""


@dataclass(frozen=True, slots=True)
class CommitBroken:
    """Something else than the destination failed: the run cannot go on."""

    error: BaseException


class _Lifted:
    """The queue entry behind the last run of seqs that a limit holds for."""


class _LeftBehind(Exception):
    """The driver has left while the destination was at a write: nothing more may be recorded."""


class CommitThread:
    """Writes and records. ``tell`` gets `Committed`, `WriteFailed`, `Drained` or `CommitBroken`, on this thread."""

    def __init__(
        self,
        backend: Backend,
        config: OrderedConfig,
        run_id: str,
        target: CommitTarget,
        notes: Notes,
        tell: Callable[[Committed | WriteFailed | Drained | CommitBroken], None],
    ) -> None:
        self._backend = backend
        self._config = config
        self._run_id = run_id
        self._target = target
        self._notes = notes
        self._tell = tell
        self._handed: SimpleQueue[Handed | Drained | _Lifted | None] = SimpleQueue()
        self._tree = BlockTree()
        self._counts = dict.fromkeys(OUTCOME_WORDS.values(), 0)
        self._standing, self._next_seq = Standing(), 0
        self._limit: int | None = None
        """The first seq that is not to be written any more; None: all are."""
        self._write_began: float | None = None
        self._commit_began: float | None = None
        self._turn = threading.Lock()
        """Guards the next two, which settle who closes the destination."""
        self._left_behind = False
        self._ended = False
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

    def limit(self, at: int) -> None:
        """Begin no write of this seq or a later one, of what was handed and will be, until `lift`."""
        self._limit = at

    def lift(self) -> None:
        """Lift the limit for what is handed from now on; what was handed before stays below it."""
        self._handed.put(_Lifted())

    def drain(self) -> None:
        """Have `Drained` told behind everything that was handed so far."""
        self._handed.put(Drained())

    def write_seconds(self) -> float:
        """How long the destination has been at the write at hand; 0 when it has none."""
        return _since(self._write_began)

    def commit_seconds(self) -> float:
        """How long it has been at what it was last handed; 0 when it waits for more."""
        return _since(self._commit_began)

    def close(self, patience_seconds: float = LEAVE_SECONDS) -> None:
        """Let the write at hand end, then let go of the destination. One that does not end is left behind."""
        self._notes.stop.set()
        if self._thread.is_alive():
            self._handed.put(None)
            self._thread.join(patience_seconds)
            with self._turn:
                self._left_behind = not self._ended
        if not self._left_behind:
            self._target.close()

    def _run(self) -> None:
        try:
            self._replay()
            while (handed := self._handed.get()) is not None:
                if isinstance(handed, Drained):
                    self._tell(handed)
                elif isinstance(handed, _Lifted):
                    self._limit = None
                else:
                    self._commit_began = time.monotonic()
                    self._commit(handed)
                    self._commit_began = None
        except _LeftBehind:
            pass
        except BaseException as exc:  # noqa: BLE001 - the driver raises it where it is seen
            self._tell(CommitBroken(exc))
        finally:
            with self._turn:
                self._ended = True
                is_mine = self._left_behind
            if is_mine:
                self._target.close()

    def _replay(self) -> None:
        """Give a destination without a memory what was committed before, from the start (X-184)."""
        config, seq, standing = self._config, self._next_seq, self._standing
        end = standing.cursor if standing.boundary is None else min(standing.cursor, standing.boundary)
        while seq < end:
            chunk = chunk_of(seq, config.total, config.window_size, config.chunk_size)
            values = values_of(self._backend, self._run_id, chunk)
            last = min(chunk.last, end - 1)
            self._target.write(seq, [values.get(each, NOTHING) for each in range(seq, last + 1)])
            seq = last + 1

    def _commit(self, handed: Handed) -> None:
        values = _Values(self._backend, handed.held)
        first = done = handed.first
        mark: Mark | None = None
        failure: CommitFailed | None = None
        since = time.monotonic()
        for batch in handed.batches:
            taken = values.between(batch.first, batch.last, batch.writes)
            while failure is None and done < (end := self._end_of(batch)):
                try:
                    mark = self._write(done, taken[done - batch.first : end - batch.first])
                except CommitFailed as exc:
                    failure = exc
                else:
                    # A destination that takes its entries one by one may answer after some of them.
                    done = mark.next_seq if done < mark.next_seq < end else end
                    if time.monotonic() - since >= RECORD_SECONDS:
                        self._record(handed, first, done, mark)
                        first, since = done, time.monotonic()
            if done <= batch.last:
                break
        if done > first:
            self._record(handed, first, done, mark)
        if failure is not None:
            self._tell(WriteFailed(failure))

    def _end_of(self, batch: Batch) -> int:
        """Behind the last seq of a batch that is to be written."""
        return batch.last + 1 if self._limit is None else min(batch.last + 1, self._limit)

    def _write(self, first: int, values: Sequence[JsonValue | Nothing]) -> Mark:
        self._write_began = time.monotonic()
        try:
            return self._target.write(first, values)
        finally:
            self._write_began = None
            with self._turn:
                if self._left_behind:
                    raise _LeftBehind

    def _record(self, handed: Handed, first: int, end: int, mark: Mark | None) -> None:
        """Put onto the ledger that the destination has these seqs, then tell the driver."""
        part = slice(first - handed.first, end - handed.first)
        outcomes = handed.outcomes[part]
        self._tree.extend(_items(first, outcomes, handed.digests[part]))
        for outcome, word in OUTCOME_WORDS.items():
            self._counts[word] += outcomes.count(outcome)
        said: dict[str, Any] = {"first": first, "last": end - 1, "root": self._tree.root().hex(), **self._counts}
        if self._target.is_recorded and mark is not None:
            said["mark"] = mark.to_json()
        self._notes.write(commit_name(first, end - 1), said)
        self._tell(Committed(end - 1))


def _since(began: float | None) -> float:
    return 0.0 if began is None else time.monotonic() - began


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

    def __init__(self, backend: Backend, held: Sequence[Held]) -> None:
        self._backend = backend
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
        report = self._backend.report(held.digest)
        data = None if report is None else self._backend.value_bytes(report)
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
