"""The tasks that bench/run_rate.py runs: small enough that only the orchestration is measured."""

from __future__ import annotations

import detent


@detent.task(cache=False)
def nothing(x: int) -> int:
    """One job."""
    return x


@detent.task(cache=False)
def step(x: int) -> int:
    """One link of a chain."""
    return x + 1


@detent.task(cache=False)
def total(xs: list[int]) -> int:
    """The end of a fan-out."""
    return sum(xs)


@detent.task
def made(x: int) -> int:
    """A step that is reused when nothing has changed."""
    return x * 2


@detent.flow
def chains(count: int, length: int) -> list[int]:
    """``count`` chains of ``length`` steps, side by side."""
    ends = []
    for start in range(count):
        value = start
        for _ in range(length):
            value = step(value)
        ends.append(value)
    return ends


@detent.flow
def fan(count: int) -> int:
    """``count`` steps that need nothing, and one that needs them all."""
    return total([nothing(number) for number in range(count)])


@detent.flow
def pipeline(count: int, changed: int) -> list[int]:
    """``count`` steps, the first of which depends on a parameter."""
    return [made(changed), *(made(1_000_000 + number) for number in range(1, count))]
