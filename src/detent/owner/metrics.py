"""The metrics of a home: values for every declared family, and the text that a scraper reads.

Which families there are is data in the scheduling room; here they get values. Only declared families, labels and values pass: a
typing error in a label would otherwise be a new series that no dashboard shows. The values are plain data, so that a registry can
be kept in a file and taken up again: counts go on where they stood, whichever process asks.

The metrics of one home, followed along its ledger and kept beside it.

Durations and drops come from the records, refusals from the decision log; both are counted once, from where the last count ended, so
asking costs what has happened since and not the whole history. Where the count stands is kept in a file of the home with what was
counted. It is derived: without it, or if it does not fit the ledger, everything is counted again from the first record.

What stands now (jobs by state, waiting jobs) is asked of the kernels each time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from math import isfinite
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from detent.canon import NotCanonical, decode, decode_trusted, json_decode_trusted, json_encode_trusted
from detent.canon.late import dataclass
from detent.errors import DetentError, InvalidInput, InvariantBroken, Refused
from detent.kernel.metrics import Metrics
from detent.kernel.queue import Enqueued
from detent.owner.decision_records import find_decision
from detent.scheduling.attempts import ALL_FAMILIES, Attempts, OpenAttempt, lifecycle_samples
from detent.scheduling.decisions import Decision
from detent.scheduling.observability import REJECT_CODES, Depths, MetricFamily, Sample, admission_samples, queue_samples
from detent.store.api import REFUSALS_KEPT_MAX, RecordRow, RefusalRow, StoreReader
from detent.store.files import read_no_follow, replace_no_follow

SERIES_MAX: Final = 10_000
"""Most series of one family. Past that, what has no closed list of values is counted as `OTHER`."""
OTHER: Final = "other"


@dataclass(slots=True)
class Distribution:
    """A histogram's series: how many observations each bucket took, and their sum."""

    counts: list[int]
    """One for each bucket, and one for what is above the last."""
    total: float = 0.0

    def observe(self, value: float, buckets: Sequence[float]) -> None:
        """Count one observation."""
        self.counts[bisect_left(buckets, value)] += 1
        self.total += value


@dataclass(slots=True)
class Series:
    """A family with the values of its series, by the values of their labels."""

    family: MetricFamily
    values: dict[tuple[str, ...], float] = field(default_factory=dict)
    distributions: dict[tuple[str, ...], Distribution] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values) + len(self.distributions)

    def take(self, key: tuple[str, ...], value: float, *, add: bool) -> None:
        """Set or raise a value, or observe one."""
        if self.family.type == "histogram":
            known = self.distributions.get(key)
            if known is None:
                known = self.distributions[key] = Distribution([0] * (len(self.family.buckets) + 1))
            known.observe(value, self.family.buckets)
        else:
            self.values[key] = value + (self.values.get(key, 0) if add else 0)

    def shown(self) -> Metric:
        """As the text format's library wants it."""
        name, text, labels = self.family.name, self.family.help, list(self.family.labels)
        if self.family.type == "histogram":
            shown = HistogramMetricFamily(name, text, labels=labels)
            bounds = [*map(floatToGoString, self.family.buckets), "+Inf"]
            for key, one in sorted(self.distributions.items()):
                up_to = [sum(one.counts[: place + 1]) for place in range(len(bounds))]
                shown.add_metric(list(key), list(zip(bounds, up_to, strict=True)), one.total)
            return shown
        plain = CounterMetricFamily if self.family.type == "counter" else GaugeMetricFamily
        metric = plain(name, text, labels=labels)
        for key, value in sorted(self.values.items()):
            metric.add_metric(list(key), value)
        return metric


class MetricsRegistry(Collector):
    """Every declared family. Values come in as `Sample`, text for a scraper goes out."""

    def __init__(self, families: Sequence[MetricFamily] = ALL_FAMILIES) -> None:
        self.families = {family.name: family for family in families}
        if len(self.families) != len(families):
            raise InvariantBroken("two metric families have one name")
        self._series = {family.name: Series(family) for family in families}
        self.collectors = CollectorRegistry()
        self.collectors.register(self)

    def record(self, *samples: Sample) -> None:
        """Set a gauge, raise a counter or observe a duration; refuse what the contract does not declare."""
        for sample in samples:
            series = self._of(sample)
            series.take(self._key(series, sample.labels), sample.value, add=series.family.type == "counter")

    def renew(self, samples: Iterable[Sample]) -> None:
        """Set gauges to the whole of what there is: a series that is not among the samples has ended and disappears."""
        whole = list(samples)
        self._set(whole, ("gauge",), "is not a gauge: what was counted stays counted")

    def total(self, samples: Iterable[Sample]) -> None:
        """Set gauges and counters whose whole is counted elsewhere."""
        self._set(list(samples), ("gauge", "counter"), "is observed one by one")

    def missing(self) -> list[str]:
        """Declared families without any series, by name."""
        return sorted(name for name, series in self._series.items() if not series)

    def exposition(self) -> bytes:
        """All metrics as text for a scraper."""
        return generate_latest(self.collectors)

    def collect(self) -> Iterator[Metric]:
        """Every family, for the text format's library."""
        for series in self._series.values():
            yield series.shown()

    # -- keeping -------------------------------------------------------------------------------------------------------

    def kept(self) -> dict[str, Any]:
        """Everything counted and observed as plain JSON; gauges are asked for again and not kept."""
        return {
            name: [[list(key), value] for key, value in sorted(series.values.items())]
            + [[list(key), [one.counts, one.total]] for key, one in sorted(series.distributions.items())]
            for name, series in self._series.items()
            if series.family.type != "gauge"
        }

    def take_up(self, kept: Mapping[str, Any]) -> None:
        """Go on from what `kept` gave; refuses what does not fit the families of this version."""
        for name, entries in kept.items():
            series = self._series.get(name)
            if series is None:
                raise InvalidInput(f"there is no metric family {name!r}")
            for labels, value in entries:
                key = self._key(series, dict(zip(series.family.labels, labels, strict=True)))
                if series.family.type != "histogram":
                    series.values[key] = float(value)
                    continue
                counts, total = value
                if len(counts) != len(series.family.buckets) + 1:
                    raise InvalidInput(f"{name} has other buckets now")
                series.distributions[key] = Distribution([int(count) for count in counts], float(total))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _set(self, samples: Sequence[Sample], types: tuple[str, ...], fault: str) -> None:
        for name in {sample.name for sample in samples}:
            series = self._series.get(name)
            if series is None or series.family.type not in types:
                raise InvalidInput(f"{name} {fault}")
            series.values.clear()
        for sample in samples:
            series = self._of(sample)
            series.take(self._key(series, sample.labels), sample.value, add=False)

    def _of(self, sample: Sample) -> Series:
        series = self._series.get(sample.name)
        if series is None:
            raise InvalidInput(f"there is no metric family {sample.name!r}")
        if not isfinite(sample.value) or sample.value < 0:
            raise InvalidInput(f"{sample.name} cannot be {sample.value}")
        return series

    def _key(self, series: Series, given: Mapping[str, str]) -> tuple[str, ...]:
        family = series.family
        if given.keys() != family.labels.keys():
            raise InvalidInput(f"{family.name} has the labels {', '.join(family.labels)}, not {', '.join(given)}")
        for label, values in family.labels.items():
            if values is not None and given[label] not in values:
                raise InvalidInput(f"{family.name} has no {label} {given[label]!r}", details={"values": list(values)})
        key = tuple(given[label] for label in family.labels)
        if key not in series.values and key not in series.distributions and len(series) >= SERIES_MAX:
            return tuple(OTHER if family.labels[label] is None else given[label] for label in family.labels)
        return key


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
        record = next(iter(reader.records_of_job(job_id)))
        submitted: Any = decode_trusted(record.body)
        data = find_decision(reader, record, submitted["decision_digest"])
        return Decision.decode(data).pool_id or "" if data is not None else ""
    return ""
