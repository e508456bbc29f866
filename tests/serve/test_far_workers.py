"""What a worker on another machine does beside running jobs: it shows their output, brings their code, and takes what suits it.

One server without workers of its own, and one worker elsewhere, serve all tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.errors import DetentError
from detent.kernel import Grant
from detent.store.content import ContentFiles
from tests.serve.elsewhere import HandWorker, RemoteWorker, ended, enrolment, task
from tests.serve.laboured import Laboured, eventually, project
from tests.serve.served import ANSWER_SECONDS, Served, start
from tests.serve.test_events import stream, until

pytestmark = pytest.mark.door("detent worker --connect")

TALK = """

def speak(place, name):
    import sys

    print("first", flush=True)
    print("aside", file=sys.stderr, flush=True)
    while not os.path.exists(os.path.join(place, name)):
        time.sleep(0.01)
    print("second", flush=True)
    return os.environ.get("DETENT_ENROL", "hidden")
"""


@pytest.fixture(scope="module")
def laboured(tmp_path_factory: pytest.TempPathFactory) -> Laboured:
    made = project(tmp_path_factory.mktemp("far"))
    with (made.directory / "tasks.py").open("a") as file:
        file.write(TALK)
    return made


@pytest.fixture(scope="module")
def served(laboured: Laboured) -> Iterator[Served]:
    server = start(laboured.home.path, laboured.environment, "--project", str(laboured.directory))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def worker(served: Served, laboured: Laboured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteWorker]:
    """A worker on "another machine": it has a checkout of the server's project. Its token comes from the environment."""
    directory = tmp_path_factory.mktemp("elsewhere")
    (directory / "tasks.py").write_text((laboured.directory / "tasks.py").read_text())
    environment = {**served.environment, "DETENT_ENROL": enrolment(served)}
    worker = RemoteWorker(directory / "state", directory, served.told["url"], environment)
    worker.start().wait_for("takes jobs")
    yield worker
    assert worker.end() == 0


def output(served: Served, job_id: str, stream: str = "stdout") -> tuple[bytes, str]:
    """What a job has printed, and whether that is all."""
    reply = served.get(f"/v1/jobs/{job_id}/logs?stream={stream}")
    assert reply.status == 200
    return reply.body, reply.headers["detent-log-end"]


@pytest.mark.door("GET /v1/jobs/{job_id}/logs")
def test_output_is_readable_while_the_job_runs_elsewhere_and_whole_afterwards(
    served: Served, laboured: Laboured, worker: RemoteWorker
) -> None:
    job_id = task(served, "tasks:speak", str(laboured.directory), "go-1")
    eventually(lambda: output(served, job_id) == (b"first\n", "false"), "the first line is seen")
    eventually(lambda: output(served, job_id, "stderr") == (b"aside\n", "false"), "the other stream, too")
    shown = served.json(f"/v1/jobs/{job_id}")
    assert shown["status"] == "running"
    (laboured.directory / "go-1").touch()
    assert ended(served, job_id)["status"] == "succeeded"
    assert output(served, job_id) == (b"first\nsecond\n", "true")
    eventually(lambda: not list((laboured.home.path / "live").glob("*.far-*")), "what was shown live is gone")


def test_a_stream_and_a_command_follow_a_job_that_runs_elsewhere(
    served: Served, laboured: Laboured, worker: RemoteWorker
) -> None:
    job_id = task(served, "tasks:speak", str(laboured.directory), "go-2")
    following = subprocess.Popen(
        [sys.executable, "-m", "detent", "logs", job_id, "-f", "--connect", served.told["url"]],
        env={**laboured.environment, "DETENT_KEY": served.token},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with stream(served, f"log:{job_id}") as told:
        (event, _, said) = until(told, "log", stream="stdout")[-1]
        assert (event, said["offset"], said["text"]) == ("log", 0, "first\n")
        assert following.stdout is not None
        assert following.stdout.readline().endswith("first\n")
        (laboured.directory / "go-2").touch()
        said = until(told, "log", stream="stdout")[-1][2]
        assert (said["offset"], said["text"]) == (6, "second\n")
    out, err = following.communicate(timeout=ANSWER_SECONDS)
    assert following.returncode == 0, err
    assert out.count("second") == 1
    assert "first" not in out, "nothing comes twice"


HALF = """\
name: half
params: {place: {type: string}}
steps:
  - {id: half, run: {python: "tasks:half", with: {place: {$param: place}}}}
"""


@pytest.mark.door("route GET /v1/events")
def test_progress_of_a_task_elsewhere_is_told_to_those_who_follow_its_run_or_job(
    served: Served, laboured: Laboured, worker: RemoteWorker, tmp_path: Path
) -> None:
    """Section 2.4"""
    body = json.dumps({"contract": HALF, "params": {"place": str(tmp_path)}}).encode()
    run_id = served.ask("POST", "/v1/runs", body=body).json["run_id"]
    with stream(served, f"run:{run_id}") as told:
        _, event_id, data = until(told, "progress")[-1]
        assert (event_id, data["run_id"], data["fraction"], data["message"]) == (None, run_id, 0.5, "half of it")
        with stream(served, f"job:{data['job_id']}") as own:
            assert until(own, "progress")[-1][2] == data
    (tmp_path / "go").touch()
    assert ended(served, data["job_id"])["worker"].startswith(worker.worker_id)


def test_the_enrolment_token_is_seen_neither_in_the_list_of_processes_nor_by_jobs(
    served: Served, laboured: Laboured, worker: RemoteWorker, tmp_path: Path
) -> None:
    assert worker.process is not None
    assert b"dte_" not in Path(f"/proc/{worker.process.pid}/cmdline").read_bytes()
    (laboured.directory / "go-3").touch()
    job_id = task(served, "tasks:speak", str(laboured.directory), "go-3")
    assert ended(served, job_id)["value"] == "hidden"


def test_a_token_can_be_read_from_standard_input(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(enrolment(served) + "\n")
    line = [
        sys.executable,
        "-m",
        "detent",
        "worker",
        "--connect",
        served.told["url"],
        "--state",
        str(tmp_path / "state"),
    ]
    with file.open() as token:
        worker = subprocess.Popen(
            [*line, "--enrol-file", "-", "--slots", "1"], stdin=token, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
    assert worker.stderr is not None
    assert worker.stderr.readline().startswith("enrolled as ")
    worker.terminate()
    worker.communicate(timeout=ANSWER_SECONDS)


def test_two_tokens_and_an_unreadable_file_are_refused(served: Served, tmp_path: Path) -> None:
    line = [
        sys.executable,
        "-m",
        "detent",
        "worker",
        "--connect",
        served.told["url"],
        "--state",
        str(tmp_path / "state"),
    ]
    wrong = tmp_path / "wrong"
    wrong.write_text("dte_nothing")
    for words, said in (
        (["--enrol", "dte_x", "--enrol-file", "-"], "give one of them"),
        (["--enrol-file", str(tmp_path)], "is a directory"),
        (["--enrol-file", str(wrong)], "its form or its checksum is wrong"),
    ):
        ended = subprocess.run([*line, *words], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
        assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr


CODE = """\
import os
from lib.numbers import STEP


def numbers():
    return [1, 2, 3]


def double(n):
    return 2 * n * STEP


def where(numbers):
    return [os.path.abspath(__file__), sum(numbers)]
"""
CONTRACT = """\
name: shipped
steps:
  - {id: numbers, run: {python: "tasks:numbers"}}
  - {id: double, map: {n: {$from: numbers}}, run: {python: "tasks:double"}}
  - {id: where, run: {python: "tasks:where", with: {numbers: {$from: double}}}}
  - {id: shell, run: {shell: "cat lib/numbers.py"}}
result: {$from: where}
"""


def tree(directory: Path, step: int) -> Path:
    """A project that neither the server nor the worker has. Both have another module of the same name."""
    (directory / "lib").mkdir(parents=True)
    (directory / "lib" / "numbers.py").write_text(f"STEP = {step}\n")
    (directory / "tasks.py").write_text(CODE)
    (directory / "flow.yaml").write_text(CONTRACT)
    return directory


def run_there(served: Served, directory: Path, *words: str) -> dict[str, Any]:
    """`detent run --connect` in a directory; gives its document."""
    ended = subprocess.run(
        [*(sys.executable, "-m", "detent", "run", "flow.yaml", "--connect", served.told["url"], "-o", "json"), *words],
        cwd=directory,
        env={**served.environment, "DETENT_KEY": served.token},
        capture_output=True,
        text=True,
        timeout=2 * ANSWER_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


@pytest.mark.door("detent run --connect")
def test_code_travels_to_a_worker_that_has_no_project(served: Served, worker: RemoteWorker, tmp_path: Path) -> None:
    """The tree comes by its digest, each file checked, into a directory of its own; elements of a map run there, too."""
    run_there(served, tree(tmp_path / "1", 1))
    ran = run_there(served, tree(tmp_path / "10", 10))
    where, total = ran["result"]
    assert total == 120, "the code of this very tree"
    assert Path(where).parent.parent == worker.state / "work" / "trees"
    assert Path(where).stat().st_mode & 0o777 == 0o444
    steps = served.json(f"/v1/runs/{ran['run_id']}/steps")["items"]
    jobs = {one["step"]: one["jobs"][0]["job_id"] for one in steps if one["jobs"]}
    attempts = served.json(f"/v1/jobs/{jobs['double']}/attempts")["items"]
    assert attempts[-1]["worker"].startswith(worker.worker_id)
    assert served.get(f"/v1/jobs/{jobs['shell']}/logs").body == b"STEP = 10\n"


def test_t7_a_tree_is_opened_by_a_lease_that_names_it_and_by_no_other(
    served: Served, laboured: Laboured, worker: RemoteWorker, tmp_path: Path
) -> None:
    """T7: a worker that holds a lease of other work does not get the code of a run."""
    run_there(served, tree(tmp_path / "tree", 7))
    (digest,) = [
        bytes.fromhex(one.name)
        for one in (laboured.home.path / "trees").iterdir()
        if "STEP = 7" in (one / "lib" / "numbers.py").read_text()
    ]
    other = HandWorker(served, tmp_path / "other", enrolment(served))
    served.ask("POST", f"/v1/workers/{worker.worker_id}/drain")
    assert worker.ended() == 0
    job_id = task(served, "tasks:note", "other", str(laboured.directory))
    (one,) = other.turn(wanted=1).grants
    grant = Grant(*one.grant)
    assert grant.job_id == job_id
    files = ContentFiles(tmp_path / "content")
    with pytest.raises(DetentError, match="no live lease of this worker names such content"):
        other.requests.fetch(digest, grant.lease_id, files)
    other.turn(reports=(other.report(grant),))
    other.http.close()
    worker.start(alone=True).wait_for("takes jobs")
