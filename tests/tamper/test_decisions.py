"""Tampering with the decisions that a commit keeps together: the digests in its signed records tell.

Each test takes a home in which jobs were admitted, placed and evicted, and shows at the door what `detent verify` says.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from detent.canon import decode, encode, sha256
from detent.owner.decision_records import PACKED_BYTES_MIN
from detent.owner.wiring import Parts
from tests.cli.conftest import Cli, cli

__all__ = ["cli"]

Database: TypeAlias = Any


def pieces(database: Database) -> list[tuple[int, bytes]]:
    """Key and body of what each batch decided, the largest last."""
    rows: list[tuple[int, bytes]] = database.execute(
        "SELECT batch_key, body FROM decisions ORDER BY length(body), batch_key"
    ).fetchall()
    assert len(rows) > 2
    return rows


def write(database: Database, key: int, decisions: list[bytes]) -> None:
    plain = encode(decisions)
    body = plain if len(plain) < PACKED_BYTES_MIN else zlib.compress(plain)
    database.execute("UPDATE decisions SET body = ? WHERE batch_key = ?", (body, key))


def read(body: bytes) -> list[bytes]:
    decisions: Any = decode(zlib.decompress(body) if body[0] == 0x78 else body)
    return list(decisions)


def changed(database: Database) -> None:
    """One byte of one decision."""
    key, body = pieces(database)[-1]
    first, *others = read(body)
    write(database, key, [first[:-1] + bytes([first[-1] ^ 1]), *others])


def swapped(database: Database) -> None:
    """The pieces of two batches, exchanged."""
    (one, ours), *_, (other, theirs) = pieces(database)
    database.execute("UPDATE decisions SET body = ? WHERE batch_key = ?", (theirs, one))
    database.execute("UPDATE decisions SET body = ? WHERE batch_key = ?", (ours, other))


def truncated(database: Database) -> None:
    """A piece without its last decision."""
    key, body = pieces(database)[-1]
    write(database, key, read(body)[:-1])


def cut(database: Database) -> None:
    """A piece without its last byte."""
    key, body = pieces(database)[-1]
    database.execute("UPDATE decisions SET body = ? WHERE batch_key = ?", (body[:-1], key))


def missing(database: Database) -> None:
    """No piece."""
    database.execute("DELETE FROM decisions WHERE batch_key = ?", (pieces(database)[-1][0],))


def added(database: Database) -> None:
    """A decision more than the records name."""
    key, body = pieces(database)[0]
    write(database, key, [*read(body), b"more"])


def of_no_batch(database: Database) -> None:
    """The piece of a batch that there is not."""
    _, body = pieces(database)[0]
    database.execute("INSERT INTO decisions (batch_key, body) VALUES (?, ?)", (1 << 30, body))


def found(cli: Cli) -> list[dict[str, Any]]:
    """What `detent verify` says of a home that does not verify."""
    result = cli("verify", "-o", "json")
    assert result.code == 1, result.err
    return list(result.document["findings"])


TAMPERED = [
    (changed, {"CONTENT_MISSING", "DECISIONS_WRONG"}),
    (swapped, {"CONTENT_MISSING", "DECISIONS_WRONG"}),
    (truncated, {"CONTENT_MISSING"}),
    (cut, {"CONTENT_MISSING", "DECISIONS_WRONG"}),
    (missing, {"CONTENT_MISSING"}),
    (added, {"DECISIONS_WRONG"}),
    (of_no_batch, {"DECISIONS_WRONG"}),
]


@pytest.mark.parametrize(("tamper", "codes"), TAMPERED, ids=lambda one: getattr(one, "__name__", ""))
def test_tampering_with_the_decisions_of_a_batch_is_found(
    cli: Cli, tamper: Callable[[Database], None], codes: set[str]
) -> None:
    """X-181, X-196"""
    assert cli.json("verify")["ok"]
    cli.played.edit(tamper)
    findings = found(cli)
    assert {finding["code"] for finding in findings} == codes
    assert all(finding["batch_no"] is not None for finding in findings), "each finding names the batch"
    named = [finding for finding in findings if finding["code"] == "CONTENT_MISSING"]
    assert all(finding["position"] is not None and finding["job_id"] for finding in named), "and the record"


def test_a_piece_that_unpacks_to_more_than_any_commit_decides_is_not_unpacked(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.owner.decision_records.UNPACKED_BYTES_MAX", 10_000)
    cli.played.edit(lambda database: write(database, pieces(database)[0][0], [bytes(20_000)]))
    assert "DECISIONS_WRONG" in {finding["code"] for finding in found(cli)}


def test_a_whole_bundle_with_content_holds_every_decision_under_its_digest(cli: Cli, tmp_path: Path) -> None:
    """X-181: a stranger who gets the content gets the decisions"""
    target = tmp_path / "whole.detent"
    cli.json("export", "--output", str(target), "--content")
    data = target.read_bytes()
    with Parts().open_reader(cli.played.home.ledger) as reader:
        decisions = [one for row in reader.decisions(0) for one in read(row.body)]
    assert decisions
    assert all(one in data and sha256(one) in data for one in decisions)
    assert cli.json("verify", str(target), "--root", cli.played.root)["ok"]
