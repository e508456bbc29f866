"""The examples of programs that use a server, against one with a worker: each ends like its job."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.serve.served import serving
from tests.serve.worked import project

pytestmark = pytest.mark.door("examples: examples/http/submit_and_wait.py, ci.sh and application.py")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "http"
CURL = (["sh", str(EXAMPLES / "ci.sh")],) if shutil.which("curl") else ()
"""With curl where there is one; the same words are sent by the other program everywhere."""
PROGRAMS = ([sys.executable, str(EXAMPLES / "submit_and_wait.py")], *CURL)


def test_programs_end_like_their_jobs(tmp_path: Path) -> None:
    worked = project(tmp_path)
    shutil.copy(EXAMPLES / "reports.py", worked.directory)
    with serving(worked.played, "--workers", "1", "--project", str(worked.directory)) as served:
        environment = {**worked.environment, "DETENT_URL": served.told["url"], "DETENT_KEY": served.token}

        def run(
            program: list[str], document: dict[str, Any], *key: str, **changed: str
        ) -> subprocess.CompletedProcess[str]:
            (tmp_path / "job.json").write_text(json.dumps(document))
            line = [*program, str(tmp_path / "job.json"), *key]
            env = {**environment, **changed}
            return subprocess.run(line, env=env, capture_output=True, text=True, timeout=240, check=False)

        build = {"task": {"target": "reports:build", "arguments": ["2026-11"]}}
        jobs = set()
        for program in PROGRAMS:
            done = run(program, build, "build-7")
            assert done.returncode == 0, done.stderr
            jobs |= set(re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", done.stdout))
            assert "succeeded" in done.stdout
            failed = run(program, {"task": {"target": "reports:build", "arguments": ["never"], "retries": 0}})
            assert (failed.returncode, "failed" in failed.stdout) == (1, True), failed
            refused = run(program, {"task": {"target": "none"}})
            assert (refused.returncode, "VALIDATION_ERROR" in refused.stderr) == (3, True), refused
            assert run(program, {}, DETENT_URL="http://127.0.0.1:1").returncode == 4
        assert len(jobs) == 1, "the same key is the same job, whichever program asks"

        line = [sys.executable, str(EXAMPLES / "application.py"), "2026-02", "2026-11", "never"]
        known = []
        for _ in range(2):
            ended = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=240, check=False)
            assert (ended.returncode, ended.stdout) == (1, "2026-02: 28 days\n2026-11: 30 days\n"), ended
            assert ended.stderr.startswith("never: ValueError: ")
            known.append(served.json("/v1/counts")["jobs"]["succeeded"])
        assert known[0] == known[1], "what was built is not built again"
