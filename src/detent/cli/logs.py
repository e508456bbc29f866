"""`detent logs`: what jobs printed, of each attempt, also while they run.

How logs are shown: pieces of output one below the other, with a header where the source changes.
"""

from __future__ import annotations

import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import sleep as pause
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from detent.cli.page import Page
from detent.cli.shell import JSON, ReaderGone, Shell, connectable, teaching
from detent.pages.sheet import Cell
from detent.pages.text import FAINT, safe
from detent.words.quantities import count_text
from detent.words.states import REUSED, RUNNING, SUCCEEDED, word_of

if TYPE_CHECKING:
    from codecs import IncrementalDecoder

    from detent.inspect.logs import AttemptLog, JobLog, Piece
    from detent.owner.home import Home
    from detent.pages.logs import Asked, News
    from detent.runs.find_jobs import Found, FoundJob
    from detent.store.api import StoreReader

POLL_SECONDS: Final = 0.1
IDLE_POLLS: Final = 5
"""Polls without anything running after which a note says that no process is working on the home."""
STDOUT, STDERR = "stdout", "stderr"


@click.command(
    "logs",
    help=teaching(
        "Print what jobs wrote to stdout and stderr: one job, all jobs of a step, or a whole run, with every attempt in"
        " order. For a running job, the output so far is shown. ID is a job, a run, or the name of a workflow or of a step"
        " in its newest run; a prefix of an id is enough.",
        """  detent logs JOB
  detent logs extract --run RUN --stderr
  detent logs RUN -f
""",
    ),
)
@click.argument("identifier", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until it has ended; exit with 1 if it failed.")
@click.option("--stdout", "stream", flag_value=STDOUT, help="Only what went to stdout.")
@click.option("--stderr", "stream", flag_value=STDERR, help="Only what went to stderr.")
@click.option("--run", "run_id", metavar="RUN", help="The run in which ID is a step or a job.")
@click.option("--raw", is_flag=True, help="Write the bytes as they were printed, escape sequences included.")
@connectable
def command(shell: Shell, identifier: str, *, follow: bool, stream: str | None, run_id: str | None, raw: bool) -> int:
    """Print logs."""
    streams = (STDOUT, STDERR) if stream is None else (stream,)
    with _source(shell) as source:
        found = source.find(identifier, run_id)
        is_element = any(job.element is not None for job in found.jobs)
        try:
            if follow:
                shell.ending.code = _follow(shell, source, found, streams, raw=raw)
                if shell.format != JSON and not is_element:
                    return shell.ending.code
                # Jobs may have joined while it was followed.
                found = source.find(identifier, found.run_id if found.kind == "step" else run_id)
            return _answer(shell, source, found, streams, raw=raw)
        except BrokenPipeError as exc:
            raise ReaderGone from exc


class LogSource(Protocol):
    """Where logs come from: a home on this machine, or one behind a server."""

    def find(self, identifier: str, run_id: str | None = None) -> Found:
        """What an identifier stands for."""

    def logs(self, jobs: tuple[FoundJob, ...]) -> Iterator[tuple[FoundJob, JobLog | None]]:
        """What jobs printed so far, in order."""

    def follow(self, asked: Asked) -> News:
        """What is new since it was asked last."""


class LocalLogs:
    """The logs of a home on this machine."""

    def __init__(self, home: Home, reader: StoreReader) -> None:
        from detent.owner.content import Content  # noqa: PLC0415 - keeps `--help` fast

        self._home, self._reader = home, reader
        self._content = Content(reader, home.content_files())

    def find(self, identifier: str, run_id: str | None = None) -> Found:
        """What an identifier stands for."""
        from detent.runs.find_jobs import find_jobs  # noqa: PLC0415

        return find_jobs(self._reader, self._content, identifier, run_id)

    def logs(self, jobs: tuple[FoundJob, ...]) -> Iterator[tuple[FoundJob, JobLog | None]]:
        """What jobs printed so far, in order."""
        from detent.inspect.logs import job_log  # noqa: PLC0415
        from detent.workers.live_output import live_jobs  # noqa: PLC0415

        live = live_jobs(self._home.path)
        for job in jobs:
            yield job, job_log(self._reader, self._content, job.job_id, live.get(job.job_id), job.element)

    def follow(self, asked: Asked) -> News:
        """What is new since it was asked last; waits a moment, so that a loop of it is cheap."""
        from detent.pages.logs import follow  # noqa: PLC0415

        if asked.seen is not None:
            pause(POLL_SECONDS)
        return follow(self._home, self._reader, asked)


@contextmanager
def _source(shell: Shell) -> Iterator[LogSource]:
    if (server := shell.server()) is not None:
        with server:
            yield server
        return
    from detent.owner.wiring import Parts  # noqa: PLC0415 - keeps `--help` fast

    home = shell.home()
    with Parts().open_reader(home.ledger) as reader:
        yield LocalLogs(home, reader)


def _answer(shell: Shell, source: LogSource, found: Found, streams: tuple[str, ...], *, raw: bool) -> int:
    logs = source.logs(found.jobs)
    if shell.format == JSON:
        jobs = [_job_map(job, log, streams) for job, log in logs if log is not None]
        document = {"kind": found.kind, "run_id": found.run_id, "jobs": jobs}
        return shell.answer(document, lambda _: None, code=shell.ending.code)
    page = LogsPage(streams, many=len(found.jobs) > 1, note=shell.note, raw=raw)
    for job, log in logs:
        if log is not None:
            page.job(job, log)
    page.close()
    if not found.jobs:
        what = f"step {found.step!r} of run {found.run_id}" if found.step else f"run {found.run_id}"
        shell.note(f"{what} has no jobs" + (" yet: `detent explain` says what it waits for" if found.step else ""))
    return 0


def _follow(shell: Shell, source: LogSource, found: Found, streams: tuple[str, ...], *, raw: bool) -> int:
    """Print what comes until nothing more can come; gives the exit code."""
    from detent.pages.logs import Asked  # noqa: PLC0415
    from detent.runs.find_jobs import JOB, STEP  # noqa: PLC0415

    asked = Asked(
        [job.job_id for job in found.jobs] if found.kind == JOB else (),
        None if found.kind == JOB else found.run_id,
        found.step if found.kind == STEP else None,
    )
    # What an element printed is known apart from its neighbours' when it has ended.
    is_silent = shell.format == JSON or any(job.element is not None for job in found.jobs)
    page = None if is_silent else LogsPage(streams, many=found.kind != JOB, note=shell.note, raw=raw)
    idle = 0
    while True:
        news = source.follow(asked)
        asked = replace(asked, seen=news.seen)
        if page is not None:
            page.pieces(news.pieces)
        if news.ended:
            break
        idle = idle + 1 if news.waiting and not news.pieces else 0
        if idle == IDLE_POLLS and not news.owned:
            shell.note("no process is working on this home; waiting for one, Ctrl-C stops")
    if page is not None:
        page.close()
    return 0 if news.ok else 1


def _job_map(job: FoundJob, log: JobLog, streams: tuple[str, ...]) -> dict[str, Any]:
    left_out = {STDOUT, STDERR} - set(streams)
    return {
        "job_id": log.job_id,
        "run_id": log.run_id,
        "step": job.step or None,
        "index": job.index,
        "reused": job.reused,
        "state": word_of(log.state),
        "attempts": [
            {name: value for name, value in attempt.to_map().items() if name not in left_out}
            for attempt in log.attempts
        ],
    }


LINE_BYTES_MAX: Final = 64 * 1024
"""A line longer than this is shown before it has ended."""
SANDBOX_KEEPS: Final = "; the rest was cut at the sandbox's limit: raise limits.max_output_kb of a `job` payload, or write long output to a file in /job/out"
_COLOUR: Final = re.compile("(\x1b\\[[0-9;:]*m)")
_LOST: Final = {
    "erased": "was erased",
    "absent": "is not stored here",
    "damaged": "cannot be read; `detent verify` says more",
}


class LogsPage:
    """Standard output with logs on it; what is missing from them is said beside it, by ``note``.

    What a job printed may not act on a terminal, neither this one nor the one behind a pager: it is shown as text, in which
    colours are the only escape sequences, and those on a terminal alone. ``raw`` gives the bytes as they were written.
    """

    def __init__(self, streams: tuple[str, ...], *, many: bool, note: Callable[[str], None], raw: bool = False) -> None:
        self._raw = raw
        self._streams = streams
        self._many = many
        self._note = note
        self._page = Page()
        self._terminal = sys.stdout.isatty()
        self._source: tuple[str, int, str] | None = None
        """Job, attempt and stream that were written last; the stream is empty right below a header."""
        self._decoder: IncrementalDecoder | None = None
        self._within_line = False
        self._begun: dict[tuple[str, int, str], bytes] = {}
        """Beginnings of lines whose end has not come yet."""

    def job(self, job: FoundJob, log: JobLog) -> None:
        """A job as far as it is."""
        several = len(log.attempts) > 1
        printed = False
        for attempt in log.attempts:
            pieces = {name: attempt.stream(name).data for name in self._streams if attempt.stream(name).data}
            # Among many jobs those that printed nothing are not worth a line; among attempts of one they are.
            if pieces if self._many else several:
                self._header(job, attempt.number, _how(attempt), len(log.attempts))
            for name, data in pieces.items():
                self._output(job.job_id, attempt.number, name, data)
            printed = printed or bool(pieces)
            self._missing(job, attempt)
        if not log.attempts and not self._many:
            self._note(f"{job.label} is {word_of(log.state)} and has printed nothing yet")
        elif not printed and not several and not self._many and log.attempts[0].fate == "here":
            self._note(f"{job.label} printed nothing")

    def pieces(self, pieces: Iterable[tuple[FoundJob, Piece]]) -> None:
        """What came while following. Of many jobs that print at once, each whole line says whose it is."""
        for job, piece in pieces:
            if piece.ended is not None:
                self._missing(job, piece.ended)
                self._rest_of(job, piece.attempt)
            elif piece.stream not in self._streams:
                continue
            elif self._many:
                self._lines(job, piece.attempt, piece.stream or "", piece.data)
            else:
                known = self._source is not None and self._source[:2] == (piece.job_id, piece.attempt)
                if not known and piece.attempt > 1:
                    self._header(job, piece.attempt)
                self._output(piece.job_id, piece.attempt, piece.stream or "", piece.data)
        sys.stdout.flush()

    def close(self) -> None:
        """Leave a terminal at the beginning of a line."""
        if self._terminal:
            self._end_line()
        sys.stdout.flush()

    def _lines(self, job: FoundJob, number: int, stream: str, data: bytes) -> None:
        """Whole lines with their job before them; what has no end yet waits for it, unless it gets too long."""
        source = (job.job_id, number, stream)
        *lines, rest = (self._begun.pop(source, b"") + data).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            lines, rest = [*lines, rest], b""
        if rest:
            self._begun[source] = rest
        lead = f"{job.label} | " if number == 1 else f"{job.label} attempt {number} | "
        for line in lines:
            if not self._raw:
                text = printable(line.decode(errors="backslashreplace"), colour=self._page.colour)
                sys.stdout.write(
                    f"\x1b[2m{safe(lead)}\x1b[0m{text}\n" if self._page.colour else f"{safe(lead)}{text}\n"
                )
            else:
                sys.stdout.flush()
                sys.stdout.buffer.write(safe(lead).encode() + line + b"\n")

    def _rest_of(self, job: FoundJob, number: int) -> None:
        for name in self._streams:
            if (job.job_id, number, name) in self._begun:
                self._lines(job, number, name, b"\n")

    def _header(self, job: FoundJob, number: int, how: str = "", total: int = 1) -> None:
        self._end_line()
        self._source = (job.job_id, number, "")
        words = [job.label if job.label == job.job_id else f"{job.label} ({job.job_id})"]
        if total > 1:
            words.append(f"attempt {number} of {total}")
        elif number > 1:
            words.append(f"attempt {number}")
        words += [word for word in (how, REUSED if job.reused else "") if word]
        self._page.line(Cell(f"--- {', '.join(words)} ---", FAINT))

    def _output(self, job_id: str, number: int, stream: str, data: bytes) -> None:
        before, self._source = self._source, (job_id, number, stream)
        if before != self._source:
            self._decoder = getincrementaldecoder("utf-8")("backslashreplace")
            if before is not None and before[:2] == (job_id, number) and before[2]:
                self._end_line()
                self._page.line(Cell(f"--- {stream} ---", FAINT))
        self._within_line = not data.endswith(b"\n")
        if not self._raw and self._decoder is not None:
            sys.stdout.write(printable(self._decoder.decode(data), colour=self._page.colour))
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(data)

    def _end_line(self) -> None:
        if self._within_line:
            sys.stdout.write("\n")
            self._within_line = False

    def _missing(self, job: FoundJob, attempt: AttemptLog) -> None:
        """Say what is not there to be shown."""
        where = f"{job.label}, attempt {attempt.number}"
        if attempt.fate in _LOST:
            self._note(f"{where}: its report {_LOST[attempt.fate]}")
        elif attempt.fate is None and not attempt.running:
            self._note(f"{where}: it ended without a report ({attempt.reason_code}), so what it printed was not kept")
        for name in self._streams:
            stream = attempt.stream(name)
            if stream.fate in _LOST:
                self._note(f"{where}: its {name} {_LOST[stream.fate]}")
            elif stream.truncated:
                why = "" if attempt.sandbox is None else SANDBOX_KEEPS
                self._note(f"{where}: {_kept(stream.data)} of its {name} were kept{why}")


def printable(text: str, *, colour: bool) -> str:
    """Output as a terminal may have it: lines, tabs and colours as they are, everything else that acts spelled out."""
    shown = []
    for place, part in enumerate(_COLOUR.split(text.replace("\r\n", "\n"))):
        if place % 2:
            shown.append(part if colour else "")
        else:
            shown.append("\n".join("\t".join(safe(cell) for cell in line.split("\t")) for line in part.split("\n")))
    return "".join(shown)


def _kept(data: bytes) -> str:
    """Which part of a stream that was too long is there; output of sandboxed code, and old logs, have the first part alone."""
    from detent.executor.plain.capture import GAP  # noqa: PLC0415 - for long output alone

    size = count_text(len(data), "byte")
    return (
        f"only both ends ({size}, with a mark where the middle is left out)"
        if GAP.search(data)
        else f"only the first {size}"
    )


def _how(attempt: AttemptLog) -> str:
    """How an attempt stands: its word, and why where the word alone does not say it."""
    if attempt.running:
        return RUNNING
    word = "" if attempt.status is None else word_of(attempt.status)
    if word == SUCCEEDED or not attempt.reason_code:
        return word
    return f"{word} ({attempt.reason_code})" if word else attempt.reason_code
