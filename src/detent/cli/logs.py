"""`detent logs`: what jobs printed, of each attempt, also while they run."""

from __future__ import annotations

from time import sleep as pause
from typing import TYPE_CHECKING, Any, Final

import click

from detent.cli.logs_page import LogsPage
from detent.cli.shell import JSON, ReaderGone, Shell, teaching, with_shell
from detent.words.states import word_of

if TYPE_CHECKING:
    from detent.inspect.logs import JobLog
    from detent.owner.content import Content
    from detent.owner.home import Home
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
@with_shell
def command(shell: Shell, identifier: str, *, follow: bool, stream: str | None, run_id: str | None, raw: bool) -> int:
    """Print logs."""
    from detent.owner.content import Content  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.runs.find_jobs import find_jobs  # noqa: PLC0415

    home = shell.home()
    streams = (STDOUT, STDERR) if stream is None else (stream,)
    with Parts().open_reader(home.ledger) as reader:
        content = Content(reader, home.content_files())
        found = find_jobs(reader, content, identifier, run_id)
        try:
            if follow:
                shell.ending.code = _follow(shell, home, reader, content, found, streams, raw=raw)
                if shell.format != JSON:
                    return shell.ending.code
                # Jobs may have joined while it was followed.
                found = find_jobs(reader, content, identifier, found.run_id if found.kind == "step" else run_id)
            return _answer(shell, home, reader, content, found, streams, raw=raw)
        except BrokenPipeError as exc:
            raise ReaderGone from exc


def _answer(
    shell: Shell,
    home: Home,
    reader: StoreReader,
    content: Content,
    found: Found,
    streams: tuple[str, ...],
    *,
    raw: bool,
) -> int:
    from detent.inspect.logs import job_log  # noqa: PLC0415
    from detent.workers.live_output import live_jobs  # noqa: PLC0415

    live = live_jobs(home.path)
    logs = ((job, job_log(reader, content, job.job_id, live.get(job.job_id))) for job in found.jobs)
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


def _follow(
    shell: Shell,
    home: Home,
    reader: StoreReader,
    content: Content,
    found: Found,
    streams: tuple[str, ...],
    *,
    raw: bool,
) -> int:
    """Print what comes until nothing more can come; gives the exit code."""
    from detent.inspect.follow_logs import Follower  # noqa: PLC0415
    from detent.owner.lock import is_held  # noqa: PLC0415
    from detent.runs.find_jobs import JOB, STEP, found_job  # noqa: PLC0415

    jobs = {job.job_id: job for job in found.jobs}

    def named(job_id: str) -> FoundJob:
        if job_id not in jobs:
            jobs[job_id] = found_job(reader, content, job_id)
        return jobs[job_id]

    step = found.step if found.kind == STEP else None
    follower = Follower(
        reader,
        content,
        home.path,
        list(jobs),
        run_id=None if found.kind == JOB else found.run_id,
        wanted=None if step is None else lambda job_id: named(job_id).step == step,
    )
    page = None if shell.format == JSON else LogsPage(streams, many=found.kind != JOB, note=shell.note, raw=raw)
    idle = 0
    while True:
        pieces = follower.poll()
        if page is not None:
            page.pieces((named(piece.job_id), piece) for piece in pieces)
        if follower.ended:
            break
        idle = idle + 1 if follower.waiting and not pieces else 0
        if idle == IDLE_POLLS and not is_held(home.lock):
            shell.note("no process is working on this home; waiting for one, Ctrl-C stops")
        pause(POLL_SECONDS)
    if page is not None:
        page.close()
    return 0 if follower.ok else 1


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
