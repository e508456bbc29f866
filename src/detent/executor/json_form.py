"""The JSON form of a user's value: one table for everything that enters or leaves a task (X-170).

Results, arguments, items of ordered runs and what a guest of the sandbox returns all come through here, so one value has
one form wherever it is met. The conversion goes one way: the receiver gets JSON, never the object that was sent.

What has one obvious form is converted (`_FORMS` below). What has none, or would lose something on the way, is refused with
its place inside the value and what to write instead. The result depends on the value alone: the order of a set is that of
its sorted elements, so equal values have equal digests.

Kinds of other libraries (NumPy, pandas, Pydantic, attrs) are known by what they can do; none of them is imported. Standard
library only, and little of that: a worker loads this while a task waits, and the sandbox takes it into the jail.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from math import isfinite, prod
from typing import Any, Final

DEPTH_MAX: Final = 64
"""Containers inside one another."""
INTEGER_BITS_MAX: Final = 2048
ARRAY_ITEMS_MAX: Final = 100_000
"""Elements of an array that are written as JSON; a larger one belongs in a file."""
_PLACE_CHARS_MAX: Final = 120
_ITERATORS: Final = frozenset({"generator", "map", "filter", "zip", "enumerate", "reversed", "islice", "chain"})
_LOSSY: Final = frozenset("mV")
"""Kinds of arrays whose elements lose their unit or their names in a list."""
_VIEWS: Final = frozenset({"dict_keys", "dict_values", "dict_items", "odict_keys", "odict_values", "odict_items"})
UNTOUCHED: Final = object()
"""What a caller's ``special`` gives back for a value that is none of its own kinds."""


class NoJsonForm(Exception):
    """A value without a JSON form: the ``place`` inside it, the ``reason``, and what could be there ``instead``."""

    def __init__(self, reason: str, instead: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.instead = instead
        self.place = ""

    def inside(self, step: str) -> NoJsonForm:
        """The same, seen from one level further out."""
        self.place = step + self.place
        return self

    def told(self, name: str) -> str:
        """What is wrong, with the value called ``name``."""
        place = self.place
        if len(place) > _PLACE_CHARS_MAX:
            place = f"{place[: _PLACE_CHARS_MAX // 2]}...{place[-_PLACE_CHARS_MAX // 2 :]}"
        return f"{name}{place} {self.reason}"


def json_form(
    value: Any, *, special: Callable[[Any], Any] | None = None, escape: bool = True, depth_max: int = DEPTH_MAX
) -> Any:
    """The value as None, bool, int, float, str, lists and text-keyed dicts; raises `NoJsonForm`.

    ``special`` gives the form of kinds that only the caller knows (files, steps), or `UNTOUCHED`. ``escape`` writes keys that
    begin with ``$`` with one more, as stored values have them (X-177).
    """
    return _Forming(special, escape, depth_max).form(value, 0)


class _Forming:
    """One walk through one value."""

    __slots__ = ("depth_max", "escape", "special")

    def __init__(self, special: Callable[[Any], Any] | None, escape: bool, depth_max: int) -> None:
        self.special = special
        self.escape = escape
        self.depth_max = depth_max

    def form(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            return _text(value)
        if kind is int:
            return _integer(value)
        if kind is float:
            return _number(value)
        if depth > self.depth_max:
            raise NoJsonForm(
                f"is nested deeper than {self.depth_max} lists and dicts", "a flatter value, or a detent.File"
            )
        if kind is dict:
            return self._object(value.items(), depth)
        if kind is list or kind is tuple:
            return self.of_list(value, depth)
        if self.special is not None and (found := self.special(value)) is not UNTOUCHED:
            return found
        return self._other(value, depth)

    def _other(self, value: Any, depth: int) -> Any:
        """A value of a kind that JSON does not know."""
        for knows, make in _FORMS:
            if knows(value):
                return make(self, value, depth)
        raise NoJsonForm(f"is {_a(type(value))}, which has no JSON form", _instead(value))

    def of_list(self, values: Iterable[Any], depth: int) -> list[Any]:
        found = []
        for index, item in enumerate(values):
            try:
                found.append(self.form(item, depth + 1))
            except NoJsonForm as exc:
                raise exc.inside(f"[{index}]") from None
        return found

    def _object(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in items:
            name = key if type(key) is str else self._key(key, depth)
            try:
                name = _text(name)
                if name in found:
                    raise NoJsonForm("stands for two keys of one dict", "keys that differ as text")
                found[name] = self.form(item, depth + 1)
            except NoJsonForm as exc:
                raise exc.inside(f"[{key!r:.60}]") from None
        if self.escape and any(name[:1] == "$" for name in found):
            return {f"${name}" if name[:1] == "$" else name: item for name, item in found.items()}
        return found

    def _key(self, key: Any, depth: int) -> str:
        """A key as text: as Python's ``json`` writes it, or the text that the key's kind has as a value."""
        try:
            form = self.form(key, depth + 1)
        except NoJsonForm:
            form = []
        if type(form) is str:
            return form
        if form is None or type(form) is bool:
            return {None: "null", True: "true", False: "false"}[form]
        if type(form) is int or type(form) is float:
            return repr(form)
        raise NoJsonForm(
            f"has the key {key!r:.60}, and {_a(type(key))} cannot be a key in JSON",
            "text keys, or a list of pairs",
        )

    def _fields(self, value: Any, names: Iterable[str], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in names:
            try:
                found[name] = self.form(getattr(value, name), depth + 1)
            except NoJsonForm as exc:
                raise exc.inside(f".{name}") from None
        return found

    # -- one method for each row of the table --------------------------------------------------------------------------

    def of_enum(self, value: Any, depth: int) -> Any:
        return self.form(value.value, depth + 1)

    def of_mapping(self, value: Any, depth: int) -> Any:
        return self._object(((key, value[key]) for key in value), depth)

    def of_named_tuple(self, value: Any, depth: int) -> Any:
        return self._fields(value, value._fields, depth)

    def of_dataclass(self, value: Any, depth: int) -> Any:
        fields = value.__dataclass_fields__
        names = [name for name, each in fields.items() if each._field_type.name == "_FIELD"]  # noqa: SLF001 - what `dataclasses.fields` goes by
        return self._fields(value, names, depth)

    def of_attrs(self, value: Any, depth: int) -> Any:
        return self._fields(value, [each.name for each in value.__attrs_attrs__], depth)

    def of_model(self, value: Any, depth: int) -> Any:
        return self._object(value.model_dump().items(), depth)

    def of_set(self, value: Any, depth: int) -> Any:
        if self.special is not None and any(self.special(item) is not UNTOUCHED for item in value):
            raise NoJsonForm("is a set of steps or files, which have no order", "a list of them")
        return sorted(self.of_list(value, depth), key=_order)

    def of_ordinary_text(self, value: Any, _depth: int) -> str:
        return _text(str.__str__(value))

    def of_ordinary_integer(self, value: Any, _depth: int) -> int:
        return _integer(int.__int__(value))

    def of_ordinary_number(self, value: Any, _depth: int) -> float:
        return _number(float.__float__(value))

    def of_path(self, value: Any, _depth: int) -> str:
        path = value.__fspath__()
        if type(path) is not str:
            raise NoJsonForm("is a path of bytes, which has no JSON form", "os.fsdecode(...) of it")
        return _text(path)

    def of_moment(self, value: Any, _depth: int) -> str:
        if value != value:  # noqa: PLR0124 - pandas' "not a time", which is a datetime to Python
            raise _not_a_time()
        return str(value.isoformat())

    def of_decimal(self, value: Any, _depth: int) -> str:
        if not value.is_finite():
            raise NoJsonForm(f"is {value}, which JSON cannot hold", "None in its place")
        return str(value)

    def of_uuid(self, value: Any, _depth: int) -> str:
        return str(value)

    def of_array(self, value: Any, depth: int) -> Any:
        """A scalar or an array of NumPy's kind: it has a ``dtype``, a ``shape`` and ``tolist``."""
        count, kind = prod(value.shape), getattr(value.dtype, "kind", "")
        if count > ARRAY_ITEMS_MAX:
            raise NoJsonForm(
                f"is {_a(type(value))} of {count:,} elements; at most {ARRAY_ITEMS_MAX:,} become JSON",
                "detent.File(path) after numpy.save(path, array)",
            )
        if kind == "M":  # As a list, times would be whole numbers of nanoseconds.
            if (value != value).any():  # noqa: PLR0124 - "not a time" differs from itself
                raise _not_a_time()
            value = value.astype(str)
        found = value.tolist()
        if kind in _LOSSY or type(found) is type(value):
            raise NoJsonForm(
                f"is {_a(type(value))} of {value.dtype}, which has no JSON form without loss",
                "float(...), str(...) or array.astype(...) of it",
            )
        return self.form(found, depth)


def _is(module: str, *names: str) -> Callable[[Any], bool]:
    """Whether a value is of one of a module's classes. What was never loaded can have no instances."""

    def knows(value: Any) -> bool:
        loaded = sys.modules.get(module)
        return loaded is not None and any(isinstance(value, getattr(loaded, name)) for name in names)

    return knows


def _has(*names: str) -> Callable[[Any], bool]:
    """Whether a value's class has all of these; a class itself, which is also a value, never counts."""
    return lambda value: not isinstance(value, type) and all(hasattr(type(value), name) for name in names)


def _is_table(value: Any) -> bool:
    """A table or a column of pandas, Polars or Arrow: rows with labels, some of which an array would lose."""
    return any(hasattr(type(value), name) for name in ("iloc", "to_dicts", "to_pylist"))


def _refuse_table(_forming: _Forming, value: Any, _depth: int) -> Any:
    raise NoJsonForm(f"is {_a(type(value))}, which has no JSON form of its own", TABLE)


TABLE: Final = 'df.to_dict("records"), or for many rows detent.File(path) after df.to_parquet(path)'
ITERATOR: Final = "list(...) of it"
TIMEDELTA: Final = "delta.total_seconds()"
BYTES: Final = 'detent.File.from_bytes(data, name="...")'

_FORMS: Final[tuple[tuple[Callable[[Any], bool], Callable[[_Forming, Any, int], Any]], ...]] = (
    (_is("enum", "Enum"), _Forming.of_enum),
    (_has("__dataclass_fields__"), _Forming.of_dataclass),
    (_has("_fields", "_asdict"), _Forming.of_named_tuple),
    (_has("model_dump", "model_fields"), _Forming.of_model),
    (_has("__attrs_attrs__"), _Forming.of_attrs),
    (_is_table, _refuse_table),
    (_has("dtype", "shape", "tolist"), _Forming.of_array),
    (lambda value: isinstance(value, str), _Forming.of_ordinary_text),
    (lambda value: isinstance(value, int), _Forming.of_ordinary_integer),
    (lambda value: isinstance(value, float), _Forming.of_ordinary_number),
    (lambda value: isinstance(value, dict), _Forming.of_mapping),
    (lambda value: isinstance(value, list | tuple | range), _Forming.of_list),
    (lambda value: isinstance(value, set | frozenset), _Forming.of_set),
    (_has("__fspath__"), _Forming.of_path),
    (_is("datetime", "date", "time"), _Forming.of_moment),
    (_is("decimal", "Decimal"), _Forming.of_decimal),
    (_is("uuid", "UUID"), _Forming.of_uuid),
    (_is("collections", "deque", "UserList"), _Forming.of_list),
    (_is("collections", "UserDict"), _Forming.of_mapping),
    (_is("types", "MappingProxyType"), _Forming.of_mapping),
    (lambda value: type(value).__name__ in _VIEWS, _Forming.of_list),
)
"""Which kinds have which form; the first row that fits is taken."""


def _not_a_time() -> NoJsonForm:
    return NoJsonForm("is not a time", "None in its place")


def _order(form: Any) -> tuple[Any, ...]:
    """A place for every JSON value among all others: numbers as numbers, text as text, the rest by kind."""
    if form is None or type(form) is bool:
        return (0, str(form))
    if type(form) is int or type(form) is float:
        return (1, form)
    if type(form) is str:
        return (2, form)
    if type(form) is list:
        return (3, tuple(_order(each) for each in form))
    return (4, tuple((key, _order(form[key])) for key in sorted(form)))


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise NoJsonForm(
                "is text with a lone surrogate, which UTF-8 cannot hold",
                'text.encode("utf-8", "replace").decode()',
            ) from None
    return value


def _integer(value: int) -> int:
    if value.bit_length() > INTEGER_BITS_MAX:
        raise NoJsonForm(f"is an integer of more than {INTEGER_BITS_MAX} bits", "hex(...) of it, as text")
    return value


def _number(value: float) -> float:
    if not isfinite(value):
        raise NoJsonForm(f"is {value}, which JSON cannot hold", "None in its place")
    return value


def _instead(value: Any) -> str:
    """What to write in the place of a value that has no JSON form."""
    kind = type(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return BYTES
    if isinstance(value, complex):
        return "[z.real, z.imag]"
    if _is("datetime", "timedelta")(value):
        return TIMEDELTA
    if hasattr(kind, "__await__") or kind.__name__ == "coroutine":
        return "what it gives: await it"
    if hasattr(kind, "read") or hasattr(kind, "write"):
        return "detent.File(path)"
    if hasattr(kind, "__next__") or kind.__name__ in _ITERATORS:
        return ITERATOR
    if isinstance(value, BaseException):
        return "str(...) of it, or raise it"
    if callable(value):
        return "what it gives when it is called"
    return "a dict of what matters in it, or a detent.File"


def _a(kind: type) -> str:
    """The name of a type with its article."""
    name = kind.__name__
    vowel = name.lower().startswith(("a", "e", "i", "o", "u")) and not name.lower().startswith(("uni", "us", "uu"))
    return f"an {name}" if vowel else f"a {name}"
