"""Log fields and metric families as data, and the contract file that says the same."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import json_decode
from detent.errors import CODES, InvalidInput, Refused
from detent.kernel import Enqueued, QueuePolicy
from detent.scheduling import METRIC_FAMILIES, JobFacts, PoolQueues, Sample, log_fields
from detent.scheduling.attempts import ALL_FAMILIES, contract_map
from detent.scheduling.observability import (
    DROP_REASONS,
    REJECT_CODES,
    ReplicaLoad,
    admission_samples,
    latency_samples,
    load_samples,
    preload_sample,
    queue_depths,
    queue_samples,
)

ELEVEN = [
    *("job_id", "session_id", "engine", "pool_id", "replica_id", "model_id", "quant", "ctx", "kv_warmth"),
    *("queue_time_ms", "decode_time_ms"),
]
FACTS = JobFacts(
    job_id="job-1",
    session_id="session-1",
    engine="llama",
    pool_id="gpu",
    replica_id="replica-1",
    model_id="model-1",
    quant="Q4_K_M",
    ctx=4_096,
    kv_warmth=False,
    queued_tick=10,
    dispatched_tick=35,
    first_token_tick=40,
    ended_tick=140,
    tick_ms=2,
)


def test_a_finished_inference_job_shows_all_eleven_fields() -> None:
    """OC-CORE-1040"""
    assert log_fields(FACTS) == {
        "job_id": "job-1",
        "session_id": "session-1",
        "engine": "llama",
        "pool_id": "gpu",
        "replica_id": "replica-1",
        "model_id": "model-1",
        "quant": "Q4_K_M",
        "ctx": 4_096,
        "kv_warmth": False,
        "queue_time_ms": 50,
        "decode_time_ms": 200,
    }
    assert list(log_fields(FACTS)) == ELEVEN


@given(st.sets(st.sampled_from([name for name in JobFacts.__dataclass_fields__ if name not in {"job_id", "tick_ms"}])))
def test_every_job_has_all_eleven_keys_and_null_where_nothing_applies(unknown: set[str]) -> None:
    """OC-CORE-1040, X-020"""
    known = {name: getattr(FACTS, name) for name in JobFacts.__dataclass_fields__ if name not in unknown}
    fields = log_fields(JobFacts(**known))
    assert list(fields) == ELEVEN
    ticks = {"queue_time_ms": {"queued_tick", "dispatched_tick"}, "decode_time_ms": {"first_token_tick", "ended_tick"}}
    for name in ELEVEN:
        assert (fields[name] is None) == bool(ticks.get(name, {name}) & unknown)


@pytest.mark.parametrize(
    "change",
    [
        {"job_id": ""},
        {"job_id": None},
        {"engine": 7},
        {"ctx": -1},
        {"ctx": True},
        {"kv_warmth": 1},
        {"tick_ms": 0},
        {"queued_tick": 36},
        {"ended_tick": 39},
        {"first_token_tick": -1},
    ],
)
def test_facts_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    facts = {name: getattr(FACTS, name) for name in JobFacts.__dataclass_fields__}
    with pytest.raises(InvalidInput):
        JobFacts(**{**facts, **change})


def test_the_contract_file_says_what_the_code_says() -> None:
    """CORE-X010"""
    written = json_decode((resources.files("detent.scheduling") / "metrics_contract.json").read_bytes().strip())
    assert written == contract_map()


def test_every_quantity_of_the_contract_has_a_family() -> None:
    """OC-CORE-1041"""
    assert [family.measures for family in METRIC_FAMILIES] == [
        *("queue depth", "reject count", "drop count", "first-token latency", "decode latency"),
        *("GPU utilisation", "VRAM utilisation", "KV pressure", "preload outcomes"),
    ]


@pytest.mark.parametrize("family", ALL_FAMILIES, ids=lambda family: family.name)
def test_a_family_is_named_as_scrapers_expect(family: Any) -> None:
    """CORE-X010"""
    assert re.fullmatch(r"detent_[a-z]+(_[a-z]+)*", family.name)
    assert family.name.endswith("_total") == (family.type == "counter")
    assert family.name.endswith("_seconds") == (family.type == "histogram") == bool(family.buckets)
    assert list(family.buckets) == sorted(set(family.buckets))
    assert all(re.fullmatch(r"[a-z_]+", label) for label in family.labels)
    assert family.help.endswith(".")


def test_the_codes_and_reasons_are_those_of_the_registry() -> None:
    """OC-CORE-1041"""
    refusals = [code for code, entry in CODES.items() if entry.layer == "sched" and entry.category is None]
    assert list(REJECT_CODES) == refusals
    assert all(CODES[reason].layer == "reason" for reason in DROP_REASONS)


def test_depths_are_told_for_every_class_of_every_pool_in_use() -> None:
    queues = PoolQueues(QueuePolicy(9, 90))
    queues.enqueue("a", 5, pool_id="gpu")
    queues.enqueue("b", 5, pool_id="gpu")
    samples = list(queue_samples(queue_depths(queues)))
    assert len(samples) == 20
    assert [sample for sample in samples if sample.value] == [
        Sample("detent_queue_depth", 2, {"pool_id": "gpu", "priority": "5"})
    ]


def test_every_refusal_and_every_eviction_is_counted_once() -> None:
    """OC-CORE-1002b, OC-CORE-1041"""
    assert list(admission_samples(Enqueued(3))) == []
    assert list(admission_samples(Enqueued(3, ("a", "b"), "SHED_LOW_PRIORITY"), "gpu")) == [
        Sample("detent_queue_dropped_total", 2, {"pool_id": "gpu", "reason": "SHED_LOW_PRIORITY"})
    ]
    assert list(admission_samples(Refused("QUEUE_FULL", "full"))) == [
        Sample("detent_admission_rejected_total", 1, {"pool_id": "", "code": "QUEUE_FULL"})
    ]


def test_latencies_are_seconds_and_only_of_jobs_that_made_tokens() -> None:
    labels = {"pool_id": "gpu", "engine": "llama", "model_id": "model-1"}
    assert list(latency_samples(FACTS)) == [
        Sample("detent_first_token_latency_seconds", 0.06, labels),
        Sample("detent_decode_latency_seconds", 0.2, labels),
    ]
    assert list(latency_samples(JobFacts("job", queued_tick=1, dispatched_tick=2, ended_tick=3))) == []


def test_loads_are_ratios() -> None:
    load = ReplicaLoad("gpu", "replica-1", 250, 6_000, 8_000, 1, 8)
    assert [(sample.name, sample.value) for sample in load_samples(load)] == [
        ("detent_gpu_utilization_ratio", 0.25),
        ("detent_vram_utilization_ratio", 0.75),
        ("detent_kv_pressure_ratio", 0.125),
    ]


@pytest.mark.parametrize(
    "numbers",
    [(1_001, 0, 1, 0, 1), (-1, 0, 1, 0, 1), (0, 2, 1, 0, 1), (0, 0, 0, 0, 1), (0, 0, 1, 2, 1), (0, 0.5, 1, 0, 1)],
)
def test_a_load_that_cannot_be_is_refused(numbers: Any) -> None:
    with pytest.raises(InvalidInput):
        ReplicaLoad("gpu", "replica-1", *numbers)


def test_a_preload_ends_in_one_of_four_ways() -> None:
    sample = preload_sample("gpu", "replica-1", "loaded")
    assert sample.labels == {"pool_id": "gpu", "replica_id": "replica-1", "outcome": "loaded"}
    with pytest.raises(InvalidInput, match="not 'maybe'"):
        preload_sample("gpu", "replica-1", "maybe")
