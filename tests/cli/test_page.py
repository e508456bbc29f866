"""One page, three readers: a terminal, a terminal that wants no colours, a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from detent.cli.page import Page
from detent.pages.sheet import Cell, state_cell
from detent.pages.text import GOOD
from tests.cli.conftest import Cli


def on_terminal(
    *arguments: str, home: Path, columns: int = 80, variables: Mapping[str, str] = MappingProxyType({})
) -> str:
    """What a command writes to a terminal of that width."""
    main, terminal = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DETENT_HOME": str(home)}
    environment |= {"COLUMNS": str(columns), "TERM": "xterm-256color", **variables}
    process = subprocess.Popen(
        [sys.executable, "-m", "detent", *arguments], stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    pieces = []
    while True:
        try:
            piece = os.read(main, 65_536)
        except OSError:  # Linux reports the other end's closing as an error.
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(main)
    process.wait()
    return b"".join(pieces).decode()


def test_a_terminal_gets_colours_and_tables_that_fit(cli: Cli) -> None:
    for width in (80, 120):
        shown = on_terminal("list", "--jobs", home=cli.played.home.path, columns=width)
        assert "\x1b[32m" in shown
        plain = "".join(part.partition("m")[2] if index else part for index, part in enumerate(shown.split("\x1b[")))
        assert max(len(line) for line in plain.splitlines()) <= width


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_color_and_dumb_terminals_get_plain_text(cli: Cli, name: str, value: str) -> None:
    shown = on_terminal("show", "done", home=cli.played.home.path, variables={name: value})
    assert "succeeded" in shown
    assert "\x1b" not in shown


def test_a_pipe_gets_plain_text_and_whole_lines(cli: Cli) -> None:
    result = cli("doctor")
    assert "\x1b" not in result.out
    # A hint hangs below the line of its check.
    assert all(line.startswith(("ok ", "note ", "wrong ", "      ")) for line in result.out.splitlines())


def test_long_text_hangs_below_its_first_word_on_a_terminal(cli: Cli) -> None:
    shown = on_terminal("doctor", home=cli.played.home.path, columns=60, variables={"NO_COLOR": "1"})
    lines = shown.splitlines()
    place = next(index for index, line in enumerate(lines) if " database " in line)
    assert lines[place + 1].startswith(" " * 23)
    assert lines[place + 1][23] != " "


def test_styles_are_drawn_only_where_they_are_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    for colour, expected in ((True, "a \x1b[32mok\x1b[0m\n"), (False, "a ok\n")):
        Page(colour=colour).line("a ", Cell("ok", GOOD))
        assert capsys.readouterr().out == expected


def test_what_users_wrote_is_made_safe_wherever_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;title\x07"
    for colour in (True, False):
        page = Page(colour=colour)
        page.line(evil, Cell(evil))
        page.fields([("name", evil)])
        page.table(("A", "B"), [[evil, Cell(evil, GOOD)]])
        shown = capsys.readouterr().out
        assert "\x1b]" not in shown
        assert "\x07" not in shown
        assert "\\x1b]0;title\\x07" in shown


def test_states_have_the_colours_people_expect() -> None:
    assert [state_cell(state).style for state in ("succeeded", "failed", "queued")] == ["good", "bad", ""]
