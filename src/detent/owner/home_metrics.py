"""The metrics of one home, followed along its ledger and kept beside it.

Durations and drops come from the records, refusals from the decision log; both are counted once, from where the last count ended, so
asking costs what has happened since and not the whole history. Where the count stands is kept in a file of the home with what was
counted. It is derived: without it, or if it does not fit the ledger, everything is counted again from the first record.

What stands now (jobs by state, waiting jobs) is asked of the kernels each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from detent.canon import NotCanonical, decode, decode_trusted, json_decode_trusted, json_encode_trusted
from detent.errors import DetentError, InvalidInput, Refused
from detent.kernel.metrics import Metrics
from detent.kernel.queue import Enqueued
from detent.owner.metrics import MetricsRegistry
from detent.scheduling.attempts import Attempts, OpenAttempt, lifecycle_samples
from detent.scheduling.decisions import Decision
from detent.scheduling.observability import REJECT_CODES, Depths, admission_samples, queue_samples
from detent.store.api import REFUSALS_KEPT_MAX, RecordRow, RefusalRow, StoreReader
from detent.store.no_follow import read_no_follow, replace_no_follow

FILE: Final = "metrics.json"
VERSION: Final = 1
RECORDS_AT_ONCE: Final = 10_000


class HomeMetrics:
    """A registry that follows a ledger. For one thread."""

    def __init__(self, tick_ms: int = 1) -> None:
        self.registry = MetricsRegistry()
        self._attempts = Attempts(tick_ms)
        self._positions: list[int] = []
        self._batches: list[tuple[int, str]] = []
        """For each partition: how many batches were counted, and the hash of the last of them."""
        self._refused: tuple[int, int] = (0, 0)
        """The tick of the last refusal counted, and how many of that tick were."""

    def follow(self, reader: StoreReader) -> int:
        """Count what has been recorded since the last time; returns how many records that were."""
        self._positions += [0] * (reader.partitions - len(self._positions))
        self._batches += [(0, "")] * (reader.partitions - len(self._batches))
        counted = 0
        for partition in range(reader.partitions):
            head = reader.head(partition)
            for first in range(self._positions[partition], head.next_position, RECORDS_AT_ONCE):
                stop = min(head.next_position, first + RECORDS_AT_ONCE)
                for row in reader.records(partition, first, stop):
                    self._count(reader, row)
                    counted += 1
            self._positions[partition] = head.next_position
            self._batches[partition] = (head.size, head.leaf_hash.hex())
        self._count_refusals(reader)
        return counted

    def exposition(self, counted: Iterable[Metrics], waiting: Iterable[Depths]) -> bytes:
        """The text for a scraper: what was followed, with what the kernels have counted and how many jobs wait now."""
        self.registry.total(lifecycle_samples(counted))
        self.registry.renew(queue_samples(*waiting))
        return self.registry.exposition()

    # -- keeping -------------------------------------------------------------------------------------------------------

    def keep(self, home: Path) -> None:
        """Write down what was counted and how far."""
        document = {
            "version": VERSION,
            "positions": self._positions,
            "batches": [list(batch) for batch in self._batches],
            "refused": list(self._refused),
            "open": {job_id: attempt.to_list() for job_id, attempt in sorted(self._attempts.open.items())},
            "counted": self.registry.kept(),
        }
        replace_no_follow(home / FILE, json_encode_trusted(document))

    @classmethod
    def kept(cls, home: Path, reader: StoreReader, tick_ms: int = 1) -> HomeMetrics:
        """What was kept last, if it fits the ledger; else metrics that have counted nothing yet."""
        with suppress(DetentError, NotCanonical, OSError, ValueError, TypeError, KeyError):
            metrics = cls(tick_ms)
            metrics._take_up(json_decode_trusted(read_no_follow(home / FILE)), reader)
            return metrics
        return cls(tick_ms)

    def _take_up(self, document: Any, reader: StoreReader) -> None:
        if document["version"] != VERSION or len(document["batches"]) != reader.partitions:
            raise InvalidInput("the kept metrics are those of another version or of another ledger")
        for partition, (size, leaf_hash) in enumerate(document["batches"]):
            last = reader.batch(partition, size - 1) if size else None
            if (last.leaf_hash.hex() if last is not None else "") != leaf_hash:
                raise InvalidInput("the kept metrics are those of another history")
        self.registry.take_up(document["counted"])
        self._positions = [int(position) for position in document["positions"]]
        self._batches = [(int(size), str(leaf_hash)) for size, leaf_hash in document["batches"]]
        tick, count = document["refused"]
        self._refused = (int(tick), int(count))
        self._attempts.open = {job_id: OpenAttempt(*fields) for job_id, fields in document["open"].items()}

    # -- counting ------------------------------------------------------------------------------------------------------

    def _count(self, reader: StoreReader, row: RecordRow) -> None:
        """Count one record. One that cannot be read is for `detent verify` to report, and adds nothing here."""
        with suppress(ValueError, KeyError, TypeError, DetentError):
            fields = decode_trusted(row.body)
            evidence = decode_trusted(row.evidence) if row.kind == "transition" and row.evidence is not None else {}
            replica_id = evidence.get("replica_id") if isinstance(evidence, dict) else None
            event = self._attempts.hear(row.kind, row.run_id, fields, replica_id)
            if event is None:
                return
            self.registry.record(*event.samples())
            if event.dropped:
                job_id = event.facts.job_id
                lost = Enqueued(0, (job_id,), event.reason_code)
                self.registry.record(*admission_samples(lost, _pool_of(reader, job_id)))

    def _count_refusals(self, reader: StoreReader) -> None:
        tick, counted = self._refused
        newer = list(_refused_since(reader, tick))
        same = sum(row.tick == tick for row in newer)
        for row in newer[: len(newer) - min(counted, same)]:  # Newest first: those counted before are the last.
            if (decision := _admission(row)) is not None and row.code in REJECT_CODES:
                self.registry.record(*admission_samples(Refused(row.code, ""), decision.pool_id or ""))
        if newer:
            self._refused = (newer[0].tick, sum(row.tick == newer[0].tick for row in newer))


def _refused_since(reader: StoreReader, tick: int) -> Iterator[RefusalRow]:
    for row in reader.refusals(limit=REFUSALS_KEPT_MAX):
        if row.tick < tick:
            return
        yield row


def _admission(row: RefusalRow) -> Decision | None:
    """The decision of an admission that a refusal tells of; None for a refusal of something else."""
    with suppress(NotCanonical, DetentError, KeyError, TypeError):
        error: Any = decode(row.body)
        return Decision.decode(error["diagnostics"]["details"]["decision"])
    return None


def _pool_of(reader: StoreReader, job_id: str) -> str:
    """The pool that a dropped job had been admitted to, by its decision record; empty for the open pool."""
    with suppress(NotCanonical, DetentError, KeyError, TypeError, ValueError):
        submitted: Any = decode_trusted(next(iter(reader.records_of_job(job_id))).body)
        data = reader.content(submitted["decision_digest"])
        return Decision.decode(data).pool_id or "" if data is not None else ""
    return ""
