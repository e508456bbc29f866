"""What a replica set promises: the same question gets the same tokens from each of its replicas.

The question is named by its determinism key. It holds all six things the promise names, so two answers may be compared, or
one kept in place of the other, exactly when their keys are equal; a new engine, sampler or model gives a new key, and
nothing is assumed across it (OC-CORE-1032). A set keeps the promise by pinning engine and versions: a replica with
another one cannot join.

The reference engine: inference without a model, pure and seeded, so that what replicas promise can be tested.

It has the shape of the real thing. The logits of the next token are a function of engine, model and everything before it;
temperature and top-k turn them into probabilities; a draw picks the token. Logits and draws both come from Philox. All
numbers are integers or decimals whose every digit is specified (`decimal` rounds `exp` correctly, a C library need not),
so two machines cannot disagree in a last bit and then in a token.

Its text is nonsense on purpose: it cannot be mistaken for a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final, TypeAlias

from detent.canon import Philox, check_uint64, digest, encode, encode_trusted, sha256
from detent.canon.late import dataclass, pattern
from detent.canon.show import show
from detent.errors import InvalidInput, Refused
from detent.scheduling.checks import check_id, check_optional_id
from detent.scheduling.types import ReplicaStatus

KEY_LABEL: Final = b"detent/determinism-key/v1\x00"
PARAMETERS_MAX: Final = 64
"""Most sampling parameters of one request."""

SamplingParameters: TypeAlias = Mapping[str, int | str]

_DECIMAL = pattern(r"-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?")


def determinism_key(
    *,
    prompt: str,
    parameters: SamplingParameters,
    seed: int,
    sampler_profile_version: str,
    engine_version: str,
    model_digest: str,
) -> bytes:
    """The name of one question to a model: equal keys, equal token streams (OC-CORE-1030, X-094).

    Sampling parameters are integers or decimal texts, because a float has more than one way to be written; their order in
    the map does not count. Without a model digest there is no key: what cannot be told apart is not promised equal.
    """
    for name, value in (
        ("sampler_profile_version", sampler_profile_version),
        ("engine_version", engine_version),
        ("model_digest", model_digest),
    ):
        check_id(name, value)
    return digest(
        KEY_LABEL,
        encode(
            {
                "prompt": prompt_digest(prompt),
                "parameters": check_parameters(parameters),
                "seed": check_uint64("seed", seed),
                "sampler_profile_version": sampler_profile_version,
                "engine_version": engine_version,
                "model_digest": model_digest,
            }
        ),
    )


def prompt_digest(prompt: str) -> bytes:
    """SHA-256 over the prompt's UTF-8 bytes; a text that has none is refused."""
    if type(prompt) is not str:
        raise InvalidInput(f"prompt must be a text, not {show(prompt)}")
    try:
        return sha256(prompt.encode())
    except UnicodeEncodeError as exc:
        raise InvalidInput(f"prompt is not valid Unicode text: {exc.reason} at {exc.start}") from exc


def check_parameters(parameters: object) -> dict[str, int | str]:
    """Accept a map of names to integers and decimal texts such as ``"0.7"``; refuse floats, booleans and all else."""
    if not isinstance(parameters, Mapping) or len(parameters) > PARAMETERS_MAX:
        raise InvalidInput(f"parameters must be a map of at most {PARAMETERS_MAX} names, not {show(parameters)}")
    for name, value in parameters.items():
        check_id("a sampling parameter's name", name)
        if type(value) is int and -(2**63) <= value < 2**64:
            continue
        if type(value) is not str or not _DECIMAL.fullmatch(value):
            raise InvalidInput(
                f"sampling parameter {name} must be an integer or a decimal text, not {show(value)}",
                hint='write 0.7 as the text "0.7"',
            )
    return dict(parameters)


@dataclass(frozen=True, slots=True)
class TokenStream:
    """The answer to one question, under the key of the question."""

    key: bytes
    tokens: tuple[int, ...]


def same_stream(left: TokenStream, right: TokenStream) -> bool:
    """Whether two answers to the same question agree; refuses to compare answers to different ones."""
    if left.key != right.key:
        raise InvalidInput("the streams have different determinism keys: nothing says that they should be equal")
    return left.tokens == right.tokens


class ReplicaSet:
    """Replicas that answer alike. The pins are fixed when the set is made; who does not fit them does not join."""

    __slots__ = ("_members", "engine", "engine_version", "replica_set_id", "sampler_profile_version")

    def __init__(self, replica_set_id: str, *, engine: str, engine_version: str, sampler_profile_version: str) -> None:
        self.replica_set_id = check_id("replica_set_id", replica_set_id)
        self.engine = check_id("engine", engine)
        self.engine_version = check_id("engine_version", engine_version)
        self.sampler_profile_version = check_id("sampler_profile_version", sampler_profile_version)
        self._members: set[str] = set()

    def misfit(self, replica: ReplicaStatus) -> Refused | None:
        """Why a replica cannot be one of this set, or None."""
        pinned = {
            "replica_set_id": (self.replica_set_id, replica.replica_set_id),
            "engine": (self.engine, replica.placement.engine),
            "engine_version": (self.engine_version, replica.placement.engine_version),
            "sampler_profile_version": (self.sampler_profile_version, replica.sampler_profile_version),
        }
        for name, (wanted, offered) in pinned.items():
            if wanted != offered:
                return Refused(
                    "INVALID_PARAMS",
                    f"replica {replica.replica_id!r} has {name} {offered!r}, "
                    f"replica set {self.replica_set_id!r} is pinned to {wanted!r}",
                    {"replica_id": replica.replica_id, "field": name, "pinned": wanted, "offered": offered},
                )
        return None

    def join(self, replica: ReplicaStatus) -> Refused | None:
        """Take a replica in; refuse one with another engine, engine version or sampler profile (OC-CORE-1031)."""
        refusal = self.misfit(replica)
        if refusal is None:
            self._members.add(replica.replica_id)
        return refusal

    def leave(self, replica_id: str) -> bool:
        """Let a replica go; False when it is not a member."""
        if replica_id not in self._members:
            return False
        self._members.discard(replica_id)
        return True

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, replica_id: object) -> bool:
        return replica_id in self._members

    def members(self) -> list[str]:
        """The replicas of the set, by id."""
        return sorted(self._members)


ENGINE: Final = "reference"
VOCABULARY: Final = ("", *"abcdefghijklmnopqrstuvwxyz ,.!?")
"""Token 0 ends a stream; the others are one character each."""
END_TOKEN: Final = 0
NEW_TOKENS_MAX: Final = 65_536

LOGITS_LABEL: Final = b"detent/reference-logits/v1\x00"
_LOGIT_SPREAD: Final = 16_000
"""Logits are thousandths, from -8 to just below 8."""
_DRAW_UNIT: Final = 2**32
"""The most probable token has this weight in a draw, every other one its share of it, rounded down."""
_EXACT: Final = Context(prec=28, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, traps=[])


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One question. ``parameters`` may hold ``max_new_tokens``, ``temperature`` and ``top_k``, and nothing else.

    A temperature of 0 always takes the most probable token. Without a sampler profile the replica's own is meant.
    """

    prompt: str
    parameters: SamplingParameters
    seed: int = 0
    sampler_profile_version: str | None = None

    def __post_init__(self) -> None:
        prompt_digest(self.prompt)
        check_uint64("seed", self.seed)
        check_optional_id("sampler_profile_version", self.sampler_profile_version)
        _sampler(check_parameters(self.parameters))


@dataclass(frozen=True, slots=True)
class ReferenceEngine:
    """One replica of the engine: its version, its sampler profile and its model. Holds no state between questions."""

    engine_version: str
    sampler_profile_version: str
    model_digest: str

    def __post_init__(self) -> None:
        for name in ("engine_version", "sampler_profile_version", "model_digest"):
            check_id(name, getattr(self, name))

    def generate(self, request: GenerationRequest) -> TokenStream | Refused:
        """The whole answer; refuses a question that asks for another sampler profile than this replica has."""
        wanted = request.sampler_profile_version
        if wanted is not None and wanted != self.sampler_profile_version:
            return Refused(
                "INVALID_PARAMS",
                f"the request asks for sampler profile {wanted!r}, this replica has {self.sampler_profile_version!r}",
            )
        return TokenStream(self.key(request), tuple(self.stream(request)))

    def key(self, request: GenerationRequest) -> bytes:
        """The determinism key of a question to this replica."""
        return determinism_key(
            prompt=request.prompt,
            parameters=request.parameters,
            seed=request.seed,
            sampler_profile_version=self.sampler_profile_version,
            engine_version=self.engine_version,
            model_digest=self.model_digest,
        )

    def stream(self, request: GenerationRequest) -> Iterator[int]:
        """The tokens of the answer, one by one, until one of them ends it or there are enough.

        The draws come from the key, so the stream depends on the six things in it and on nothing else.
        """
        sampler = _sampler(check_parameters(request.parameters))
        draws = Philox(int.from_bytes(self.key(request)[:8], "big"))
        context = prompt_digest(request.prompt)
        for _ in range(sampler.max_new_tokens):
            token = sampler.pick(self.logits(context), draws)
            if token == END_TOKEN:
                return
            yield token
            context = sha256(context + bytes([token]))

    def logits(self, context: bytes) -> list[int]:
        """How much the model likes each token next, in thousandths, given the digest of all that came before."""
        seed = digest(LOGITS_LABEL, encode_trusted([self.engine_version, self.model_digest, context]))
        words = Philox(int.from_bytes(seed[:8], "big"))
        return [words.uint32() % _LOGIT_SPREAD - _LOGIT_SPREAD // 2 for _ in VOCABULARY]


def text_of(tokens: Sequence[int]) -> str:
    """Tokens as text."""
    return "".join(VOCABULARY[token] for token in tokens)


def token_count(prompt: str) -> int:
    """How many tokens a prompt takes: one for each byte of its UTF-8."""
    return len(prompt.encode())


def softmax(logits: Sequence[Decimal]) -> list[Decimal]:
    """Normalised exponentials, shifted by the largest logit: finite for every finite input, however large (PIPE-024)."""
    weights = _shifted_exponentials(logits)
    total = Decimal(0)
    for weight in weights:
        total = _EXACT.add(total, weight)
    return [_EXACT.divide(weight, total) for weight in weights]


@dataclass(frozen=True, slots=True)
class _Sampler:
    max_new_tokens: int
    temperature: Decimal
    top_k: int

    def pick(self, logits: Sequence[int], draws: Philox) -> int:
        """The next token. Of equally liked tokens the lower number comes first, in the cut and in the draw."""
        ranked = sorted(range(len(logits)), key=lambda token: (-logits[token], token))[: self.top_k]
        if not self.temperature:
            return ranked[0]
        scale = _EXACT.multiply(self.temperature, Decimal(1_000))
        weights = [
            int(_EXACT.multiply(probability, Decimal(_DRAW_UNIT)))
            for probability in softmax([_EXACT.divide(Decimal(logits[token]), scale) for token in ranked])
        ]
        drawn = draws.below(sum(weights))
        for token, weight in zip(ranked, weights, strict=True):
            drawn -= weight
            if drawn < 0:
                return token
        return ranked[-1]


def _shifted_exponentials(logits: Sequence[Decimal]) -> list[Decimal]:
    largest = max(logits)
    return [_EXACT.exp(_EXACT.subtract(logit, largest)) for logit in logits]


def _sampler(parameters: dict[str, int | str]) -> _Sampler:
    known = {"max_new_tokens": 128, "temperature": 1, "top_k": len(VOCABULARY), **parameters}
    if unknown := sorted(parameters.keys() - {"max_new_tokens", "temperature", "top_k"}):
        raise InvalidInput(f"the reference engine has no sampling parameter {', '.join(unknown)}")
    new_tokens, top_k, temperature = known["max_new_tokens"], known["top_k"], Decimal(known["temperature"])
    if type(new_tokens) is not int or not 0 <= new_tokens <= NEW_TOKENS_MAX:
        raise InvalidInput(f"max_new_tokens must be an integer from 0 to {NEW_TOKENS_MAX}, not {show(new_tokens)}")
    if type(top_k) is not int or top_k < 1:
        raise InvalidInput(f"top_k must be an integer of at least 1, not {show(top_k)}")
    if temperature < 0:
        raise InvalidInput(f"temperature must not be negative, and is {show(known['temperature'])}")
    return _Sampler(new_tokens, temperature, top_k)
