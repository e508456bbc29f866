"""Erasure: recorded before it is believed, complete, and never of what is still needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import detent
from detent.canon import decode, json_encode, sha256
from detent.errors import DetentError, InvalidInput, Refused
from detent.inspect.audit import verify_home
from detent.inspect.export import export
from detent.kernel import Cancel, Erase, Outcome, records
from detent.owner.content import Content, seal_value
from detent.owner.log_writer import Turn
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.runs.erasable import digests_of_job
from detent.runs.erase import erase, erase_job
from detent.store.api import JobRow
from detent.store.sqlite import SqliteReader
from detent.testing import FakeClock
from detent.workers.claim_ahead import given_up
from tests.homes import EARLY_MS, LARGE, TENANT, Hand, Played, fresh

LATE_MS = EARLY_MS + 10_000_000


def content(played: Played, digest: bytes) -> bytes | None:
    with Parts().open_reader(played.home.ledger) as reader:
        return Content(reader, played.home.content_files()).get(digest)


def named(played: Played, job_id: str) -> list[bytes]:
    with Parts().open_reader(played.home.ledger) as reader:
        return list(digests_of_job(reader, job_id))


def test_a_jobs_payload_and_result_are_erased_and_the_history_says_so(tmp_path: Path) -> None:
    """X-171, X-167"""
    played = fresh(tmp_path)
    digests = named(played, "done")
    assert len(digests) == 2
    done = erase_job(played.home, "done", environment=played.environment)
    assert list(done.erased) == digests
    assert [content(played, digest) for digest in digests] == [None, None]
    with Parts().open_reader(played.home.ledger) as reader:
        (record,) = reader.records_of_kind(0, "erased")
        assert decode(record.body)["digests"] == sorted(digests)
        assert all(reader.is_erased(digest) for digest in digests)
    report = verify_home(played.home, environment=played.environment)
    assert report.ok
    assert any("2 contents were erased on purpose" in sentence for sentence in report.proved)


def test_large_content_leaves_the_disk(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    files = played.home.content_files()
    digests = named(played, "large")
    assert all(files.has(digest) for digest in digests)
    erase(played.home, digests, environment=played.environment)
    assert not any(files.has(digest) for digest in digests)
    assert verify_home(played.home, environment=played.environment).ok


@pytest.mark.parametrize("value", [1, LARGE], ids=["small", "large"])
def test_content_that_a_later_job_brings_back_stays_verifies_and_can_be_erased_again(
    tmp_path: Path, value: object
) -> None:
    """What was erased is gone until a job submits the very same bytes; then it is content like any other."""
    played = fresh(tmp_path)
    again = seal_value(value, bytes(16))
    with Session(played.home, Parts(clock=FakeClock(LATE_MS)), environment=played.environment) as session:
        hand = Hand(played.home, session)
        digest = hand.submit_bytes("first", again)
        hand.ask(Cancel(0, TENANT, "first"))
    erase(played.home, [digest], environment=played.environment)
    assert content(played, digest) is None
    with Session(played.home, Parts(clock=FakeClock(LATE_MS)), environment=played.environment) as session:
        hand = Hand(played.home, session)
        assert hand.submit_bytes("second", again) == digest
        hand.ask(Cancel(0, TENANT, "second"))
    Session(played.home, Parts(clock=FakeClock(LATE_MS)), environment=played.environment).close()
    assert content(played, digest) == again
    assert verify_home(played.home, environment=played.environment).findings == ()
    assert erase(played.home, [digest], environment=played.environment).erased == (digest,)
    assert content(played, digest) is None
    assert verify_home(played.home, environment=played.environment).ok


def test_erased_bytes_are_in_no_file_of_the_home_any_more(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    (payload, _) = named(played, "done")
    data = content(played, payload)
    assert data is not None
    erase(played.home, [payload], environment=played.environment)
    left = [path for path in played.home.path.rglob("*") if path.is_file() and data in path.read_bytes()]
    assert left == []


def test_an_erased_value_cannot_be_guessed_from_its_digest(tmp_path: Path) -> None:
    """X-171"""
    played = fresh(tmp_path)
    (payload, _) = named(played, "done")
    assert payload != sha256(json_encode(1))
    assert payload != sha256(decode(content(played, payload) or b"")["json"])


def test_an_exported_bundle_still_verifies_after_an_erasure(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    before = export(played.home, tmp_path / "before.detent", environment=played.environment, with_content=True)
    erase_job(played.home, "done", environment=played.environment)
    after = export(played.home, tmp_path / "after.detent", environment=played.environment, with_content=True)
    assert detent.verify(before.path, played.root).ok
    assert detent.verify(after.path, played.root).ok
    assert after.counts["content"] == before.counts["content"] - 2


def test_erasing_twice_records_it_once(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    digests = named(played, "done")
    erase(played.home, [*digests, digests[0]], environment=played.environment)
    again = erase_job(played.home, "done", environment=played.environment)
    assert (again.erased, list(again.already)) == ((), digests)
    with Parts().open_reader(played.home.ledger) as reader:
        assert sum(1 for _ in reader.records_of_kind(0, "erased")) == 1


def test_what_a_job_that_has_not_ended_needs_is_not_erased(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    (payload,) = named(played, "waiting")
    with pytest.raises(InvalidInput, match="'waiting' is queued and still needs its payload"):
        erase_job(played.home, "waiting", environment=played.environment)
    with pytest.raises(InvalidInput, match="'waiting' is queued and still needs its payload"):
        erase(played.home, [payload], environment=played.environment)
    assert content(played, payload) is not None


def test_the_payload_of_a_job_that_returns_to_the_queue_meanwhile_is_not_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs while the queue is looked at, and is in the queue when those that run are."""
    played = fresh(tmp_path)
    clock = FakeClock(LATE_MS)
    jobs = SqliteReader.jobs
    with Session(played.home, Parts(clock=clock), environment=played.environment) as session:
        hand = Hand(played.home, session)
        hand.ask(Cancel(0, TENANT, "waiting"))
        payload = hand.submit("returns")
        grant = hand.claim()

        def returning(self: SqliteReader, **asked: Any) -> Iterator[JobRow]:
            found = list(jobs(self, **asked))
            if asked.get("state") == "QUEUED":
                (back,) = given_up([grant])
                hand.ask(back)
                clock.jump(60_000)
                session.grants("worker-a")  # A turn of the owner, for what is due.
            return iter(found)

        monkeypatch.setattr(SqliteReader, "jobs", returning)
        with pytest.raises(InvalidInput, match="'returns' is running and still needs its payload"):
            erase(played.home, [payload], environment=played.environment)
        monkeypatch.undo()
        with Parts().open_reader(played.home.ledger) as reader:
            assert [row.state for row in reader.jobs_of(["returns"])] == ["QUEUED"]
    assert content(played, payload) is not None


def test_what_is_not_stored_here_is_refused(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    with pytest.raises(InvalidInput, match="no content with the digest sha256:0000"):
        erase(played.home, [bytes(32)], environment=played.environment)
    with pytest.raises(InvalidInput, match="there is no job 'nix'"):
        erase_job(played.home, "nix", environment=played.environment)


def test_content_that_another_job_names_too_stays(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    with played.session() as session:
        hand = Hand(played.home, session)
        hand._nonces = iter([500, 501, 500, 502])
        first = hand.submit("first", LARGE)
        hand._nonces = iter([500])
        assert hand.submit("second", LARGE) == first
        hand._nonces = iter([503, 504, 505])
        for _ in range(3):  # waiting, first, second
            hand.succeed(hand.claim())
    done = erase_job(played.home, "first", environment=played.environment)
    assert done.shared == (first,)
    assert len(done.erased) == 1
    assert content(played, first) is not None


def test_an_erasure_goes_through_whichever_process_owns_the_home(tmp_path: Path) -> None:
    """X-172"""
    played = fresh(tmp_path)
    with played.session() as owner:
        epoch = owner.owned.owners[0].epoch if owner.owned else 0
        done = erase_job(played.home, "done", environment=played.environment)
        assert len(done.erased) == 2
        assert owner.owned is not None
        assert owner.owned.owners[0].epoch == epoch
    assert verify_home(played.home, environment=played.environment).ok


def test_more_digests_than_one_record_holds_are_erased_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = fresh(tmp_path)
    monkeypatch.setattr("detent.runs.erase.DIGESTS_PER_ERASED_MAX", 1)
    assert records.DIGESTS_PER_ERASED_MAX == 1_000
    erase_job(played.home, "done", environment=played.environment)
    with Parts().open_reader(played.home.ledger) as reader:
        assert sum(1 for _ in reader.records_of_kind(0, "erased")) == 2


def test_a_reason_that_is_no_code_is_refused_and_nothing_is_erased(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    digests = named(played, "done")
    with pytest.raises(DetentError, match="reason_code"):
        erase(played.home, digests, environment=played.environment, reason_code="because")
    assert all(content(played, digest) is not None for digest in digests)
    assert verify_home(played.home, environment=played.environment).ok


def test_bytes_never_go_without_the_record_that_says_so(tmp_path: Path) -> None:
    """A refused erasure in one turn with something that is granted: the commit takes nothing of it along."""
    played = fresh(tmp_path)
    digests = tuple(named(played, "done"))
    with played.session() as session:
        granted, refused = session.ask([Erase(0, (sha256(b"other"),), 0), Erase(0, digests, 1, "because")])
    assert granted.ok
    assert not refused.ok
    assert all(content(played, digest) is not None for digest in digests)


def test_a_refused_erasure_takes_nothing_along_even_when_it_is_recorded() -> None:
    """Time that passes before a command makes it part of the recorded inputs, whatever is decided about it."""
    turn = Turn(0)
    turn.add(Erase(0, (bytes(32),), 0), Outcome(refusal=Refused("INVALID_PARAMS", "no"), changed=True))
    assert (len(turn.commands), turn.erased) == (1, [])


def test_files_that_a_crash_left_after_their_erasure_go_when_the_home_is_opened(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    digests = named(played, "large")
    with played.session() as session:
        session.ask([Erase(0, tuple(digests), 0)])
    files = played.home.content_files()
    assert all(files.has(digest) for digest in digests)
    with Session(played.home, Parts(clock=FakeClock(EARLY_MS + 3_600_000)), environment=played.environment):
        assert not any(files.has(digest) for digest in digests)
    assert verify_home(played.home, environment=played.environment).ok


def test_damaged_content_can_be_erased(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    with Parts().open_reader(played.home.ledger) as reader:
        digest = next(digests_of_job(reader, "done"))
    played.edit(lambda database: database.execute("UPDATE content SET bytes = x'00' WHERE digest = ?", (digest,)))
    assert "CONTENT_DIGEST_WRONG" in verify_home(played.home, environment=played.environment).codes
    erase_job(played.home, "done", environment=played.environment)
    assert verify_home(played.home, environment=played.environment).ok
