"""Tampering beside the signed history: columns and rows of the database, stored tree nodes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from detent.canon import decode, encode
from detent.kernel import Heartbeat, ReportUsage
from detent.ledger import (
    BatchItem,
    Item,
    JobItem,
    Report,
    RunItem,
    batch_item,
    job_item,
    parse_batch,
    run_item,
    verify_items,
)
from detent.ledger.batch import BatchHeader
from tests.ledger.build import Builder, codes, lively
from tests.tamper.forge import Remembering, found

REMEMBERING = Remembering()


def stored() -> tuple[Builder, list[Item]]:
    """A ledger as a store gives it: with columns, leaf hashes, inner nodes and rows."""
    ledger = lively()
    items: list[Item] = [ledger.header(), *ledger.heads]
    for number, item in enumerate(ledger.sealed()[0].items):
        header = parse_batch(item.body)
        assert isinstance(header, BatchHeader)
        row: Any = SimpleNamespace(**(header._asdict() | item._asdict()))
        records: list[Any] = []
        for index, (body, evidence) in enumerate(item.records):
            fields = decode(body)
            kind = fields["kind"]
            job_id = fields["job_id"] if kind in {"transition", "submitted"} else None
            run_id = ledger.rows[job_id].run_id if job_id is not None else fields.get("run_id")
            columns = {
                "position": header.first_position + index,
                "batch_no": number,
                "kind": kind,
                "job_id": job_id,
                "run_id": run_id,
            }
            seq = fields.get("transition_seq")
            records.append(SimpleNamespace(**columns, transition_seq=seq, body=body, evidence=evidence))
        items.append(batch_item(row, records))
    items += ledger.contents
    for entry in ledger.row_items():
        row = SimpleNamespace(**entry._asdict())
        items.append(job_item(row) if isinstance(entry, JobItem) else run_item(row))
    return ledger, items


def verified(items: list[Item], ledger: Builder) -> Report:
    return verify_items(items, root=ledger.root, pinned_home=True, rows_expected=True, verify_many=REMEMBERING)


def changed(kind: type, place: int, change: Any) -> Report:
    ledger, items = stored()
    matching = [item for item in items if isinstance(item, kind)]
    at = items.index(matching[place])
    new = change(items[at])
    assert new != items[at]
    items[at] = new
    return verified(items, ledger)


def test_an_untouched_store_is_green() -> None:
    ledger, items = stored()
    report = verified(items, ledger)
    assert report.findings == ()
    assert report.counts["rows"] == 9


@pytest.mark.parametrize(
    "change",
    [
        {"tenant_id": "rival"},
        {"run_id": "run-9"},
        {"state": "SUCCEEDED"},
        {"transition_seq": 9},
        {"attempt_id": 9},
        {"head": bytes(32)},
        {"body": b"\x80"},
        {"body": b"\xff"},
    ],
)
def test_a_changed_column_of_a_job_row_is_found(change: dict[str, Any]) -> None:
    """Tampering: change an unsigned column of the DB row (state, seq, tenant): head is not the fold of the log"""
    finding = found(changed(JobItem, 0, lambda item: item._replace(**change)), "FOLD_DIFFERS")
    assert finding.job_id == "flaky"
    assert all(name in finding.message for name in change)


NOT_IN_RECORDS = {"reports", "last_report", "usage"}
"""Parts of a stored job that no record determines: `detent replay` compares them."""
OTHER_VALUES: dict[type, list[Any]] = {
    str: ["QUEUED", "other"],
    bytes: [bytes(32)],
    int: [0, 7],
    bool: [False, True],
    list: [["ValueError"]],
    type(None): [bytes(32), 7, "other"],
}


@pytest.mark.parametrize("job_id", sorted(lively().rows))
def test_every_part_of_a_job_row_that_the_records_determine_is_compared(job_id: str) -> None:
    """The kernel is handed this row when a command names an ended job: it must be the job."""
    ledger, items = stored()
    at = next(place for place, item in enumerate(items) if isinstance(item, JobItem) and item.job_id == job_id)
    job = ledger.rows[job_id]
    free = NOT_IN_RECORDS if job.terminal else {*NOT_IN_RECORDS, "conflicts"}
    for place, (name, value) in enumerate(zip(job.__slots__, job.to_list(), strict=True)):
        for other in [other for other in OTHER_VALUES[type(value)] if other != value and name not in free][:1]:
            values = [*job.to_list()[:place], other, *job.to_list()[place + 1 :]]
            row = items[at]._replace(body=encode(values))  # type: ignore[call-arg]
            report = verified([*items[:at], row, *items[at + 1 :]], ledger)
            assert found(report, "FOLD_DIFFERS").job_id == job_id, (name, other)


def running() -> tuple[Builder, list[Item], JobItem]:
    """A job that runs, whose lease a heartbeat has moved and which has reported usage."""
    ledger = Builder()
    ledger.submit("runs")
    ledger.claim(1)
    ledger.commit()
    ledger.tick = 50
    ledger.apply(Heartbeat(50, "runs", ledger.grants["runs"].lease_id))
    ledger.apply(ReportUsage(50, "runs", ledger.grants["runs"].lease_id, 0, cpu_time_ms=3))
    ledger.commit()
    items = ledger.items(rows=True)
    (row,) = (item for item in items if isinstance(item, JobItem))
    return ledger, items, row


def test_a_lease_that_a_heartbeat_moved_is_no_difference_and_one_that_ends_too_early_is() -> None:
    ledger, items, row = running()
    assert verified(items, ledger).findings == ()
    job = ledger.rows["runs"]
    assert row.tick == 50
    for change in ({"lease_expiry": 29_999}, {"heartbeat_tick": -1}, {"lease_expiry": None}):
        body = replace(job, **change).encode()
        report = verified([row._replace(body=body) if item is row else item for item in items], ledger)
        assert "".join(change) in found(report, "FOLD_DIFFERS").message


@pytest.mark.parametrize("tick", [0, 1, 2**63])
def test_a_changed_tick_of_a_job_row_is_found(tick: int) -> None:
    """Tampering: change an unsigned column of the DB row"""
    ledger, items = stored()
    for place, item in enumerate(items):
        if isinstance(item, JobItem) and item.tick != tick:
            report = verified([*items[:place], item._replace(tick=tick), *items[place + 1 :]], ledger)
            assert "tick" in found(report, "FOLD_DIFFERS").message, item.job_id


def test_a_row_written_with_a_report_of_usage_is_not_older_than_the_jobs_last_record() -> None:
    ledger, items, row = running()
    early = [row._replace(tick=0) if item is row else item for item in items]
    assert verified(early, ledger).findings == (), "its last record is of tick 0, and the report may be as old"
    ledger.tick = 60
    ledger.finish("runs")
    ledger.commit()
    items = [item._replace(tick=59) if isinstance(item, JobItem) else item for item in ledger.items(rows=True)]
    assert codes(verified(items, ledger)) == {"FOLD_DIFFERS"}


def test_a_missing_an_added_and_a_repeated_job_row_are_found() -> None:
    ledger, items = stored()
    rows = [item for item in items if isinstance(item, JobItem)]
    for place in range(len(rows)):
        report = verified([item for item in items if item is not rows[place]], ledger)
        assert codes(report) == {"FOLD_ROW_MISSING"}
        assert report.findings[0].job_id == rows[place].job_id
    extra = rows[0]._replace(job_id="zzz")
    at = items.index(rows[-1]) + 1
    report = verified([*items[:at], extra, *items[at:]], ledger)
    assert found(report, "FOLD_ROW_UNKNOWN").job_id == "zzz"
    report = verified([*items[:at], rows[-1], *items[at:]], ledger)
    assert codes(report) == {"ITEM_OUT_OF_ORDER"}
    report = verified([item for item in items if not isinstance(item, JobItem)], ledger)
    assert codes(report) == {"FOLD_ROW_MISSING"}
    assert report.findings_total == 8


@pytest.mark.parametrize(
    "change",
    [
        {"status": "failed"},
        {"tenant_id": "rival"},
        {"name": "x"},
        {"ended_tick": 1},
        {"started_tick": 1},
        {"body": b""},
        {"body": lively().runs[0, "run-1"].encode()[:-1] + b"\x07"},
    ],
)
def test_a_changed_run_row_is_found(change: dict[str, Any]) -> None:
    """Tampering: change an unsigned column of the DB row"""
    assert "run-1" in found(changed(RunItem, 0, lambda item: item._replace(**change)), "FOLD_DIFFERS").message


def test_a_missing_and_an_added_run_row_are_found() -> None:
    ledger, items = stored()
    [run] = [item for item in items if isinstance(item, RunItem)]
    assert codes(verified([item for item in items if item is not run], ledger)) == {"FOLD_ROW_MISSING"}
    report = verified([*items, run._replace(run_id="other")], ledger)
    assert codes(report) == {"FOLD_ROW_UNKNOWN", "FOLD_ROW_MISSING"}


def test_an_open_run_is_running_in_its_row() -> None:
    ledger = Builder()
    ledger.start_run("open")
    ledger.commit()
    items = ledger.items(rows=True)
    assert verify_items(items, root=ledger.root, rows_expected=True).ok
    run = items[-1]
    assert isinstance(run, RunItem)
    report = verify_items([*items[:-1], run._replace(status="completed")], root=ledger.root, rows_expected=True)
    assert codes(report) == {"FOLD_DIFFERS"}


@pytest.mark.parametrize("name", ["batch_no", "epoch", "first_position", "record_count", "first_tick", "last_tick"])
def test_a_changed_column_of_a_batch_row_is_found(name: str) -> None:
    """Tampering: change an unsigned column of the DB row"""
    report = changed(BatchItem, 3, lambda item: item._replace(columns=item.columns._replace(**{name: 99})))
    finding = found(report, "STORED_COLUMN_DIFFERS")
    assert finding.batch_no == 3
    assert name in finding.message


@pytest.mark.parametrize("name", ["position", "batch_no", "kind", "job_id", "run_id", "transition_seq"])
def test_a_changed_column_of_a_record_row_is_found(name: str) -> None:
    """Tampering: change an unsigned column of the DB row"""

    def change(item: BatchItem) -> BatchItem:
        assert item.record_columns is not None
        columns = list(item.record_columns)
        value: Any = 99 if isinstance(getattr(columns[0], name), int) else "other"
        columns[0] = columns[0]._replace(**{name: value})
        return item._replace(record_columns=columns)

    for place in (1, 4):
        report = changed(BatchItem, place, change)
        assert found(report, "STORED_COLUMN_DIFFERS").batch_no == place


def test_a_row_too_few_beside_its_records_is_found() -> None:
    report = changed(BatchItem, 1, lambda item: item._replace(record_columns=item.record_columns[1:]))
    assert found(report, "STORED_COLUMN_DIFFERS").batch_no == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda item: item._replace(leaf_hash=bytes(32)),
        lambda item: item._replace(nodes=item.nodes[:-32]),
        lambda item: item._replace(nodes=item.nodes[:-1] + b"\x00"),
    ],
)
def test_changed_tree_nodes_are_found(change: Any) -> None:
    assert found(changed(BatchItem, 7, change), "STORED_TREE_DIFFERS").batch_no == 7
