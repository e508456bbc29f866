from __future__ import annotations

from collections.abc import Iterator

import pytest

from detent.jobs.work import CANCELLED
from tests.executor.plain.rig import Rig, marked


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("home"))
    yield made
    left = made.pool.close()
    assert [result for _, result in left if result.status != CANCELLED] == []
    assert marked(made.live) == []
    assert list(made.live.iterdir()) == []


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    yield shared
    left = len(shared.pool)
    shared.said.clear()
    if left:
        shared.restart()
    assert left == 0, "a task was left"
