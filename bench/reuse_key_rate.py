"""What it costs to know that nothing has to be done: code digests, file digests and keys of a pipeline of 1,000 steps.

Cold is a module of 2,000 lines that this process has never seen; the ceiling beside it is `ast.parse` of the same bytes,
without which code cannot be told from comments. Warm is a second look, as a process that watches takes it. Goal: a re-run of
a finished pipeline of 1,000 steps below 0.5 s in all, of which code may take 50 ms once the module is read.
"""

from __future__ import annotations

import ast
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from detent.jobs.order import Call
from detent.reuse.ingredients import (
    CodeReader,
    FileDigests,
    env_version,
    ingredients,
    inputs_digests,
    key_of_work,
)
from detent.reuse.ingredients import modules as modules_read

STEPS = 10_000 if "--full" in sys.argv else 1_000
FUNCTIONS = 200
ROUNDS = 5
LONG_AGO_S = 10


def written(functions: int) -> str:
    """A module of ten lines a function, each of which calls the one before it and a constant."""
    lines = ["import json", "import math", "", "LIMIT = 3", ""]
    for index in range(functions):
        callee = f"step_{index - 1}" if index % 10 else "math.sqrt"
        lines += [
            f"def step_{index}(rows, scale=LIMIT):",
            f'    """Step {index}."""',
            "    total = 0",
            "    for row in rows:",
            "        if row > scale:",
            "            total += row * scale  # a comment",
            "        else:",
            '            total -= {"a": row, "b": [row, scale]}["a"]',
            f"    return {callee}(total)",
            "",
        ]
    return "\n".join(lines)


def wall_ms(work: Callable[[], object]) -> float:
    """Milliseconds of the fastest of a few rounds."""
    fastest = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        fastest = min(fastest, time.perf_counter() - begun)
    return 1_000 * fastest


def look_cold(base: Path) -> None:
    modules_read._READ.clear()  # noqa: SLF001 - what a new process begins with
    CodeReader(base).digest("pipeline:step_199")


def look_at_all(base: Path, targets: list[str]) -> None:
    reader = CodeReader(base)
    for index in range(STEPS):
        reader.digest(targets[index % len(targets)])


def keys(base: Path) -> None:
    reader = CodeReader(base)
    code = reader.digest("pipeline:step_9")
    version = env_version(code.distributions)
    for index in range(STEPS):
        call = Call(kind="python", target="pipeline:step_9", keywords={"rows": [index, 2, 3]})
        key_of_work("action", b"\0" * 32, ingredients(call, lambda _: b"", code=code), version)


def age(*paths: Path) -> None:
    """Make files old enough to be remembered by how they look."""
    then = time.time() - LONG_AGO_S
    for path in paths:
        os.utime(path, (then, then))


def main() -> None:
    print(f"wall time, fastest of {ROUNDS}; {STEPS:,} steps")
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        source = written(FUNCTIONS)
        (base / "pipeline.py").write_text(source)
        parse = wall_ms(lambda: ast.parse(source))
        cold = wall_ms(lambda: look_cold(base))
        print(f"  ast.parse of {source.count(chr(10)):,} lines {parse:>22,.1f} ms")
        print(f"  first digest of a function there, cold {cold:>10,.1f} ms   {cold / parse:.2f} x")
        _code_and_keys(base)
        _files(base)


def _code_and_keys(base: Path) -> None:
    # Times of change cannot be set back, so the rule for young files is what is set aside here.
    kept, modules_read.RACY_NS = modules_read.RACY_NS, -1  # type: ignore[misc]
    try:
        every = [f"pipeline:step_{index}" for index in range(FUNCTIONS)]
        one = wall_ms(lambda: look_at_all(base, ["pipeline:step_9"]))
        many = wall_ms(lambda: look_at_all(base, every))
        made = wall_ms(lambda: keys(base))
    finally:
        modules_read.RACY_NS = kept  # type: ignore[misc]
    print(f"  all steps, one function {one:>25,.1f} ms")
    print(f"  all steps, {FUNCTIONS} functions {many:>23,.1f} ms   goal 50 ms for 1,000")
    print(f"  ingredients and keys of all steps {made:>15,.1f} ms   {1_000 * made / STEPS:.1f} us each")


def _files(base: Path) -> None:
    data = base / "data"
    data.mkdir()
    for index in range(STEPS):
        (data / f"{index}.bin").write_bytes(index.to_bytes(4) * 256)
    big = base / "big.bin"
    big.write_bytes(os.urandom(1 << 20) * 64)
    later = FileDigests(now_ns=lambda: time.time_ns() + 10 * 10**9)
    cold = wall_ms(lambda: inputs_digests(["data/*.bin"], str(base), FileDigests()))
    inputs_digests(["data/*.bin"], str(base), later)
    warm = wall_ms(lambda: inputs_digests(["data/*.bin"], str(base), later))
    streamed = wall_ms(lambda: FileDigests().digest(big))
    print(f"  {STEPS:,} declared files of 1 KiB, read {cold:>11,.1f} ms, remembered {warm:,.1f} ms")
    print(f"  one file of 64 MiB {streamed:>30,.1f} ms   {64_000 / streamed:,.0f} MiB/s")


if __name__ == "__main__":
    main()
