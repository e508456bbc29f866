"""Every command either works with `--connect` and ``DETENT_URL`` or refuses them with a line that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from detent.cli.app import cli, run

NOWHERE = "http://127.0.0.1:1"


def commands() -> Iterator[tuple[str, ...]]:
    """The words of every command, with those of its subcommands."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, *below) for below in _below(command))


def _below(group: click.Group) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, *rest) for rest in _below(command))


def takes_connect(words: tuple[str, ...]) -> bool:
    """Whether a command's help names the option."""
    command: click.Command | None = cli
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    return any("--connect" in one.opts and not getattr(one, "hidden", False) for one in command.params)


@pytest.fixture(autouse=True)
def _nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DETENT_HOME", "DETENT_URL", "DETENT_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("words", [one for one in commands() if not takes_connect(one)], ids=" ".join)
def test_a_command_that_cannot_connect_says_what_to_do(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--connect", NOWHERE]) == 2
    said = capsys.readouterr().err
    assert f"`detent {words[0]}` works on this machine alone: " in said


def test_the_commands_that_users_share_a_server_with_can_connect() -> None:
    able = {words[0] for words in commands() if takes_connect(words)}
    assert able >= {
        *("run", "submit", "cancel", "retry", "list", "show", "result", "artifacts", "logs", "explain", "worker"),
        *("export", "verify", "replay"),
    }


LOOKING = [
    *("trace --all", "metrics", "doctor", "gc", "keys", "replicas"),
    *("copy", "erase a-job", "map --files *.txt --compute a:b --commit jsonl:x"),
]


@pytest.mark.parametrize("line", LOOKING)
def test_a_server_in_the_environment_is_not_ignored(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that looked at a home of this machine would answer about another one than its user means."""
    assert run(["init"]) == 0
    capsys.readouterr()
    monkeypatch.setenv("DETENT_URL", NOWHERE)
    words = line.split()
    assert run(words) == 2
    said = capsys.readouterr().err
    assert f"`detent {words[0]}` works on this machine alone, and DETENT_URL names a server" in said
    assert "--home DIR" in said
    monkeypatch.setenv("DETENT_HOME", str(tmp_path / ".detent"))
    run(words)
    assert "DETENT_URL" not in capsys.readouterr().err


def test_files_are_checked_whatever_server_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("name: a\nsteps:\n  - {id: hi, run: {shell: echo hi}}\n")
    monkeypatch.setenv("DETENT_URL", NOWHERE)
    assert [run(["validate", "a.yaml"]), run(["plan", "a.yaml"]), run(["schema"]), run(["init"])] == [0, 0, 0, 0]
    assert "DETENT_URL" not in capsys.readouterr().err
