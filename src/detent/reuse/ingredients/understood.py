"""What one statement leads to: the meaning of every name in it, its digest, and what in it cannot be told.

The digest of a statement covers its text and what its names mean, so that ``from fast import clean`` in the place of
``from slow import clean`` changes every function that calls ``clean``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from detent.canon import digest
from detent.canon.late import dataclass
from detent.reuse.ingredients.meaning import EVERYTHING, Foreign, Meaning, Project, Symbol
from detent.reuse.ingredients.modules import Module, Unit
from detent.reuse.ingredients.scan import Chain, Edge

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
