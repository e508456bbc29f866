"""Read out of the tests which door each of them goes through: a command, an SDK call, the workflow library, or a marker.

A door is where a user comes in. A test that calls a function of the package shows that function; a test that types
`detent run` shows what a user gets. This module tells the two apart by reading, not by the folder a test is in:

- a command: the test, or a helper or fixture of it, hands a command's name to something that ends in `detent.cli.app.run`
  or in a process `python -m detent`, also one that tests/warm.py forks;
- an SDK call: the test uses a name of `import detent` that does work; below tests/sdk any name of it that is not an error;
- the library of the workflow contract: the test uses a name of `detent.workflow`, which docs/workflow-names.md documents;
- anything else is said with `@pytest.mark.door("setting [quotas.NAME]")` on the test, its class, or the module.

Tests are strictly typed, so the class of `project` in `project.json("show", ...)` is written in the test's signature; a
local variable is followed through the call that made it. Known weak spot: what is handed on through a container or a closure
is not followed. Such a test needs the marker.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

CLI_ENTRIES = {("detent.cli.app", "run"), ("detent.cli", "main"), ("detent.cli.app", "main"), ("tests.warm", "Warm")}
SDK_NOT_A_DOOR = {"__version__", "SKIP"}
SDK_WORKERS = {"run", "Client", "ordered_map", "verify"}
"""The names that do work; the others only describe it, and internal tests describe work with them, too."""
LIBRARY = "detent.workflow"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Names:
    """What counts: the commands of `detent`, the public names of `import detent`, those of the workflow library."""

    commands: frozenset[str]
    sdk: frozenset[str]
    library: frozenset[str]


def package_names() -> Names:
    """Ask the package for its doors."""
    import detent  # noqa: PLC0415 - the reader itself works on any repository
    from detent import workflow  # noqa: PLC0415
    from detent.cli.app import COMMANDS  # noqa: PLC0415

    commands = frozenset(name for section in COMMANDS.values() for name in section)
    public = {name for name in detent.__all__ if name not in SDK_NOT_A_DOOR}
    sdk = frozenset(name for name in public if not _is_error(getattr(detent, name)))
    return Names(commands, sdk, frozenset(workflow.__all__))


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, method or class of a test module."""

    module: TestModule = field(compare=False, repr=False)
    name: str
    node: Function | ast.ClassDef = field(compare=False, repr=False)
    path: str = ""


@dataclass(frozen=True, slots=True)
class Used:
    """What one function does at first hand: doors it opens, definitions it uses, whether it is an entry to the commands."""

    doors: tuple[str, ...]
    definitions: tuple[Definition, ...]
    enters: bool


class TestModule:
    """One file of the tests with its names."""

    __test__ = False

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.tree = ast.parse(source)
        self.imports: dict[str, tuple[str, str]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                self.imports |= {item.asname or item.name: (node.module, item.name) for item in node.names}
            elif isinstance(node, ast.Import):
                self.imports |= {item.asname or item.name: (item.name, "") for item in node.names}

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """Everything that is defined here, by its qualified name."""
        return {name: Definition(self, name, node, self.path) for name, node in _defined(self.tree, "")}

    @cached_property
    def lists(self) -> dict[str, ast.List | ast.Tuple]:
        """The lists and tuples that the module gives a name."""
        assigned = [node for node in self.tree.body if isinstance(node, ast.Assign)]
        return {
            _named(target): node.value
            for node in assigned
            for target in node.targets
            if isinstance(node.value, ast.List | ast.Tuple)
        }

    @cached_property
    def marks(self) -> list[str]:
        """What a `pytestmark` of the module says."""
        values = [
            node.value
            for node in self.tree.body
            if isinstance(node, ast.Assign) and any(_named(target) == "pytestmark" for target in node.targets)
        ]
        return [mark for value in values for mark in _marks([value])]


class Doors:
    """The doors of every test below a folder."""

    def __init__(self, root: Path, names: Names) -> None:
        files = sorted((root / "tests").rglob("*.py"))
        read = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}
        self.names = names
        self.modules = {path: TestModule(path, source) for path, source in read.items()}
        self.dotted = {path.removesuffix(".py").replace("/", "."): module for path, module in self.modules.items()}
        self._used: dict[Definition, Used] = {}
        self._enters: dict[Definition, bool] = {}

    def of(self, path: str, name: str) -> tuple[str, ...]:
        """Give the doors of one test; of a class or module only those that all of its tests share."""
        module = self.modules[path]
        if name:
            definition = module.definitions[name]
            if isinstance(definition.node, ast.ClassDef):
                return self._shared(module, f"{name}.")
            return self._of_test(module, definition)
        return self._shared(module, "")

    def _shared(self, module: TestModule, prefix: str) -> tuple[str, ...]:
        tests = [
            self._of_test(module, found)
            for name, found in module.definitions.items()
            if name.startswith(prefix) and isinstance(found.node, Function) and found.node.name.startswith("test_")
        ]
        if not tests or not all(tests):
            return tuple(module.marks)
        return tuple(dict.fromkeys(door for doors in tests for door in doors if all(door in other for other in tests)))

    def _of_test(self, module: TestModule, test: Definition) -> tuple[str, ...]:
        marked = [*_marks(test.node.decorator_list), *module.marks]
        outer = module.definitions.get(test.name.rpartition(".")[0])
        if outer is not None:
            marked += _marks(outer.node.decorator_list)
        found = self._reached(test) or self._through_fixtures(test)
        return tuple(dict.fromkeys([*marked, *found]))

    def _reached(self, definition: Definition, seen: set[Definition] | None = None) -> list[str]:
        """List the doors of a function and of the helpers it calls, its own first."""
        seen = set() if seen is None else seen
        seen.add(definition)
        used = self._use(definition)
        doors = list(used.doors)
        for other in used.definitions:
            if other not in seen:
                doors += self._reached(other, seen)
        return doors

    def _through_fixtures(self, test: Definition) -> list[str]:
        found = [self._fixture(test, name) for name in _arguments(test.node)]
        return [door for fixture in found if fixture is not None for door in self._with_fixtures(fixture, set())]

    def _with_fixtures(self, fixture: Definition, seen: set[Definition]) -> list[str]:
        seen.add(fixture)
        doors = self._reached(fixture)
        for name in _arguments(fixture.node):
            other = self._fixture(fixture, name)
            if other is not None and other not in seen:
                doors += self._with_fixtures(other, seen)
        return doors

    def _fixture(self, user: Definition, name: str) -> Definition | None:
        """Find the fixture that an argument asks for: in the module, imported, or in a conftest above it."""
        found = self.resolve(user.module, name)
        if found is not None:
            return found
        for folder in Path(user.module.path).parents:
            module = self.modules.get((folder / "conftest.py").as_posix())
            if module is not None and name in module.definitions:
                return module.definitions[name]
        return None

    def resolve(self, module: TestModule, name: str) -> Definition | None:
        if name in module.definitions:
            return module.definitions[name]
        where, original = module.imports.get(name, ("", ""))
        other = self.dotted.get(where)
        return self.resolve(other, original) if other is not None and other is not module and original else None

    def _use(self, definition: Definition) -> Used:
        if definition not in self._used:
            self._used[definition] = _Reading(self, definition).used()
        return self._used[definition]

    def enters(self, definition: Definition) -> bool:
        """Whether a function ends in the command line, itself or through others."""
        if definition not in self._enters:
            self._enters[definition] = False  # A recursion that comes back here adds nothing.
            used = self._use(definition)
            self._enters[definition] = used.enters or any(self.enters(other) for other in used.definitions)
        return self._enters[definition]


class _Reading:
    """Reads one function: the types of its variables first, then every call and name in it."""

    def __init__(self, doors: Doors, definition: Definition) -> None:
        self.doors = doors
        self.names = doors.names
        self.definition = definition
        self.module = definition.module
        self.is_test = definition.name.rpartition(".")[2].startswith("test_")
        self.in_sdk = definition.path.startswith("tests/sdk/")
        self.types: dict[str, Definition] = {}

    def used(self) -> Used:
        """Read it."""
        node = self.definition.node
        if isinstance(node, ast.ClassDef):
            # A class is used by making one; its methods count when they are called.
            made = self.module.definitions.get(f"{self.definition.name}.__init__")
            return Used((), (made,) if made is not None else (), enters=False)
        self.learn_types(node)
        doors: list[str] = []
        definitions: list[Definition] = []
        enters = False
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                doors += self._command(inner)
                found = self._called(inner.func)
                definitions += [found] if found is not None else []
            if isinstance(inner, ast.List | ast.Tuple | ast.Call):
                typed = _after_module(inner.args if isinstance(inner, ast.Call) else inner.elts)
                enters = enters or typed is not None
                doors += [f"detent {typed}"] if typed in self.names.commands else []
            if isinstance(inner, ast.Name | ast.Attribute):
                doors += self._public(inner)
                enters = enters or self._is_entry(inner)
                found = self._definition(inner)
                definitions += [found] if found is not None else []
        return Used(tuple(dict.fromkeys(doors)), tuple(dict.fromkeys(definitions)), enters)

    def learn_types(self, node: Function) -> None:
        outer = self.module.definitions.get(self.definition.name.rpartition(".")[0])
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            self._learn(argument.arg, self.class_in(argument.annotation))
        if outer is not None and isinstance(outer.node, ast.ClassDef) and node.args.args:
            self._learn(node.args.args[0].arg, outer)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign):
                for target, value in _pairs(inner):
                    self._learn(_named(target), self._made_by(value))
            elif isinstance(inner, ast.withitem) and inner.optional_vars is not None:
                self._learn(_named(inner.optional_vars), self._made_by(inner.context_expr))

    def _learn(self, name: str, found: Definition | None) -> None:
        if name and found is not None:
            self.types[name] = found

    def _made_by(self, value: ast.expr) -> Definition | None:
        """Find the class of what a call gives back."""
        if not isinstance(value, ast.Call):
            return None
        found = self._definition(value.func)
        if found is None or isinstance(found.node, ast.ClassDef):
            return found
        return _Reading(self.doors, found).class_in(found.node.returns)

    def class_in(self, annotation: ast.expr | None) -> Definition | None:
        """Find the class that an annotation names, also inside `Iterator[...]` and the like."""
        for inner in ast.walk(annotation) if annotation is not None else ():
            found = self.doors.resolve(self.module, inner.id) if isinstance(inner, ast.Name) else None
            if found is not None and isinstance(found.node, ast.ClassDef):
                return found
        return None

    def _definition(self, node: ast.expr) -> Definition | None:
        """Find what a name, `helper.method` or `module.function` stands for."""
        if isinstance(node, ast.Call):
            return self._made_by(node)
        if isinstance(node, ast.Name):
            return self.types.get(node.id) or self.doors.resolve(self.module, node.id)
        if isinstance(node, ast.Attribute):
            holder = self._definition(node.value)
            if holder is not None and isinstance(holder.node, ast.ClassDef):
                return self._method(holder, node.attr) or self._attribute(holder, node.attr)
            if isinstance(node.value, ast.Name):
                where, name = self.module.imports.get(node.value.id, ("", ""))
                other = self.doors.dotted.get(f"{where}.{name}" if name else where)
                return self.doors.resolve(other, node.attr) if other is not None else None
        return None

    def _method(self, holder: Definition, name: str) -> Definition | None:
        found = holder.module.definitions.get(f"{holder.name}.{name}")
        if found is not None or not isinstance(holder.node, ast.ClassDef):
            return found
        bases = [self.doors.resolve(holder.module, _named(base)) for base in holder.node.bases]
        return next((self._method(base, name) for base in bases if base is not None), None)

    def _attribute(self, holder: Definition, name: str) -> Definition | None:
        """Find the class of an attribute: annotated in the class, or an argument that `__init__` keeps."""
        if not isinstance(holder.node, ast.ClassDef):
            return None
        for item in holder.node.body:
            if isinstance(item, ast.AnnAssign) and _named(item.target) == name:
                return _Reading(self.doors, holder).class_in(item.annotation)
        made = self._method(holder, "__init__")
        if made is None or made == self.definition or isinstance(made.node, ast.ClassDef):
            return None
        reading = _Reading(self.doors, made)
        reading.learn_types(made.node)
        for inner in ast.walk(made.node):
            if isinstance(inner, ast.Assign):
                for target, value in _pairs(inner):
                    if isinstance(target, ast.Attribute) and target.attr == name:
                        return reading.types.get(_named(value)) or reading._made_by(value)
        return None

    def _command(self, call: ast.Call) -> list[str]:
        """Name the command that a call types, if it types one: the first of its words that is a command."""
        if not self._types_commands(call.func):
            return []
        words = _words([item for argument in call.args for item in self._spread(argument)])
        if not any(word in self.names.commands for word in words) and self.is_test:
            # The words come from a variable or a parameter: they begin one of the lists in the test or its decorators.
            lists = [item for item in ast.walk(self.definition.node) if isinstance(item, ast.List | ast.Tuple)]
            words = [word for item in lists for word in _words(item.elts)]
            return [f"detent {word}" for word in words if word in self.names.commands]
        return [f"detent {word}" for word in words if word in self.names.commands][:1]

    def _spread(self, argument: ast.expr) -> list[ast.expr]:
        """Give what `*LINE` stands for, where the list is written in the module."""
        value = argument.value if isinstance(argument, ast.Starred) else None
        found = self.module.lists.get(_named(value)) if value is not None else None
        return [argument] if found is None else found.elts

    def _types_commands(self, function: ast.expr) -> bool:
        if self._is_entry(function):
            return True
        found = self._called(function)
        return found is not None and found != self.definition and self.doors.enters(found)

    def _called(self, function: ast.expr) -> Definition | None:
        """Find the function that a call runs: of an object its `__call__`, of a class its `__init__`."""
        found = self._definition(function)
        if found is None or not isinstance(found.node, ast.ClassDef):
            return found
        is_object = not (isinstance(function, ast.Name) and function.id not in self.types)
        return self._method(found, "__call__" if is_object else "__init__")

    def _is_entry(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and self.module.imports.get(node.id) in CLI_ENTRIES

    def _public(self, node: ast.expr) -> list[str]:
        """Name the SDK call or the name of the workflow library that an expression is."""
        if isinstance(node, ast.Attribute):
            if not isinstance(node.value, ast.Name):
                return []
            where, name = self.module.imports.get(node.value.id, ("", "")), node.attr
            module = ".".join(part for part in where if part)
        else:
            module, name = self.module.imports.get(_named(node), ("", ""))
        counted = self.names.sdk if self.in_sdk else self.names.sdk & SDK_WORKERS
        if (module == "detent" or module.startswith("detent.sdk.")) and name in counted:
            return [f"detent.{name}"]
        is_library = module == LIBRARY or module.startswith(f"{LIBRARY}.")
        return [f"{LIBRARY}.{name}"] if is_library and name in self.names.library else []


def _defined(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Give functions and classes below a node; those inside a function belong to it and are not named."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield f"{prefix}{child.name}", child
            yield from _defined(child, f"{prefix}{child.name}.")


def _marks(nodes: Iterable[ast.AST]) -> list[str]:
    """Read the words of `pytest.mark.door(...)`."""
    calls = [inner for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    marks = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "door"]
    return [word for mark in marks for word in _words(mark.args)]


def _arguments(node: Function | ast.ClassDef) -> list[str]:
    return [item.arg for item in [*node.args.args, *node.args.kwonlyargs]] if not isinstance(node, ast.ClassDef) else []


def _words(nodes: Iterable[ast.expr]) -> list[str]:
    """Give the texts among these expressions, looking into lists and tuples."""
    words: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.append(node.value)
        elif isinstance(node, ast.List | ast.Tuple):
            words += _words(node.elts)
    return words


def _pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """Pair targets with values, also where a tuple is assigned to a tuple."""
    (target, *_), value = node.targets, node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)]


def _after_module(nodes: list[ast.expr]) -> str | None:
    """Give the word after `-m detent` in an argument list; empty where another expression follows."""
    words = [item.value if isinstance(item, ast.Constant) else None for item in nodes]
    for index, word in enumerate(words[:-1]):
        if word == "-m" and words[index + 1] == "detent":
            following = words[index + 2] if index + 2 < len(words) else None
            return following if isinstance(following, str) else ""
    return None


def _named(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)
