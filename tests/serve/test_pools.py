"""Pools whose hosts a server starts as processes: they come, take jobs, are replaced when killed, scaled and let go.

One server without workers of its own serves nearly all tests. It has a pool of two hosts, and one that follows the queue.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.store.content import ProcessMark
from tests.serve.elsewhere import ended, task
from tests.serve.laboured import Laboured, eventually, project
from tests.serve.served import ANSWER_SECONDS, Served, start

POOLS = """
[pools.pair]
provision = "processes"
hosts = 2
max = 3
labels = ["near"]
resources = {gpu = 1}

[pools.queue]
provision = "processes"
max = 2
idle_seconds = 0
"""


@pytest.fixture(scope="module")
def laboured(tmp_path_factory: pytest.TempPathFactory) -> Laboured:
    made = project(tmp_path_factory.mktemp("pools of hosts"))
    with (made.home.path / "config.toml").open("a") as settings:
        settings.write(POOLS)
    return made


@pytest.fixture(scope="module")
def served(laboured: Laboured) -> Iterator[Served]:
    server = start(laboured.home.path, laboured.environment, "--project", str(laboured.directory))
    yield server
    server.stop()


def shown(served: Served, pool: str = "pair") -> dict[str, Any]:
    return dict(served.json(f"/v1/pools/{pool}"))


def at_work(served: Served, pool: str = "pair") -> list[dict[str, Any]]:
    """The hosts that take jobs."""
    return [one for one in shown(served, pool)["workers"] if one["state"] in {"idle", "busy"}]


def settled(served: Served, hosts: int, pool: str = "pair") -> None:
    eventually(lambda: len(at_work(served, pool)) == shown(served, pool)["hosts"] == hosts, f"{pool} has {hosts} hosts")


def scale(served: Served, pool: str, hosts: int | None) -> Any:
    reply = served.ask("POST", f"/v1/pools/{pool}/scale", body=json.dumps({"hosts": hosts}).encode())
    assert reply.status == 200, reply.body
    return reply.json


def command(laboured: Laboured, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "detent", "pools", *words],
        env=laboured.environment,
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
        check=False,
    )


def process_of(laboured: Laboured, host_id: str) -> int:
    mark = ProcessMark.parse(
        (laboured.home.path / "serve" / "pools" / "pair" / host_id / "process").read_text().split("/")
    )
    assert mark is not None
    return mark.pid


def operated(served: Served, action: str) -> list[dict[str, Any]]:
    return [one for one in served.json("/v1/audit?server=true&limit=200")["items"] if one["action"] == action]


@pytest.mark.door("detent pools", "GET /v1/pools", "GET /v1/pools/{pool}")
def test_a_pool_has_the_hosts_of_its_settings_and_they_take_its_jobs(served: Served, laboured: Laboured) -> None:
    settled(served, 2)
    done = ended(
        served,
        task(served, "tasks:note", "one", str(laboured.directory), pool="pair", labels=["near"], resources={"gpu": 1}),
    )
    assert done["status"] == "succeeded"
    assert done["worker"].partition("/")[0] in {one["worker_id"] for one in shown(served)["workers"]}
    (listed,) = [one for one in served.json("/v1/workers")["items"] if done["worker"].startswith(one["worker_id"])]
    assert (listed["pools"], listed["labels"]) == (["pair"], ["near", "provisioned:processes"])
    said = json.loads(command(laboured, "list", "-o", "json").stdout)["pools"]
    assert [(one["pool"], one["wanted"], one["scaled"]) for one in said] == [("pair", 2, False), ("queue", None, False)]
    page = command(laboured)
    assert page.returncode == 0, page.stderr
    assert "pair   processes  2      2" in page.stdout


@pytest.mark.door("POST /v1/jobs")
def test_a_job_that_no_host_of_the_pool_could_take_is_refused_with_the_reason(served: Served) -> None:
    body = {"task": {"target": "tasks:note", "arguments": ["one", "/"], "pool": "queue", "resources": {"cpu": 2}}}
    reply = served.ask("POST", "/v1/jobs", body=json.dumps(body).encode())
    assert (reply.status, reply.code) == (422, "NO_FEASIBLE_POOL")
    assert "2 cpu" in reply.json["detail"]


@pytest.mark.door("detent pools scale", "POST /v1/pools/{pool}/scale")
def test_scaling_is_recorded_and_done_and_outside_the_range_refused(served: Served, laboured: Laboured) -> None:
    assert scale(served, "pair", 1)["wanted"] == 1
    settled(served, 1)
    assert command(laboured, "scale", "pair", "3").returncode == 0
    settled(served, 3)
    said = operated(served, "pool.scale")
    assert [one["object_id"] for one in said] == ["pair", "pair"]
    assert shown(served)["scaled"] is True
    reply = served.ask("POST", "/v1/pools/pair/scale", body=b'{"hosts": 4}')
    assert (reply.status, reply.code) == (400, "VALIDATION_ERROR")
    assert "from 0 to 3 hosts" in reply.json["detail"]
    refused = command(laboured, "scale", "pair", "4")
    assert refused.returncode == 2
    assert "from 0 to 3 hosts" in refused.stderr
    assert command(laboured, "scale", "pair", "many").returncode == 2
    assert command(laboured, "scale", "none", "1").returncode == 2
    assert served.ask("POST", "/v1/pools/none/scale", body=b'{"hosts": 1}').code == "NOT_FOUND"
    assert command(laboured, "scale", "pair", "auto").returncode == 0
    settled(served, 2)
    assert shown(served)["scaled"] is False


def test_a_killed_host_is_an_interruption_and_is_replaced(served: Served, laboured: Laboured) -> None:
    settled(served, 2)
    job_id = task(served, "tasks:wait", "slow", str(laboured.directory), pool="pair")
    eventually(lambda: "slow" in laboured.begun(), "the job runs")
    (busy,) = [one for one in at_work(served) if one["state"] == "busy"]
    os.kill(process_of(laboured, busy["enrolment_id"]), signal.SIGKILL)
    # Its lease would last a minute; that the process is gone is known at once.
    eventually(lambda: laboured.begun().count("slow") == 2, "another host has it")
    laboured.go()
    done = ended(served, job_id)
    assert (done["status"], done["attempts"], done["interruptions"]) == ("succeeded", 2, 1)
    assert not done["worker"].startswith(busy["worker_id"])
    assert served.json(f"/v1/workers/{busy['worker_id']}")["state"] == "retired"
    settled(served, 2)
    assert not (laboured.home.path / "serve" / "pools" / "pair" / busy["enrolment_id"]).exists()


@pytest.mark.door("POST /v1/workers/{worker_id}/gone")
def test_an_operator_can_say_that_the_machine_of_a_worker_is_gone(served: Served, laboured: Laboured) -> None:
    settled(served, 2)
    first = at_work(served)[0]
    reply = served.ask("POST", f"/v1/workers/{first['worker_id']}/gone")
    assert (reply.status, reply.json["state"]) == (200, "retired")
    eventually(lambda: first["worker_id"] not in {one["worker_id"] for one in at_work(served)}, "it is replaced")
    settled(served, 2)


def test_a_pool_without_a_number_follows_the_queue(served: Served, laboured: Laboured) -> None:
    settled(served, 0, "queue")
    laboured.go()
    jobs = [
        task(served, "tasks:note", f"queued-{number}", str(laboured.directory), pool="queue") for number in range(3)
    ]
    assert [ended(served, job)["status"] for job in jobs] == ["succeeded"] * 3
    settled(served, 0, "queue")


@pytest.mark.door("detent serve")
def test_hosts_end_with_a_server_that_is_killed_and_the_next_one_has_its_own(tmp_path: Path) -> None:
    made = project(tmp_path)
    with (made.home.path / "config.toml").open("a") as settings:
        settings.write(POOLS.replace("hosts = 2", "hosts = 0"))
    served = start(made.home.path, made.environment, "--project", str(made.directory))
    scale(served, "pair", 1)
    settled(served, 1)
    (before,) = at_work(served)
    pid = process_of(made, before["enrolment_id"])
    served.kill()
    again = start(made.home.path, made.environment, "--project", str(made.directory))
    try:
        settled(again, 1)  # The number is on the ledger.
        (after,) = at_work(again)
        assert after["worker_id"] != before["worker_id"]
        eventually(lambda: not Path(f"/proc/{pid}").exists(), "the host of the killed server has ended")
        eventually(
            lambda: again.json(f"/v1/workers/{before['worker_id']}")["state"] == "retired", "its worker is retired"
        )
    finally:
        assert again.stop() == 0
    assert not list((made.home.path / "serve" / "pools" / "pair").iterdir()), "nothing is left of a host that ended"
