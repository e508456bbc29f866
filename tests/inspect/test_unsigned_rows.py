"""What a request keeps beside the ledger: in its commit, as far as it was granted, and never part of the history."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

import detent
from detent.canon import digest_text, sha256
from detent.errors import InvalidInput
from detent.inspect.audit import verify_home
from detent.inspect.export import export
from detent.kernel import Cancel, Erase
from detent.owner.session import Session
from detent.runs.erase import erase, erase_job
from detent.store.api import ANSWER_BYTES_MAX, AnswerRow, WorkRow
from tests.kernel.builders import TENANT
from tests.owner.homes import House
from tests.owner.rig import Rig, cancel, stamped, submit

KEY = sha256(b"key")
PAYLOAD = b"payload"


def work(job_id: str = "job-1", key: bytes = KEY) -> WorkRow:
    return WorkRow("here", key, job_id, "flow/step")


def answer(scope: str = "one", *, at_ms: int = 5) -> AnswerRow:
    return AnswerRow(sha256(scope.encode()), sha256(b"body"), b'{"job_id":"job-1"}', at_ms)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def indexed(house: House, key: bytes = KEY) -> list[str]:
    with house.reader() as reader:
        return [row.job_id for row in reader.work("here", key)]


# -- the owner ---------------------------------------------------------------------------------------------------------


def test_work_is_indexed_in_the_commit_that_submits_its_job(rig: Rig) -> None:
    """X-148: with the tick of that commit, and the payload by whose erasure it goes."""
    size = rig.size
    future = rig.owner.ask([stamped(submit())], work=[work()], answers=[answer()])
    rig.owner.step()
    (outcome,) = future.result(timeout=0)
    assert outcome.job is not None
    expected = work()._replace(tick=rig.tick, payload_digest=outcome.job.payload_digest)
    assert list(rig.store.work("here", KEY)) == [expected]
    assert rig.store.answer(answer().scope) == answer()
    assert rig.size == size + 1


def test_a_refused_submission_leaves_neither_work_nor_answer(rig: Rig) -> None:
    rig.one(submit())
    refused = submit(priority=7)  # another manifest under the same id
    future = rig.owner.ask(
        [stamped(submit("job-2")), stamped(refused)], work=[work(), work("job-2")], answers=[answer()]
    )
    rig.owner.step()
    assert [outcome.status for outcome in future.result(timeout=0)] == ["COMMITTED", "CONFLICT"]
    assert [row.job_id for row in rig.store.work("here", KEY)] == ["job-2"]
    assert rig.store.answer(answer().scope) is None


def test_only_jobs_that_this_request_submits_are_indexed(rig: Rig) -> None:
    rig.one(submit())
    rig.owner.ask([stamped(cancel())], work=[work()])
    rig.owner.step()
    assert list(rig.store.work("here", KEY)) == []


def test_a_repeated_submission_indexes_its_job_though_it_commits_nothing(rig: Rig) -> None:
    """X-173: the first request's answer was lost, or it came from a process that does not index."""
    rig.one(submit())
    size = rig.size
    future = rig.owner.ask([stamped(submit())], work=[work()], answers=[answer()])
    rig.owner.step()
    assert future.result(timeout=0)[0].status == "DEDUPLICATED"
    assert [row.job_id for row in rig.store.work("here", KEY)] == ["job-1"]
    assert rig.store.answer(answer().scope) == answer()
    assert rig.size == size


def test_an_erased_payload_takes_its_work_along_for_good(rig: Rig) -> None:
    """X-171: the key could be guessed, so not even the same submission again brings it back."""
    digest = sha256(PAYLOAD)
    rig.owner.ask([stamped(submit(payload_digest=digest))], content=[(digest, PAYLOAD)], work=[work()])
    rig.owner.step()
    rig.one(Cancel(0, TENANT, "job-1"))
    assert [row.job_id for row in rig.store.work("here", KEY)] == ["job-1"]
    assert rig.one(Erase(0, (digest,), 0, "ERASED_BY_USER")).ok
    assert list(rig.store.work("here", KEY)) == []
    rig.owner.ask([stamped(submit(payload_digest=digest))], work=[work()])
    rig.owner.step()
    assert list(rig.store.work("here", KEY)) == []


@pytest.mark.parametrize(
    "row",
    [
        work()._replace(workspace=""),
        work()._replace(execution_key=b"short"),
        work()._replace(job_id="\n"),
        work()._replace(label=""),
        work()._replace(label="x" * 1025),
        work()._replace(label="\ud800"),
    ],
)
def test_work_that_cannot_be_indexed_is_refused_before_anything_happens(rig: Rig, row: WorkRow) -> None:
    with pytest.raises(InvalidInput):
        rig.owner.ask([stamped(submit())], work=[row])
    assert rig.state() is None


@pytest.mark.parametrize(
    "row",
    [
        answer()._replace(scope=b"short"),
        answer()._replace(body_digest=b"short"),
        answer()._replace(response=bytes(ANSWER_BYTES_MAX + 1)),
        answer(at_ms=-1),
    ],
)
def test_an_answer_that_cannot_be_kept_is_refused_before_anything_happens(rig: Rig, row: AnswerRow) -> None:
    with pytest.raises(InvalidInput):
        rig.owner.ask([stamped(submit())], answers=[row])
    assert rig.state() is None


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asker", ["owner", "client"])
def test_a_session_indexes_work_and_keeps_answers_whichever_process_owns_the_home(house: House, asker: str) -> None:
    """JOB-031: the bytes that were answered are there for a repeat, from any process."""
    with ExitStack() as stack:
        sessions: dict[str, Session] = {name: stack.enter_context(house.session()) for name in ("owner", "client")}
        sessions[asker].ask([house.submit()], work=[work()], answers=[answer()])
        sessions[asker].ask([house.submit("job-2")], work=[work("job-2")])
        sessions[asker].ask([house.submit("job-1", priority=7)], work=[work()], answers=[answer("other")])
    assert indexed(house) == ["job-1", "job-2"]
    with house.reader() as reader:
        assert reader.answer(answer().scope) == answer()
        assert reader.answer(answer("other").scope) is None


def test_a_client_that_sends_rows_that_are_none_is_told_so(house: House) -> None:
    with house.session(), house.session() as client:
        with pytest.raises(InvalidInput):
            client.ask([house.submit()], work=[work()._replace(execution_key=b"short")])
        with pytest.raises(InvalidInput, match="scope"):
            client.ask([house.submit()], answers=[answer()._replace(scope=b"")])
        assert client.ask([house.submit()])[0].status == "COMMITTED"


def test_the_signed_history_knows_nothing_of_it(house: House, tmp_path: Path) -> None:
    """X-171, X-196: the key is in no record, so an export verifies without it; the home's rows are compared on their own."""
    with house.session() as session:
        session.ask([house.submit()], work=[work()], answers=[answer()])
    with house.reader() as reader:
        batches = b"".join(row.body + row.commands for row in reader.batches(0))
        records = b"".join(row.body + (row.evidence or b"") for row in reader.records(0))
    exported = tmp_path / "out.detent"
    done = export(house.home, exported, environment=house.environment)
    assert detent.verify(exported, root=digest_text(done.root)).ok
    beside = {"WORK_INDEX_WRONG", "LABEL_WRONG", "ANSWER_WRONG"}  # Rows that no submission made.
    assert set(verify_home(house.home, environment=house.environment).codes) == beside
    for data in (batches, records, exported.read_bytes()):
        assert KEY not in data
        assert answer().response not in data


def test_erasing_a_job_or_its_payload_erases_its_place_in_the_index(house: House) -> None:
    """X-171"""
    payloads = {name: f"payload of {name}".encode() for name in ("job-1", "job-2", "job-3")}
    with house.session() as session:
        for name, payload in payloads.items():
            command = house.submit(name, payload_digest=sha256(payload))
            session.ask([command], content=[(sha256(payload), payload)], work=[work(name, sha256(name.encode()))])
            session.ask([Cancel(0, TENANT, name)])
    keys = [sha256(name.encode()) for name in payloads]
    assert [key in house.home.ledger_file.read_bytes() for key in keys] == [True, True, True]
    erase_job(house.home, "job-1", environment=house.environment)
    assert [indexed(house, key) for key in keys] == [[], ["job-2"], ["job-3"]]
    erase(house.home, [sha256(payloads["job-3"])], environment=house.environment)
    assert [indexed(house, key) for key in keys] == [[], ["job-2"], []]
    assert [key in house.home.ledger_file.read_bytes() for key in keys] == [False, True, False]
