"""Golden lives of jobs: the same bytes as when they were written, readable by another library, and replayable."""

from __future__ import annotations

from io import BytesIO

import cbor2
import pytest

from detent.canon import decode
from detent.kernel import Kernel, KernelConfig, checkpoint, decode_commands, restore
from tests.golden.make import FOLDER, STORIES, files


def golden_lines(story: str) -> list[tuple[str, bytes]]:
    text = (FOLDER / f"lifecycle-{story}.txt").read_text(encoding="utf-8")
    pairs = [line.split("\t") for line in text.splitlines()]
    return [(name, bytes.fromhex(data)) for name, data in pairs]


@pytest.mark.parametrize("name", sorted(files()))
def test_the_kernel_still_makes_the_golden_bytes(name: str) -> None:
    """PIPE-017, PIPE-049, PIPE-084, PIPE-117, PIPE-118, PIPE-122: after a wanted change, `make golden` and a review"""
    assert files()[name] == (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("story", sorted(STORIES))
def test_recorded_commands_of_old_replay_to_the_recorded_bytes(story: str) -> None:
    """PIPE-010, PIPE-117, X-165: a ledger written then is decided the same now"""
    lines = golden_lines(story)
    golden = dict(lines)
    kernel = Kernel(KernelConfig.decode(golden["config"]))
    outcomes = [kernel.apply(command) for command in decode_commands(golden["commands"])]
    made = []
    for outcome in outcomes:
        for record in outcome.records:
            made.append(record.body)
            if record.evidence is not None:
                made.append(record.evidence)
    assert made == [data for name, data in lines if name.startswith(("record", "evidence"))]
    assert checkpoint(kernel) == golden["checkpoint"]


@pytest.mark.parametrize("story", sorted(STORIES))
def test_every_golden_item_is_canonical_for_both_libraries(story: str) -> None:
    """PIPE-110..PIPE-113, PIPE-117, X-047"""
    for name, data in golden_lines(story):
        if name in {"checkpoint digest", "evidence"} and not data.startswith((b"\xa2", b"\xa3", b"\xa4")):
            continue  # a digest, a configuration, or the bytes of a trust change: not an item of ours
        stream = BytesIO(data)
        value = cbor2.load(stream)
        assert stream.read() == b"", name
        assert cbor2.dumps(value, canonical=True) == data, name
        assert decode(data) == value, name


@pytest.mark.parametrize("story", sorted(STORIES))
def test_a_golden_trace_has_header_events_and_end(story: str) -> None:
    """PIPE-110..PIPE-113, PIPE-117"""
    trace = [cbor2.loads(data) for name, data in golden_lines(story) if name.startswith("trace")]
    records = [name for name, _ in golden_lines(story) if name.startswith("record") and "->" in name]
    assert [line["kind"] for line in trace] == ["run_header", *["iter"] * (len(trace) - 2), "run_end"]
    assert sum(line.get("status") == "COMMITTED" for line in trace) == len(records)
    assert [line["t"] for line in trace[1:-1]] == list(range(len(trace) - 2))
    assert len({line["replay_token"] for line in trace}) == 1


@pytest.mark.parametrize("story", sorted(STORIES))
def test_a_golden_checkpoint_is_restored_to_itself(story: str) -> None:
    """PIPE-117, PIPE-122, PIPE-123"""
    data = dict(golden_lines(story))["checkpoint"]
    assert checkpoint(restore(data)) == data
