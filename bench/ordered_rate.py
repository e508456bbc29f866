"""What ordering costs: a million seqs through an `OrderedRun`, beside the barest reorder buffers there are.

All sides get the same completions in the same shuffled order and hand out the same seqs in order. The bare ones are a heap
and a dict with a cursor: no states, no windows, no bounds, no batches, no digest, no checks. An `OrderedRun` has all of
those. It is driven twice: with one event for each item, and with one for each chunk, as the runtime does. The ledger alone
(all states and the cursor, no envelopes, no digest) is measured as well.

Sides take turns in one process and the least of several rounds counts, in CPU time; memory is the peak of a process of its
own, so the bytes for each seq are the difference between two sizes.

    python bench/ordered_rate.py
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path

from detent.ordered import Commit, Dispatch, Envelope, OrderedConfig, OrderedRun, SeqLedger, SeqState

TOTAL = 1_000_000
ROUND_TOTAL = 100_000
ROUNDS = 5
WINDOW = 256
CHUNK = 64
GOAL = 300_000

DONE = Envelope(SeqState.TERMINAL_SUCCESS, b"d" * 32, 100)


def completions(total: int) -> list[tuple[int, int]]:
    """Chunks in an order that two open windows allow."""
    order: list[tuple[int, int]] = []
    rng = random.Random(7)
    for start in range(0, total, 2 * WINDOW):
        end = min(start + 2 * WINDOW, total)
        chunks = [(first, min(first + CHUNK, end) - 1) for first in range(start, end, CHUNK)]
        rng.shuffle(chunks)
        order += chunks
    return order


def by_heap(total: int) -> int:
    heap: list[tuple[int, Envelope]] = []
    cursor = 0
    for first, last in completions(total):
        for seq in range(first, last + 1):
            heappush(heap, (seq, DONE))
            while heap and heap[0][0] == cursor:
                heappop(heap)
                cursor += 1
    return cursor


def by_dict(total: int) -> int:
    held: dict[int, Envelope] = {}
    cursor = 0
    for first, last in completions(total):
        for seq in range(first, last + 1):
            held[seq] = DONE
            while cursor in held:
                del held[cursor]
                cursor += 1
    return cursor


def by_ledger(total: int) -> int:
    ledger = SeqLedger(total)
    for first, last in completions(total):
        ledger.dispatch(first, last, "owner", 0)
        ledger.start(first, last, "worker", 0)
        for seq in range(first, last + 1):
            ledger.end(seq, SeqState.TERMINAL_SUCCESS)
        ledger.check()
        end = ledger.terminal_run_end(total)
        if end > ledger.next_commit_seq:
            ledger.commit(end - 1)
    ledger.check_complete()
    return ledger.next_commit_seq


def by_item(total: int) -> int:
    def finish(run: OrderedRun, first: int, last: int) -> list[object]:
        actions: list[object] = []
        for seq in range(first, last + 1):
            actions += run.finished(seq, 0, DONE)
        return actions

    return drive(total, finish)


def by_chunk(total: int) -> int:
    return drive(total, lambda run, first, last: list(run.finished_many(first, 0, [DONE] * (last + 1 - first))))


def drive(total: int, finish: Callable[[OrderedRun, int, int], list[object]]) -> int:
    """A runtime that does everything at once: two windows of chunks start, come back shuffled, and are written."""
    config = OrderedConfig(total, window_size=WINDOW, chunk_size=CHUNK, micro_batch_size=CHUNK, payload_bytes_max=1024)
    run = OrderedRun(config)
    rng = random.Random(7)
    todo: list[object] = list(run.begin())
    flying: list[tuple[int, int]] = []
    while run.ledger.next_commit_seq < run.config.total:
        while todo:
            action = todo.pop()
            if isinstance(action, Dispatch):
                todo += offered(run, action, todo)
                flying += started(run)
            elif isinstance(action, Commit):
                for batch in action.batches:
                    todo += run.committed(batch.last)
        if flying:
            place = rng.randrange(len(flying))
            flying[place], flying[-1] = flying[-1], flying[place]
            todo += finish(run, *flying.pop())
    return run.ledger.next_commit_seq


def offered(run: OrderedRun, _action: Dispatch, todo: list[object]) -> list[object]:
    """Confirm all offers, oldest first; they are the same ones that stand in the list of things to do."""
    todo[:] = [each for each in todo if not isinstance(each, Dispatch)]
    actions: list[object] = []
    while run.compute.offers:
        actions += run.dispatched(*run.compute.offers[0], "owner")
    return actions


def started(run: OrderedRun) -> list[tuple[int, int]]:
    """Start every chunk that is dispatched."""
    chunks = []
    for first, last in run.ledger.spans(SeqState.DISPATCHED, run.windows.start, run.windows.limit - 1):
        for begin in range(first, last + 1, CHUNK):
            end = min(begin + CHUNK, last + 1) - 1
            run.started(begin, end, 0, "worker")
            chunks.append((begin, end))
    return chunks


def peak_bytes(total: int) -> int:
    """The most memory that this process has had, after a whole run of that many seqs."""
    by_chunk(total)
    # Not getrusage: its peak is handed down from the parent through vfork.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def peak_of(total: int) -> int:
    program = f"from bench.ordered_rate import peak_bytes; print(peak_bytes({total}))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    return int(answer.stdout)


SIDES: dict[str, Callable[[int], int]] = {
    "bare heap": by_heap,
    "bare dict": by_dict,
    "seq ledger alone": by_ledger,
    "ordered run, by item": by_item,
    "ordered run, by chunk": by_chunk,
}


def main() -> None:
    least = dict.fromkeys(SIDES, float("inf"))
    for _ in range(ROUNDS):
        for name, side in SIDES.items():
            begun = time.process_time()
            if side(ROUND_TOTAL) != ROUND_TOTAL:
                sys.exit(f"{name} lost something")
            least[name] = min(least[name], time.process_time() - begun)
    begun = time.process_time()
    by_chunk(TOTAL)
    whole = time.process_time() - begun
    print(
        f"items a second in order, {ROUND_TOTAL:,} seqs, windows of {WINDOW}, chunks of {CHUNK}, least of {ROUNDS} rounds"
    )
    for name, seconds in least.items():
        ratio = seconds / least["bare dict"]
        print(f"  {name:<24}{ROUND_TOTAL / seconds:>12,.0f}   {ratio:>6.1f} times the bare dict")
    events = 4 * TOTAL // CHUNK  # dispatched, started, finished, committed
    print(f"  {TOTAL:,} by chunk, once: {TOTAL / whole:,.0f} items and {events / whole:,.0f} events a second")
    small, large = peak_of(20_000), peak_of(TOTAL)
    print(
        f"  memory: {(large - small) / (TOTAL - 20_000):.1f} bytes for each further seq ({small >> 20} -> {large >> 20} MiB)"
    )
    print(f"  goals: ledger and cursor alone at least {GOAL:,} items a second; at most 64 bytes a seq")


if __name__ == "__main__":
    main()
