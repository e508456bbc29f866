"""Pools on a real Ray: run by `test_ray.py` inside a namespace that has the loopback and nothing else.

One Ray and one server serve all tests, in their order. The head has room for two hosts; nodes with `spot` come and go.
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
import ray
from ray.cluster_utils import Cluster

from tests.serve.elsewhere import ended, task
from tests.serve.laboured import Laboured, eventually, offspring_of, project
from tests.serve.served import ANSWER_SECONDS, Served, start

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "ray"
SPOT = """
[pools.spot]
provision = "ray"
hosts = 0
max = 1

[pools.spot.ray]
address = "ADDRESS"
resources = {spot = 1}
"""


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    # The namespace ends its processes.
    return Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})


@pytest.fixture(scope="module")
def laboured(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Laboured:
    made = project(tmp_path_factory.mktemp("on ray"))
    pools = (EXAMPLE / "pools.toml").read_text().replace('"auto"', f'"{cluster.address}"')
    assert cluster.address in pools
    with (made.home.path / "config.toml").open("a") as settings:
        said = pools + SPOT.replace("ADDRESS", cluster.address)
        settings.write(said.replace('provision = "ray"', f'provision = "ray"\nproject = "{made.directory}"'))
    return made


@pytest.fixture(scope="module")
def served(laboured: Laboured) -> Iterator[Served]:
    environment = {**laboured.environment, "PYTHONPATH": str(laboured.directory)}
    server = start(laboured.home.path, environment, "--project", str(laboured.directory))
    yield server
    server.stop()


def shown(served: Served, pool: str) -> dict[str, Any]:
    return dict(served.json(f"/v1/pools/{pool}"))


def at_work(served: Served, pool: str) -> list[str]:
    return [one["worker_id"] for one in shown(served, pool)["workers"] if one["state"] in {"idle", "busy"}]


def scale(served: Served, pool: str, hosts: int | None) -> None:
    reply = served.ask("POST", f"/v1/pools/{pool}/scale", body=json.dumps({"hosts": hosts}).encode())
    assert reply.status == 200, reply.body


def actors(pool: str) -> list[str]:
    return [
        one["name"] for one in ray.util.list_named_actors(all_namespaces=True) if one["name"].startswith(f"{pool}/")
    ]


def settled(served: Served, pool: str, hosts: int) -> list[str]:
    """Wait until a pool has so many hosts and no more; gives their workers."""
    eventually(
        lambda: len(at_work(served, pool)) == len(actors(pool)) == shown(served, pool)["hosts"] == hosts,
        f"pool {pool} has {hosts} hosts",
    )
    return at_work(served, pool)


def refused(served: Served, pool: str) -> str:
    body = {"task": {"target": "tasks:note", "arguments": ["one", "/"], "pool": pool}}
    reply = served.ask("POST", "/v1/jobs", body=json.dumps(body).encode())
    assert (reply.status, reply.code) == (422, "NO_FEASIBLE_POOL"), reply.body
    return str(reply.json["detail"])


def test_the_example_runs_on_hosts_that_ray_started(served: Served, cluster: Cluster) -> None:
    words = ["run", str(EXAMPLE / "pipeline.yaml"), "--connect", served.told["url"], "-o", "json"]
    environment = {**served.environment, "DETENT_KEY": served.token}
    done = subprocess.run(
        [sys.executable, "-m", "detent", *words],
        env={name: value for name, value in environment.items() if name != "DETENT_HOME"},
        capture_output=True,
        text=True,
        timeout=4 * ANSWER_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run_id = json.loads(done.stdout)["run_id"]
    jobs = served.json(f"/v1/jobs?run={run_id}&limit=100")["items"]
    found = [served.json(f"/v1/jobs/{one['job_id']}") for one in jobs]
    (last,) = [one for one in found if one["step"] == "total"]
    assert last["value"] == {"sum": sum(number * number for number in range(300)), "where": "on Ray"}
    ray.init(cluster.address, namespace="test", log_to_driver=False)
    assert actors("cluster"), "its hosts are detached actors"


def test_a_pool_that_no_node_can_ever_hold_refuses_its_jobs_with_the_reason(served: Served) -> None:
    eventually(lambda: shown(served, "spot")["fault"] is not None, "the keeper has compared the nodes")
    assert "no node of the Ray cluster has 1 CPU, 1 spot; they have 2 CPU, 0 spot" in refused(served, "spot")


def test_a_killed_actor_is_an_interruption_and_is_replaced(served: Served, laboured: Laboured) -> None:
    scale(served, "cluster", 1)
    (first,) = settled(served, "cluster", 1)
    job_id = task(served, "tasks:wait", "actor", str(laboured.directory), pool="cluster")
    eventually(lambda: "actor" in laboured.begun(), "the job runs")
    (name,) = actors("cluster")
    (namespace,) = {one["namespace"] for one in ray.util.list_named_actors(all_namespaces=True) if one["name"] == name}
    ray.kill(ray.get_actor(name, namespace=namespace))
    eventually(lambda: laboured.begun().count("actor") == 2, "another host has it")
    laboured.go()
    done = ended(served, job_id)
    assert (done["status"], done["attempts"], done["interruptions"]) == ("succeeded", 2, 1)
    assert served.json(f"/v1/workers/{first}")["state"] == "retired"
    (laboured.directory / "go").unlink()


def test_hosts_outlive_their_keeper(served: Served) -> None:
    before = settled(served, "cluster", 1)
    os.kill(offspring_of(served, "--pool cluster"), signal.SIGKILL)
    scale(served, "cluster", 2)
    assert set(before) < set(settled(served, "cluster", 2)), "the next keeper goes on with what there is"


def test_a_lost_node_is_an_interruption_and_its_hosts_come_back_with_another_node(
    served: Served, laboured: Laboured, cluster: Cluster
) -> None:
    node = cluster.add_node(num_cpus=1, resources={"spot": 1})
    eventually(lambda: shown(served, "spot")["fault"] is None, "a node can hold a host now")
    scale(served, "spot", 1)
    job_id = task(served, "tasks:wait", "node", str(laboured.directory), pool="spot")
    eventually(lambda: "node" in laboured.begun(), "the job runs")
    cluster.remove_node(node, allow_graceful=False)
    eventually(
        lambda: shown(served, "spot")["fault"] is not None and not shown(served, "spot")["workers"],
        "no node can hold a host any more, and its worker is retired",
    )
    assert "0 spot" in refused(served, "spot")
    cluster.add_node(num_cpus=1, resources={"spot": 1})
    eventually(lambda: laboured.begun().count("node") == 2, "a host on another node has it")
    laboured.go()
    done = ended(served, job_id)
    assert (done["status"], done["interruptions"]) == ("succeeded", 1)


def test_a_pool_that_is_scaled_to_nothing_has_no_actors(served: Served) -> None:
    scale(served, "cluster", 0)
    scale(served, "spot", 0)
    assert settled(served, "cluster", 0) == []
    assert settled(served, "spot", 0) == []
