"""What jobs printed: from reports, from the files of workers, and while following both."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.errors import InvalidInput
from detent.inspect.logs import QUIET_POLLS, Follower, Piece, job_log
from detent.jobs.work import Failure
from detent.kernel import Cancel, EndRun, StartRun
from detent.owner.content import Content
from detent.owner.wiring import Parts
from detent.runs.find_jobs import OPEN, find_jobs, members, the_run
from detent.store.api import JobRow, StoreReader
from detent.workers.live_output import live_jobs
from tests.reports import Printing, printing

LONG = b"line\n" * 10_000


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[Printing]:
    with printing(tmp_path) as hand:
        yield hand


def failing(hand: Printing, job_id: str, text: bytes) -> None:
    """One attempt that prints and fails in a way that is tried again."""
    hand.report(hand.take(job_id), stdout=text, error=Failure("INTERNAL_ERROR", "WORKER_BROKE", "no"))


def shown(pieces: list[Piece]) -> list[tuple[str, int, str, bytes]]:
    return [(piece.job_id, piece.attempt, piece.stream or "", piece.data) for piece in pieces if piece.data]


# -- reports -----------------------------------------------------------------------------------------------------------


def test_a_jobs_output_is_read_from_its_report(hand: Printing) -> None:
    hand.order("a")
    hand.report(hand.take("a"), stdout=b"out\n", stderr=b"err\n")
    with hand.reading() as (reader, content):
        log = job_log(reader, content, "a")
    assert log is not None
    (attempt,) = log.attempts
    assert (log.state, log.ended) == ("SUCCEEDED", True)
    assert (attempt.number, attempt.status, attempt.worker) == (1, "SUCCEEDED", "worker-a")
    assert (attempt.stdout.data, attempt.stderr.data) == (b"out\n", b"err\n")
    assert (attempt.stdout.truncated, attempt.stderr.truncated) == (False, True)


def test_large_output_is_content_of_its_own_and_may_be_erased(hand: Printing) -> None:
    hand.order("a")
    digest = hand.report(hand.take("a"), stdout=LONG)
    with hand.reading() as (reader, content):
        log = job_log(reader, content, "a")
        assert log is not None
        assert log.attempts[0].stdout.data == LONG
        assert digest is not None
        hand.home.content_files().erase(digest)
        log = job_log(reader, content, "a")
        assert log is not None
        assert (log.attempts[0].stdout.data, log.attempts[0].stdout.fate) == (b"", "absent")


def test_every_attempt_is_there_in_order(hand: Printing) -> None:
    hand.order("a", max_retries=2)
    failing(hand, "a", b"first\n")
    hand.wait_for_retry()
    hand.lose(hand.take("a"))
    hand.wait_for_retry()
    hand.report(hand.take("a"), stdout=b"third\n")
    with hand.reading() as (reader, content):
        log = job_log(reader, content, "a")
    assert log is not None
    assert [(one.number, one.reason_code, one.fate, one.stdout.data) for one in log.attempts] == [
        (1, "WORKER_BROKE", "here", b"first\n"),
        (2, "LEASE_EXPIRED", None, b""),
        (3, "COMPLETED", "here", b"third\n"),
    ]


def test_a_job_that_was_cancelled_while_it_waited_has_no_attempt(hand: Printing) -> None:
    hand.order("a")
    hand.ask(Cancel(0, "demo", "a"))
    with hand.reading() as (reader, content):
        log = job_log(reader, content, "a")
    assert log is not None
    assert (log.state, log.attempts) == ("CANCELED", ())


def test_a_result_that_is_no_report_is_called_unreadable(hand: Printing) -> None:
    hand.order("a")
    hand.hand_in(hand.take("a"), b"no report")
    with hand.reading() as (reader, content):
        log = job_log(reader, content, "a")
        assert job_log(reader, content, "nobody") is None
    assert log is not None
    assert log.attempts[0].fate == "damaged"


# -- live --------------------------------------------------------------------------------------------------------------


def test_a_running_jobs_output_is_read_from_its_worker(hand: Printing) -> None:
    hand.order("a")
    hand.take("a")
    hand.live("w1", "a", stdout=b"so far")
    with hand.reading() as (reader, content):
        log = job_log(reader, content, "a", live_jobs(hand.home.path).get("a"))
    assert log is not None
    (attempt,) = log.attempts
    assert (attempt.running, attempt.worker, attempt.stdout.data, attempt.stderr.data) == (True, "w1", b"so far", b"")


def test_only_a_whole_first_line_names_a_job(hand: Printing) -> None:
    for worker, text in (("w1", b""), ("w2", b"half"), ("w3", b"\nold\n"), ("w4", b"job-4\nmore\n\0\0")):
        hand.live(worker, "x")
        (hand.home.path / "live" / worker / "job").write_bytes(text)
    (hand.home.path / "live" / "w5.lock").write_text("")
    assert list(live_jobs(hand.home.path)) == ["job-4"]


def test_a_home_without_a_worker_has_no_live_jobs(hand: Printing) -> None:
    assert live_jobs(hand.home.path) == {}


def test_of_two_workers_that_claim_one_job_the_newer_is_believed(hand: Printing) -> None:
    for worker, since in (("w3-dead", 1_000), ("w2-living", 2_000), ("w1-buried", 500)):
        hand.live(worker, "a")
        os.utime(hand.home.path / "live" / worker / "job", (since, since))
    assert live_jobs(hand.home.path)["a"].directory.name == "w2-living"


def test_what_a_worker_prints_for_its_next_job_is_not_taken_for_this_one(hand: Printing) -> None:
    hand.live("w1", "a", stdout=b"mine")
    live = live_jobs(hand.home.path)["a"]
    assert live.read("stdout") == b"mine"
    hand.live("w1", "b", stdout=b"another's")
    assert live.read("stdout") == b""


# -- following ---------------------------------------------------------------------------------------------------------


def test_following_gives_each_byte_once_and_ends_with_the_job(hand: Printing) -> None:
    hand.order("a")
    with hand.reading() as (reader, content):
        follower = Follower(reader, content, hand.home.path, ["a"])
        assert (follower.poll(), follower.ended, follower.waiting) == ([], False, True)
        grant = hand.take("a")
        hand.live("w1", "a", stdout=b"one\n")
        assert shown(follower.poll()) == [("a", 1, "stdout", b"one\n")]
        assert not follower.waiting
        assert follower.poll() == []
        hand.live("w1", "a", stdout=b"one\ntwo\n", stderr=b"warn\n")
        assert shown(follower.poll()) == [("a", 1, "stdout", b"two\n"), ("a", 1, "stderr", b"warn\n")]
        hand.report(grant, stdout=b"one\ntwo\nthree\n", stderr=b"warn\n")
        hand.live("w1", "")
        assert shown(follower.poll()) == [("a", 1, "stdout", b"three\n")]
        assert (follower.ended, follower.ok) == (True, True)


def test_following_goes_on_across_attempts_on_the_same_worker(hand: Printing) -> None:
    hand.order("a", max_retries=1)
    with hand.reading() as (reader, content):
        follower = Follower(reader, content, hand.home.path, ["a"])
        grant = hand.take("a")
        hand.live("w1", "a", stdout=b"first, ")
        assert shown(follower.poll()) == [("a", 1, "stdout", b"first, ")]
        hand.report(grant, stdout=b"first, done\n", error=Failure("INTERNAL_ERROR", "WORKER_BROKE", "no"))
        hand.wait_for_retry()
        grant = hand.take("a")
        hand.live("w1", "a", stdout=b"second")
        assert shown(follower.poll()) == [("a", 1, "stdout", b"done\n"), ("a", 2, "stdout", b"second")]
        assert not follower.ended
        hand.report(grant, stdout=b"second", error=Failure("USER_CODE_ERROR", "PYTHON_EXCEPTION", "no"))
        assert shown(follower.poll()) == []
        assert (follower.ended, follower.ok) == (True, False)


def test_attempts_between_two_polls_are_not_missed(hand: Printing) -> None:
    hand.order("a", max_retries=1)
    with hand.reading() as (reader, content):
        follower = Follower(reader, content, hand.home.path, ["a"])
        failing(hand, "a", b"first\n")
        hand.wait_for_retry()
        hand.report(hand.take("a"), stdout=b"second\n")
        pieces = follower.poll()
    assert shown(pieces) == [("a", 1, "stdout", b"first\n"), ("a", 2, "stdout", b"second\n")]
    assert [piece.ended.reason_code for piece in pieces if piece.ended is not None] == ["WORKER_BROKE", "COMPLETED"]


class Slow:
    """A reader whose caller is overtaken once: something happens right after a job was looked up."""

    def __init__(self, reader: StoreReader, happens: Callable[[], None]) -> None:
        self._reader = reader
        self._happens: Callable[[], None] | None = happens
        self.armed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def job(self, job_id: str) -> JobRow | None:
        row = self._reader.job(job_id)
        if self.armed and self._happens is not None:
            happens, self._happens = self._happens, None
            happens()
        return row


def test_the_next_attempts_output_is_not_taken_for_the_rest_of_this_one(hand: Printing) -> None:
    hand.order("a", max_retries=1)
    grant = hand.take("a")

    def overtake() -> None:
        hand.report(grant, stdout=b"abc", error=Failure("INTERNAL_ERROR", "WORKER_BROKE", "no"))
        hand.wait_for_retry()
        hand.take("a")
        hand.live("w1", "a", stdout=b"12345")

    with hand.reading() as (reader, content):
        slow = Slow(reader, overtake)
        follower = Follower(slow, content, hand.home.path, ["a"])
        hand.live("w1", "a", stdout=b"ab")
        assert shown(follower.poll()) == [("a", 1, "stdout", b"ab")]
        slow.armed = True
        assert follower.poll() == []
        assert shown(follower.poll()) == [("a", 1, "stdout", b"c"), ("a", 2, "stdout", b"12345")]


def test_a_run_is_followed_with_the_jobs_that_join_it(hand: Printing) -> None:
    hand.ask(StartRun(0, "demo", "run-9", "nine", bytes(32), bytes(32), bytes(32), "op-9"))
    hand.order("a", run_id="run-9")
    with hand.reading() as (reader, content):
        follower = Follower(reader, content, hand.home.path, [], run_id="run-9")
        hand.report(hand.take("a"), stdout=b"a\n")
        assert shown(follower.poll()) == [("a", 1, "stdout", b"a\n")]
        hand.order("stranger")
        hand.order("b", run_id="run-9")
        for job_id in ("stranger", "b"):
            hand.report(hand.take(job_id), stdout=job_id.encode())
        assert shown(follower.poll()) == [("b", 1, "stdout", b"b")]
        assert not follower.ended
        hand.ask(EndRun(0, "run-9", "completed"))
        assert (follower.poll(), follower.ended, follower.ok) == ([], True, True)


def test_a_step_is_over_when_no_more_of_its_jobs_come(hand: Printing) -> None:
    hand.ask(StartRun(0, "demo", "run-9", "nine", bytes(32), bytes(32), bytes(32), "op-9"))
    hand.order("a", run_id="run-9", step="map", index=0)
    with hand.reading() as (reader, content):
        follower = Follower(reader, content, hand.home.path, ["a"], run_id="run-9", wanted=lambda job_id: job_id < "c")
        hand.report(hand.take("a"))
        follower.poll()
        hand.order("b", run_id="run-9")
        hand.order("c", run_id="run-9")
        follower.poll()
        assert not follower.ended
        hand.report(hand.take("b"), stdout=b"late")
        assert shown(follower.poll()) == [("b", 1, "stdout", b"late")]
        polls = 0
        while not follower.ended:
            follower.poll()
            polls += 1
        assert (polls, follower.ok) == (QUIET_POLLS, True)


# -- finding -----------------------------------------------------------------------------------------------------------


def names(content_reader: tuple[object, Content], identifier: str, run_id: str | None = None) -> tuple[str, list[str]]:
    reader, content = content_reader
    found = find_jobs(reader, content, identifier, run_id)  # type: ignore[arg-type]
    return found.kind, [job.label for job in found.jobs]


def test_jobs_are_found_by_job_run_step_and_the_beginning_of_an_id(hand: Printing) -> None:
    for number in (8, 9):
        hand.ask(StartRun(0, "demo", f"run-{number}", "n", bytes(32), bytes(32), bytes(32), f"op-{number}"))
        hand.order(f"job-{number}-x", run_id=f"run-{number}", step="map", index=1)
        hand.order(f"job-{number}-y", run_id=f"run-{number}", step="map", index=0)
        hand.order(f"job-{number}-z", run_id=f"run-{number}", step="load")
    with hand.reading() as opened:
        assert names(opened, "job-8-x") == ("job", ["map[1]"])
        assert names(opened, "run-8") == ("run", ["load", "map[0]", "map[1]"])
        assert names(opened, "map") == ("step", ["map[0]", "map[1]"])
        assert find_jobs(*opened, "map").run_id == "run-9"
        assert find_jobs(*opened, "map", "run-8").run_id == "run-8"
        assert names(opened, "job-8-z") == ("job", ["load"])
        assert names(opened, "drop") == ("job", ["dropped"])


def test_the_name_of_a_workflow_means_its_newest_run(hand: Printing) -> None:
    for number in (3, 4):
        hand.ask(StartRun(0, "demo", f"sums-{number}", "sums", bytes(32), bytes(32), bytes(32), f"op-{number}"))
    with hand.reading() as opened:
        assert find_jobs(*opened, "sums").run_id == "sums-4"
        assert the_run(opened[0], "sums").run_id == "sums-4"
        assert the_run(opened[0], "sums-3").run_id == "sums-3"
        with pytest.raises(InvalidInput, match="2 open runs are named 'sums'") as refused:
            find_jobs(*opened, "sums", named=OPEN)
        assert "newest first: sums-4, sums-3" in str(refused.value.hint)


def test_the_beginning_of_a_runs_id_is_not_taken_for_its_jobs(hand: Printing) -> None:
    """The ids of an ordered run's jobs begin with the run's."""
    hand.ask(StartRun(0, "demo", "words-17", "w", bytes(32), bytes(32), bytes(32), "op-w"))
    for number in range(3):
        hand.order(f"words-17/seq-{number}", run_id="words-17")
    with hand.reading() as opened:
        assert find_jobs(*opened, "words").run_id == "words-17"
        assert find_jobs(*opened, "words-17/seq-1").kind == "job"
    hand.order("words-other")
    with hand.reading() as opened, pytest.raises(InvalidInput, match="more than one id begins with 'words'"):
        find_jobs(*opened, "words")


@pytest.mark.parametrize(
    ("identifier", "run_id", "said", "hint"),
    [
        ("brokn", None, "there is no job, run or step 'brokn'", "did you mean broken?"),
        ("job-", None, "more than one id begins with 'job-'", "job-a or job-b"),
        ("job", None, "there is no job, run or step 'job'", "did you mean"),
        ("quux", None, "there is no job, run or step 'quux'", "`detent list`"),
        ("map", "run-7", "there is no run 'run-7'", "did you mean run-2 or run-1?"),
        ("mop", "run-2", "there is no job, run or step 'mop' in run 'run-2'", "did you mean map?"),
        ("waiting", "run-1", "there is no job, run or step 'waiting' in run 'run-1'", "`detent list`"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is_near(
    hand: Printing, identifier: str, run_id: str | None, said: str, hint: str
) -> None:
    hand.order("job-a")
    hand.order("job-b")
    hand.order("stepped", run_id="run-2", step="map")
    with hand.reading() as (reader, content), pytest.raises(InvalidInput) as caught:
        find_jobs(reader, content, identifier, run_id)
    assert str(caught.value) == said
    assert hint in (caught.value.hint or "")


def test_jobs_whose_results_a_run_took_over_belong_to_it(hand: Printing) -> None:
    hand.order("old", step="map")
    hand.report(hand.take("old"), stdout=b"then")
    hand.reuse("run-2", "map", "old")
    with hand.reading() as (reader, content):
        (first, *_) = members(reader, content, "run-2")
    assert (first.job_id, first.step, first.reused) == ("old", "map", True)


def test_the_same_reader_sees_what_comes_later(hand: Printing) -> None:
    with Parts().open_reader(hand.home.ledger) as reader:
        assert reader.job("late") is None
        hand.order("late")
        assert reader.job("late") is not None
