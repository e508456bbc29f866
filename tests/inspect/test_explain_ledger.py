"""What `explain` rests on: records that may be gone, a log that is bounded, and decisions that come out the same again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.errors import InvalidInput, StoreCorrupt
from detent.inspect.audit import verify_home
from detent.inspect.explain_job import explain
from detent.inspect.replay import replay_home
from detent.kernel import Cancel, Erase, Grant, Heartbeat, State
from detent.owner.content import Content
from detent.owner.wiring import Parts
from detent.scheduling import Candidate
from detent.store.api import REFUSALS_KEPT_MAX
from tests.inspect.explained import LEASE_MS, Stage
from tests.kernel.builders import TENANT
from tests.owner.homes import House
from tests.scheduling.fleets import generic, needs, replica

MODEL = {"requirements": needs()}

# -- what is missing, damaged or too much ------------------------------------------------------------------------------


LOST = "It lost its place in the queue to another job (DROPPED_LRU: dropped to make room, oldest first)."


@pytest.mark.parametrize("apart", [False, True])
def test_a_decision_record_that_is_gone_is_told_as_gone(tmp_path: Path, apart: bool) -> None:
    """X-181: never stored here, or damaged; the rest is told all the same, of new ledgers and of old ones"""
    with Stage(tmp_path, 'admission_policy = "drop-lru"', "capacity_per_class = 1") as stage:
        stage.submit("dropped", "taker")
        if apart:
            stage.played.keep_decisions_apart()
        kept = stage.told("dropped").story[-1]
        table, column = ("content", "bytes") if apart else ("decisions", "body")
        stage.edit(lambda database: database.execute(f"UPDATE {table} SET {column} = x'a0'"))
        damaged = stage.told("dropped").story[-1]
        stage.edit(lambda database: database.execute(f"DELETE FROM {table}"))
        absent = stage.told("dropped").story[-1]
    assert kept.decision is not None
    assert (kept.decision.kind, kept.decision_content) == ("evicted", "here")
    assert damaged.why == (LOST, "The decision record that says more is damaged, `detent verify` says more.")
    assert (damaged.decision, damaged.decision_content) == (None, "damaged")
    assert absent.why == (LOST, "The decision record that says more is not stored here.")


def test_a_decision_record_of_an_old_ledger_that_was_erased_is_told_as_erased(tmp_path: Path) -> None:
    """X-181: content of its own could be erased"""
    with Stage(tmp_path) as stage:
        stage.submit("job")
        stage.played.keep_decisions_apart()
        digest = stage.told("job").story[0].decision_digest
        assert digest is not None
        stage.do(Erase(0, (digest,), 0))
        erased = stage.told("job").story[0]
    assert erased.why == ("It was submitted.", "The decision record that says more was erased.")
    assert (erased.decision, erased.decision_content) == (None, "erased")


def test_a_refusal_that_cannot_be_read_is_told_by_its_code(tmp_path: Path) -> None:
    """X-182: that log is not signed"""
    with Stage(tmp_path, "capacity_per_class = 1") as stage:
        stage.submit("first")
        stage.refuse("second")
        stage.edit(lambda database: database.execute("UPDATE refusals SET body = x'ff'"))
        (chapter,) = stage.told("second").story
    assert (chapter.what, chapter.why) == ("request refused", ("The reason cannot be read (QUEUE_FULL).",))


def test_of_a_damaged_ledger_the_past_is_told_and_the_present_is_not_guessed(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.submit("other", "job")
        first = "SELECT min(record_key) FROM records WHERE kind = 'submitted'"
        stage.edit(lambda database: database.execute(f"UPDATE records SET body = x'ff' WHERE record_key = ({first})"))
        told = stage.told("job")
        unreadable = stage.told("other")
    assert told.now == (
        "It waits in the queue.",
        "What it waits for cannot be worked out, because the ledger is damaged: `detent verify` says more.",
    )
    assert told.story[0].what == "submitted"
    assert unreadable.story[0].what == "submitted, unreadable"


def test_a_record_that_cannot_be_read_keeps_its_place_in_the_story(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.submit("job")
        stage.clock.jump(1_000)
        grant = stage.claim()
        stage.clock.jump(1_000)
        stage.succeed(grant)
        started = "SELECT min(record_key) FROM records WHERE kind = 'transition'"
        stage.edit(lambda database: database.execute(f"UPDATE records SET body = x'ff' WHERE record_key = ({started})"))
        told = stage.told("job")
    assert [chapter.what for chapter in told.story] == ["submitted", "transition, unreadable", "running -> succeeded"]
    assert told.story[1].why == ("`detent verify` says what is wrong with this record.",)
    assert told.now[1] == "Its worker reported a result after 2.0 s."


def test_requests_about_a_job_that_were_refused_stand_in_its_story(tmp_path: Path) -> None:
    """X-182"""
    with Stage(tmp_path) as stage:
        stage.submit("job")
        grant = stage.claim()
        stage.succeed(grant)
        assert stage.ask(Heartbeat(0, "job", grant.lease_id)).refusal is not None
        assert stage.ask(Cancel(0, TENANT, "job")).refusal is not None
        told = stage.told("job")
    assert [chapter.what for chapter in told.story[-2:]] == ["heartbeat refused", "cancellation refused"]
    assert told.story[-1].why == ("Job 'job' has already ended in SUCCEEDED (CONTRACT_VIOLATION).",)


def test_a_flood_of_refusals_leaves_the_decision_log_at_its_limit(tmp_path: Path) -> None:
    """X-182"""
    with Stage(tmp_path, "capacity_per_class = 1") as stage:
        stage.submit("first")
        for start in range(0, 12_000, 1_000):
            stage.session.ask([Cancel(0, TENANT, f"nobody-{number}") for number in range(start, start + 1_000)])
        stage.refuse("second")
        with Parts().open_reader(stage.home.ledger) as reader:
            assert len(list(reader.refusals(limit=20_000))) == REFUSALS_KEPT_MAX == 10_000
        assert stage.told("second").story[0].what == "submission refused"
        assert stage.told("nobody-11999").story[0].what == "cancellation refused"
        with pytest.raises(InvalidInput, match="none of the last 10,000 refusals was about one"):
            stage.told("nobody-2000")


def test_a_job_is_explained_in_whichever_partition_it_lives(tmp_path: Path) -> None:
    house = House(tmp_path, partitions=3)
    names = [f"job-{number}" for number in range(6)]
    with house.session(listen=False) as session:
        for name in names:
            session.ask([house.submit(name)], partition=session.partition(name))
        assert len({session.partition(name) for name in names}) == 3
    with house.reader() as reader:
        for name in names:
            told = explain(reader, Content(reader, house.home.content_files()), name, again=True)
            assert told.now[0] in {
                "It waits for a worker: the next one that asks gets it.",
                "It waits: earlier jobs of its class go first.",
            }
            assert told.story[0].replicas == ()


# -- the same again ----------------------------------------------------------------------------------------------------


def eventful(stage: Stage) -> None:
    """A fleet, an eviction, a retry, an expiry, a limit, a session with a budget, all on one ledger."""
    stage.submit("open-pool")
    stage.register(replica("r1", max_slots=1), replica("r2", max_slots=2), generic("g1", pool_id="pool-g"))
    stage.order("session_open", session_id="alice", tokens=100, time_ms=None, cost=None)
    asks = {**MODEL, "session_id": "alice", "prompt_tokens": 10, "max_new_tokens": 0}
    granted: dict[str, Grant] = {}
    for name in ("fails", "succeeds", "expires"):
        stage.submit(name, asks=asks)
        granted |= {grant.job_id: grant for grant in stage.dispatch()}
    stage.fail(granted["fails"])
    stage.succeed(granted["succeeds"])
    stage.order("session_settle", job_id="succeeds", tokens=5, time_ms=0, cost=0)
    stage.submit("limited", asks={**asks, "wall_ms": 6_000})
    stage.pass_ms(1_000)
    stage.dispatch()
    stage.submit("dropped", "kept", "taker", asks=asks)
    stage.refuse("too-dear", asks={**asks, "prompt_tokens": 90})
    stage.pass_ms(LEASE_MS + 5_000)
    stage.order("replica_ready", replica_id="r2", ready=False)
    stage.dispatch()


def test_an_eventful_ledger_is_explained_and_decided_the_same_again(tmp_path: Path) -> None:
    """X-165, X-181: every decision is made again by `replay`, and has the digest that the record names"""
    with Stage(tmp_path, 'admission_policy = "drop-lru"', "capacity_per_class = 2", checkpoint_records=10) as stage:
        eventful(stage)
        with Parts().open_reader(stage.home.ledger) as reader:
            states = {row.job_id: row.state for row in reader.jobs()}
        told = {job_id: stage.told(job_id) for job_id in states}
    assert (states["dropped"], states["limited"], states["succeeds"]) == ("CANCELED", "FAILED", "SUCCEEDED")
    assert {told[job_id].state for job_id in told} == {state.value for state in State}
    decisions = [chapter.decision for one in told.values() for chapter in one.story if chapter.decision is not None]
    assert {decision.kind for decision in decisions} == {"admitted", "placed", "evicted"}
    report = replay_home(stage.home)
    assert report.ok, report.differences
    assert verify_home(stage.home, environment=stage.played.environment).ok


def test_one_changed_byte_of_a_decision_of_an_old_ledger_is_found_by_verify(tmp_path: Path) -> None:
    """X-181; `tests/tamper/test_decisions.py` has the decisions that are kept by the commit"""
    with Stage(tmp_path) as stage:
        stage.submit("job")
        digest = stage.told("job").story[0].decision_digest
    stage.played.keep_decisions_apart()

    def flip(database: Any) -> None:
        (data,) = database.execute("SELECT bytes FROM content WHERE digest = ?", (digest,)).fetchone()
        changed = bytes([*data[:-1], data[-1] ^ 1])
        database.execute("UPDATE content SET bytes = ? WHERE digest = ?", (changed, digest))

    assert verify_home(stage.home, environment=stage.played.environment).ok
    stage.edit(flip)
    report = verify_home(stage.home, environment=stage.played.environment)
    assert "CONTENT_DIGEST_WRONG" in report.codes


def test_a_record_that_names_another_decision_is_not_what_replay_decides(tmp_path: Path) -> None:
    """X-165, X-181"""
    with Stage(tmp_path) as stage:
        stage.submit("job")
        digest = stage.told("job").story[0].decision_digest
        stage.claim()
        placed = stage.told("job").story[1].decision_digest
    assert digest is not None
    assert placed is not None

    def forge(database: Any) -> None:
        for column, named in (("body", digest), ("evidence", placed)):
            rows = database.execute(f"SELECT record_key, {column} FROM records WHERE {column} IS NOT NULL").fetchall()
            for key, data in rows:
                if named in data:
                    database.execute(
                        f"UPDATE records SET {column} = ? WHERE record_key = ?", (data.replace(named, bytes(32)), key)
                    )

    assert replay_home(stage.home).ok
    stage.edit(forge)
    assert [difference.problem for difference in replay_home(stage.home).differences] == [
        "the record differs in decision_digest",
        "the record's evidence differs",
    ]


def test_decisions_made_again_name_every_replica_and_the_filter_that_removed_it(tmp_path: Path) -> None:
    """CORE-X019, X-181: what is not stored of a decision follows from the commands"""
    fleet = [replica(f"r{number:02}", free_vram_mb=1_000 + number) for number in range(20)]
    with Stage(tmp_path, checkpoint_records=5) as stage:
        stage.register(*fleet, replica("asleep", ready=False), generic("plain", pool_id="pool-g"))
        stage.submit("job", asks=MODEL)
        stage.dispatch()
        stage.register(replica("newcomer", free_vram_mb=9_000))
        submitted, placed = stage.told("job", again=True).story
    assert submitted.replicas is not None
    assert placed.replicas is not None
    assert placed.replicas[:2] == (Candidate("r19", 1_019, 0), Candidate("r18", 1_018, 0))
    removed = {one.replica_id: one.removed_by for one in placed.replicas if one.removed_by is not None}
    assert removed == {"asleep": "readiness", "plain": "pin"}
    assert {one.replica_id: one.removed_by for one in submitted.replicas if one.removed_by is not None} == {
        "asleep": "readiness",
        "plain": "engine_model",
    }
    assert len(placed.replicas) == 22


def test_decision_records_that_are_gone_are_made_again(tmp_path: Path) -> None:
    """X-181"""
    with Stage(tmp_path, 'admission_policy = "drop-lru"', "capacity_per_class = 2", checkpoint_records=10) as stage:
        eventful(stage)
        names = ("dropped", "fails", "open-pool", "limited")
        before = {name: stage.told(name) for name in names}
        stage.edit(lambda database: database.execute("DELETE FROM decisions"))
        after = {name: stage.told(name, again=True) for name in names}
    for name in names:
        assert [chapter.decision for chapter in after[name].story] == [one.decision for one in before[name].story]
        assert [chapter.why for chapter in after[name].story] == [one.why for one in before[name].story]
        assert "remade" in {chapter.decision_content for chapter in after[name].story}


def test_commands_that_cannot_be_decided_again_are_damage(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.submit("job")
        stage.edit(lambda database: database.execute("UPDATE batches SET commands = x'ff'"))
        with pytest.raises(StoreCorrupt, match="the commands of batch 0 cannot be decided again"):
            stage.told("job", again=True)
