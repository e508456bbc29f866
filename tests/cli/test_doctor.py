"""`detent doctor`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from detent.executor.sandbox import Capabilities, Profile, probe, profile_of
from detent.executor.sandbox.capabilities import WORDS
from detent.inspect.doctor import bytecode_of, interpreter_of, sandbox_view, space_of
from detent.owner.state_directory import KeptHeads, state_directory
from tests.cli.conftest import Cli, Result


def statuses(result: Result) -> dict[str, str]:
    return {check["name"]: check["status"] for check in result.document["checks"]}


def text_of(result: Result, name: str) -> str:
    return next(str(check["text"]) for check in result.document["checks"] if check["name"] == name)


def test_a_healthy_home_is_called_healthy(cli: Cli) -> None:
    result = cli("doctor", "-o", "json")
    assert result.code == 0
    # What the machine lacks is not a fault of the home.
    machine = ("sandbox", "interpreter", "bytecode")
    assert {status for name, status in statuses(result).items() if not name.startswith(machine)} == {"ok"}
    assert text_of(result, "database").startswith("SQLite 3.")
    assert "journal wal" in text_of(result, "database")
    assert "6 batches" not in text_of(result, "ledger")
    assert "2 in files" in text_of(result, "content")
    assert str(cli.played.state) in text_of(result, "kept tree head")
    assert text_of(result, "owner") == "no process owns the home now"


def test_the_way_the_interpreter_was_built_is_named(cli: Cli) -> None:
    text = text_of(cli("doctor", "--quick", "-o", "json"), "interpreter")
    assert text.startswith("built ")
    assert interpreter_of("'--enable-optimizations' '--with-lto'", "/opt/python").status == "ok"
    assert interpreter_of("'--enable-shared'", "/usr").text == "built by the distribution"
    plain = interpreter_of("'--enable-shared'", "/opt/python")
    assert (plain.status, plain.text) == ("note", "built without PGO")
    assert "10 to 20 % more CPU" in (plain.hint or "")
    assert "--enable-optimizations" in (plain.hint or "")


@pytest.mark.parametrize(("kept", "status"), [("1", "note"), ("", "ok")])
def test_a_start_without_compiled_modules_is_called_slow(cli: Cli, kept: str, status: str) -> None:
    command = [sys.executable, "-m", "detent", "doctor", "--home", str(cli.played.home.path), "--quick", "-o", "json"]
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": kept,
        "PYTHONPYCACHEPREFIX": str(cli.played.home.path.parent),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}["bytecode"]
    assert found["status"] == status
    assert ("PYTHONDONTWRITEBYTECODE" in (found["hint"] or "")) is (status == "note")


def test_an_unwritable_place_for_compiled_modules_is_named(tmp_path: Path) -> None:
    assert bytecode_of(tmp_path).status == "ok"
    assert bytecode_of(Path("/proc/1")).status == "note"


def test_an_owner_at_work_is_named(cli: Cli) -> None:
    """X-172"""
    with cli.played.session():
        text = text_of(cli("doctor", "-o", "json"), "owner")
    assert text == f"process {os.getpid()} owns the home and listens"


def test_what_is_wrong_comes_with_what_to_do(cli: Cli) -> None:
    keys = cli.played.home.path / "keys"
    log = next(keys.glob("log-*.key"))
    log.chmod(0o640)
    cli.played.home.path.chmod(0o755)
    (cli.played.home.path / ".gitignore").unlink()
    result = cli("doctor")
    assert result.code == 1
    assert f"{log} has mode 640" in result.out
    assert f"chmod 600 {log}" in result.out
    assert f"chmod 700 {cli.played.home.path}" in result.out
    assert "the home's .gitignore is missing" in result.out


def test_one_broken_thing_does_not_hide_the_next(cli: Cli) -> None:
    (cli.played.home.path / "config.toml").write_text("[ledger]\norigin = 3\n")
    next((cli.played.home.path / "keys").glob("log-*.key")).unlink()
    found = statuses(cli("doctor", "-o", "json"))
    assert (found["settings"], found["keys"], found["ledger"]) == ("wrong", "wrong", "ok")


def test_a_missing_private_key_is_said(cli: Cli) -> None:
    next((cli.played.home.path / "keys").glob("result-*.key")).unlink()
    result = cli("doctor", "-o", "json")
    assert result.code == 1
    assert "the private result key" in text_of(result, "keys")


def test_a_damaged_database_is_found_unless_it_is_quick(cli: Cli) -> None:
    cli.played.damage_index()
    result = cli("doctor", "-o", "json")
    assert (result.code, statuses(result)["integrity"]) == (1, "wrong")
    quick = cli("doctor", "--quick", "-o", "json")
    assert "integrity" not in statuses(quick)


def test_a_ledger_that_does_not_open_ends_the_examination(cli: Cli) -> None:
    cli.played.home.ledger_file.write_bytes(b"not a database" * 1000)
    result = cli("doctor", "-o", "json")
    assert result.code == 1
    assert statuses(result)["database"] == "wrong"
    assert "keys" not in statuses(result)


def test_damage_is_told_in_one_line_without_what_surrounds_it(cli: Cli) -> None:
    """Two pages that nothing leads to: SQLite tells of both in one row, below a line of stars."""
    connection = apsw.Connection(str(cli.played.home.ledger))
    connection.pragma("wal_checkpoint", "TRUNCATE")
    page_bytes, pages = connection.pragma("page_size"), connection.pragma("page_count")
    connection.close()
    data = bytearray(cli.played.home.ledger_file.read_bytes()) + bytes(2 * page_bytes)
    data[28:32] = (pages + 2).to_bytes(4)
    cli.played.home.ledger_file.write_bytes(data)
    assert text_of(cli("doctor", "-o", "json"), "integrity") == f"Page {pages + 1}: never used (and 1 more)"


@pytest.mark.parametrize(
    ("free_blocks", "flags", "status", "said"),
    [
        (1_000_000, 0, "ok", "3,906 MiB are free"),
        (16_384, 0, "ok", "64 MiB are free"),
        (16_383, 0, "wrong", "63 MiB are free"),
        (1_000_000, os.ST_RDONLY, "wrong", "the file system is read-only"),
    ],
)
def test_a_home_where_nothing_can_be_written_is_said(free_blocks: int, flags: int, status: str, said: str) -> None:
    place = os.statvfs_result((4096, 4096, 2_000_000, free_blocks, free_blocks, 9, 9, 9, flags, 255))
    check = space_of(place)
    assert (check.status, check.text.startswith(said), check.hint is None) == (status, True, status == "ok")


def test_each_primitive_of_the_sandbox_is_told_with_the_profile_they_make(cli: Cli) -> None:
    capabilities = probe()
    result = cli("doctor", "-o", "json")
    parts = [(each["status"], each["text"]) for each in result.document["checks"] if each["name"] == "sandbox part"]
    assert parts == [
        ("ok", f"{name} yes: {text}") if works else ("note", f"{name} no: {text}")
        for name, works, text in capabilities.lines()
    ]
    told = result.document["sandbox"]
    assert (told["profile"], told["required"]) == (profile_of(capabilities).value, "full-rootless")
    assert [line["name"] for line in told["primitives"]] == [name for name, _, _ in capabilities.lines()]
    assert f"profile {profile_of(capabilities).value}" in cli("doctor").out


def test_the_required_profile_is_that_of_the_settings(cli: Cli) -> None:
    """Explicitly lowered, and told so."""
    settings = cli.played.home.path / "config.toml"
    settings.write_text(settings.read_text().replace('required = "full-rootless"', 'required = "none"'))
    result = cli("doctor", "-o", "json")
    told = result.document["sandbox"]
    assert (told["required"], told["contained"], told["lowered"]) == ("none", True, True)
    assert (result.code, statuses(result)["sandbox"]) == (0, "note")
    assert "every result says that less was required" in text_of(result, "sandbox")


def test_a_machine_that_cannot_contain_untrusted_code_says_that_it_is_refused() -> None:
    weak = Capabilities(dict.fromkeys(("landlock", "seccomp", "pidfd", "openat2"), ""), 6)
    view = sandbox_view("full-rootless", weak)
    assert (view.profile, view.contained) == (Profile.KERNEL_FILTER, False)
    assert "untrusted code is refused (SANDBOX_UNAVAILABLE)" in view.verdict()
    assert "user_namespace" in (view.hint() or "")
    allowed = sandbox_view("kernel-filter", weak)
    assert (allowed.contained, allowed.lowered, allowed.hint()) == (True, True, None)
    assert (
        sandbox_view("full", Capabilities())
        .verdict()
        .startswith("profile none, required is full: untrusted code is refused")
    )


def test_a_full_sandbox_is_no_note() -> None:
    full = sandbox_view("full-rootless", Capabilities(dict.fromkeys(WORDS, ""), 6))
    assert (full.profile, full.contained, full.lowered) == (Profile.FULL, True, False)
    assert {line.works for line in full.primitives} == {True}


def rolled_back(cli: Cli) -> KeptHeads:
    keeper = KeptHeads(state_directory(os.environ), cli.played.home.settings().origin)
    size, note = keeper.heads()[0]
    keeper.keep(0, size + 5, note)
    return keeper


def test_a_rollback_is_said_and_accepted_only_on_purpose(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-178"""
    keeper = rolled_back(cli)
    result = cli("doctor", "-o", "json")
    assert (result.code, statuses(result)["kept tree head"]) == (1, "wrong")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    refused = cli("doctor", "--accept-rollback")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert keeper.path.exists()
    accepted = cli("doctor", "--accept-rollback", "--yes", "-o", "json")
    assert accepted.code == 0
    assert accepted.document["forgotten"]["heads"] == {"0": keeper_size(accepted)}
    assert "no longer be told from one that someone else rolled back" in accepted.err
    assert not keeper.path.exists()
    with cli.played.session():
        pass
    assert cli("verify").code == 0


def keeper_size(result: Result) -> int:
    return int(result.document["forgotten"]["heads"]["0"])


class Terminal(io.StringIO):
    """An answer typed by a person."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "gone"), [("forget\n", True), ("yes\n", False), ("\n", False)])
def test_a_person_has_to_type_the_word(cli: Cli, monkeypatch: pytest.MonkeyPatch, typed: str, gone: bool) -> None:
    keeper = rolled_back(cli)
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    result = cli("doctor", "--accept-rollback")
    assert keeper.path.exists() is not gone
    assert result.code == (0 if gone else 2)


def test_a_kept_tree_head_that_fits_is_not_forgotten(cli: Cli) -> None:
    result = cli("doctor", "--accept-rollback", "--yes")
    assert result.code == 0
    assert "fits the ledger: there is no rollback to accept" in result.err
    assert KeptHeads(state_directory(os.environ), cli.played.home.settings().origin).path.exists()


def test_without_a_kept_tree_head_a_note_is_left(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    result = cli("doctor", "-o", "json")
    assert (result.code, statuses(result)["kept tree head"]) == (0, "note")
    assert "holds no tree head: there is nothing to forget" in cli("doctor", "--accept-rollback", "--yes").err
