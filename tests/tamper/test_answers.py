"""Tampering with the answers to idempotency keys: `verify` finds what contradicts the signed history and counts what it cannot tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import apsw
import pytest

from detent.inspect.audit import verify_home
from detent.jobs.dedupe import IDEMPOTENCY_WINDOW_MS
from detent.ledger.findings import Report
from detent.runs import runtime
from detent.runs.erase import erase_job
from detent.sdk.client import Client
from detent.testing import FakeClock, InlineLane, TemporaryHome
from detent.testing.plugin import detent_clock, detent_home
from tests.sdk import work_functions as functions

__all__ = ["detent_clock", "detent_home"]

GONE = "Why answers to idempotency keys are missing whose jobs are here ({})"
BORROWED = "where it names the job of an earlier equal request ({})"


@pytest.fixture
def client(detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client that does its work in this process."""
    lane = InlineLane(content=detent_home.path / "content", clock_ms=detent_home.parts.clock.wall_ms)
    inline = partial(runtime.Runtime, parts=detent_home.parts, executors=lane.executors)
    monkeypatch.setattr(runtime, "Runtime", inline)
    with Client(detent_home.path) as made:
        yield made


def edit(home: TemporaryHome, statement: str) -> None:
    with closing(apsw.Connection(str(home.home.ledger))) as database:
        database.execute(statement)
        assert database.changes() > 0


def swap_scopes(home: TemporaryHome) -> None:
    """Put each of the two answers under the key of the other."""
    with closing(apsw.Connection(str(home.home.ledger))) as database:
        (first, ours), (second, theirs) = database.execute("SELECT answer_no, scope FROM answers").fetchall()
        for number, scope in ((second, bytes(32)), (first, theirs), (second, ours)):
            database.execute("UPDATE answers SET scope = ? WHERE answer_no = ?", (scope, number))


def verified(home: TemporaryHome) -> Report:
    return verify_home(home.home, environment=home.environment)


def twice(client: Client, clock: FakeClock) -> None:
    """Two requests under keys of their own."""
    for number, key in ((2, "k"), (3, "l")):
        client.submit_call(functions.square, [number], idempotency_key=key).result(60)
        clock.jump(10)


@pytest.mark.parametrize("column", ["body_digest", "response"])
def test_swapped_answers_are_found(
    client: Client, detent_home: TemporaryHome, detent_clock: FakeClock, column: str
) -> None:
    """X-196: they were refused where they were used, and `verify` was green."""
    twice(client, detent_clock)
    assert verified(detent_home).ok
    edit(detent_home, f"UPDATE answers SET {column} = (SELECT {column} FROM answers o WHERE o.scope <> answers.scope)")
    assert set(verified(detent_home).codes) == {"ANSWER_WRONG"}


def test_answers_under_swapped_keys_are_found(
    client: Client, detent_home: TemporaryHome, detent_clock: FakeClock
) -> None:
    """X-196: a job's id is derived from its key's scope."""
    twice(client, detent_clock)
    swap_scopes(detent_home)
    report = verified(detent_home)
    assert set(report.codes) == {"ANSWER_WRONG"}
    assert "older than job" in report.findings[0].message


@pytest.mark.parametrize("change", ["- 100000", "+ 100000000"])
def test_a_changed_time_of_an_answer_is_found(
    client: Client, detent_home: TemporaryHome, detent_clock: FakeClock, change: str
) -> None:
    """X-196: it says how long the key counts."""
    twice(client, detent_clock)
    edit(detent_home, f"UPDATE answers SET stored_at_ms = stored_at_ms {change}")
    assert set(verified(detent_home).codes) == {"ANSWER_WRONG"}


def test_deleted_answers_are_counted_under_not_proved(
    client: Client, detent_home: TemporaryHome, detent_clock: FakeClock
) -> None:
    """X-196: a deleted answer looks like one that expired under another setting."""
    twice(client, detent_clock)
    assert not any("Why answers" in sentence for sentence in verified(detent_home).not_proved)
    edit(detent_home, "DELETE FROM answers")
    report = verified(detent_home)
    assert report.ok
    assert any(GONE.format(2) in sentence for sentence in report.not_proved)


def test_answers_that_expired_or_were_erased_are_not_missed(
    client: Client, detent_home: TemporaryHome, detent_clock: FakeClock
) -> None:
    """X-171, JOB-030"""
    twice(client, detent_clock)
    detent_clock.jump(IDEMPOTENCY_WINDOW_MS)
    last = client.submit_call(functions.square, [9], idempotency_key="k")
    last.result(60)
    erase_job(detent_home.home, last.job_id, environment=detent_home.environment, parts=detent_home.parts)
    report = verified(detent_home)
    assert report.ok
    assert not any("idempotency" in sentence for sentence in report.not_proved)


def test_an_answer_that_names_the_job_of_an_equal_request_is_counted_under_not_proved(
    client: Client, detent_home: TemporaryHome, detent_clock: FakeClock
) -> None:
    """X-196: the signed payload knows nothing of the second key."""
    first = client.submit(functions.square, 2)
    first.result(60)
    for key in ("k", "l"):
        again = client.submit_call(functions.square, [2], idempotency_key=key, reuse=True)
        assert again.job_id == first.job_id
    report = verified(detent_home)
    assert report.ok
    assert any(BORROWED.format(2) in sentence for sentence in report.not_proved)
