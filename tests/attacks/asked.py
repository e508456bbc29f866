"""Asks a home with the real commands, within a limit of memory and of time, and says what no command may do.

Every line runs in a fork of `tests.faults.command`, several in one fork, so that a case costs no start of Python.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.commands import Command, Commands, Stuck

MEMORY_BYTES_MAX = 1536 * 1024 * 1024
"""Of address space, for the commands of one case; on an untouched home they take a fraction of it."""
SECONDS_MAX = 60
"""For one line; each takes less than a second on an untouched home."""
CODES = frozenset(range(6))
"""Exit codes that a command may end with, whatever it was given to read."""
BROKEN = ("Traceback (most recent call last)", "INVARIANT_VIOLATION", "MemoryError")

Line = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one line said."""

    line: Line
    code: int | None
    """None when it did not come to an end."""
    out: str
    err: str
    peak_bytes: int = 0
    took_ms: int = 0

    @property
    def document(self) -> Any:
        """What it printed with `-o json`; None when that is no document."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None

    @property
    def fault(self) -> str | None:
        """Why this is no answer: a bug, no memory, no end."""
        if self.code in CODES and not any(word in self.err for word in BROKEN):
            return None
        return f"`detent {' '.join(self.line)}` ended with {self.code}: {self.err[-1500:]}"


@dataclass(frozen=True, slots=True)
class Desk:
    """Where lines are typed: a directory with an environment, and the server that runs them."""

    commands: Commands
    directory: Path
    environment: dict[str, str]
    outputs: Path

    def start(self, *line: str) -> Command:
        """Type a line in a terminal of its own, without limits, and do not wait for it."""
        return self.commands.start(list(line), self.directory, self.environment, self._out())

    def ask(self, lines: Sequence[Line]) -> list[Answer]:
        """Type the lines one after the other, within the limits; those behind one that killed the process are missing."""
        out = self._out()
        command = self.commands.start(
            [],
            self.directory,
            self.environment,
            out,
            lines=[list(line) for line in lines],
            seconds_max=SECONDS_MAX,
            memory_bytes_max=MEMORY_BYTES_MAX,
        )
        try:
            code = command.wait(SECONDS_MAX * 2 + len(lines))
        except Stuck:
            command.signal(signal.SIGKILL)
            code = command.wait()
        answers = list(self._answers(lines, out))
        if len(answers) < len(lines):
            said = out.with_suffix(".err").read_text(errors="replace")
            answers.append(Answer(lines[len(answers)], code or None, "", said or "it said nothing"))
        out.unlink()
        out.with_suffix(".err").unlink(missing_ok=True)
        return answers

    def one(self, *line: str) -> Answer:
        """Type one line."""
        return self.ask([line])[0]

    def _out(self) -> Path:
        self.outputs.mkdir(exist_ok=True)
        return self.outputs / f"{len(list(self.outputs.iterdir()))}.json"

    def _answers(self, lines: Sequence[Line], out: Path) -> Iterator[Answer]:
        for line, said in zip(lines, out.read_bytes().splitlines(), strict=False):
            try:
                yield Answer(line, **json.loads(said))
            except ValueError:
                return


def faults(answers: Sequence[Answer]) -> list[str]:
    """Everything that is no answer."""
    return [answer.fault for answer in answers if answer.fault is not None]
