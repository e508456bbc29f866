"""The first minutes of a newcomer: `make run`, the README, the command line, and everything that can go wrong there.

The example runs as its own process, as `make run` runs it; the command line then works on what it left behind.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import pytest

from detent.cli.app import run
from detent.owner import session as session_module
from detent.owner.home import Home
from detent.owner.lock import try_lock
from detent.store.sqlite.database import DEFAULT_OPTIONS

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


@cache
def example() -> tuple[Path, str]:
    """What the example leaves behind, and what it says."""
    directory = tempfile.mkdtemp(prefix="detent-example-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    out = Path(directory) / "out"
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "lifecycle.py", out],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return out, done.stdout


class Minutes:
    """A copy of the example's home, and the command line on it."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.home = Home(directory / ".detent")
        self._capsys = capsys

    def detent(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._capsys.readouterr()
        code = run(arguments)
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The JSON document of a command that ends with this code."""
        found, out, err = self.detent(*arguments, "-o", "json")
        assert found == code, (out, err)
        return json.loads(out)

    def edit(self, statement: str, *bindings: object) -> None:
        """Change the database behind Detent's back, and see that it changed."""
        database = apsw.Connection(str(self.home.ledger))
        triggers = database.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        before = database.total_changes()
        database.execute(statement, bindings)
        assert database.total_changes() > before
        for _, sql in triggers:
            database.execute(str(sql))
        database.close()


@pytest.fixture
def minutes(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Minutes:
    out, _ = example()
    # Without the note of where it was made: what is copied here is used as the original.
    shutil.copytree(out, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.place"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("DETENT_HOME", raising=False)
    return Minutes(tmp_path, capsys)


# -- make run ------------------------------------------------------------------------------------------------------------


def test_the_example_shows_every_way_a_job_can_go_then_proves_and_finds() -> None:
    out, said = example()
    for word in ("queued", "running", "retrying", "succeeded", "failed", "cancelled"):
        assert word in said
    assert "verified, which proves:" in said
    assert re.search(r"byte \d+ of a copy changed, in record (\d+) \(job model\): found", said)
    assert re.search(r"! EVIDENCE_INVALID \(partition 0, batch \d+, record \d+, job model, transition 1\)", said)
    assert f"list --home {out / '.detent'}" in said
    assert "\x1b" not in said


def test_the_example_takes_nothing_away_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "lifecycle.py", tmp_path],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "is there already" in done.stderr
    assert (tmp_path / "mine").read_text() == "precious"


def test_make_run_runs_the_pipeline_and_verifies_what_it_left(tmp_path: Path) -> None:
    """The commands of the target, played on a copy: the steps run, then all of them are reused, and the ledger is proved."""
    work_key = re.search(r"^run:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert work_key is not None
    lines = [line.removeprefix("\t@") for line in work_key[1].splitlines() if "detent" in line]
    assert [line.split()[1] for line in lines] == ["run", "verify"]
    copy = tmp_path / "examples" / "pipeline"
    shutil.copytree(
        ROOT / "examples" / "pipeline", copy, ignore=shutil.ignore_patterns(".detent", "out", "__pycache__")
    )
    environment = {**ENVIRONMENT, "XDG_STATE_HOME": str(tmp_path / "state")}
    for said in ("7 run, 0 reused", "0 run, 7 reused"):
        for line, wanted in zip(lines, (said, "verified"), strict=True):
            command = [sys.executable, "-m", "detent", *line.split()[1:]]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert wanted in done.stdout


def test_what_the_example_says_to_type_works(minutes: Minutes) -> None:
    _, said = example()
    commands = [
        line.split("detent ", 1)[1].split() for line in said.partition("Now you:")[2].splitlines() if "detent " in line
    ]
    assert len(commands) == 4
    for command in commands:
        code, out, err = minutes.detent(*command)
        assert code == (1 if command[0] == "verify" else 0), err
        assert out


# -- the README ----------------------------------------------------------------------------------------------------------


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_only_commands_and_files_that_exist() -> None:
    from detent.cli.app import COMMANDS

    known = {name for section in COMMANDS.values() for name in section} | {"--help"}
    assert set(re.findall(r"^detent (\S+)", readme(), re.MULTILINE)) <= known
    links = re.findall(r"\]\(([^)]+)\)", readme())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


# -- the command line ----------------------------------------------------------------------------------------------------


def test_every_reading_command_answers_in_json(minutes: Minutes) -> None:
    (listed,) = minutes.json("list")
    assert {"run_id": "run-1", "name": "five jobs", "status": "failed"}.items() <= listed.items()
    assert {job["job_id"]: job["state"] for job in minutes.json("list", "--jobs")} == {
        "mail": "cancelled",
        "model": "succeeded",
        "prices": "failed",
        "report": "succeeded",
        "resize": "succeeded",
    }
    assert minutes.json("show", "model")["attempts"] == 2
    assert minutes.json("show", "run-1")["states"] == {"cancelled": 1, "failed": 1, "succeeded": 3}
    exported = minutes.json("export", "run-1", "--output", "run.detent")
    assert minutes.json("verify", "run.detent", "--root", exported["root"])["ok"]
    assert minutes.json("verify")["ok"]
    assert minutes.json("replay")["ok"]
    assert minutes.json("doctor")["ok"]
    assert minutes.json("keys")["root"] == exported["root"]


@pytest.mark.parametrize("column", ["body", "evidence"])
def test_a_flipped_byte_of_the_databases_records_is_found_and_its_record_named(minutes: Minutes, column: str) -> None:
    record = minutes.json("show", "model")["records"][2]
    data = (
        apsw.Connection(str(minutes.home.ledger))
        .execute(f"SELECT {column} FROM records WHERE record_key = ?", (record["position"],))
        .get
    )
    place = data.index(b"LEASE_EXPIRED") + 3
    changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    minutes.edit(f"UPDATE records SET {column} = ? WHERE record_key = ?", changed, record["position"])
    findings = minutes.json("verify", code=1)["findings"]
    assert any(
        (finding["position"], finding["job_id"], finding["transition_seq"]) == (record["position"], "model", 1)
        for finding in findings
    )
    code, out, _ = minutes.detent("verify")
    assert code == 1
    assert f"record {record['position']}, job model" in out


def test_a_flipped_byte_anywhere_in_a_bundle_is_found(minutes: Minutes) -> None:
    root = minutes.json("export", "--output", "all.detent")["root"]
    bundle = minutes.directory / "all.detent"
    data = bundle.read_bytes()
    missed = []
    for place in range(0, len(data), len(data) // 40):
        bundle.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        code, _, _ = minutes.detent("verify", "all.detent", "--root", root)
        if code != 1:
            missed.append(place)
    assert missed == []


def test_an_erased_payload_leaves_a_history_that_verifies_and_says_so(minutes: Minutes) -> None:
    """X-171"""
    assert len(minutes.json("erase", "--job", "model")["erased"]) == 2
    document = minutes.json("verify")
    assert any("erased on purpose" in sentence for sentence in document["proved"])
    assert minutes.json("show", "model")["payload"]["content"] == "erased"
    assert minutes.json("replay")["ok"]


def test_keys_are_rotated_and_work_goes_on(minutes: Minutes) -> None:
    for role in ("transition", "log", "root", "manifest"):
        minutes.json("keys", "rotate", role)
    minutes.json("erase", "--job", "model")
    assert minutes.json("verify")["ok"]
    assert minutes.json("replay")["ok"]
    exported = minutes.json("export", "--output", "all.detent")
    assert minutes.json("verify", "all.detent", "--root", exported["root"])["ok"]


# -- what can go wrong ---------------------------------------------------------------------------------------------------


def refused(minutes: Minutes, code: int, *arguments: str) -> str:
    """What is said when a command is refused with this exit code; standard output stays empty."""
    found, out, err = minutes.detent(*arguments)
    assert (found, out) == (code, ""), err
    assert err.startswith("error: ")
    assert "\nhint:  " in err
    return err


def test_a_ledger_of_a_newer_version_is_left_alone(minutes: Minutes) -> None:
    database = apsw.Connection(str(minutes.home.ledger))
    database.pragma("user_version", 99)
    database.close()
    for command in (("list",), ("verify",), ("erase", "--job", "model"), ("export", "--output", "x.detent")):
        err = refused(minutes, 4, *command)
        assert f"{minutes.home.ledger} was written by a newer detent (schema 99" in err
        assert "pip install --upgrade detent" in err
    assert not (minutes.directory / "x.detent").exists()


def test_a_wrong_key_file_is_named(minutes: Minutes) -> None:
    keys = minutes.home.path / "keys"
    transition, log = next(keys.glob("transition-*.key")), next(keys.glob("log-*.key"))
    shutil.copy(log, transition)
    err = refused(minutes, 2, "erase", "--job", "model")
    assert f"{transition} holds another key than its name says" in err
    transition.unlink()
    assert "the transition key" in refused(minutes, 2, "keys", "rotate", "log")
    assert minutes.json("verify")["ok"], "verifying needs no private key"


def test_another_trust_root_is_refused_and_found(minutes: Minutes) -> None:
    settings = minutes.home.path / "config.toml"
    settings.write_text(re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, settings.read_text()))
    assert f"{settings} pins sha256:0000" in refused(minutes, 2, "erase", "--job", "model")
    codes = [finding["code"] for finding in minutes.json("verify", code=1)["findings"]]
    assert codes == ["TRUST_ROOT_MISMATCH"]


def test_a_ledger_without_its_trust_is_refused_and_found(minutes: Minutes) -> None:
    database = apsw.Connection(str(minutes.home.ledger))
    guard = database.execute("SELECT sql FROM sqlite_schema WHERE name = 'records_are_never_deleted'").get
    database.execute("DROP TRIGGER records_are_never_deleted")
    database.execute("DELETE FROM records WHERE kind = 'trust_changed'")
    database.execute(guard)
    database.close()
    assert "announces no trust configuration" in refused(minutes, 2, "keys")
    assert "announces no trust configuration" in refused(minutes, 2, "erase", "--job", "model")
    codes = {finding["code"] for finding in minutes.json("verify", code=1)["findings"]}
    assert "TRUST_MISSING" in codes


@pytest.mark.parametrize(
    "change", ["", "[ledger]\n", "not toml at all", "[ledger]\norigin = 1\nroot = 2\n", "[extra]\n"]
)
def test_damaged_settings_are_named(minutes: Minutes, change: str) -> None:
    settings = minutes.home.path / "config.toml"
    settings.write_text(change)
    assert str(settings) in refused(minutes, 2, "verify")


def test_a_file_that_is_no_database_is_named(minutes: Minutes) -> None:
    minutes.home.ledger_file.write_bytes(b"nothing like a database" * 1000)
    assert str(minutes.home.ledger) in refused(minutes, 4, "list")
    codes = [finding["code"] for finding in minutes.json("verify", code=1)["findings"]]
    assert "STORE_DAMAGED" in codes
    minutes.home.ledger_file.unlink()
    assert f"{minutes.home.ledger} does not exist" in refused(minutes, 4, "verify")


def test_a_home_whose_owner_does_not_answer_is_said(minutes: Minutes, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-172"""
    monkeypatch.setattr(session_module, "CONNECT_SECONDS", 0.01)
    held = try_lock(minutes.home.lock)
    assert held is not None
    try:
        err = refused(minutes, 4, "erase", "--job", "model")
        assert f"is owned by process {os.getpid()}, which does not answer" in err
        assert "owns the home" in refused(minutes, 4, "keys", "rotate", "log")
        assert minutes.json("verify")["ok"], "reading needs no owner"
    finally:
        held.release()


def test_a_database_that_another_program_has_locked_is_said(minutes: Minutes) -> None:
    database = apsw.Connection(str(minutes.home.ledger))
    database.execute("BEGIN IMMEDIATE")
    patience = DEFAULT_OPTIONS.busy_timeout_ms
    object.__setattr__(DEFAULT_OPTIONS, "busy_timeout_ms", 10)
    try:
        assert "is locked by another process" in refused(minutes, 4, "erase", "--job", "model")
        assert minutes.json("list")
    finally:
        object.__setattr__(DEFAULT_OPTIONS, "busy_timeout_ms", patience)
        database.close()
    assert minutes.json("erase", "--job", "model")["erased"]


@contextmanager
def unprivileged(*directories: Path) -> Iterator[None]:
    """Permissions bind: as root, become nobody for a while and own what the test works on."""
    if os.geteuid() != 0:
        yield
        return
    nobody = 65534
    for directory in directories:
        for path in (directory, *directory.rglob("*")):
            os.chown(path, nobody, nobody)
    os.seteuid(nobody)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that any user may enter, unlike pytest's own."""
    directory = Path(tempfile.mkdtemp(prefix="detent-read-only-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def test_a_read_only_home_can_be_read_and_says_no_to_the_rest(
    minutes: Minutes, open_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(minutes.directory, open_directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.place"))
    monkeypatch.chdir(open_directory)
    monkeypatch.setenv("XDG_STATE_HOME", str(open_directory / "state"))
    # Loaded while everything can still be read.
    for command in (("verify",), ("doctor",), ("list",), ("export", "--output", "x.detent")):
        minutes.detent(*command)
    minutes.detent("erase", "--job", "nix")
    home = open_directory / ".detent"
    with unprivileged(open_directory):
        for path in (home, *home.rglob("*")):
            path.chmod(0o500 if path.is_dir() else 0o400)
        assert minutes.json("list")
        assert minutes.json("verify")["ok"]
        assert minutes.json("export", "--output", "y.detent")["root"]
        err = refused(minutes, 4, "erase", "--job", "model")
        assert f"the home {home} does not let you write to it" in err
        for path in (home, *home.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)


def test_a_place_where_nothing_can_be_made_is_named(minutes: Minutes, open_directory: Path) -> None:
    minutes.detent("init", "--home", "loaded")
    open_directory.chmod(0o500)
    with unprivileged(open_directory):
        err = refused(minutes, 2, "init", "--home", str(open_directory / "home"))
    assert f"{open_directory / 'home'} cannot be made: Permission denied" in err
    assert list(open_directory.iterdir()) == []
