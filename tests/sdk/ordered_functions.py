"""Functions that other processes find by name."""

from __future__ import annotations

import os
from typing import Any

import detent


def square(x: int) -> int:
    return x * x


def half(x: int) -> Any:
    return x // 2 if x % 2 == 0 else detent.SKIP


def picky(x: int) -> int:
    if x == 3:
        raise ValueError("three")
    return x


def stuck(x: int) -> int:
    if x == 3:
        os.read(os.pipe()[0], 1)
    return x


def size(file: detent.File) -> int:
    return len(file.read_bytes())


def wrapped(x: int) -> detent.File:
    return detent.File.from_bytes(b"x" * x, name=f"{x}.bin")


@detent.task(retries=2)
def as_task(x: int) -> int:
    return x + 1
