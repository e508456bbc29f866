"""docs/reference/ is what the code gives, and leaves nothing out."""

from __future__ import annotations

from pathlib import Path

import pytest

import detent
from detent.cli.app import COMMANDS
from tools import reference


def test_the_pages_on_disk_are_what_the_code_gives(capsys: pytest.CaptureFixture[str]) -> None:
    status = reference.main(["--check"])
    assert (status, capsys.readouterr().err) == (0, "")


def test_a_page_that_differs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "PAGES", tmp_path / "reference")
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
    page = tmp_path / "reference" / "cli.md"
    page.write_text(page.read_text(encoding="utf-8").replace("--force", "--gently"), encoding="utf-8")
    assert reference.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/reference/cli.md is not what the code gives: run `make docs`\n"


def test_every_command_and_every_name_has_a_heading() -> None:
    commands, python = reference.command_page().splitlines(), reference.python_page().splitlines()
    assert [name for names in COMMANDS.values() for name in names if f"### detent {name}" not in commands] == []
    headings = {line.replace("\\", "") for line in python if line.startswith("#")}
    assert [name for name in detent.__all__ if f"### {name}" not in headings] == []


def test_nothing_of_how_docstrings_are_written_shows_on_the_page() -> None:
    page = reference.python_page()
    assert "``" not in page.replace("```", "")
    assert "X-1" not in page
    assert "<factory>" not in page


def test_a_constant_is_described_by_its_own_text_not_by_that_of_a_built_in_type() -> None:
    page = reference.python_page()
    assert "### \\_\\_version\\_\\_\n\nThe version of the installed package, as text.\n\n## " in page
    assert "str(object" not in page
