"""The pages of the documentation as something that runs: their files, their commands and what is printed beneath them.

How a page is read, block by block, in one directory of its own:

* a block whose first line is ``# name.py``, ``# name.yaml`` and so on is that file;
* a ``python`` block without a name is a program; a ``text`` block right after it is what it prints;
* a ``console`` block holds commands (``$ ...``) with what they print. ``&`` leaves a command running as soon as it has
  printed what stands beneath it; ``console tty`` runs on a terminal. A command must end with 0 unless ``$ echo $?`` follows.

What is compared are words: pages may break long lines. Times, durations, digests and ids differ from run to run. Ids are
tied to the page's own: one that comes twice on the page must come twice in the output, and a later command that names it is
given the one that was printed. A line of ``...`` stands for any number of lines.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```([\w ]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:#|--|<!--) (\.?[\w/-]+\.\w+)(?: -->)?")
ANY = "..."

JOB = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
IDENTITY = re.compile(
    rf"{JOB}|(?<![\w/.-])[0-9a-f]{{8}}(?![\w-])|\b[a-z][a-z_]*-[0-9a-f]{{10}}\b|sha256:[0-9a-f]{{6,64}}"
    r"|\bdetent/[0-9a-f]{16}\b"
)
VARIES = (
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]"), ""),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(Z| UTC)?"), "<moment>"),
    (re.compile(r"^\d\d:\d\d:\d\d ", re.MULTILINE), "<time> "),
    (re.compile(r"\b(in|after|waited) \d+ ms\b"), r"\1 <span>"),
    (re.compile(r"\blocal/[0-9a-f]+(/[0-9a-f]+)+"), "<worker>"),
    (re.compile(r"(?<![\w.])(\d+m ?)?\d+(\.\d+)?s\b"), "<span>"),
    (re.compile(r"\b\d+/(\d+) done"), r"<some>/\1 done"),
    (re.compile(r"\b\d+(,\d+)* (batch(es)?|contents|records?|stored rows)\b"), r"<some> \2"),
    (re.compile(r"\bbatch \d+"), "batch <some>"),
    (re.compile(r"\bcontent, \d+(\.\d+)? ([KM]i)?B\b"), "content, <size>"),  # A report holds times, and they differ.
    (re.compile(r"[━╸╺─]{2,}"), "<bar>"),
)
PROGRESS = re.compile(r"^\d\d:\d\d:\d\d .*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: what the fence says, what stands in it, and the line it begins on."""

    language: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """Every fenced block of a page."""
    return [Block(found[1], found[2], page.count("\n", 0, found.start()) + 1) for found in BLOCK.finditer(page)]


@dataclass(slots=True)
class Command:
    """A command line with what the page shows beneath it."""

    line: str
    printed: str = ""


def commands(block: Block) -> list[Command]:
    """The commands of a console block."""
    found: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:]))
        else:
            assert found, f"line {block.line}: a console block begins with a command"
            found[-1].printed += line + "\n"
    return found


class Host:
    """The process that runs the commands; one serves all pages."""

    def __init__(self) -> None:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DETENT", "PYTEST"))},
            "PYTHONPATH": str(ROOT / "src"),
            "TERM": "xterm",
            "COLUMNS": "90",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(Path(__file__).with_name("shell_host.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, **asked: Any) -> Any:
        """Have it start a command, or wait for one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@dataclass(slots=True)
class Reader:
    """A reader who follows a page, word for word, in an empty directory."""

    directory: Path
    page: str
    host: Host | None = None
    ids: dict[str, str] = field(default_factory=dict)
    """The page's ids, and those that were really printed."""
    code: int = 0
    background: tuple[int, Any] | None = None

    def close(self) -> None:
        """End what was left running, if something went wrong."""
        if self.background is not None:
            os.kill(self.background[0], signal.SIGKILL)
            self.finish()

    def follow(self) -> None:
        """Do everything that the page says; what comes out otherwise is an `AssertionError` that names the line."""
        page = blocks(self.page)
        for block, after in pairwise([*page, Block("", "", 0)]):
            named = FILE.fullmatch(block.text.partition("\n")[0])
            if block.language.partition(" ")[0] == "console":
                self.type(block)
            elif named is not None:
                place = self.directory / named[1]
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                (self.directory / "program.py").write_text(block.text, encoding="utf-8")
                printed = after.text if after.language == "text" else ANY
                self.run(Command("python program.py", printed), block.line)

    def type(self, block: Block) -> None:
        """Type the commands of a block."""
        typed = commands(block)
        for command, after in pairwise([*typed, Command("")]):
            self.run(command, block.line, tty=block.language.endswith("tty"))
            assert self.code == 0 or after.line == "echo $?", (
                f"line {block.line}: `{command.line}` ended with {self.code}"
            )

    def run(self, command: Command, line: int, *, tty: bool = False) -> None:
        """Run one command and compare."""
        where = f"line {line}: `{command.line}`"
        given = IDENTITY.sub(lambda found: self._known(found[0], where), command.line)
        if given == "echo $?":
            assert command.printed.strip() == str(self.code), f"{where} is {self.code}"
            self.code = 0
        elif given == "wait":
            _, self.code = self.finish()
        elif given.endswith("&"):
            self._leave_running(shlex.split(given[:-1]), command.printed, where)
        else:
            said, self.code = self._answer(given, tty=tty)
            shown = said if PROGRESS.search(command.printed) else PROGRESS.sub("", said)
            self.compare(command.printed, shown, where)

    def finish(self) -> tuple[str, int]:
        """Wait for what was left running."""
        assert self.background is not None
        pid, output = self.background
        self.background = None
        with output:
            rest = output.read()
        return rest, self._ask(wait=pid)["code"]

    def compare(self, expected: str, said: str, where: str) -> None:
        """Hold what was printed against the page, and learn the ids."""
        parts = [words(part) for part in re.split(r"^ *\.\.\.$", expected, flags=re.MULTILINE)]
        actual = words(said.replace(str(self.directory), "/home/you/demo"))
        place = 0
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            starts = range(place, len(actual) - len(part) + 1)
            if index == 0:
                starts = starts[:1]
            elif last:
                starts = starts[-1:]
            found = next((start for start in starts if self._fits(part, actual[start : start + len(part)])), None)
            ended = found is not None and (not last or found + len(part) == len(actual))
            assert ended, f"{where} printed\n{said}\nand the page says\n{expected}"
            place = (found or 0) + len(part)

    def _fits(self, part: list[str], actual: list[str]) -> bool:
        learned = dict(self.ids)
        for mine, yours in zip(part, actual, strict=True):
            if IDENTITY.sub("<id>", mine) != IDENTITY.sub("<id>", yours):
                return False
            for shown, real in zip(IDENTITY.findall(mine), IDENTITY.findall(yours), strict=True):
                if learned.setdefault(shown, real) != real:
                    return False
        # Two names on the page for one thing are a mistake of the page.
        if len(set(learned.values())) < len(learned):
            return False
        self.ids = learned
        return True

    def _known(self, shown: str, where: str) -> str:
        assert shown in self.ids, f"{where} names {shown}, which nothing printed before"
        return self.ids[shown]

    def _answer(self, line: str, *, tty: bool) -> tuple[str, int]:
        argv = shlex.split(line)
        if argv[0] not in {"detent", "python"} or not {"|", ">", ";"}.isdisjoint(argv):
            if self.background is not None:
                line = line.replace("$!", str(self.background[0]))
            done = subprocess.run(line, shell=True, cwd=self.directory, capture_output=True, text=True, check=False)
            if argv[0] == "kill":
                self.finish()
            return done.stdout + done.stderr, done.returncode
        pid, output = self._start(argv, tty=tty)
        with output:
            said = "".join(_lines(output))
        return (screen(said) if tty else said), self._ask(wait=pid)["code"]

    def _leave_running(self, argv: list[str], printed: str, where: str) -> None:
        pid, output = self._start(argv)
        self.background = pid, output
        wanted = [line for line in printed.splitlines() if line.strip() != ANY]
        said = ""
        for line in output:
            said += line
            if wanted and self._fits_line(wanted[0], line):
                wanted.pop(0)
            if not wanted:
                return
        raise AssertionError(f"{where} ended with\n{said}\nand the page waits for\n{wanted}")

    def _fits_line(self, expected: str, line: str) -> bool:
        mine, yours = words(expected), words(line)
        return len(mine) == len(yours) and self._fits(mine, yours)

    def _start(self, argv: list[str], *, tty: bool = False) -> tuple[int, Any]:
        asked: dict[str, Any] = {"start": argv, "cwd": str(self.directory)}
        asked["environment"] = {"XDG_STATE_HOME": str(self.directory / ".state")}
        if tty:
            reading, writing = pty.openpty()
            pid = self._ask(**asked, output=os.ttyname(writing))["pid"]
            os.close(writing)
        else:
            pipe = self.directory / ".output"
            os.mkfifo(pipe)
            reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
            pid = self._ask(**asked, output=str(pipe))["pid"]
            os.set_blocking(reading, True)
            pipe.unlink()
        return pid, os.fdopen(reading, encoding="utf-8", errors="replace", newline="")

    def _ask(self, **asked: Any) -> Any:
        assert self.host is not None
        return self.host.ask(**asked)


def words(text: str) -> list[str]:
    """The words of an output, with what varies made alike."""
    for pattern, alike in VARIES:
        text = pattern.sub(alike, text)
    return text.split()


def screen(written: str) -> str:
    """What stands on a terminal after this was written to it: enough of one for a block that is drawn over itself."""
    rows, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if piece == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif piece == "\r":
            column = 0
        elif piece == "\x1b[K":
            rows[row] = rows[row][:column]
        elif piece == "\x1b[J":
            rows[row:] = [rows[row][:column]]
        elif piece.startswith("\x1b"):
            row -= int(piece[2:-1]) if piece.endswith("A") else 0
        else:
            rows[row] = rows[row][:column] + piece + rows[row][column + len(piece) :]
            column += len(piece)
    return "\n".join(rows)


def _lines(output: Any) -> Iterator[str]:
    try:
        yield from output
    except OSError:  # A terminal whose last writer has left says so, instead of ending.
        return
