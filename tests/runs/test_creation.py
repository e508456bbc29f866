"""Making a job is one unit, and what a worker gets of it holds no key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detent.canon import parse_digest
from detent.errors import DetentError
from detent.jobs.order import Call
from detent.kernel import Job
from detent.reuse.work_keys import no_results
from detent.runs.single_jobs import SingleJobs
from detent.runs.submit.calls import JobRequest
from detent.testing import CrashPoints
from tests.runs.rig import Rig


def call(rig: Rig, number: int = 1) -> JobRequest:
    """One task of the rig's project."""
    work = Call(kind="python", target="steps:double", base=str(rig.project), arguments=(number,))
    return JobRequest(work, "steps:double")


@pytest.mark.parametrize("point", ["sealed", "appended", "committed"])
def test_a_job_is_made_whole_or_not_at_all_and_the_same_again_makes_it_once(
    rig: Rig, detent_crash: CrashPoints, point: str
) -> None:
    """JOB-081, X-006: key, admission, signed manifest, payload and index row stand in one commit; a crash leaves none of
    them or all, and what is asked again afterwards is the same job.
    """
    rig.lane.held = {"steps:double"}
    work = rig.work()
    detent_crash.at(point)
    tasks = SingleJobs(work)
    (ticket,) = tasks.submit([call(rig)])
    assert detent_crash.crashes == [point], "the crash did not come"
    rows = rig.jobs()
    assert [row.job_id for row in rows] == [ticket.job_id]
    job = Job.decode(rows[0].body)
    assert work.backend.content(job.payload_digest) is not None
    key = work.work_keys.of(call(rig).call, no_results).key
    assert key is not None
    with rig.reader() as reader:
        (row,) = reader.work("local", parse_digest(key))
    assert (row.job_id, row.payload_digest) == (ticket.job_id, job.payload_digest)


def test_a_refused_admission_leaves_no_job_no_payload_and_no_key(rig: Rig) -> None:
    """JOB-081: the second half of it."""
    rig.lane.held = {"steps:double"}
    settings = rig.home.path / "config.toml"
    settings.write_text(settings.read_text().replace("capacity_per_class = 256", "capacity_per_class = 1"))
    lane = rig.new_lane(slots=1)
    lane.held = {"steps:double"}
    work = rig.work()
    tasks = SingleJobs(work)
    tasks.submit([call(rig, 1)])
    while not lane.waiting("steps:double"):
        work.supervisor.wake()
    tasks.submit([call(rig, 2)])  # Waits in the queue, which is full now.
    before = len(rig.jobs())
    with pytest.raises(DetentError) as refused:
        tasks.submit([call(rig, 3)], timeout=0.01)
    assert refused.value.code == "QUEUE_FULL"
    assert len(rig.jobs()) == before
    key = work.work_keys.of(call(rig, 3).call, no_results).key
    assert key is not None
    with rig.reader() as reader:
        assert list(reader.work("local", parse_digest(key))) == []
        stored = {digest for digest, _ in reader.content_digests()}
        named = {Job.decode(row.body).payload_digest for row in reader.jobs()}
    assert named <= stored


def test_a_worker_is_given_no_key_and_no_way_into_the_ledger(rig: Rig) -> None:
    """X-028, X-179: the platform signs; a task's process holds its payload, its lease's name and public data.

    Looked at from inside the process: its environment, its command line and everything it has open.
    """
    rig.write(
        """
        import os, pathlib, sys

        def surroundings():
            links = []
            for entry in os.listdir("/proc/self/fd"):
                try:
                    links.append(os.readlink(f"/proc/self/fd/{entry}"))
                except OSError:
                    pass
            maps = pathlib.Path("/proc/self/maps").read_text()
            return [dict(os.environ), links, sys.argv, maps, "nacl" in sys.modules, "apsw" in sys.modules]
        """
    )
    work = rig.pool()
    result = rig.handle(
        work,
        """
        name: look
        steps: [{id: look, run: {python: "steps:surroundings"}}]
        result: {$from: look}
        """,
    ).run()
    environment, links, argv, maps, has_keys, has_ledger = result.value
    secrets = [path.read_text().strip() for path in (rig.home.path / "keys").iterdir()]
    assert secrets
    said = repr([environment, links, argv])
    assert not [secret for secret in secrets if secret in said]
    assert not [link for link in links if "/keys/" in link or "ledger.db" in link or "owner." in link]
    assert str(rig.home.path / "ledger.db") not in maps
    assert (has_keys, has_ledger) == (False, False)
    assert not [name for name in environment if "KEY" in name and name not in os.environ]
    assert Path("/proc/self/fd").exists(), "there was nothing to look at"
