"""The metrics of a process: every family of the contract, registered with prometheus-client and ready to be scraped.

Which families there are is data in the scheduling room; here they get a registry of their own, so that two owners in one
process, or two tests, do not share counts. Only declared families, labels and values pass: a typing error in a label would
otherwise be a new series that no dashboard shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from detent.errors import InvalidInput, InvariantBroken
from detent.scheduling.observability import METRIC_FAMILIES, MetricFamily, Sample

SERIES_MAX: Final = 10_000
"""Most series of one family. Past that, what has no closed list of values is counted as `OTHER`."""
OTHER: Final = "other"


class MetricsRegistry:
    """Every declared family, registered. Values come in as `Sample`, text for a scraper goes out."""

    def __init__(self, families: Sequence[MetricFamily] = METRIC_FAMILIES) -> None:
        self.collectors = CollectorRegistry()
        self.families = {family.name: family for family in families}
        if len(self.families) != len(families):
            raise InvariantBroken("two metric families have one name")
        self._metrics = {family.name: self._register(family) for family in families}
        self._series: dict[str, set[tuple[str, ...]]] = {family.name: set() for family in families}

    def record(self, *samples: Sample) -> None:
        """Set a gauge, raise a counter or observe a duration; refuse what the contract does not declare."""
        for sample in samples:
            family = self.families.get(sample.name)
            if family is None:
                raise InvalidInput(f"there is no metric family {sample.name!r}")
            if not isfinite(sample.value) or sample.value < 0:
                raise InvalidInput(f"{sample.name} cannot be {sample.value}")
            metric = self._metrics[family.name].labels(**self._labels(family, sample.labels))
            if isinstance(metric, Gauge):
                metric.set(sample.value)
            elif isinstance(metric, Counter):
                metric.inc(sample.value)
            else:
                metric.observe(sample.value)

    def renew(self, samples: Iterable[Sample]) -> None:
        """Replace all samples of some gauges: a series that is not among them has ended and disappears."""
        whole = list(samples)
        for name in {sample.name for sample in whole}:
            metric = self._metrics.get(name)
            if not isinstance(metric, Gauge):
                raise InvalidInput(f"{name} is not a gauge: what was counted stays counted")
            metric.clear()
            self._series[name].clear()
        self.record(*whole)

    def missing(self) -> list[str]:
        """Declared families that nothing has been recorded for, by name."""
        return sorted(name for name, series in self._series.items() if not series)

    def exposition(self) -> bytes:
        """All metrics as text for a scraper."""
        return generate_latest(self.collectors)

    def _register(self, family: MetricFamily) -> Gauge | Counter | Histogram:
        labels = tuple(family.labels)
        if family.type == "gauge":
            return Gauge(family.name, family.help, labels, registry=self.collectors)
        if family.type == "counter":
            return Counter(family.name, family.help, labels, registry=self.collectors)
        return Histogram(family.name, family.help, labels, registry=self.collectors, buckets=family.buckets)

    def _labels(self, family: MetricFamily, given: Mapping[str, str]) -> Mapping[str, str]:
        if given.keys() != family.labels.keys():
            raise InvalidInput(f"{family.name} has the labels {', '.join(family.labels)}, not {', '.join(given)}")
        for label, values in family.labels.items():
            if values is not None and given[label] not in values:
                raise InvalidInput(f"{family.name} has no {label} {given[label]!r}", details={"values": list(values)})
        series = self._series[family.name]
        key = tuple(given[label] for label in family.labels)
        if key not in series and len(series) >= SERIES_MAX:
            given = {label: OTHER if family.labels[label] is None else value for label, value in given.items()}
            key = tuple(given[label] for label in family.labels)
        series.add(key)
        return given
