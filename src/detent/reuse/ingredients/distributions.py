"""Which installed distributions a top-level module belongs to, and in which version, from the names of their directories.

`importlib.metadata.packages_distributions` reads the file list of everything installed. Here one directory is listed, and
files are opened only where a distribution is not called like its module (``yaml`` is in PyYAML). Distributions that one
requires count with it: what pandas computes depends on the numpy below it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import field
from typing import Final

from detent.canon.late import dataclass

_INFO: Final = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-.+)?\.(?:dist|egg)-info")
_REQUIRED: Final = re.compile(rb"Requires-Dist: *([A-Za-z0-9][A-Za-z0-9._-]*)(.*)")
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
