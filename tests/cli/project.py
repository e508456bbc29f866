"""A small project on a home of its own, its commands run in this process or, as from another terminal, in one of their own.

Tasks that have to be caught in their middle write their process id into a named pipe and then wait for another one: a test that
opens the first knows that they run, and opening the second lets them go on. Nothing sleeps.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.cli.app import run
from detent.kernel import Run
from detent.owner.content import Content
from detent.owner.home import Home
from detent.runs.record.inputs import RunInputs
from detent.runs.record.recorded_run import inputs_of
from detent.store.sqlite import SqliteStore
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_home
from tests.cli.conftest import Result
from tests.warm import Warm

__all__ = ["Project", "Terminal", "detent_home", "eventually", "project"]

WAIT_SECONDS = 60.0
PAUSE_SECONDS = 0.005
"""Between two looks: what is waited for needs the processor more."""
TASKS = '''\
import os
import pathlib

FACTOR = 2


def numbers(count):
    return list(range(count))


def double(n):
    print("doubling", n)
    return n * FACTOR


def total(values):
    return sum(values)


def wait(**_):
    """Tell that it runs, and wait to be let go; only the first time."""
    if pathlib.Path("go").exists():
        return "went on"
    with open("running", "w") as file:
        file.write(str(os.getpid()))
    with open("release") as file:
        file.read()
    return "released"


def fragile(values):
    if not pathlib.Path("fixed").exists():
        raise ValueError("not yet")
    return sum(values)


def unclear(n):
    exec("n = n")
    return n
'''


class Terminal:
    """A `detent` command in a process group of its own."""

    def __init__(self, project: Project, *arguments: str) -> None:
        self.process = Warm(arguments, project.environment, project.directory)

    def ended(self) -> Result:
        """Wait for its end."""
        out, err = self.process.communicate(timeout=WAIT_SECONDS)
        return Result(self.process.wait(), out, err)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End the command and everything below it the hard way."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=WAIT_SECONDS)

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.kill()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()


class Project:
    """A directory with tasks, contracts and a home."""

    def __init__(self, home: TemporaryHome, capsys: pytest.CaptureFixture[str]) -> None:
        self.temporary = home
        self.directory = home.directory
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "NO_COLOR"},
            **home.environment,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        self.checked = True
        """Whether the history is verified when the test is over."""
        self._capsys = capsys
        self._terminals: list[Terminal] = []
        self.write("tasks.py", TASKS)
        for name in ("running", "release"):
            os.mkfifo(self.directory / name)

    @property
    def home(self) -> Home:
        """The home."""
        return self.temporary.home

    def write(self, name: str, text: str) -> str:
        """Write a file of the project."""
        (self.directory / name).write_text(text)
        return name

    def edit(self, old: str, new: str) -> None:
        """Change the tasks."""
        path = self.directory / "tasks.py"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def __call__(self, *arguments: str) -> Result:
        """Run one command line in this process."""
        self._capsys.readouterr()
        code = run(arguments)
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err, captured.err
        return Result(code, captured.out, captured.err)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The document of a command."""
        result = self(*arguments, "-o", "json")
        assert result.code == code, result.err
        return result.document

    def run(self, file: str, *arguments: str, code: int = 0) -> Any:
        """`detent run` with one worker, in this process."""
        return self.json("run", file, "-w", "1", *arguments, code=code)

    def terminal(self, *arguments: str) -> Terminal:
        """A command in another terminal."""
        made = Terminal(self, *arguments)
        self._terminals.append(made)
        return made

    def wait_running(self) -> int:
        """Wait until a task waits; its process id."""
        pipe = os.open(self.directory / "running", os.O_RDONLY | os.O_NONBLOCK)
        try:
            ready, _, _ = select.select([pipe], [], [], WAIT_SECONDS)
            assert ready, "no task came to wait"
            return int(os.read(pipe, 64))
        finally:
            os.close(pipe)

    def release(self) -> None:
        """Let the waiting task go on."""

        def opened() -> bool:
            try:
                os.close(os.open(self.directory / "release", os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False  # It has not got there yet.
            return True

        eventually(opened, "the task does not wait")

    def newest(self) -> str:
        """The id of the newest run."""
        return str(self.json("list")[0]["run_id"])

    def inputs(self, run_id: str) -> RunInputs:
        """What a run was started with."""
        reader = SqliteStore.open_reader(self.home.ledger_file)
        try:
            row = reader.run(run_id)
            assert row is not None
            found = inputs_of(Content(reader, self.home.content_files()), Run.decode(row.body))
        finally:
            reader.close()
        assert found is not None
        return found

    def close(self) -> None:
        """End what was started."""
        for terminal in self._terminals:
            terminal.close()


@pytest.fixture
def project(
    detent_home: TemporaryHome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    """A project whose home is verified when the test is over."""
    monkeypatch.chdir(detent_home.directory)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in detent_home.environment.items():
        monkeypatch.setenv(name, value)
    made = Project(detent_home, capsys)
    yield made
    made.close()
    assert not made.checked or detent_home.verify().ok


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait for another process to get there."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(PAUSE_SECONDS)


def gone(pid: int) -> bool:
    """Whether a process is no more."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"
