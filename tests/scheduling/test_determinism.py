"""Determinism keys and replica sets: what may be expected to be equal, and who may promise it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import decode, digest, encode, sha256
from detent.errors import InvalidInput, Refused
from detent.scheduling import ReplicaSet, TokenStream, determinism_key, same_stream
from detent.scheduling.types import PlacementInput, ReplicaStatus

QUESTION: dict[str, Any] = {
    "prompt": "Why?",
    "parameters": {"temperature": "0.7", "top_k": 40},
    "seed": 7,
    "sampler_profile_version": "s1",
    "engine_version": "1.0",
    "model_digest": "sha256:aa",
}


def replica(replica_id: str, **changes: Any) -> ReplicaStatus:
    fields = {
        "engine": "llama",
        "engine_version": "1.0",
        "sampler_profile_version": "s1",
        "replica_set_id": "set",
        **changes,
    }
    return ReplicaStatus(
        placement=PlacementInput(
            replica_id=replica_id,
            pool_id="gpu",
            engine=fields["engine"],
            engine_version=fields["engine_version"],
            free_vram_mb=8_000,
            active_slots=0,
            ctx_max_supported=4_096,
        ),
        ready=True,
        device_mask=None,
        replica_set_id=fields["replica_set_id"],
        max_slots=1,
        model_id="m",
        model_digest="sha256:aa",
        sampler_profile_version=fields["sampler_profile_version"],
    )


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "Why? "},
        {"parameters": {"temperature": "0.8", "top_k": 40}},
        {"parameters": {"temperature": "0.7", "top_k": 41}},
        {"parameters": {"temperature": "0.7"}},
        {"parameters": {"temperature": "0.7", "top_k": "40"}},
        {"parameters": {"temperature": "0.7", "top_k": 40, "min_p": "0"}},
        {"seed": 8},
        {"sampler_profile_version": "s2"},
        {"engine_version": "1.1"},
        {"model_digest": "sha256:ab"},
    ],
)
def test_whatever_may_change_the_tokens_changes_the_key(change: dict[str, Any]) -> None:
    """OC-CORE-1030, OC-CORE-1032, X-094"""
    assert determinism_key(**{**QUESTION, **change}) != determinism_key(**QUESTION)


def test_the_order_of_the_parameters_does_not_change_the_key() -> None:
    """X-094"""
    turned = {name: QUESTION["parameters"][name] for name in reversed(QUESTION["parameters"])}
    assert list(turned) != list(QUESTION["parameters"])
    assert determinism_key(**{**QUESTION, "parameters": turned}) == determinism_key(**QUESTION)


def test_the_key_is_a_labelled_digest_of_canonical_bytes() -> None:
    """X-094: computed by hand, so that a key kept somewhere stays the same key."""
    body = {**QUESTION, "prompt": sha256(b"Why?")}
    assert determinism_key(**QUESTION) == digest(b"detent/determinism-key/v1\x00", encode(body))
    assert decode(encode(body)) == body


@given(st.dictionaries(st.sampled_from("abc"), st.one_of(st.integers(0, 2), st.sampled_from(["0", "1", "1.0"]))))
def test_different_parameters_never_share_a_key(parameters: dict[str, int | str]) -> None:
    """X-094: 1 and "1" are different parameters, and so are "1" and "1.0"."""
    same = encode(parameters) == encode({"a": 1})
    key = determinism_key(**{**QUESTION, "parameters": {"a": 1}})
    assert (determinism_key(**{**QUESTION, "parameters": parameters}) == key) == same


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": {"temperature": 0.7}},
        {"parameters": {"temperature": True}},
        {"parameters": {"temperature": "warm"}},
        {"parameters": {"temperature": "1e3"}},
        {"parameters": {"temperature": "01"}},
        {"parameters": {"temperature": "NaN"}},
        {"parameters": {"stop": ["a"]}},
        {"parameters": {"seed": 2**64}},
        {"parameters": {"": 1}},
        {"parameters": {1: 1}},
        {"parameters": {f"p{number}": 1 for number in range(65)}},
        {"parameters": None},
        {"prompt": b"Why?"},
        {"prompt": "\ud800"},
        {"seed": -1},
        {"seed": 1.0},
        {"model_digest": None},
        {"model_digest": ""},
        {"engine_version": None},
        {"sampler_profile_version": 1},
    ],
)
def test_a_question_that_cannot_be_named_exactly_has_no_key(change: dict[str, Any]) -> None:
    """X-094"""
    with pytest.raises(InvalidInput):
        determinism_key(**{**QUESTION, **change})


def test_answers_to_different_questions_are_not_compared() -> None:
    """OC-CORE-1032: not across an engine update, not across a model update, even when the tokens agree."""
    tokens = (1, 2, 3)
    answer = TokenStream(determinism_key(**QUESTION), tokens)
    assert same_stream(answer, TokenStream(determinism_key(**QUESTION), tokens))
    assert not same_stream(answer, TokenStream(determinism_key(**QUESTION), (1, 2)))
    for change in ({"engine_version": "1.1"}, {"model_digest": "sha256:ab"}):
        with pytest.raises(InvalidInput, match="different determinism keys"):
            same_stream(answer, TokenStream(determinism_key(**{**QUESTION, **change}), tokens))


@pytest.mark.parametrize("missing", ["engine", "engine_version", "sampler_profile_version"])
def test_a_set_cannot_be_made_without_its_pins(missing: str) -> None:
    """OC-CORE-1031a"""
    pins: dict[str, Any] = {"engine": "llama", "engine_version": "1.0", "sampler_profile_version": "s1"}
    ReplicaSet("set", **pins)
    for unfit in (None, ""):
        with pytest.raises(InvalidInput, match=missing):
            ReplicaSet("set", **{**pins, missing: unfit})
    del pins[missing]
    with pytest.raises(TypeError, match=missing):
        ReplicaSet("set", **pins)


@pytest.mark.parametrize(
    ("field", "value"),
    [("engine", "vllm"), ("engine_version", "1.1"), ("sampler_profile_version", "s2"), ("replica_set_id", "other")],
)
def test_a_replica_that_differs_does_not_join(field: str, value: str) -> None:
    """OC-CORE-1031b"""
    group = ReplicaSet("set", engine="llama", engine_version="1.0", sampler_profile_version="s1")
    assert group.join(replica("a")) is None
    refusal = group.join(replica("b", **{field: value}))
    assert isinstance(refusal, Refused)
    assert (refusal.code, refusal.details["field"], refusal.details["offered"]) == ("INVALID_PARAMS", field, value)
    assert group.members() == ["a"]
    assert "b" not in group


def test_a_set_knows_its_members() -> None:
    group = ReplicaSet("set", engine="llama", engine_version="1.0", sampler_profile_version="s1")
    for name in ("b", "a", "b"):
        assert group.join(replica(name)) is None
    assert (group.members(), len(group)) == (["a", "b"], 2)
    assert group.leave("a")
    assert not group.leave("a")
    assert group.members() == ["b"]
