"""Checkpoints: what they hold, that they are deterministic, and what is refused as one."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest

from detent.canon import decode, encode, sha256
from detent.errors import InvariantBroken, StoreCorrupt
from detent.kernel import (
    AdvanceTick,
    Erase,
    Job,
    Kernel,
    RaiseEpoch,
    ReuseStep,
    Run,
    StartRun,
    checkpoint,
    checkpoint_digest,
    restore,
)
from detent.kernel.checkpoint import FIELDS
from tests.kernel.builders import OWNER_KEY_ID, TENANT, Scene, config, queue_of, waiting_retries
from tests.kernel.walk import walked


def busy_scene() -> Scene:
    """A queued, a running, a waiting and an ended job, an open run, a conflict, a section of another room."""
    scene = Scene(config(queue=queue_of(2)))
    scene.apply(RaiseEpoch(0, 3, OWNER_KEY_ID, scene.kernel.config.encode()))
    scene.apply(StartRun(0, TENANT, "run-1", "nightly", bytes(32), bytes(32), bytes(32), "op"))
    scene.submit("job-1", run_id="run-1")
    scene.submit("job-2")
    one, two = scene.claim(2)
    scene.submit("job-3", priority=9)
    scene.submit("job-4")
    scene.fail(one)
    scene.tick = 5
    scene.usage(two, cpu_time_ms=7, bytes_allocated=9)
    scene.transition("job-2", "RUNNING", "FAILED", expected_transition_seq=9)
    scene.finish(scene.start("job-5", priority=10))
    scene.apply(ReuseStep(5, "run-1", "step-1", "job-5", bytes(32)))
    scene.apply(Erase(5, (bytes(32),), 0))
    scene.kernel.sections = {"ordered": [1, 2, {"next": 3}]}
    return scene


def state_of(scene: Scene) -> dict[str, Any]:
    state = decode(checkpoint(scene.kernel))
    assert isinstance(state, dict)
    return state


def test_a_checkpoint_holds_queue_cursor_and_all_else_a_restore_needs() -> None:
    """PIPE-121, X-022, X-168"""
    scene = busy_scene()
    state = state_of(scene)
    assert set(state) == set(FIELDS)
    assert (state["version"], state["tick"], state["partition_id"], state["epoch"]) == (1, 5, 0, 3)
    assert state["queue"] == [5, [[9, [[2, "job-3"]]], [5, [[3, "job-4"]]]]]
    jobs = [Job.decode(data) for data in state["jobs"]]
    assert [job.job_id for job in jobs] == ["job-1", "job-2", "job-3", "job-4"]  # live jobs only
    assert jobs == [scene.live(job.job_id) for job in jobs]
    assert (jobs[1].conflicts, jobs[1].transition_seq, jobs[1].head) == (1, 1, scene.live("job-2").head)
    assert [Run.decode(data).run_id for data in state["runs"]] == ["run-1"]
    assert (state["reused"], state["erasures"]) == ([["run-1", ["step-1"]]], 1)
    assert state["config"] == scene.kernel.config.encode()
    assert state["queue_policy_hash"] == scene.kernel.config.queue_policy_hash
    assert state["sections"] == {"ordered": [1, 2, {"next": 3}]}


def test_a_restored_kernel_stands_where_the_other_stood() -> None:
    """PIPE-123"""
    scene = busy_scene()
    kernel = restore(checkpoint(scene.kernel), history=scene.history)
    assert kernel.jobs == scene.kernel.jobs
    assert kernel.runs == scene.kernel.runs
    assert kernel.config == scene.kernel.config
    assert kernel.metrics == scene.kernel.metrics
    assert kernel.sections == scene.kernel.sections
    for name in ("tick", "epoch", "signer_key_id", "trust_version", "trace_length", "erasures"):
        assert getattr(kernel, name) == getattr(scene.kernel, name)
    assert kernel.next_due() == scene.kernel.next_due()


def test_the_same_state_gives_the_same_canonical_bytes() -> None:
    """PIPE-017, PIPE-122"""
    one, two = checkpoint(busy_scene().kernel), checkpoint(busy_scene().kernel)
    assert one == two
    assert encode(decode(one)) == one
    assert cbor2.dumps(cbor2.loads(one), canonical=True) == one
    assert checkpoint_digest(one) == sha256(one)


def test_the_order_in_which_jobs_came_into_memory_does_not_show() -> None:
    """PIPE-122"""
    scene = busy_scene()
    scene.kernel.jobs = dict(reversed(scene.kernel.jobs.items()))
    assert checkpoint(scene.kernel) == checkpoint(busy_scene().kernel)


def test_diagnostics_are_no_part_of_a_checkpoint() -> None:
    """PIPE-046: refusals, timers and touched rows leave no byte"""
    scene = busy_scene()
    before = checkpoint(scene.kernel)
    for _ in range(3):
        scene.claim(limit=0)
        scene.kernel.next_due()
        scene.kernel.drain_touched()
    assert checkpoint(scene.kernel) == before


def test_jobs_that_have_ended_weigh_nothing() -> None:
    """X-168"""
    scene = Scene()
    sizes = []
    for number in range(60):
        scene.finish(scene.start(f"job-{number:03d}"))
        sizes.append(len(checkpoint(scene.kernel)))
    assert max(sizes) - sizes[29] < 8  # only the counters grow, by their own length


def test_a_retry_that_waits_for_room_still_waits_after_a_restore() -> None:
    """PIPE-096, PIPE-123, X-042"""
    scene = Scene(config(queue=queue_of(1, 1)))
    grant = scene.start("job-1")
    scene.submit("job-2")
    scene.fail(grant)
    scene.at(10)
    kernel = restore(checkpoint(scene.kernel), history=scene.history)
    assert (waiting_retries(kernel), kernel.next_due()) == (1, None)


def test_a_retry_without_delay_keeps_its_turn_over_a_restore() -> None:
    """PIPE-082, PIPE-123: it is due before the next command, not after it"""
    scene = Scene()
    scene.submit(max_interruptions=5)
    (grant,) = scene.claim()
    scene.fail(grant, kind="interrupted", reason_code="INTERRUPTED", category=None)
    kernel = restore(checkpoint(scene.kernel), history=scene.history)
    assert kernel.next_due() == 0
    assert [record.transition_seq for record in kernel.apply(AdvanceTick(0)).records] == [2]


@pytest.mark.parametrize("data", [b"", b"\xff", encode([]), encode({}), encode("checkpoint")])
def test_bytes_that_are_no_checkpoint_are_refused(data: bytes) -> None:
    """PIPE-033"""
    with pytest.raises(StoreCorrupt):
        restore(data)


def test_a_checkpoint_of_another_version_is_refused() -> None:
    """PIPE-033"""
    state = state_of(busy_scene())
    with pytest.raises(StoreCorrupt, match="version"):
        restore(encode({**state, "version": 2}))
    with pytest.raises(StoreCorrupt, match="version"):
        restore(encode({name: value for name, value in state.items() if name != "runs"}))


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in {"version", "sections"}])
def test_a_checkpoint_with_a_damaged_part_is_refused_and_not_repaired(name: str) -> None:
    """PIPE-033: a typed error, whatever lies there"""
    state = state_of(busy_scene())
    damages: list[object] = [None, True, -1, "text", b"bytes", [[1]], {}, {"a": []}]
    if name != "runs":
        damages.append([])
    for damage in damages:
        with pytest.raises(StoreCorrupt):
            restore(encode({**state, name: damage}))


@pytest.mark.parametrize("name", ["partition_id", "queue_policy_hash", "jobs", "runs"])
def test_a_checkpoint_whose_parts_disagree_is_refused(name: str) -> None:
    """PIPE-033"""
    state = state_of(busy_scene())
    others = {"partition_id": 7, "queue_policy_hash": bytes(32), "jobs": state["jobs"] * 2, "runs": state["runs"] * 2}
    with pytest.raises(StoreCorrupt, match="different kernels"):
        restore(encode({**state, name: others[name]}))


def test_a_queue_that_does_not_fit_the_jobs_is_refused() -> None:
    """PIPE-033"""
    state = state_of(busy_scene())
    state["queue"][1][0][1] = []
    with pytest.raises(StoreCorrupt, match="contradicts"):
        restore(encode(state))


@pytest.mark.parametrize("stored", [Job, Run])
def test_a_stored_row_of_another_shape_is_a_broken_invariant(stored: Any) -> None:
    """PIPE-033"""
    scene = busy_scene()
    good = (scene.live("job-1") if stored is Job else scene.kernel.runs["run-1"]).to_list()
    shapes: list[object] = [good[:-1], [*good, None], [], {}]
    for shape in shapes:
        with pytest.raises(InvariantBroken, match="stored"):
            stored.decode(encode(shape))


@pytest.mark.parametrize("seed", range(8))
def test_a_checkpoint_survives_restore_and_checkpoint(seed: int) -> None:
    """PIPE-122, PIPE-123"""
    data = checkpoint(walked(seed, 100).kernel)
    assert checkpoint(restore(data)) == data
    assert isinstance(restore(data), Kernel)
