"""What an owner tells monitoring of jobs with a model: log lines, refusals and drops by pool, and the bounds of both."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from detent.owner import structured_log
from detent.owner.metrics import HomeMetrics, MetricsRegistry
from detent.owner.structured_log import LINE_BYTES_MAX, LineBuffer, LogFile, json_line
from detent.owner.wiring import Parts
from detent.scheduling.observability import preload_sample
from tests.inspect.explained import Stage
from tests.scheduling.fleets import needs, replica


def log_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def samples(home: Path, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    with Parts().open_reader(home / ".detent" / "ledger.db") as reader:
        metrics = HomeMetrics()
        metrics.follow(reader)
        text = metrics.registry.exposition().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name:
                found[tuple(sorted(sample.labels.items()))] = sample.value
    return found


@pytest.mark.door("setting [log]")
def test_the_lines_of_an_inference_job_name_its_session_model_and_pool(tmp_path: Path) -> None:
    """OC-CORE-1040, X-020"""
    log = tmp_path / "log.jsonl"
    with Stage(tmp_path, f'to = "{log}"') as played:
        played.register(replica("r1", max_slots=4))
        played.order("session_open", session_id="s1", tokens=None, time_ms=None, cost=None)
        asks = {"requirements": needs(quant="Q4_K_M"), "session_id": "s1"}
        for job_id in ("first", "second"):
            played.submit(job_id, asks=asks)
            played.clock.jump(250)
            (grant,) = played.dispatch()
            played.clock.jump(100)
            played.succeed(grant)
    written = log_of(log)
    assert [(line["job_id"], line["event"]) for line in written] == [
        ("first", "dispatch"),
        ("first", "finish"),
        ("second", "dispatch"),
        ("second", "finish"),
    ]
    known = {"session_id": "s1", "engine": "llama", "pool_id": "pool-a", "replica_id": "r1", "model_id": "m"}
    for line in written:
        assert {name: line[name] for name in known} == known
        assert (line["quant"], line["ctx"], line["queue_time_ms"], line["decode_time_ms"]) == (
            "Q4_K_M",
            4096,
            250,
            None,
        )
    assert [line["kv_warmth"] for line in written] == [False, False, True, True]
    assert written[-1]["run_time_ms"] == 100


@pytest.mark.door("setting [queue]")
def test_refusals_and_drops_are_counted_by_pool_and_each_once(tmp_path: Path) -> None:
    """OC-CORE-1041, OC-CORE-1002b"""
    with Stage(tmp_path, "capacity_per_class = 1", 'admission_policy = "drop-lru"') as played:
        played.register(replica("r1", max_slots=1))
        asks = {"requirements": needs()}
        played.submit("first", asks=asks)
        played.submit("second", asks=asks)
        assert played.refuse("elsewhere", pool_pin="nowhere", asks=asks) == "INVALID_PARAMS"
        assert played.refuse("long", asks={"requirements": needs(ctx_max=1_000_000)}) == "NO_FEASIBLE_POOL"
    dropped = samples(tmp_path, "detent_queue_dropped_total")
    assert dropped == {(("pool_id", "pool-a"), ("reason", "DROPPED_LRU")): 1}
    refused = samples(tmp_path, "detent_admission_rejected_total")
    assert sorted(refused.values()) == [1, 1]
    assert {dict(labels)["code"] for labels in refused} == {"INVALID_PARAMS", "NO_FEASIBLE_POOL"}
    with Parts().open_reader(tmp_path / ".detent" / "ledger.db") as reader:
        metrics = HomeMetrics()
        assert metrics.follow(reader) > 0
        before = metrics.registry.exposition()
        assert metrics.follow(reader) == 0, "what was counted is not read again"
        assert metrics.registry.exposition() == before


def test_labels_are_escaped_and_read_back() -> None:
    registry = MetricsRegistry()
    odd = 'quo"te\\back # é'
    registry.record(preload_sample(odd, "r1", "loaded"))
    families = text_string_to_metric_families(registry.exposition().decode())
    shown = [sample.labels["pool_id"] for family in families for sample in family.samples]
    assert shown == [odd]


def test_a_line_is_bounded_however_long_its_fields_are() -> None:
    line = json_line({f"field{number}": "é" * 100_000 for number in range(20)})
    assert len(line.encode()) <= LINE_BYTES_MAX
    assert json.loads(line)["field0"].endswith("…")


def test_lines_that_nothing_takes_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structured_log, "LINES_WAITING_MAX", 2)
    waiting = LineBuffer()
    for number in range(5):
        waiting.add({"line": number})
    assert (waiting.take(), waiting.dropped) == ([{"line": 0}, {"line": 1}], 3)
    assert waiting.take() == []


def test_a_log_that_can_be_written_again_says_how_many_lines_are_missing(tmp_path: Path) -> None:
    log = tmp_path / "later" / "log.jsonl"
    file = LogFile(log)
    assert isinstance(file.write(["1\n", "2\n"]), FileNotFoundError)
    log.parent.mkdir()
    assert file.write(["3\n"]) is None
    file.close()
    assert log.read_text() == '{"event":"lines_dropped","lines":2}\n3\n'


def test_a_line_that_was_cut_by_a_full_disk_is_ended_before_the_next(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    file = LogFile(tmp_path / "unused")
    file.to, file._descriptor = f"/dev/fd/{write}", write  # A pipe that is full cuts a line as a full disk does.
    assert isinstance(file.write(["x" * 200_000 + "\n"]), BlockingIOError)
    cut = os.read(read, 1 << 20)
    assert file.write(["next\n"]) is None
    assert (cut + os.read(read, 1 << 20)).decode().splitlines()[1:] == ['{"event":"lines_dropped","lines":1}', "next"]
    os.close(read)
    os.close(write)
