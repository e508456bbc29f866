"""``kill -9`` at named points and at random: what was acknowledged is there, what was refused is not, and it verifies.

Several cycles share a home, so that each opens what the ones before it left behind. The moment of a random kill is a
number of acknowledged answers read, drawn from a seed, and what the process does after printing the last of them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.canon import decode, sha256
from detent.inspect.audit import verify_home
from detent.inspect.replay import replay_home
from detent.kernel import KernelConfig
from detent.kernel.table import LEGAL, TERMINAL
from detent.owner.recovery import recover
from detent.scheduling import Scheduler
from detent.store.sqlite import SqliteStore
from detent.testing import CrashAt
from tests.owner.homes import House
from tests.owner.processes import Child, child

CYCLES_PER_HOME = 6
ACKS_MAX = 25


@pytest.fixture(scope="module")
def forks() -> Iterator[Child]:
    with child("work") as server:
        yield server


class Watch:
    """Everything that was acknowledged on one home, and what the ledger must therefore hold."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.acked: list[dict[str, Any]] = []
        self.together: list[list[str]] = []
        self.refused: set[str] = set()

    def cycle(
        self, forks: Child, *, seed: int, acks: int | None = None, point: str | None = None, times: int = 1
    ) -> None:
        """One life of a worker, ended at a point or after so many acknowledgements."""
        forks.tell(
            {
                "home": str(self.house.home.path),
                "state": self.house.environment["XDG_STATE_HOME"],
                "seed": seed,
                "point": point,
                "times": times,
                "checkpoint": random.Random(seed).choice([3, 20, 1_000]),
            }
        )
        pid, read = 0, 0
        while (line := forks.read()) is not None:
            if "pid" in line:
                pid = line["pid"]
            elif "try" in line:
                self._note_attempt(line["try"])
            elif "ack" in line:
                self.acked += line["ack"]
                read += 1
                if read == acks:
                    os.kill(pid, signal.SIGKILL)
            elif "ended" in line:
                assert line["ended"] == -signal.SIGKILL, f"seed {seed}: it ended by itself"
                return
        raise AssertionError("the server of forks has ended")

    def _note_attempt(self, commands: list[list[str]]) -> None:
        submitted = [job_id for command, job_id in commands if command == "Submit"]
        if submitted:
            self.together.append(submitted)
        self.refused |= {job_id for _, job_id in commands if job_id is not None and job_id.startswith("ghost-")}

    def check(self) -> None:
        """Hold the ledger against what was acknowledged, then verify and replay it."""
        with self.house.reader() as reader:
            for ack in self.acked:
                self._check_ack(reader, ack)
            for jobs in self.together:
                there = [reader.job(job_id) is not None for job_id in jobs]
                assert all(there) or not any(there), f"{jobs} were asked for together: {there}"
            for job_id in self.refused:
                assert reader.job(job_id) is None
                assert list(reader.records_of_job(job_id)) == []
            self._check_jobs(reader)
            recover(reader, 0, KernelConfig(), make_queue=Scheduler).kernel.check()
        report = verify_home(self.house.home, environment=self.house.environment)
        assert report.findings == ()
        assert report.ok

    def _check_ack(self, reader: Any, ack: dict[str, Any]) -> None:
        if ack["refusal"] is not None:
            return
        for job_id, seq, _lease in ack["grants"]:
            assert reader.transition(job_id, seq - 1) is not None, ack
        if ack["job"] is None or ack["seq"] is None:
            return
        row = reader.job(ack["job"])
        assert row is not None, f"an acknowledged job is lost: {ack}"
        assert row.transition_seq >= ack["seq"], f"an acknowledged transition is lost: {ack}"
        if ack["state"] in TERMINAL:
            assert row.state == ack["state"], f"an acknowledged end was undone: {ack}"
        if ack["record"] is not None:
            digests = [sha256(record.body).hex() for record in reader.records_of_job(ack["job"])]
            assert ack["record"] in digests, f"an acknowledged record is lost: {ack}"

    def _check_jobs(self, reader: Any) -> None:
        """A simple fold of its own: every job's records lead to its row, by legal steps."""
        for row in reader.jobs():
            state, seq = "QUEUED", 0
            first, *transitions = reader.records_of_job(row.job_id)
            assert first.kind == "submitted"
            for record in transitions:
                body = decode(record.body)
                assert (body["from_state"], body["transition_seq"]) == (state, seq)
                assert (state, body["to_state"]) in LEGAL
                state, seq = body["to_state"], seq + 1
            assert (row.state, row.transition_seq) == (state, seq)


@pytest.mark.parametrize("point", CrashAt.POINTS)
def test_a_process_killed_at_a_named_point_loses_nothing_it_acknowledged(
    forks: Child, tmp_path: Path, point: str
) -> None:
    """PIPE-070, X-173: the first batch of an epoch, an early one and a later one."""
    watch = Watch(House(tmp_path))
    for number, times in enumerate((1, 2, 9)):
        watch.cycle(forks, seed=1_000 + number, point=point, times=times)
        watch.check()


@pytest.mark.parametrize("home", range(5))
def test_a_process_killed_at_random_loses_nothing_it_acknowledged(forks: Child, tmp_path: Path, home: int) -> None:
    """X-173: thirty lives on five homes."""
    _live(forks, Watch(House(tmp_path)), range(home * CYCLES_PER_HOME, (home + 1) * CYCLES_PER_HOME))


@pytest.mark.slow
@pytest.mark.parametrize("home", range(20))
def test_a_process_killed_500_times_at_random_loses_nothing_it_acknowledged(
    forks: Child, tmp_path: Path, home: int
) -> None:
    """X-173"""
    _live(forks, Watch(House(tmp_path)), range(10_000 + home * 25, 10_000 + (home + 1) * 25))


def _live(forks: Child, watch: Watch, seeds: range) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        if draw.random() < 0.3:
            watch.cycle(forks, seed=seed, point=draw.choice(CrashAt.POINTS), times=draw.randint(1, 30))
        else:
            watch.cycle(forks, seed=seed, acks=draw.randint(1, ACKS_MAX))
        watch.check()
    assert len(watch.acked) > len(seeds), "the workers did next to nothing"
    _replayed(watch.house)


def _replayed(house: House) -> None:
    report = replay_home(house.home)
    assert report.ok, report


def test_the_checks_would_notice_a_loss(forks: Child, tmp_path: Path) -> None:
    """A test that cannot fail is a defect: take a copy from before the last life back, and look again."""
    watch = Watch(House(tmp_path))
    watch.cycle(forks, seed=77, acks=5)
    shutil.copytree(watch.house.home.path, tmp_path / "before", ignore=shutil.ignore_patterns("owner.sock"))
    watch.cycle(forks, seed=78, acks=15)
    watch.check()
    shutil.rmtree(watch.house.home.path)
    shutil.copytree(tmp_path / "before", watch.house.home.path)
    with pytest.raises(AssertionError, match="is lost"):
        watch.check()
    SqliteStore.open_reader(watch.house.home.ledger_file).close()
