"""Source that is edited while a job waits or runs: the result counts for its own run only."""

from __future__ import annotations

from pathlib import Path

import detent

FLOW = """
name: edited
steps:
  - id: slow
    run: {python: "edited:slow"}
result: {$from: slow}
"""
BEFORE = """
from pathlib import Path

def slow():
    Path(__file__).write_text(Path(__file__).read_text().replace("return 1", "return 2"))
    return 1
"""


def test_a_result_whose_source_changed_while_it_ran_is_not_reused(tmp_path: Path) -> None:
    """X-176: the key says which code was meant; when another one is there at the end, which one ran is unknown."""
    (tmp_path / "edited.py").write_text(BEFORE)
    (tmp_path / "edited.yaml").write_text(FLOW)
    first = detent.run(tmp_path / "edited.yaml", home=tmp_path / "home", workers=1)
    assert first.result() == 1
    (tmp_path / "edited.py").write_text(BEFORE)
    second = detent.run(tmp_path / "edited.yaml", home=tmp_path / "home", workers=1)
    assert [step.state for step in second.steps] == ["succeeded"], "the first result was taken over"


def test_a_result_whose_source_stayed_is_reused(tmp_path: Path) -> None:
    """The other side of it: the check alone spoils nothing."""
    (tmp_path / "edited.py").write_text("def slow():\n    return 1\n")
    (tmp_path / "edited.yaml").write_text(FLOW)
    for state in ("succeeded", "reused"):
        run = detent.run(tmp_path / "edited.yaml", home=tmp_path / "home", workers=1)
        assert [step.state for step in run.steps] == [state]
