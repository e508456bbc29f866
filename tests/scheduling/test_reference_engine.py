"""The reference engine keeps what replica sets promise, exactly, on every machine."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.canon import Philox
from detent.errors import InvalidInput, Refused
from detent.scheduling import GenerationRequest, ReferenceEngine, ReplicaSet, TokenStream, same_stream
from detent.scheduling.determinism import END_TOKEN, VOCABULARY, softmax, text_of, token_count
from tests.scheduling.test_determinism import replica

ENGINE = ReferenceEngine("1.0", "s1", "sha256:aa")
PARAMETERS = st.fixed_dictionaries(
    {"max_new_tokens": st.integers(0, 12)},
    optional={"temperature": st.sampled_from(["0", "0.25", "0.7", "1", "2.5", 3]), "top_k": st.integers(1, 40)},
)


def answer(engine: ReferenceEngine, request: GenerationRequest) -> TokenStream:
    stream = engine.generate(request)
    assert isinstance(stream, TokenStream)
    return stream


@settings(max_examples=100)
@given(st.text(max_size=20), PARAMETERS, st.integers(0, 2**64 - 1), st.sampled_from(["sha256:aa", "sha256:bb"]))
def test_two_replicas_of_a_set_give_the_same_tokens(
    prompt: str, parameters: dict[str, int | str], seed: int, model: str
) -> None:
    """OC-CORE-1030"""
    group = ReplicaSet("set", engine="llama", engine_version="1.0", sampler_profile_version="s1")
    engines = []
    for name in ("a", "b"):
        member = replica(name)
        assert group.join(member) is None
        engines.append(ReferenceEngine(member.placement.engine_version, member.sampler_profile_version, model))
    request = GenerationRequest(prompt, parameters, seed)
    streams = [answer(engine, request) for engine in engines]
    assert same_stream(*streams)
    assert len(streams[0].tokens) <= int(parameters["max_new_tokens"])
    assert all(0 < token < len(VOCABULARY) for token in streams[0].tokens)
    turned = GenerationRequest(prompt, dict(reversed(parameters.items())), seed)
    assert answer(engines[0], turned) == streams[0]


QUESTION = GenerationRequest("Once upon a time", {"max_new_tokens": 24, "temperature": "0.9"}, 4)


def test_the_stream_is_fixed_for_all_time() -> None:
    """OC-CORE-1030: a version of the engine that answers otherwise must call itself another version."""
    assert text_of(answer(ENGINE, QUESTION).tokens) == "lxbffrrjdj,ffkuoypjg!rrs"


@pytest.mark.parametrize(
    "engine",
    [
        ReferenceEngine("1.1", "s1", "sha256:aa"),
        ReferenceEngine("1.0", "s2", "sha256:aa"),
        ReferenceEngine("1.0", "s1", "sha256:bb"),
    ],
)
def test_an_update_of_engine_sampler_or_model_makes_another_question_of_it(engine: ReferenceEngine) -> None:
    """OC-CORE-1032"""
    assert engine.key(QUESTION) != ENGINE.key(QUESTION)
    assert answer(engine, QUESTION).tokens != answer(ENGINE, QUESTION).tokens
    with pytest.raises(InvalidInput, match="different determinism keys"):
        same_stream(answer(engine, QUESTION), answer(ENGINE, QUESTION))


def test_seed_prompt_and_parameters_each_change_the_stream() -> None:
    """OC-CORE-1030"""
    others = [
        GenerationRequest(QUESTION.prompt, QUESTION.parameters, 5),
        GenerationRequest(QUESTION.prompt + ".", QUESTION.parameters, 4),
        GenerationRequest(QUESTION.prompt, {**QUESTION.parameters, "temperature": "0.91"}, 4),
    ]
    streams = {answer(ENGINE, request).tokens for request in (QUESTION, *others)}
    assert len(streams) == 4


def test_a_replica_answers_only_for_its_own_sampler_profile() -> None:
    """OC-CORE-1031a"""
    own = GenerationRequest("a", {}, 1, sampler_profile_version="s1")
    assert isinstance(ENGINE.generate(own), TokenStream)
    refusal = ENGINE.generate(GenerationRequest("a", {}, 1, sampler_profile_version="s2"))
    assert isinstance(refusal, Refused)
    assert refusal.code == "INVALID_PARAMS"


@pytest.mark.parametrize("before", ["", "import sys, _pydecimal\nsys.modules['decimal'] = _pydecimal\n"])
def test_another_process_with_another_hash_seed_and_another_decimal_gives_the_same_tokens(before: str) -> None:
    """OC-CORE-1030: Python has two implementations of decimal arithmetic, and both round every digit alike."""
    script = before + (
        "from detent.scheduling import GenerationRequest, ReferenceEngine\n"
        "request = GenerationRequest('Once upon a time', {'max_new_tokens': 24, 'temperature': '0.9'}, 4)\n"
        "stream = ReferenceEngine('1.0', 's1', 'sha256:aa').generate(request)\n"
        "print(stream.key.hex(), *stream.tokens)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    stream = answer(ENGINE, QUESTION)
    assert child.stdout.split() == [stream.key.hex(), *map(str, stream.tokens)]


def test_temperature_zero_takes_the_best_token_whatever_the_seed() -> None:
    greedy = [
        answer(ENGINE, GenerationRequest("x", {"max_new_tokens": 8, "temperature": "0"}, seed)).tokens
        for seed in (1, 2)
    ]
    only_best = answer(ENGINE, GenerationRequest("x", {"max_new_tokens": 8, "top_k": 1}, 3)).tokens
    assert greedy[0] == greedy[1] == only_best


def test_a_stream_ends_at_the_end_token_or_the_limit() -> None:
    lengths = set()
    for seed in range(12):
        tokens = answer(ENGINE, GenerationRequest("x", {"max_new_tokens": 16}, seed)).tokens
        assert END_TOKEN not in tokens
        lengths.add(len(tokens))
    assert max(lengths) == 16
    assert min(lengths) < 16
    assert answer(ENGINE, GenerationRequest("x", {"max_new_tokens": 0}, 1)).tokens == ()


def test_the_draw_follows_the_probabilities() -> None:
    """Not a test of Philox: a sampler that ignored its weights would still be deterministic."""
    sampler = _two_token_sampler()
    draws = Philox(1)
    logits = [0, 0, *([-8_000_000] * (len(VOCABULARY) - 2))]
    picked = [sampler.pick(logits, draws) for _ in range(400)]
    assert set(picked) == {0, 1}
    assert 150 < picked.count(1) < 250
    tilted = [3_000, 0, *logits[2:]]
    assert sum(sampler.pick(tilted, draws) for _ in range(400)) < 60


def _two_token_sampler() -> Any:
    from detent.scheduling.determinism import _sampler

    return _sampler({})


def test_normalised_exponentials_stay_finite_however_large_the_logits() -> None:
    """PIPE-024"""
    huge = Decimal(10_000)
    assert softmax([huge, huge]) == [Decimal("0.5"), Decimal("0.5")]
    low, high = softmax([-huge, huge])
    assert (low.is_finite(), low < Decimal("1e-8000"), high) == (True, True, Decimal(1))
    extreme = softmax([Decimal("-1e40"), Decimal("1e40"), Decimal("1e40")])
    assert extreme == [0, Decimal("0.5"), Decimal("0.5")]
    assert abs(sum(softmax([Decimal(7), Decimal("0.1"), Decimal(-3)]), Decimal(-1))) < Decimal("1e-26")


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_new_tokens": -1},
        {"max_new_tokens": "8"},
        {"max_new_tokens": 65_537},
        {"top_k": 0},
        {"top_k": "3"},
        {"temperature": "-0.1"},
        {"temperature": 0.5},
        {"min_p": "0.1"},
    ],
)
def test_a_parameter_the_engine_cannot_honour_is_refused(parameters: Any) -> None:
    with pytest.raises(InvalidInput):
        GenerationRequest("x", parameters)


def test_a_prompt_takes_a_token_for_each_byte() -> None:
    assert [token_count(prompt) for prompt in ("", "abc", "é")] == [0, 3, 2]
