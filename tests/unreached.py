"""What the package defines and no user reaches: dead ends, or doors still to be built.

Reading starts at the doors: the commands, the names of `import detent`, the workflow library, what the pages for users promise,
the tools and the examples. From there it follows every name to its definition, through imports, re-exports and the lazy tables
of packages. A method is reached when its class is and some reached line mentions an attribute of that name. What is left,
only tests use.

What is understood by rule and needs no exception:

- a method that overrides one of a class from elsewhere (click, ast, yaml): that library calls it;
- the methods of a `Protocol`: they are a promise, and whatever keeps it is read by itself;
- a definition under a decorator that registers it (a command, a validator, a fixture);
- a name that is looked up as text: `getattr(target, "name")`, `"module:function"`, and modules that run as programs.

Known weak spot: attributes are matched by name alone, so a dead method with the name of a live one is not found.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "detent"
# Decorators that leave a function what it is. Any other one may keep it somewhere and call it.
PLAIN_DECORATORS = frozenset(
    {
        *("property", "cached_property", "staticmethod", "classmethod", "setter", "abstractmethod"),
        *("cache", "lru_cache", "contextmanager", "asynccontextmanager", "wraps", "singledispatch", "total_ordering"),
        *("dataclass", "overload", "override", "final", "runtime_checkable", "no_type_check", "deprecated"),
    }
)
_MAIN = 'if __name__ == "__main__":'
PLACEHOLDER = "MODULE"
_IMPORT_TEXT = re.compile(rf"from ({PACKAGE}[\w.]*) import (\w+)")
LOOKUPS = frozenset({"getattr", "hasattr", "attrgetter", "methodcaller", "_from"})


@dataclass(slots=True)
class Part:
    """A definition or the loose lines of a module, with everything that it mentions."""

    module: str
    name: str
    line: int
    owner: str = ""
    """The class around a method."""
    bases: tuple[str, ...] = ()
    names: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    """Dotted mentions, `module.name`."""
    texts: set[str] = field(default_factory=set)
    registered: bool = False

    @property
    def label(self) -> str:
        """The name by which it is listed."""
        return f"{self.owner}.{self.name}" if self.owner else self.name


@dataclass(slots=True)
class Module:
    """One file: its parts by label, and what it imports under which name."""

    name: str
    parts: dict[str, Part]
    imports: dict[str, str]
    is_program: bool


def unreached(
    source: Path,
    *,
    doors: Iterable[str],
    excused: Iterable[str] = (),
    pages: Iterable[Path] = (),
    users: Iterable[Path] = (),
) -> list[Part]:
    """List what is defined below a folder and not reached from the doors, the pages and the programs that use it.

    What is excused (`room.name`, wherever in the room it is defined) counts as a door; an excuse for nothing is a `LookupError`.
    """
    files = sorted(source.rglob("*.py"))
    modules = {
        module.name: module for module in (read(_dotted(file, source.parent), file.read_text()) for file in files)
    }
    reading = _Reaching(modules)
    for door in [*doors, *(module.name for module in modules.values() if module.is_program)]:
        reading.reach_path(door)
    for excuse in excused:
        reading.excuse(excuse)
    for page in pages:
        reading.attributes |= set(re.findall(r"[A-Za-z_]\w+", page.read_text(encoding="utf-8")))
    for program in users:
        user = read(program.stem, program.read_text(encoding="utf-8"))
        for part in user.parts.values():
            reading.mention(part, user.imports)
    reading.finish()
    left = [
        part
        for module in modules.values()
        for part in module.parts.values()
        if part.name and (part.module, part.label) not in reading.reached and not _is_hidden(part, modules)
    ]
    return _heads(left, modules)


def _heads(left: list[Part], modules: dict[str, Module]) -> list[Part]:
    """Leave out what only other unreached parts use: opening or removing those opens or removes it, too."""
    keys = {(part.module, part.label): part for part in left}
    below: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for key, part in keys.items():
        reading = _Reaching(modules)
        reading.reached.add(key)
        reading.mention(part, modules[part.module].imports)
        reading.finish()
        below[key] = (reading.reached & keys.keys()) - {key}
    heads: list[Part] = []
    for key, part in keys.items():
        above = [other for other in keys if key in below[other]]
        # Two that use each other are one dead end, listed under the first.
        in_class = part.owner and (part.module, part.owner) in keys
        if not in_class and all(other in below[key] and _comes_before(part, keys[other]) for other in above):
            heads.append(part)
    return heads


def _comes_before(part: Part, other: Part) -> bool:
    return (part.module, part.line) < (other.module, other.line)


def read(name: str, source: str) -> Module:
    """Read one module into its parts."""
    tree = ast.parse(source)
    parts = {"": Part(name, "", 1)}
    imports: dict[str, str] = {}
    for node in ast.walk(tree):
        imports |= dict(_imported(node, name))
    for node in tree.body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            _read_statements([*node.body, *node.orelse], name, parts)
        else:
            _read_statements([node], name, parts)
    return Module(name, parts, imports, is_program=_MAIN in source)


def _read_statements(statements: list[ast.stmt], module: str, parts: dict[str, Part]) -> None:
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            _add(parts, _part(module, node))
        elif isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
            made = _part(module, node, without=methods)
            made.bases = tuple(ast.unparse(base).partition("[")[0] for base in node.bases)
            _add(parts, made)
            for method in methods:
                _add(parts, _part(module, method, owner=node.name))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and (name := _constant(node)):
            _add(parts, _part(module, node, name=name))
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            _gather(node, parts[""], set())


def _add(parts: dict[str, Part], part: Part) -> None:
    """Keep a part; one that is defined twice (for a platform, for types, a setter) is both together."""
    known = parts.setdefault(part.label, part)
    if known is not part:
        for kind in ("names", "attributes", "paths", "texts"):
            getattr(known, kind).update(getattr(part, kind))


def _part(module: str, node: ast.stmt, *, owner: str = "", name: str = "", without: Iterable[ast.AST] = ()) -> Part:
    made = Part(module, name or getattr(node, "name", ""), node.lineno, owner)
    made.registered = any(_decorator(item) not in PLAIN_DECORATORS for item in getattr(node, "decorator_list", ()))
    _gather(node, made, set(without))
    made.names.discard(made.name if not owner else "")
    return made


def _gather(node: ast.AST, part: Part, without: set[ast.AST]) -> None:
    for child in ast.iter_child_nodes(node):
        if child in without or isinstance(child, ast.Import | ast.ImportFrom):
            continue
        if isinstance(child, ast.Name) and not isinstance(child.ctx, ast.Store):
            part.names.add(child.id)
        elif isinstance(child, ast.Attribute):
            part.attributes.add(child.attr)
            part.paths.add(ast.unparse(child))
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            part.texts.add(child.value)
        elif isinstance(child, ast.Call) and _decorator(child) in LOOKUPS:
            looked_up = [item for argument in child.args for item in ast.walk(argument)]
            part.attributes |= {
                item.value for item in looked_up if isinstance(item, ast.Constant) and isinstance(item.value, str)
            }
        elif isinstance(child, ast.MatchClass):
            part.attributes |= set(child.kwd_attrs)
        _gather(child, part, without)


class _Reaching:
    """Follows mentions until nothing new turns up."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self.modules = modules
        self.reached: set[tuple[str, str]] = set()
        self.attributes: set[str] = set()
        self._open: list[Part] = []
        self._functions = {
            part.name: part for module in modules.values() for part in module.parts.values() if not part.owner
        }

    def reach_path(self, path: str) -> bool:
        """Reach what a dotted path names: a definition, a method of one, or a module; a package may have a module of one name."""
        module = self.modules.get(path)
        if module is not None:
            self._reach(module.parts[""])
        where, _, name = path.rpartition(".")
        found = self._resolve(where, name) or self._method(where, name)
        if found is not None:
            self._reach(found)
        return found is not None or module is not None

    def excuse(self, excuse: str) -> None:
        """Reach what an excuse names."""
        room, _, label = excuse.partition(".")
        inside = [module for name, module in self.modules.items() if name.split(".")[1:2] == [room]]
        found = [module.parts[label] for module in inside if label in module.parts]
        if not found:
            raise LookupError(f"{room}/ defines no {label}")
        for part in found:
            beside = self.modules[part.module].parts.values()
            for other in [part, *(item for item in beside if item.owner == label or item.name == part.owner)]:
                self._reach(other)

    def _method(self, path: str, name: str) -> Part | None:
        where, _, owner = path.rpartition(".")
        found = self._resolve(where, owner)
        if found is None:
            return None
        self._reach(found)
        return self.modules[found.module].parts.get(f"{owner}.{name}")

    def mention(self, part: Part, imports: dict[str, str]) -> None:
        """Reach everything that a part mentions."""
        self.attributes |= part.attributes
        module = self.modules.get(part.module)
        for name in part.names:
            if module is not None and name in module.parts:
                self._reach(module.parts[name])
            elif name in imports:
                self.reach_path(imports[name])
        for path in part.paths:
            first, _, rest = path.partition(".")
            if first in imports:
                pieces = f"{imports[first]}.{rest}".split(".")
                for end in range(len(pieces), 1, -1):
                    if self.reach_path(".".join(pieces[:end])):
                        break
        for text in part.texts:
            self._look_up(text)

    def finish(self) -> None:
        """Go on until no part is left that a reached line mentions."""
        while True:
            while self._open:
                part = self._open.pop()
                self.mention(part, self.modules[part.module].imports)
            before = len(self.reached)
            for module in self.modules.values():
                for part in module.parts.values():
                    if part.owner and (part.module, part.owner) in self.reached and self._is_called(part):
                        self._reach(part)
            if len(self.reached) == before:
                return

    def _reach(self, part: Part) -> None:
        key = (part.module, part.label)
        if key in self.reached:
            return
        self.reached.add(key)
        self._open.append(part)
        module = self.modules[part.module]
        if part.name:
            self._reach(module.parts[""])
        for other in module.parts.values():
            # The module is imported: what its decorators register is kept by the registry, `__getattr__` by the interpreter.
            if not other.owner and (other.registered or other.name.startswith("__")):
                self._reach(other)

    def _is_called(self, part: Part) -> bool:
        dunder = part.name.startswith("__") and part.name.endswith("__")
        return dunder or part.registered or part.name in self.attributes or _overrides(part, self.modules)

    def _resolve(self, where: str, name: str) -> Part | None:
        """Find a definition by the module it is asked of, through re-exports and lazy tables."""
        module = self.modules.get(where)
        if module is None:
            return None
        self._reach(module.parts[""])
        if name in module.parts and name:
            return module.parts[name]
        origin = module.imports.get(name)
        if origin is not None and origin != f"{where}.{name}":
            return self._resolve(*origin.rpartition(".")[::2])
        return next(
            (found for part in module.parts.values() if (found := self._in_table(part, name)) is not None), None
        )

    def _in_table(self, part: Part, name: str) -> Part | None:
        """Find a name in a table of a package's names and modules."""
        if name not in part.texts:
            return None
        found = (self._resolve(text, name) for text in part.texts if text in self.modules and text != part.module)
        return next((item for item in found if item is not None), None)

    def _look_up(self, text: str) -> None:
        if text.startswith(f"{PACKAGE}.") and ":" in text:
            # The module may be one of an older release, whose name stays on the ledger: the function's name decides.
            found = self._functions.get(text.rpartition(":")[2])
            if found is not None:
                self._reach(found)
        for where, name in _IMPORT_TEXT.findall(text):
            # A program's text may leave the module open, to be filled in: it may be any module of that package.
            package = where.removesuffix(f".{PLACEHOLDER}")
            named = (
                [where] if package == where else [other for other in self.modules if other.startswith(f"{package}.")]
            )
            for module in named:
                self.reach_path(f"{module}.{name}")


def _is_hidden(part: Part, modules: dict[str, Module]) -> bool:
    """Whether a part is not worth a line of its own: dunders, a promise, or a method of a class that is listed itself."""
    if part.name.startswith("__") or part.registered:
        return True
    owner = modules[part.module].parts.get(part.owner) if part.owner else None
    return owner is not None and ("Protocol" in owner.bases or _overrides(part, modules))


def _overrides(part: Part, modules: dict[str, Module]) -> bool:
    """Whether a method overrides one of a class that is not the package's, or is a visitor's."""
    if not part.owner:
        return False
    module = modules[part.module]
    for base in module.parts[part.owner].bases:
        if base in module.parts:
            inherited = Part(part.module, part.name, part.line, base)
            if _overrides(inherited, modules):
                return True
            continue
        path = _full(base, module.imports)
        where, _, name = path.rpartition(".")
        if where.split(".")[0] == PACKAGE:
            other = modules.get(where)
            if other is not None and name in other.parts and _overrides(Part(where, part.name, 0, name), modules):
                return True
            continue
        foreign = getattr(importlib.import_module(where), name, None) if where else getattr(builtins, base, None)
        if foreign is ast.NodeVisitor and part.name.startswith("visit_"):
            return True
        if hasattr(foreign, part.name):
            return True
    return False


def _full(name: str, imports: dict[str, str]) -> str:
    first, _, rest = name.partition(".")
    return f"{imports[first]}.{rest}".rstrip(".") if first in imports else name


def _imported(node: ast.AST, module: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for item in node.names:
            yield (
                (item.asname, item.name) if item.asname else (item.name.partition(".")[0], item.name.partition(".")[0])
            )
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for item in node.names:
            yield item.asname or item.name, f"{node.module}.{item.name}"


def _constant(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else ""


def _decorator(node: ast.expr) -> str:
    """Give the last name of a decorator or of a called function."""
    called = node.func if isinstance(node, ast.Call) else node
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _dotted(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
