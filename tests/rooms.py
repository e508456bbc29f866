"""The rooms of the house: who may import whom, and what the pure ones may not touch.

Every import of every module is read with `ast`: at the top, inside functions, under TYPE_CHECKING, relative, and
`importlib.import_module` with a literal name. Nothing is imported to be read, so this also sees what no test runs.

The weak spot: a determined author gets around any reading of source (`getattr(builtins, "op" + "en")`). It guards
against drift, not against malice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

# The rooms in the order of the house, each with the rooms it may import. Imports point up the list.
PURE: dict[str, frozenset[str]] = {
    "version": frozenset(),
    "errors": frozenset(),
    "words": frozenset(),
    "canon": frozenset({"errors", "words"}),
    "kernel": frozenset({"errors", "words", "canon"}),
    "scheduling": frozenset({"errors", "words", "canon", "kernel"}),
    "workflow": frozenset({"errors", "words", "canon"}),
    "contract": frozenset({"errors", "words", "canon", "workflow"}),
    "ordered": frozenset({"errors", "words", "canon", "kernel"}),
    "jobs": frozenset({"errors", "words", "canon", "kernel"}),
    "access": frozenset({"errors", "words", "canon"}),
    "ledger": frozenset({"errors", "words", "canon", "kernel", "jobs", "access"}),
}
EFFECTS = (
    *("store", "artifacts", "executor"),
    *("owner", "targets", "reuse", "workers", "runs", "inspect"),
    *("pages", "remote", "sdk", "serve", "cli", "testing"),
)
# The folders of a room in their order, where it has several; the modules beside them may import them all and not the reverse.
FOLDERS: dict[str, tuple[str, ...]] = {
    "reuse": ("ingredients",),
    "runs": ("submit", "record", "ordered", "steps", "schedules"),
}
# What a folder may not import although its room may: handlers reach the ledger through the tenant reader alone.
FOLDER_BANS: dict[str, frozenset[str]] = {
    "detent.serve.routes": frozenset({"detent.store", "detent.owner.wiring", "detent.owner.content"}),
}
# The one room that loads the extra `serve`.
SERVER_PACKAGES = frozenset({"uvicorn", "httptools"})
TOP = "detent"
ROOMS: dict[str, frozenset[str]] = PURE | {
    room: frozenset({TOP, *PURE, *EFFECTS[:place]}) for place, room in enumerate(EFFECTS)
}

# What a pure room may not import: whatever brings time, chance, files, sockets, threads or processes.
BANNED_MODULES = frozenset(
    {
        *("time", "sched", "random", "secrets", "nacl.utils", "nacl.bindings.randombytes"),
        *("os", "posix", "pathlib", "tempfile", "shutil", "glob", "fcntl", "mmap", "logging", "sqlite3", "apsw"),
        *("socket", "ssl", "select", "selectors", "socketserver", "urllib", "http"),
        *("threading", "_thread", "queue", "asyncio", "concurrent", "multiprocessing", "subprocess", "signal"),
        *("builtins", "ctypes", "numpy"),
    }
)
# What it may not name once it imports the module: the module itself is fine, this part of it is not.
BANNED_NAMES: dict[str, frozenset[str]] = {
    "datetime": frozenset({"now", "utcnow", "today"}),
    "uuid": frozenset({"uuid1", "uuid4", "getnode"}),
    "io": frozenset({"open", "open_code", "FileIO"}),
    "nacl": frozenset({"generate", "random", "randombytes"}),
    "sys": frozenset({"stdin", "stdout", "stderr", "argv"}),
}
BANNED_CALLS = frozenset({"open", "input", "print", "breakpoint", "exec", "eval"})
# The exceptions, each in one module: the workflow models' default factories draw ids and read the clock (a model is
# created at load time, by the loader), and the facade logs the failures that the pure executor returns.
EXCEPTIONS: dict[str, frozenset[str]] = {
    "detent.workflow.defaults": frozenset({"uuid4", "now"}),
    "detent.workflow.facade": frozenset({"logging"}),
}

# The kernel's verdicts are exact: of `math` only what gives the same answer on every machine, and no floats but in metrics.
KERNEL_MATH = frozenset({"isfinite", "isnan", "isinf", "inf", "nan", "gcd", "isqrt", "floor", "ceil", "trunc"})
KERNEL_FLOAT_MODULES = frozenset({"metrics", "tolerance"})


@dataclass(frozen=True, slots=True)
class Import:
    """One module that a line of code imports, and whether that happens when the module is loaded."""

    module: str
    line: int
    eager: bool


def findings(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Say everything that is wrong with one module, given by its source and its full name."""
    tree = ast.parse(source)
    imports = list(_imports(tree, module if is_package else module.rpartition(".")[0]))
    if module == TOP:
        return _eager_findings(imports)
    room = module.split(".")[1]
    if room == "__main__":
        return []
    if room not in ROOMS:
        return [f"{module}: {room} is not a room of the house"]
    found = [*_room_findings(imports, room), *_folder_findings(imports, module), *_ban_findings(imports, module)]
    if room in PURE:
        found += _purity_findings(tree, imports, EXCEPTIONS.get(module, frozenset()))
    if room == "kernel":
        found += _exactness_findings(tree, imports, module.rpartition(".")[2])
    return [f"{module}:{line}: {text}" for line, text in sorted(set(found))]


def cycles(modules: Mapping[str, tuple[str, bool]]) -> list[list[str]]:
    """Modules that import each other, directly or through others, wherever the import stands and whatever it is for.

    Given by name, each with its source and whether it is a package. A name taken from a package is an import of the package
    unless it is a module.
    """
    reached: dict[str, set[str]] = {}
    for name, (source, is_package) in modules.items():
        package = name if is_package else name.rpartition(".")[0]
        targets = {_module_of(item.module, modules) for item in _imports(ast.parse(source), package)}
        reached[name] = {target for target in targets if target is not None and target != name}
    order = TopologicalSorter(reached)
    found: list[list[str]] = []
    while True:
        try:
            order.prepare()
        except CycleError as exc:
            members: list[str] = exc.args[1]
            found.append(members)
            reached[members[1]].discard(members[0])  # The edge that closes it: the next look finds the others.
            order = TopologicalSorter(reached)
        else:
            return found


def _module_of(name: str, modules: Mapping[str, object]) -> str | None:
    """The module that an import of a name loads; None for one that is not ours."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def _imports(tree: ast.Module, package: str) -> Iterator[Import]:
    for node, eager in _nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute("." * node.level + (node.module or ""), package)
            yield from (Import(f"{base}.{alias.name}", node.lineno, eager) for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in {"import_module", "__import__"}:
            target = node.args[0] if node.args else None
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                yield Import(_absolute(target.value, package), node.lineno, eager)
            else:
                yield Import("?", node.lineno, eager)


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Every node of a module, with whether it is run when the module is loaded."""
    left: list[tuple[ast.AST, bool]] = [(tree, True)]
    while left:
        node, eager = left.pop()
        yield node, eager
        inside = eager and not _is_lazy(node)
        left += [(child, inside) for child in ast.iter_child_nodes(node)]


def _is_lazy(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return _name(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def _absolute(name: str, package: str) -> str:
    bare = name.lstrip(".")
    level = len(name) - len(bare)
    if not level:
        return name
    above = package.split(".")[: len(package.split(".")) - level + 1]
    return ".".join([*above, bare] if bare else above)


def _name(node: ast.AST) -> str:
    """The last part of a name or attribute: `import_module` for `importlib.import_module`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _within(module: str, names: frozenset[str]) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1))


def _eager_findings(imports: list[Import]) -> list[str]:
    """`import detent` stays cheap: what it shows is fetched when it is asked for."""
    allowed = frozenset({"__future__", "typing", "importlib", "collections", f"{TOP}.errors", f"{TOP}.version"})
    return [
        f"{TOP}:{item.line}: loads {item.module} when it is imported"
        for item in imports
        if item.eager and not _within(item.module, allowed)
    ]


def _room_findings(imports: list[Import], room: str) -> Iterator[tuple[int, str]]:
    for item in imports:
        parts = item.module.split(".")
        if parts[0] != TOP:
            continue
        target = parts[1] if len(parts) > 1 and parts[1] in ROOMS else TOP
        if target != room and target not in ROOMS[room]:
            yield item.line, f"{room} may not import {target}"


def _folder_findings(imports: list[Import], module: str) -> Iterator[tuple[int, str]]:
    """Within a room, imports point up the list of its folders."""
    _, room, *inside = module.split(".")
    order = FOLDERS.get(room, ())
    if not inside or inside[0] not in order:
        return
    for item in imports:
        parts = item.module.split(".")
        if parts[:2] != [TOP, room]:
            continue
        target = parts[2] if len(parts) > 2 and parts[2] in order else ""
        if target not in order[: order.index(inside[0]) + 1]:
            yield item.line, f"{room}.{inside[0]} may not import {'.'.join(parts[1:3])}"


def _ban_findings(imports: list[Import], module: str) -> Iterator[tuple[int, str]]:
    """What a folder may not import, and what only one room may."""
    for item in imports:
        for folder, banned in FOLDER_BANS.items():
            if module.startswith(folder) and _within(item.module, banned):
                yield item.line, f"imports {item.module}, which handlers may not"
        if _within(item.module, SERVER_PACKAGES) and not module.startswith("detent.serve"):
            yield item.line, f"imports {item.module}, which only the server may"


def _purity_findings(tree: ast.Module, imports: list[Import], allowed: frozenset[str]) -> Iterator[tuple[int, str]]:
    for item in imports:
        if item.module == "?":
            yield item.line, "imports a name that cannot be read"
        if _within(item.module, BANNED_MODULES - allowed):
            yield item.line, f"imports {item.module}"
        root, _, rest = item.module.partition(".")
        if (BANNED_NAMES.get(root, frozenset()) - allowed) & set(rest.split(".")):
            yield item.line, f"imports {item.module}"
    roots = {item.module.partition(".")[0] for item in imports}
    banned = frozenset[str]().union(*(BANNED_NAMES.get(root, frozenset()) for root in roots)) - allowed
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in banned:
            yield node.lineno, f"names {node.attr}"
        if isinstance(node, ast.Name) and node.id in BANNED_CALLS and isinstance(node.ctx, ast.Load):
            yield node.lineno, f"names {node.id}"


def _exactness_findings(tree: ast.Module, imports: list[Import], stem: str) -> Iterator[tuple[int, str]]:
    for item in imports:
        root, _, name = item.module.partition(".")
        if root == "cmath" or (root == "math" and name and name not in KERNEL_MATH):
            yield item.line, f"imports {item.module}"
    for node in ast.walk(tree):
        if isinstance(node, ast.alias) and node.name == "math" and node.asname:
            yield node.lineno, "gives math another name"
        if isinstance(node, ast.Attribute) and _name(node.value) == "math" and node.attr not in KERNEL_MATH:
            yield node.lineno, f"uses math.{node.attr}"
        if stem in KERNEL_FLOAT_MODULES:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            yield node.lineno, f"holds the float {node.value}"
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
            yield node.lineno, "divides with /, which gives floats"
