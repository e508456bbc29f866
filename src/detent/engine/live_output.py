"""What a sandboxed job prints while it runs, where `detent logs -f` looks: the files that a plain worker has, too (`live_logs`).

The sandbox hands every piece over as it comes, cut to the job's limit already. This is for whoever watches; what is kept
is in the report, so a disk that takes nothing more ends the showing and never the job.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from detent.engine.live_logs import STREAMS
from detent.errors import HomeUntrusted
from detent.store.no_follow import open_no_follow

JOB: Final = "job"


class LiveOutput:
    """The files of one worker. It has one job at a time; only its own thread calls this."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, int] = {}

    def begin(self, job_id: str) -> None:
        """Show a job, with nothing printed yet."""
        with suppress(OSError, HomeUntrusted):
            if not self._files:
                self._directory.mkdir(mode=0o700)
                self._files = {name: self._open(name) for name in (JOB, *STREAMS)}
            for name in STREAMS:
                os.ftruncate(self._files[name], 0)
            # Last, and in one piece: whoever reads the name finds nothing of the job before.
            os.pwrite(self._files[JOB], f"{job_id}\n".encode(), 0)

    def printed(self, stream: str, data: bytes) -> None:
        """Show what was printed."""
        if (file := self._files.get(stream)) is not None:
            with suppress(OSError):
                os.write(file, data)

    def end(self) -> None:
        """Show no job any more."""
        if self._files:
            with suppress(OSError):
                os.ftruncate(self._files[JOB], 0)

    def close(self) -> None:
        """Let the files go; whoever made the directory's place removes it."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _open(self, name: str) -> int:
        append = 0 if name == JOB else os.O_APPEND
        return open_no_follow(self._directory / name, os.O_WRONLY | os.O_CREAT | append)
