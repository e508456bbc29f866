"""Dataclasses whose methods are written when they are first used.

`dataclasses.dataclass` compiles five or six methods for each class when the module is imported, about half a millisecond.
A command imports some two hundred such classes, compares the objects of a dozen and prints hardly any: writing only what is
used takes a tenth of a second off the start of every command. It is the same decorator otherwise, and to a type checker it
is the same one. Frozen fields are set through their slots, which is quicker, too.

Not for `InitVar`, ordering and the rarer options: those say `dataclasses.dataclass`. A class that extends another dataclass
is made by it, too.
"""

from __future__ import annotations

import dataclasses
import sys
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None,
        /,
        *,
        repr: bool = True,  # noqa: A002 - the names are those of the standard library
        eq: bool = True,
        frozen: bool = False,
        kw_only: bool = False,
        slots: bool = False,
    ) -> Any:
        """`dataclasses.dataclass`, but for when its methods are made."""

        def wrap(plain: type) -> type:
            if any(map(dataclasses.is_dataclass, plain.__mro__[1:])):
                return dataclasses.dataclass(plain, repr=repr, eq=eq, frozen=frozen, kw_only=kw_only, slots=slots)
            own = vars(plain).keys() & {"__init__", "__repr__", "__eq__", "__hash__", "__getstate__"}
            made = dataclasses.dataclass(plain, init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)
            wanted = {"__init__": _init, "__repr__": _repr if repr else None, "__eq__": _eq if eq else None}
            for name, make in wanted.items():
                if make is not None and name not in own:
                    setattr(made, name, _Late(name, make))
            # An `__eq__` in the body of a class leaves `__hash__ = None` there by itself.
            if eq and vars(plain).get("__hash__") is None:
                made.__hash__ = _Late("__hash__", _hash) if frozen else None
            if frozen:
                made.__setattr__, made.__delattr__ = _refuse_set, _refuse_delete
                if slots and "__getstate__" not in own:
                    made.__getstate__, made.__setstate__ = _getstate, _setstate
            options = made.__dataclass_params__
            options.init, options.repr, options.eq, options.frozen = True, repr, eq, frozen
            return made

        return wrap if cls is None else wrap(cls)


class _Late:
    """A placeholder for a method of a class; the first access makes the method, which replaces it."""

    __slots__ = ("_make", "_name")

    def __init__(self, name: str, make: Callable[[Any], Any]) -> None:
        self._name = name
        self._make = make

    def __get__(self, instance: object, owner: type) -> Any:
        holder = next((one for one in owner.__mro__ if vars(one).get(self._name) is self), None)
        if holder is None:  # Another thread was faster.
            return getattr(owner if instance is None else instance, self._name)
        method = self._make(holder)
        method.__name__ = self._name
        method.__qualname__ = f"{holder.__qualname__}.{self._name}"
        method.__module__ = holder.__module__
        setattr(holder, self._name, method)
        return method.__get__(instance, owner)


class _Factory:
    """Stands for a default that every object gets anew."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _init(cls: Any) -> Any:
    """Compile ``__init__``: the fields in order as parameters, each put into its slot."""
    fields = dataclasses.fields(cls)
    frozen = cls.__dataclass_params__.frozen
    held: dict[str, Any] = {"_factory": _FACTORY}
    plain = [_parameter(field, held) for field in fields if field.init and not field.kw_only]
    keyword = [_parameter(field, held) for field in fields if field.init and field.kw_only]
    parameters = ["self", *plain, *(["*", *keyword] if keyword else [])]
    lines = [line for field in fields if (line := _assignment(cls, field, frozen, held))]
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    inner = "".join(f"\n  {line}" for line in lines or ["pass"])
    text = f"def make({', '.join(held)}):\n def __init__({', '.join(parameters)}):{inner}\n return __init__"
    code = compile(text, f"<fields of {cls.__qualname__}>", "exec").co_consts[0]
    method = FunctionType(code, vars(sys.modules[cls.__module__]))(**held)
    method.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
    return method


def _parameter(field: dataclasses.Field[Any], held: dict[str, Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.name}=_factory"
    if field.default is dataclasses.MISSING:
        return field.name
    held[f"_default_{field.name}"] = field.default
    return f"{field.name}=_default_{field.name}"


def _assignment(cls: Any, field: dataclasses.Field[Any], frozen: bool, held: dict[str, Any]) -> str:
    """The line that sets a field; none for a field that is left to ``__post_init__``."""
    value = field.name
    if field.default_factory is not dataclasses.MISSING:
        held[f"_make_{field.name}"] = field.default_factory
        made = f"_make_{field.name}()"
        value = f"{made} if {field.name} is _factory else {field.name}" if field.init else made
    elif not field.init:
        if field.default is dataclasses.MISSING:
            return ""
        held[f"_default_{field.name}"] = field.default
        value = f"_default_{field.name}"
    if not frozen:
        return f"self.{field.name} = {value}"
    if (set_slot := getattr(vars(cls).get(field.name), "__set__", None)) is not None:
        held[f"_set_{field.name}"] = set_slot
        return f"_set_{field.name}(self, {value})"
    held["_set"] = object.__setattr__
    return f"_set(self, {field.name!r}, {value})"


def _repr(cls: Any) -> Any:
    names = [field.name for field in dataclasses.fields(cls) if field.repr]

    def represent(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({shown})"

    return recursive_repr()(represent)


def _eq(cls: Any) -> Any:
    values = _values([field.name for field in dataclasses.fields(cls) if field.compare])

    def equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _hash(cls: Any) -> Any:
    fields = dataclasses.fields(cls)
    values = _values([field.name for field in fields if (field.compare if field.hash is None else field.hash)])

    def hashed(self: Any) -> int:
        return hash(values(self))

    return hashed


def _values(names: list[str]) -> Callable[[Any], Any]:
    """What gives the values of some fields as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _refuse_set(_self: object, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(_self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
