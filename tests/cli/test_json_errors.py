"""Under `-o json` a command leaves exactly one JSON document on standard output, also when it cannot do its work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from detent.cli.app import COMMANDS, cli, run
from detent.cli.shell import wants_json
from detent.contract.params import ParamsInvalid
from detent.errors import CODES, InboxFull, QueueFull
from tests.cli.test_app import failing, raising

NAMES = [name for section in COMMANDS.values() for name in section]
WITHOUT_A_HOME = {
    "run": ["absent.yaml"],
    "map": ["absent:function", "absent*.txt", "--commit", "append:out.txt"],
    "submit": ["absent.json"],
    "result": ["nothing"],
    "artifacts": ["nothing"],
    "cancel": ["nothing"],
    "retry": ["nothing"],
    "validate": ["absent.yaml"],
    "plan": ["absent.yaml"],
    "schema": ["--surplus"],
    "list": [],
    "show": ["nothing"],
    "logs": ["nothing"],
    "explain": ["nothing"],
    "export": ["--output", "absent/a.detent"],
    "verify": ["absent.detent", "--root", "sha256:0"],
    "replay": [],
    "trace": ["--all", "--output", "trace.ndjson"],
    "compare": ["absent.ndjson"],
    "metrics": [],
    "serve": ["--home", "file", "--port", "0"],
    "dashboard": ["--home", "file"],
    "worker": [],
    "schedules": ["list"],
    "pools": [],
    "partitions": [],
    "replicas": [],
    "init": ["--home", "file"],
    "keys": [],
    "doctor": [],
    "copy": [],
    "erase": ["--job", "nothing"],
    "gc": [],
}


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory without a home, and with a file where one could be made."""
    for name in ("DETENT_HOME", "DETENT_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.chdir(tmp_path)


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = run(arguments)
    return code, json.loads(capsys.readouterr().out)


def test_every_command_is_walked() -> None:
    assert sorted(WITHOUT_A_HOME) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_bad_usage_of_every_command_is_one_document(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = document(capsys, name, "--no-such-option", "-o", "json")
    assert code == 2
    assert said["ok"] is False
    assert said["error"]["code"] == "INVALID_PARAMS"
    assert said["error"]["exit_code"] == 2
    assert "no such option" in said["error"]["message"]
    assert f"`detent {name}" in said["error"]["hint"]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_that_cannot_do_its_work_leaves_one_document(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = document(capsys, name, *WITHOUT_A_HOME[name], "-o", "json")
    assert code != 0
    assert said["ok"] is False
    if "error" in said:
        assert CODES[said["error"]["code"]].exit_code == code == said["error"]["exit_code"]
        assert said["error"]["message"]


def test_subcommands_and_words_that_are_no_command_are_walked_too(capsys: pytest.CaptureFixture[str]) -> None:
    groups = [name for name in NAMES if isinstance(cli.get_command(click.Context(cli), name), click.Group)]
    assert groups == ["pools", "schedules", "keys", "replicas"]
    for words in (
        ["keys", "rotate"],
        ["keys", "rotate", "nobody"],
        ["replicas", "remove"],
        ["schedules", "pause"],
        ["pools", "scale", "gpu", "many"],
        ["nosuch"],
        ["--nosuch"],
        [],
    ):
        code, said = document(capsys, *words, "-o", "json")
        assert (code, said["ok"], said["error"]["code"]) == (2, False, "INVALID_PARAMS")


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (QueueFull("no room", hint="wait"), 3, {"code": "QUEUE_FULL", "retryable": True, "hint": "wait"}),
        (InboxFull("full"), 3, {"code": "INBOX_FULL", "retryable": True}),
        (ParamsInvalid("a\nb", details={"errors": ["a", "b"]}), 2, {"details": {"errors": ["a", "b"]}}),
        (PermissionError(13, "Permission denied", "/x"), 4, {"code": "IO_ERROR", "message": "/x: Permission denied"}),
        (ZeroDivisionError("by zero"), 1, {"code": "INVARIANT_VIOLATION"}),
        (KeyboardInterrupt(), 130, {"code": "COMMAND_INTERRUPTED", "exit_code": 130}),
    ],
)
def test_every_kind_of_end_is_a_document(
    error: BaseException,
    code: int,
    expected: dict[str, object],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X-021: one base with a registered code, whether to try again, and details."""
    failing(monkeypatch, raising(error))
    ended, said = document(capsys, "list", "-o", "json")
    assert ended == code
    assert {name: said["error"][name] for name in expected} == expected
    assert set(said["error"]) == {"code", "message", "hint", "retryable", "exit_code", "details"}


def test_several_reasons_are_several_lines_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, raising(ParamsInvalid("a\nb", details={"errors": ["a", "b"]})))
    assert run(["list"]) == 2
    assert capsys.readouterr().err == "error: a (INVALID_PARAMS)\nerror: b (INVALID_PARAMS)\n"


def test_without_json_standard_output_stays_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: no home in ")


def test_a_document_that_cannot_be_written_is_not_written_twice(tmp_path: Path) -> None:
    """The answer itself fails half way: standard output is full, and the exit code says so."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "detent", "list", "-o", "json"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: no home in ")


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("list -o json", True),
        ("list -ojson", True),
        ("run -qo json f", True),
        ("list -o text", False),
        ("list -o json -o text", False),
        ("list -o", False),
        ("map -- -o json", False),
        ("list --output json", False),
        ("", False),
    ],
)
def test_a_command_line_that_cannot_be_parsed_still_says_whether_it_wants_json(words: str, asked: bool) -> None:
    assert wants_json(words.split()) is asked
