"""The pipelines that are interrupted: what they run, and what must come out of it."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Any, NamedTuple


class Size(NamedTuple):
    """How many there are of each kind of step."""

    squares: int
    links: int
    words: int
    cells: int
    files: int

    @property
    def jobs(self) -> int:
        return 1 + sum(self) + 2


HUNDRED = Size(50, 22, 15, 6, 4)
QUARTER = Size(10, 5, 4, 2, 1)
"""A quarter of it: for kills that are aimed, where more of the same shows no more."""

STEPS = '''
"""Small pieces of work. Each says in a file of its own that it was begun, with the token that all its attempts share."""
import os
import time

import detent


def note():
    context = detent.context()
    line = f"{context.idempotency_token} {context.attempt} {context.step}\\n".encode()
    handle = os.open(os.environ["FAULT_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, line)
    os.close(handle)
    until = time.perf_counter() + float(os.environ.get("FAULT_TASK_SECONDS", "0"))
    while time.perf_counter() < until:
        pass


def hold(path):
    note()
    while not os.path.exists(path):
        time.sleep(0.002)
    return "held"


def numbers(count):
    note()
    return list(range(count))


def square(number):
    note()
    return number * number


def link(before):
    note()
    return before + 1


def total(squares, chain, words, cells):
    note()
    return {"squares": sum(squares), "chain": chain, "words": words, "cells": sum(cells)}
'''

HOLD = """
name: hold
steps:
- id: hold
  run: {python: 'steps:hold', with: {path: ../go}}
  cache: false
"""
"""One step that does not end until it is released."""


class Pipeline(NamedTuple):
    """A contract, and what a run of it gives."""

    contract: str
    jobs: int
    result: Any
    never_reused: int
    """Commands that say nothing about what they read are run every time."""


def hundred(name: str = "hundred", *, first: int = 0, size: Size = HUNDRED) -> Pipeline:
    """A hundred small jobs: a fan-out, a chain, shell commands, sandboxed cells, and one step that needs them all."""
    chain = "\n".join(
        f"- id: link{number:02}\n  run: {{python: 'steps:link', with: {{before: {_before(number, first)}}}}}"
        for number in range(size.links)
    )
    files = "\n".join(
        f"- id: file{number}\n"
        f"  run: {{shell: 'printf %s {number} > out{number}.txt; echo file{number} 1 file{number} >> \"$FAULT_EFFECTS\"'}}\n"
        f"  outputs: {{out: out{number}.txt}}"
        for number in range(size.files)
    )
    needs = ", ".join(f"file{number}" for number in range(size.files))
    words = ", ".join(f"w{number}" for number in range(size.words))
    cells = ", ".join(str(number) for number in range(size.cells))
    head = dedent(f"""\
        name: {name}
        steps:
        - id: numbers
          run: {{python: 'steps:numbers', with: {{count: {size.squares}}}}}
        - id: squares
          map: {{number: {{$from: numbers}}}}
          run: {{python: 'steps:square'}}
        - id: words
          map: {{WORD: [{words}]}}
          run: {{shell: 'echo "word-$WORD 1 words" >> "$FAULT_EFFECTS"; printf %s "$WORD"'}}
          cache: false
        - id: cells
          map: {{number: [{cells}]}}
          run:
            code: |
              def main(number):
                  return number + {first}
        """)
    tail = dedent(f"""\
        - id: total
          needs: [{needs}]
          run:
            python: 'steps:total'
            with:
              squares: {{$from: squares}}
              chain: {{$from: link{size.links - 1:02}}}
              words: {{$from: words}}
              cells: {{$from: cells}}
        - id: seal
          run:
            code: |
              def main(value):
                  return dict(value, sealed=True)
            with: {{value: {{$from: total}}}}
        result: {{$from: seal}}
        """)
    # The steps stand in the order of the file, so the chain comes first: it is the longest way.
    contract = head + indent(chain, "") + "\n" + files + "\n" + tail
    result = {
        "squares": sum(number * number for number in range(size.squares)),
        "chain": first + size.links,
        "words": [{"exit": 0, "stdout": f"w{number}", "outputs": {}} for number in range(size.words)],
        "cells": sum(range(size.cells)) + size.cells * first,
        "sealed": True,
    }
    return Pipeline(contract, size.jobs, result, size.words + size.files)


def _before(number: int, first: int) -> str:
    return str(first) if number == 0 else f"{{$from: link{number - 1:02}}}"
