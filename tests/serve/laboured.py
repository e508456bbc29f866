"""A project whose jobs a server's own workers run: what they did is a line in a file, and they wait for a file of the test's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from detent.owner.home import Home, make_home
from detent.owner.wiring import begin_ledger
from tests.serve.served import ANSWER_SECONDS, Served

TASKS = """\
import os
import time


def note(word, place):
    with open(os.path.join(place, "done.txt"), "a") as file:
        file.write(f"{word} {os.getppid()}\\n")
    return word


def wait(word, place):
    with open(os.path.join(place, "begun.txt"), "a") as file:
        file.write(f"{word}\\n")
    while not os.path.exists(os.path.join(place, "go")):
        time.sleep(0.01)
    return note(word, place)


def half(place):
    import detent

    now = detent.context()
    now.progress(0.5, "half of it")
    wait("half", place)
    return now.traceparent


def needs_file(place):
    open(os.path.join(place, "file")).close()
    return note("file", place)
"""
SUBMIT = """\
import json
import sys

import detent
import tasks

name, place, *words = sys.argv[1:]
with detent.Client(workers=0) as client:
    futures = [client.submit(getattr(tasks, name), word, place) for word in words]
    print(json.dumps([future.job_id for future in futures]))
"""


@dataclass(frozen=True, slots=True)
class Laboured:
    """The project and its home."""

    directory: Path

    @property
    def home(self) -> Home:
        return Home(self.directory / ".detent")

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.directory / "state"), "DETENT_HOME": str(self.home.path)}

    def submit(self, name: str, *words: str) -> list[str]:
        """Submit calls of a function from a process without workers; gives the jobs."""
        line = [sys.executable, "submit.py", name, str(self.directory), *words]
        ended = subprocess.run(
            line, cwd=self.directory, env=self.environment, capture_output=True, check=True, timeout=ANSWER_SECONDS
        )
        found: list[str] = json.loads(ended.stdout)
        return found

    def go(self) -> None:
        (self.directory / "go").touch()

    def begun(self) -> list[str]:
        return self._lines("begun.txt")

    def done(self) -> list[str]:
        """The words of the calls that were made to their ends."""
        return sorted(line.split()[0] for line in self._lines("done.txt"))

    def _lines(self, name: str) -> list[str]:
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []


def project(directory: Path) -> Laboured:
    """A project with a new home."""
    (directory / "tasks.py").write_text(TASKS)
    (directory / "submit.py").write_text(SUBMIT)
    make_home(directory / ".detent", begin_ledger)
    return Laboured(directory)


def eventually(is_so: Callable[[], bool], what: str, seconds: float = ANSWER_SECONDS) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"it never came to be: {what}"
        time.sleep(0.02)


def states(served: Served, job_ids: list[str]) -> list[str]:
    """How jobs stand, as the server says."""
    return [served.json(f"/v1/jobs/{job_id}")["status"] for job_id in job_ids]


def ended(served: Served, job_ids: list[str], state: str = "succeeded") -> None:
    """Wait until all of these jobs have ended like this."""
    eventually(lambda: states(served, job_ids) == [state] * len(job_ids), f"all jobs {state}")


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that run."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def offspring_of(served: Served, words: str) -> int:
    """The child of a server whose command line has these words."""
    for number, line in _offspring(served):
        if words in " ".join(line):
            return number
    raise AssertionError(f"the server has no child {words!r}")


def offspring(served: Served) -> set[str]:
    """What the children of a server are: the last part of each one's module."""
    return {line[line.index("-m") + 1].rpartition(".")[2] for _, line in _offspring(served) if "-m" in line}


def _offspring(served: Served) -> Iterator[tuple[int, list[str]]]:
    for task in Path(f"/proc/{served.process.pid}/task").iterdir():
        for word in (task / "children").read_text().split():
            yield int(word), Path(f"/proc/{word}/cmdline").read_bytes().decode().split("\0")
