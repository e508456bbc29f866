"""Makes another value of a value: a number at a bound, text of another kind, a bit, one leaf deep inside encoded bytes.

Everything is drawn from the generator that it is handed: the same draws make the same value.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from detent.canon import NotCanonical, encode
from detent.ledger.loose import loose
from tests.tamper.forge import flip
from tests.tamper.hostile_rows import VALUES

BOUNDS = (0, 1, -1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
NUMBERS_MAX, NUMBERS_MIN = 2**63 - 1, -(2**63)
DEPTH_MAX = 8
"""Of encoded bytes inside encoded bytes."""
BYTES_MAX = 1 << 24

Path = tuple[int | str | bytes, ...]
Picked = TypeVar("Picked")


def pick(draw: random.Random, some: Sequence[Picked]) -> Picked:
    """One of some, by one draw whatever their number: a row more or less does not change what is drawn next."""
    return some[int(draw.random() * len(some))]


def mutated(draw: random.Random, value: Any) -> Any:
    """Another value: mostly one that could stand in the same place, now and then one that never could."""
    if draw.random() < 0.15:
        return draw.choice([other for other in VALUES.values() if type(other) is not type(value) or other != value])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near = (value + 1, value - 1, value ^ 1 << draw.randrange(63), -value)
        return min(max(draw.choice((*near, *BOUNDS)), NUMBERS_MIN), NUMBERS_MAX)
    if isinstance(value, str):
        return _other_text(draw, value)
    if isinstance(value, bytes):
        return other_bytes(draw, value)
    return draw.choice(list(VALUES.values()))


def other_bytes(draw: random.Random, data: bytes) -> bytes:
    """Bytes with one leaf of what they encode changed, where they encode something; else with a bit, an end or a middle changed."""
    inside = changed_inside(draw, data) if draw.random() < 0.7 else None
    return inside if inside is not None else raw_bytes(draw, data)


def raw_bytes(draw: random.Random, data: bytes) -> bytes:
    """Bytes with no regard to what they mean: flipped, cut, joined, repeated, exchanged."""
    if not data:
        return draw.randbytes(draw.choice((1, 32, 64)))
    place, other = draw.randrange(len(data)), draw.randrange(len(data) + 1)
    first, last = min(place, other), max(place, other)
    return draw.choice(
        (
            flip(data, place),
            flip(data, place),
            data[:place],
            data[place:] + data[:place],
            data[:last] + data[first:],
            data[:first] + draw.randbytes(min(last - first, 4096)) + data[last:],
            data + draw.randbytes(draw.randrange(1, 40)),
            data[:first] + data[last:],
        )
    )


def changed_inside(draw: random.Random, data: bytes, depth: int = 0) -> bytes | None:
    """The canonical encoding of what bytes hold with one leaf of it changed; None when they hold nothing that has leaves.

    A leaf of bytes that is an encoding itself is opened in turn: a signed body inside a stored one is reached, too.
    """
    value = loose(data)
    if not isinstance(value, dict | list) or not value:
        return None
    changed = changed_leaf(draw, value, depth)
    try:
        return encode(changed, bytes_max=BYTES_MAX)
    except (NotCanonical, ValueError, OverflowError):
        return None


def changed_leaf(draw: random.Random, value: Any, depth: int = 0) -> Any:
    """A structure with one of its leaves changed, taken away, added twice or exchanged with another."""
    places = list(leaves(value))
    if not places:
        return mutated(draw, value)
    place = draw.choice(places)
    choice = draw.random()
    if choice < 0.1 and len(places) > 1:
        other = draw.choice(places)
        return put(put(value, place, get(value, other)), other, get(value, place))
    if choice < 0.2:
        return put(value, place[:-1], _without_or_twice(draw, get(value, place[:-1]), place[-1]))
    leaf = get(value, place)
    if isinstance(leaf, bytes) and depth < DEPTH_MAX:
        inside = changed_inside(draw, leaf, depth + 1)
        if inside is not None:
            return put(value, place, inside)
    return put(value, place, mutated(draw, leaf))


def leaves(value: Any, at: Path = ()) -> list[Path]:
    """Where the leaves of a structure are."""
    if isinstance(value, dict):
        return [place for name, inner in value.items() for place in leaves(inner, (*at, name))]
    if isinstance(value, list):
        return [place for number, inner in enumerate(value) for place in leaves(inner, (*at, number))]
    return [at] if at else []


def get(value: Any, place: Path) -> Any:
    """What is at a place of a structure."""
    for step in place:
        value = value[step]
    return value


def put(value: Any, place: Path, new: Any) -> Any:
    """A structure with something else at a place."""
    if not place:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = put(value[place[0]], place[1:], new)
    return copy


def _without_or_twice(draw: random.Random, parent: Any, name: Any) -> Any:
    if isinstance(parent, dict):
        return {key: inner for key, inner in parent.items() if key != name}
    if draw.random() < 0.5:
        return [*parent[:name], *parent[name + 1 :]]
    return [*parent, parent[name]]


def _other_text(draw: random.Random, text: str) -> str:
    place = draw.randrange(len(text) + 1)
    makers: tuple[Callable[[], str], ...] = (
        lambda: text[:place] + chr(draw.randrange(32, 0x250)) + text[place + 1 :],
        lambda: text[:place],
        lambda: text + draw.choice(("x", " ", "\u202e", "\x1b]52;", "'--")),
        text.swapcase,
        lambda: draw.choice(("SUCCEEDED", "FAILED", "CANCELED", "completed", "cancelled", "flow", "sha256:00")),
    )
    return draw.choice(makers)()
