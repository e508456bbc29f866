"""Where a module comes from, found by looking at directories: the user's project, an installed distribution, Python itself.

The order is that of the process that will run the code: the base directory, then ``sys.path``. What is found outside of Python's own directories and of ``site-packages`` belongs to the
project, an editable installation too. A project's module that has the name of one of Python's counts as the project's:
should Python's be taken in its place, the interpreter's version speaks for that.

Which installed distributions a top-level module belongs to, and in which version, from the names of their directories.

`importlib.metadata.packages_distributions` reads the file list of everything installed. Here one directory is listed, and
files are opened only where a distribution is not called like its module (``yaml`` is in PyYAML). Distributions that one
requires count with it: what pandas computes depends on the numpy below it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import field
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final, Literal

from detent.canon.late import dataclass, pattern

STDLIB: Final = os.path.dirname(os.path.abspath(os.__file__))  # noqa: PTH100, PTH120
_SITE_NAMES: Final = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a module is."""

    kind: Literal["project", "installed", "python", "namespace", "binary", "missing"]
    path: str = ""
    is_package: bool = False
    distributions: tuple[tuple[str, str], ...] = ()
    directories: tuple[tuple[str, bool], ...] = ()
    """Of a package: where its modules are, and whether that is among installed distributions."""


MISSING: Final = Place("missing")
_PYTHON: Final = Place("python")


@dataclass(slots=True)
class Finder:
    """Finds modules for one base directory. What it has seen stays as it was: use one for one look at a project."""

    base: str | None
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    _places: dict[str, Place] = field(default_factory=dict)
    _listed: dict[str, frozenset[str]] = field(default_factory=dict)
    _roots: list[tuple[str, bool]] = field(default_factory=list)

    def find(self, name: str) -> Place:
        """The place of a module, by its dotted name."""
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = self._find(name)
        return place

    def _find(self, name: str) -> Place:
        package, _, last = name.rpartition(".")
        if not package:
            return self._find_top(name)
        parent = self.find(package)
        if parent.kind in {"installed", "python"}:
            return parent
        return self._look(parent.directories, last, name)

    def _find_top(self, name: str) -> Place:
        if name == "detent":
            from detent.version import __version__  # noqa: PLC0415 - the package itself, whose names are loaded lazily

            return Place("installed", distributions=(("detent", __version__),))
        if not name or name in sys.builtin_module_names:
            return _PYTHON if name else MISSING
        place = self._look(self._entries(), name, name)
        return (
            place if place is not MISSING else Place("project", *editable) if (editable := _editable(name)) else MISSING
        )

    def _look(self, directories: Iterable[tuple[str, bool]], last: str, name: str) -> Place:
        portions: list[tuple[str, bool]] = []
        for directory, installed in directories:
            if directory == STDLIB:
                if name in sys.stdlib_module_names:
                    return _PYTHON
                continue
            listed = self._names(directory)
            if last not in listed and f"{last}.py" not in listed and not _extension(listed, last):
                continue
            inside = f"{directory}/{last}"
            is_regular = last in listed and "__init__.py" in self._names(inside)
            if installed and (is_regular or f"{last}.py" in listed or _extension(listed, last)):
                found = distributions_of(_root(directory, name), name.partition(".")[0])
                if found:
                    return Place("installed", distributions=found)
            if is_regular:
                return Place("project", f"{inside}/__init__.py", True, directories=((inside, installed),))
            if f"{last}.py" in listed:
                return Place("project", f"{inside}.py")
            if extension := _extension(listed, last):
                return Place("binary", f"{directory}/{extension}")
            if os.path.isdir(inside):  # noqa: PTH112
                portions.append((inside, installed))
        return self._namespace(portions, name) if portions else MISSING

    def _namespace(self, portions: list[tuple[str, bool]], name: str) -> Place:
        if all(installed for _, installed in portions):
            top = name.partition(".")[0]
            roots = {_root(os.path.dirname(directory), name) for directory, _ in portions}  # noqa: PTH120
            found = tuple(sorted({each for root in roots for each in distributions_of(root, top)}))
            if found:
                return Place("installed", distributions=found)
        return Place("namespace", directories=tuple(portions))

    def _entries(self) -> list[tuple[str, bool]]:
        if not self._roots:
            found: dict[str, bool] = {}
            if self.base is not None:
                found[self.base] = _is_site(self.base)
            for entry in self.path:
                whole = os.path.abspath(entry or ".")  # noqa: PTH100
                own = (whole == STDLIB or whole.startswith(f"{STDLIB}/")) and not _is_site(whole)
                found.setdefault(STDLIB if own else whole, not own and _is_site(whole))
            found.setdefault(STDLIB, False)
            self._roots = list(found.items())
        return self._roots

    def _names(self, directory: str) -> frozenset[str]:
        names = self._listed.get(directory)
        if names is None:
            try:
                names = frozenset(os.listdir(directory))  # noqa: PTH208
            except OSError:
                names = frozenset()
            self._listed[directory] = names
        return names


def _root(directory: str, name: str) -> str:
    """Where the top level of a dotted name is, from the directory that its last part was found in."""
    for _ in range(name.count(".")):
        directory = os.path.dirname(directory)  # noqa: PTH120
    return directory


def _is_site(directory: str) -> bool:
    return os.path.basename(directory) in _SITE_NAMES  # noqa: PTH119


def _extension(listed: frozenset[str], name: str) -> str | None:
    return next((name + suffix for suffix in EXTENSION_SUFFIXES if name + suffix in listed), None)


def _editable(name: str) -> tuple[str, bool, tuple[()], tuple[tuple[str, bool], ...]] | None:
    """Where an editable installation says that a top-level module is, if that is not a directory of ``sys.path``.

    Installers write a module with a table for it, which is loaded when Python starts.
    """
    for finder, module in list(sys.modules.items()):
        if finder.startswith("__editable___") and name in (table := getattr(module, "MAPPING", None) or {}):
            place = str(table[name])
            if os.path.isfile(f"{place}/__init__.py"):  # noqa: PTH113
                return f"{place}/__init__.py", True, (), ((place, False),)
            if os.path.isfile(place):  # noqa: PTH113
                return place, False, (), ()
    return None


_INFO: Final = pattern(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-.+)?\.(?:dist|egg)-info")
_REQUIRED: Final = pattern(rb"Requires-Dist: *([A-Za-z0-9][A-Za-z0-9._-]*)(.*)")
_HEADER_BYTES_MAX: Final = 256 * 1024
"""How much of a distribution's own description is read; its requirements stand at the top."""


@dataclass(slots=True)
class _Site:
    """One directory of installed distributions."""

    stamp: tuple[int, int]
    infos: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Name, version and directory of every distribution, under its normalised name."""
    modules: dict[str, tuple[str, ...]] = field(default_factory=dict)
    by_module: dict[str, list[str]] | None = None


_SITES: Final[dict[str, _Site]] = {}


def distributions_of(directory: str, module: str) -> tuple[tuple[str, str], ...]:
    """Name and version of the distributions that a top-level module of an installation belongs to, and of what they need.

    Empty for a module that belongs to none.
    """
    site = _site(directory)
    known = site.modules.get(module)
    if known is None:
        normal = _normal(module)
        owners = [normal] if normal in site.infos else _owners(site, directory).get(module, [])
        known = site.modules[module] = tuple(sorted(_with_requirements(site, directory, owners)))
    return tuple(site.infos[name][:2] for name in known)


def _site(directory: str) -> _Site:
    found = os.stat(directory)  # noqa: PTH116
    stamp = (found.st_mtime_ns, found.st_ino)
    site = _SITES.get(directory)
    if site is None or site.stamp != stamp:
        site = _SITES[directory] = _Site(stamp)
        for entry in os.listdir(directory):  # noqa: PTH208
            if entry.endswith("-info") and (match := _INFO.fullmatch(entry)):
                site.infos[_normal(match["name"])] = (match["name"], match["version"], entry)
    return site


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _owners(site: _Site, directory: str) -> dict[str, list[str]]:
    """Every top-level module with the distributions that brought it: the slow way, taken once."""
    if site.by_module is None:
        site.by_module = {}
        for normal, (_, _, entry) in site.infos.items():
            for module in _modules(f"{directory}/{entry}"):
                site.by_module.setdefault(module, []).append(normal)
    return site.by_module


def _modules(info: str) -> set[str]:
    if os.path.isfile(info):  # noqa: PTH113 - an old egg-info that is one file names no modules
        return set()
    names: set[str] = set()
    for line in _lines(f"{info}/top_level.txt"):
        names.add(line.strip())
    # Also where there is a list: of a namespace it names the top only, but some lists are incomplete.
    for line in _lines(f"{info}/RECORD"):
        first, slash, _ = line.partition(",")[0].partition("/")
        names.add(first if slash else first.partition(".")[0])
    return {name for name in names if name.isidentifier()}


def _lines(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            yield from file
    except OSError:
        return


def _with_requirements(site: _Site, directory: str, owners: list[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(owners)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting.extend(each for each in _requirements(f"{directory}/{site.infos[name][2]}") if each in site.infos)
    return found


def _requirements(info: str) -> Iterator[str]:
    """What a distribution needs, those of its extras aside: they are needed only on request."""
    for name in ("METADATA", "PKG-INFO"):
        try:
            with open(f"{info}/{name}", "rb") as file:  # noqa: PTH123
                header = file.read(_HEADER_BYTES_MAX).replace(b"\r\n", b"\n").partition(b"\n\n")[0]
        except OSError:
            continue
        for required, marker in _REQUIRED.findall(header):
            if b"extra" not in marker.partition(b";")[2]:
                yield _normal(required.decode())
