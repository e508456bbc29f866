"""What a chain of names means: which definitions of the project, which module of another project, or nothing known.

A name may have several meanings, defined twice or imported in two ways: all of them count. Names that are handed on by
other modules (``from .impl import clean`` in a package's ``__init__``) are followed to where they are defined.

What one statement leads to: the meaning of every name in it, its digest, and what in it cannot be told.

The digest of a statement covers its text and what its names mean, so that ``from fast import clean`` in the place of
``from slow import clean`` changes every function that calls ``clean``.
"""

from __future__ import annotations

import builtins
import os
from dataclasses import field
from typing import Final

from detent.canon import digest
from detent.canon.late import NamedTuple, dataclass
from detent.reuse.ingredients.module_finder import Finder, Place
from detent.reuse.ingredients.modules import Module, SourceUnreadable, Unit, read_module
from detent.reuse.ingredients.scan import Chain, Edge

MODULE_NAMES: Final = frozenset(
    {"__name__", "__file__", "__doc__", "__package__", "__spec__", "__loader__", "__path__", "__cached__"}
    | {"__builtins__", "__annotations__", "__dict__", "__debug__", "__class__", "__all__", "__qualname__", "__module__"}
)
"""What every module (or class) has without saying so. Where a file lies is not part of what it says."""
EVERYTHING: Final = "*"


class Symbol(NamedTuple):
    """One name of one module of the project; ``*`` is all of them."""

    module: Module
    name: str

    @property
    def text(self) -> str:
        return f"{self.module.name}:{self.name}"


class Foreign(NamedTuple):
    """Something of another's: of Python's own library, or of installed distributions."""

    text: str
    place: Place


class Unknown(NamedTuple):
    """Something that is not there, or that cannot be read."""

    what: str
    why: str
    where: str = ""
    """File and line, if that is not the place of the name itself."""
    guarded: bool = False


Meaning = Symbol | Foreign | Unknown
_Seen = set[tuple[str, Chain]]
"""What one question has looked at: modules may hand a name on in a circle, and on many ways."""


@dataclass(slots=True)
class Project:
    """The modules of one project, as they are at one moment."""

    finder: Finder
    _modules: dict[str, Module | Unknown] = field(default_factory=dict)
    _loaded: dict[tuple[str, str | None], list[Module]] = field(default_factory=dict)

    def module(self, name: str, place: Place) -> Module | Unknown:
        """A module of the project by its name and place."""
        known = self._modules.get(name)
        if known is None:
            known = self._modules[name] = self._read(name, place)
        return known

    def script(self, where: str) -> Module | Unknown:
        """A file that is named by its path, as a module of that name."""
        path = os.path.join(self.finder.base or "", where)  # noqa: PTH118
        return self.module(where, Place("project", path))

    @property
    def is_current(self) -> bool:
        """Whether every file that was read is still as it was; one that could not be read may be better by now."""
        return all(isinstance(module, Module) and module.is_current for module in self._modules.values())

    def take(self, module: Module) -> None:
        """Make a module known that has no file."""
        self._modules[module.name] = module

    def _read(self, name: str, place: Place) -> Module | Unknown:
        if place.kind == "namespace":
            return Module(name, place.directories[0][0], is_package=True)
        if place.kind == "binary":
            return Unknown(name, "is compiled and belongs to no installed distribution", self.shown(place.path))
        try:
            return read_module(name, place.path, is_package=place.is_package)
        except SourceUnreadable as exc:
            where = f"{self.shown(place.path)}:{exc.line}" if exc.line else self.shown(place.path)
            return Unknown(name, f"cannot be read: {exc}", where)
        except (OSError, ValueError) as exc:  # A path with a zero byte is a ValueError.
            why = getattr(exc, "strerror", None) or exc
            return Unknown(name, f"cannot be read: {why}", self.shown(place.path))

    def shown(self, path: str) -> str:
        """A path as people know it: from the base directory on."""
        inside = os.path.relpath(path, self.finder.base or ".")
        return path if inside.startswith("..") else inside

    # Names.

    def meanings(self, unit: Unit, chain: Chain) -> list[Meaning]:
        """What a chain means in a statement: what its functions import for themselves comes first."""
        edges = unit.use.imports.get(chain[0])
        if edges is None:
            return self.global_meanings(unit.module, chain[0], chain[1:])
        found = [meaning for edge in edges for meaning in self.follow(edge, chain[1:])]
        if chain[0] in unit.module.names or chain[0] in unit.module.edges:
            found += self.global_meanings(unit.module, chain[0], chain[1:])
        return found

    def global_meanings(self, module: Module, name: str, rest: Chain = ()) -> list[Meaning]:
        """What a name of a module means, and the attributes behind it as far as they lead through modules."""
        found = self._bound(module, (name, *rest), set())
        if found or name in MODULE_NAMES or name in module.typing_only:
            return found
        if hasattr(builtins, name):
            return []
        if "__getattr__" in module.names:
            return [Symbol(module, "__getattr__")]
        return [Unknown(name, f"is defined nowhere in {module.name}")]

    def defined(self, module: Module, name: str, rest: Chain = ()) -> list[Meaning]:
        """What a name means that has to be one of the module's own."""
        return self._bound(module, (name, *rest), set()) or [Unknown(f"{module.name}:{name}", "is defined nowhere")]

    def _bound(self, module: Module, chain: Chain, seen: _Seen) -> list[Meaning]:
        if (module.name, chain) in seen:
            return []
        seen.add((module.name, chain))
        name, rest = chain[0], chain[1:]
        found: list[Meaning] = [Symbol(module, name)] if name in module.names else []
        for edge in module.edges.get(name, ()):
            found += self.follow(edge, rest, seen)
        if not found and name[:1] != "_":
            for star in module.stars:
                found += self._from_star(star, chain, seen)
        return found

    def _from_star(self, star: Edge, chain: Chain, seen: _Seen) -> list[Meaning]:
        place = self.finder.find(star.module)
        if place.kind in {"installed", "python"}:
            return [Foreign(f"{star.module}.{chain[0]}", place)]  # It may have brought the name, also a builtin one.
        module = self._module_of(star.module, place, star)
        if isinstance(module, Unknown):
            return [] if module.guarded else [module]
        return self._bound(module, chain, seen)

    def follow(self, edge: Edge, rest: Chain, seen: _Seen | None = None) -> list[Meaning]:
        """What an import gives, and the attributes behind it."""
        chain = rest if edge.attribute is None else (edge.attribute, *rest)
        return self.inside(edge.module, chain, edge, set() if seen is None else seen)

    def inside(self, name: str, rest: Chain, edge: Edge, seen: _Seen | None = None) -> list[Meaning]:
        """What attributes of a module mean; the module as a whole if there are none."""
        place = self.finder.find(name)
        if place.kind in {"installed", "python"}:
            return [Foreign(".".join((name, *rest)), place)]
        module = self._module_of(name, place, edge)
        if isinstance(module, Unknown):
            return [module]
        if not rest:
            return [Symbol(module, EVERYTHING)]
        seen = set() if seen is None else seen
        if (module.name, rest) in seen:
            return []
        found = self._bound(module, rest, seen)
        # What a package binds itself comes before a module of the same name: ``from .clean import clean``.
        if not found and module.is_package and self.finder.find(f"{name}.{rest[0]}").kind != "missing":
            found += self.inside(f"{name}.{rest[0]}", rest[1:], edge, seen)
        if found or rest[0] in MODULE_NAMES or rest[0] in module.typing_only:
            return found
        if "__getattr__" in module.names:
            return [Symbol(module, "__getattr__")]
        return [Unknown(f"{name}.{rest[0]}", "is defined nowhere", guarded=edge.guarded)]

    def _module_of(self, name: str, place: Place, edge: Edge) -> Module | Unknown:
        if place.kind == "missing":
            return Unknown(name, "is a module that is found nowhere", guarded=edge.guarded)
        return self.module(name, place)

    def loaded_by(self, edge: Edge) -> list[Module]:
        """The modules of the project that an import loads: the packages on the way, the module, and one named in it."""
        key = (edge.loads or edge.module, edge.attribute)
        found = self._loaded.get(key)
        if found is None:
            found = self._loaded[key] = self._load(*key)
        return found

    def _load(self, module_name: str, attribute: str | None) -> list[Module]:
        names = module_name.split(".")
        wanted = [".".join(names[:length]) for length in range(1, len(names) + 1)]
        if attribute not in (None, EVERYTHING):
            wanted.append(f"{wanted[-1]}.{attribute}")
        found = []
        for name in wanted:
            place = self.finder.find(name) if name and name[0] != "." else None
            if place is not None and place.kind in {"project", "namespace"}:
                module = self.module(name, place)
                if isinstance(module, Module):
                    found.append(module)
        return found


UNIT_LABEL: Final = b"detent/code-part/v1\0"
UNTOLD: Final = {
    "importlib.import_module": "loads a module whose name is computed",
    "importlib.__import__": "loads a module whose name is computed",
    "importlib.util.spec_from_file_location": "loads code from a file",
    "importlib.util.module_from_spec": "loads code that only runs can tell",
    "importlib.machinery": "loads code that only runs can tell",
    "importlib.metadata.entry_points": "finds code among what is installed",
    "pkgutil.iter_modules": "finds code among what is there",
    "pkgutil.walk_packages": "finds code among what is there",
    "pkgutil.resolve_name": "loads a name that is computed",
    "runpy": "runs code by its path or name",
    "sys.modules": "finds modules by names that are computed",
    "marshal.load": "reads code that was made elsewhere",
    "marshal.loads": "reads code that was made elsewhere",
    "ctypes.CDLL": "loads compiled code by its path",
    "ctypes.cdll": "loads compiled code by its path",
    "ctypes.PyDLL": "loads compiled code by its path",
    "builtins.eval": "runs code that is made at run time",
    "builtins.exec": "runs code that is made at run time",
}
"""Parts of Python's own library after which the source does not tell what runs."""
_UNTOLD_BUILTINS: Final = {
    "eval": "runs code that is made at run time",
    "exec": "runs code that is made at run time",
    "compile": "makes code at run time",
    "globals": "finds names that are computed",
    "__import__": "loads a module whose name is computed",
}
_LITERAL_LOADERS: Final = frozenset({"importlib.import_module", "importlib.__import__"})


class Unresolved(NamedTuple):
    """Something that reading could not tell: what, where (file and line) and why."""

    what: str
    where: str
    why: str


@dataclass(slots=True)
class Understood:
    """A statement with the meanings of all its names."""

    digest: bytes
    symbols: list[Symbol]
    foreign: list[Foreign]
    unresolved: list[Unresolved]
    loads: list[Module]


def understood(project: Project, unit: Unit) -> Understood:
    """A statement with the meanings of all its names. Nothing in it is run, and no other statement is looked into."""
    use = unit.use
    known = Understood(b"", [], [], [], [])
    said: list[str] = []
    for chains, is_soft in ((use.chains, False), (use.soft, True)):
        for chain, line in chains.items():
            meanings = project.meanings(unit, chain)
            said.extend(f"{'.'.join(chain)}={_text(meaning)}" for meaning in meanings)
            for meaning in meanings:
                _take(project, known, meaning, unit, line, is_soft=is_soft)
            if not meanings:
                _take_builtin(project, known, unit, chain, line)
    _take_loaders(project, known, unit)
    for chain, line in use.computed.items():
        for meaning in project.meanings(unit, chain):
            if isinstance(meaning, Symbol) and meaning.name == EVERYTHING and meaning.module.is_package:
                why = "a computed attribute of a package may be any module in it"
                known.unresolved.append(Unresolved(".".join(chain), _where(project, unit, line), why))
    for edges in use.imports.values():
        for edge in edges:
            known.loads.extend(project.loaded_by(edge))
            said.append(f"import {edge.module}.{edge.attribute}")
            _take_import(project, known, unit, edge)
    known.digest = digest(UNIT_LABEL, unit.canonical + "\n".join(sorted(set(said))).encode())
    return known


def _take_import(project: Project, known: Understood, unit: Unit, edge: Edge) -> None:
    """A function's own import may fail although its names are never used."""
    for meaning in project.follow(edge, ()):
        if not (isinstance(meaning, Symbol) and meaning.name == EVERYTHING):
            _take(project, known, meaning, unit, edge.line)


def _take(
    project: Project, known: Understood, meaning: Meaning, unit: Unit, line: int, *, is_soft: bool = False
) -> None:
    if isinstance(meaning, Symbol):
        known.symbols.append(meaning)
    elif isinstance(meaning, Foreign):
        known.foreign.append(meaning)
        why = _untold(meaning.text)
        if why is not None and not (meaning.text in _LITERAL_LOADERS and unit.use.loaders):
            known.unresolved.append(Unresolved(meaning.text, _where(project, unit, line), why))
    elif not is_soft and not meaning.guarded:
        known.unresolved.append(Unresolved(meaning.what, meaning.where or _where(project, unit, line), meaning.why))


def _take_builtin(project: Project, known: Understood, unit: Unit, chain: Chain, line: int) -> None:
    if chain == ("__doc__",):
        known.symbols.append(Symbol(unit.module, "__doc__"))
    if chain[0] in _UNTOLD_BUILTINS and not _is_called_as_loader(unit, chain):
        known.unresolved.append(Unresolved(chain[0], _where(project, unit, line), _UNTOLD_BUILTINS[chain[0]]))


def _is_called_as_loader(unit: Unit, chain: Chain) -> bool:
    return any(called == chain for called, _, _ in unit.use.loaders)


def _take_loaders(project: Project, known: Understood, unit: Unit) -> None:
    """``import_module("helpers")`` is an import like any other; with a computed name it cannot be followed."""
    for chain, name, line in unit.use.loaders:
        meanings = project.meanings(unit, chain)
        texts = {meaning.text for meaning in meanings if isinstance(meaning, Foreign)}
        if not texts & _LITERAL_LOADERS and not (chain == ("__import__",) and not meanings):
            continue
        if name is None or name[:1] == ".":
            why = UNTOLD["importlib.import_module"]
            known.unresolved.append(Unresolved(".".join(chain), _where(project, unit, line), why))
            continue
        edge = Edge(name, line=line)
        known.loads.extend(project.loaded_by(edge))
        for meaning in project.follow(edge, ()):
            _take(project, known, meaning, unit, line)


def _untold(text: str) -> str | None:
    parts = text.split(".")
    return next((UNTOLD[name] for end in range(1, len(parts) + 1) if (name := ".".join(parts[:end])) in UNTOLD), None)


def _text(meaning: Meaning) -> str:
    if isinstance(meaning, Symbol):
        return meaning.text
    return meaning.text if isinstance(meaning, Foreign) else f"nothing: {meaning.what}"


def _where(project: Project, unit: Unit, line: int) -> str:
    return f"{project.shown(unit.module.path)}:{line or unit.line}"
