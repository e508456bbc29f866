"""Verifying a home straight from its store: every stored byte that says something is held against the signed ones."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import apsw
import pytest

from detent.errors import InvalidInput
from detent.inspect import audit
from detent.inspect.audit import verify_home
from detent.inspect.replay import replay_home
from detent.kernel import Job
from detent.ledger.findings import Report
from detent.owner.home import Home
from detent.owner.session import Session
from detent.owner.state_directory import KeptHeads, state_directory
from detent.owner.wiring import Parts
from detent.testing import FakeClock
from tests.homes import EARLY_MS, Hand, Played, fresh


def verified(played: Played, **options: object) -> Report:
    return verify_home(played.home, environment=played.environment, **options)  # type: ignore[arg-type]


def test_an_untouched_home_verifies_and_says_whose_root_it_was(tmp_path: Path) -> None:
    """X-178"""
    report = verified(fresh(tmp_path))
    assert report.ok
    assert report.findings == ()
    assert any("8 stored rows say what the records say" in sentence for sentence in report.proved)
    assert any("9 contents are what their digests name" in sentence for sentence in report.proved)
    assert any("kept elsewhere" in sentence for sentence in report.proved)
    assert any("the root pinned here is its own" in sentence for sentence in report.not_proved)


def test_a_root_that_came_another_way_proves_more(tmp_path: Path) -> None:
    """X-178"""
    played = fresh(tmp_path)
    report = verified(played, root=played.home.settings().root)
    assert report.ok
    assert not any("its own" in sentence for sentence in report.not_proved)


def test_another_root_is_found(tmp_path: Path) -> None:
    report = verified(fresh(tmp_path), root=bytes(32))
    assert [finding.code for finding in report.findings] == ["TRUST_ROOT_MISMATCH"]
    with pytest.raises(InvalidInput):
        verified(fresh(tmp_path / "second"), root=b"short")


BYTES = "substr({0}, 1, length({0}) / 2) || (CASE substr({0}, length({0}) / 2 + 1, 1) WHEN x'00' THEN x'01' ELSE x'00' END) || substr({0}, length({0}) / 2 + 2)"


def flipped(column: str) -> str:
    """An SQL expression: the column's bytes with the one in the middle changed."""
    return f"CAST({BYTES.format(column)} AS BLOB)"


COLUMNS = [
    ("records", "body", flipped("body")),
    ("records", "evidence", flipped("evidence")),
    ("records", "kind", "'erased'"),
    ("records", "batch_no", "batch_no + 1"),
    ("records", "run_id", "'elsewhere'"),
    ("records", "transition_seq", "transition_seq + 7"),
    ("records", "job_no", "(SELECT job_no FROM job_names WHERE job_id = 'waiting')"),
    ("batches", "body", flipped("body")),
    ("batches", "signature", flipped("signature")),
    ("batches", "leaf_hash", flipped("leaf_hash")),
    ("batches", "nodes", flipped("nodes")),
    ("batches", "commands", flipped("commands")),
    ("batches", "epoch", "epoch + 1"),
    ("batches", "first_position", "first_position + 1"),
    ("batches", "record_count", "record_count + 1"),
    ("batches", "first_tick", "first_tick - 1"),
    ("batches", "last_tick", "last_tick + 1"),
    ("jobs", "partition", "1"),
    ("jobs", "state", "'FAILED'"),
    ("jobs", "tenant_id", "'somebody'"),
    ("jobs", "run_id", "'elsewhere'"),
    ("jobs", "transition_seq", "transition_seq + 1"),
    ("jobs", "attempt_id", "attempt_id + 1"),
    ("jobs", "head", flipped("head")),
    ("jobs", "body", "(SELECT body FROM jobs WHERE job_no = 2)"),
    ("runs", "status", "'completed'"),
    ("runs", "name", "'another'"),
    ("runs", "tenant_id", "'somebody'"),
    ("runs", "started_tick", "started_tick - 1"),
    ("runs", "ended_tick", "ended_tick + 1"),
    ("job_names", "job_id", "job_id || '-2'"),
    ("content", "bytes", flipped("bytes")),
    ("ledger", "origin", "'detent/elsewhere'"),
    ("tree_heads", "note", "replace(note, char(10), '')"),
]
WHERE = {
    "records": "kind = 'transition' AND transition_seq = 1 AND job_no = (SELECT job_no FROM job_names WHERE job_id = 'done')",
    "batches": "batch_key = 11",
    "jobs": "job_no = (SELECT job_no FROM job_names WHERE job_id = 'done')",
    "runs": "run_id = 'run-1'",
    "job_names": "job_id = 'done'",
    "content": "content_no = 1",
}


@pytest.mark.parametrize(
    ("table", "column", "value"), COLUMNS, ids=[f"{table}.{column}" for table, column, _ in COLUMNS]
)
def test_any_column_that_is_changed_is_found(tmp_path: Path, table: str, column: str, value: str) -> None:
    """PIPE-057, PIPE-083"""
    played = fresh(tmp_path)

    def change(database: apsw.Connection) -> None:
        where = WHERE.get(table, "1")
        before = database.execute(f"SELECT {column} FROM {table} WHERE {where}").fetchall()
        assert before
        database.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}")
        assert database.execute(f"SELECT {column} FROM {table} WHERE {where}").fetchall() != before

    played.edit(change)
    report = verified(played)
    assert not report.ok
    if table == "records":
        assert any(finding.position is not None for finding in report.findings), report.findings
    if table in {"jobs", "job_names"}:
        assert any(finding.job_id is not None for finding in report.findings), report.findings


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM records WHERE record_key = 9",
        "DELETE FROM records WHERE record_key = 0",
        "DELETE FROM records WHERE record_key = (SELECT max(record_key) FROM records)",
        "DELETE FROM batches WHERE batch_key = 9",
        "DELETE FROM batches WHERE batch_key = 0",
        "DELETE FROM batches WHERE batch_key = (SELECT max(batch_key) FROM batches)",
        "DELETE FROM jobs WHERE job_no = 1",
        "DELETE FROM runs WHERE run_id = 'run-1'",
        "UPDATE records SET record_key = record_key + 100 WHERE record_key = 9",
        "UPDATE records SET record_key = record_key + (1 << 40) WHERE record_key = 9",
        "UPDATE batches SET batch_key = batch_key + 100 WHERE batch_key = 9",
        "INSERT INTO records (record_key, batch_no, kind, body) VALUES (1000, 99, 'run_ended', x'a0')",
        "INSERT INTO runs (partition, run_id, tenant_id, name, status, started_tick, body) VALUES (0, 'r', 't', 'n', 'running', 1, x'80')",
    ],
)
def test_a_row_that_is_taken_away_moved_or_added_is_found(tmp_path: Path, statement: str) -> None:
    """PIPE-057"""
    played = fresh(tmp_path)

    def change(database: apsw.Connection) -> None:
        before = database.total_changes()
        database.execute(statement)
        assert database.total_changes() == before + 1

    played.edit(change)
    assert not verified(played).ok


def test_rows_that_are_all_gone_are_missed(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    played.edit(lambda database: database.execute("DELETE FROM jobs; DELETE FROM runs"))
    assert verified(played).codes == {"FOLD_ROW_MISSING": 7}


def test_two_records_that_changed_places_are_found(tmp_path: Path) -> None:
    played = fresh(tmp_path)

    def swap(database: apsw.Connection) -> None:
        for source, target in ((9, 1000), (10, 9), (1000, 10)):
            database.execute("UPDATE records SET record_key = ? WHERE record_key = ?", (target, source))

    played.edit(swap)
    positions = {finding.position for finding in verified(played).findings}
    assert {9, 10} <= positions


def test_a_ledger_cut_short_is_found_by_the_kept_tree_head(tmp_path: Path) -> None:
    """X-178"""
    played = fresh(tmp_path)

    def cut(database: apsw.Connection) -> None:
        database.execute("DELETE FROM records WHERE batch_no >= 20")
        database.execute("DELETE FROM batches WHERE batch_key >= 20")
        database.execute("DELETE FROM tree_heads")
        database.execute("DELETE FROM runs WHERE run_id = 'run-2'")

    played.edit(cut)
    assert "LEDGER_ROLLED_BACK" in verified(played).codes
    KeptHeads(state_directory(played.environment), played.home.settings().origin).forget()
    assert "LEDGER_ROLLED_BACK" not in verified(played).codes


def test_a_kept_tree_head_of_another_history_is_found(tmp_path: Path) -> None:
    """The same origin, other batches: what a restored copy that went on by itself looks like."""
    played = fresh(tmp_path / "a")
    fork = fresh(tmp_path / "b")
    for side, job in ((played, "left"), (fork, "right")):
        with Session(side.home, Parts(clock=FakeClock(EARLY_MS + 3_600_000)), environment=side.environment) as session:
            Hand(side.home, session).submit(job)
    assert "LEDGER_FORKED" in verified(replace(played, state=fork.state)).codes


def test_content_in_a_file_that_is_changed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = fresh(tmp_path)
    with played.session() as session:
        digest = Hand(played.home, session).submit("huge", "x" * 200_000)
    path = played.home.content_files().path(digest)
    path.write_bytes(b"!" + path.read_bytes()[1:])
    assert list(verified(played).codes) == ["CONTENT_DIGEST_WRONG"]
    monkeypatch.setattr(audit, "CONTENT_LOADED_MAX", 100_000)
    assert list(verified(played).codes) == ["CONTENT_DIGEST_WRONG"]


def test_erased_content_that_is_there_again_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-171"""
    from detent.runs.erase import erase_job

    played = fresh(tmp_path)
    with Parts().open_reader(played.home.ledger) as reader:
        kept = {digest: reader.content(digest) for digest, _ in reader.content_digests()}
    files = {path: path.read_bytes() for path in (played.home.path / "content").rglob("*") if path.is_file()}
    for job_id in ("done", "large"):
        erase_job(played.home, job_id, environment=played.environment)
    assert verified(played).ok

    def undo(database: apsw.Connection) -> None:
        for digest, data in kept.items():
            database.execute("UPDATE content SET bytes = ? WHERE digest = ? AND bytes IS NULL", (data, digest))

    played.edit(undo)
    for path, data in files.items():
        path.write_bytes(data)
    # Payload and result of each of the two jobs.
    assert verified(played).codes == {"CONTENT_NOT_ERASED": 4}
    monkeypatch.setattr(audit, "CONTENT_LOADED_MAX", 1_000)
    played.edit(lambda database: database.execute("UPDATE content SET bytes = NULL WHERE length(bytes) IS NOT NULL"))
    # The report of the third job that succeeded and the payloads of the others are gone from the database.
    assert verified(played).codes == {"CONTENT_NOT_ERASED": 2, "RESULT_MISSING": 1, "CONTENT_MISSING": 4}


def checkpointed(tmp_path: Path) -> Played:
    played = fresh(tmp_path)
    parts = Parts(clock=FakeClock(EARLY_MS + 3_600_000), checkpoint_records=1)
    with Session(played.home, parts, environment=played.environment):
        pass
    assert verified(played).ok
    return played


def test_a_checkpoint_that_is_not_what_its_digest_names_is_found(tmp_path: Path) -> None:
    """X-168"""
    played = checkpointed(tmp_path)
    played.edit(lambda database: database.execute(f"UPDATE checkpoints SET body = {flipped('body')}"))
    assert set(verified(played).codes) == {"CHECKPOINT_WRONG"}


def test_a_database_page_that_is_damaged_is_a_finding_and_not_an_error(tmp_path: Path) -> None:
    """Damage to the file must not pass as a message about the disk."""
    played = fresh(tmp_path)
    played.edit(lambda database: database.pragma("wal_checkpoint", "TRUNCATE"))
    data = bytearray(played.home.ledger_file.read_bytes())
    for page in range(4096, len(data), 4096):
        data[page : page + 8] = b"\xff" * 8
    played.home.ledger_file.write_bytes(data)
    report = verified(played)
    assert "STORE_DAMAGED" in report.codes
    assert report.proved == ()


def test_an_index_that_contradicts_its_table_is_found(tmp_path: Path) -> None:
    played = fresh(tmp_path)

    played.damage_index()
    assert "STORE_DAMAGED" in verified(played).codes


def store_column(played: Played, column: str, position: int, data: bytes) -> None:
    write = f"UPDATE records SET {column} = ? WHERE record_key = ?"
    played.edit(lambda database: database.execute(write, (data, position)))


def test_a_flipped_byte_in_any_record_is_found(tmp_path: Path) -> None:
    """PIPE-083, X-166"""
    played = fresh(tmp_path)
    with Parts().open_reader(played.home.ledger) as reader:
        rows = list(reader.records(0))
    missed = []
    for index, row in enumerate(rows):
        for column, data in (("body", row.body), ("evidence", row.evidence)):
            if data is None:
                continue
            place = (index * 37) % len(data)
            changed = data[:place] + bytes([data[place] ^ (1 << index % 8)]) + data[place + 1 :]
            assert changed != data
            store_column(played, column, row.position, changed)
            report = verified(played)
            if report.ok or not any(finding.batch_no == row.batch_no for finding in report.findings):
                missed.append((row.position, column, place))
            store_column(played, column, row.position, data)
    assert missed == []
    assert verified(played).ok


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE jobs SET tick = tick + 1 WHERE job_no = 1", "tick"),
        ("UPDATE runs SET body = CAST(substr(body, 1, length(body) - 1) || x'05' AS BLOB) WHERE run_no = 1", "run-1"),
    ],
)
def test_a_changed_detail_of_a_stored_row_is_found_without_a_replay(tmp_path: Path, statement: str, named: str) -> None:
    """Tampering: change an unsigned column of the DB row"""
    played = fresh(tmp_path)
    played.edit(lambda database: database.execute(statement))
    assert [(finding.code, named in finding.message) for finding in verified(played).findings] == [
        ("FOLD_DIFFERS", True)
    ]


@pytest.mark.parametrize(
    "change", [{"priority": 9}, {"job_kind": "action"}, {"ever_dispatched": False}, {"exit_seq": 0}]
)
def test_a_changed_part_of_a_stored_job_is_found_without_a_replay(tmp_path: Path, change: dict[str, object]) -> None:
    """Tampering: change an unsigned column of the DB row"""
    played = fresh(tmp_path)
    with Parts().open_reader(played.home.ledger) as reader:
        row = reader.job("slow")
    assert row is not None
    body = replace(Job.decode(row.body), **change).encode()  # type: ignore[arg-type]
    where = "job_no = (SELECT job_no FROM job_names WHERE job_id = 'slow')"
    played.edit(lambda database: database.execute(f"UPDATE jobs SET body = ? WHERE {where}", (body,)))
    assert [(finding.code, finding.job_id) for finding in verified(played).findings] == [("FOLD_DIFFERS", "slow")]


TABLES = ("ledger", "partitions", "batches", "job_names", "records", "jobs", "runs", "content", "tree_heads")


def stored(path: Path) -> object:
    """Every row of the database, or why it cannot be read."""
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as database:
            return [database.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES]
    except (apsw.Error, UnicodeDecodeError) as exc:
        return str(exc)


@pytest.mark.parametrize("flips", [60, pytest.param(3_000, marks=pytest.mark.slow)])
def test_whatever_a_flipped_bit_of_the_file_does_is_found_and_never_raises(tmp_path: Path, flips: int) -> None:
    """Bits of the file itself, wherever they lie: a row, an index, a page's own bookkeeping, or free space.

    Bytes can become a number, a text can lose its encoding, a page its order. Verification answers, and with a replay
    nothing that changed a row goes unnoticed.
    """
    played = fresh(tmp_path)
    played.edit(lambda database: database.pragma("wal_checkpoint", "TRUNCATE"))
    data, before = played.home.ledger_file.read_bytes(), stored(played.home.ledger_file)
    draw = Random(4711)
    missed, found = [], 0
    for _ in range(flips):
        place, bit = draw.randrange(len(data)), 1 << draw.randrange(8)
        played.home.ledger_file.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
        if not verified(played).ok or not replay_home(played.home).ok:
            found += 1
        elif stored(played.home.ledger_file) != before:
            missed.append((place, bit))
    assert missed == []
    assert found > flips // 10


@pytest.mark.parametrize(
    ("table", "column"),
    [("records", "body"), ("batches", "commands"), ("jobs", "body"), ("runs", "body"), ("content", "bytes")],
)
@pytest.mark.parametrize("value", ["7", "'text'", "NULL"])
def test_a_value_of_another_kind_is_a_finding(tmp_path: Path, table: str, column: str, value: str) -> None:
    """The tables are strict when they are written, and hand out whatever a damaged page makes of them."""
    played = fresh(tmp_path)

    def loosen(database: apsw.Connection) -> None:
        database.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        database.pragma("writable_schema", 1)
        database.execute(
            "UPDATE sqlite_schema SET sql = replace(replace(sql, 'STRICT', ''), 'BLOB NOT NULL', 'BLOB') WHERE name = ?",
            (table,),
        )
        database.pragma("writable_schema", "RESET")

    played.edit(loosen)
    played.edit(lambda database: database.execute(f"UPDATE {table} SET {column} = {value}"))
    found = verified(played).codes
    if (table, value) == ("content", "NULL"):
        return  # Erased, as far as the database knows; the ledger does not say so, and content may be elsewhere.
    assert {"STORE_DAMAGED", "CONTENT_DIGEST_WRONG"} & found.keys()


def test_verifying_beside_a_working_owner_sees_whole_commits(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    with played.session() as session:
        hand = Hand(played.home, session)
        for number in range(3):
            hand.submit(f"more-{number}")
            assert verified(played).ok


def test_a_copy_of_a_home_verifies_where_it_lies(tmp_path: Path) -> None:
    played = fresh(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    moved = Played(Home(tmp_path / "b" / ".detent"), tmp_path / "b" / "state")
    assert verified(moved).transition_log_hash == verified(played).transition_log_hash
