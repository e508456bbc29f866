"""The other end of `tests.faults.command`: starts commands, waits for them, and finds the processes below them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from detent.executor.plain import processes
from detent.executor.plain.wire import MARKER

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 120.0
"""A command that takes longer is stuck."""
LOOK_SECONDS = 0.001


class Stuck(AssertionError):
    """Something that must come has not come."""


class Command:
    """A command that was started."""

    def __init__(self, commands: Commands, number: int, pid: int, out: Path) -> None:
        self.commands = commands
        self.number = number
        self.pid = pid
        self.out = out

    @property
    def has_ended(self) -> bool:
        return self.number in self.commands.ended

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """Its exit code; the negative number of the signal that ended it."""
        return self.commands.wait_for(self.number, seconds)

    def document(self) -> dict[str, Any]:
        """What it answered with ``-o json``."""
        text = self.out.read_text()
        try:
            document: dict[str, Any] = json.loads(text)
        except ValueError:
            raise Stuck(f"the command answered {text[:200]!r}") from None
        return document

    def signal(self, number: int) -> bool:
        """Signal the command itself; whether it was there to hear it."""
        if self.has_ended:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def tree(self) -> list[int]:
        """Everything below the command, parents first."""
        return below(self.pid)

    def hosts(self) -> list[int]:
        """The hosts of its pools: children that bear a pool's mark."""
        return [pid for pid in children_of(self.pid) if is_marked(pid)]

    def workers(self) -> list[int]:
        """The workers of its pools."""
        return [worker for host in self.hosts() for worker in children_of(host)]


class Commands:
    """A server of commands in a process of its own, which has loaded these modules beside the usual ones."""

    def __init__(self, *modules: str) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.command", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        self._lock = threading.Condition()
        self._numbers = 0
        self._started: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self._strays: list[list[str]] = []
        self._closed = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server, and with it everything below."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(WAIT_SECONDS)
        self._thread.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def start(
        self, words: list[str], directory: Path, environment: Mapping[str, str], out: Path, **more: Any
    ) -> Command:
        """Start a command."""
        with self._lock:
            self._numbers += 1
            number = self._numbers
        self._ask(
            do="start",
            number=number,
            words=words,
            directory=str(directory),
            environment=dict(environment),
            out=str(out),
            err=str(out.with_suffix(".err")),
            **more,
        )
        self._until(lambda: number in self._started, "the command did not start")
        return Command(self, number, self._started[number], out)

    def strays(self) -> list[str]:
        """What commands have left behind and does not go by itself. It is ended, so that the next cycle begins clean."""
        with self._lock:
            before = len(self._strays)
        self._ask(do="strays")
        self._until(lambda: len(self._strays) > before, "the server of commands does not answer")
        return self._strays[-1]

    def wait_for(self, number: int, seconds: float) -> int:
        self._until(lambda: number in self.ended, f"the command has not ended within {seconds:g} s", seconds)
        return self.ended[number]

    def _ask(self, **request: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def _until(self, holds: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
        with self._lock:
            if not self._lock.wait_for(lambda: holds() or self._closed, seconds) or not holds():
                raise Stuck(what)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            with self._lock:
                if "started" in told:
                    self._started[told["started"]] = told["pid"]
                elif "ended" in told:
                    self.ended[told["ended"]] = told["code"]
                else:
                    self._strays.append(told["strays"])
                self._lock.notify_all()
        with self._lock:
            self._closed = True
            self._lock.notify_all()


def children_of(pid: int) -> list[int]:
    """The living children of any process."""
    found: list[int] = []
    for other in processes.all_pids():
        fields = processes.stat_fields(other)
        if fields is not None and int(fields[1]) == pid and fields[0] not in {"Z", "X"}:
            found.append(other)
    return found


def below(pid: int) -> list[int]:
    """The living descendants of any process, parents first."""
    parents: dict[int, list[int]] = {}
    for other in processes.all_pids():
        fields = processes.stat_fields(other)
        if fields is not None and fields[0] not in {"Z", "X"}:
            parents.setdefault(int(fields[1]), []).append(other)
    found, turn = [], parents.get(pid, [])
    while turn:
        found += turn
        turn = [child for parent in turn for child in parents.get(parent, [])]
    return found


def is_marked(pid: int) -> bool:
    """Whether a process was started by a pool."""
    try:
        return f"{MARKER}=".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def kill(pids: list[int], number: int = signal.SIGKILL) -> int:
    """Signal processes; how many of them were there."""
    hit = 0
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
        hit += 1
    return hit
