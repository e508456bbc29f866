"""Orders name functions of Detent's own by texts that are recorded; the functions are found wherever they are today."""

from __future__ import annotations

from importlib import import_module

import pytest

from detent.executor.own_targets import COMPUTE_CHUNK, HELD_BY, STATED
from detent.executor.plain.loading import Loader


def test_recorded_names_never_change() -> None:
    assert COMPUTE_CHUNK == "detent.engine.ordered_runtime.chunk:compute_chunk"
    assert STATED == "detent.engine.ordered_runtime.notes:stated"


@pytest.mark.parametrize("target", HELD_BY)
def test_a_worker_finds_the_function_that_a_recorded_order_names(target: str) -> None:
    name = target.rpartition(":")[2]
    assert Loader().load(None, target).function is getattr(import_module(HELD_BY[target]), name)
