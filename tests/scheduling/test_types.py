"""The scheduler's types: exactly the contract's fields, checked when they are made, one canonical map each."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from detent.canon import decode, encode
from detent.canon.grammar import PRIORITY_NAMES
from detent.errors import InvalidInput
from detent.scheduling.checks import check_priority, workflow_priority
from detent.scheduling.types import ModelRequirements, Pin, PlacementInput, ReplicaStatus, TaskRequest, derive
from tests.scheduling.fleets import NEEDS, PLACEMENT, STATUS, needs, replica, request

CATALOG: dict[str, object] = {"model_id": "llama-3-8b", "ctx": 4096}
ADAPTER: dict[str, object] = {"streaming": True, "ctx_overhead": 96}
NOT_COUNTS = [math.nan, math.inf, -1, 1.5, True, "1", None, 2**64]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (ModelRequirements, "model_id model_digest ctx_max quant streaming extensions"),
        (
            PlacementInput,
            "replica_id pool_id engine engine_version free_vram_mb active_slots ctx_max_supported features",
        ),
        (
            ReplicaStatus,
            "placement ready device_mask replica_set_id max_slots model_id model_digest sampler_profile_version partition_id",
        ),
    ],
)
def test_a_type_has_exactly_the_contracts_fields(kind: Any, names: str) -> None:
    """CORE-X001, CORE-X002, CORE-X003, X-088"""
    assert [entry.name for entry in fields(kind)] == names.split()


def test_a_task_request_has_at_least_the_contracts_fields() -> None:
    """CORE-X004"""
    names = "job_id session_id priority requirements engine device_mask pin prompt_tokens max_new_tokens seed"
    assert [entry.name for entry in fields(TaskRequest)][:11] == [*names.split(), "sampler_profile_version"]
    assert [entry.name for entry in fields(Pin)] == ["pool_id"]


@pytest.mark.parametrize(
    "value",
    [
        needs(quant="Q4_K_M", extensions=["mmproj", "speculative_decode"]),
        replica().placement,
        replica(device_mask=None, model_digest=None),
        request(pool="pool-a", session_id="s", vram_mb=5, time_ms=6, cost=7),
        TaskRequest("plain"),
    ],
)
def test_a_map_says_all_of_a_value_and_nothing_else_can_be_read(value: Any) -> None:
    """CORE-X001..CORE-X004"""
    shown = value.to_map()
    assert type(value).from_map(decode(encode(shown))) == value
    assert set(shown) == {entry.name for entry in fields(value)}
    for name in shown:
        with pytest.raises(InvalidInput, match=f"lacks {name}"):
            type(value).from_map({key: item for key, item in shown.items() if key != name})
    with pytest.raises(InvalidInput, match="unknown fields: 'weight'"):
        type(value).from_map({**shown, "weight": 1})
    with pytest.raises(InvalidInput, match="must be a map"):
        type(value).from_map([])


def test_sets_in_meaning_have_one_spelling() -> None:
    """CORE-X001..CORE-X003"""
    assert needs(extensions=["b", "a"]) == needs(extensions=("a", "b"))
    assert replica(features=["b", "a"]).placement.features == ("a", "b")
    assert replica(device_mask="gpu1,gpu0") == replica(device_mask="gpu0,gpu1")


@pytest.mark.parametrize("wrong", [math.nan, -1, 1.5, True, "1", None, 2**64])
@pytest.mark.parametrize("name", ["free_vram_mb", "active_slots", "ctx_max_supported"])
def test_a_replica_cannot_claim_an_amount_that_is_no_count(name: str, wrong: Any) -> None:
    """CORE-X002"""
    with pytest.raises(InvalidInput, match=name):
        replica(**{name: wrong})


@pytest.mark.parametrize("wrong", [0, *NOT_COUNTS])
def test_limits_are_at_least_one(wrong: Any) -> None:
    """CORE-X001, CORE-X003"""
    with pytest.raises(InvalidInput, match="ctx_max"):
        needs(ctx_max=wrong)
    with pytest.raises(InvalidInput, match="max_slots"):
        replica(max_slots=wrong)


@pytest.mark.parametrize("wrong", ["", "a\x00b", "x" * 201, 7, b"id", ["id"]])
def test_an_id_that_is_none_is_refused_by_name(wrong: Any) -> None:
    """CORE-X001..CORE-X004"""
    for name in ("replica_id", "pool_id", "engine", "engine_version"):
        with pytest.raises(InvalidInput, match=name):
            PlacementInput(**{**PLACEMENT, name: wrong})
    for name in ("replica_set_id", "model_id", "model_digest", "sampler_profile_version", "device_mask"):
        with pytest.raises(InvalidInput, match=name):
            ReplicaStatus(replica().placement, **{**STATUS, name: wrong})
    for name in ("model_id", "model_digest", "quant"):
        with pytest.raises(InvalidInput, match=name):
            ModelRequirements(**{**NEEDS, name: wrong})
    for name in ("job_id", "session_id", "engine", "sampler_profile_version", "device_mask"):
        with pytest.raises(InvalidInput, match=name):
            TaskRequest(**{"job_id": "job-1", name: wrong})
    with pytest.raises(InvalidInput, match=r"pin\.pool_id"):
        Pin(wrong)


@pytest.mark.parametrize("wrong", [0, 1, "yes", None])
def test_a_flag_is_true_or_false(wrong: Any) -> None:
    """CORE-X001, CORE-X003"""
    with pytest.raises(InvalidInput, match="streaming"):
        needs(streaming=wrong)
    with pytest.raises(InvalidInput, match="ready"):
        replica(ready=wrong)


@pytest.mark.parametrize("wrong", ["gpu0", {"gpu0"}, [""], ["a", "a"], [1], None, ["x"] * 65])
def test_a_list_of_features_is_a_list_of_different_names(wrong: Any) -> None:
    """CORE-X001, CORE-X002"""
    with pytest.raises(InvalidInput, match="features"):
        replica(features=wrong)
    with pytest.raises(InvalidInput, match="extensions"):
        needs(extensions=wrong)


@pytest.mark.parametrize("wrong", [",", "gpu0,", "gpu0,,gpu1", "gpu0, gpu1", "gpu0,gpu0", 1])
def test_a_mask_is_device_names_between_commas(wrong: Any) -> None:
    """OC-CORE-1011a"""
    with pytest.raises(InvalidInput, match="device_mask"):
        request(device_mask=wrong)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"requirements": {}}, "requirements"),
        ({"pin": "pool-a"}, "pin"),
        ({"pin": {"pool_id": "pool-a"}}, "pin"),
        ({"job_kind": "chore"}, "job_kind"),
        ({"job_kind": ["task"]}, "job_kind"),
        *(({name: -1}, name) for name in ("prompt_tokens", "max_new_tokens", "seed", "vram_mb", "time_ms", "cost")),
        *(({name: math.nan}, name) for name in ("prompt_tokens", "max_new_tokens", "seed", "vram_mb", "time_ms")),
    ],
)
def test_a_malformed_request_is_refused_by_field(changes: dict[str, Any], text: str) -> None:
    """CORE-X004"""
    with pytest.raises(InvalidInput, match=text) as caught:
        request(**changes)
    assert caught.value.code == "INVALID_PARAMS"


def test_a_malformed_pin_is_refused() -> None:
    """OC-CORE-1019a, X-087"""
    shown = request(pool="pool-a").to_map()
    for pin in ("pool-a", {}, {"pool_id": ""}, {"pool_id": "a", "replica_id": "b"}):
        with pytest.raises(InvalidInput, match="pin") as caught:
            TaskRequest.from_map({**shown, "pin": pin})
        assert caught.value.code == "INVALID_PARAMS"


def test_a_replica_contradicting_itself_is_refused() -> None:
    """CORE-X003, CORE-X017"""
    with pytest.raises(InvalidInput, match="above max_slots"):
        replica(active_slots=3, max_slots=2)
    with pytest.raises(InvalidInput, match="needs a model_id"):
        replica(model_id=None)
    with pytest.raises(InvalidInput, match="placement"):
        ReplicaStatus({}, **STATUS)  # type: ignore[arg-type]


def test_priorities_are_the_classes_one_to_ten() -> None:
    """CORE-X014, X-010"""
    assert [check_priority(number) for number in range(1, 11)] == list(range(1, 11))
    assert dict(PRIORITY_NAMES) == {"low": 1, "normal": 5, "high": 10}
    assert TaskRequest("job").priority == 5


@pytest.mark.parametrize("wrong", [0, 11, -1, True, "5", 5.0, None])
def test_any_other_priority_is_refused(wrong: Any) -> None:
    """CORE-X014, X-010"""
    with pytest.raises(InvalidInput, match="priority"):
        request(priority=wrong)


def test_an_operator_may_cap_the_priority_of_workflows() -> None:
    """X-010"""
    assert workflow_priority(10, 10) == 10
    assert workflow_priority(10, 4) == 4
    assert workflow_priority(3, 4) == 3


def test_the_kind_of_a_job_says_whether_it_may_be_dropped() -> None:
    """X-031"""
    dropped = {kind: request(job_kind=kind).evictable for kind in ("platform", "action", "seq", "inference", "task")}
    assert dropped == {"platform": True, "action": False, "seq": False, "inference": True, "task": True}


def test_requirements_follow_from_catalog_and_adapter() -> None:
    """OC-CORE-1014a"""
    catalog = {**CATALOG, "model_digest": "sha256:ab", "quant": "q4-k_m", "extensions": ["mmproj"], "licence": "x"}
    assert derive(catalog, ADAPTER) == ModelRequirements("llama-3-8b", "sha256:ab", 4000, "Q4_K_M", True, ("mmproj",))
    assert derive({"ref": "hf:org/model@1", "ctx": 10}, {"streaming": False, "ctx_overhead": 0}).model_id == (
        "hf:org/model@1"
    )


def test_what_was_not_observed_stays_unknown() -> None:
    """OC-CORE-1014b, OC-CORE-1014c"""
    derived = derive(CATALOG, ADAPTER)
    assert (derived.quant, derived.model_digest, derived.extensions) == (None, None, ())


@pytest.mark.parametrize(
    ("catalog", "adapter", "text"),
    [
        ({"model_id": "m"}, ADAPTER, "does not say ctx"),
        ({"ctx": 4096}, ADAPTER, "model_id"),
        (CATALOG, {"streaming": True}, "does not say ctx_overhead"),
        (CATALOG, {"ctx_overhead": 96}, "does not say streaming"),
        (CATALOG, {**ADAPTER, "streaming": "yes"}, "streaming"),
        (CATALOG, {**ADAPTER, "ctx_overhead": 4096}, "leaves nothing"),
        ({**CATALOG, "quant": 4}, ADAPTER, "quant"),
    ],
)
def test_nothing_that_is_needed_is_guessed(catalog: Any, adapter: Any, text: str) -> None:
    """OC-CORE-1014c"""
    with pytest.raises(InvalidInput, match=text):
        derive(catalog, adapter)


def test_the_context_a_user_sees_has_the_overhead_taken_off() -> None:
    """OC-CORE-1015"""
    assert derive(CATALOG, ADAPTER).ctx_max == 4000
    assert derive(CATALOG, {**ADAPTER, "ctx_max": 2048}).ctx_max == 1952
    assert derive(CATALOG, {**ADAPTER, "ctx_max": 8192}).ctx_max == 4000
