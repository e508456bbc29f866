"""Structured logs: one JSON line for each attempt that is dispatched and each that is over, to standard error or a file.

Every line has the eleven fields of the contract (OC-CORE-1040), null where they do not apply (X-020), after the time, the event, the
run, the attempt, the request to a server that the job came with and, at the end, how it ended. What a line says is noted within the
owner's turn, from its records and its scheduler, and written elsewhere (`detent.owner.telemetry`): a slow disk holds up no commit, and
neither does a look into the job's order, which says the request. What cannot be written is counted and dropped, and the
next line that can be written says how many are missing.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from detent.canon import decode_trusted, tick_to_iso
from detent.errors import DetentError
from detent.kernel import Kernel, KernelConfig, Record
from detent.kernel.table import State
from detent.owner.content import Content, order_of
from detent.owner.settings import STDERR
from detent.scheduling.attempts import FINISH, AttemptEvent, Attempts, OpenAttempt
from detent.scheduling.observability import log_fields
from detent.scheduling.scheduler import Scheduler
from detent.store.api import StoreReader
from detent.store.content import ContentFiles
from detent.words.states import word_of

REQUEST_ID: Final = "request_id"
JOBS_KNOWN_MAX: Final = 10_000
"""Jobs whose requests are remembered between their lines."""
LINES_WAITING_MAX: Final = 10_000
"""Lines that wait to be written; while there are more, new ones are dropped and counted."""
LINE_BYTES_MAX: Final = 16 * 1024
"""No line is longer: texts that make it so are cut."""
TEXT_MAX: Final = (512, 64)
"""Longest text of one field, and the longest in a line that is too long all the same; a cut one ends in …"""


def fields_of(event: AttemptEvent, tick_ms: int, epoch_base_ms: int) -> dict[str, object]:
    """What the line of an event says; its request is found out when the line is written."""
    fields: dict[str, object] = {
        "time": tick_to_iso(event.tick, tick_ms, epoch_base_ms),
        "event": event.name,
        "run_id": event.run_id,
        "attempt": event.attempt,
        REQUEST_ID: None,
        **log_fields(event.facts),
    }
    if event.name == FINISH:
        fields["state"] = word_of(event.state)
        fields["reason_code"] = event.reason_code
        fields["run_time_ms"] = event.facts.ms_between("dispatched_tick", "ended_tick")
    return fields


def json_line(fields: Mapping[str, object]) -> str:
    """One line of JSON whose texts are cut to what a line may hold."""
    line = ""
    for text_max in TEXT_MAX:
        cut = {name: _cut(value, text_max) for name, value in fields.items()}
        line = json.dumps(cut, separators=(",", ":")) + "\n"
        if len(line) <= LINE_BYTES_MAX:
            break
    return line


def _cut(value: object, text_max: int) -> object:
    return value[: text_max - 1] + "…" if isinstance(value, str) and len(value) > text_max else value


class StructuredLog:
    """Makes lines of the records of one partition, as they are committed. For the holder of the turn."""

    def __init__(self, kernel: Kernel, config: KernelConfig, put: LineBuffer) -> None:
        self._kernel = kernel
        self._config = config
        self._put = put
        self._attempts = Attempts(config.tick_ms)
        for job in kernel.jobs.values():  # What an earlier owner left: when it was dispatched is not known any more.
            self._attempts.open[job.job_id] = OpenAttempt(job.queued_tick, None, job.lease_holder, job.run_id)
            if job.state == State.RUNNING and job.lease_holder is not None:
                self._learn(job.job_id, job.lease_holder)

    def hear(self, records: Sequence[Record]) -> None:
        """Take in the records of a commit."""
        for record in records:
            fields: Any = decode_trusted(record.body)
            replica_id = None
            if record.kind == "transition" and record.evidence is not None:
                evidence: Any = decode_trusted(record.evidence)
                replica_id = evidence.get("replica_id")
                if fields["dispatch"] and replica_id is not None:
                    self._learn(fields["job_id"], replica_id)
            event = self._attempts.hear(record.kind, record.run_id, fields, replica_id)
            if event is not None:
                self._put.add(fields_of(event, self._config.tick_ms, self._config.epoch_base_ms))

    def _learn(self, job_id: str, replica_id: str) -> None:
        queue = self._kernel.queue
        if isinstance(queue, Scheduler):
            self._attempts.learn(job_id, queue.facts(job_id, replica_id))


class LineBuffer:
    """Lines on their way to where they are written, bounded."""

    def __init__(self) -> None:
        self._lines: deque[dict[str, object]] = deque()
        self.dropped = 0

    def add(self, line: dict[str, object]) -> None:
        """Take a line, or count it as dropped when too many wait."""
        if len(self._lines) >= LINES_WAITING_MAX:
            self.dropped += 1
        else:
            self._lines.append(line)

    def take(self) -> list[dict[str, object]]:
        """Everything that waits."""
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._lines.popleft())
        return taken


class RequestIds:
    """Which request to a server each job came with, as its order says. For one thread."""

    def __init__(self, read_ledger: Callable[[], StoreReader], files: ContentFiles) -> None:
        self._read_ledger, self._files = read_ledger, files
        self._reader: StoreReader | None = None
        self._known: OrderedDict[str, str | None] = OrderedDict()

    def fill_in(self, lines: Sequence[dict[str, object]]) -> None:
        """Write the request of each line's job into it; it stays null while the ledger cannot be read."""
        named = dict.fromkeys(str(line["job_id"]) for line in lines)
        with suppress(DetentError):
            self._look([job_id for job_id in named if job_id not in self._known])
        for line in lines:
            line[REQUEST_ID] = self._known.get(str(line["job_id"]))
        while len(self._known) > JOBS_KNOWN_MAX:
            self._known.popitem(last=False)

    def close(self) -> None:
        """Let go of the ledger."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _look(self, job_ids: Sequence[str]) -> None:
        if not job_ids:
            return
        if self._reader is None:
            self._reader = self._read_ledger()
        content = Content(self._reader, self._files)
        for row in self._reader.jobs_of(job_ids):
            order = order_of(content, row)
            self._known[row.job_id] = None if order is None else order.origin.request_id


class LogFile:
    """Where lines go: standard error, or a file that is reopened when it was moved or removed. For one thread."""

    def __init__(self, to: Path | str) -> None:
        self.to = to
        self.dropped = 0
        """Lines that could not be written since the last that could."""
        self._descriptor: int | None = 2 if to == STDERR else None
        self._torn = False

    def write(self, lines: Iterable[str]) -> OSError | None:
        """Write lines; what went wrong, if something did. Lines that cannot be written are dropped and counted."""
        waiting = list(lines)
        if not waiting:
            return None
        said = [json_line({"event": "lines_dropped", "lines": self.dropped})] if self.dropped else []
        text = ("\n" if self._torn else "") + "".join([*said, *waiting])
        try:
            self._write_all(self._open(), text.encode("ascii"))
        except OSError as exc:
            self.dropped += len(waiting)
            return exc
        self.dropped, self._torn = 0, False
        return None

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None and self.to != STDERR:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        """The file that has the name now: after a rotation that is another one than before."""
        if self.to == STDERR:
            return 2
        if self._descriptor is not None:
            if self._has_the_name(self._descriptor):
                return self._descriptor
            self.close()
            self._torn = False
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._descriptor = os.open(self.to, flags, 0o640)
        return self._descriptor

    def _has_the_name(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(Path(self.to).stat(), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def _write_all(self, descriptor: int, data: bytes) -> None:
        while data:
            written = os.write(descriptor, data)
            self._torn = written < len(data)  # Until the rest is there, too: a full disk may cut a line.
            data = data[written:]
