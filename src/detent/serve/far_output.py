"""What jobs print on other machines while they run, shown where the output of this machine's workers is shown.

A request for a job's output makes its lease *watched* for a while. The worker learns that with its next answer, which its waiting turn
gets at once, and sends what the job has printed so far and prints from then on. That is kept in files below ``live/`` of the home, so
everything that shows the output of running jobs shows this as well. What counts is in the report, once there is one.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from detent.access.turn import PROGRESS, Log, Watch
from detent.canon import NotStrictJson, json_decode
from detent.executor.plain.heard import PROGRESS_CHARS_MAX
from detent.executor.plain.sweep import Presence
from detent.workers.live_output import LIVE_BYTES_MAX, LIVE_DIRECTORY, STDERR, STDOUT, LiveOutput

WATCHED_SECONDS: Final = 30.0
"""For how long a request for a job's output keeps its worker sending."""


class FarOutput:
    """The output of one lease, as far as its worker has sent it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._live: LiveOutput | None = None
        self._sizes = {STDOUT: 0, STDERR: 0}
        self._lock = threading.Lock()
        self._is_closed = False
        self._until = 0.0
        self._followed_until = 0.0
        self.is_told = True
        """Whether the worker knows that it is watched."""
        self.came = asyncio.Event()
        """Set when the first output has come."""

    def watch(self) -> bool:
        """Have the worker send from now on, for a while; whether it has not been asked yet."""
        is_new = not self.is_watched
        self._until = time.monotonic() + WATCHED_SECONDS
        if is_new:
            self.is_told = False
        return is_new

    def follow(self) -> bool:
        """Have the worker send how far the job is, for a while; whether it has not been asked yet."""
        is_new = not self.is_followed
        self._followed_until = time.monotonic() + WATCHED_SECONDS
        if is_new:
            self.is_told = False
        return is_new

    @property
    def is_followed(self) -> bool:
        """Whether its worker is to say how far the job is."""
        return time.monotonic() < self._followed_until

    @property
    def is_watched(self) -> bool:
        """Whether its worker is to send more."""
        return time.monotonic() < self._until and min(self._sizes.values()) < LIVE_BYTES_MAX

    def watched(self, lease_id: bytes) -> Watch:
        """As the worker is told it."""
        return Watch(lease_id, self._sizes[STDOUT], self._sizes[STDERR])

    def take(self, job_id: str, since_ns: int, logs: Iterable[Log]) -> None:
        """Keep what has come, on a thread that may write. Bytes that are here already, or that leave a gap, are left out."""
        with self._lock:
            if self._is_closed:
                return
            if self._live is None:
                self._live = LiveOutput(self._directory)
                self._live.begin(job_id, since_ns)
            for log in logs:
                if log.stream == PROGRESS:
                    if (told := _progress(log.data)) is not None:
                        self._live.progressed(job_id, *told)
                    continue
                have = self._sizes[log.stream]
                fresh = log.data[have - log.offset :] if log.offset <= have else b""
                fresh = fresh[: LIVE_BYTES_MAX - have]
                if fresh:
                    self._live.printed(log.stream, fresh)
                    self._sizes[log.stream] = have + len(fresh)

    def close(self) -> None:
        """Show it no longer."""
        with self._lock:
            self._is_closed = True
            if self._live is not None:
                self._live.end()
                self._live.close()
                self._live = None
                shutil.rmtree(self._directory, ignore_errors=True)


def _progress(data: bytes) -> tuple[float, str] | None:
    """What a worker says of how far a job is, within its bounds; None for anything else, which shows nothing."""
    try:
        told = json_decode(data)
    except NotStrictJson:
        return None
    match told:
        case [int() | float() as fraction, str() as message] if type(fraction) is not bool and 0 <= fraction <= 1:
            return float(fraction), message[:PROGRESS_CHARS_MAX]
    return None


class FarOutputs:
    """Makes the places of outputs below the home. What a killed server left is swept with what killed workers leave."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._presence: Presence | None = None
        self._made = 0

    def new(self) -> FarOutput:
        """A place for the output of one lease."""
        if self._presence is None:
            self._presence = Presence(self._home / LIVE_DIRECTORY)
        self._made += 1
        return FarOutput(self._presence.live / f"{self._presence.tag}.far-{self._made}")

    def close(self) -> None:
        """Remove everything."""
        if self._presence is not None:
            self._presence.close()
            self._presence = None
