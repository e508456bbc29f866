"""One module of the user's project, read but never imported: its statements, and which names each of them binds.

What stands under ``if``, ``try`` and ``with`` is taken apart, each statement with the conditions around it, so that two
functions in one ``if`` are two. A loop is one statement, and so is a ``match``. Left out is what an importing process never does: the
bodies of ``if TYPE_CHECKING`` and ``if __name__ == "__main__"``.

Reading is lazy: a module is parsed once and split, and only statements that are reached are looked into.
"""

from __future__ import annotations

import ast
import os
import stat
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import field
from typing import Final

from detent.canon import sha256
from detent.canon.late import dataclass
from detent.reuse.ingredients.scan import Chain, Edge, Reading, Use, guards, pure_chain, scan
from detent.reuse.ingredients.scopes import FUNCTIONS, bound_names, canonical

SOURCE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Size of one source file. Larger ones hold data, and data is declared as an input."""
RACY_NS: Final = 2_000_000_000
"""How long after a change a file's times say nothing yet."""
TICK_NS: Final = 20_000_000
"""How far apart two changes of a file must be for its times to differ."""
MODULES_KEPT: Final = 2000
"""Modules whose reading is kept for the next time they are asked for."""
OWN_DECORATORS: Final = frozenset({"detent.task", "detent.flow", "detent.sdk.task.task", "detent.sdk.flow.flow"})
_IMMUTABLE_MAKERS: Final = frozenset(
    {"str", "int", "float", "bool", "complex", "bytes", "tuple", "frozenset", "range", "compile", "namedtuple"}
    | {"Path", "PurePath", "PosixPath", "PurePosixPath", "Decimal", "Fraction", "UUID", "timedelta", "date", "datetime"}
    | {"TypeVar", "ParamSpec", "NewType", "getLogger", "attrgetter", "itemgetter", "object"}
)


class SourceUnreadable(Exception):
    """A source file that cannot be read as Python; ``args[0]`` says why."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


class Unit:
    """One statement of a module with the conditions it stands under."""

    __slots__ = ("_canonical", "_guarded", "_use", "context", "line", "module", "node")

    def __init__(self, module: Module, node: ast.stmt, context: tuple[ast.AST, ...], *, guarded: bool = False) -> None:
        self._guarded = guarded
        self.module = module
        self.node = node
        self.context = context
        self.line = node.lineno
        self._canonical: bytes | None = None
        self._use: Use | None = None

    @property
    def canonical(self) -> bytes:
        """The digest of what it says."""
        if self._canonical is None:
            parts = [canonical(each, self.module.is_own_decorator) for each in (*self.context, self.node)]
            self._canonical = sha256("\n".join(parts).encode())
        return self._canonical

    @property
    def use(self) -> Use:
        """What it uses."""
        if self._use is None:
            module = self.module
            reading = Reading(module.edges_of, module.is_own_decorator, module.lazy_annotations)
            self._use = scan([*self.context, self.node], reading, guarded=self._guarded)
        return self._use

    @property
    def is_immutable(self) -> bool:
        """Whether what it assigns can certainly not be changed in place."""
        return isinstance(self.node, ast.Assign | ast.AnnAssign) and _is_immutable(self.node.value)

    @property
    def is_plain_function(self) -> bool:
        """Whether defining it does nothing else: no decorator but ours, no condition, no default that is computed."""
        node = self.node
        if not isinstance(node, FUNCTIONS) or self.context:
            return False
        if not all(self.module.is_own_decorator(each) for each in node.decorator_list):
            return False
        defaults = [each for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None]
        return all(isinstance(each, ast.Constant | ast.Name | ast.UnaryOp) for each in defaults)


@dataclass(slots=True, eq=False)
class Module:
    """A parsed module. ``name`` is dotted, or a path for a file that is named by its path."""

    name: str
    path: str
    is_package: bool
    units: list[Unit] = field(default_factory=list)
    names: dict[str, list[Unit]] = field(default_factory=dict)
    """The statements that bind each name, imports aside."""
    edges: dict[str, list[Edge]] = field(default_factory=dict)
    """The imports that bind each name."""
    stars: list[Edge] = field(default_factory=list)
    loose: list[Unit] = field(default_factory=list)
    """Statements that bind no name."""
    typing_only: set[str] = field(default_factory=set)
    lazy_annotations: bool = False
    docstring: str | None = None
    mark: tuple[int, ...] = ()
    """What its file's times and size were when it was read; empty for a module without a file."""

    @property
    def is_current(self) -> bool:
        """Whether its file is still the one that was read. A file that was read while it was new is taken for another."""
        if not self.mark:
            return True
        try:
            return _mark(os.stat(self.path)) == self.mark  # noqa: PTH116
        except (OSError, ValueError):
            return False

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        if self.name.endswith(".py"):
            return ""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    def edges_of(self, node: ast.Import | ast.ImportFrom, guarded: bool) -> Iterator[tuple[str, Edge]]:
        """The names that an import binds, each with where it comes from; ``*`` for all."""
        for alias in node.names:
            if isinstance(node, ast.Import):
                first = alias.name.partition(".")[0]
                if alias.asname is None:
                    yield first, Edge(first, loads=alias.name, guarded=guarded, line=node.lineno)
                else:
                    yield alias.asname, Edge(alias.name, guarded=guarded, line=node.lineno)
            else:
                module = self._absolute(node)
                yield alias.asname or alias.name, Edge(module, alias.name, guarded=guarded, line=node.lineno)

    def is_own_decorator(self, decorator: ast.expr) -> bool:
        """Whether it is one of ours, whose options are said in the binding and change nothing about the function."""
        chain = pure_chain(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if chain is None or chain[0] not in self.edges:
            return False
        return all(_full_name(edge, chain) in OWN_DECORATORS for edge in self.edges[chain[0]])

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.package.split(".") if self.package else []
        if node.level > len(package):
            return "." * node.level + (node.module or "")  # Leads nowhere, as it does in Python.
        above = package[: len(package) - node.level + 1]
        return ".".join([*above, node.module] if node.module else above)


def _full_name(edge: Edge, chain: Chain) -> str:
    return ".".join(filter(None, (edge.module, edge.attribute, *chain[1:])))


_READ: Final[OrderedDict[tuple[object, ...], Module]] = OrderedDict()


def read_module(name: str, path: str, *, is_package: bool = False) -> Module:
    """A module by its file; one that has not changed since it was last read is not read again.

    Raises `SourceUnreadable` for anything that is not Python source, and `OSError` for a file that is gone or closed to us.
    """
    found = os.stat(path)  # noqa: PTH116 - paths are texts here, thousands of them
    mark = _mark(found)
    key = (name, path, is_package, *mark)
    known = _READ.get(key)
    if known is not None:
        _READ.move_to_end(key)
        return known
    if not stat.S_ISREG(found.st_mode):
        raise SourceUnreadable("it is not a regular file")
    if found.st_size > SOURCE_BYTES_MAX:
        raise SourceUnreadable(f"it has more than {SOURCE_BYTES_MAX} bytes")
    with open(path, "rb") as file:  # noqa: PTH123
        source = file.read(SOURCE_BYTES_MAX + 1)
    module = parse_module(name, path, source, is_package=is_package)
    # A file that changes twice within one tick of its clock looks the same after both; a young one is read again.
    age_ns = time.time_ns() - max(mark[:2])
    module.mark = mark if age_ns > TICK_NS else (0,)
    if age_ns > RACY_NS:
        _READ[key] = module
        if len(_READ) > MODULES_KEPT:
            _READ.popitem(last=False)
    return module


def _mark(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def parse_module(name: str, path: str, source: bytes | str, *, is_package: bool = False) -> Module:
    """A module from its source."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # An escape that Python will refuse one day is not our business.
            tree = ast.parse(source)
    except SyntaxError as exc:
        raise SourceUnreadable(f"it is not valid Python: {exc.msg}", exc.lineno or 0) from exc
    except (RecursionError, MemoryError) as exc:
        raise SourceUnreadable("it is nested too deeply to be parsed") from exc
    except ValueError as exc:
        raise SourceUnreadable(f"it cannot be parsed: {exc}") from exc
    module = Module(name, path, is_package, docstring=ast.get_docstring(tree, clean=False))
    module.lazy_annotations = any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" and _names_annotations(node)
        for node in tree.body[:10]
    )
    _split(module, tree)
    return module


def _split(module: Module, tree: ast.Module) -> None:
    waiting: list[tuple[ast.stmt, tuple[ast.AST, ...], bool]] = [(node, (), False) for node in reversed(tree.body)]
    while waiting:
        node, context, guarded = waiting.pop()
        inner = _taken_apart(node, module)
        if inner is None:
            _keep(module, node, context, guarded=guarded)
            continue
        around = [each for each, _ in inner if not isinstance(each, ast.stmt)]
        for each in around:
            _bind(module, bound_names([each]), Unit(module, _as_statement(each), context))
        provides = guards(node)
        waiting.extend(
            (each, (*context, *around, *extra), guarded or (provides and each in getattr(node, "body", ())))
            for each, extra in reversed(inner)
            if isinstance(each, ast.stmt)
        )


def _taken_apart(node: ast.stmt, module: Module) -> list[tuple[ast.AST, tuple[ast.AST, ...]]] | None:
    """The statements inside one, each with its own condition, and before them what is evaluated for all of them."""
    if isinstance(node, ast.If):
        chain = pure_chain(node.test)
        otherwise: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(each, (ast.Pass(),)) for each in node.orelse]
        if chain is not None and chain[-1] == "TYPE_CHECKING":
            module.typing_only.update(_names_in(node.body, module))
            return otherwise
        if _is_main_test(node.test):
            return otherwise
        return [(node.test, ()), *((each, ()) for each in node.body), *otherwise]
    if isinstance(node, ast.Try | ast.TryStar):
        found: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(each, ()) for each in node.body]
        for handler in node.handlers:
            found.extend((each, (handler.type or ast.Pass(),)) for each in handler.body)
        return [*found, *((each, ()) for each in [*node.orelse, *node.finalbody])]
    if isinstance(node, ast.With | ast.AsyncWith):
        return [*((item, ()) for item in node.items), *((each, ()) for each in node.body)]
    return None


def _keep(module: Module, node: ast.stmt, context: tuple[ast.AST, ...], *, guarded: bool) -> None:
    if isinstance(node, ast.Import | ast.ImportFrom):
        for name, edge in module.edges_of(node, guarded):
            if edge.attribute == "*":
                module.stars.append(edge)
            elif edge.module != "__future__":
                module.edges.setdefault(name, []).append(edge)
                if context:  # What decides about an import counts for the name that it binds.
                    _bind(module, {name}, Unit(module, node, context, guarded=guarded))
        return
    if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return
    unit = Unit(module, node, context)
    names = set(bound_names([node]))
    for name, edge in _imports_inside(node, module):
        module.edges.setdefault(name, []).append(edge)
    module.units.append(unit)
    if names:
        _bind(module, names, unit)
    else:
        module.loose.append(unit)


def _bind(module: Module, names: Iterator[str] | set[str], unit: Unit) -> None:
    for name in names:
        module.names.setdefault(name, []).append(unit)


def _imports_inside(node: ast.stmt, module: Module) -> Iterator[tuple[str, Edge]]:
    """A loop or a ``match`` may import, too; a function that does binds nothing of the module's."""
    if isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.Match):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Import | ast.ImportFrom):
                yield from module.edges_of(inner, guarded=True)


def _as_statement(node: ast.AST) -> ast.stmt:
    line = getattr(node, "lineno", 0) or getattr(getattr(node, "context_expr", None), "lineno", 0)
    if isinstance(node, ast.withitem):
        return ast.With(items=[node], body=[ast.Pass()], lineno=line)
    assert isinstance(node, ast.expr)
    return ast.Expr(value=node, lineno=line)


def _names_in(body: list[ast.stmt], module: Module) -> Iterator[str]:
    yield from bound_names(body)
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (name for name, _ in module.edges_of(node, False))


def _is_main_test(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = [test.left, *test.comparators]
    names = [each.id for each in sides if isinstance(each, ast.Name)]
    texts = [each.value for each in sides if isinstance(each, ast.Constant)]
    return names == ["__name__"] and texts == ["__main__"]


def _names_annotations(node: ast.ImportFrom) -> bool:
    return any(alias.name == "annotations" for alias in node.names)


def _is_immutable(value: ast.expr | None) -> bool:
    if value is None or isinstance(value, ast.Constant | ast.JoinedStr | ast.Lambda):
        return True
    if isinstance(value, ast.Tuple):
        return all(_is_immutable(each) for each in value.elts)
    if isinstance(value, ast.BinOp):
        return _is_immutable(value.left) or _is_immutable(value.right)
    if isinstance(value, ast.UnaryOp):
        return _is_immutable(value.operand)
    if isinstance(value, ast.Attribute | ast.Call):
        inner = value.func if isinstance(value, ast.Call) else value.value
        chain = pure_chain(inner)
        if chain is not None:
            return chain[-1] in _IMMUTABLE_MAKERS
        return _is_immutable(inner)
    return False
