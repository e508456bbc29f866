"""What jobs printed, as it is sent: logs of jobs that are meant by one name, and what is new while they are followed.

Output is bytes, so it travels in base64. An answer has as much as `BYTES_MAX`, and says where to go on. How far a follower has come is told to
it and comes back with the next question: the server remembers nothing, and one that was killed changes nothing.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from detent.errors import InvalidInput
from detent.inspect.logs import AttemptLog, Follower, JobLog, Piece, Seen, StreamLog, job_log
from detent.owner.content import Content
from detent.owner.lock import is_held
from detent.runs.find_jobs import NEWEST, Found, FoundJob, find_jobs, found_job
from detent.workers.live_output import STDERR, STDOUT, live_jobs

if TYPE_CHECKING:
    from detent.owner.home import Home
    from detent.store.api import StoreReader

BYTES_MAX: Final = 8 * 1024 * 1024
_ATTEMPT: Final = (
    *("number", "running", "status", "reason_code", "fate", "worker", "sandbox"),
    *("started_ms", "finished_ms", "waited_ms", "ran_ms"),
)
_FOUND_JOB: Final = ("job_id", "step", "index", "reused", "element", "elements")


@dataclass(frozen=True, slots=True)
class Asked:
    """What to follow: one job, or a run, or one step of it; and how far that was followed."""

    job_ids: Sequence[str] = ()
    run_id: str | None = None
    step: str | None = None
    seen: Seen | None = None


@dataclass(frozen=True, slots=True)
class News:
    """What is new."""

    pieces: list[tuple[FoundJob, Piece]]
    seen: Seen
    ended: bool
    ok: bool
    waiting: bool
    """Whether nothing runs just now."""
    owned: bool
    """Whether a process works on the home."""

    def to_map(self) -> dict[str, Any]:
        """As it is sent."""
        return {
            "jobs": [found_job_map(job) for job in {job.job_id: job for job, _ in self.pieces}.values()],
            "pieces": [_piece_map(piece) for _, piece in self.pieces],
            "seen": seen_map(self.seen),
            **{name: getattr(self, name) for name in ("ended", "ok", "waiting", "owned")},
        }


def find(
    home: Home, reader: StoreReader, identifier: str, run_id: str | None = None, named: str = NEWEST
) -> dict[str, Any]:
    """What an identifier stands for, as it is sent."""
    found = find_jobs(reader, Content(reader, home.content_files()), identifier, run_id, named=named)
    return {
        "kind": found.kind,
        "run_id": found.run_id,
        "step": found.step,
        "jobs": [found_job_map(job) for job in found.jobs],
    }


def logs(home: Home, reader: StoreReader, jobs: Sequence[tuple[str, int | None]]) -> list[dict[str, Any]]:
    """What jobs, or elements of them, printed so far, as it is sent: as many as fit into an answer, at least the first."""
    content, live = Content(reader, home.content_files()), live_jobs(home.path)
    answers: list[dict[str, Any]] = []
    size = 0
    for job_id, element in jobs:
        log = job_log(reader, content, job_id, live.get(job_id), element)
        size += 0 if log is None else sum(len(one.stdout.data) + len(one.stderr.data) for one in log.attempts)
        if answers and size > BYTES_MAX:
            break
        answers.append({"log": None if log is None else _log_map(log)})
    return answers


def follow(home: Home, reader: StoreReader, asked: Asked) -> News:
    """What is new since the last question."""
    content = Content(reader, home.content_files())
    names: dict[str, FoundJob] = {}

    def named(job_id: str) -> FoundJob:
        if job_id not in names:
            names[job_id] = found_job(reader, content, job_id)
        return names[job_id]

    follower = Follower(
        reader,
        content,
        home.path,
        asked.job_ids,
        run_id=asked.run_id,
        wanted=None if asked.step is None else lambda job_id: named(job_id).step == asked.step,
        seen=asked.seen,
    )
    pieces = [(named(piece.job_id), piece) for piece in follower.poll(BYTES_MAX)]
    return News(pieces, follower.seen, follower.ended, follower.ok, follower.waiting, is_held(home.lock))


# -- the form on the wire ----------------------------------------------------------------------------------------------


def read_found(sent: Any) -> Found:
    """What an identifier stands for, as it was sent."""
    try:
        jobs = tuple(_read_found_job(job) for job in sent["jobs"])
        return Found(sent["kind"], sent["run_id"], jobs, sent["step"])
    except (KeyError, TypeError) as exc:
        raise _unreadable() from exc


def read_log(sent: Any) -> JobLog | None:
    """What a job printed, as it was sent."""
    try:
        log = sent["log"]
        if log is None:
            return None
        return JobLog(log["job_id"], log["run_id"], log["state"], tuple(_read_attempt(one) for one in log["attempts"]))
    except (KeyError, TypeError, ValueError) as exc:
        raise _unreadable() from exc


def read_news(sent: Any) -> News:
    """What is new, as it was sent."""
    try:
        jobs = {job["job_id"]: _read_found_job(job) for job in sent["jobs"]}
        pieces = [(jobs[one["job_id"]], _read_piece(one)) for one in sent["pieces"]]
        flags = (bool(sent[name]) for name in ("ended", "ok", "waiting", "owned"))
        return News(pieces, read_seen(sent["seen"]), *flags)
    except (KeyError, TypeError, ValueError) as exc:
        raise _unreadable() from exc


def read_seen(sent: Any) -> Seen:
    """How far something was followed; `KeyError`, `TypeError` or `ValueError` for anything else."""
    jobs = {
        str(job_id): (str(state), int(seq), int(shown), bool(running), {name: int(offsets[name]) for name in _STREAMS})
        for job_id, (state, seq, shown, running, offsets) in sent["jobs"].items()
    }
    numbers = [int(sent["position"]), int(sent["quiet"])]
    numbers += [number for _, _, shown, _, offsets in jobs.values() for number in (shown, *offsets.values())]
    if any(not 0 <= number < 1 << 53 for number in numbers):
        raise ValueError("a place in a log is a number from 0 on")
    return Seen(numbers[0], numbers[1], bool(sent["failed"]), jobs)


def seen_map(seen: Seen) -> dict[str, Any]:
    """How far something was followed, as it is sent."""
    return {
        "position": seen.position,
        "quiet": seen.quiet,
        "failed": seen.failed,
        "jobs": {job_id: list(one) for job_id, one in seen.jobs.items()},
    }


def found_job_map(job: FoundJob) -> dict[str, Any]:
    """A job with its name, as it is sent."""
    return {name: getattr(job, name) for name in _FOUND_JOB}


_STREAMS: Final = (STDOUT, STDERR)


def _read_found_job(sent: Any) -> FoundJob:
    return FoundJob(**{name: sent[name] for name in _FOUND_JOB})


def _log_map(log: JobLog) -> dict[str, Any]:
    attempts = [_attempt_map(attempt) for attempt in log.attempts]
    return {"job_id": log.job_id, "run_id": log.run_id, "state": log.state, "attempts": attempts}


def _attempt_map(attempt: AttemptLog) -> dict[str, Any]:
    streams = {name: attempt.stream(name) for name in _STREAMS}
    return {
        **{name: getattr(attempt, name) for name in _ATTEMPT},
        **{
            name: {"data": b64encode(one.data).decode(), "truncated": one.truncated, "fate": one.fate}
            for name, one in streams.items()
        },
    }


def _read_attempt(sent: Any) -> AttemptLog:
    stdout, stderr = (
        StreamLog(b64decode(sent[name]["data"]), bool(sent[name]["truncated"]), str(sent[name]["fate"]))
        for name in _STREAMS
    )
    return AttemptLog(**{name: sent[name] for name in _ATTEMPT}, stdout=stdout, stderr=stderr)


def _piece_map(piece: Piece) -> dict[str, Any]:
    return {
        "job_id": piece.job_id,
        "attempt": piece.attempt,
        "stream": piece.stream,
        "data": b64encode(piece.data).decode(),
        "ended": None if piece.ended is None else _attempt_map(piece.ended),
    }


def _read_piece(sent: Any) -> Piece:
    ended = None if sent["ended"] is None else _read_attempt(sent["ended"])
    return Piece(sent["job_id"], int(sent["attempt"]), sent["stream"], b64decode(sent["data"]), ended)


def _unreadable() -> InvalidInput:
    return InvalidInput(
        "the logs do not have the form that was expected",
        code="ANSWER_INVALID",
        hint="is the server of another version? `detent --version` and GET /v1/version tell",
    )
