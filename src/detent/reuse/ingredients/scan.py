"""What one statement of a module uses: the names it reads, what it imports, what it changes, what cannot be told.

A *chain* is a name with the attributes behind it, ``helpers.table.rows`` as ``("helpers", "table", "rows")``. Only names
that are not local to a function count. What a chain means is not decided here: that needs other modules.

Two things are told apart: what a statement *mentions* anywhere, and what it *executes* when its module is imported. The
body of a function is mentioned, its decorators and defaults are executed, and so is the body of a class.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Final

from detent.canon.late import NamedTuple, dataclass
from detent.reuse.ingredients.scopes import FUNCTIONS, Scope, class_scope, comprehension_scope, function_scope

Chain = tuple[str, ...]
IMPORT_GUARDS: Final = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_NAME_GUARDS: Final = frozenset({"NameError", "Exception", "BaseException"})
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Edge:
    """One imported name: a module, or with ``attribute`` something in it. Relative names are absolute already."""

    module: str
    attribute: str | None = None
    loads: str = ""
    """The module that is loaded by it, where that is not `module`: ``import a.b`` binds ``a`` and loads ``a.b``."""
    guarded: bool = False
    """Its absence is provided for: ``try: import ... except ImportError``."""
    line: int = 0


@dataclass(slots=True)
class Use:
    """What a statement uses. ``soft`` chains may mean nothing at all: an annotation, a class's own name, one provided for."""

    chains: dict[Chain, int] = field(default_factory=dict)
    soft: dict[Chain, int] = field(default_factory=dict)
    imports: dict[str, list[Edge]] = field(default_factory=dict)
    """What functions inside it import for themselves."""
    changes: set[Chain] = field(default_factory=set)
    """What it may change, wherever in it that is written."""
    replaces: set[Chain] = field(default_factory=set)
    """Those of them that get another value, rather than being changed in place."""
    changes_at_import: set[Chain] = field(default_factory=set)
    calls_at_import: set[Chain] = field(default_factory=set)
    computed: dict[Chain, int] = field(default_factory=dict)
    """Chains from which an attribute with a computed name is read."""
    loaders: list[tuple[Chain, str | None, int]] = field(default_factory=list)
    """Calls that look like `importlib.import_module`, each with the name it loads, if that is written there."""


class _Seen(NamedTuple):
    """A part of a statement, and where in the statement it is."""

    node: ast.AST
    scope: Scope
    at_import: bool
    in_call: bool = False
    guarded: bool = False
    soft: bool = False
    alone: bool = False
    """Inside an expression that is a statement of its own, which is there for what it does."""


class Reading(NamedTuple):
    """How the module of a statement is read."""

    edges_of: Callable[[ast.Import | ast.ImportFrom, bool], Iterator[tuple[str, Edge]]]
    is_dropped: Callable[[ast.expr], bool]
    lazy_annotations: bool
    """``from __future__ import annotations``: nothing evaluates those of functions."""


def scan(nodes: list[ast.AST], reading: Reading, *, guarded: bool = False) -> Use:
    """Everything that the parts of one statement of a module use; ``guarded``: the absence of modules is provided for."""
    return _Scan(reading).run(nodes, guarded)


class _Scan:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._use = Use()
        self._waiting: list[_Seen] = []

    def run(self, nodes: list[ast.AST], guarded: bool) -> Use:
        scope = Scope(None, None)
        self._waiting = [_Seen(node, scope, at_import=True, guarded=guarded) for node in reversed(nodes)]
        while self._waiting:
            seen = self._waiting.pop()
            visit = _VISITS.get(type(seen.node))
            if visit is None:
                self._children(seen)
            else:
                visit(self, seen)
        return self._use

    def _push(self, seen: _Seen, *nodes: ast.AST | None, **changed: Any) -> None:
        same = seen._replace(**changed) if changed else seen
        self._waiting.extend(same._replace(node=node) for node in nodes if node is not None)

    def _children(self, seen: _Seen) -> None:
        self._push(seen, *ast.iter_child_nodes(seen.node))

    # Names and attributes.

    def visit_name(self, seen: _Seen) -> None:
        node = seen.node
        assert isinstance(node, ast.Name)
        if isinstance(node.ctx, ast.Load):
            self._mention((node.id,), seen)
        elif seen.scope.is_declared_global(node.id):
            self._replace((node.id,), seen)

    def visit_attribute(self, seen: _Seen) -> None:
        node = seen.node
        assert isinstance(node, ast.Attribute)
        if not isinstance(node.ctx, ast.Load):
            self._replace(receiver(node), seen)  # With the attribute: of a module, that is the name that changes.
        chain = pure_chain(node)
        if chain is None:
            self._push(seen, node.value)
        else:
            self._mention(chain, seen)

    def visit_subscript(self, seen: _Seen) -> None:
        node = seen.node
        assert isinstance(node, ast.Subscript)
        if not isinstance(node.ctx, ast.Load):
            self._change(receiver(node.value), seen)
        if _is_call_of(node.value, "globals") and (name := _text(node.slice)) is not None:
            self._mention((name,), seen)
            return
        self._push(seen, node.value, node.slice)

    def _mention(self, chain: Chain, seen: _Seen) -> None:
        where = seen.scope.look_up(chain[0])
        if where == "local":
            return
        line = getattr(seen.node, "lineno", 0)
        chains = self._use.soft if seen.soft or where == "class" else self._use.chains
        chains.setdefault(chain, line)
        if seen.at_import and seen.in_call:
            self._use.calls_at_import.add(chain)
            if seen.alone:
                self._use.changes_at_import.add(chain)

    def _change(self, chain: Chain | None, seen: _Seen) -> None:
        if chain is None or seen.scope.look_up(chain[0]) == "local":
            return
        self._use.changes.add(chain)
        if seen.at_import:
            self._use.changes_at_import.add(chain)

    def _replace(self, chain: Chain | None, seen: _Seen) -> None:
        self._change(chain, seen)
        if chain is not None:
            self._use.replaces.add(chain)

    # Calls.

    def visit_call(self, seen: _Seen) -> None:
        node = seen.node
        assert isinstance(node, ast.Call)
        self._called(node.func, seen)
        first = node.args[0] if node.args else None
        values = list(node.args)
        if isinstance(node.func, ast.Name) and seen.scope.look_up(node.func.id) is None:
            values = values[1:] if self._is_attribute(node, node.func.id, seen) else values
        chain = pure_chain(node.func)
        if chain is not None and chain[-1] in {"import_module", "__import__"}:
            self._use.loaders.append((chain, None if first is None else _text(first), node.lineno))
        arguments = [keyword.value for keyword in node.keywords]
        self._push(seen, node.func, in_call=True, alone=False)
        self._push(seen, *values, *arguments, in_call=True)

    def _called(self, function: ast.expr, seen: _Seen) -> None:
        """A method may change what it is called on."""
        if isinstance(function, ast.Attribute):
            self._change(receiver(function.value), seen)

    def _is_attribute(self, node: ast.Call, name: str, seen: _Seen) -> bool:
        """Whether it is an attribute in other words, ``getattr(helpers, "clean")``; if so, it has been taken note of."""
        if name not in {"getattr", "setattr", "delattr"} or len(node.args) < 2:
            return False
        owner, attribute = pure_chain(node.args[0]), _text(node.args[1])
        if owner is None:
            return False
        if attribute is None:
            self._use.computed.setdefault(owner, node.lineno)
            return False
        if name == "getattr":
            self._mention((*owner, attribute), seen._replace(soft=seen.soft or len(node.args) > 2))
        else:
            self._mention((*owner, attribute), seen._replace(soft=True))
            self._replace((*owner, attribute), seen)
        return True

    # Scopes.

    def visit_function(self, seen: _Seen) -> None:
        node = seen.node
        assert isinstance(node, FUNCTIONS)
        decorators = [each for each in node.decorator_list if not self._reading.is_dropped(each)]
        for decorator in decorators:
            self._called(decorator, seen)
        self._push(seen, *decorators, in_call=True)
        arguments = node.args
        self._push(seen, *arguments.defaults, *arguments.kw_defaults)
        inner = seen._replace(scope=function_scope(node, seen.scope), at_import=False, guarded=False, alone=False)
        # A decorator may look at a function's annotations, also where Python does not.
        if decorators or not self._reading.lazy_annotations:
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            written = [each.annotation for each in every if each is not None]
            self._push(inner if getattr(node, "type_params", None) else seen, *written, node.returns, soft=True)
        self._push(inner, *getattr(node, "type_params", ()), *node.body, in_call=False)

    def visit_lambda(self, seen: _Seen) -> None:
        node = seen.node
        assert isinstance(node, ast.Lambda)
        self._push(seen, *node.args.defaults, *node.args.kw_defaults)
        self._push(seen, node.body, scope=function_scope(node, seen.scope))

    def visit_class(self, seen: _Seen) -> None:
        node = seen.node
        assert isinstance(node, ast.ClassDef)
        decorators = [each for each in node.decorator_list if not self._reading.is_dropped(each)]
        for decorator in decorators:
            self._called(decorator, seen)
        outer = seen.scope
        if getattr(node, "type_params", None):
            outer = Scope(frozenset(each.name for each in node.type_params), outer)  # type: ignore[attr-defined]
        keywords = [keyword.value for keyword in node.keywords]
        self._push(seen, *decorators, in_call=True)
        self._push(seen, *node.bases, *keywords, in_call=True, scope=outer)
        self._push(seen, *getattr(node, "type_params", ()), *node.body, scope=class_scope(node, outer))

    def visit_alias(self, seen: _Seen) -> None:
        """``type Rows[T] = list[T]`` of Python 3.12: evaluated on request."""
        node: Any = seen.node
        scope = Scope(frozenset(each.name for each in node.type_params), seen.scope)
        self._push(seen, *node.type_params, node.value, scope=scope, soft=True)

    def visit_comprehension(self, seen: _Seen) -> None:
        node = seen.node
        assert isinstance(node, _COMPREHENSIONS)
        self._push(seen, node.generators[0].iter)  # The only part that is evaluated outside.
        scope = comprehension_scope(node, seen.scope)
        for index, generator in enumerate(node.generators):
            self._push(seen, generator.target, *generator.ifs, scope=scope)
            if index:
                self._push(seen, generator.iter, scope=scope)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._push(seen, *parts, scope=scope)

    def visit_annotated(self, seen: _Seen) -> None:
        node = seen.node
        assert isinstance(node, ast.AnnAssign)
        self._push(seen, node.target, node.value)
        # Those of local variables are never evaluated.
        if not seen.scope.is_function:
            self._push(seen, node.annotation, soft=True)

    # Statements.

    def visit_expression(self, seen: _Seen) -> None:
        node = seen.node
        assert isinstance(node, ast.Expr)
        self._push(seen, node.value, alone=True)

    def visit_augmented(self, seen: _Seen) -> None:
        node = seen.node
        assert isinstance(node, ast.AugAssign)
        if isinstance(node.target, ast.Name):
            self._mention((node.target.id,), seen)
        self._children(seen)

    def visit_import(self, seen: _Seen) -> None:
        node = seen.node
        assert isinstance(node, ast.Import | ast.ImportFrom)
        for name, edge in self._reading.edges_of(node, seen.guarded):
            self._use.imports.setdefault(name, []).append(edge)

    def visit_try(self, seen: _Seen) -> None:
        node = seen.node
        body = [*node.body]  # type: ignore[attr-defined]
        inside = {id(each) for each in body}
        self._push(seen, *(each for each in ast.iter_child_nodes(node) if id(each) not in inside))
        soft = seen.soft or guards(node, _NAME_GUARDS)
        self._push(seen, *body, guarded=seen.guarded or guards(node), soft=soft)


_VISITS: Final[dict[type, Callable[[_Scan, _Seen], None]]] = {
    ast.Name: _Scan.visit_name,
    ast.Attribute: _Scan.visit_attribute,
    ast.Subscript: _Scan.visit_subscript,
    ast.Call: _Scan.visit_call,
    ast.FunctionDef: _Scan.visit_function,
    ast.AsyncFunctionDef: _Scan.visit_function,
    ast.Lambda: _Scan.visit_lambda,
    ast.ClassDef: _Scan.visit_class,
    ast.AnnAssign: _Scan.visit_annotated,
    ast.Expr: _Scan.visit_expression,
    ast.AugAssign: _Scan.visit_augmented,
    ast.Import: _Scan.visit_import,
    ast.ImportFrom: _Scan.visit_import,
    ast.Try: _Scan.visit_try,
    ast.TryStar: _Scan.visit_try,
    ast.With: _Scan.visit_try,
    **dict.fromkeys(_COMPREHENSIONS, _Scan.visit_comprehension),
    getattr(ast, "TypeAlias", ast.Try): getattr(_Scan, "visit_alias" if hasattr(ast, "TypeAlias") else "visit_try"),
}


def pure_chain(node: ast.AST) -> Chain | None:
    """``a.b.c`` as a chain; None for anything more than a name and attributes."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node.id, *reversed(attributes)) if isinstance(node, ast.Name) else None


def receiver(node: ast.AST) -> Chain | None:
    """The longest chain that an expression begins with: ``a.b`` of ``a.b[0].c().d``; None where it begins otherwise."""
    outside: list[ast.AST] = []
    while not isinstance(node, ast.Name):
        outside.append(node)
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return None
    chain = [node.id]
    for each in reversed(outside):
        if not isinstance(each, ast.Attribute):
            break
        chain.append(each.attr)
    return tuple(chain)


def guards(node: ast.AST, exceptions: frozenset[str] = IMPORT_GUARDS) -> bool:
    """Whether a ``try``, or a ``with suppress(...)``, provides for some exception: that of a missing module."""
    caught: list[ast.expr | None] = []
    for handler in getattr(node, "handlers", ()):
        caught += handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    for item in getattr(node, "items", ()):
        call = item.context_expr
        if isinstance(call, ast.Call) and (pure_chain(call.func) or ("",))[-1] == "suppress":
            caught += call.args
    names = [("Exception",) if each is None else pure_chain(each) for each in caught]
    return any(chain is not None and chain[-1] in exceptions for chain in names)


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_call_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
