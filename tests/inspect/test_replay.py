"""Replaying a home: what was recorded, and what is stored beside it, is what the commands lead to."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from detent.canon import sha256
from detent.errors import InvalidInput
from detent.inspect.audit import verify_home
from detent.inspect.export import export
from detent.inspect.replay import replay_file, replay_home
from detent.kernel import Claim, Heartbeat
from detent.owner.home import make_home
from detent.owner.keys import rotate
from detent.owner.session import Session
from detent.owner.wiring import Parts, begin_ledger
from detent.runs.erase import erase_job
from detent.testing import FakeClock
from tests.homes import EARLY_MS, RUN, Hand, Played, fresh


def problems(played: Played) -> list[str]:
    report = replay_home(played.home)
    assert report.ok == (not report.differences_total and not report.notes)
    return [difference.problem for difference in report.differences] + list(report.notes)


def test_an_untouched_home_is_decided_the_same_again(tmp_path: Path) -> None:
    """X-165"""
    played = fresh(tmp_path)
    report = replay_home(played.home)
    assert (report.ok, report.differences) == (True, ())
    verified = verify_home(played.home, environment=played.environment)
    assert report.transition_log_hash == verified.transition_log_hash
    assert (report.batches, report.records) == (verified.counts["batches"], verified.counts["records"])


def test_a_home_with_a_long_life_is_decided_the_same_again(tmp_path: Path) -> None:
    """Rotations, erasures, several owners, checkpoints, leases in force with heartbeats that no row shows."""
    played = fresh(tmp_path)
    rotate(played.home, "transition", environment=played.environment, parts=Parts(clock=FakeClock(EARLY_MS + 100_000)))
    erase_job(played.home, "done", environment=played.environment, parts=Parts(clock=FakeClock(EARLY_MS + 200_000)))
    clock = FakeClock(EARLY_MS + 300_000)
    parts = Parts(clock=clock, checkpoint_records=1)
    with Session(played.home, parts, environment=played.environment) as session:
        hand = Hand(played.home, session)
        hand.submit("second")
        grants = session.ask([Claim(0, "worker-a", 2)])[0].grants
        clock.jump(5_000)
        session.ask([Heartbeat(0, grant.job_id, grant.lease_id) for grant in grants])
        assert problems(played) == []
    assert problems(played) == []


def test_several_partitions_are_replayed_each_by_its_own_commands(tmp_path: Path) -> None:
    home = make_home(tmp_path / ".detent", begin_ledger, partitions=3)
    played = Played(home, tmp_path / "state")
    with played.session():
        pass
    report = replay_home(home)
    assert report.ok, report.differences
    assert report.batches == 6


def store_body(played: Played, job_id: str, body: bytes) -> None:
    where = "job_no = (SELECT job_no FROM job_names WHERE job_id = ?)"
    played.edit(lambda database: database.execute(f"UPDATE jobs SET body = ? WHERE {where}", (body, job_id)))


def test_any_byte_of_a_stored_job_is_compared(tmp_path: Path) -> None:
    """What the records do not say about a job (usage, heartbeats) only a replay can know."""
    played = fresh(tmp_path)
    with Parts().open_reader(played.home.ledger) as reader:
        bodies = {row.job_id: row.body for row in reader.jobs()}
    missed = []
    for job_id in ("done", "waiting"):
        body = bodies[job_id]
        for place in range(0, len(body), 29):
            store_body(played, job_id, body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :])
            if not problems(played):
                missed.append((job_id, place))
        store_body(played, job_id, body)
    assert missed == []
    assert problems(played) == []


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "DELETE FROM jobs WHERE job_no = (SELECT job_no FROM job_names WHERE job_id = 'done')",
            "job 'done' has no row",
        ),
        (
            "DELETE FROM jobs WHERE job_no = (SELECT job_no FROM job_names WHERE job_id = 'waiting')",
            "job 'waiting' has no row",
        ),
        ("UPDATE jobs SET tick = tick + 1 WHERE state = 'FAILED'", "the row of job 'broken'"),
        ("UPDATE jobs SET tenant_id = 'x' WHERE state = 'FAILED'", "the row of job 'broken'"),
        ("UPDATE jobs SET tenant_id = 'x' WHERE state = 'QUEUED'", "the row of job 'waiting'"),
        ("UPDATE runs SET body = x'80' WHERE run_id = 'run-1'", "the row of run 'run-1'"),
        ("UPDATE runs SET body = x'80' WHERE run_id = 'run-2'", "the row of run 'run-2'"),
        ("UPDATE jobs SET body = x'80' WHERE state = 'QUEUED'", "the row of job 'waiting'"),
        (
            "UPDATE batches SET commands = x'80' WHERE batch_key = 9",
            "the commands are not those the batch record binds",
        ),
        ("UPDATE batches SET body = x'80' WHERE batch_key = 9", "batch record"),
        ("UPDATE records SET body = x'a0' WHERE record_key = 9", "the record differs"),
        ("UPDATE records SET evidence = NULL WHERE record_key = 9", "evidence differs"),
        ("DELETE FROM records WHERE record_key = 9", "the ledger has"),
    ],
)
def test_what_the_commands_do_not_lead_to_is_said(tmp_path: Path, statement: str, said: str) -> None:
    """X-165"""
    played = fresh(tmp_path)
    played.edit(lambda database: database.execute(statement))
    assert any(said in problem for problem in problems(played)), problems(played)


def test_a_forged_checkpoint_is_found_even_with_the_right_digest(tmp_path: Path) -> None:
    """X-168: an owner would start from it."""
    played = fresh(tmp_path)
    parts = Parts(clock=FakeClock(EARLY_MS + 3_600_000), checkpoint_records=1)
    with Session(played.home, parts, environment=played.environment):
        pass
    assert problems(played) == []

    def forge(database: apsw.Connection) -> None:
        body = database.execute("SELECT body FROM checkpoints").get
        forged = body.replace(b"waiting", b"wanting")
        assert forged != body
        database.execute("UPDATE checkpoints SET body = ?, digest = ?", (forged, sha256(forged)))

    played.edit(forge)
    found = verify_home(played.home, environment=played.environment).findings
    assert [finding.code for finding in found] == ["CHECKPOINT_WRONG"]
    assert problems(played) == ["the checkpoint is not the state that the commands lead to"]


def test_a_damaged_database_is_said_and_not_raised(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    played.edit(lambda database: database.pragma("wal_checkpoint", "TRUNCATE"))
    data = bytearray(played.home.ledger_file.read_bytes())
    data[4096 * 2 :] = b"\xff" * len(data[4096 * 2 :])
    played.home.ledger_file.write_bytes(data)
    assert any("cannot be read" in problem for problem in problems(played))


def test_a_bundle_is_replayed_and_a_run_cannot_be(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    whole = export(played.home, tmp_path / "all.detent", environment=played.environment)
    report = replay_file(whole.path)
    assert report.ok
    assert report.transition_log_hash == replay_home(played.home).transition_log_hash
    run = export(played.home, tmp_path / "run.detent", run_id=RUN, environment=played.environment)
    assert not replay_file(run.path).ok
    assert any("one run" in note for note in replay_file(run.path).notes)
    with pytest.raises(InvalidInput, match="cannot be read"):
        replay_file(tmp_path / "nix.detent")
