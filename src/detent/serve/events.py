"""What happens on the ledger, as it happens: for streams of events, for requests that wait, and for exact counts.

The ledger is the event log. The id of an event is the position of its record in each partition (``0:123456``, comma-joined), so a
stream that names the last event it saw goes on exactly behind it: after a lost connection, after a restart, after a week. Nothing is
buffered for a stream that is away, and nothing can overflow.

One follower reads every record once and hands it to the streams of its tenant. It is woken by commits and reads the ledger's
file: what is told is durable. A stream that is behind reads pages of its own until it is where the follower is, and joins it
there, within one step of the loop, so there is no gap and no repeat. A stream whose reader is 256 events late is cut with `bye`;
it resumes by id like any other.

Records of one atomic batch are shown at its end (A.4): a job that is cancelled while it waits is never shown as running.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from detent.canon import decode_trusted
from detent.errors import DetentError, InvalidInput
from detent.jobs.status import RETRYING, JobStatus, project_status
from detent.kernel.history import RUN_ENDED, RUN_REUSED, STEP_REUSED
from detent.kernel.records import OPERATED, RUN_STARTED, SUBMITTED, TRANSITION
from detent.kernel.run import RUNNING as RUN_RUNNING
from detent.kernel.table import State
from detent.owner.session import Session
from detent.owner.views import Times
from detent.serve.readers import Readers
from detent.serve.room import Room
from detent.serve.tenant_reader import TenantReader
from detent.store.api import RecordRow
from detent.words.states import REUSED, word_of

PAGE: Final = 1_000
"""Records that are read at once."""
LATE_MAX: Final = 256
"""Events that may wait for one reader."""
TOLD_AT_ONCE: Final = 64
"""Events that are handed to streams before they may send them."""
BEAT_SECONDS: Final = 15.0
RETRY_MS: Final = 1_000
RUNS_KNOWN_MAX: Final = 10_000
SESSION: Final = "session:"
"""How the topic of a session begins."""
Remaining = Callable[[str, str], Awaitable[dict[str, int]]]
"""What is left of the budgets of a workspace's session."""
_ID: Final = re.compile(r"[0-9]{1,5}:[0-9]{1,12}(?:,[0-9]{1,5}:[0-9]{1,12}){0,255}")


_WHOLE: Final = {"job": "jobs", "run": "runs", "operated": "audit"}
"""The topics that have every event of a kind."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One record as streams see it."""

    tenant: str
    event: str
    job_id: str | None
    run_id: str | None
    data: str

    def is_for(self, topics: frozenset[str]) -> bool:
        """Whether a stream with these topics wants it."""
        own = {_WHOLE[self.event]} if self.event in _WHOLE else set()
        if self.job_id is not None:
            own.add(f"job:{self.job_id}")
        if self.run_id is not None:
            own.add(f"run:{self.run_id}")
        return not own.isdisjoint(topics)


@dataclass(slots=True, eq=False)
class Stream:
    """One reader of events."""

    tenant: str
    credential_id: str
    topics: frozenset[str]
    stream_id: str = field(default_factory=lambda: f"st_{secrets.token_hex(12)}")
    waiting: deque[tuple[str | None, Happening]] = field(default_factory=deque)
    live: deque[bytes] = field(default_factory=deque)
    """Frames without an id, which no resumed stream gets again."""
    told: dict[str, str] = field(default_factory=dict)
    """Of each session that it follows: what was told last."""
    sent: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """How much of each job's output was sent: by job, attempt and stream."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    late: bool = False

    def put(self, event_id: str | None, happening: Happening) -> None:
        """Hand over an event, with its id unless it is live only; one too many cuts the stream."""
        if len(self.waiting) >= LATE_MAX:
            self.late = True
        else:
            self.waiting.append((event_id, happening))
        self.woken.set()

    def say(self, event: str, data: Mapping[str, Any]) -> None:
        """Hand over something that is only told live; dropped for a reader that lags."""
        if len(self.live) < LATE_MAX:
            self.live.append(_frame(event, json.dumps(data), None))
        self.woken.set()


class Hub:
    """Follows the ledger for everyone who waits. Everything but the reading happens in the HTTP loop."""

    def __init__(self, session: Session, readers: Readers, remaining: Remaining) -> None:
        self._session, self._readers, self.remaining = session, readers, remaining
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._open: dict[str, Stream] = {}
        """All streams by their ids, from their first frame on."""
        self._streams: set[Stream] = set()
        """Those that have caught up with the follower."""
        self._by_credential: Counter[str] = Counter()
        self._waiters: dict[tuple[str, str], set[asyncio.Event]] = {}
        self._tenants_of_runs: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._end: Any = None
        self.draining = asyncio.Event()
        self._told = asyncio.Condition()
        self.heard: Callable[[RecordRow], None] = lambda _: None
        """Told of every record in the order of the ledger, before its streams are."""
        self.at: list[int] = []
        """The next position of each partition that is not told yet."""
        self.jobs: Counter[tuple[str, str]] = Counter()
        self.runs: Counter[tuple[str, str]] = Counter()
        self.room = Room()

    async def start(self, first: Callable[[Sequence[int]], Awaitable[None]] | None = None) -> None:
        """Count what there is, and follow from there; ``first`` is told from where, and done before anything is followed."""
        self._end = await asyncio.to_thread(self._session.observe, self._wake)
        self.at, jobs, runs = await self._readers.read(TenantReader.counts)
        self.jobs.update(jobs)
        self.runs.update(runs)
        if first is not None:
            await first(list(self.at))
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Follow no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._end is not None:
            await asyncio.to_thread(self._end)

    def drain(self) -> None:
        """Tell everyone who waits that the server stops."""
        self.draining.set()
        for stream in self._streams:
            stream.woken.set()
        for events in self._waiters.values():
            for event in events:
                event.set()

    @property
    def has_open_runs(self) -> bool:
        """Whether a run of any workspace has not ended."""
        return any(count > 0 for (_, status), count in self.runs.items() if status == RUN_RUNNING)

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return len(self._open)

    def open_streams(self) -> list[Stream]:
        """The streams that are live now."""
        return list(self._streams)

    def choose(self, tenant: str, credential_id: str, stream_id: str, topics: frozenset[str]) -> bool:
        """Have a stream follow other topics from now on; False when the credential has no such stream."""
        stream = self._open.get(stream_id)
        if stream is None or (stream.tenant, stream.credential_id) != (tenant, credential_id):
            return False
        stream.topics = topics
        stream.sent = {key: size for key, size in stream.sent.items() if f"log:{key[0]}" in topics}
        stream.say("reset", {"reason": "the topics changed", "topics": sorted(topics)})
        return True

    def streams_of(self, credential_id: str) -> int:
        """How many streams of one credential are open."""
        return self._by_credential[credential_id]

    async def caught_up(self) -> None:
        """Return when everything that is on the ledger now has been told: a caller sees its own change."""
        ends = await self._readers.read(lambda reader: reader.positions())
        self._changed.set()
        async with self._told:
            await self._told.wait_for(lambda: all(at >= end for at, end in zip(self.at, ends, strict=True)))

    @contextmanager
    def waiter(self, kind: str, name: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever something happens to a job or run."""
        event = asyncio.Event()
        self._waiters.setdefault((kind, name), set()).add(event)
        try:
            yield event
        finally:
            waiting = self._waiters[kind, name]
            waiting.discard(event)
            if not waiting:
                del self._waiters[kind, name]

    # -- following -----------------------------------------------------------------------------------------------------

    def _wake(self, _records: Sequence[object]) -> None:
        """Called in the thread that committed: take note, and nothing else."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                ends = await self._readers.read(lambda reader: reader.positions())
                for partition, end in enumerate(ends):
                    await self._tell(partition, end)
                await self._tell_sessions()
                async with self._told:
                    self._told.notify_all()
            except DetentError:
                # A ledger that cannot be read now may be readable soon: nothing is skipped meanwhile.
                self._loop.call_later(1.0, self._changed.set)

    async def _tell(self, partition: int, end: int) -> None:
        while (first := self.at[partition]) < end:
            stop = min(end, first + PAGE)
            times, rows = await self._readers.read(lambda reader: reader.happened(partition, first, stop))  # noqa: B023
            found = [(row, *self._read(row, times)) for row in rows]
            unknown = {row.run_id for row, _, told in found if told is not None and not told.tenant and row.run_id}
            await self._learn(unknown)
            for number, (row, body, told) in enumerate(found, 1):
                self.at[partition] = row.position + 1
                self._count(row, body)
                self.heard(row)
                if told is not None:
                    self._hand_on(self._owned(told))
                if number % TOLD_AT_ONCE == 0:
                    await asyncio.sleep(0)  # A reader that keeps up is not late because much was committed at once.

    async def _tell_sessions(self) -> None:
        """Tell the streams that follow a session what is left of its budgets, where that has changed (X-095)."""
        for stream in [one for one in self._streams if any(topic.startswith(SESSION) for topic in one.topics)]:
            await self.tell_sessions(stream)

    async def tell_sessions(self, stream: Stream) -> None:
        """The same for one stream."""
        for session_id in sorted(topic.removeprefix(SESSION) for topic in stream.topics if topic.startswith(SESSION)):
            try:
                left = await self.remaining(stream.tenant, session_id)
            except DetentError:
                continue  # It was closed, or another process owns the home now.
            data = json.dumps({"session_id": session_id, "remaining": left}, sort_keys=True)
            if stream.told.get(session_id) != data:
                stream.told[session_id] = data
                stream.put(None, Happening(stream.tenant, "metrics", None, None, data))

    def _hand_on(self, told: Happening) -> None:
        event_id = self.event_id(self.at)
        for stream in self._streams:
            if stream.tenant == told.tenant and told.is_for(stream.topics):
                stream.put(event_id, told)
        for kind, name in (("job", told.job_id), ("run", told.run_id)):
            for event in self._waiters.get((kind, name or ""), ()):
                event.set()

    def _count(self, row: RecordRow, body: dict[str, Any]) -> None:
        tenant = body.get("tenant_id", "")
        if row.kind == SUBMITTED:
            self.jobs[tenant, State.QUEUED.value] += 1
        elif row.kind == TRANSITION:
            self.jobs[tenant, body["from_state"]] -= 1
            self.jobs[tenant, body["to_state"]] += 1
            if body["from_state"] == State.QUEUED.value:
                self.room.left()
        elif row.kind == RUN_STARTED:
            self.runs[tenant, RUN_RUNNING] += 1
        elif row.kind == RUN_ENDED:
            self.runs[tenant, RUN_RUNNING] -= 1
            self.runs[tenant, body["status"]] += 1

    def _read(self, row: RecordRow, times: Times) -> tuple[dict[str, Any], Happening | None]:
        """A record's fields, and what streams see of it; nothing of one that cannot be read, which is for `verify` to report."""
        try:
            body = decode_trusted(row.body)
            return body, happening(row, body, times)
        except (ValueError, KeyError, TypeError):
            return {}, None

    def _owned(self, told: Happening) -> Happening:
        """With its tenant: a record of reuse names only its run."""
        if told.tenant:
            return told
        tenant = self._tenants_of_runs.get(told.run_id or "", "")
        return Happening(tenant, told.event, told.job_id, told.run_id, told.data)

    async def _learn(self, run_ids: set[str]) -> None:
        """Remember whose runs these are."""
        missing = [run_id for run_id in run_ids if run_id not in self._tenants_of_runs]
        if missing:
            self._tenants_of_runs |= await self._readers.read(lambda reader: reader.tenants_of_runs(missing))
        while len(self._tenants_of_runs) > RUNS_KNOWN_MAX:
            del self._tenants_of_runs[next(iter(self._tenants_of_runs))]

    # -- streams -------------------------------------------------------------------------------------------------------

    def event_id(self, at: Sequence[int]) -> str:
        """The id of the last event before these positions."""
        return ",".join(f"{partition}:{following - 1}" for partition, following in enumerate(at) if following > 0)

    def position(self, event_id: str) -> list[int] | None:
        """Where a stream goes on behind an event; None for one that this ledger has not reached."""
        if not _ID.fullmatch(event_id):
            raise InvalidInput(
                "Last-Event-ID is not the id of an event of this server",
                code="VALIDATION_ERROR",
                details={"errors": [{"path": "header.last-event-id", "message": "is not the id of an event"}]},
            )
        at = [0] * len(self.at)
        for part in event_id.split(","):
            partition, position = map(int, part.split(":"))
            if partition >= len(at) or position >= self.at[partition]:
                return None
            at[partition] = position + 1
        return at

    def stream(
        self, tenant: str, credential_id: str, topics: frozenset[str], last_event_id: str | None
    ) -> AsyncIterator[bytes]:
        """The frames of one stream, from behind an event or from now on, until the server stops or the reader is late."""
        at = None if last_event_id is None else self.position(last_event_id)
        own = Stream(tenant, credential_id, topics)
        hello = {
            "protocol": 1,
            "stream": own.stream_id,
            "now_ms": time.time_ns() // 1_000_000,
            "oldest": 0,
            "resumed": at is not None,
        }
        return self._frames(own, hello, at, reset=last_event_id is not None and at is None)

    async def _frames(
        self, own: Stream, hello: dict[str, Any], at: list[int] | None, *, reset: bool
    ) -> AsyncIterator[bytes]:
        self._open[own.stream_id] = own
        self._by_credential[own.credential_id] += 1
        try:
            yield _frame("hello", json.dumps(hello), None)
            if reset:
                yield _frame("reset", json.dumps({"reason": "the ledger has not reached this position"}), None)
            if at is not None:
                async for frame in self._catch_up(own, at):
                    yield frame
            self._streams.add(own)  # Nothing was awaited since the positions were compared: no gap, no repeat.
            await self.tell_sessions(own)
            async for frame in self._live(own):
                yield frame
        finally:
            self._streams.discard(own)
            del self._open[own.stream_id]
            self._by_credential[own.credential_id] -= 1
            self._by_credential += Counter()  # Leaves out credentials without a stream.

    async def _catch_up(self, own: Stream, at: list[int]) -> AsyncIterator[bytes]:
        """The events between a position and the follower's."""
        while at != self.at and not self.draining.is_set():
            for partition in range(len(at)):
                first, stop = at[partition], min(self.at[partition], at[partition] + PAGE)
                if first >= stop:
                    continue
                times, rows = await self._readers.read(
                    lambda reader, where=(partition, first, stop): reader.happened(*where)  # type: ignore[misc]
                )
                found = [(row, self._read(row, times)[1]) for row in rows]
                await self._learn({row.run_id for row, told in found if told and not told.tenant and row.run_id})
                for row, told in found:
                    at[partition] = row.position + 1
                    if told is not None and self._owned(told).tenant == own.tenant and told.is_for(own.topics):
                        yield _frame(told.event, told.data, self.event_id(at))

    async def _live(self, own: Stream) -> AsyncIterator[bytes]:
        while True:
            if own.waiting:
                waiting = b"".join(_frame(told.event, told.data, event_id) for event_id, told in own.waiting)
                own.waiting.clear()
                yield waiting
            while own.live:
                yield own.live.popleft()
            if own.late or self.draining.is_set():
                reason = "late" if own.late else "draining"
                yield _frame("bye", json.dumps({"reason": reason, "retry_ms": RETRY_MS}), None, retry_ms=RETRY_MS)
                return
            own.woken.clear()
            try:
                await asyncio.wait_for(own.woken.wait(), BEAT_SECONDS)
            except TimeoutError:
                # A sign of life, which also moves the reader's place past what was not for it.
                yield f": \nid: {self.event_id(self.at)}\n\n".encode() if not own.waiting else b": \n\n"


def happening(row: RecordRow, body: dict[str, Any], times: Times) -> Happening | None:
    """What streams see of a record; None for one that they do not see, or that is not the last of its batch.

    A job or run is told with the fields of its row in a list, so that a list can be changed by what is told, and when that was.
    """
    data: dict[str, Any]
    if row.kind == SUBMITTED:
        queued = word_of(JobStatus.QUEUED)
        data = {"job_id": row.job_id, "run_id": row.run_id, "status": queued, "detail": None, "attempt": None}
        data |= {
            "reason_code": None,
            "transition_seq": 0,
            "state": word_of(State.QUEUED),
            "at": times.iso(body["tick"]),
        }
        return Happening(body["tenant_id"], "job", row.job_id, row.run_id, json.dumps(data))
    if row.kind == TRANSITION and body["batch_index"] + 1 == body["batch_len"]:
        state = State(body["to_state"])
        status = project_status(state, ever_dispatched=True, failure_code=body["reason_code"])
        retrying = status is JobStatus.RUNNING and state is not State.RUNNING
        data = {
            "job_id": row.job_id,
            "run_id": row.run_id,
            "status": word_of(status),
            "detail": RETRYING if retrying else None,
            "attempt": body["attempt_id"] + (2 if state is State.QUEUED else 1),
            "reason_code": body["reason_code"],
            "transition_seq": body["transition_seq"] + 1,
            "state": word_of(state),
            "at": times.iso(body["tick"]),
        }
        return Happening(body["tenant_id"], "job", row.job_id, row.run_id, json.dumps(data))
    if row.kind in {RUN_STARTED, RUN_ENDED}:
        started = row.kind == RUN_STARTED
        data = {
            "run_id": row.run_id,
            "status": word_of(RUN_RUNNING if started else body["status"]),
            "reason_code": body.get("reason_code"),
            "at": times.iso(body["tick"]),
        }
        data |= {"name": body["name"]} if started else {"jobs": body["job_count"]}
        return Happening(body["tenant_id"], "run", None, row.run_id, json.dumps(data))
    if row.kind == OPERATED:
        named = ("action", "object_kind", "object_id", "outcome_code", "principal_id", "credential_id")
        data = {name: body[name] for name in named} | {"position": f"{row.partition}:{row.position}"}
        return Happening(body.get("tenant_id") or "", "operated", None, None, json.dumps(data))
    if row.kind == RUN_REUSED:
        data = {"run_id": row.run_id, "status": word_of(RUN_RUNNING), "reason_code": None}
        return Happening("", "run", None, row.run_id, json.dumps({**data, "reused_run_id": body["reused_run_id"]}))
    if row.kind == STEP_REUSED:
        data = {"run_id": row.run_id, "step_id": body["step_id"], "job_id": body["job_id"], "state": REUSED}
        return Happening("", "step", None, row.run_id, json.dumps(data))
    return None


def _frame(event: str, data: str, event_id: str | None, *, retry_ms: int | None = None) -> bytes:
    lines = [f"event: {event}", f"data: {data}"]
    lines += [] if event_id is None else [f"id: {event_id}"]
    lines += [] if retry_ms is None else [f"retry: {retry_ms}"]
    return ("\n".join(lines) + "\n\n").encode()
