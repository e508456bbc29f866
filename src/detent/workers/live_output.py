"""What a sandboxed job prints while it runs, where `detent logs -f` looks: the files that a plain worker has, too (`live_logs`).

The sandbox hands every piece over as it comes, cut to the job's limit already. This is for observers; what is kept
is in the report, so a disk that takes nothing more ends the showing and never the job.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from detent.canon.late import dataclass
from detent.errors import HomeUntrusted
from detent.executor.assignment import PROGRESS
from detent.store.files import open_no_follow

STDOUT, STDERR = "stdout", "stderr"
STREAMS: Final = (STDOUT, STDERR)
JOB: Final = "job"
LIVE_DIRECTORY: Final = "live"
LIVE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of a running job's stream, the most that is read at once."""
_JOB_FILE_BYTES_MAX: Final = 4096
_PROGRESS_BYTES_MAX: Final = 64 * 1024


class LiveOutput:
    """The files of one worker. It has one job at a time; only its own thread calls this."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, int] = {}

    def begin(self, job_id: str, since_ns: int | None = None) -> None:
        """Show a job, with nothing printed yet. It begins now, unless it is said since when it runs."""
        with suppress(OSError, HomeUntrusted):
            if not self._files:
                self._directory.mkdir(mode=0o700)
                self._files = {name: self._open(name) for name in (JOB, *STREAMS)}
            for name in STREAMS:
                os.ftruncate(self._files[name], 0)
            # Last, and in one piece: a reader of the name finds nothing of the job before.
            since = "" if since_ns is None else f"{since_ns}\n"
            os.pwrite(self._files[JOB], f"{job_id}\n{since}".encode(), 0)

    def printed(self, stream: str, data: bytes) -> None:
        """Show what was printed."""
        if (file := self._files.get(stream)) is not None:
            with suppress(OSError):
                os.write(file, data)

    def progressed(self, job_id: str, fraction: float, message: str) -> None:
        """Show how far the job is, as a plain worker does."""
        if self._files:
            with suppress(OSError, HomeUntrusted):
                file = open_no_follow(self._directory / PROGRESS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                with os.fdopen(file, "wb") as opened:
                    opened.write(json.dumps([job_id, fraction, message]).encode())

    def end(self) -> None:
        """Show no job any more."""
        if self._files:
            with suppress(OSError):
                os.ftruncate(self._files[JOB], 0)

    def close(self) -> None:
        """Let the files go; the creator of the directory above removes it."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _open(self, name: str) -> int:
        append = 0 if name == JOB else os.O_APPEND
        return open_no_follow(self._directory / name, os.O_WRONLY | os.O_CREAT | append)


@dataclass(frozen=True, slots=True)
class LiveJob:
    """The files of a worker that has a job now."""

    directory: Path
    job_id: str
    since_ns: int
    """When the worker began it; tells the living from the dead where both claim one job."""

    def read(self, stream: str, offset: int = 0, most: int = LIVE_BYTES_MAX) -> bytes:
        """What was printed from ``offset`` on; nothing once the worker has gone on to something else."""
        try:
            with os.fdopen(open_no_follow(self.directory / stream), "rb") as file:
                file.seek(offset)
                data = file.read(most)
        except (OSError, HomeUntrusted):
            return b""
        # Asked again after reading: the worker may have taken another job meanwhile, and these would be that one's bytes.
        now = _live_job(self.directory)
        return data if now is not None and now.job_id == self.job_id else b""


def live_jobs(home: Path) -> dict[str, LiveJob]:
    """Who has which job now, by job; of two that claim one job the newer, because the dead clear nothing away."""
    found: dict[str, LiveJob] = {}
    try:
        directories = sorted((home / LIVE_DIRECTORY).iterdir())
    except OSError:
        return {}
    for directory in directories:
        live = _live_job(directory)
        if live is not None and (live.job_id not in found or live.since_ns > found[live.job_id].since_ns):
            found[live.job_id] = live
    return found


def live_progress(home: Path) -> dict[str, tuple[float, str]]:
    """How far running tasks say they are, by job: a share from 0 to 1, and a message."""
    found: dict[str, tuple[float, str]] = {}
    for job_id, live in live_jobs(home).items():
        try:
            with os.fdopen(open_no_follow(live.directory / PROGRESS), "rb") as file:
                job, fraction, message = json.loads(file.read(_PROGRESS_BYTES_MAX))
        except (OSError, HomeUntrusted, ValueError, TypeError):
            continue  # It says nothing, or is about to say something else.
        if job == job_id and type(fraction) is float and type(message) is str:
            found[job_id] = (fraction, message)
    return found


def live_since(home: Path) -> dict[str, int]:
    """Which jobs workers have now, and since when, in milliseconds since 1970."""
    return {job_id: live.since_ns // 1_000_000 for job_id, live in live_jobs(home).items()}


def _live_job(directory: Path) -> LiveJob | None:
    try:
        with os.fdopen(open_no_follow(directory / "job"), "rb") as file:
            first, newline, rest = file.read(_JOB_FILE_BYTES_MAX).partition(b"\n")
            since = rest.partition(b"\n")[0]
            since_ns = int(since) if since.isdigit() else os.fstat(file.fileno()).st_mtime_ns
    except (OSError, HomeUntrusted):
        return None
    # Without the end of the line the name may be half written; an empty one belongs to a worker that waits.
    return LiveJob(directory, first.decode(errors="replace"), since_ns) if first and newline else None
