"""Dataclasses, named tuples and regular expressions that cost next to nothing until they are first used.

Every command is a new process, so whatever a module makes while it is loaded is made by every command. A command loads some
two hundred dataclasses and makes objects of a third of them; of the regular expressions it uses a few.

* `dataclass` is the decorator of the standard library, but what it has to find out about a class, and the five or six methods
  that it compiles, wait until they are used: half a millisecond for each class. Frozen fields are set through their slots,
  which is quicker, too. Not for `InitVar`, ordering and the rarer options: those say `dataclasses.dataclass`. A class that
  extends another dataclass is made by it, too. A mistake in a class (a mutable default) is reported at its first use.
* `NamedTuple` is that of `typing`, which compiles each annotation, without that.
* `pattern` is `re.compile` at the first use. From then on its methods cost as much as those of a compiled pattern.

To a type checker they are those of the standard library.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import sys
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple", "dataclass", "pattern"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
    from re import compile as pattern
    from typing import NamedTuple
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
            if any("__dataclass_fields__" in vars(base) for base in plain.__mro__[1:]):
                return dataclasses.dataclass(plain, repr=repr, eq=eq, frozen=frozen, kw_only=kw_only, slots=slots)
            space = dict(vars(plain))
            options = {"init": True, "repr": repr, "eq": eq, "frozen": frozen}
            added = {}
            wanted = {"__init__": _init, "__repr__": _repr if repr else None, "__eq__": _eq if eq else None}
            for name, make in wanted.items():
                if make is not None and name not in space:
                    added[name] = _Late(name, make)
            # An `__eq__` in the body of a class leaves `__hash__ = None` there by itself.
            if eq and space.get("__hash__") is None:
                added["__hash__"] = _Late("__hash__", _hash) if frozen else None
            if frozen:
                added |= {"__setattr__": _refuse_set, "__delattr__": _refuse_delete}
                if slots and "__getstate__" not in space:
                    added |= {"__getstate__": _getstate, "__setstate__": _setstate}
            if slots:
                return _slotted(plain, space | added, options, kw_only)
            made = dataclasses.dataclass(plain, init=False, repr=False, eq=False, kw_only=kw_only)
            for name, value in added.items():
                setattr(made, name, value)
            return _with_options(made, options)

        return wrap if cls is None else wrap(cls)

    class pattern:  # noqa: N801 - it is called like the function that it replaces
        """`re.compile`, but for when it compiles: whatever is asked of the pattern is kept here from the first time on."""

        def __init__(self, text: str | bytes, flags: int = 0) -> None:
            self._made_of = text, flags

        def __getattr__(self, name: str) -> Any:
            found = getattr(re.compile(*self._made_of), name)
            setattr(self, name, found)
            return found

    class _MakesNamedTuples(type):
        """Makes a class that extends `NamedTuple` a named tuple, as the metaclass in `typing` does."""

        def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> Any:
            if not bases:
                return super().__new__(cls, name, bases, space)
            types = space.pop("__annotations__", {})
            defaults = {field: space.pop(field) for field in types if field in space}
            if list(defaults) != list(types)[len(types) - len(defaults) :]:
                raise TypeError(f"a field of {name} without a default follows one that has a default")
            made = collections.namedtuple(name, types, defaults=defaults.values(), module=space["__module__"])  # noqa: PYI024
            made.__annotations__ = made.__new__.__annotations__ = types
            for attribute, value in space.items():
                setattr(made, attribute, value)
            return made

    class NamedTuple(metaclass=_MakesNamedTuples):
        """`typing.NamedTuple`; annotations are kept as they are written."""


class _Late:
    """A placeholder for an attribute of a class; the first access makes the attribute, which replaces it."""

    __slots__ = ("_make", "_name")

    def __init__(self, name: str, make: Callable[[Any], Any]) -> None:
        self._name = name
        self._make = make

    def __get__(self, instance: object, owner: type) -> Any:
        holder = next((one for one in owner.__mro__ if vars(one).get(self._name) is self), None)
        if holder is not None:  # Otherwise another thread was faster.
            made = self._make(holder)
            if isinstance(made, FunctionType):
                made.__name__ = self._name
                made.__qualname__ = f"{holder.__qualname__}.{self._name}"
                made.__module__ = holder.__module__
            setattr(holder, self._name, made)
        return getattr(owner if instance is None else instance, self._name)


def _slotted(plain: type, space: dict[str, Any], options: dict[str, bool], kw_only: bool) -> Any:
    """The class once more, with slots; what else the standard library finds out about its fields waits until it is used."""
    names = [name for name, written in plain.__annotations__.items() if not _is_no_field(written)]
    told = {name: space.pop(name) for name in names if name in space}
    for name in ("__dict__", "__weakref__"):
        space.pop(name, None)  # They are the other class's.
    space |= {"__slots__": tuple(names), "__qualname__": plain.__qualname__}
    space["__dataclass_fields__"] = _Late("__dataclass_fields__", partial(_fields, told, kw_only))
    for name in ("__dataclass_params__", "__match_args__"):
        space[name] = _Late(name, partial(_learnt, name, told, options, kw_only))
    return type(plain)(plain.__name__, plain.__bases__, space)


def _is_no_field(annotation: str) -> bool:
    return "ClassVar" in annotation or annotation.endswith("KW_ONLY")


def _fields(told: dict[str, Any], kw_only: bool, cls: Any) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a class as `dataclasses.fields` looks for them. The standard library takes ten times as long."""
    found: dict[str, Any] = {}
    for name, written in cls.__annotations__.items():
        kw_only = kw_only or written.endswith("KW_ONLY")
        if _is_no_field(written):
            continue
        default = told.get(name, dataclasses.MISSING)
        field: Any = default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)
        field.name, field.type, field._field_type = name, written, dataclasses._FIELD  # type: ignore[attr-defined]  # noqa: SLF001
        if field.kw_only is dataclasses.MISSING:
            field.kw_only = kw_only
        found[name] = field
    return found


def _learnt(name: str, told: dict[str, Any], options: dict[str, bool], kw_only: bool, cls: Any) -> Any:
    """What the standard library tells by an attribute of this name about a class with these fields."""
    space = {"__doc__": cls.__name__, "__module__": cls.__module__, "__annotations__": cls.__annotations__, **told}
    bare: Any = type(cls.__name__, (), space)
    bare = dataclasses.dataclass(bare, init=False, repr=False, eq=False, kw_only=kw_only, slots=True)
    return getattr(_with_options(bare, options), name)


def _with_options(made: Any, options: dict[str, bool]) -> Any:
    for option, value in options.items():
        setattr(made.__dataclass_params__, option, value)
    return made


class _Factory:
    """Stands for a default that every object gets anew."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _init(cls: Any) -> Any:
    """Compile ``__init__``: the fields in order as parameters, each put into its slot."""
    fields = dataclasses.fields(cls)
    frozen = cls.__setattr__ is _refuse_set
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
