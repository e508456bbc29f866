"""Modules that most tasks load are loaded once, before there are workers; and only those that were asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executor.plain.rig import Rig

RARE = "colorsys"


@pytest.mark.parametrize("preload", [(), (RARE,)])
def test_workers_begin_with_what_was_to_be_loaded(tmp_path: Path, preload: tuple[str, ...]) -> None:
    rig = Rig(tmp_path, workers=1, preload=preload)
    try:
        assert rig.run("loaded", RARE).value == (b"true" if preload else b"false")
    finally:
        rig.pool.close()
