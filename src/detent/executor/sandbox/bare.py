"""How a child of ours is started as a thin interpreter: by path, with nothing of the surroundings.

``-P -s -S`` and an environment of two words are what ``-I -S`` would be, but for the hash seed: with a fixed one the order
of a set of texts is the same in every job, and equal inputs can give equal bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}


def interpreter() -> str:
    """The interpreter itself, not the link to it that a virtual environment holds."""
    return os.path.realpath(sys.executable)


def start(
    script: str, *arguments: str, descriptors: tuple[int, ...] = (), output: bool = False
) -> subprocess.Popen[bytes]:
    """Start one of the scripts beside this file. It is exec'd, never forked from the caller's memory."""
    return subprocess.Popen(  # noqa: S603
        [interpreter(), "-P", "-s", "-S", "-B", "-X", "utf8", str(HERE / script), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if output else subprocess.DEVNULL,
        stderr=None,
        env=ENVIRONMENT,
        cwd="/",
        pass_fds=descriptors,
        start_new_session=True,
    )
