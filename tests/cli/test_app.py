"""Finding a command, and turning every end into an exit code and a message."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import click
import pytest

from detent.cli import app
from detent.cli.app import COMMANDS
from detent.errors import CODES, DetentError, InvariantBroken
from tests.cli.conftest import Cli

ALL = [name for section in COMMANDS.values() for name in section]
READING = ("list", "show", "keys", "export", "verify", "replay", "doctor")


def failing(monkeypatch: pytest.MonkeyPatch, fail: Callable[[], None]) -> None:
    """Have `detent list` end in a way of the test's choosing."""

    @click.command("list")
    @click.option("-o", "output_format")
    def command(output_format: str | None) -> None:
        del output_format
        fail()

    monkeypatch.setattr(app.Commands, "get_command", lambda *_: command)


def raising(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_help_names_every_command(cli: Cli) -> None:
    result = cli("--help")
    assert result.code == 0
    assert all(f"  {name} " in result.out for name in ALL)


@pytest.mark.parametrize("name", [*ALL, "keys list", "keys show", "keys rotate"])
def test_the_help_of_every_command_teaches(cli: Cli, name: str) -> None:
    """What it does, at least two examples, the exit codes."""
    result = cli(*name.split(), "--help")
    assert result.code == 0
    what, _, rest = result.out.partition("Examples:")
    examples, _, codes = rest.partition("Exit codes:")
    assert len(what.split()) > 8
    assert examples.count(f"detent {name.split(maxsplit=1)[0]}") >= 2
    assert "130  interrupted" in codes


@pytest.mark.parametrize("name", READING)
def test_every_reading_command_takes_o_json(cli: Cli, name: str) -> None:
    assert "-o [text|json]" in cli(name, "--help").out


def test_the_version_is_the_packages(cli: Cli) -> None:
    import detent

    assert cli("--version").out == f"detent {detent.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lsit",), "there is no command 'lsit'; did you mean 'list'?"),
        (("quux",), "there is no command 'quux'"),
        (("list", "--nope"), "no such option"),
        (("list", "--limit", "-1"), "--limit"),
        (("show",), "missing argument"),
        (("export",), "missing option '--output'"),
        (("list", "-o", "yaml"), "'yaml'"),
        (("keys", "-o", "json", "rotate", "log"), "options of a subcommand come after its name"),
    ],
)
def test_bad_usage_is_said_in_one_line_with_the_way_to_help(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    result = cli(*arguments)
    first, second = result.err.splitlines()
    assert result.code == 2
    assert first.startswith("error: ")
    assert said in first.lower() or said in first
    assert second.startswith("hint:  `detent")
    assert (result.out == "") is ("json" not in arguments)


def test_a_hint_names_the_help_of_the_command_that_was_typed(cli: Cli) -> None:
    """Click does not say which command it was whose option lacks a value."""
    assert cli("run", "a.yaml", "-p").err.endswith("hint:  `detent run --help` shows how it is used\n")


def test_only_a_slip_of_the_finger_is_taken_for_another_command(cli: Cli) -> None:
    assert "did you mean" not in cli("orchestra").err
    assert "did you mean 'verify'?" in cli("verfy").err


def test_nothing_at_all_shows_the_help(cli: Cli) -> None:
    result = cli()
    assert result.code == 2
    assert "Exit codes:" in result.err


@pytest.mark.parametrize("code", sorted(CODES))
def test_an_errors_exit_code_is_the_registrys(cli: Cli, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    failing(monkeypatch, raising(DetentError("it went wrong", code=code, hint="do this")))
    result = cli("list")
    assert result.code == CODES[code].exit_code
    assert result.err == f"error: it went wrong ({code})\nhint:  do this\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InvariantBroken("two and two"), 1, "two and two (INVARIANT_VIOLATION)"),
        (ZeroDivisionError("by zero"), 1, "ZeroDivisionError: by zero (INVARIANT_VIOLATION)"),
        (PermissionError(13, "Permission denied", "/x"), 4, "/x: Permission denied"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (SystemExit(3), 3, ""),
    ],
)
def test_other_ends_have_exit_codes_too(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    failing(monkeypatch, raising(error))
    result = cli("list")
    assert result.code == code
    assert said in result.err


def test_a_bug_of_ours_is_called_one_and_shows_its_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, raising(InvariantBroken("two and two")))
    assert app.run(["list"]) == 1
    quiet = capsys.readouterr().err
    assert "a bug in Detent" in quiet
    assert "Traceback" not in quiet
    monkeypatch.setenv("DETENT_DEBUG", "1")
    assert app.run(["list"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_control_characters_in_a_message_reach_no_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "\x1b[31mred\x07\u202e"
    failing(monkeypatch, raising(DetentError(evil, code="CONFLICT", hint=evil)))
    result = cli("list")
    assert result.code == 1
    assert "\x1b" not in result.err
    assert "\u202e" not in result.err
    assert result.err.count("\\x1b[31mred\\x07\\u202e") == 2


def test_no_home_is_said_with_the_way_to_one(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in ("list", "keys", "verify", "doctor", "replay"):
        result = cli(name, "--home", str(empty))
        assert result.code == 2
        assert f"no home in {empty}" in result.err
        assert "`detent init` creates one" in result.err
    monkeypatch.setenv("DETENT_HOME", str(tmp_path))
    assert f"did you mean {tmp_path / '.detent'}?" in cli("list").err


def test_an_empty_variable_names_no_home(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETENT_HOME", "")
    assert len(cli.json("list")) == 2
    cli.played.home.path.rename(tmp_path / "away")
    assert f"no home in {tmp_path} or above it (HOME_INVALID)" in cli("list").err


def test_a_home_is_found_upwards_by_variable_and_by_option(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert len(cli.json("list")) == 2
    other = tmp_path / "other"
    assert cli("init", "--home", str(other)).code == 0
    monkeypatch.setenv("DETENT_HOME", str(other))
    assert cli.json("list") == []
    assert len(cli.json("list", "--home", str(tmp_path / ".detent"))) == 2


def outside(*arguments: str, home: Path, output: IO[str] | None = None) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DETENT_HOME": str(home)}
    return subprocess.Popen(
        [sys.executable, "-m", "detent", *arguments],
        stdout=subprocess.PIPE if output is None else output,
        stderr=subprocess.PIPE,
        env=environment,
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("command", "code"), [("list", 0), ("trace --all", 0), ("verify", 1)])
def test_a_reader_that_closes_early_changes_nothing_about_the_verdict(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str, code: int, unbuffered: str
) -> None:
    """`detent list | head -1` does not fail, and `detent verify | head -1` must not look green."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    cli.played.edit(lambda database: database.execute("UPDATE runs SET name = 'another'"))
    process = outside(*command.split(), home=cli.played.home.path)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), errors) == (code, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("list",), ("trace", "--all"), ("verify", "-o", "json")])
def test_output_that_finds_no_room_is_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with Path("/dev/full").open("w") as full:
        process = outside(*words, home=cli.played.home.path, output=full)
        _, err = process.communicate()
    assert process.returncode == 4
    assert err.splitlines()[0] == b"error: standard output cannot be written: No space left on device"
    assert err.splitlines()[1].startswith(b"hint:  free some space there")
    assert len(err.splitlines()) == 2, "nor does the interpreter's end say anything"


def test_a_working_directory_that_is_gone_is_named(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result = cli("list")
    assert result.code == 4
    assert result.err == "error: the working directory no longer exists\nhint:  change to one that does\n"
    monkeypatch.chdir(tmp_path)
    failing(monkeypatch, raising(FileNotFoundError(2, "No such file or directory")))
    assert cli("list").err.startswith("error: No such file or directory\n")


def test_the_module_and_the_exit_code_work_from_outside(cli: Cli) -> None:
    process = outside("list", "-o", "json", home=cli.played.home.path)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b'"run_id": "run-2"' in out


def test_a_terminal_without_utf_8_is_no_reason_to_fail(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    process = outside("show", "done", home=cli.played.home.path)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert rb"\u2026" in out


def test_help_loads_neither_the_engine_nor_the_database(cli: Cli) -> None:
    script = (
        "import sys\nfrom detent.cli.app import run\n"
        "for words in (['--help'], *([name, '--help'] for name in sys.argv[1:])):\n    run(words)\n"
        "heavy = {'apsw', 'nacl', 'rich', 'libipld', 'asyncio', 'detent.owner', 'detent.kernel', 'detent.ledger'}\n"
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script, *ALL], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_command_ends_as_a_program_does_without_taking_its_modules_apart() -> None:
    """Threads are waited for, exit functions called and output written; what the interpreter does then costs 10 ms."""
    script = (
        "import atexit, sys, threading, time\nfrom detent.cli import main\n"
        "class Kept:\n    def __del__(self): print('taken apart')\n"
        "kept = Kept()\n"
        "atexit.register(sys.stdout.write, 'exit function')\n"
        "begun = threading.Event()\n"
        "def work():\n    begun.wait()\n    threading.Event().wait(0.05)\n    print('thread')\n"
        "threading.Thread(target=work).start()\n"
        "begun.set()\nmain(['no-such-command'])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "thread\nexit function"), done.stderr
    assert "no-such-command" in done.stderr
