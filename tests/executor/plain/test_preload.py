"""Modules that most tasks load are loaded while a worker waits for its first; and only those that were asked for."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.executor.plain.rig import SECONDS_MAX, Rig

RARE = "rarely_loaded"


@pytest.mark.parametrize("preload", [(), (RARE,)])
def test_a_worker_that_waits_loads_what_was_asked_for(tmp_path: Path, preload: tuple[str, ...]) -> None:
    mark, paths = tmp_path / "mark", [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    (tmp_path / f"{RARE}.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    rig = Rig(tmp_path / "home", workers=1, preload=preload, environment=environment)
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while preload and not mark.exists():
            assert time.monotonic() < deadline, "it was not loaded"
            rig.look(0.005)
        assert rig.run("loaded", RARE).value == (b"true" if preload else b"false")
    finally:
        rig.pool.close()
