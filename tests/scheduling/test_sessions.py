"""Sessions: budgets that are debited, settled and never negative, and the replica a session would like to stay on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import decode, encode
from detent.errors import InvalidInput, Refused
from detent.kernel import partition_of
from detent.scheduling import sessions as module
from detent.scheduling.sessions import Budgets, Sessions, Used
from detent.scheduling.types import TaskRequest


def task(job_id: str = "job-1", **changes: Any) -> TaskRequest:
    return TaskRequest(job_id, **{"session_id": "s", **changes})


def opened(**budgets: int) -> Sessions:
    sessions = Sessions()
    assert sessions.open("s", Budgets(**budgets)) is None
    return sessions


@pytest.mark.parametrize(
    ("budget", "field", "asked"),
    [
        ("tokens", "tokens", {"prompt_tokens": 4, "max_new_tokens": 6}),
        ("time", "time_ms", {"time_ms": 10}),
        ("cost", "cost", {"cost": 10}),
    ],
)
def test_a_spent_budget_refuses_the_next_request_and_is_named(budget: str, field: str, asked: dict[str, Any]) -> None:
    """OC-CORE-1023a, OC-CORE-1023b"""
    sessions = opened(**{field: 25})
    for number, left in ((1, 15), (2, 5)):
        assert sessions.debit(task(f"job-{number}", **asked)) is None
        assert sessions.left("s") == ((budget, left),)
    refusal = sessions.debit(task("job-3", **asked))
    assert isinstance(refusal, Refused)
    assert refusal.code == "SESSION_BUDGET_EXCEEDED"
    assert refusal.details == {"budget": budget, "left": 5, "needed": 10, "session_id": "s"}
    assert sessions.left("s") == ((budget, 5),)


def test_a_request_may_take_exactly_what_is_left() -> None:
    """OC-CORE-1023a"""
    sessions = opened(tokens=10)
    assert sessions.debit(task(prompt_tokens=10)) is None
    assert sessions.left("s") == (("tokens", 0),)
    assert isinstance(sessions.debit(task("job-2", prompt_tokens=1)), Refused)
    assert sessions.debit(task("job-3")) is None


def test_a_request_that_does_not_say_its_need_is_let_in_while_anything_is_left() -> None:
    """OC-CORE-1023a"""
    sessions = opened(time_ms=100)
    assert sessions.debit(task("job-1")) is None
    assert sessions.settle("job-1", Used(time_ms=100))
    refusal = sessions.debit(task("job-2"))
    assert isinstance(refusal, Refused)
    assert refusal.details["budget"] == "time"


def test_what_was_not_used_comes_back() -> None:
    """OC-CORE-1023a"""
    sessions = opened(tokens=100, cost=50)
    sessions.debit(task(prompt_tokens=10, max_new_tokens=50, cost=20))
    assert sessions.left("s") == (("cost", 30), ("tokens", 40))
    assert sessions.settle("job-1", Used(tokens=15, cost=20))
    assert sessions.left("s") == (("cost", 30), ("tokens", 85))
    assert not sessions.settle("job-1", Used(tokens=15))
    assert sessions.left("s") == (("cost", 30), ("tokens", 85))


def test_a_job_that_never_ran_gives_all_of_it_back() -> None:
    """OC-CORE-1023a"""
    sessions = opened(tokens=100)
    sessions.debit(task(prompt_tokens=60))
    assert sessions.refund("job-1")
    assert sessions.left("s") == (("tokens", 100),)
    assert not sessions.refund("job-1")


def test_a_budget_does_not_go_below_zero_and_the_overrun_is_kept() -> None:
    """OC-CORE-1023a"""
    sessions = opened(tokens=100)
    sessions.debit(task(prompt_tokens=60))
    sessions.settle("job-1", Used(tokens=130))
    assert sessions.left("s") == (("tokens", 0),)
    assert sessions.overrun("s") == (("tokens", 30),)


def test_asking_twice_for_the_same_job_takes_it_once() -> None:
    sessions = opened(tokens=100)
    for _ in range(3):
        assert sessions.debit(task(prompt_tokens=60)) is None
    assert sessions.left("s") == (("tokens", 40),)


def test_sessions_get_the_configured_budgets_unless_they_have_their_own() -> None:
    """OC-CORE-1023a"""
    sessions = Sessions(defaults=Budgets(tokens=10))
    sessions.open("rich", Budgets(tokens=1000))
    assert sessions.left("new") == (("tokens", 10),)
    assert isinstance(sessions.debit(task(session_id="new", prompt_tokens=11)), Refused)
    assert sessions.debit(task(session_id="rich", prompt_tokens=11)) is None
    assert isinstance(sessions.open("rich", Budgets(tokens=1000)), Refused)
    assert sessions.left("rich") == (("tokens", 989),)


def test_without_budgets_nothing_is_counted() -> None:
    sessions = Sessions()
    assert sessions.debit(task(prompt_tokens=10**9)) is None
    assert sessions.debit(TaskRequest("job-2", prompt_tokens=10**9)) is None
    assert (sessions.left("s"), sessions.left(None)) == ((), ())
    assert not sessions.settle("job-1", Used())


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "10"])
def test_an_amount_that_is_no_count_is_refused(wrong: Any) -> None:
    for name in ("tokens", "time_ms", "cost"):
        with pytest.raises(InvalidInput, match=name):
            Budgets(**{name: wrong})
        with pytest.raises(InvalidInput, match=name):
            Used(**{name: wrong})


def test_a_session_with_a_budget_is_not_forgotten_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """OC-CORE-1023a"""
    monkeypatch.setattr(module, "SESSIONS_MAX", 2)
    sessions = Sessions(defaults=Budgets(tokens=10))
    for number in range(2):
        assert sessions.debit(task(f"job-{number}", session_id=f"s{number}", prompt_tokens=10)) is None
    refusal = sessions.debit(task("job-2", session_id="s2", prompt_tokens=10))
    assert isinstance(refusal, Refused)
    assert refusal.code == "QUEUE_FULL"
    assert sessions.close("s0")
    assert sessions.debit(task("job-2", session_id="s2", prompt_tokens=10)) is None
    assert isinstance(sessions.open("s3", Budgets()), Refused)
    assert not sessions.settle("job-0", Used())


def test_the_longest_unused_last_good_replica_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """OC-CORE-1013"""
    monkeypatch.setattr(module, "LAST_GOOD_MAX", 2)
    sessions = Sessions()
    for session_id in ("a", "b", "a", "c"):
        sessions.succeeded(session_id, f"r-{session_id}")
    assert [sessions.last_good(name) for name in "abc"] == ["r-a", None, "r-c"]


def test_a_session_belongs_to_the_partition_of_its_id() -> None:
    """X-030"""
    parts = [Sessions(partition_id=number, partitions=4) for number in range(4)]
    for name in (f"session-{number}" for number in range(20)):
        answers = [part.open(name, Budgets(tokens=5)) for part in parts]
        owners = [number for number, answer in enumerate(answers) if answer is None]
        assert owners == [partition_of(name, 4)]
        refusals = [answer for answer in answers if answer is not None]
        assert {refusal.code for refusal in refusals} == {"NOT_PARTITION_OWNER"}
        stranger = parts[(owners[0] + 1) % 4].debit(task(session_id=name))
        assert isinstance(stranger, Refused)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 40), st.sampled_from(["debit", "settle", "refund"]))),
)
def test_parallel_jobs_of_all_partitions_never_overspend_a_session(steps: list[tuple[int, int, str]]) -> None:
    """OC-CORE-1023a, X-030"""
    owner = Sessions(partition_id=partition_of("s", 4), partitions=4)
    owner.open("s", Budgets(tokens=100))
    open_jobs: dict[str, int] = {}
    spent = 0
    for number, (tokens, used, what) in enumerate(steps):
        if what == "debit":
            room = 100 - spent - sum(open_jobs.values())
            refusal = owner.debit(task(f"job-{number}", prompt_tokens=tokens))
            assert (refusal is None) == (tokens <= room)
            if refusal is None:
                open_jobs[f"job-{number}"] = tokens
        elif open_jobs:
            job_id, held = open_jobs.popitem()
            owner.settle(job_id, Used(tokens=min(used, held))) if what == "settle" else owner.refund(job_id)
            spent += min(used, held) if what == "settle" else 0
        assert owner.left("s") == (("tokens", 100 - spent - sum(open_jobs.values())),)
        assert spent + sum(open_jobs.values()) <= 100
        assert Sessions.restore(decode(encode(owner.snapshot()))).snapshot() == owner.snapshot()


def test_a_restored_session_goes_on_where_it_was() -> None:
    sessions = Sessions(defaults=Budgets(tokens=10), affinity=True)
    sessions.debit(task(prompt_tokens=7))
    for session_id in ("b", "a"):
        sessions.succeeded(session_id, "r1")
    again = Sessions.restore(decode(encode(sessions.snapshot())))
    assert again.settle("job-1", Used(tokens=2))
    assert again.left("s") == (("tokens", 8),)
    assert again.last_good("a") == "r1"
    assert [name for name, _ in again.snapshot()["last_good"]] == ["b", "a"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"defaults": [1]},
        {"accounts": [["s", [-1, None, None], [0, 0, 0]]]},
        {"accounts": 1},
        {"debits": [["job-1", "nobody", [1, 0, 0]]]},
        {"last_good": [["s"]]},
        {"extra": 1},
    ],
    ids=str,
)
def test_a_snapshot_that_no_sessions_gave_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Sessions.restore({**Sessions().snapshot(), **changes})
