"""A parameter sweep in plain Python: fit a line with every learning rate and decay, and keep the best.

python sweep.py                 run it here and now, as the plain function that it is
detent run sweep.py             run it on all cores, durably; again: nothing runs twice
detent run sweep.yaml           the same as a contract, with the settings as parameters
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypedDict

import detent


class Trial(TypedDict):
    """The result of one setting."""

    rate: float
    decay: float
    slope: float
    loss: float


@detent.task
def points(count: int) -> list[list[float]]:
    """Points near the line y = 2x + 1, the same ones every time."""
    wobble = [0.05, -0.03, 0.01, -0.06, 0.04]
    return [[x / count, 2 * x / count + 1 + wobble[x % 5]] for x in range(count)]


@detent.task(timeout="1m", retries=1)
def train(data: list[list[float]], rate: float, decay: float) -> Trial:
    """Fit slope and offset by gradient descent."""
    slope = offset = 0.0
    for _ in range(200):
        errors = [slope * x + offset - y for x, y in data]
        slope -= rate * (sum(error * x for error, (x, _) in zip(errors, data, strict=True)) / len(data) + decay * slope)
        offset -= rate * sum(errors) / len(data)
    loss = sum((slope * x + offset - y) ** 2 for x, y in data) / len(data)
    return {"rate": rate, "decay": decay, "slope": round(slope, 4), "loss": round(loss, 6)}


@detent.task
def best(trials: list[Trial]) -> Trial:
    """The trial with the smallest loss; the first one in a tie."""
    return min(trials, key=lambda trial: trial["loss"])


@detent.flow
def sweep(rates: Sequence[float] = (0.01, 0.1, 0.5), decays: Sequence[float] = (0.0, 0.01)) -> Trial:
    """Fit a line with every learning rate and decay, and keep the best."""
    data = points(40)
    return best([train(data, rate, decay) for rate in rates for decay in decays])


# What sweep.yaml needs besides the tasks: there one step returns the list of settings and another step is mapped over it.


def grid(rates: list[float], decays: list[float]) -> list[dict[str, float]]:
    """Every combination, in order."""
    return [{"rate": rate, "decay": decay} for rate in rates for decay in decays]


def trial(setting: dict[str, float], data: list[list[float]]) -> Trial:
    """One combination."""
    return train(data, setting["rate"], setting["decay"])


if __name__ == "__main__":
    print(json.dumps(sweep(), indent=2))
