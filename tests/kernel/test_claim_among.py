"""A claim of a worker that may run some workspaces' jobs, or some kinds of jobs, only."""

from __future__ import annotations

from typing import Any

import pytest

from detent.canon import encode
from detent.errors import InvalidInput
from detent.kernel import Claim, Kernel, Order, Submit
from detent.kernel.checkpoint import checkpoint, restore
from detent.kernel.commands import command_from_list, command_to_list
from detent.kernel.queue import AT_HOME
from detent.scheduling import Scheduler
from detent.scheduling.orders import write_request
from tests.kernel.builders import Scene, code_of, config, verified
from tests.scheduling.fleets import generic


def queued(scene: Scene, *jobs: tuple[str, str, str]) -> None:
    for job_id, tenant, kind in jobs:
        assert scene.submit(job_id, tenant_id=tenant, job_kind=kind).ok


@pytest.fixture(params=["plain", "scheduler"])
def scene(request: pytest.FixtureRequest) -> Scene:
    if request.param == "plain":
        return Scene()
    made = Scene()
    made.kernel = Kernel(config(), history=made.history, make_queue=Scheduler)
    return made


def taken(scene: Scene, limit: int = 9, **among: Any) -> list[str]:
    return [grant.job_id for grant in scene.apply(Claim(scene.tick, "w-1/boot", limit, **among)).grants]


def test_a_worker_gets_the_jobs_of_its_workspaces_in_their_order(scene: Scene) -> None:
    queued(scene, ("a-1", "a", "task"), ("b-1", "b", "task"), ("a-2", "a", "task"), ("b-2", "b", "task"))
    assert taken(scene, tenants=("b",)) == ["b-1", "b-2"]
    assert taken(scene) == ["a-1", "a-2"]


def test_a_worker_passes_over_kinds_that_it_cannot_run(scene: Scene) -> None:
    queued(scene, ("s-1", "a", "seq"), ("t-1", "a", "task"), ("s-2", "a", "seq"), ("t-2", "b", "task"))
    assert taken(scene, tenants=("a",), kinds=("task", "action")) == ["t-1"]
    assert taken(scene, kinds=("task",)) == ["t-2"]
    assert taken(scene, limit=1) == ["s-1"]


def test_a_job_that_was_taken_out_of_turn_is_not_granted_again(scene: Scene) -> None:
    queued(scene, ("a-1", "a", "task"), ("b-1", "b", "task"))
    assert taken(scene, tenants=("b",)) == ["b-1"]
    assert taken(scene, tenants=("b",)) == []
    assert taken(scene) == ["a-1"]
    assert taken(scene) == []


def test_a_worker_does_not_get_a_job_again_that_it_gave_back(scene: Scene) -> None:
    queued(scene, ("a-1", "a", "task"), ("a-2", "a", "task"))
    assert taken(scene, without=("a-1",)) == ["a-2"]
    assert taken(scene) == ["a-1"]


def test_a_job_with_labels_goes_to_a_claim_that_offers_them_and_holds_up_no_other() -> None:
    """Also from a checkpoint: what a job asks for is part of it."""
    scene = Scene()
    scene.kernel = Kernel(config(), history=scene.history, make_queue=Scheduler)
    manifest = verified("gpu-1", tenant_id="a", job_kind="task")
    assert scene.apply(Submit(scene.tick, manifest, None, write_request(labels=["a100", "pool:gpu"]))).ok
    queued(scene, ("a-1", "a", "task"), ("a-2", "a", "task"), ("a-3", "a", "task"))
    assert taken(scene, limit=1) == ["a-1"]
    assert taken(scene, limit=1, tenants=("a",)) == ["a-2"]
    assert taken(scene, limit=1, labels=("a100",)) == ["a-3"]
    scene.kernel = restore(checkpoint(scene.kernel), make_queue=Scheduler, history=scene.history)
    assert taken(scene) == []
    assert taken(scene, labels=("a100", "pool:gpu", "more")) == ["gpu-1"]
    assert taken(scene, labels=("a100", "pool:gpu")) == []


def test_a_job_that_needs_the_home_is_for_its_own_workers_alone() -> None:
    """Their claims name nothing; with or without a fleet."""
    scene = Scene()
    scene.kernel = Kernel(config(), history=scene.history, make_queue=Scheduler)
    for job_id in ("map-1", "map-2"):
        manifest = verified(job_id, tenant_id="a", job_kind="action")
        assert scene.apply(Submit(scene.tick, manifest, None, write_request(labels=[AT_HOME]))).ok
    queued(scene, ("a-1", "a", "task"))
    assert taken(scene, tenants=("a",), kinds=("action", "task")) == ["a-1"]
    assert taken(scene, labels=("a100",)) == []
    scene.kernel = restore(checkpoint(scene.kernel), make_queue=Scheduler, history=scene.history)
    assert taken(scene, limit=1) == ["map-1"]
    registered = encode({"replica": generic("w-1/boot").to_map()})
    assert scene.apply(Order(scene.tick, "replica_register", registered)).ok
    assert taken(scene) == ["map-2"]


@pytest.mark.parametrize(
    "among",
    [
        {"tenants": ()},
        {"tenants": ("",)},
        {"tenants": "ab"},
        {"kinds": ("other",)},
        {"kinds": ("task",) * 257},
        {"without": ("",)},
        {"labels": ()},
        {"labels": ("x",) * 257},
        {"lease": ""},
        {"lease": ("remote",)},
    ],
)
def test_a_claim_with_impossible_names_is_refused(scene: Scene, among: dict[str, Any]) -> None:
    queued(scene, ("a-1", "a", "task"))
    assert code_of(scene.apply(Claim(scene.tick, "w-1/boot", 1, **among))) == "INVALID_PARAMS"


def test_a_claim_of_before_is_recorded_as_before() -> None:
    assert command_to_list(Claim(5, "worker-1", 9)) == ["claim", 5, "worker-1", 9]
    assert command_from_list(["claim", 5, "worker-1", 9]) == Claim(5, "worker-1", 9)
    for ending in ([None], [None, None], [["a"], None], [None] * 3):
        with pytest.raises(InvalidInput, match="left out"):
            command_from_list(["claim", 5, "worker-1", 9, *ending])
