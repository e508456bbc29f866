"""Runs one measurement in a process of its own, so that no measurement inherits threads, memory or modules of another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SECONDS_MAX = 120

_SCRIPT = (
    "import importlib, json, sys\n"
    "from pathlib import Path\n"
    "module, name, where = sys.argv[1:]\n"
    "print(json.dumps(getattr(importlib.import_module(module), name)(Path(where))))\n"
)


class MeasurementFailed(Exception):
    """A command that failed, or did not end in time: the reason, and what it was."""


def rounds_within(most: int, seconds: float = 60.0) -> Iterator[int]:
    """The numbers of up to ``most`` rounds; none but the first begins when the time is over, and that is said."""
    begun = time.monotonic()
    for number in range(most):
        if number and time.monotonic() - begun > seconds:
            print(f"   (the machine is slow: {number} of {most} rounds)", flush=True)
            return
        yield number


def environment(bytecode: Path, *paths: Path) -> dict[str, str]:
    """As for a user: the package is found, and its bytecode is compiled once and kept in ``bytecode``."""
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT / "src", ROOT)))}
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**found, "PYTHONPYCACHEPREFIX": str(bytecode), "NO_COLOR": "1"}


def completed(command: Sequence[str], where: Path, environment: dict[str, str]) -> str:
    """What a command prints. Raises `MeasurementFailed`, which ends the benchmark unless it is a peer's."""
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=where, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
        )
    except subprocess.TimeoutExpired as exc:
        raise MeasurementFailed(f"did not end within {SECONDS_MAX} s", " ".join(command)) from exc
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise MeasurementFailed(said.rpartition("\n")[2], f"{' '.join(command)} failed:\n{said}")
    return done.stdout


def apart(measured: str, where: Path, bytecode: Path) -> Any:
    """The JSON value that ``module:function`` returns, called with a directory, in a process of its own."""
    module, _, name = measured.partition(":")
    said = completed([sys.executable, "-c", _SCRIPT, module, name, str(where)], ROOT, environment(bytecode))
    return json.loads(said.splitlines()[-1])
