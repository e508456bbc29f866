"""The digest of a function's code, from source alone: nothing of the user's is imported or run (X-176).

`CodeReader` is one look at a project: every file is read at most once, so that a thousand steps of one module cost little
more than one, and all of them see the same state. A new look costs a `stat` for each file that has not changed.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from detent.canon import digest, digest_text, json_encode
from detent.canon.late import dataclass
from detent.errors import InvalidInput
from detent.reuse.ingredients.meaning import EVERYTHING, Foreign, Meaning, Project, Symbol, Unknown, Unresolved
from detent.reuse.ingredients.module_finder import Finder
from detent.reuse.ingredients.modules import Module, SourceUnreadable, parse_module
from detent.reuse.ingredients.reach import Reach, Reached
from detent.reuse.ingredients.scan import Edge

CODE_LABEL: Final = b"detent/code/v1\0"
VERSION_LABEL: Final = b"detent/code-version/v1\0"
TOGETHER_LABEL: Final = b"detent/code-together/v1\0"
SOURCE_LABEL: Final = b"detent/code-source/v1\0"
SOURCE_NAME: Final = "code"
"""Prefix for the names of parts of source code written in a contract."""


@dataclass(frozen=True, slots=True, eq=False)
class CodeDigest:
    """What a function's code is made of. Two of them are compared by their `digest`."""

    digest: bytes | None
    """None when something could not be told: the work then runs every time, unless it is given a version."""
    parts: Mapping[str, bytes] = field(default_factory=dict)
    """Everything of the project that was reached, as ``module:name``, each with the digest of what it says."""
    distributions: Mapping[str, str] = field(default_factory=dict)
    """Installed distributions that were reached, and those that they require, each with its version."""
    unresolved: tuple[Unresolved, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Of each part: ``function``, ``class``, ``value`` or ``module``."""


def together(codes: Mapping[str, CodeDigest]) -> CodeDigest:
    """What several functions, by their targets in the order of their use, are made of as one."""
    if len(codes) == 1:
        return next(iter(codes.values()))
    parts: dict[str, bytes] = {}
    distributions: dict[str, str] = {}
    kinds: dict[str, str] = {}
    unresolved: list[Unresolved] = []
    for code in codes.values():
        parts |= code.parts
        distributions |= code.distributions
        kinds |= code.kinds
        unresolved += code.unresolved
    known = [[target, code.digest.hex()] for target, code in codes.items() if code.digest is not None]
    whole = digest(TOGETHER_LABEL, json_encode(known)) if len(known) == len(codes) else None
    return CodeDigest(whole, parts, distributions, tuple(unresolved), kinds)


class CodeReader:
    """One look at the code under a base directory. Change something, and it takes a new reader to see it.

    Without a base, modules are found as this process finds them, and files from its working directory.
    """

    def __init__(self, base: str | os.PathLike[str] | None, *, path: tuple[str, ...] | None = None) -> None:
        self._base = None if base is None else os.path.abspath(base)  # noqa: PTH100 - links stay as they are written
        self._project = Project(Finder(self._base, tuple(sys.path) if path is None else path))
        self._reach = Reach(self._project)
        self._digests: dict[tuple[str, str | None], CodeDigest] = {}

    @property
    def is_current(self) -> bool:
        """Whether all the source that it has read so far is still the same, at the cost of one `stat` for each file."""
        return self._project.is_current

    def digest(self, target: str, *, version: str | None = None) -> CodeDigest:
        """What a target's code is. With a version that word alone counts, and nothing is read."""
        known = self._digests.get((target, version))
        if known is None:
            try:
                known = self._digest(target, version)
            except RecursionError:  # Names that are handed on through hundreds of modules.
                known = _nothing(target, Unknown(target, "is found through too many modules"))
            self._digests[target, version] = known
        return known

    def _digest(self, target: str, version: str | None) -> CodeDigest:
        where, _, name = target.rpartition(":")
        if not where or not name:
            raise InvalidInput(
                f"{target!r:.80} names no function", hint="write module:function or path/file.py:function"
            )
        if version is not None:
            return version_digest(target, version)
        chain = tuple(name.split("."))
        if where.endswith(".py"):
            module = self._project.script(where)
        else:
            place = self._project.finder.find(where)
            if place.kind in {"installed", "python", "missing"}:
                return _outside(target, self._project.inside(where, chain, Edge(where)))
            module = self._project.module(where, place)
        if isinstance(module, Unknown):
            return _nothing(target, module)
        if where.endswith(".py"):
            meanings = self._project.defined(module, chain[0], chain[1:])
        else:
            meanings = self._project.inside(where, chain, Edge(where))
        return _answered(target, chain, meanings, module, self._reach)


def version_digest(target: str, version: str) -> CodeDigest:
    """The digest of code that has a version of its user's: the target's name and that word alone."""
    return CodeDigest(digest(VERSION_LABEL, json_encode([target, version])))


def source_digest(source: str) -> CodeDigest:
    """The digest of source code that is written in a contract and runs in the sandbox.

    All of it counts. It reaches nothing of the project, so that nothing in it is left open: code that it makes at run time
    is made of itself and of its arguments.
    """
    try:
        module = parse_module(SOURCE_NAME, SOURCE_NAME, source)
    except SourceUnreadable:
        return CodeDigest(digest(SOURCE_LABEL, source.encode("utf-8", "surrogatepass")))
    installed = tuple(entry for entry in sys.path if entry.rstrip("/").endswith("-packages"))
    project = Project(Finder(None, installed))
    project.take(module)
    reached = Reach(project).from_symbols(module, [Symbol(module, EVERYTHING)])
    return _made(SOURCE_NAME, reached)


def _answered(target: str, chain: tuple[str, ...], meanings: list[Meaning], module: Module, reach: Reach) -> CodeDigest:
    symbols = [meaning for meaning in meanings if isinstance(meaning, Symbol)]
    if not symbols:
        return _outside(target, meanings)
    for symbol in symbols:
        if symbol.name == EVERYTHING:
            return _nothing(target, Unknown(target, "is a module, not a function"))
        if len(chain) > 1 and not _may_have(symbol, chain[-1]):
            return _nothing(target, Unknown(target, f"{symbol.text} has no {chain[-1]}"))
    reached = reach.from_symbols(module, symbols)
    reached.unresolved += [
        Unresolved(each.what, each.where or target, each.why)
        for each in meanings
        if isinstance(each, Unknown) and not each.guarded
    ]
    return _made(target, reached)


def _made(target: str, reached: Reached) -> CodeDigest:
    said = [target, {name: digest_text(part) for name, part in reached.parts.items()}]
    whole = digest(CODE_LABEL, json_encode(said)) if not reached.unresolved or target == SOURCE_NAME else None
    unresolved = () if target == SOURCE_NAME else tuple(reached.unresolved)
    return CodeDigest(whole, reached.parts, reached.distributions, unresolved, reached.kinds)


def _outside(target: str, meanings: list[Meaning]) -> CodeDigest:
    """A function of another project: its name, and the version of where it comes from."""
    found: dict[str, str] = {}
    for meaning in meanings:
        if isinstance(meaning, Unknown):
            return _nothing(target, meaning)
        if isinstance(meaning, Foreign):
            found.update(meaning.place.distributions)
    whole = digest(CODE_LABEL, json_encode([target, {}]))
    return CodeDigest(whole, distributions=dict(sorted(found.items())))


def _nothing(target: str, unknown: Unknown) -> CodeDigest:
    return CodeDigest(None, unresolved=(Unresolved(unknown.what, unknown.where or target, unknown.why),))


def _may_have(symbol: Symbol, name: str) -> bool:
    """Whether a class may have an attribute: one without bases has only what its body defines."""
    for unit in symbol.module.names.get(symbol.name, []):
        node = unit.node
        if not isinstance(node, ast.ClassDef) or node.bases or node.keywords or node.decorator_list:
            return True
        bodies = ast.walk(node)
        if any(getattr(each, "name", None) == name or getattr(each, "id", None) == name for each in bodies):
            return True
    return False
