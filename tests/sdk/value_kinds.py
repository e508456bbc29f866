"""One value of every kind that functions return, with its JSON form, or with the place and the advice of its refusal.

NumPy and pandas are no dependencies: `Scalar`, `Array` and `Frame` are small classes with the same protocols.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import io
import math
import pathlib
import types
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import pydantic

import detent


class Level(enum.Enum):
    HIGH = 3


class Colour(enum.StrEnum):
    RED = "red"


class Mode(enum.IntFlag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: float


@dataclasses.dataclass
class Score:
    name: str
    score: float
    when: dt.date | None = None
    kept: dataclasses.InitVar[int] = 0


@dataclasses.dataclass(frozen=True)
class Tag:
    text: str


class Row(pydantic.BaseModel):
    id: uuid.UUID
    price: decimal.Decimal
    tags: set[str]


class Text(str):
    __slots__ = ()


class Weight(float):
    """As `numpy.float64` is a float."""


class Dtype:
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __str__(self) -> str:
        return f"kind {self.kind}"


class Array:
    """As far as JSON is concerned, an array or a scalar of NumPy's."""

    def __init__(self, values: Any, kind: str, shape: tuple[int, ...] = ()) -> None:
        self._values, self._kind, self._shape = values, kind, shape

    @property
    def dtype(self) -> Dtype:
        return Dtype(self._kind)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def tolist(self) -> Any:
        return self if self._kind == "g" else self._values

    def astype(self, _kind: type) -> Array:
        return Array(f"{self._values}.000000000" if self._shape == () else [str(v) for v in self._values], "U")

    def __ne__(self, other: object) -> Any:
        listed = self._values if isinstance(self._values, list) else [self._values]
        return types.SimpleNamespace(any=lambda: "NaT" in listed)

    __hash__ = None  # type: ignore[assignment]


class Frame:
    """A table of pandas', by what it can do."""

    iloc = property(lambda self: self)

    def to_dict(self, orient: str = "dict") -> Any:
        return orient


class NotATime(dt.datetime):
    """As `pandas.NaT` is a datetime that differs from itself."""

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = dt.datetime.__hash__


DAY = dt.date(2026, 1, 31)
NOON = dt.datetime(2026, 1, 31, 12, 30, tzinfo=dt.UTC)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
DEFAULTS: collections.defaultdict[str, int] = collections.defaultdict(int, {"a": 1})

CONVERTED: dict[str, tuple[Callable[[], Any], Any]] = {
    "none": (lambda: None, None),
    "bool": (lambda: True, True),
    "int": (lambda: 1, 1),
    "float": (lambda: 1.5, 1.5),
    "text": (lambda: "ä", "ä"),
    "list": (lambda: [1], [1]),
    "dict": (lambda: {"a": 1}, {"a": 1}),
    "tuple": (lambda: (1, (2,)), [1, [2]]),
    "dollar keys": (lambda: {"$from": 1, "a": {2}}, {"$from": 1, "a": [2]}),
    "path": (lambda: pathlib.Path("data/a.csv"), "data/a.csv"),
    "datetime": (lambda: NOON, "2026-01-31T12:30:00+00:00"),
    "date": (lambda: DAY, "2026-01-31"),
    "time": (lambda: dt.time(12, 30), "12:30:00"),
    "enum": (lambda: Level.HIGH, 3),
    "text enum": (lambda: Colour.RED, "red"),
    "flag": (lambda: Mode.READ | Mode.WRITE, 3),
    "uuid": (lambda: ID, str(ID)),
    "decimal": (lambda: decimal.Decimal("1.50"), "1.50"),
    "dataclass": (lambda: Score("a", 0.5, DAY), {"name": "a", "score": 0.5, "when": "2026-01-31"}),
    "named tuple": (lambda: Point(1, 2.5), {"x": 1, "y": 2.5}),
    "model": (
        lambda: Row(id=ID, price=decimal.Decimal("9.90"), tags={"b", "a"}),
        {"id": str(ID), "price": "9.90", "tags": ["a", "b"]},
    ),
    "set of numbers": (lambda: {10, 9, -1}, [-1, 9, 10]),
    "set of texts": (lambda: {"b", "a", "c"}, ["a", "b", "c"]),
    "mixed set": (lambda: {"b", 2, None, (1, "x"), (1, 2)}, [None, 2, "b", [1, 2], [1, "x"]]),
    "set of dataclasses": (lambda: {Tag("b"), Tag("a")}, [{"text": "a"}, {"text": "b"}]),
    "frozenset": (lambda: frozenset({3, 1}), [1, 3]),
    "text of a subclass": (lambda: Text("a"), "a"),
    "number of a subclass": (lambda: Weight(0.25), 0.25),
    "ordered dict": (lambda: collections.OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
    "default dict": (lambda: DEFAULTS, {"a": 1}),
    "counter": (lambda: collections.Counter("aab"), {"a": 2, "b": 1}),
    "mapping proxy": (lambda: types.MappingProxyType({"a": 1}), {"a": 1}),
    "deque": (lambda: collections.deque([1, 2]), [1, 2]),
    "range": (lambda: range(3), [0, 1, 2]),
    "keys of a dict": ({"b": 1, "a": 2}.keys, ["b", "a"]),
    "number keys": (lambda: {1: "a", 2.5: "b"}, {"1": "a", "2.5": "b"}),
    "None and bool keys": (lambda: {None: 1, False: 2}, {"null": 1, "false": 2}),
    "date keys": (lambda: {DAY: 1}, {"2026-01-31": 1}),
    "numpy integer": (lambda: Array(3, "i"), 3),
    "numpy bool": (lambda: Array(True, "b"), True),
    "numpy time": (lambda: Array("2026-01-31T12:30:00", "M"), "2026-01-31T12:30:00.000000000"),
    "numpy array": (lambda: {"rows": Array([[1, 2], [3, 4]], "i", (2, 2))}, {"rows": [[1, 2], [3, 4]]}),
}
"""By name: what makes the value, and what arrives."""

REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "nan": (lambda: math.nan, " is nan", "None in its place"),
    "infinity": (lambda: [1, -math.inf], "[1] is -inf", "None in its place"),
    "inside": (
        lambda: {"rows": [0, 1, 2, Score("a", math.nan)]},
        "['rows'][3].score is nan, which JSON cannot hold",
        "None in its place",
    ),
    "decimal nan": (lambda: decimal.Decimal("NaN"), " is NaN", "None in its place"),
    "not a time": (lambda: NotATime(2026, 1, 1), " is not a time", "None in its place"),
    "bytes": (lambda: b"ab", " is a bytes", "detent.File.from_bytes("),
    "bytearray": (lambda: bytearray(b"ab"), " is a bytearray", "detent.File.from_bytes("),
    "set of bytes": (lambda: {"a": {b"x"}}, "['a'][0] is a bytes", "detent.File.from_bytes("),
    "frame": (Frame, " is a Frame", 'df.to_dict("records")'),
    "large array": (lambda: Array([], "i", (1000, 1000)), " is an Array of 1,000,000 elements", "numpy.save("),
    "long double": (lambda: Array(1.5, "g"), " is an Array of kind g", "float(...)"),
    "numpy not a time": (lambda: Array(["2026-01-31", "NaT"], "M", (2,)), " is not a time", "None in its place"),
    "complex": (lambda: 1j, " is a complex", "[z.real, z.imag]"),
    "timedelta": (lambda: dt.timedelta(1), " is a timedelta", "delta.total_seconds()"),
    "fraction": (lambda: fractions.Fraction(1, 3), " is a Fraction", "a dict of what matters in it"),
    "generator": (lambda: (n for n in [1]), " is a generator", "list(...)"),
    "iterator": (lambda: map(str, [1]), " is a map", "list(...)"),
    "function": (lambda: len, " is a builtin_function_or_method", "when it is called"),
    "class": (lambda: Level, " is an EnumType", "when it is called"),
    "exception": (lambda: ValueError("no"), " is a ValueError", "str(...)"),
    "open file": (io.BytesIO, " is a BytesIO", "detent.File(path)"),
    "object": (object, " is an object", "detent.File"),
    "tuple key": (lambda: {(1, 2): 3}, " has the key (1, 2), and a tuple cannot be a key", "a list of pairs"),
    "equal keys": (lambda: {1: "a", "1": "b"}, "['1'] stands for two keys", "keys that differ as text"),
    "surrogate": (lambda: ["\ud800"], "[0] is text with a lone surrogate", "replace"),
    "large integer": (lambda: 1 << 4000, " is an integer of more than 2048 bits", "hex(...)"),
}
"""By name: what makes the value, the place in it with what is wrong there, and what to return instead."""


@detent.task
def make(kind: str) -> Any:
    return CONVERTED[kind][0]() if kind in CONVERTED else REFUSED[kind][0]()


@detent.task
def show(values: Any) -> Any:
    """What another task gets of it."""
    return values


@detent.flow
def all_kinds() -> Any:
    return show(make.map(list(CONVERTED)))


@detent.flow
def refused_kinds() -> Any:
    return make.options(on_error="continue").map(list(REFUSED))


@detent.flow
def given_kinds() -> Any:
    return [show(made()) for made, _ in CONVERTED.values()]
