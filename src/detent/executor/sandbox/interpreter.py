"""What an interpreter needs of the host's files, and where a job sees it.

In a jail with a root of its own the interpreter, its standard library, its shared libraries and the packages of the operator lie
below ``/runtime``, wherever the host keeps them: a guest learns nothing of the host's paths, and equal jobs see equal ones.
What a system has in the same place everywhere (the C library, the loader, time zones) keeps its path. Without a root of its
own a job sees all of it where the host has it.

How a child of ours is started as a thin interpreter: by path, with nothing of the surroundings but what it needs to start.

``-P -s -S`` and an environment of two words are what ``-I -S`` would be, but for the hash seed: with a fixed one the order
of a set of texts is the same in every job, and equal inputs can give equal bytes. An interpreter that was moved or brought by
an environment module may not start without knowing where its libraries and its home are, so it gets both.

Which shared libraries an interpreter loads from outside the system's own directories.

An interpreter that was relocated, built with ``--enable-shared`` or brought by an environment module finds some of its libraries
through ``LD_LIBRARY_PATH`` or a path written into its files. In a jail those places do not exist, so each library is looked up
here as the dynamic loader would and shown under a path of the jail's own. Only the libraries that are needed are shown: a
directory of ``LD_LIBRARY_PATH`` may hold anything.

Reads ELF files of 64 bits, the only ones that have a filter for system calls here; any other file needs nothing.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

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
    executable: Path = field(default_factory=lambda: Path(interpreter()))
    standard: Path = field(default_factory=lambda: Path(os.__file__).resolve().parent)

    @cached_property
    def libraries(self) -> dict[str, Path]:
        """Shared libraries from outside the system's directories, by the names they are loaded under."""
        return foreign_libraries(
            [self.executable, *sorted((self.standard / "lib-dynload").glob("*.so"))],
            system=_system_directories(),
            search=[Path(part) for part in library_path()],
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
        return {name: value for name, value in surroundings().items() if name == "LD_LIBRARY_PATH"}


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


HERE = Path(__file__).resolve().parent
HOUSE = HERE.parents[1]
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
OPTIONS = ("-P", "-s", "-S", "-B", "-X", "utf8")


def interpreter() -> str:
    """The interpreter itself, not the link to it that a virtual environment holds."""
    return os.path.realpath(sys.executable)


def library_path() -> list[str]:
    """The directories of ``LD_LIBRARY_PATH``; a relative one would mean another place in every process."""
    return [part for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part.startswith("/")]


def surroundings() -> dict[str, str]:
    """What a child on the host needs to know to start."""
    found = dict(ENVIRONMENT)
    if library_path():
        found["LD_LIBRARY_PATH"] = ":".join(library_path())
    if "PYTHONHOME" in os.environ:
        found["PYTHONHOME"] = os.environ["PYTHONHOME"]
    return found


def start(
    script: str, *arguments: str, descriptors: tuple[int, ...] = (), output: bool = False
) -> subprocess.Popen[bytes]:
    """Start one of the scripts beside this file. It is exec'd, never forked from the caller's memory."""
    return subprocess.Popen(  # noqa: S603
        [interpreter(), *OPTIONS, str(HERE / script), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if output else subprocess.DEVNULL,
        stderr=subprocess.PIPE if output else None,
        env=surroundings(),
        cwd="/",
        pass_fds=descriptors,
        start_new_session=True,
    )


LIBRARIES_MAX: Final = 256
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 1, 5, 15, 29
_HEADER = struct.Struct("<16xHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")


@dataclass(frozen=True, slots=True)
class Needs:
    """What one file asks of the dynamic loader."""

    names: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    """Directories to look in before all others (``DT_RPATH``)."""
    then: tuple[str, ...] = ()
    """Directories to look in after those of the environment (``DT_RUNPATH``)."""


def foreign_libraries(
    files: Iterable[Path], *, system: Iterable[Path], search: Iterable[Path] = (), last: Iterable[Path] = ()
) -> dict[str, Path]:
    """By the name it is asked for, every library that these files load, directly or not, from outside ``system``.

    ``search`` are the directories of the environment, ``last`` where to look for what is found nowhere else.
    """
    own = {path.resolve() for path in system}
    searched, finally_ = list(search), list(last)
    found: dict[str, Path] = {}
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        needs = needs_of(file)
        places = [*map(Path, needs.first), *searched, *map(Path, needs.then), *finally_]
        for name in needs.names:
            # Not `Path.is_file`, which raises for a place that may not be entered, such as where a moved interpreter was built.
            path = next((place / name for place in places if os.path.isfile(place / name)), None)  # noqa: PTH113
            if name in found or path is None or path.resolve().parent in own or len(found) == LIBRARIES_MAX:
                continue
            found[name] = path.resolve()
            waiting.append(path)
    return found


def needs_of(path: Path) -> Needs:
    """What a file asks for; nothing when it is not an ELF file of this kind."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(data, str(path.parent))
    except (OSError, ValueError, struct.error):
        return Needs()


def _read(data: mmap.mmap, origin: str) -> Needs:
    if data[:6] != b"\x7fELF\x02\x01":
        return Needs()
    *_, start, _, _, _, size, count = _HEADER.unpack_from(data)
    segments = [_SEGMENT.unpack_from(data, start + number * size) for number in range(count)]
    loaded = [(address, length, offset) for kind, _, offset, address, _, length, *_ in segments if kind == _PT_LOAD]
    dynamic = [data[offset : offset + length] for kind, _, offset, _, _, length, *_ in segments if kind == _PT_DYNAMIC]
    entries = [entry for block in dynamic for entry in _ENTRY.iter_unpack(block)]
    table = next((value for tag, value in entries if tag == _DT_STRTAB), -1)
    strings = next(
        (offset + table - address for address, length, offset in loaded if 0 <= table - address < length), None
    )
    if strings is None:
        return Needs()

    def texts(wanted: int) -> list[str]:
        starts = [strings + value for tag, value in entries if tag == wanted]
        return [data[start : data.find(b"\0", start)].decode("utf-8", "surrogateescape") for start in starts]

    def places(wanted: int) -> tuple[str, ...]:
        written = [part for text in texts(wanted) for part in text.split(":") if part]
        named = [part.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for part in written]
        return tuple(part for part in named if part.startswith("/"))

    then = places(_DT_RUNPATH)
    return Needs(tuple(name for name in texts(_DT_NEEDED) if "/" not in name), () if then else places(_DT_RPATH), then)
