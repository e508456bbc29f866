"""A home whose work waits for a registered replica says so wherever a person looks, and a command gives the work back."""

from __future__ import annotations

import pytest

from detent.canon import encode
from detent.kernel import Order
from detent.owner.session import Session
from detent.scheduling import ReplicaStatus
from tests.cli.project import Project, Terminal, detent_home, eventually, project
from tests.scheduling.fleets import generic, replica

__all__ = ["detent_home", "project"]

ONE = """
name: one
steps:
  - {id: only, run: {python: "tasks:double", with: {n: 2}}}
"""


def register(project: Project, status: ReplicaStatus) -> None:
    with Session(project.home) as session:
        (answer,) = session.ask([Order(0, "replica_register", encode({"replica": status.to_map()}))])
    assert answer.refusal is None


@pytest.fixture
def waiting(project: Project) -> Terminal:
    """A run in another terminal, on a home where one replica is registered and nothing works for it."""
    register(project, generic("gpu-7"))
    running = project.terminal("run", project.write("one.yaml", ONE), "-w", "1", "-o", "json")
    eventually(lambda: any(job["state"] == "queued" for job in project.json("list", "--jobs")), "nothing was submitted")
    return running


def test_a_run_that_waits_for_a_replica_says_so_and_goes_on_when_it_is_removed(
    project: Project, waiting: Terminal
) -> None:
    """OC-CORE-1010, X-093: what a command removes no longer holds the home's own workers up."""
    assert waiting.process.stderr is not None
    said = waiting.process.stderr.readline()
    assert "no work for the workers of this process" in said
    assert "`detent replicas remove REPLICA` removes one" in said
    removed = project("replicas", "remove", "gpu-7")
    assert (removed.code, "this home's own workers run its jobs" in removed.out) == (0, True)
    ended = waiting.ended()
    assert (ended.code, ended.document["status"]) == (0, "succeeded")
    assert project.json("replicas") == []


def test_list_explain_and_doctor_name_the_replica_that_jobs_wait_for(project: Project, waiting: Terminal) -> None:
    run_id = project.newest()
    (job,) = project.json("list", "--jobs")
    for words in (["list"], ["list", "--jobs"], ["explain", run_id]):
        said = project(*words).err
        assert "1 queued job waits for a replica, not for a worker of this home" in said
        assert "gpu-7" in said
        assert "detent replicas remove REPLICA" in said
    now = " ".join(project.json("explain", job["job_id"])["now"])
    assert "1 replica is registered (gpu-7), and only registered replicas get jobs" in now
    checks = {check["name"]: check for check in project.json("doctor", "--quick")["checks"]}
    assert checks["replicas"]["status"] == "note"
    assert "gpu-7" in checks["replicas"]["text"]
    (shown,) = project.json("replicas")
    assert (shown["replica_id"], shown["pool_id"], shown["jobs_waiting"]) == ("gpu-7", "pool-a", 1)
    page = project("replicas").out
    assert "gpu-7" in page
    assert "only registered replicas get jobs" in page
    waiting.kill()


def test_a_replica_that_cannot_run_a_step_refuses_it_with_a_typed_error(project: Project) -> None:
    register(project, replica("llama-1"))
    refused = project("run", project.write("one.yaml", ONE), "-w", "1", "-o", "json")
    assert refused.code == 3
    assert refused.document["error"]["code"] == "NO_FEASIBLE_POOL"
    assert "detent replicas" in refused.document["error"]["hint"]


def test_a_home_without_replicas_says_that_its_own_workers_run_its_jobs(project: Project) -> None:
    project.run(project.write("one.yaml", ONE))
    assert project.json("replicas") == []
    assert "own workers" in project("replicas").out
    assert "replica" not in project("list").err
    refused = project("replicas", "remove", "gpu-7")
    assert refused.code == 2
    assert "no replica 'gpu-7' is registered here" in refused.err
