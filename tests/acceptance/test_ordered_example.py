"""The example of ordered runs, as a reader would run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    copy = tmp_path / "ordered"
    shutil.copytree(ROOT / "examples" / "ordered", copy, ignore=shutil.ignore_patterns(".detent", "out", "__pycache__"))
    (copy / "out").mkdir()
    return copy


def run(example: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_STATE_HOME": str(example.parent / "state")}
    environment.pop("DETENT_HOME", None)
    done = subprocess.run(
        [sys.executable, *command], cwd=example, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_files_are_counted_in_order_and_the_history_verifies(example: Path) -> None:
    """ORD-001."""
    line = ["map", "--files", "corpus/*.txt", "--compute", "words:count", "--commit", "jsonl:out/counts.jsonl"]
    document = json.loads(run(example, "-m", "detent", *line, "-o", "json"))
    assert document["items"]["skipped"] == 1
    counted = [json.loads(text) for text in (example / "out" / "counts.jsonl").read_text().splitlines()]
    assert [(one["text"], one["words"], one["first"]) for one in counted] == [("a.txt", 9, "the"), ("b.txt", 3, "rain")]
    assert json.loads(run(example, "-m", "detent", "verify", "-o", "json"))["ok"] is True


def test_as_a_step_it_is_followed_by_the_sum_and_done_once(example: Path) -> None:
    """ORD-001."""
    (example / "out").rmdir()
    first = json.loads(run(example, "-m", "detent", "run", "words.yaml", "-o", "json"))
    assert first["result"] == {"texts": 1, "words": 9}
    assert len((example / "out" / "counts.jsonl").read_text().splitlines()) == 2
    again = json.loads(run(example, "-m", "detent", "run", "words.yaml", "-o", "json"))
    assert {step["state"] for step in again["step_list"]} == {"reused"}
    other = json.loads(run(example, "-m", "detent", "run", "words.yaml", "-p", "shortest=1", "-o", "json"))
    assert [step["state"] for step in other["step_list"]] == ["reused", "succeeded"]
    assert other["result"] == {"texts": 2, "words": 12}
    assert json.loads(run(example, "-m", "detent", "verify", "-o", "json"))["ok"] is True


def test_the_program_prints_its_lines_in_order(example: Path) -> None:
    printed = run(example, "words.py").splitlines()
    assert [line.split()[0] for line in printed[:3]] == ["wind", "harbour", "rain"]
    assert printed[-1].startswith("3 lines, sha256:")
