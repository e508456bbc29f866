"""`detent serve` on a ledger in PostgreSQL, with one partition and with four: jobs, runs, a worker elsewhere, and the history."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from detent.inspect.audit import verify_home
from detent.inspect.replay import replay_home
from detent.kernel import partition_of
from detent.owner.home import Home, make_home
from detent.owner.wiring import begin_ledger
from detent.store.postgres.address import PostgresAddress
from detent.store.postgres.reader import PostgresReader
from tests.postgres_server import Server
from tests.serve.elsewhere import ended, remote_worker, task
from tests.serve.laboured import SUBMIT, TASKS, Laboured, eventually
from tests.serve.served import ANSWER_SECONDS, Served, start

PIPELINE = """\
name: notes
params:
  place: {type: string}
steps:
  - id: words
    run: {python: "tasks:words"}
  - id: each
    map: {word: {$from: words}}
    run: {python: "tasks:note", with: {place: {$param: place}}}
"""


@pytest.fixture(scope="module", params=[1, 4], ids=["one-partition", "four-partitions"])
def laboured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres: Server) -> Laboured:
    directory = tmp_path_factory.mktemp("server")
    (directory / "tasks.py").write_text(TASKS + "\n\ndef words():\n    return ['run-a', 'run-b', 'run-c']\n")
    (directory / "submit.py").write_text(SUBMIT)
    (directory / "pipeline.yaml").write_text(PIPELINE)
    make_home(directory / ".detent", begin_ledger, partitions=request.param, store=postgres.address())
    return Laboured(directory)


@pytest.fixture(scope="module")
def served(laboured: Laboured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests, whose jobs a worker elsewhere runs; in the end its history verifies and replays."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "tasks.py").write_text(TASKS)
    server = start(laboured.home.path, laboured.environment, "--project", str(laboured.directory))
    with remote_worker(server, elsewhere) as worker:
        yield server
        assert worker.end() == 0
    assert server.process.poll() is None, "the server ended while it was tested"
    assert server.stop() == 0
    home = Home(laboured.home.path)
    assert verify_home(home, environment=laboured.environment).findings == ()
    assert replay_home(home).ok


def detent(laboured: Laboured, *arguments: str) -> Any:
    """Run a command beside the server; gives its document."""
    asked = subprocess.run(
        [sys.executable, "-m", "detent", *arguments, "-o", "json"],
        capture_output=True, text=True, check=False, cwd=laboured.directory, env=laboured.environment,
        timeout=ANSWER_SECONDS,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)


def test_jobs_over_http_and_from_a_client_run_on_every_partition(served: Served, laboured: Laboured) -> None:
    count = len(detent(laboured, "partitions"))
    jobs = laboured.submit("note", *(f"c{number}" for number in range(8)))
    words = [f"c{number}" for number in range(8)]
    while len(jobs) < 16 or {partition_of(job_id, count) for job_id in jobs} != set(range(count)):
        words.append(f"w{len(words):03}")
        jobs.append(task(served, "tasks:note", words[-1], str(laboured.directory)))
    for job_id in jobs:
        found = ended(served, job_id)
        assert (found["status"], found["attempt"]) == ("succeeded", 1)
    assert [word for word in laboured.done() if word[0] in "wc"] == words


def test_a_run_beside_the_server_is_shown_by_it(served: Served, laboured: Laboured) -> None:
    ran = detent(laboured, "run", "pipeline.yaml", "-p", f"place={laboured.directory}")
    assert ran["status"] == "succeeded"
    assert served.json(f"/v1/runs/{ran['run_id']}")["status"] == "succeeded"
    assert [one["run_id"] for one in detent(laboured, "list")] == [ran["run_id"]]
    assert {"run-a", "run-b", "run-c"} <= set(laboured.done())


def test_a_repeated_request_is_answered_once(served: Served, laboured: Laboured) -> None:
    """PIPE-061"""
    body = json.dumps({"task": {"target": "tasks:note", "arguments": ["once", str(laboured.directory)]}}).encode()
    replies = [served.ask("POST", "/v1/jobs", body=body, headers={"Idempotency-Key": "one"}) for _ in range(2)]
    assert replies[0].json["job_id"] == replies[1].json["job_id"]
    ended(served, replies[0].json["job_id"])
    assert laboured.done().count("once") == 1


def test_partitions_names_the_server_as_owner(served: Served, laboured: Laboured) -> None:
    owners = [one["owner"] for one in detent(laboured, "partitions")]
    assert {one["pid"] for one in owners} == {served.process.pid}
    assert {one["address"] for one in owners} == {served.host}
    assert served.told["owner"] == "here"


def test_an_idle_server_renews_its_leases(served: Served, laboured: Laboured) -> None:
    address = Home(laboured.home.path).ledger
    assert isinstance(address, PostgresAddress)

    def ages() -> list[int]:
        holders = [reader.holder(partition) for partition in range(reader.partitions)]
        return [holder.silent_ms for holder in holders if holder is not None]

    with closing(PostgresReader.open(address)) as reader:
        eventually(lambda: len(ages()) == reader.partitions and min(ages()) >= 0, "every lease was renewed")
        for partition in range(reader.partitions):
            older = max(ages())
            eventually(lambda: ages()[partition] < older, "it is renewed again")  # noqa: B023
    assert served.process.poll() is None
