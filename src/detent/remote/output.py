"""What the jobs of a worker elsewhere print, for those of them that a client of the server looks at.

The server says with every answer which leases are watched, and how much of their output it has. What a running job has printed beyond
that is read from its files (`detent.workers.live_output`) and goes with the next turn. An answer always says how much came, so
nothing is lost with a turn, and what was sent twice does no harm. Reports bring the whole output in any case. How far a task is goes the
same way, for those that a client follows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from detent.access.turn import LOG_BYTES_MAX, LOGS_MAX, PROGRESS, Log, Watch
from detent.workers.live_output import STDERR, STDOUT, LiveJob, live_jobs, live_progress

BYTES_MAX: Final = 2 * 1024 * 1024
"""Of output that one turn brings."""


class SentOutput:
    """What is watched, and what goes with the next turn. The caller holds a lock, but for `read`."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self.watched: dict[bytes, dict[str, int]] = {}
        """By lease: how much of each stream was sent, or will be with the next turn."""
        self.followed: dict[bytes, bytes] = {}
        """By lease: what was said last of how far its job is."""
        self._fresh: list[Log] = []

    @property
    def is_asked(self) -> bool:
        """Whether the server wants to hear anything."""
        return bool(self.watched or self.followed)

    @property
    def has_fresh(self) -> bool:
        """Whether something is here for the next turn."""
        return bool(self._fresh)

    def watch(self, told: tuple[Watch, ...]) -> None:
        """Take in what an answer says."""
        output = [one for one in told if not one.is_of_progress]
        self.watched = {one.lease_id: {STDOUT: one.stdout_bytes, STDERR: one.stderr_bytes} for one in output}
        followed = [one.lease_id for one in told if one.is_of_progress]
        self.followed = {lease_id: self.followed.get(lease_id, b"") for lease_id in followed}

    def read(self, jobs: Mapping[bytes, str]) -> list[tuple[bytes, LiveJob, dict[str, int]]]:
        """The files of the watched leases among ``jobs``, each with how much of them was sent. Reads the disk."""
        live = live_jobs(self._work)
        watched = list(self.watched.items())
        return [
            (lease_id, live[jobs[lease_id]], dict(sent))
            for lease_id, sent in watched
            if lease_id in jobs and jobs[lease_id] in live
        ]

    def read_progress(self, jobs: Mapping[bytes, str]) -> list[Log]:
        """What the followed leases among ``jobs`` say of how far they are, where that has changed. Reads the disk."""
        followed = [(lease_id, said) for lease_id, said in list(self.followed.items()) if lease_id in jobs]
        told = live_progress(self._work) if followed else {}
        found = [
            (lease_id, said, json.dumps(told[jobs[lease_id]]).encode())
            for lease_id, said in followed
            if jobs[lease_id] in told
        ]
        return [Log(lease_id, PROGRESS, 0, data) for lease_id, said, data in found if data != said]

    def add(self, logs: list[Log]) -> None:
        """Have these go with the next turn."""
        self._fresh += logs

    def take(self) -> tuple[Log, ...]:
        """What goes with this turn."""
        logs, self._fresh = tuple(self._fresh), []
        for log in logs:
            if log.stream == PROGRESS:
                self.followed[log.lease_id] = log.data
            elif (sent := self.watched.get(log.lease_id)) is not None:
                sent[log.stream] = max(sent[log.stream], log.offset + len(log.data))
        return logs

    def not_sent(self) -> None:
        """A turn may be lost: go on when an answer says how much came."""
        self.watched, self.followed, self._fresh = {}, {}, []


def printed_since(found: list[tuple[bytes, LiveJob, dict[str, int]]], most: int = LOGS_MAX) -> list[Log]:
    """What was printed beyond what was sent, as much as one turn may bring, in at most so many pieces."""
    logs: list[Log] = []
    left = BYTES_MAX
    for lease_id, live, sent in found:
        for stream, offset in sent.items():
            data = live.read(stream, offset, min(LOG_BYTES_MAX, left))
            if data and len(logs) < most:
                logs.append(Log(lease_id, stream, offset, data))
                left -= len(data)
    return logs
