"""How a child of ours is started as a thin interpreter: by path, with nothing of the surroundings but what it needs to start.

``-P -s -S`` and an environment of two words are what ``-I -S`` would be, but for the hash seed: with a fixed one the order
of a set of texts is the same in every job, and equal inputs can give equal bytes. An interpreter that was moved or brought by
an environment module may not start without knowing where its libraries and its home are, so it gets both.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
