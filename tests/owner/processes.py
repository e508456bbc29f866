"""Other processes for the tests to talk to and to kill. Nothing here sleeps: every wait is for a line or an end."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.owner.homes import House

CHILD = Path(__file__).with_name("kill_child.py")
WAIT_SECONDS = 60.0


class Child:
    """A process that reads and writes lines of JSON."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.hello: dict[str, Any] = {}
        self._buffer = b""

    def tell(self, message: object) -> None:
        """Send one line."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any] | None:
        """The next line; None when there will be no more."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], WAIT_SECONDS)
            assert ready, f"no line from the child within {WAIT_SECONDS} s"
            piece = os.read(descriptor, 65_536)
            if not piece:
                return None
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        value: dict[str, Any] = json.loads(line)
        return value

    def ask(self, *words: str) -> dict[str, Any]:
        """Send one line and read the answer."""
        self.tell(list(words))
        answer = self.read()
        assert answer is not None, "the child has ended"
        return answer

    def kill(self) -> None:
        """End it the hard way."""
        self.process.kill()
        self.process.wait(WAIT_SECONDS)


def surroundings() -> dict[str, str]:
    """The environment in which another process finds the code under test."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextmanager
def child(*arguments: str) -> Iterator[Child]:
    """Start the program with these arguments; it is gone when the block ends."""
    with subprocess.Popen(
        [sys.executable, str(CHILD), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=surroundings()
    ) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


@contextmanager
def talking(house: House) -> Iterator[Child]:
    """A second process with a session on a home; its first line has been read."""
    with child("talk", str(house.home.path), house.environment["XDG_STATE_HOME"]) as talker:
        hello = talker.read()
        assert hello is not None
        talker.hello = hello
        yield talker
