"""What a worker on another machine does beside running jobs: it shows their output, brings their code, and takes what suits it.

One server without workers of its own, and one worker elsewhere, serve all tests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.elsewhere import RemoteWorker, ended, enrolment, task
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
