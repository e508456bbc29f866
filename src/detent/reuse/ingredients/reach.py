"""Everything of the project that a function's result may depend on, found from its source alone (X-176).

From the function on, every name that a reached statement mentions is followed to its definitions, and so on. A definition
is not all there is to a name, though: ``REGISTRY`` is also what later statements put into it, which may be functions with
a decorator in modules that merely get imported. So for every reached name those statements count, too, that *touch* it when
their module is imported: they assign to a part of it, call a method of it, hand it to a call that stands alone, or call
a function of the project that does one of these. Looked at are the modules that importing the function's module loads.

Known weak spots: what is changed through another name (``alias = REGISTRY``), data files that are opened by path, and
programs that are started. The first is rare at the level of modules; the others are what ``inputs:`` is for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final

from detent.canon import digest
from detent.canon.late import dataclass
from detent.reuse.ingredients.meaning import (
    EVERYTHING,
    UNIT_LABEL,
    Foreign,
    Meaning,
    Project,
    Symbol,
    Understood,
    Unresolved,
    understood,
)
from detent.reuse.ingredients.modules import Module, Unit
from detent.reuse.ingredients.scan import Chain

SYMBOLS_MAX: Final = 50_000
"""Names that one function may reach."""


@dataclass(slots=True)
class Reached:
    """What was reached: a digest for each name, the installed distributions, and what could not be told."""

    parts: dict[str, bytes] = field(default_factory=dict)
    distributions: dict[str, str] = field(default_factory=dict)
    unresolved: list[Unresolved] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    """What each part is: ``function``, ``class``, ``value`` or ``module``."""


Key = tuple[str, str]


class Reach:
    """Follows names through one project. What it has read stays as it was: use one for one look at a project."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._known: dict[Unit, Understood] = {}
        self._touched: dict[str, dict[Key, list[Unit]]] = {}
        self._closures: dict[str, tuple[list[Module], dict[Key, list[Unit]]]] = {}
        self._changed: dict[Symbol, frozenset[Key]] = {}
        self._direct: dict[Unit, frozenset[Key]] = {}

    def from_symbols(self, module: Module, starts: Iterable[Symbol]) -> Reached:
        """Everything reachable from names that a module has, when that module is imported."""
        return _Walk(self, self._project).run(module, starts)

    def known(self, unit: Unit) -> Understood:
        """A statement's digest, which covers what its names mean, and where they lead."""
        known = self._known.get(unit)
        if known is None:
            known = self._known[unit] = understood(self._project, unit)
        return known

    def closure(self, module: Module) -> tuple[list[Module], dict[Key, list[Unit]]]:
        """The modules that importing one loads, and the statements in them by what they touch."""
        known = self._closures.get(module.name)
        if known is None:
            modules = self._loaded(module)
            touched: dict[Key, list[Unit]] = {}
            for each in modules:
                for key, units in self.touched_in(each).items():
                    touched.setdefault(key, []).extend(units)
            known = self._closures[module.name] = (modules, touched)
        return known

    def _loaded(self, start: Module) -> list[Module]:
        found = {start.name: start}
        waiting = [start]
        while waiting:
            module = waiting.pop()
            for edge in [*module.stars, *(edge for edges in module.edges.values() for edge in edges)]:
                for each in self._project.loaded_by(edge):
                    if each.name not in found:
                        found[each.name] = each
                        waiting.append(each)
        return [found[name] for name in sorted(found)]

    def touched_in(self, module: Module) -> dict[Key, list[Unit]]:
        """What the statements of a module touch when it is imported."""
        touched = self._touched.get(module.name)
        if touched is None:
            touched = {}
            for unit in module.units:
                for key in sorted(self._touches(unit)):
                    touched.setdefault(key, []).append(unit)
            self._touched[module.name] = touched
        return touched

    def _touches(self, unit: Unit) -> set[Key]:
        if unit.is_plain_function:
            return set()
        use = unit.use
        if not use.changes_at_import and not use.calls_at_import:
            return set()
        alone = not isinstance(
            unit.node, ast.Assign | ast.AnnAssign | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        )
        found = set(self._keys(unit, use.changes_at_import, foreign=alone or _stores_only(unit)))
        for chain in use.calls_at_import:
            for meaning in self._project.meanings(unit, chain):
                if isinstance(meaning, Symbol):
                    found |= self._changed_by(meaning)
        return found

    def _keys(self, unit: Unit, chains: Iterable[Chain], *, foreign: bool) -> Iterator[Key]:
        for chain in chains:
            for meaning in self._project.meanings(unit, chain):
                if isinstance(meaning, Symbol) and (_may_change(meaning) or chain in unit.use.replaces):
                    yield meaning.module.name, meaning.name
                elif foreign and isinstance(meaning, Foreign):
                    yield "", meaning.text.partition(".")[0]

    def _changed_in(self, unit: Unit) -> frozenset[Key]:
        known = self._direct.get(unit)
        if known is None:
            known = self._direct[unit] = frozenset(self._keys(unit, unit.use.changes, foreign=False))
        return known

    def _changed_by(self, start: Symbol) -> frozenset[Key]:
        """What running a function of the project may change, with everything that it calls."""
        known = self._changed.get(start)
        if known is None:
            found: set[Key] = set()
            seen = {start}
            waiting = [start]
            while waiting:
                for unit in _units(waiting.pop()):
                    found |= self._changed_in(unit)
                    fresh = [symbol for symbol in self.known(unit).symbols if symbol not in seen]
                    seen.update(fresh)
                    waiting.extend(fresh)
            known = self._changed[start] = frozenset(found)
        return known


class _Walk:
    """One walk from one name."""

    def __init__(self, reach: Reach, project: Project) -> None:
        self._reach = reach
        self._project = project
        self._reached = Reached()
        self._units: dict[Symbol, list[Unit]] = {}
        self._seen_units: set[Unit] = set()
        self._foreign: set[str] = set()
        self._modules: set[str] = set()
        self._touched: dict[Key, list[Unit]] = {}
        self._waiting: list[Unit] = []

    def run(self, module: Module, starts: Iterable[Symbol]) -> Reached:
        modules, touched = self._reach.closure(module)
        self._modules = {each.name for each in modules}
        self._touched = touched
        for start in starts:
            self._symbol(start)
        while self._waiting:
            known = self._reach.known(self._waiting.pop())
            self._reached.unresolved.extend(known.unresolved)
            for loaded in known.loads:
                self._load(loaded)
            for symbol in known.symbols:
                self._symbol(symbol)
            for foreign in known.foreign:
                self._from_outside(foreign)
        return self._finished()

    def _finished(self) -> Reached:
        reached = self._reached
        for symbol, units in sorted(self._units.items(), key=lambda item: item[0].text):
            if symbol.name == "__doc__":
                reached.parts[symbol.text] = digest(UNIT_LABEL, repr(symbol.module.docstring).encode())
            elif units:
                # Definitions in their order: the last one is the one that stays.
                reached.parts[symbol.text] = digest(
                    UNIT_LABEL, b"".join(self._reach.known(unit).digest for unit in units)
                )
            else:
                continue
            reached.kinds[symbol.text] = _kind(symbol)
        reached.distributions = dict(sorted(reached.distributions.items()))
        reached.unresolved = sorted(set(reached.unresolved))
        return reached

    def _symbol(self, symbol: Symbol) -> None:
        if symbol in self._units:
            return
        if len(self._units) >= SYMBOLS_MAX:
            self._reached.unresolved.append(Unresolved(symbol.text, "", f"more than {SYMBOLS_MAX} names are reached"))
            return
        units: list[Unit] = []
        self._units[symbol] = units
        for unit in [*_units(symbol), *self._touched.get((symbol.module.name, symbol.name), ())]:
            self._unit(unit, units)
        if symbol.name == EVERYTHING:
            for meaning in _everything(self._project, symbol.module):
                if isinstance(meaning, Symbol):
                    self._symbol(meaning)
                elif isinstance(meaning, Foreign):
                    self._from_outside(meaning)

    def _unit(self, unit: Unit, units: list[Unit]) -> None:
        if unit not in units:
            units.append(unit)
        if unit not in self._seen_units:
            self._seen_units.add(unit)
            self._waiting.append(unit)

    def _from_outside(self, foreign: Foreign) -> None:
        self._reached.distributions.update(foreign.place.distributions)
        top = foreign.text.partition(".")[0]
        if top not in self._foreign:
            self._foreign.add(top)
            self._touching_outside(top, self._touched.get(("", top), ()))

    def _touching_outside(self, top: str, units: Iterable[Unit]) -> None:
        for unit in units:
            self._unit(unit, self._units.setdefault(Symbol(unit.module, f"({top})"), []))

    def _load(self, module: Module) -> None:
        """A function that was reached imports something itself: what that touches counts from now on."""
        modules, touched = self._reach.closure(module)
        fresh = {each.name for each in modules} - self._modules
        if not fresh:
            return
        self._modules |= fresh
        merged = {key: list(units) for key, units in self._touched.items()}
        for key, units in touched.items():
            more = [unit for unit in units if unit.module.name in fresh]
            merged.setdefault(key, []).extend(more)
            for symbol in [each for each in self._units if (each.module.name, each.name) == key]:
                for unit in more:
                    self._unit(unit, self._units[symbol])
            if key[0] == "" and key[1] in self._foreign:
                self._touching_outside(key[1], more)
        self._touched = merged


def _units(symbol: Symbol) -> list[Unit]:
    if symbol.name == EVERYTHING:
        return symbol.module.loose
    return symbol.module.names.get(symbol.name, [])


def _kind(symbol: Symbol) -> str:
    if symbol.name == EVERYTHING:
        return "module"
    nodes = [unit.node for unit in symbol.module.names.get(symbol.name, [])]
    if nodes and all(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes):
        return "function"
    return "class" if nodes and all(isinstance(node, ast.ClassDef) for node in nodes) else "value"


def _everything(project: Project, module: Module) -> Iterator[Meaning]:
    for name in [*module.names, *module.edges]:
        yield from project.global_meanings(module, name)
    for star in module.stars:
        yield from project.inside(star.module, (), star)


def _may_change(symbol: Symbol) -> bool:
    """Modules are changed name by name; what is certainly immutable is not changed in place."""
    if symbol.name == EVERYTHING:
        return False
    units = symbol.module.names.get(symbol.name, [])
    return not units or not all(unit.is_immutable for unit in units)


def _stores_only(unit: Unit) -> bool:
    """``decimal.getcontext().prec = 50`` changes something of another's; ``log = logging.getLogger()`` does not."""
    if not isinstance(unit.node, ast.Assign):
        return False
    return not all(isinstance(target, ast.Name | ast.Tuple | ast.List) for target in unit.node.targets)
