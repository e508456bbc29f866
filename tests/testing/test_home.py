"""A temporary home: whole, alone, on the clock it is given, and gone afterwards."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from detent.errors import InvalidInput
from detent.owner.home import find_home
from detent.owner.state_directory import state_directory
from detent.owner.wiring import Parts
from detent.runs.runtime import Runtime
from detent.testing import START_MS, FakeClock, InlineLane, TemporaryHome, temporary_home
from detent.testing.home import scratch_directory
from tests.testing.jobs import ask, claim, state, submission


def test_everything_that_looks_for_a_home_finds_it(detent_home: TemporaryHome, tmp_path: Path) -> None:
    found = find_home(tmp_path, os.environ)
    assert found is not None
    assert found.path == detent_home.path
    assert state_directory(os.environ).is_relative_to(detent_home.directory)


def test_a_home_is_a_whole_one_and_its_ledger_verifies(detent_home: TemporaryHome) -> None:
    session = detent_home.session()
    ask(session, submission(detent_home, "job-1"))
    session.close()
    report = detent_home.verify()
    assert report.ok, report.findings
    assert state(detent_home, "job-1") == "QUEUED"


@pytest.mark.parametrize("job_id", ["first", "second"])
def test_no_test_sees_what_another_did(detent_home: TemporaryHome, job_id: str) -> None:
    assert [state(detent_home, each) for each in ("first", "second")] == [None, None]
    ask(detent_home.session(), submission(detent_home, job_id))


def test_a_home_is_gone_with_its_block_and_its_sessions_are_closed() -> None:
    with temporary_home() as home:
        session = home.session()
        assert home.directory.is_dir()
    assert not home.directory.exists()
    assert session.owned is None


def test_nothing_of_the_user_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    with temporary_home() as home:
        ask(home.session(), submission(home, "job-1"))
        home.close()
        assert [path for path in (home.directory / "state").rglob("*") if path.is_file()]
    assert list(tmp_path.iterdir()) == []


def test_a_home_syncs_as_any_other_does(detent_home: TemporaryHome) -> None:
    """Speed comes from where it lies, never from promises turned off"""
    default = Parts()
    assert detent_home.parts.open_store == default.open_store
    assert detent_home.parts.make_queue == default.make_queue
    where = scratch_directory()
    assert where is None or detent_home.directory.is_relative_to(where)


def test_without_a_fake_clock_a_home_runs_on_the_machines(detent_home: TemporaryHome) -> None:
    assert not isinstance(detent_home.parts.clock, FakeClock)
    with pytest.raises(InvalidInput, match="runs on the machine's clock"):
        detent_home.pass_ms(1)


def test_time_passes_when_the_test_says_so(detent_home: TemporaryHome, detent_clock: FakeClock) -> None:
    """A lease of thirty seconds runs out in a test of a few milliseconds"""
    session = detent_home.session()
    ask(session, submission(detent_home, "job-1"))
    assert claim(session).job_id == "job-1"
    detent_home.pass_ms(29_000)
    assert state(detent_home, "job-1") == "RUNNING"
    detent_home.pass_ms(2_000)
    assert state(detent_home, "job-1") == "FAILED"
    assert detent_clock.wall_ms() == START_MS + 31_000


def test_ticks_follow_the_fake_clock_from_its_beginning(detent_home: TemporaryHome, detent_clock: FakeClock) -> None:
    session = detent_home.session()
    detent_clock.jump(5_000)
    assert ask(session, submission(detent_home, "job-1")) is not None
    assert session.owned is not None
    assert session.owned.owners[0].look(lambda kernel: kernel.tick).result() == START_MS + 5_000


def test_a_jump_of_the_clock_is_a_stall_and_not_the_passing_of_time(
    detent_home: TemporaryHome, detent_clock: FakeClock
) -> None:
    session = detent_home.session()
    ask(session, submission(detent_home, "job-1"))
    claim(session)
    detent_clock.jump(60_000)
    detent_home.take_turns()
    assert state(detent_home, "job-1") == "RUNNING"


def test_parts_can_be_replaced_for_one_session(detent_home: TemporaryHome) -> None:
    granted: list[str] = []
    session = detent_home.session(on_dispatch=lambda grant: granted.append(grant.job_id))
    ask(session, submission(detent_home, "job-1"))
    claim(session)
    assert granted == ["job-1"]


def test_an_inline_executor_refuses_a_second_supervisor_until_the_first_has_closed(detent_home: TemporaryHome) -> None:
    """Each numbers its assignments itself: with one executor, either could take the results of the other."""
    executor = InlineLane(content=detent_home.path / "content")
    open_runtime = partial(Runtime, detent_home.home, parts=detent_home.parts, executors=executor.executors)
    with open_runtime():
        with pytest.raises(InvalidInput, match="already works for another supervisor"):
            open_runtime()
        with open_runtime(workers=0, idle=True):
            pass
    with open_runtime():
        pass
