"""docs/testing.md: its examples are a project, and pytest runs it as any user's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from detent.testing import CrashPoints, TemporaryHome

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL))

WITHOUT = ("-p", "no:cacheprovider", "-p", "no:schemathesis")
"""What a user's project does not need, and one of which takes seconds to load."""


def test_the_examples_pass_in_a_project_of_their_own(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DETENT"))}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", *WITHOUT, str(tmp_path)],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "5 passed" in ended.stdout


def test_without_asking_pytest_does_not_load_detent(tmp_path: Path) -> None:
    (tmp_path / "test_none.py").write_text("import sys\ndef test_none():\n    assert 'detent' not in sys.modules\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *WITHOUT, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_crash_point_and_every_member_of_a_home_is_in_the_guide() -> None:
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", GUIDE))))
    members = {name for name in vars(TemporaryHome) if not name.startswith("_")} | {"environment", "directory"}
    assert (members - {"close"}) | set(CrashPoints.names) <= words
