"""A process that runs the guides' `detent` and `python` commands, each in a fork of its own.

A fork starts with everything imported, so that a page with ten commands costs what they do and not ten times the start of an
interpreter. What runs in it is the real command. This process has no threads, so forking it is safe.

It reads one JSON document a line and answers each with one: ``{"start": argv, "cwd": ..., "environment": ..., "output": path}``
gives ``{"pid": ...}``; ``{"wait": pid}`` gives ``{"code": ...}`` once that one has ended, as a shell counts.
"""

from __future__ import annotations

import json
import os
import pkgutil
import runpy
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

PRELOADED = (
    "detent.cli",
    "detent.owner",
    "detent.targets",
    "detent.reuse",
    "detent.workers",
    "detent.runs",
    "detent.inspect",
    "detent.sdk",
)


def main() -> None:
    for package in PRELOADED:
        for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
            import_module(module.name)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = {"code": wait(asked["wait"])} if "wait" in asked else {"pid": start(asked)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def start(asked: dict[str, Any]) -> int:
    # Opened here: the asking process may let go of its own end of a terminal as soon as it has the answer.
    output = os.open(asked["output"], os.O_WRONLY | os.O_NOCTTY)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            become(asked["cwd"], asked["environment"], output)
            code = run(asked["start"])
        except SystemExit as exc:
            code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        except BaseException:  # noqa: BLE001 - as the interpreter does at its end
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(output)
    return pid


def become(directory: str, environment: dict[str, str], output: int) -> None:
    """Be the process that a shell would have started: its directory, its streams, nothing of ours."""
    os.setsid()
    os.chdir(directory)
    os.environ.update(environment)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.closerange(3, max(output, nothing) + 1)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1 if os.isatty(1) else -1, encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", closefd=False)


def run(argv: list[str]) -> int:
    if argv[0] == "detent":
        from detent.cli.app import run as detent

        sys.path[0] = ""
        return detent(argv[1:])
    sys.argv = argv[1:]
    sys.path[0] = str(Path(argv[1]).absolute().parent)
    runpy.run_path(argv[1], run_name="__main__")
    return 0


def wait(pid: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
