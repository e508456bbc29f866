"""Stored in less room, and handed out as the bytes that were appended, whatever they are."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import SigningKey, encode, sha256
from detent.ledger import sign_results
from detent.store.sqlite import SqliteStore, packing
from detent.store.sqlite.packing import PACKED, Shapes, SharedSignatures, unzip_commands, zip_commands
from tests.store.rows import ORIGIN, Writer, content, digest, job, submitted, transition

KEY = SigningKey(bytes(range(32)))
JOB = "dbadf495-ebad-4c54-aa20-1d870b9de521"


def record(job_id: str, number: int, **changes: object) -> bytes:
    """A record as jobs have them: some of it is the same in all of them, some is the record's own."""
    key = digest(f"key {job_id} {number}")
    fields = {
        "kind": "transition",
        "tick": 1_794_920_545_397 + number,
        "job_id": job_id,
        "tenant_id": "local",
        "idempotency_key": key,
        "batch_id": key,
        "evidence_ref": "sha256:" + digest(f"evidence {number}").hex(),
        "quota_policy_hash": digest("quota"),
        "signer_key_id": digest("signer"),
    }
    return encode({**fields, **changes})


def learnt(*records: bytes) -> Shapes:
    shapes = Shapes(lambda after: [])
    for data in records:
        shapes.pack(data, JOB)
    return shapes


def test_records_that_differ_in_digests_ticks_and_ids_are_stored_without_what_they_share() -> None:
    shapes = learnt(record(JOB, 0), record(JOB, 1))
    data = record(JOB, 2)
    packed = shapes.pack(data, JOB)
    assert len(packed) < 85, (
        "a tick, a tenant and two digests; the second one of the same bytes and the job's id cost nothing"
    )
    assert shapes.unpack(packed, JOB) == data
    assert len(shapes.fresh()) == 1


def test_a_shape_is_learnt_when_it_comes_again() -> None:
    shapes = Shapes(lambda after: [])
    first = record(JOB, 0)
    assert shapes.pack(first, JOB) == first
    assert shapes.fresh() == []
    shapes.pack(record(JOB, 1), JOB)
    assert len(shapes.fresh()) == 1
    assert shapes.fresh() == [], "each is stored once"


def test_ids_of_any_length_go_with_one_shape() -> None:
    shapes = learnt(record(JOB, 0), record(JOB, 1))
    for other in ("a", "job-7", "x" * 200):
        data = record(other, 3)
        assert shapes.unpack(shapes.pack(data, other), other) == data


def test_a_record_that_fits_a_shape_but_for_one_byte_is_stored_as_it_is() -> None:
    shapes = learnt(record(JOB, 0), record(JOB, 1))
    data = record(JOB, 2, signer_key_id=digest("another"))
    assert shapes.pack(data, JOB) == data
    upper = record(JOB, 2, evidence_ref="sha256:" + digest("evidence").hex().upper())
    assert shapes.pack(upper, JOB) == upper
    theirs = record("dbadf495-ebad-4c54-aa20-000000000000", 2)
    assert shapes.unpack(shapes.pack(theirs, JOB), JOB) == theirs


@given(st.lists(st.tuples(st.binary(max_size=400), st.sampled_from(["", "a", JOB]))))
def test_any_bytes_come_back(pieces: list[tuple[bytes, str]]) -> None:
    shapes = Shapes(lambda after: [])
    for data, job_id in [*pieces, *pieces, *pieces]:
        assert shapes.unpack(shapes.pack(data, job_id), job_id) == data


@given(st.binary(max_size=80), st.binary(min_size=1, max_size=1))
def test_packed_bytes_that_cannot_be_read_are_handed_out_as_they_are_or_filled_in(tail: bytes, mark: bytes) -> None:
    """Nothing is raised for a changed row: its record has other bytes, and `verify` finds that one."""
    shapes = learnt(record(JOB, 0), record(JOB, 1))
    for number in (0, 1, 7, 0x80, 0xFF):
        assert type(shapes.unpack(bytes((packing.SHAPED, number)) + tail, JOB)) is bytes
    shared = SharedSignatures(lambda number: bytes(100) if number == 1 else None, lambda: 1)
    assert type(shared.put_back(bytes((packing.SHARED,)) + tail, lambda rest: rest)) is bytes
    assert type(unzip_commands(mark + tail)) is bytes


@pytest.mark.parametrize(
    "pieces",
    [[], [b"a", 3], [b"a", b"b", b"c"], [b"a", -2, b"c"], [b"a", 4_000, b"b"], [1, 3, b"b"], {"a": 1}],
)
def test_a_shape_that_none_wrote_is_left_out(pieces: object) -> None:
    shapes = Shapes(lambda after: [(1, encode(pieces))])
    packed = bytes((packing.SHAPED, 1)) + bytes(40)
    assert shapes.unpack(packed, JOB) == packed


def test_a_writer_that_learns_nothing_stops_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MISSES_MAX", 3)
    shapes = Shapes(lambda after: [])
    for number in range(3):
        shapes.pack(record(JOB, number, reason=f"reason {number}"), JOB)
    shapes.pack(record(JOB, 8), JOB)
    shapes.pack(record(JOB, 9), JOB)
    assert shapes.fresh() == []


def test_there_are_only_so_many_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "SHAPES_MAX", 2)
    shapes = Shapes(lambda after: [])
    for number in range(20):
        data = record(JOB, number, reason=f"reason {number % 5}")
        assert shapes.unpack(shapes.pack(data, JOB), JOB) == data
    assert len(shapes.fresh()) == 2


@given(st.binary(max_size=2_000))
def test_any_commands_come_back(commands: bytes) -> None:
    assert unzip_commands(zip_commands(commands)) == commands
    assert unzip_commands(zip_commands(commands * 5)) == commands * 5


def test_commands_that_unpack_to_more_than_any_batch_has_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = zip_commands(bytes(100_000))
    assert len(packed) < 1_000
    monkeypatch.setattr(packing, "UNZIPPED_BYTES_MAX", 10_000)
    assert unzip_commands(packed) == packed


@pytest.mark.parametrize("count", [2, 3, 5, 20, 200])
def test_a_shared_signature_is_stored_once_and_every_message_comes_back(count: int) -> None:
    envelopes = [one.envelope() for one in sign_results([b"report %d" % number for number in range(count)], KEY)]
    stored: dict[int, bytes] = {}
    shared = SharedSignatures(stored.get, lambda: len(stored))
    taken = [shared.take_out(envelope) for envelope in envelopes]
    stored.update(shared.fresh())
    assert len(stored) == 1
    assert all(one is not None for one in taken)
    assert [shared.put_back(b"".join(one or ()), lambda rest: rest) for one in taken] == envelopes
    assert shared.fresh() == []


def test_a_plain_signature_stays_where_it_is() -> None:
    (alone,) = sign_results([b"report"], KEY)
    assert SharedSignatures(lambda number: None, lambda: 0).take_out(alone.envelope()) is None


# In a ledger


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore.create(tmp_path / "ledger.db", ORIGIN, 2)


def move(writer: Writer, job_id: str, seq: int) -> None:
    row = transition(job_id, seq)._replace(body=record(job_id, seq))
    writer.append([row], [job(job_id, seq=seq + 1, state="RUNNING")])


def bodies(path: Path) -> list[bytes]:
    connection = apsw.Connection(str(path))
    rows = connection.execute("SELECT body FROM records WHERE kind = 'transition' ORDER BY record_key").fetchall()
    connection.close()
    return [body for (body,) in rows if isinstance(body, bytes)]


def test_packed_records_are_read_by_the_writer_a_reader_and_the_next_owner(store: SqliteStore, tmp_path: Path) -> None:
    writer = Writer(store)
    writer.submit("a")
    reader = SqliteStore.open_reader(tmp_path / "ledger.db")
    for seq in range(5):
        move(writer, "a", seq)
    wanted = [record("a", seq) for seq in range(5)]
    assert [row.body for row in store.records(0, 1)] == wanted
    assert [row.body for row in reader.records(0, 1)] == wanted, "shapes that came after it was opened are read, too"
    reader.close()
    store.close()
    stored = bodies(tmp_path / "ledger.db")
    assert [body[:1] in PACKED for body in stored] == [False, False, True, True, True]
    again = SqliteStore.open(tmp_path / "ledger.db")
    move(Writer(again), "a", 5)
    assert [row.body for row in again.records(0, 1)] == [*wanted, record("a", 5)]
    assert bodies(tmp_path / "ledger.db")[-1][:1] in PACKED, "the next owner packs by the shapes that are there"
    again.close()


def test_a_shape_learnt_in_a_commit_that_failed_is_forgotten(store: SqliteStore) -> None:
    writer = Writer(store)
    writer.submit("a")
    move(writer, "a", 0)
    lost = transition("a", 1)._replace(body=record("a", 1))
    with pytest.raises(Exception, match="no longer where the writer saw"):
        writer.append([lost], [job("a", seq=9, expected=7, state="RUNNING")])
    for seq in range(1, 6):
        move(writer, "a", seq)
    assert [row.body for row in store.records(0, 1)] == [record("a", seq) for seq in range(6)]


def test_owners_of_two_partitions_give_their_shapes_different_numbers(store: SqliteStore, tmp_path: Path) -> None:
    other = SqliteStore.open(tmp_path / "ledger.db")
    one, two = Writer(store), Writer(other, 1)
    one.submit("a")
    two.submit("b")
    for seq in range(4):
        move(one, "a", seq)
        row = transition("b", seq)._replace(body=record("b", seq, reason="another shape"))
        two.append([row], [job("b", seq=seq + 1, state="RUNNING")])
    assert [row.body for row in store.records(0, 1)] == [record("a", seq) for seq in range(4)]
    assert [row.body for row in store.records(1, 1)] == [record("b", seq, reason="another shape") for seq in range(4)]
    other.close()


def test_content_that_looks_like_packed_bytes_is_kept_as_it_is(store: SqliteStore) -> None:
    """A user's bytes may be any; those of a report without its signature, too."""
    writer = Writer(store)
    envelopes = [one.envelope() for one in sign_results([b"one", b"two"], KEY)]
    pieces = [
        content(data)
        for data in (*envelopes, b"\xc1\x01more", b"\xc2\x00\x00\x00\x01\x00\x00\x01\x00\x00rest", b"\xc3")
    ]
    writer.append(content=pieces)
    assert [store.content(sha256(data)) for _, data in pieces] == [data for _, data in pieces]
    assert dict(store.contents([name for name, _ in pieces])) == dict(pieces)


def test_evidence_with_a_shared_signature_comes_back(store: SqliteStore) -> None:
    writer = Writer(store)
    names = ["a", "b", "c"]
    evidence = [one.envelope() for one in sign_results([record(name, 7) for name in names], KEY)]
    rows = [submitted(name)._replace(evidence=data) for name, data in zip(names, evidence, strict=True)]
    writer.append(rows, [job(name) for name in names])
    assert [row.evidence for row in store.records(0)] == evidence
    (found,) = store.records_of_job("b")
    assert found.evidence == evidence[1]


@pytest.mark.parametrize("kind", ["submitted", "run_started"])
def test_a_record_that_begins_like_a_packed_one_comes_back(store: SqliteStore, kind: str) -> None:
    rows = [
        submitted("a")._replace(kind=kind, body=bytes((mark, 0)) + b"body", evidence=bytes((mark,)) + b"evidence")
        for mark in (packing.SHAPED, packing.SHARED, packing.ZIPPED)
    ]
    commit = Writer(store).append(rows)
    assert list(store.records(0)) == list(commit.records)
