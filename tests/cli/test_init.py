"""`detent init`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "empty"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def test_a_home_is_made_here_for_its_owner_alone(cli: Cli, empty: Path) -> None:
    """X-178"""
    document = cli.json("init")
    home = empty / ".detent"
    assert document["home"] == str(home)
    assert document["root"].startswith("sha256:")
    assert (home / ".gitignore").read_text() == "*\n"
    assert home.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (home / "keys").iterdir()} == {0o600}
    assert cli("verify").code == 0


def test_the_page_says_what_to_do_with_the_root(cli: Cli, empty: Path) -> None:
    result = cli("init", "--home", str(empty / "elsewhere"))
    assert result.code == 0
    assert f"made {empty / 'elsewhere'}" in result.out
    assert "`detent verify FILE --root ROOT`" in result.out


def test_a_home_that_is_there_stays_as_it_is(cli: Cli) -> None:
    before = (cli.played.home.path / "config.toml").read_bytes()
    result = cli("init")
    assert result.code == 2
    assert "exists already" in result.err
    assert (cli.played.home.path / "config.toml").read_bytes() == before


def test_a_place_that_is_not_there_is_named(cli: Cli, tmp_path: Path) -> None:
    result = cli("init", "--home", str(tmp_path / "no" / "where"))
    assert result.code == 2
    assert f"{tmp_path / 'no'} is not a directory" in result.err
