"""The metrics of a home: values for every declared family, and the text that a scraper reads.

Which families there are is data in the scheduling room; here they get values. Only declared families, labels and values pass: a
typing error in a label would otherwise be a new series that no dashboard shows. The values are plain data, so that a registry can
be kept in a file and taken up again: counts go on where they stood, whichever process asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from math import isfinite
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from detent.canon.late import dataclass
from detent.errors import InvalidInput, InvariantBroken
from detent.scheduling.attempts import ALL_FAMILIES
from detent.scheduling.observability import MetricFamily, Sample

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
