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


def test_an_empty_directory_becomes_a_home_and_a_file_does_not(cli: Cli, empty: Path) -> None:
    (empty / "demo.yaml").write_text("name: demo\nsteps:\n  - {id: one, run: {shell: 'true'}}\n")
    for name, words in (("made", ("init",)), ("run", ("run", "demo.yaml", "-w", "1"))):
        (empty / name).mkdir()
        assert cli.json(*words, "--home", name)["home"] == str(empty / name)
        assert cli("verify", "--home", name).code == 0
    result = cli("init", "--home", "demo.yaml")
    assert result.code == 2
    assert result.err.startswith(f"error: {empty / 'demo.yaml'} is a file, and a home is a directory (HOME_INVALID)")


def test_what_helps_a_home_without_its_ledger_is_no_making_of_a_home(cli: Cli) -> None:
    home = cli.played.home
    home.ledger_file.rename(home.path.parent / "copy.db")
    for words in (("list",), ("init",)):
        err = cli(*words).err
        assert "from a copy" in err
        assert f"move {home.path} away" in err
    (home.path.parent / "copy.db").rename(home.ledger_file)
    assert cli("verify").code == 0


def test_a_place_that_is_not_there_is_named(cli: Cli, tmp_path: Path) -> None:
    result = cli("init", "--home", str(tmp_path / "no" / "where"))
    assert result.code == 2
    assert f"{tmp_path / 'no'} is not a directory" in result.err


def test_an_empty_directory_gets_a_first_project_that_runs_and_is_reused(cli: Cli, empty: Path) -> None:
    (empty / ".git").mkdir()
    (empty / "README.md").write_text("mine\n")
    document = cli.json("init")
    assert (document["files"], document["next"]) == (["pipeline.yaml", "tasks.py"], "detent run pipeline.yaml")
    plan = cli.json("plan", "pipeline.yaml")
    assert {step["foreseen"]["why"] for step in plan["steps"][:1]} == {"never done before"}
    first = cli.json("run", "pipeline.yaml", "-w", "1")
    assert first["result"] == {"words": 17, "longest": ["mechanism", "something", "holds"]}
    assert (first["steps"]["run"], first["steps"]["reused"]) == (3, 0)
    assert (empty / "report.txt").read_text() == "17 words; the longest: mechanism, something, holds\n"
    second = cli.json("run", "pipeline.yaml", "-w", "1")
    assert (second["steps"]["run"], second["steps"]["reused"]) == (0, 3)
    fewer = cli.json("run", "pipeline.yaml", "-w", "1", "-p", "longest=1")
    assert (fewer["steps"]["run"], fewer["steps"]["reused"]) == (1, 2)
    assert cli("verify").code == 0


def test_the_page_says_what_to_type_next(cli: Cli, empty: Path) -> None:
    out = cli("init").out
    assert out.endswith(
        "\nwrote pipeline.yaml and tasks.py: an example project to run and edit\n  detent run pipeline.yaml\n"
    )
    assert (empty / "tasks.py").exists()


def test_a_directory_with_files_and_a_home_elsewhere_get_nothing_but_the_home(cli: Cli, empty: Path) -> None:
    (empty / ".elsewhere").mkdir()
    assert cli.json("init", "--home", str(empty / ".elsewhere" / "home"))["files"] == []
    (empty / "mine.py").write_text("")
    document = cli.json("init")
    assert (document["files"], document["next"]) == ([], None)
    assert sorted(path.name for path in empty.iterdir()) == [".detent", ".elsewhere", "mine.py"]
