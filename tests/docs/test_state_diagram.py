"""docs/states.md is drawn from the kernel's table, edge for edge."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.kernel.table import LEGAL
from tools import state_diagram


def test_the_page_on_disk_is_what_the_table_gives() -> None:
    assert state_diagram.main(["--check"]) == 0


def test_a_page_that_differs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "states.md"
    monkeypatch.setattr(state_diagram, "PAGE", page)
    assert state_diagram.main([]) == 0
    assert state_diagram.main(["--check"]) == 0
    page.write_text(
        page.read_text(encoding="utf-8").replace("QUEUED --> RUNNING", "QUEUED --> FAILED"), encoding="utf-8"
    )
    assert state_diagram.main(["--check"]) == 1
    assert "run `make docs`" in capsys.readouterr().err


def test_the_diagram_shows_the_legal_edges_and_no_other() -> None:
    """PIPE-055, PIPE-115"""
    lines = [line.split(" --> ") for line in state_diagram.render().splitlines() if " --> " in line]
    edges = {
        (source.strip(), target.strip()) for source, target in lines if "[*]" not in {source.strip(), target.strip()}
    }
    assert edges == LEGAL
