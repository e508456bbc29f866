"""`detent show`."""

from __future__ import annotations

import apsw
import pytest

from detent.kernel import Cancel, Claim, EndRun, StartRun
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.store.api import RunRow
from detent.store.sqlite import SqliteReader
from detent.testing import FakeClock
from tests.cli.conftest import Cli
from tests.homes import EARLY_MS, TENANT, Hand


def test_a_jobs_life_is_told_record_by_record(cli: Cli) -> None:
    job = cli.json("show", "slow")
    assert (job["kind"], job["state"], job["attempts"], job["failures"]) == ("job", "succeeded", 2, 1)
    told = [
        (record["kind"], record.get("from_state"), record.get("to_state"), record.get("evidence", {}).get("kind"))
        for record in job["records"]
    ]
    assert told == [
        ("submitted", None, None, None),
        ("transition", "QUEUED", "RUNNING", "dispatch"),
        ("transition", "RUNNING", "RETRYING", "expiry"),
        ("transition", "RETRYING", "QUEUED", "retry_ready"),
        ("transition", "QUEUED", "RUNNING", "dispatch"),
        ("transition", "RUNNING", "SUCCEEDED", "result"),
    ]
    assert job["records"][2]["at"] == "2023-11-14T22:13:50.000Z"
    assert job["records"][2]["reason_code"] == "LEASE_EXPIRED"
    assert [record["position"] for record in job["records"]] == sorted(record["position"] for record in job["records"])


def test_the_page_tells_the_same(cli: Cli) -> None:
    out = cli("show", "slow").out
    assert out.startswith("job slow  succeeded\n")
    assert "attempts  2 (1 failed of at most 1 retries, 0 interruptions)" in out
    assert "running -> retrying" in out
    assert "expiry: LEASE_EXPIRED" in out
    assert "dispatch to worker-a" in out


def test_what_became_of_the_payload_is_said(cli: Cli) -> None:
    """X-171"""
    assert cli.json("show", "done")["payload"]["content"] == "here"
    assert cli("erase", "--job", "done").code == 0
    job = cli.json("show", "done")
    assert job["payload"] == {"digest": job["payload"]["digest"], "content": "erased", "size_bytes": None}
    assert job["records"][-1]["evidence"]["detail"] == "erased"
    assert " erased\n" in cli("show", "done").out
    cli.played.edit(lambda database: database.execute("DELETE FROM content"))
    assert cli.json("show", "done")["payload"]["content"] == "absent"


def test_damaged_content_is_called_damaged(cli: Cli) -> None:
    cli.played.edit(lambda database: database.execute("UPDATE content SET bytes = x'00'"))
    assert cli.json("show", "done")["payload"]["content"] == "damaged"
    assert "damaged: `detent verify` says more" in cli("show", "done").out


def test_a_run_that_ends_meanwhile_is_shown_as_of_one_moment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is running has no jobs, and no records, of a later moment."""
    played, look = cli.played, SqliteReader.run
    with Session(played.home, Parts(clock=FakeClock(EARLY_MS + 10_000_000)), environment=played.environment) as session:
        hand = Hand(played.home, session)
        hand.ask(StartRun(0, TENANT, "moving", "moving", bytes(32), bytes(32), bytes(32), "op-3"))
        hand.submit("moves", run_id="moving")

        def ended(self: SqliteReader, run_id: str) -> RunRow | None:
            found = look(self, run_id)
            if run_id == "moving":
                monkeypatch.setattr(SqliteReader, "run", look)
                hand.ask(Cancel(0, TENANT, "moves"))
                hand.ask(EndRun(0, "moving", "cancelled"))
            return found

        monkeypatch.setattr(SqliteReader, "run", ended)
        run = cli.json("show", "moving")
        assert (run["status"], run["states"], run["job_list"][0]["state"]) == ("running", {"queued": 1}, "queued")
        assert [record["kind"] for record in run["records"]] == ["run_started"]
        assert cli.json("show", "moving")["status"] == "cancelled"


def test_a_run_is_shown_with_its_jobs(cli: Cli) -> None:
    run = cli.json("show", "run-1")
    assert (run["kind"], run["status"]) == ("run", "failed")
    assert run["states"] == {"cancelled": 1, "failed": 1, "succeeded": 3}
    assert [job["job_id"] for job in run["job_list"]] == ["done", "large", "broken", "slow", "dropped"]
    assert [record["kind"] for record in run["records"]] == ["run_started", "run_ended"]
    out = cli("show", "run-1").out
    assert "run run-1  failed" in out
    assert "1 cancelled, 1 failed, 3 succeeded" in out


def test_a_job_with_the_name_of_a_run_can_be_told_apart(cli: Cli) -> None:
    cli.played.edit(lambda database: database.execute("UPDATE runs SET run_id = 'done' WHERE run_id = 'run-1'"))
    result = cli("show", "done")
    assert result.out.startswith("run done")
    assert "there is also a job 'done'" in result.err
    assert cli.json("show", "--job", "done")["kind"] == "job"
    assert cli("show", "--run", "slow").code == 2


def test_a_lease_and_a_waiting_retry_are_shown(cli: Cli) -> None:
    with cli.played.session() as session:
        session.ask([Claim(0, "worker-z")])
        job = cli.json("show", "waiting")
        assert job["lease"]["holder"] == "worker-z"
        assert job["lease"]["expiry_at"] == "2023-11-14T23:13:50.000Z"
        assert "lease     worker-z until 2023-11-14 23:13:50.000" in cli("show", "waiting").out


def test_what_is_not_there_is_refused(cli: Cli) -> None:
    for arguments in (("nix",), ("--job", "run-1"), ("--run", "done")):
        result = cli("show", *arguments)
        assert result.code == 2
        assert "there is no" in result.err


def test_a_record_that_cannot_be_read_is_shown_as_such(cli: Cli) -> None:
    def damage(database: apsw.Connection) -> None:
        database.execute("UPDATE records SET body = x'ff' WHERE kind = 'transition' AND transition_seq = 0")
        database.execute("UPDATE records SET evidence = x'ff' WHERE kind = 'transition' AND transition_seq = 1")

    cli.played.edit(damage)
    records = cli.json("show", "done")["records"]
    assert [record["readable"] for record in records] == [True, False, False]
    assert "transition: unreadable" in cli("show", "done").out


def test_a_row_that_cannot_be_read_is_damage_and_not_a_bug(cli: Cli) -> None:
    cli.played.edit(lambda database: database.execute("UPDATE jobs SET body = x'80'"))
    for arguments in (("show", "done"), ("list", "--jobs")):
        result = cli(*arguments)
        assert result.code == 4
        assert "STORE_CORRUPT" in result.err
        assert "`detent verify`" in result.err
