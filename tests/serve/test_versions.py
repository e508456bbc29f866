"""A server of this version with workers and clients of the previous one, the other way round, and the same home under both."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from detent.store.sqlite.schema_check import migrations
from tests.serve.elsewhere import RemoteWorker, ended, enrolment, task
from tests.serve.laboured import TASKS
from tests.serve.previous import PRESENT, Version, previous
from tests.serve.served import ANSWER_SECONDS, Reply, Served

MORE = """

def speak(place):
    print("it has begun", flush=True)
    return wait("spoken", place)
"""
CLIENT = """\
import json
import sys

import detent
import tasks

url, place = sys.argv[1:]
with detent.Client(url) as client:
    first = client.submit(tasks.note, "called", place).result()
    print(json.dumps([detent.__file__, first, list(client.map(tasks.note, ["a", "b"], [place, place]))]))
"""
PIPELINE = """\
name: two
params:
  place: {type: string}
steps:
  - id: one
    run: {python: "tasks:note", with: {word: one, place: {$param: place}}}
  - id: two
    needs: [one]
    run: {python: "tasks:note", with: {word: two, place: {$param: place}}}
"""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Version:
    return previous(tmp_path_factory.mktemp("previous"))


class Place:
    """A project and its home, used by commands of two versions."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.home = directory, directory / "home"
        (directory / "tasks.py").write_text(TASKS + MORE)
        (directory / "client.py").write_text(CLIENT)
        (directory / "two.yaml").write_text(PIPELINE)
        self.environment = {**os.environ, "XDG_STATE_HOME": str(directory / "state")}

    def run(self, version: Version, line: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line,
            cwd=self.directory,
            env={**version.environment(self.environment), **more},
            capture_output=True,
            text=True,
            timeout=2 * ANSWER_SECONDS,
            check=False,
        )

    def detent(self, version: Version, *words: str, **more: str) -> str:
        """What a command prints, which must succeed."""
        done = self.run(version, version.line(*words), **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refusal(self, version: Version, *words: str, code: int = 4) -> str:
        """What a command says that must not succeed."""
        done = self.run(version, version.line(*words, "--home", str(self.home)))
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr

    @contextmanager
    def serving(self, version: Version) -> Iterator[Served]:
        environment = version.environment(self.environment)
        process = subprocess.Popen(
            version.line("serve", "--home", str(self.home), "--port", "0", "--workers", "0", "-o", "json"),
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            yield Served(process, self.home, told, environment, Path(told["token_file"]).read_text().strip())
            process.terminate()
            assert process.wait(ANSWER_SECONDS) == 0
        finally:
            process.kill()
            process.communicate()

    @contextmanager
    def working(self, version: Version, served: Served, name: str) -> Iterator[RemoteWorker]:
        environment = version.environment(self.environment)
        worker = RemoteWorker(self.directory / name, self.directory, served.told["url"], environment)
        worker.start(enrolment(served))
        assert worker.process is not None
        try:
            worker.wait_for("takes jobs")
            yield worker
        finally:
            worker.process.kill()
            worker.ended()


def submit(served: Served, place: Place, word: str) -> Reply:
    body = {"task": {"target": "tasks:note", "arguments": [word, str(place.directory)]}}
    return served.ask("POST", "/v1/jobs", body=json.dumps(body).encode(), headers={"Idempotency-Key": word})


def work_together(place: Place, served: Served, other: Version) -> None:
    """Everything that a client and a worker of another version do with a server."""
    url, key = served.told["url"], {"DETENT_KEY": served.token}
    with place.working(other, served, "worker") as worker:
        called = place.run(other, [other.line()[0], "client.py", url, str(place.directory)], **key)
        assert called.returncode == 0, called.stderr
        loaded, *values = json.loads(called.stdout)
        assert Path(loaded).is_relative_to(other.source)
        assert values == ["called", ["a", "b"]]

        words = ("run", "two.yaml", "--connect", url, "-p", f"place={place.directory}", "-o", "json")
        run = json.loads(place.detent(other, *words, **key))
        assert run["status"] == "succeeded"

        spoken = task(served, "tasks:speak", str(place.directory))
        follow = subprocess.Popen(
            other.line("logs", spoken, "-f", "--connect", url),
            env={**other.environment(place.environment), **key},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert follow.stdout is not None
        assert any("it has begun" in line for line in follow.stdout), "its output is shown while it runs"
        assert served.json(f"/v1/jobs/{spoken}")["status"] == "running"

        drained = served.ask("POST", f"/v1/workers/{worker.worker_id}/drain")
        assert drained.status == 200, drained.body
        left = submit(served, place, "left").json["job_id"]
        (place.directory / "go").touch()
        assert ended(served, spoken)["value"] == "spoken"
        follow.communicate(timeout=ANSWER_SECONDS)
        assert worker.ended() == 0, "it finishes what it has, takes nothing new, and ends"
        assert served.json(f"/v1/jobs/{left}")["status"] == "queued"


def lines(place: Place) -> list[str]:
    return sorted(line.split()[0] for line in (place.directory / "done.txt").read_text().splitlines())


def test_a_server_works_with_workers_and_clients_of_the_previous_version(tmp_path: Path, before: Version) -> None:
    """A command of that version that would share the home says why it cannot."""
    place = Place(tmp_path)
    place.detent(PRESENT, "init", "--home", str(place.home))
    with place.serving(PRESENT) as served:
        work_together(place, served, before)
        newer = f"was written by a newer detent (schema {len(migrations())}; this one knows 7)"
        asked = ("run", "two.yaml", "-p", f"place={tmp_path}")
        assert "owner runs another version of Detent" in place.refusal(before, *asked, code=2)
        for word in ("list", "verify"):
            assert newer in place.refusal(before, word)
        with place.working(PRESENT, served, "second"):
            assert ended(served, submit(served, place, "left").json["job_id"])["status"] == "succeeded"
    assert newer in place.refusal(before, "serve", "--port", "0")
    place.detent(PRESENT, "verify", "--home", str(place.home))
    assert lines(place) == ["a", "b", "called", "left", "one", "spoken", "two"], "each was done once"


def test_a_home_of_the_previous_version_goes_on_under_this_one(tmp_path: Path, before: Version) -> None:
    """Nothing touches it while a server of that version runs; jobs, keys and workers come along, and there is no way back."""
    place = Place(tmp_path)
    place.detent(before, "init", "--home", str(place.home))
    with place.serving(before) as served:
        work_together(place, served, PRESENT)
        first = submit(served, place, "left")
        said = place.refusal(PRESENT, "run", "two.yaml", "-p", f"place={tmp_path}", code=2)
        assert "owner runs another version of Detent" in said
        assert "stop it" in said
        place.detent(PRESENT, "verify", "--home", str(place.home))
        place.detent(before, "verify", "--home", str(place.home))
        jobs = {one["job_id"] for one in served.json("/v1/jobs")["items"]}
    with place.serving(PRESENT) as served:
        assert {one["job_id"] for one in served.json("/v1/jobs")["items"]} == jobs
        again = submit(served, place, "left")
        assert again.body == first.body, "the key is known"
        with place.working(before, served, "second"):
            assert ended(served, first.json["job_id"])["status"] == "succeeded"
    place.detent(PRESENT, "verify", "--home", str(place.home))
    assert "was written by a newer detent" in place.refusal(before, "serve", "--port", "0")
    assert lines(place) == ["a", "b", "called", "left", "one", "spoken", "two"], "each was done once"
