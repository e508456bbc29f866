"""What an interpreter needs of the host's files, and where a job sees it.

In a jail with a root of its own the interpreter, its standard library, its shared libraries and the packages of the operator lie
below ``/runtime``, wherever the host keeps them: a guest learns nothing of the host's paths, and equal jobs see equal ones.
What a system has in the same place everywhere (the C library, the loader, time zones) keeps its path. Without a root of its
own a job sees all of it where the host has it.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from detent.executor.sandbox import bare
from detent.executor.sandbox.shared_objects import foreign_libraries

RUNTIME: Final = "/runtime"
PREFIX: Final = f"{RUNTIME}/python"
LIBRARIES: Final = f"{RUNTIME}/lib"
PACKAGES: Final = f"{RUNTIME}/packages"

_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
_FACTS = ("/etc/ld.so.cache", "/usr/share/zoneinfo")
_OTHERS_PACKAGES = ("site-packages", "dist-packages")
_SYSTEM_PREFIXES = frozenset({"/", "/usr", "/usr/local"})
"""Every machine has these: they tell nothing."""
_PREFIX = re.compile(r"""["']prefix["']: ["'](/[^"']+)["']""")


@dataclass(frozen=True)
class Interpreter:
    """The interpreter that runs this process, with further directories of Python packages."""

    packages: tuple[Path, ...] = ()
    executable: Path = field(default_factory=lambda: Path(bare.interpreter()))
    standard: Path = field(default_factory=lambda: Path(os.__file__).resolve().parent)

    @cached_property
    def libraries(self) -> dict[str, Path]:
        """Shared libraries from outside the system's directories, by the names they are loaded under."""
        return foreign_libraries(
            [self.executable, *sorted((self.standard / "lib-dynload").glob("*.so"))],
            system=_system_directories(),
            search=[Path(part) for part in bare.library_path()],
            last=[Path(directory) for directory in (sysconfig.get_config_var("LIBDIR"),) if directory],
        )

    @cached_property
    def system(self) -> tuple[str, ...]:
        """What keeps its path inside a jail."""
        wanted = [*_system_directories(), Path(_loader()), *map(Path, _FACTS)]
        return tuple(str(path) for path in _outermost([path for path in wanted if path.exists()]))

    @property
    def masks(self) -> tuple[Path, ...]:
        """Directories of the standard library that no job sees: packages installed for other purposes, facts of the build."""
        found = [self.standard / name for name in _OTHERS_PACKAGES] + sorted(self.standard.glob("config-*"))
        return tuple(path for path in found if path.is_dir())


class Inside:
    """The interpreter as a jail with a root of its own shows it."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        self.executable = f"{PREFIX}/bin/{version}"
        self._standard = f"{PREFIX}/{sys.platlibdir}/{interpreter.standard.name}"
        self.links = {f"{PREFIX}/bin/{name}": version for name in ("python", "python3")}
        self.packages = tuple(f"{PACKAGES}/{number}" for number in range(len(interpreter.packages)))
        self.programs = (self.executable, _loader())
        self.directories = (LIBRARIES, PACKAGES, f"{PREFIX}/bin")

    @property
    def mounts(self) -> list[tuple[str, str]]:
        """Each of the host's files and directories with its place below `RUNTIME`; none lies in a later one."""
        shown = self._interpreter
        libraries = [(str(path), f"{LIBRARIES}/{name}") for name, path in shown.libraries.items()]
        packages = zip(map(str, shown.packages), self.packages, strict=True)
        return [(str(shown.executable), self.executable), (str(shown.standard), self._standard), *libraries, *packages]

    @property
    def masks(self) -> list[str]:
        """Directories that are shown empty."""
        return [f"{self._standard}/{path.name}" for path in self._interpreter.masks]

    @property
    def texts(self) -> dict[str, str]:
        """Files that are shown with another text: the record of the build names the place of the interpreter."""
        standard = self._interpreter.standard
        found = {path.name: path.read_text("utf-8") for path in standard.glob("_sysconfig*") if path.is_file()}
        # A moved interpreter has two: where it is, and where it was built to be.
        prefixes = {sys.base_prefix, *(match[1] for text in found.values() for match in _PREFIX.finditer(text))}
        for prefix in sorted(prefixes - _SYSTEM_PREFIXES, key=len, reverse=True):
            found = {name: text.replace(prefix, PREFIX) for name, text in found.items()}
        told = {f"{self._standard}/{name}": text for name, text in found.items()}
        compiled = [f"{self._standard}/__pycache__/{path.name}" for path in standard.glob("__pycache__/_sysconfig*")]
        return told | dict.fromkeys(compiled, "")

    @property
    def environment(self) -> dict[str, str]:
        """What the dynamic loader has to know there; the same on every machine, whether it is needed or not."""
        return {"LD_LIBRARY_PATH": LIBRARIES}


class AsOnHost:
    """The interpreter for a job that has no root of its own: everything is where the host has it."""

    def __init__(self, interpreter: Interpreter) -> None:
        self.executable = str(interpreter.executable)
        self.packages = tuple(str(path) for path in interpreter.packages)
        self.programs = (self.executable, _loader())
        wanted = [*map(Path, interpreter.system), interpreter.executable, interpreter.standard]
        wanted += [*interpreter.libraries.values(), *interpreter.packages]
        self.readable = tuple(str(path) for path in _outermost(wanted))

    @property
    def environment(self) -> dict[str, str]:
        """What the dynamic loader has to know there."""
        return {name: value for name, value in bare.surroundings().items() if name == "LD_LIBRARY_PATH"}


def readable_by_others(paths: tuple[str, ...]) -> bool:
    """Whether a user without any rights could reach all of these."""
    directories = {parent for path in paths for parent in Path(path).resolve().parents}
    return all(directory.stat().st_mode & 0o001 for directory in directories)


def _loader() -> str:
    return _LOADERS.get(os.uname().machine, "/nonexistent")


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
