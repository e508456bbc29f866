"""Which names are local: Python's rules of scopes, as far as they decide whether a name is one of the module's.

The bytes of a piece of source: what it says, without its comments, layout and line numbers (X-176).

They are written from the syntax tree, every field by name and empty ones left out, so that a tree of a later Python, which
may have more kinds of fields, gives the same bytes in nearly all cases. Docstrings stay: they are values that a program can read, and
some do (command lines, tools for language models).

Nothing here recurses: the depth of a source is its author's choice.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Scope:
    """The names that a function, class or comprehension binds; ``bound`` is None for the module itself."""

    __slots__ = ("bound", "globals", "is_class", "is_function", "parent")

    def __init__(
        self,
        bound: frozenset[str] | None,
        parent: Scope | None,
        *,
        declared_global: frozenset[str] = frozenset(),
        is_class: bool = False,
        is_function: bool = False,
    ) -> None:
        self.bound = bound
        self.parent = parent
        self.globals = declared_global
        self.is_class = is_class
        self.is_function = is_function

    def look_up(self, name: str) -> Literal["local", "class"] | None:
        """``local``; ``class`` where it may be a name of the class as well as the module's; None for the module's."""
        scope: Scope | None = self
        found: Literal["class"] | None = None
        while scope is not None and scope.bound is not None:
            if name in scope.globals:
                return found
            if name in scope.bound:
                if not scope.is_class:
                    return "local"
                # Methods do not see the names of their class, and before a name is bound there it means the outer one.
                if scope is self:
                    found = "class"
            scope = scope.parent
        return found

    def is_declared_global(self, name: str) -> bool:
        """Whether binding the name here binds one of the module's."""
        return name in self.globals


def function_scope(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, parent: Scope) -> Scope:
    """The scope inside a function. What it imports stays visible: that is resolved, not hidden."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
    bound, declared = _bound(body)
    bound.update(each.arg for each in every if each is not None)
    bound.update(each.name for each in getattr(node, "type_params", ()))
    return Scope(frozenset(bound), parent, declared_global=frozenset(declared), is_function=True)


def class_scope(node: ast.ClassDef, parent: Scope) -> Scope:
    """The scope of a class's body."""
    bound, declared = _bound(list(node.body))
    return Scope(frozenset(bound), parent, declared_global=frozenset(declared), is_class=True)


def comprehension_scope(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, parent: Scope) -> Scope:
    """The scope of a comprehension: its targets."""
    bound, _ = _bound([generator.target for generator in node.generators])
    return Scope(frozenset(bound), parent, is_function=parent.is_function)


def bound_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names that statements bind where they stand, without those that they import."""
    yield from _bound(list(nodes))[0]


def _bound(waiting: list[ast.AST]) -> tuple[set[str], set[str]]:
    bound: set[str] = set()
    declared: set[str] = set()
    outer: set[str] = set()
    imported: set[str] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                bound.add(node.id)
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            bound.add(node.name)
            waiting.extend(_evaluated_outside(node))
        elif isinstance(node, ast.Lambda):
            waiting.extend([*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)])
        elif isinstance(node, _COMPREHENSIONS):
            waiting.extend(_walrus_targets(node))
        elif isinstance(node, ast.Global):
            declared.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            outer.update(node.names)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imported.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        else:
            name = getattr(node, "rest" if isinstance(node, ast.MatchMapping) else "name", None)
            if isinstance(name, str):  # except ... as name, and what a match captures
                bound.add(name)
            waiting.extend(ast.iter_child_nodes(node))
    return bound - declared - outer - imported, declared


def _evaluated_outside(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("decorator_list", "bases", "keywords"):
        yield from getattr(node, name, ())
    arguments = getattr(node, "args", None)
    if arguments is not None:
        yield from arguments.defaults
        yield from (each for each in arguments.kw_defaults if each is not None)


def _walrus_targets(node: ast.AST) -> Iterator[ast.AST]:
    """A comprehension binds nothing outside but the targets of ``:=``."""
    waiting = [node]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.NamedExpr):
            yield inner.target
        waiting.extend(each for each in ast.iter_child_nodes(inner) if not isinstance(each, ast.Lambda))


_LEFT_OUT: Final = frozenset({"ctx", "type_comment", "type_ignores", "kind"})
_FIELDS: Final[dict[type, tuple[str, ...]]] = {}


def canonical(node: ast.AST, is_dropped: Callable[[ast.expr], bool] = lambda _: False) -> str:
    """A tree as text. ``is_dropped`` says which decorators are not part of what is decorated."""
    written: list[str] = []
    # What waits is a tree, or a text that is written as it is.
    waiting: list[Any] = [node]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind is str:
            written.append(item)
        elif kind is ast.Constant:
            written.append(_constant(item.value))
        else:
            _open(item, kind, waiting, is_dropped)
    return "".join(written)


def _open(item: ast.AST, kind: type, waiting: list[Any], is_dropped: Callable[[ast.expr], bool]) -> None:
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = tuple(name for name in kind._fields if name not in _LEFT_OUT)  # type: ignore[attr-defined]
    waiting.append(")")
    for name in reversed(fields):
        value = getattr(item, name, None)
        if value is None:
            continue
        if type(value) is list:
            if name == "decorator_list":
                value = [decorator for decorator in value if not is_dropped(decorator)]
            if value:
                waiting.append("]")
                waiting.extend(_as_waiting(each) for each in reversed(value))
                waiting.append(f" {name}[")
        else:
            waiting.append(_as_waiting(value))
            waiting.append(f" {name}=")
    waiting.append(f"({kind.__name__}")


def _as_waiting(value: Any) -> Any:
    return value if isinstance(value, ast.AST) else f" {value!a}"


def _constant(value: Any) -> str:
    # Python refuses to write very long integers in decimal; in hexadecimal it does not.
    return f" {value:#x}" if type(value) is int else f" {value!a}"
