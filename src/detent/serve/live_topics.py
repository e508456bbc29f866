"""What streams are told that no record has: the output of running jobs and how far they are, the queue, and workers elsewhere.

One task looks once a second, for all streams together and only at what some stream follows. Output is read from where the stream
is; a reader that lags misses frames, sees the gap by the offset, and reads it from `/v1/jobs/{id}/logs`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from detent.errors import DetentError
from detent.inspect.logs import JobLog
from detent.serve.events import Hub, Stream
from detent.serve.readers import Readers
from detent.serve.turns import Turns

SECONDS: Final = 1.0
TEXT_BYTES_MAX: Final = 64 * 1024
"""Output of one stream of one job that is told at once."""
LOG: Final = "log:"
QUEUE: Final = "queue"
WORKERS: Final = "workers"
PROGRESS: Final = "progress"
_OF_JOBS: Final = re.compile(r"(?:job|run):").match


class LiveTopics:
    """Tells streams what happens between records."""

    def __init__(
        self,
        hub: Hub,
        readers: Readers,
        queue: Callable[[], Awaitable[Mapping[str, Any]]],
        turns: Turns,
    ) -> None:
        self._hub, self._readers, self._queue, self._turns = hub, readers, queue, turns
        self._said: Mapping[str, Any] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Look no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            streams = self._hub.open_streams()
            try:
                await self._tell_progress([one for one in streams if any(_OF_JOBS(topic) for topic in one.topics)])
                await self._tell_queue([one for one in streams if QUEUE in one.topics])
                for stream in streams:
                    if WORKERS in stream.topics:
                        self._tell_workers(stream)
                    for topic in sorted(stream.topics):
                        if topic.startswith(LOG):
                            await self._tell_log(stream, topic.removeprefix(LOG))
            except DetentError:
                continue  # What cannot be read now is read in a second.

    async def _tell_queue(self, streams: list[Stream]) -> None:
        fresh = [one for one in streams if ("", 0, QUEUE) not in one.sent]
        if not streams:
            self._said = None
            return
        now = await self._queue()
        for stream in streams if now != self._said else fresh:
            stream.sent["", 0, QUEUE] = 1
            stream.say(QUEUE, now)
        self._said = now

    async def _tell_progress(self, streams: list[Stream]) -> None:
        """Tell those who follow a job, or its run, how far it says it is; workers elsewhere say so when they are asked."""
        self._turns.ask_progress({(one.tenant, topic) for one in streams for topic in one.topics})
        told = await self._readers.read(lambda reader: reader.progress()) if streams else {}
        for stream in streams:
            for name in [name for name in stream.told if name.startswith(f"{PROGRESS}:")]:
                if name.removeprefix(f"{PROGRESS}:") not in told:
                    del stream.told[name]
        for tenant in {one.tenant for one in streams} if told else ():
            jobs = await self._readers.read(lambda reader: reader.jobs_of(tenant, list(told)))  # noqa: B023
            for view in jobs:
                job_id, run_id = view.row.job_id, view.row.run_id
                fraction, message = told[job_id]
                data = {"job_id": job_id, "run_id": run_id, "fraction": fraction, "message": message}
                for stream in streams:
                    if stream.tenant == tenant and {f"job:{job_id}", f"run:{run_id}"} & stream.topics:
                        self._tell_changed(stream, PROGRESS, job_id, data)

    @staticmethod
    def _tell_changed(stream: Stream, event: str, name: str, data: Mapping[str, Any]) -> None:
        """Tell something unless the stream was told the same before."""
        if stream.told.get(f"{event}:{name}") != (said := json.dumps(data)):
            stream.told[f"{event}:{name}"] = said
            stream.say(event, data)

    def _tell_workers(self, stream: Stream) -> None:
        """Tell of each worker elsewhere that may run the workspace's jobs, whenever something about it has changed."""
        for worker in self._turns.fleet:
            if not worker.certificate.covers(stream.tenant):
                continue
            data = {
                "worker_id": worker.worker_id,
                "state": worker.state,
                "slots": worker.slots,
                "leases": len(worker.leases),
                "version": worker.version,
            }
            self._tell_changed(stream, "worker", worker.worker_id, data)

    async def _tell_log(self, stream: Stream, job_id: str) -> None:
        if (job_id, 0, "ended") in stream.sent:
            return
        self._turns.watch(stream.tenant, job_id)
        log: JobLog = await self._readers.read(lambda reader: reader.log(stream.tenant, job_id))
        for attempt in log.attempts:
            for name in ("stdout", "stderr"):
                offset = stream.sent.get((job_id, attempt.number, name), 0)
                data = attempt.stream(name).data[offset : offset + TEXT_BYTES_MAX]
                if data:
                    stream.sent[job_id, attempt.number, name] = offset + len(data)
                    told = {"job_id": job_id, "attempt": attempt.number, "stream": name, "offset": offset}
                    stream.say("log", {**told, "text": data.decode("utf-8", "replace")})
        if log.ended and not any(_left(stream, job_id, log)):
            stream.sent[job_id, 0, "ended"] = 1


def _left(stream: Stream, job_id: str, log: JobLog) -> list[bool]:
    """Whether output of an attempt is still to be told."""
    return [
        stream.sent.get((job_id, attempt.number, name), 0) < len(attempt.stream(name).data)
        for attempt in log.attempts
        for name in ("stdout", "stderr")
    ]
