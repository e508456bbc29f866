"""Tampering with a ledger whose records are stored in less room: `detent verify` finds what a row unpacks to.

The home is the golden one: kept as the first version that packs wrote it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from detent.store.sqlite.packing import SHAPED, SHARED, ZIPPED
from tests.cli.conftest import Cli, cli
from tests.golden.archives import put_in_place
from tests.golden.packed import ARCHIVE, JOBS, STEPS

__all__ = ["cli"]

Database: TypeAlias = Any
HEAD = struct.Struct(">BIHB")


@pytest.fixture
def packed(cli: Cli) -> Cli:
    """The golden home, in place of the played one."""
    put_in_place(ARCHIVE, cli.played.home.path)
    return cli


def found(cli: Cli) -> list[dict[str, Any]]:
    result = cli("verify", "-o", "json")
    assert result.code == 1, result.out
    return list(result.document["findings"])


def rows(database: Database, column: str, mark: int, where: str = "1") -> list[tuple[int, str, bytes]]:
    """Position, job and packed bytes of records, in order."""
    sql = (
        f"SELECT record_key, job_id, {column} FROM records JOIN job_names USING (job_no) "
        f"WHERE hex(substr({column}, 1, 1)) = ? AND {where} ORDER BY record_key"
    )
    found: list[tuple[int, str, bytes]] = database.execute(sql, (f"{mark:02X}",)).fetchall()
    assert len(found) > 2
    return found


def test_the_golden_home_verifies_and_replays_and_its_jobs_are_explained(packed: Cli) -> None:
    """Old ledgers verify for ever; X-181"""
    document = packed.json("verify")
    assert (document["ok"], document["counts"]["submitted"]) == (True, STEPS + JOBS)
    assert packed.json("replay")["ok"]


def test_the_golden_home_goes_on(packed: Cli) -> None:
    Path("pipeline.yaml").write_text("name: demo\nsteps:\n  - {id: one, run: {shell: 'echo hello'}}\n")
    packed.json("run", "pipeline.yaml", "-w", "1")
    document = packed.json("verify")
    assert (document["ok"], document["counts"]["submitted"]) == (True, STEPS + JOBS + 1)


@pytest.mark.parametrize("column", ["body", "evidence"])
@pytest.mark.parametrize("at", [1, 12, 40, -1])
def test_a_flipped_byte_of_a_packed_record_is_found_in_that_record(packed: Cli, column: str, at: int) -> None:
    """PIPE-057: the shape's number, and bytes of the record's own"""
    place: list[tuple[int, str]] = []

    def flip(database: Database) -> None:
        key, job_id, data = rows(database, column, SHAPED, "kind = 'transition'")[5]
        changed = bytearray(data)
        changed[at] ^= 1
        database.execute(f"UPDATE records SET {column} = ? WHERE record_key = ?", (bytes(changed), key))
        place.append((key, job_id))

    packed.played.edit(flip)
    ((position, job_id),) = place
    findings = found(packed)
    assert position in {finding["position"] for finding in findings}
    assert {finding["job_id"] for finding in findings if finding["job_id"] is not None} == {job_id}


@pytest.mark.parametrize(
    "change", ["UPDATE shapes SET body = x'80' WHERE shape_no = 1", "DELETE FROM shapes", "DELETE FROM signatures"]
)
def test_a_shape_or_signature_that_is_gone_is_found_in_the_records_that_use_it(packed: Cli, change: str) -> None:
    packed.played.edit(lambda database: database.execute(change))
    findings = found(packed)
    assert len({finding["job_id"] for finding in findings}) > 2


def refer(database: Database, wanted: int, change: Callable[[list[bytes]], bytes]) -> str:
    """Change how one manifest refers to its shared signature; ``change`` is given the stored evidence of all of its tree."""
    all_rows = rows(database, "evidence", SHARED, "kind = 'submitted'")
    number = HEAD.unpack_from(all_rows[-1][2])[1]
    tree = [row for row in all_rows if HEAD.unpack_from(row[2])[1] == number]
    assert len(tree) == JOBS
    key, job_id, _ = tree[wanted]
    database.execute("UPDATE records SET evidence = ? WHERE record_key = ?", (change([row[2] for row in tree]), key))
    return job_id


def parts(data: bytes) -> tuple[int, int, tuple[int, ...], bytes]:
    """Signature, place, numbers of the hashes, and the rest of a message."""
    _, number, place, count = HEAD.unpack_from(data)
    end = HEAD.size + 2 * count
    return number, place, struct.unpack_from(f">{count}H", data, HEAD.size), data[end:]


def joined(number: int, place: int, hashes: tuple[int, ...], rest: bytes) -> bytes:
    return struct.pack(f">BIHB{len(hashes)}H", SHARED, number, place, len(hashes), *hashes) + rest


def another_leaf(tree: list[bytes]) -> bytes:
    number, _, hashes, rest = parts(tree[1])
    return joined(number, 2, hashes, rest)


def another_tree(tree: list[bytes]) -> bytes:
    _, place, hashes, rest = parts(tree[1])
    return joined(1, place, tuple(one % 10 for one in hashes), rest)


def truncated(tree: list[bytes]) -> bytes:
    number, place, hashes, rest = parts(tree[1])
    return joined(number, place, hashes[:-1], rest)


def reused(tree: list[bytes]) -> bytes:
    return joined(*parts(tree[0])[:3], parts(tree[1])[3])


def of_no_signature(tree: list[bytes]) -> bytes:
    _, place, hashes, rest = parts(tree[1])
    return joined(9_999, place, hashes, rest)


@pytest.mark.parametrize("change", [another_leaf, another_tree, truncated, reused, of_no_signature])
def test_a_manifest_that_refers_to_another_signature_or_path_is_found(
    packed: Cli, change: Callable[[list[bytes]], bytes], tmp_path: Path
) -> None:
    """X-046: in the home, and in the file that is made of it"""
    jobs: list[str] = []
    packed.played.edit(lambda database: jobs.append(refer(database, 1, change)))
    findings = found(packed)
    assert {finding["job_id"] for finding in findings} == set(jobs)
    packed.json("export", "--output", str(tmp_path / "new.detent"))
    result = packed("verify", str(tmp_path / "new.detent"), "--root", packed.played.root, "-o", "json")
    assert (result.code, {finding["job_id"] for finding in result.document["findings"]}) == (1, set(jobs))


def test_a_changed_signature_is_found_for_every_message_that_shares_it(packed: Cli) -> None:
    def change(database: Database) -> None:
        (body,) = database.execute("SELECT body FROM signatures WHERE signature_no = 1").fetchone()
        database.execute("UPDATE signatures SET body = ? WHERE signature_no = 1", (bytes([body[0] ^ 1]) + body[1:],))

    packed.played.edit(change)
    findings = found(packed)
    assert {finding["code"] for finding in findings} == {"MANIFEST_SIGNATURE_INVALID"}
    assert len(findings) == STEPS


@pytest.mark.parametrize("at", [0, 1, 40, -1])
def test_a_flipped_byte_of_packed_commands_is_found(packed: Cli, at: int) -> None:
    def flip(database: Database) -> None:
        sql = "SELECT batch_key, commands FROM batches WHERE hex(substr(commands, 1, 1)) = ?"
        key, commands = database.execute(sql, (f"{ZIPPED:02X}",)).fetchone()
        changed = bytearray(commands)
        changed[at] ^= 1
        database.execute("UPDATE batches SET commands = ? WHERE batch_key = ?", (bytes(changed), key))

    packed.played.edit(flip)
    assert "COMMANDS_DIGEST_WRONG" in {finding["code"] for finding in found(packed)}
