"""What a verification remembers: the same answers whether everything is in memory or nearly nothing is."""

from __future__ import annotations

import random

import pytest

from detent.canon import sha256
from detent.kernel import transition_log_hash
from detent.ledger import Heads, MemoryHeads, verify_items
from detent.ledger.tables import ErasedTable, JobFold, JobTable, RunFold, RunTable
from detent.store.spill import SpilledHeads
from tests.ledger.build import Builder, lively


def fold(name: str, state: str = "QUEUED", run_id: str | None = None) -> JobFold:
    return JobFold("acme", run_id, state, 3, 1, sha256(name.encode()), sha256(b"m"), sha256(b"q"), 2, 100, ("A", "B"))


def test_a_live_fold_comes_back_whole_and_an_ended_one_by_its_head() -> None:
    live = fold("a", "RUNNING")
    live.lease_id, live.due, live.failures = sha256(b"lease"), 2**64 - 1, 1
    live.fixed, live.tick, live.moved_tick, live.dispatched = sha256(b"fixed"), 9, 8, True
    live.reason, live.exit_seq, live.holder, live.interruptions = "DISPATCHED", 4, "worker-1", 2
    assert JobFold.decode(live.encode()) == live
    live.state = "FAILED"
    ended = JobFold.decode(live.encode())
    assert (ended.state, ended.transition_seq, ended.head) == ("FAILED", 3, sha256(b"a"))
    assert (ended.fixed, ended.tick, ended.failures, ended.interruptions) == (sha256(b"fixed"), 9, 1, 2)
    assert (ended.dispatched, ended.reason) == (True, "DISPATCHED")
    live.state = "RUNNING"
    assert ended.ended
    assert not live.ended


@pytest.mark.parametrize("live_max", [2, 5, 1000])
def test_the_job_table_answers_alike_however_little_it_holds(live_max: int) -> None:
    """X-168"""
    table, names = JobTable(MemoryHeads(), live_max), [f"job-{number}" for number in range(40)]
    random.Random(7).shuffle(names)
    for name in names:
        table.add(name, fold(name))
    for name in names[:20]:
        found = table.get(name)
        assert found is not None
        found.state = "SUCCEEDED"
        table.moved(name, found)
    assert table.get("nobody") is None
    assert table.count == 40
    order = sorted(names)
    assert [name for name, _ in table.sorted()] == order
    heads = [(name, 3, sha256(name.encode())) for name in order]
    assert table.log_hash() == transition_log_hash(40, heads)
    ended = table.get(names[0])
    assert ended is not None
    assert ended.state == "SUCCEEDED"


@pytest.mark.parametrize(("open_max", "ended_max"), [(1, 1), (2, 3), (100, 100)])
def test_the_run_table_answers_alike_however_little_it_holds(open_max: int, ended_max: int) -> None:
    """X-167, X-168"""
    heads = MemoryHeads()
    table = RunTable(heads, open_max, ended_max)
    for number in range(4):
        table.start(0, f"run-{number}", RunFold("acme", "demo", number))
    for job in range(5):
        for number in range(4):
            run = table.open(0, f"run-{number}")
            assert run is not None
            run.jobs += 1
            run.live_jobs += 1
            table.end_job(0, f"run-{number}", f"job-{number}-{job}", fold(f"{number}-{job}"))
    table.end_job(0, "no such run", "job", fold("x"))
    for number in range(3):
        run = table.open(0, f"run-{number}")
        assert run is not None
        jobs = [(f"job-{number}-{job}", 3, sha256(f"{number}-{job}".encode())) for job in range(5)]
        assert table.jobs_digest(0, f"run-{number}", run) == (5, transition_log_hash(5, jobs))
        assert (run.jobs, run.live_jobs) == (5, 0)
        table.end(0, f"run-{number}", run, "completed", 9, jobs_digest=bytes(32))
    ended = table.ended(0, "run-1")
    assert ended is not None
    assert ended[:5] == ["acme", "demo", "completed", 1, 9]
    assert table.ended(1, "run-1") is None, "a run belongs to its partition"
    assert table.open(0, "run-1") is None
    assert table.open(0, "run-3") is not None
    assert table.count == 4


def test_erased_digests_are_counted_once() -> None:
    table = ErasedTable(MemoryHeads())
    table.add(sha256(b"a"))
    table.add(sha256(b"a"))
    assert sha256(b"a") in table
    assert sha256(b"b") not in table
    assert table.count == 1


def test_a_report_is_the_same_with_a_map_that_spills() -> None:
    """X-168"""
    ledger = lively()
    items = ledger.items(rows=True)
    inside = verify_items(items, root=ledger.root, rows_expected=True)
    with SpilledHeads(hot_max=1) as heads:
        spilled: Heads = heads
        assert verify_items(items, root=ledger.root, rows_expected=True, heads=spilled) == inside
    assert inside.ok


def test_a_long_run_is_checked_with_little_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """X-167, X-168"""
    ledger = Builder()
    ledger.start_run("run-1")
    for number in range(30):
        ledger.submit(f"job-{number}", run_id="run-1")
    ledger.claim(30)
    for number in range(30):
        ledger.finish(f"job-{number}")
    ledger.end_run("run-1")
    ledger.commit()
    for table, limit in ((JobTable, 4), (RunTable, 2)):
        monkeypatch.setattr(table.__init__, "__defaults__", (limit,) * len(table.__init__.__defaults__ or ()))
    with SpilledHeads(hot_max=5) as heads:
        report = verify_items(ledger.items(), root=ledger.root, heads=heads)
    assert report.ok
    assert report == verify_items(ledger.items(), root=ledger.root)
