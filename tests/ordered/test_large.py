"""Two million items: the arrays grow, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from detent.ordered import OrderedConfig, OrderedRun, SeqLedger

BYTES_PER_SEQ = 1 + 1 + 2 + 4 + 8
ROOT = Path(__file__).resolve().parents[2]


def arrays_bytes(ledger: SeqLedger) -> int:
    arrays = (ledger.attempts, ledger._owner_index, ledger.lease_heartbeat_ms)
    return sum(len(each) * each.itemsize for each in arrays) + len(ledger.seq_state) + len(ledger.terminal_outcome)


def test_a_seq_costs_sixteen_bytes_and_no_object() -> None:
    """ORD-012, ORD-013, ORD-014, ORD-020"""
    ledger = OrderedRun(OrderedConfig(1000)).ledger
    assert type(ledger.seq_state) is type(ledger.terminal_outcome) is bytearray
    assert arrays_bytes(ledger) == 1000 * BYTES_PER_SEQ


@pytest.mark.slow
def test_the_memory_of_two_million_items_is_that_of_their_arrays() -> None:
    """ORD-012, ORD-021: the same events as with twenty thousand, one process each, peak against peak"""
    peaks = {}
    for total in (20_000, 2_000_000):
        program = f"from bench.ordered_rate import peak_bytes; print(peak_bytes({total}))"
        answer = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )
        peaks[total] = int(answer.stdout)
    arrays = 2_000_000 * BYTES_PER_SEQ
    assert peaks[2_000_000] - peaks[20_000] < 1.3 * arrays
