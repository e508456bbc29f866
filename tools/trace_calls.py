"""Write src/detent/executor/sandbox/traced_calls.py: the system calls that each runner's own tests make inside the jail.

    python tools/trace_calls.py [--add] [RUNNER ...]

Each runner's tests are run under strace (needs root, strace 5.9 or newer, and the development environment). A process counts from the
moment it installs the guest's filter, and so do all that it starts. A call is taken down whether it was let through or not, so
that a filter that refuses too much does not hide what it refuses. ``--add`` keeps what the file says already, for a trace under
another Python or kernel.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TARGET: Final = ROOT / "src/detent/executor/sandbox/traced_calls.py"
TESTS: Final = {
    "code": ("tests/executor/test_honest_guests.py", "tests/executor/runners/test_execute.py"),
    "render": ("tests/executor/runners/test_render.py",),
    "export": ("tests/executor/runners/test_export.py",),
    "thumbnail": ("tests/executor/runners/test_thumbnail.py",),
}
"""The tests that run each runner's real work."""

HEAD: Final = '''"""The system calls that each runner's tests make inside the jail. Written by tools/trace_calls.py; do not edit by hand.

`filter_rules` says what is allowed beyond these, and why.
"""

from __future__ import annotations

'''
_LINE = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(?:\(| resumed)(.*)$")
_CHILD = re.compile(r"= (\d+)(?: /\* (\d+) in strace's PID NS \*/)?$")
_BIRTHS = frozenset(("clone", "clone3", "fork", "vfork"))
_REAL_FILTER = re.compile(r"len=(\d+)")


def calls_of(lines: Iterable[str]) -> set[str]:
    """The calls that guests made, from what strace wrote."""
    guests: set[str] = set()
    found: set[str] = set()
    orphans: dict[str, set[str]] = {}
    for line in lines:
        matched = _LINE.match(line)
        if matched is None:
            continue
        pid, name, rest = matched.groups()
        if name == "seccomp" and (size := _REAL_FILTER.search(rest)) and int(size[1]) > 1:
            guests.add(pid)  # A filter of one instruction is a trial of the machine.
        if name == "seccomp" or name.startswith("syscall_"):  # Ours, and numbers that no kernel has.
            continue
        if pid not in guests:
            # A child may be seen before its parent's call has returned.
            orphans.setdefault(pid, set()).add(name)
            continue
        found.add(name)
        if name in _BIRTHS and (child := _CHILD.search(rest)):
            number = child[2] or child[1]
            guests.add(number)
            found |= orphans.pop(number, set())
    return found


def trace(runner: str) -> set[str]:
    """Run the tests of one runner under strace."""
    with tempfile.TemporaryDirectory(prefix="detent-trace-") as directory:
        log = Path(directory) / "log"
        command = ["strace", "-f", "-qq", "-s", "0", "--decode-pids=pidns", "-e", "signal=none", "-o", str(log)]
        tests = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "-o",
            "time_limit_seconds=1800",
        ]
        done = subprocess.run([*command, *tests, *TESTS[runner]], cwd=ROOT, check=False)  # noqa: S603
        if done.returncode != 0:
            raise SystemExit(f"the tests of {runner} failed under strace; what they did is not taken down")
        with log.open(encoding="utf-8", errors="replace") as lines:
            return calls_of(lines)


def written(traced: dict[str, set[str]]) -> str:
    """The module's text."""
    parts = [HEAD, "TRACED: dict[str, frozenset[str]] = {\n"]
    for runner in TESTS:
        parts.append(f'    "{runner}": frozenset(\n')
        line = "       "
        for name in sorted(traced.get(runner, ())):
            if len(line) + len(name) > 100:
                parts.append(f'        "{line.strip()} "\n')
                line = "       "
            line += f" {name}"
        parts.append(f'        "{line.strip()}".split()\n    ),\n')
    return "".join([*parts, "}\n"])


def main() -> None:
    """Trace, and write the file."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("runners", nargs="*", choices=[*TESTS, []])
    arguments.add_argument("--add", action="store_true", help="keep what the file says already")
    asked = arguments.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("strace cannot look into a jail without being root")
    from detent.executor.sandbox.traced_calls import TRACED  # noqa: PLC0415 - the file that this writes

    known = {runner: set(calls) for runner, calls in TRACED.items()}
    for runner in asked.runners or TESTS:
        known[runner] = trace(runner) | (known.get(runner, set()) if asked.add else set())
    TARGET.write_text(written(known), encoding="utf-8")


if __name__ == "__main__":
    main()
