"""What an interpreter needs of the host's files, and nothing more: found out here, mounted read-only in the jail."""

from __future__ import annotations

import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from detent.executor.sandbox import bare

_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
_FACTS = ("/etc/ld.so.cache", "/usr/share/zoneinfo")


@dataclass(frozen=True, slots=True)
class Furniture:
    """Paths that keep their names inside the jail."""

    binds: tuple[str, ...]
    """Mounted read-only."""
    masks: tuple[str, ...]
    """Directories within those that stay empty: packages somebody installed for other purposes."""
    programs: tuple[str, ...]
    """The only files among them that may be run."""


def furniture(library_paths: tuple[Path, ...] = ()) -> Furniture:
    """What the jail of this interpreter holds, with further directories of Python packages."""
    executable = Path(bare.interpreter())
    base = str(executable.parent.parent)
    variables = {"installed_base": base, "installed_platbase": base}
    standard = [Path(sysconfig.get_path(name, vars=variables)) for name in ("stdlib", "platstdlib")]
    programs = [executable, Path(_LOADERS.get(os.uname().machine, "/nonexistent"))]
    libraries = [path.resolve() for path in library_paths]
    wanted = [*standard, *_system_directories(), *programs, *_shared_library(), *map(Path, _FACTS), *libraries]
    masks = [
        directory / name
        for directory in dict.fromkeys(standard)
        for name in ("site-packages", "dist-packages")
        if (directory / name).is_dir() and not any(path.is_relative_to(directory / name) for path in libraries)
    ]
    return Furniture(
        tuple(str(path) for path in _outermost([path for path in wanted if path.exists()])),
        tuple(str(path) for path in masks),
        tuple(str(path) for path in programs if path.exists()),
    )


def readable_by_others(paths: tuple[str, ...]) -> bool:
    """Whether somebody without any rights could reach all of these."""
    directories = {parent for path in paths for parent in Path(path).resolve().parents}
    return all(directory.stat().st_mode & 0o001 for directory in directories)


def _shared_library() -> list[Path]:
    """The interpreter's own library, where it is one."""
    directory, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    shared = sysconfig.get_config_var("Py_ENABLE_SHARED") and directory and name
    return [Path(directory) / name] if shared else []


def _system_directories() -> list[Path]:
    """Where the C library lies, under both of its names where /lib is a link to /usr/lib."""
    found: list[Path] = []
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        path = Path("/" + line.partition("/")[2])
        if path.name.startswith(("libc.so", "libc-", "ld-musl")):
            found.append(path.parent)
    for path in list(found):
        text = str(path)
        twin = Path(text.removeprefix("/usr") if text.startswith("/usr/") else "/usr" + text)
        if twin.resolve() == path.resolve():
            found.append(twin)
    return found


def _outermost(paths: list[Path]) -> list[Path]:
    """Without what lies in another of them, in an order in which nothing is mounted over what came before."""
    kept: list[Path] = []
    for path in sorted(dict.fromkeys(paths), key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(one) for one in kept):
            kept.append(path)
    return kept
