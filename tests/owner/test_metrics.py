"""The registry: every family of the contract is there, and every one of them is seen in a scenario."""

from __future__ import annotations

from collections import Counter
from importlib import resources
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from detent.canon import json_decode
from detent.errors import InvalidInput, InvariantBroken
from detent.kernel import QueuePolicy
from detent.kernel.metrics import Metrics
from detent.owner import metrics
from detent.owner.metrics import MetricsRegistry
from detent.scheduling import (
    GenerationRequest,
    JobFacts,
    PoolQueues,
    ReferenceEngine,
    Sample,
    TokenStream,
)
from detent.scheduling.attempts import ALL_FAMILIES, lifecycle_samples
from detent.scheduling.observability import (
    ReplicaLoad,
    admission_samples,
    latency_samples,
    load_samples,
    preload_sample,
    queue_depths,
    queue_samples,
)


def contract() -> dict[str, Any]:
    written = json_decode((resources.files("detent.scheduling") / "metrics_contract.json").read_bytes().strip())
    assert isinstance(written, dict)
    return written


def scraped(registry: MetricsRegistry) -> dict[str, Any]:
    """What a scraper makes of the text, by the name of the family's own series."""
    found = {}
    for family in text_string_to_metric_families(registry.exposition().decode()):
        found[family.name + ("_total" if family.type == "counter" else "")] = family
    return found


def play(registry: MetricsRegistry) -> None:
    """A pool that loads its model, fills up, drops one, refuses one, and answers one question."""
    registry.record(preload_sample("gpu", "replica-1", "loaded"))
    queues = PoolQueues(QueuePolicy(9, 1, "drop-lru"))
    for job_id, priority in (("first", 5), ("second", 5), ("third", 1)):
        registry.record(*admission_samples(queues.enqueue(job_id, priority, pool_id="gpu"), "gpu"))
    registry.renew(queue_samples(queue_depths(queues)))
    assert queues.dequeue(pool_id="gpu") == "second"
    request = GenerationRequest("Tell me.", {"max_new_tokens": 20}, 3)
    stream = ReferenceEngine("1.0", "s1", "sha256:aa").generate(request)
    assert isinstance(stream, TokenStream)
    facts = JobFacts(
        "second",
        engine="reference",
        pool_id="gpu",
        model_id="m",
        queued_tick=0,
        dispatched_tick=100,
        first_token_tick=130,
        ended_tick=130 + 10 * len(stream.tokens),
    )
    registry.record(*latency_samples(facts))
    registry.renew(load_samples(ReplicaLoad("gpu", "replica-1", 900, 7_000, 8_000, 30, 40)))
    registry.total(lifecycle_samples([Metrics(Counter({"SUCCEEDED": 3, "FAILED": 1}))]))
    registry.record(Sample("detent_job_queue_seconds", 0.1, {}))
    registry.record(Sample("detent_job_attempt_seconds", 2.5, {"outcome": "succeeded"}))


def lint(registry: MetricsRegistry) -> list[str]:
    """What the contract demands and a registry after its scenario does not show."""
    seen = scraped(registry)
    faults = []
    for family in contract()["families"]:
        shown = seen.get(family["name"])
        if shown is None:
            faults.append(f"{family['name']} is not registered")
        elif shown.type != family["type"]:
            faults.append(f"{family['name']} is a {shown.type}")
        elif not shown.samples:
            faults.append(f"{family['name']} is not observed")
        elif {label for sample in shown.samples for label in sample.labels} - {"le"} != set(family["labels"]):
            faults.append(f"{family['name']} has other labels")
    return faults


def test_every_family_of_the_contract_is_registered_and_observed() -> None:
    """OC-CORE-1041, CORE-X010"""
    registry = MetricsRegistry()
    play(registry)
    assert lint(registry) == []
    assert registry.missing() == []


@pytest.mark.parametrize("left_out", ALL_FAMILIES, ids=lambda family: family.name)
def test_the_lint_finds_a_family_that_is_missing_or_silent(left_out: Any) -> None:
    """CORE-X010: a lint that cannot fail would say nothing."""
    without = MetricsRegistry([family for family in ALL_FAMILIES if family is not left_out])
    with pytest.raises(InvalidInput, match=left_out.name):
        play(without)
    assert f"{left_out.name} is not registered" in lint(without)
    silent = MetricsRegistry()
    assert f"{left_out.name} is not observed" in lint(silent)
    assert left_out.name in silent.missing()


def test_the_numbers_are_those_of_the_scenario() -> None:
    """OC-CORE-1041"""
    registry = MetricsRegistry()
    play(registry)
    value = registry.collectors.get_sample_value
    assert value("detent_queue_depth", {"pool_id": "gpu", "priority": "5"}) == 1
    assert value("detent_queue_depth", {"pool_id": "gpu", "priority": "1"}) == 0
    assert value("detent_admission_rejected_total", {"pool_id": "gpu", "code": "QUEUE_FULL"}) == 1
    assert value("detent_queue_dropped_total", {"pool_id": "gpu", "reason": "DROPPED_LRU"}) == 1
    model = {"pool_id": "gpu", "engine": "reference", "model_id": "m"}
    assert value("detent_first_token_latency_seconds_sum", model) == 0.13
    assert value("detent_first_token_latency_seconds_bucket", {**model, "le": "0.1"}) == 0
    assert value("detent_first_token_latency_seconds_bucket", {**model, "le": "0.25"}) == 1
    assert value("detent_decode_latency_seconds_count", model) == 1
    replica = {"pool_id": "gpu", "replica_id": "replica-1"}
    assert value("detent_gpu_utilization_ratio", replica) == 0.9
    assert value("detent_vram_utilization_ratio", replica) == 0.875
    assert value("detent_kv_pressure_ratio", replica) == 0.75
    assert value("detent_preload_total", {**replica, "outcome": "loaded"}) == 1


def test_a_pool_that_emptied_does_not_keep_its_last_depth() -> None:
    registry = MetricsRegistry()
    queues = PoolQueues()
    queues.enqueue("a", 5, pool_id="gpu")
    registry.renew(queue_samples(queue_depths(queues)))
    queues.cancel("a")
    registry.renew(queue_samples(queue_depths(queues)))
    value = registry.collectors.get_sample_value
    assert value("detent_queue_depth", {"pool_id": "gpu", "priority": "5"}) is None
    assert value("detent_queue_depth", {"pool_id": "", "priority": "5"}) == 0


@pytest.mark.parametrize(
    "sample",
    [
        Sample("detent_queue_size", 1, {}),
        Sample("detent_queue_depth", 1, {"pool_id": "gpu"}),
        Sample("detent_queue_depth", 1, {"pool_id": "gpu", "priority": "5", "extra": "x"}),
        Sample("detent_queue_depth", 1, {"pool_id": "gpu", "priority": "11"}),
        Sample("detent_queue_depth", -1, {"pool_id": "gpu", "priority": "5"}),
        Sample("detent_queue_depth", float("nan"), {"pool_id": "gpu", "priority": "5"}),
        Sample("detent_queue_dropped_total", 1, {"pool_id": "gpu", "reason": "BAD_LUCK"}),
    ],
)
def test_a_sample_the_contract_does_not_declare_is_refused(sample: Sample) -> None:
    registry = MetricsRegistry()
    with pytest.raises(InvalidInput):
        registry.record(sample)
    assert len(registry.missing()) == len(ALL_FAMILIES)


def test_what_was_counted_stays_counted() -> None:
    registry = MetricsRegistry()
    with pytest.raises(InvalidInput, match="not a gauge"):
        registry.renew([preload_sample("gpu", "replica-1", "loaded")])


def test_two_registries_share_nothing() -> None:
    one, other = MetricsRegistry(), MetricsRegistry()
    play(one)
    assert len(other.missing()) == len(ALL_FAMILIES)


def test_two_families_of_one_name_are_a_mistake_of_ours() -> None:
    with pytest.raises(InvariantBroken, match="one name"):
        MetricsRegistry([ALL_FAMILIES[0], ALL_FAMILIES[0]])


def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SERIES_MAX", 2)
    registry = MetricsRegistry()
    for number in range(5):
        registry.record(preload_sample(f"pool-{number}", "replica", "failed"))
    shown = {sample.labels["pool_id"]: sample.value for sample in scraped(registry)["detent_preload_total"].samples}
    assert {name: shown[name] for name in ("pool-0", "pool-1", "other")} == {"pool-0": 1, "pool-1": 1, "other": 3}
