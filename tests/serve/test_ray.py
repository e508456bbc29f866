"""Pools on a real Ray. Ray binds the machine's own address and looks outwards even when told not to, so it runs inside a network and
process namespace with the loopback alone, and ends with that namespace: nothing of it is left, and no other Ray of the machine is touched.

The tests themselves are in `in_namespace/ray_pools.py`; they are run once, and what came of each is read here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.serve.namespaces import LOOPBACK, assert_all_passed, inside, outcomes_in

HERE = Path(__file__).resolve().parent
INNER = HERE / "in_namespace" / "ray_pools.py"
ROOT = HERE.parent.parent
SECONDS = 540
QUIET = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Keeps Ray from warning of what later versions do."""


def run_inside(report: Path) -> dict[str, str]:
    """What came of each test in the namespace: nothing, or why it failed."""
    words = ["-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "filterwarnings=default"]
    hidden = ("PYTEST_", "RAY_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    # Ray makes sockets in its directory, whose paths have to be short, and a file that says where the newest Ray of the machine is.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as place:
        # It starts workers through a shell, which takes a path with a space for two words.
        linked = Path(place) / "env"
        linked.symlink_to(sys.prefix)
        python = str(linked / "bin" / "python")
        ran = subprocess.run(
            inside([python, "-c", LOOPBACK, *words, f"--junitxml={report}", str(INNER)], "--net"),
            env={**environment, "RAY_TMPDIR": place, "RAY_USAGE_STATS_ENABLED": "0", **QUIET},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert report.exists(), ran.stdout[-4_000:] + ran.stderr[-4_000:]
    return outcomes_in(report)


@pytest.mark.door("[pools.NAME] provision = ray", "detent pools")
def test_pools_on_a_real_ray(tmp_path: Path) -> None:
    """One test for all of them: several processes of the suite would each start a Ray."""
    assert_all_passed(INNER, run_inside(tmp_path / "report.xml"))
