"""A late dataclass is a dataclass in everything but the moment at which its methods are made."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import types
import typing
from dataclasses import KW_ONLY, field
from typing import Any, get_type_hints

import pytest

from detent.canon.late import NamedTuple, dataclass, pattern

METHODS = ("__init__", "__repr__", "__eq__", "__hash__")


def shapes(make: Any) -> dict[str, Any]:
    """The same classes, made by either decorator."""

    @make(frozen=True, slots=True)
    class Point:
        """Frozen and slotted, as most are."""

        x: int
        y: list[int] = field(default_factory=list, compare=False)
        label: str = "here"

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("below zero")

    @make(slots=True)
    class Open:
        """Not frozen, with a field that is set later."""

        a: int
        _: KW_ONLY
        b: int = 2
        c: dict[str, int] = field(init=False, default_factory=dict, repr=False)
        d: int = field(init=False, default=7)

    @make(frozen=True)
    class Unslotted:
        """Without slots."""

        only: int = 5

    @make(frozen=True, slots=True, kw_only=True, eq=False)
    class Named:
        """By name alone, equal to itself alone."""

        one: int
        two: int = 2

    @make(frozen=True, slots=True, repr=False)
    class Own:
        """With methods of its own."""

        secret: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 1

    return {one.__name__: one for one in (Point, Open, Unslotted, Named, Own)}


LATE, PLAIN = shapes(dataclass), shapes(dataclasses.dataclass)
Point, Open = LATE["Point"], LATE["Open"]


def test_nothing_is_made_before_it_is_used() -> None:
    fresh = shapes(dataclass)["Point"]
    assert [type(vars(fresh)[name]).__name__ for name in METHODS] == ["_Late"] * 4
    fresh(1)
    assert [type(vars(fresh)[name]).__name__ for name in METHODS] == ["function", "_Late", "_Late", "_Late"]


@pytest.mark.parametrize("name", LATE)
def test_signature_fields_and_options_are_those_of_the_standard_library(name: str) -> None:
    late, plain = LATE[name], PLAIN[name]
    assert late.__init__ is not None  # From Python 3.13 on, only a method that is there is looked at.
    assert str(inspect.signature(late)) == str(inspect.signature(plain))
    assert get_type_hints(late.__init__) == get_type_hints(plain.__init__)
    assert repr(late.__dataclass_params__) == repr(plain.__dataclass_params__)
    assert [repr(one) for one in dataclasses.fields(late)] == [repr(one) for one in dataclasses.fields(plain)]
    assert (late.__match_args__, late.__doc__) == (plain.__match_args__, plain.__doc__)
    assert (late.__init__.__name__, late.__init__.__qualname__) == (
        plain.__init__.__name__,
        plain.__init__.__qualname__,
    )


@pytest.mark.parametrize(
    ("name", "arguments", "keywords"),
    [
        ("Point", (1,), {}),
        ("Point", (1, [2]), {"label": "there"}),
        ("Open", (1,), {"b": 3}),
        ("Unslotted", (), {}),
        ("Named", (), {"one": 1}),
        ("Own", ("s",), {}),
    ],
)
def test_objects_look_and_compare_as_those_of_the_standard_library(name: str, arguments: Any, keywords: Any) -> None:
    made = [shape[name](*arguments, **keywords) for shape in (LATE, LATE, PLAIN, PLAIN)]
    assert dataclasses.asdict(made[0]) == dataclasses.asdict(made[2])
    if name != "Own":  # Which shows its address.
        assert repr(made[0]) == repr(made[2])
    assert (made[0] == made[1]) is (made[2] == made[3])
    assert made[0] != made[2]
    assert dataclasses.replace(made[0]) is not made[0]
    if made[2].__hash__ is None:
        assert made[0].__hash__ is None
    elif name != "Named":
        assert hash(made[0]) == hash(made[2])


def test_a_difference_in_a_compared_field_is_seen_and_in_another_is_not() -> None:
    assert Point(1, [1]) == Point(1, [2])
    assert Point(1) != Point(2)
    assert Point(1) != Point(1, label="there")
    assert Open(1) != Open(1, b=9)


def test_every_object_gets_a_default_of_its_own() -> None:
    one, other = Point(1), Point(1)
    one.y.append(5)
    assert other.y == []
    assert Open(1).c is not Open(1).c


def test_a_frozen_object_refuses_to_be_changed() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert not hasattr(point, "__dict__")


def test_a_wrong_call_is_refused() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Point()
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, z=3)
    with pytest.raises(ValueError, match="below zero"):
        Point(-1)


def test_methods_of_the_class_itself_stay() -> None:
    own = LATE["Own"]
    assert own("a") == own("b")
    assert hash(own("a")) == 1
    assert "secret" not in repr(own("a"))


def test_a_subclass_that_is_no_dataclass_inherits_the_methods() -> None:
    class Sub(shapes(dataclass)["Point"]):  # type: ignore[misc]
        pass

    assert Sub(3).x == 3
    assert repr(Sub(3)).endswith("Sub(x=3, y=[], label='here')")
    assert Sub(3) == Sub(3)


@dataclass(frozen=True, slots=True)
class Kept:
    """At the top of a module, where pickle finds it."""

    a: int
    b: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Extended(Kept):
    """A dataclass that extends one."""

    c: int = 3


def test_copies_and_pickles_are_equal() -> None:
    for one in (Kept(1, (2,)), Extended(1, (2,), 4)):
        assert copy.copy(one) == one
        assert copy.deepcopy(one) == one
        assert pickle.loads(pickle.dumps(one)) == one
    assert repr(Extended(1)) == "Extended(a=1, b=(), c=3)"


def test_a_pattern_is_compiled_when_it_is_first_used() -> None:
    word = pattern("[a-z]+", re.IGNORECASE)
    assert list(vars(word)) == ["_made_of"]
    assert word.fullmatch("Word") is not None
    assert word.fullmatch("2") is None
    assert word.sub("-", "a1B") == "-1-"
    assert (word.pattern, word.flags & re.IGNORECASE) == ("[a-z]+", re.IGNORECASE)
    assert vars(word)["fullmatch"] == re.compile("[a-z]+", re.IGNORECASE).fullmatch
    assert pattern(rb"\d").findall(b"1 2") == [b"1", b"2"]


def test_a_pattern_that_is_wrong_says_so_at_its_first_use() -> None:
    with pytest.raises(re.error, match="unterminated"):
        pattern("(").search("")


def pairs(base: Any) -> Any:
    """The same named tuple, made by either."""

    class Pair(base):  # type: ignore[misc]
        """Two."""

        left: int
        right: str = "r"
        """The other one."""

        def both(self) -> str:
            return f"{self.left}{self.right}"

        @property
        def size(self) -> int:
            return len(self)

    return Pair


def test_a_named_tuple_is_that_of_the_standard_library() -> None:
    late, plain = pairs(NamedTuple), pairs(typing.NamedTuple)
    assert late.__mro__[1:] == plain.__mro__[1:]
    for name in ("_fields", "_field_defaults", "__doc__", "__qualname__", "__module__", "__match_args__"):
        assert getattr(late, name) == getattr(plain, name), name
    assert get_type_hints(late) == get_type_hints(plain)
    assert inspect.signature(late).parameters.keys() == inspect.signature(plain).parameters.keys()
    for made in (late(1), plain(1)):
        assert (made, made.both(), made.size, repr(made)) == ((1, "r"), "1r", 2, "Pair(left=1, right='r')")
        assert made._replace(left=2)._asdict() == {"left": 2, "right": "r"}


def test_a_named_tuple_refuses_a_default_before_a_field_without_one() -> None:
    space = {"__annotations__": {"a": "int", "b": "int"}, "a": 1, "__module__": __name__}
    with pytest.raises(TypeError, match="without a default follows"):
        types.new_class("Wrong", (NamedTuple,), {}, lambda body: body.update(space))
