"""What the owner of a home tells monitoring while it works: a file for node_exporter's textfile collector, and structured logs.

Both follow the commits. Within a turn only notes are taken; a thread of its own writes them, at a bounded rate, and once more when
the owner closes. Nothing here can stop the work: what cannot be written is told once, tried again, and counted.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from detent.errors import DetentError
from detent.kernel import Kernel, Record
from detent.kernel.metrics import Metrics
from detent.owner.structured_log import LineBuffer, LogFile, RequestIds, StructuredLog, json_line
from detent.scheduling.observability import Depths, queue_depths
from detent.scheduling.scheduler import Scheduler
from detent.store.api import StoreReader
from detent.store.content import ContentFiles

if TYPE_CHECKING:
    from detent.owner.metrics import HomeMetrics
    from detent.owner.owner import Owner

LOG_SECONDS: Final = 0.1
"""Lines of this long go into one write."""
METRICS_SECONDS: Final = 2.0
"""The metrics file is written at most this often; collectors ask every 15 seconds or so."""

CLOSE_SECONDS: Final = 5.0
"""How long the end of an owner waits for the last lines and the last metrics."""

logger = logging.getLogger("detent.owner")


class Telemetry:
    """Keeps the metrics file and the log of one owned home. `start` after `attach`, `close` after the owners have closed."""

    def __init__(
        self,
        home: Path,
        read_ledger: Callable[[], StoreReader],
        *,
        files: ContentFiles,
        textfile: Path | None,
        log: Path | str | None,
    ) -> None:
        self._home = home
        self._read_ledger = read_ledger
        self._requests = RequestIds(read_ledger, files)
        self._textfile = textfile
        self._log = None if log is None else LogFile(log)
        self._lines = LineBuffer()
        self._metrics: HomeMetrics | None = None
        self._now: dict[int, tuple[Metrics, Depths]] = {}
        """What the kernel of each partition has counted, and what waits there, after the last commit."""
        self._tick_ms = 1
        self._changed = threading.Event()
        self._ending = threading.Event()
        self._told: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="detent-telemetry", daemon=True)

    def attach(self, owner: Owner) -> None:
        """Follow an owner's commits; before its first turn after the one that began its epoch."""
        kernel, config = owner.kernel, owner.config
        self._tick_ms = config.tick_ms
        lines = StructuredLog(kernel, config, self._lines) if self._log is not None else None
        self._note(owner.partition, kernel)

        def hear(_first: int, records: Sequence[Record]) -> None:
            if lines is not None:
                lines.hear(records)
            if self._textfile is not None:
                self._note(owner.partition, kernel)
            self._changed.set()

        owner.observers.append(hear)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what is left, and stop; a pipe that nothing reads gets no more than its time."""
        self._ending.set()
        self._changed.set()
        self._thread.join(CLOSE_SECONDS)

    def _note(self, partition: int, kernel: Kernel) -> None:
        queue = kernel.queue
        waiting = queue_depths(queue.queues) if isinstance(queue, Scheduler) else {}
        self._now[partition] = (kernel.metrics.copy(), waiting)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        due = 0.0
        changed = self._textfile is not None  # The state that the owner found is worth telling.
        while not self._ending.is_set():
            self._changed.wait(max(0.0, due - time.monotonic()) if changed else None)
            changed = changed or self._changed.is_set()
            self._changed.clear()
            self._write_lines()
            if changed and time.monotonic() >= due:
                self._write_metrics()
                changed, due = False, time.monotonic() + METRICS_SECONDS
            changed = changed and self._textfile is not None
            self._ending.wait(LOG_SECONDS)
        self._write_lines()
        self._write_metrics(last=True)
        if self._log is not None:
            self._log.close()
            self._requests.close()

    def _write_lines(self) -> None:
        if self._log is None:
            return
        self._log.dropped += self._lines.dropped
        self._lines.dropped = 0
        if waiting := self._lines.take():
            self._requests.fill_in(waiting)
        self._tell(f"the log {self._log.to}", self._log.write(map(json_line, waiting)))

    def _write_metrics(self, *, last: bool = False) -> None:
        if self._textfile is None:
            return
        fault: Exception | None = None
        try:
            self._replace(self._textfile, self._exposition(keep=last))
        except (OSError, DetentError) as exc:
            fault = exc
        self._tell(f"the metrics file {self._textfile}", fault)

    def _exposition(self, *, keep: bool) -> bytes:
        from detent.owner.metrics import HomeMetrics  # noqa: PLC0415 - only homes with a metrics file load it

        reader = self._read_ledger()
        try:
            if self._metrics is None:
                self._metrics = HomeMetrics.kept(self._home, reader, self._tick_ms)
            self._metrics.follow(reader)
        finally:
            reader.close()
        if keep:
            with suppress(OSError, DetentError):  # It is counted again from the ledger.
                self._metrics.keep(self._home)
        now = list(self._now.values())
        return self._metrics.exposition([counted for counted, _ in now], [depths for _, depths in now])

    def _replace(self, path: Path, data: bytes) -> None:
        """Put a file in its place whole: a collector never reads half of one."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        # Readable for others: the collector runs as another user.
        descriptor = os.open(temporary, flags, 0o644)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _tell(self, what: str, fault: Exception | None) -> None:
        """Say once that something cannot be written, until it could be again."""
        if fault is None:
            self._told.discard(what)
        elif what not in self._told:
            self._told.add(what)
            reason = fault.strerror if isinstance(fault, OSError) else None
            logger.warning("%s cannot be written: %s. The work goes on without it.", what, reason or fault)
