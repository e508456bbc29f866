"""The example that CI uses, against a server with a worker: it ends like its job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.serve.served import serving
from tests.serve.worked import project

pytestmark = pytest.mark.door("examples: examples/http/submit_and_wait.py")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "http" / "submit_and_wait.py"


def test_a_step_of_ci_ends_like_its_job(tmp_path: Path) -> None:
    worked = project(tmp_path)
    with serving(worked.played, "--workers", "1", "--project", str(worked.directory)) as served:
        environment = {**worked.environment, "DETENT_URL": served.told["url"], "DETENT_KEY": served.token}

        def run(document: dict[str, Any], *key: str, **changed: str) -> subprocess.CompletedProcess[str]:
            (tmp_path / "job.json").write_text(json.dumps(document))
            line = [sys.executable, str(EXAMPLE), str(tmp_path / "job.json"), *key]
            env = {**environment, **changed}
            return subprocess.run(line, env=env, capture_output=True, text=True, timeout=120, check=False)

        done = run({"task": {"target": "tasks:double", "arguments": [21]}}, "build-7")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["status"], told["result"]) == ("succeeded", 42)
        again = run({"task": {"target": "tasks:double", "arguments": [21]}}, "build-7")
        assert json.loads(again.stdout)["job_id"] == told["job_id"]
        assert run({"task": {"target": "tasks:broken", "retries": 0}}).returncode == 1
        refused = run({"task": {"target": "none"}})
        assert (refused.returncode, "VALIDATION_ERROR" in refused.stderr) == (3, True)
        assert run({}, DETENT_URL="http://127.0.0.1:1").returncode == 4
