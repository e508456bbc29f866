"""Results that a function's own annotation says cannot be kept: told before it runs, from source alone (X-170).

Only what is certain is refused: a name that leads to a kind without a JSON form, alone or inside a container. A union is
refused when all of its members are; a class of the project is not looked into. What cannot be found or followed (installed
modules, names that are made at run time) counts as sound, and is judged when there is a result.
"""

from __future__ import annotations

import ast
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from detent.executor.json_form import BYTES, ITERATOR, TABLE, TIMEDELTA

if TYPE_CHECKING:
    from detent.contract import Contract

PARSING: Final = threading.RLock()
"""Python 3.11 cannot parse in two threads at once (it fails with "AST constructor recursion depth mismatch")."""
FINDINGS_MAX: Final = 100
HOPS_MAX: Final = 8
"""Modules that may hand a function on, one to the other."""
SOURCE_BYTES_MAX: Final = 16 * 1024 * 1024
_ABSTRACT: Final = ("collections.abc", "typing")
_TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "pandas": ("DataFrame", "Series"),
    "polars": ("DataFrame", "LazyFrame", "Series"),
    "pyarrow": ("Table", "RecordBatch"),
}
_REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("builtins.bytes", "builtins.bytearray", "builtins.memoryview"), BYTES),
    "builtins.complex": "[z.real, z.imag]",
    "datetime.timedelta": TIMEDELTA,
    **{f"{package}.{name}": TABLE for package, names in _TABLES.items() for name in names},
    **{
        f"{package}.{name}": ITERATOR
        for package in _ABSTRACT
        for name in ("Iterator", "Generator", "AsyncIterator", "AsyncGenerator")
    },
    **{f"{package}.Callable": "what it gives when it is called" for package in _ABSTRACT},
    **dict.fromkeys(("typing.IO", "typing.BinaryIO", "typing.TextIO"), "detent.File(path)"),
}
"""Kinds without a JSON form, by their full names, with what to return instead."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class ReturnFault(NamedTuple):
    """Why a function's result cannot be kept, and what to do about it."""

    message: str
    hint: str


def refuse_returns(contract: Contract) -> None:
    """Refuse a contract with steps whose functions are annotated to return what has no JSON form; all of them are named."""
    from detent.contract import ContractInvalid, Finding  # noqa: PLC0415 - for mistakes alone

    findings: list[Finding] = []
    known: dict[str, ReturnFault | None] = {}
    for step in contract.plain_steps:
        binding = contract.bindings.get(step.step_id)
        if binding is None or not step.enabled or binding.kind.value not in {"python", "map"}:
            continue
        target = str(binding.target if binding.kind.value == "python" else binding.target["compute"])
        if target not in known:
            known[target] = return_fault(target, contract.base)
        if (fault := known[target]) is not None:
            place = contract.places.get(step.step_id)
            line, column = (0, 0) if place is None else (place.line, place.column)
            path = f"steps.{contract.keys[step.step_id]}"
            findings.append(Finding(contract.name, line, column, fault.message, fault.hint, path=path))
    if findings:
        raise ContractInvalid(findings[:FINDINGS_MAX], max(0, len(findings) - FINDINGS_MAX))


def refuse_return(target: str, base: str | None) -> None:
    """Refuse a single function whose annotated result has no JSON form."""
    if (fault := return_fault(target, base)) is not None:
        from detent.canon import NotStrictJson  # noqa: PLC0415 - for mistakes alone

        raise NotStrictJson(fault.message, hint=fault.hint)


def return_fault(target: str, base: str | None) -> ReturnFault | None:
    """What speaks against the annotated result of ``module:function`` or ``path/file.py:function``; None: nothing."""
    where, _, name = target.rpartition(":")
    try:
        with PARSING:
            found = _definition(where, tuple(name.split(".")), base or os.getcwd(), HOPS_MAX)  # noqa: PTH109
            if found is None or found[1].returns is None:
                return None
            module, function = found
            culprit = _culprit(module, found[1].returns)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if culprit is None:
        return None
    written = ast.unparse(found[1].returns).strip("'")
    rest = ", which has no JSON form" if culprit[0] == written else f", and {culprit[0]} has no JSON form"
    said = f"{target} (line {function.lineno}) is annotated to return {written}{rest}"
    return ReturnFault(said, f"return {culprit[1]}, and annotate that")


class _Module:
    """A source file as far as annotations are concerned: its functions and classes, and where its other names come from."""

    def __init__(self, source: bytes) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        self.body = tree.body
        self.own: set[str] = set()
        self.imported: dict[str, str] = {}
        """By the name they have here: ``pd`` is ``pandas``, ``Iterator`` is ``collections.abc.Iterator``."""
        for node in _statements(tree.body):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    whole = alias.name if alias.asname else alias.name.partition(".")[0]
                    self.imported[alias.asname or whole] = whole
            elif isinstance(node, ast.ImportFrom):
                start = "." * node.level + (node.module or "")
                self.imported |= {alias.asname or alias.name: f"{start}.{alias.name}" for alias in node.names}
            else:
                self.own |= set(_bound(node))

    def definition(self, names: tuple[str, ...]) -> _Function | None:
        """The function behind a name, or behind the names of its classes and its own; of several, the last."""
        nodes: list[ast.stmt] = list(_statements(self.body))
        for name in names[:-1]:
            classes = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name]
            nodes = list(_statements(classes[-1].body)) if classes else []
        found = [node for node in nodes if isinstance(node, _Function) and node.name == names[-1]]
        return found[-1] if found else None

    def full_name(self, node: ast.expr) -> str | None:
        """Where a name comes from: ``pandas.DataFrame``, ``builtins.bytes``; None for one of the project's own."""
        rest: list[str] = []
        while isinstance(node, ast.Attribute):
            rest.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in self.own:
            return None
        if node.id in self.imported:
            return ".".join((self.imported[node.id], *rest))
        return None if rest or "*" in self.imported else f"builtins.{node.id}"


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, those under conditions too."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _statements(node.body)
            yield from _statements([*getattr(node, "orelse", ()), *getattr(node, "finalbody", ())])
            for handler in getattr(node, "handlers", ()):
                yield from _statements(handler.body)


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, _Function | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


def _definition(where: str, names: tuple[str, ...], base: str, hops: int) -> tuple[_Module, _Function] | None:
    """The function that a target means, followed through the modules that hand it on, with the module that defines it."""
    path = where if where.endswith(".py") else f"{where.replace('.', '/')}.py"
    inside = f"{path.removesuffix('.py')}/__init__.py"
    for file in (path, inside):
        module = _read(os.path.join(base, file))  # noqa: PTH118
        if module is None:
            continue
        found = module.definition(names)
        if found is not None:
            return module, found
        origin = module.imported.get(names[0], "")
        if not hops or not origin:
            return None
        package = where if file == inside else where.rpartition(".")[0]
        level = len(origin) - len(origin.lstrip("."))
        if level:
            above = package.split(".")[: len(package.split(".")) - level + 1] if package else []
            origin = ".".join([*above, origin[level:]])
        module_name, _, name = origin.rpartition(".")
        return _definition(module_name, (name, *names[1:]), base, hops - 1)
    return None


def _read(path: str) -> _Module | None:
    try:
        look = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    if look.st_size > SOURCE_BYTES_MAX:
        return None
    return _parsed(path, look.st_mtime_ns, look.st_ctime_ns, look.st_size)


@lru_cache(maxsize=64)
def _parsed(path: str, *_look: int) -> _Module:
    with open(path, "rb") as file:  # noqa: PTH123
        return _Module(file.read(SOURCE_BYTES_MAX + 1))


def _culprit(module: _Module, node: ast.expr) -> tuple[str, str] | None:
    """The part of an annotation that has no JSON form, and what to return instead."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _culprit(module, ast.parse(node.value, mode="eval").body)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _all_of(module, [node.left, node.right])
    whole = node.value if isinstance(node, ast.Subscript) else node
    name = module.full_name(whole)
    if name in _REFUSED:
        return ast.unparse(node), _REFUSED[name or ""]
    if not isinstance(node, ast.Subscript) or name in {None, "typing.Optional", "typing.Literal"}:
        return None
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "typing.Union":
        return _all_of(module, parts)
    if name == "typing.Annotated":
        parts = parts[:1]
    return next(filter(None, (_culprit(module, part) for part in parts)), None)


def _all_of(module: _Module, parts: list[ast.expr]) -> tuple[str, str] | None:
    found = [_culprit(module, part) for part in parts]
    return found[0] if all(found) else None
