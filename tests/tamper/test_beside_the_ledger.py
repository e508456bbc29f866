"""Tampering beside the signed history that used to verify green: schema, epochs, tree heads, missing content, a bundle's header."""

from __future__ import annotations

import io
from pathlib import Path

import apsw
import pytest

from detent.inspect.audit import verify_home
from detent.inspect.export import export
from detent.ledger import HeaderItem, Report, verify_bundle, write_bundle
from detent.ledger.bundle import read_items
from detent.ledger.findings import Finding
from tests.homes import Played, fresh


def verified(played: Played) -> Report:
    return verify_home(played.home, environment=played.environment)


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}


def edited(tmp_path: Path, *statements: str) -> Report:
    """What `verify` says of a home whose database was edited."""
    played = fresh(tmp_path)
    assert verified(played).ok

    def change(database: apsw.Connection) -> None:
        for statement in statements:
            database.execute(statement)

    played.edit(change)
    return verified(played)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "CREATE TRIGGER planted AFTER INSERT ON content BEGIN DELETE FROM work; END",
            "the trigger 'planted' is not of its schema",
        ),
        ("CREATE VIEW planted AS SELECT 1", "the view 'planted' is not of its schema"),
        ("CREATE TABLE planted (a)", "the table 'planted' is not of its schema"),
        ("CREATE INDEX planted ON jobs (tick)", "the index 'planted' is not of its schema"),
        ("DROP INDEX jobs_by_run", "the index 'jobs_by_run' is missing"),
        ("ALTER TABLE refusals ADD COLUMN planted TEXT", "the table 'refusals' was changed"),
    ],
)
def test_a_planted_or_missing_part_of_the_schema_is_found(tmp_path: Path, statement: str, told: str) -> None:
    """X-196: a planted trigger acts with the rights of the next owner."""
    report = edited(tmp_path, statement)
    assert codes(report) == {"SCHEMA_CHANGED"}
    assert [finding.message for finding in report.findings] == [told]


def test_a_dropped_guard_of_the_history_is_found(tmp_path: Path) -> None:
    """X-196, PIPE-057"""
    played = fresh(tmp_path)
    connection = apsw.Connection(str(played.home.ledger))
    connection.execute("DROP TRIGGER records_are_never_deleted")
    connection.close()
    assert [finding.message for finding in verified(played).findings] == [
        "the trigger 'records_are_never_deleted' is missing"
    ]


@pytest.mark.parametrize("epoch", ["0", "epoch - 1", "epoch + 1000000", "1 << 62"])
def test_a_changed_epoch_is_found(tmp_path: Path, epoch: str) -> None:
    """X-196, X-172: under a lower one no owner can begin, under a higher one an owner seems to have existed that never did."""
    report = edited(tmp_path, f"UPDATE partitions SET epoch = {epoch}")
    assert codes(report) == {"STORED_COLUMN_DIFFERS"}
    assert "epoch" in report.findings[0].message


@pytest.mark.parametrize("change", ["size = size + 1000", "size = 1 << 62"])
def test_a_changed_column_of_a_tree_head_is_found(tmp_path: Path, change: str) -> None:
    """X-196: the note is signed, the columns by which it is found are not."""
    where = "WHERE size = (SELECT max(size) FROM tree_heads)"
    assert codes(edited(tmp_path, f"UPDATE tree_heads SET {change} {where}")) == {"STORED_COLUMN_DIFFERS"}


@pytest.mark.parametrize("change", ["DELETE FROM content", "UPDATE content SET bytes = NULL"])
def test_deleted_decisions_and_reports_are_found(tmp_path: Path, change: str) -> None:
    """X-196: content is gone by right only when the ledger says that it was erased."""
    report = edited(tmp_path, change)
    assert codes(report) == {"CONTENT_MISSING", "RESULT_MISSING"}


def test_a_changed_tick_in_a_bundles_header_is_said_not_to_be_proved(tmp_path: Path) -> None:
    """X-196: the header is not signed; everything else in it is compared with the batches."""
    played = fresh(tmp_path)
    path = tmp_path / "whole.detent"
    export(played.home, path, environment=played.environment)
    items = list(read_items(io.BytesIO(path.read_bytes())))
    header, *rest = [item for item in items if not isinstance(item, Finding)]
    assert isinstance(header, HeaderItem)
    changed = header._replace(exported_tick=header.exported_tick + 1)
    report = verify_bundle(io.BytesIO(b"".join(write_bundle([changed, *rest]))), played.root)
    assert report.ok
    assert any("When the file was exported" in sentence for sentence in report.not_proved)
    assert not any("When the file was exported" in sentence for sentence in verified(played).not_proved)
