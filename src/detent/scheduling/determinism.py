"""What a replica set promises: the same question gets the same tokens from each of its replicas.

The question is named by its determinism key. It holds all six things the promise names, so two answers may be compared, or
one kept in place of the other, exactly when their keys are equal; a new engine, sampler or model gives a new key, and
nothing is assumed across it (OC-CORE-1032). A set keeps the promise by pinning engine and versions: a replica with
another one cannot join.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from detent.canon import check_uint64, digest, encode, sha256
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput, Refused
from detent.scheduling.checks import check_id
from detent.scheduling.types import ReplicaStatus

KEY_LABEL: Final = b"detent/determinism-key/v1\x00"
PARAMETERS_MAX: Final = 64
"""Most sampling parameters of one request."""

SamplingParameters: TypeAlias = Mapping[str, int | str]

_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?")


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
