"""Many threads, one owner: whichever takes the turn, each request is decided once and each answer reaches its asker."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from detent.errors import StoreUnavailable
from detent.kernel import Claim, Evidence, Transition, checkpoint, lease_key
from detent.owner import owner as owner_module
from detent.store.api import Store
from tests.kernel.builders import TENANT
from tests.owner.rig import Rig, cancel, finish, heartbeat, stamped, submit

THREADS = 8
WAIT_SECONDS = 60
T = TypeVar("T")


def race(work: Callable[[int], T], count: int = THREADS) -> list[T]:
    """Run the same thing on several threads that start together."""
    barrier = threading.Barrier(count)

    def start(number: int) -> T:
        barrier.wait(WAIT_SECONDS)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return [future.result(WAIT_SECONDS) for future in [pool.submit(start, number) for number in range(count)]]


def dispatch(number: int) -> Transition:
    """QUEUED->RUNNING to another worker for each number, all expecting the same sequence."""
    evidence = Evidence("dispatch", "DISPATCHED", lease_key(TENANT, "job-1", 0, 0), f"worker-{number}").encode()
    return Transition(0, TENANT, "job-1", 0, 0, "QUEUED", "RUNNING", evidence)


def test_of_many_that_race_with_the_same_expected_sequence_one_commits(store: Store) -> None:
    """PIPE-065"""
    rig = Rig(store)
    rig.one(submit())
    rig.owner.start()
    answers = race(lambda number: rig.owner.call([stamped(dispatch(number))])[0])
    rig.owner.close()
    assert Counter(answer.status for answer in answers) == {"COMMITTED": 1, "CONFLICT": THREADS - 1}
    assert rig.edges() == ["QUEUED->RUNNING"]
    conflicts = [answer.refusal for answer in answers if answer.refusal is not None]
    assert all(refusal.details["stored_transition_seq"] == 1 for refusal in conflicts)


def test_the_same_request_from_many_threads_gets_the_same_record(store: Store) -> None:
    """PIPE-066"""
    rig = Rig(store)
    grant = rig.start()
    rig.owner.start()
    answers = race(lambda _number: rig.owner.call([stamped(finish(grant))])[0])
    rig.owner.close()
    assert Counter(answer.status for answer in answers) == {"COMMITTED": 1, "DEDUPLICATED": THREADS - 1}
    assert len({answer.record.body for answer in answers if answer.record is not None}) == 1
    assert rig.edges() == ["QUEUED->RUNNING", "RUNNING->SUCCEEDED"]


def test_every_job_is_claimed_once(store: Store) -> None:
    rig = Rig(store)
    rig.do(*[submit(f"job-{n}") for n in range(100)])
    rig.owner.start()

    def work(number: int) -> list[str]:
        mine: list[str] = []
        while grants := rig.owner.call([stamped(Claim(0, f"worker-{number}", 3))])[0].grants:
            for grant in grants:
                assert rig.owner.ask([stamped(heartbeat(grant))]).result(WAIT_SECONDS)[0].ok
                assert rig.owner.call([stamped(finish(grant))])[0].ok
                mine.append(grant.job_id)
        return mine

    claimed = [job_id for mine in race(work, 4) for job_id in mine]
    rig.owner.close()
    assert sorted(claimed) == sorted(f"job-{n}" for n in range(100))
    assert store.job_counts() == {"SUCCEEDED": 100}
    assert checkpoint(rig.recover().kernel) == rig.checkpoint()


def test_no_caller_waits_for_ever_when_the_owner_closes_meanwhile(store: Store) -> None:
    rig = Rig(store)
    rig.owner.start()
    begun = threading.Semaphore(0)

    def work(number: int) -> list[str]:
        acknowledged: list[str] = []
        for n in range(10_000):
            job_id = f"job-{number}-{n}"
            try:
                (outcome,) = rig.owner.call([stamped(submit(job_id))], timeout=WAIT_SECONDS)
            except StoreUnavailable:
                break
            begun.release()
            if outcome.ok:
                acknowledged.append(job_id)
            rig.owner.ask([stamped(cancel(job_id))])
        return acknowledged

    def close() -> None:
        begun.acquire(timeout=WAIT_SECONDS)
        rig.owner.close()

    closing = threading.Thread(target=close)
    closing.start()
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(work, number) for number in range(4)]
        acknowledged = [job_id for future in futures for job_id in _ended(future.result, WAIT_SECONDS)]
    closing.join(WAIT_SECONDS)
    assert {job_id for job_id in acknowledged if rig.state(job_id) is None} == set()


def _ended(result: Callable[[float], list[str]], seconds: float) -> list[str]:
    try:
        return result(seconds)
    except StoreUnavailable:  # raised by the plain ask
        return []


@pytest.mark.parametrize("starter", ["call", "ask"])
def test_a_request_wakes_the_loop(store: Store, starter: str) -> None:
    rig = Rig(store)
    rig.owner.start()
    if starter == "ask":
        assert rig.owner.ask([stamped(submit())]).result(WAIT_SECONDS)[0].ok
    else:
        assert rig.owner.call([stamped(submit())])[0].ok
    assert rig.owner.look(lambda kernel: sorted(kernel.jobs)).result(WAIT_SECONDS) == ["job-1"]
    rig.owner.close()


def test_a_call_while_another_holds_the_turn_is_answered_by_the_loop(store: Store) -> None:
    rig = Rig(store)
    rig.owner.start()
    with ThreadPoolExecutor(1) as pool:
        with rig.owner._turn_lock:
            waiting = rig.owner.ask([stamped(submit("job-1"))])
            calling = pool.submit(rig.owner.call, [stamped(submit("job-2"))])
        assert calling.result(WAIT_SECONDS)[0].ok
    assert waiting.result(WAIT_SECONDS)[0].ok
    rig.owner.close()


def test_more_requests_than_one_turn_takes_are_all_answered(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller that put them in has woken the loop once, and it must not go to sleep over the rest."""
    monkeypatch.setattr(owner_module, "TURN_ITEMS_MAX", 3)
    rig = Rig(store)
    with rig.owner._turn_lock:
        rig.owner.start()
        futures = [rig.owner.ask([stamped(submit(f"job-{n}"))]) for n in range(20)]
    assert all(future.result(WAIT_SECONDS)[0].ok for future in futures)
    rig.owner.close()


def test_a_lease_runs_out_without_any_request(store: Store) -> None:
    """The loop looks by itself when something falls due."""
    from detent.kernel import BackoffSchedule, LeasePolicy
    from detent.owner.owner import Owner
    from detent.owner.ticks import SystemClock
    from tests.kernel.builders import config
    from tests.owner.rig import LOG_KEY, OWNER_KEY

    settings = config(
        lease_policies=(LeasePolicy("default", 30, 30),), backoff_schedules=(BackoffSchedule("default", (5,)),)
    )
    rig = Rig(store, settings=settings)
    rig.one(submit(max_retries=0))
    owner = Owner(
        store,
        rig.recover(),
        partition=0,
        config=settings,
        batch_key=OWNER_KEY,
        head_key=LOG_KEY,
        clock=SystemClock(),
        keep_head=lambda _head: None,
    )
    ended = threading.Event()
    expire = store.append

    def watched(commit: object) -> None:
        expire(commit)  # type: ignore[arg-type]
        if store.job_counts().get("FAILED"):
            ended.set()

    store.append = watched  # type: ignore[method-assign]
    owner.begin()
    owner.start()
    owner.call([stamped(Claim(0, "dead"))])
    assert ended.wait(WAIT_SECONDS)
    owner.close()
