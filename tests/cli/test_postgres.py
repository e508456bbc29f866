"""A home whose ledger is in PostgreSQL, at the command line: the same commands, the same history, one owner, no password shown."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from detent.cli.app import run
from detent.errors import HomeError, StoreUnavailable
from detent.owner import move
from detent.owner.home import Home, make_home
from detent.owner.ledgers import open_ledger, parse_store
from detent.owner.move import log_hash, move_ledger
from detent.owner.session import Session
from detent.owner.wiring import begin_ledger
from detent.store.api import Load
from detent.store.postgres.load import PostgresLoader
from detent.store.postgres.store import PostgresStore
from tests.cli.conftest import Result
from tests.homes import play_in
from tests.postgres_server import Server


class Place:
    """A directory with a project, whose commands run in this process."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory, self._capsys = directory, capsys

    def __call__(self, *arguments: str) -> Result:
        self._capsys.readouterr()
        code = run(arguments)
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(code, captured.out, captured.err)

    def json(self, *arguments: str) -> Any:
        result = self(*arguments, "-o", "json")
        assert result.code == 0, result.err
        return result.document


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("DETENT_HOME", "DETENT_STORE", "DETENT_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    directory = tmp_path / "project"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return Place(directory, capsys)


def seeded() -> Callable[[int], bytes]:
    """The same random bytes for everything that is made with it."""
    state = [b"seed"]

    def random(count: int) -> bytes:
        state[0] = hashlib.sha512(state[0]).digest()
        return state[0][:count]

    return random


# The commands


def test_a_pipeline_runs_and_is_checked_on_postgresql(place: Place, postgres: Server) -> None:
    """init, run, list, show, explain, logs, export, verify, replay, erase, gc, keys, doctor: what a user does in a week."""
    url = postgres.store_url()
    made = place.json("init", "--store", url)
    assert made["store"] == url
    assert not (place.directory / ".detent" / "ledger.db").exists()
    ran = place.json("run", "pipeline.yaml")
    assert ran["status"] == "succeeded"
    assert place.json("run", "pipeline.yaml")["status"] == "succeeded"
    (first, second) = place.json("list")
    assert (first["status"], second["status"]) == ("succeeded", "succeeded")
    assert place("show", ran["run_id"]).code == 0
    assert place("explain", ran["run_id"]).code == 0
    exported = place.json("export", "--output", "all.detent")
    assert place("verify", "all.detent", "--root", exported["root"]).code == 0
    assert place("verify").code == 0
    assert place("replay").code == 0
    assert place("keys", "rotate", "transition").code == 0
    assert place("gc").code == 0
    assert place("erase", "--run", ran["run_id"], "--yes").code == 0
    verified = place("verify")
    assert verified.code == 0, verified.out
    checks = {check["name"]: check for check in place.json("doctor")["checks"]}
    assert checks["database"]["text"].startswith("PostgreSQL ")
    assert checks["schema"]["status"] == "ok"


def test_the_environment_names_the_store(place: Place, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """DETENT_STORE makes a home there, and goes over what the settings say."""
    url = postgres.store_url()
    monkeypatch.setenv("DETENT_STORE", url)
    assert place.json("init")["store"] == url
    assert place("verify").code == 0
    monkeypatch.setenv("DETENT_STORE", postgres.store_url())
    elsewhere = place("verify")
    assert elsewhere.code != 0
    assert "holds no ledger" in elsewhere.err + elsewhere.out


def test_a_schema_that_is_another_ledger_is_refused_and_nothing_is_left(place: Place, postgres: Server) -> None:
    url = postgres.store_url()
    assert place("init", "--store", url).code == 0
    other = place("init", "--home", "other", "--store", url)
    assert other.code == 2
    assert "another ledger" in other.err
    assert not (place.directory / "other").exists()


def test_a_home_whose_making_fails_leaves_nothing_in_the_database(tmp_path: Path, postgres: Server) -> None:
    """Its ledger is made in one transaction."""
    address = postgres.address()

    def begin(*_: object) -> None:
        raise HomeError("the power fails here")

    with pytest.raises(HomeError, match="power"):
        make_home(tmp_path / ".detent", begin, store=address)
    make_home(tmp_path / ".detent", begin_ledger, store=address)


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ('url = "postgresql://a@127.0.0.1/b"\nurl_file = "x"', "either url or url_file"),
        ("url = 1", "must be a text"),
        ('url = "mysql://a@b/c"', "does not name a store"),
        ('url = "postgresql://a@b/c?schema=Bad-Name"', "schema"),
        ('url = "postgresql://a:secret@b/c"', "holds a password"),
        ('path = "x"', "either url or url_file"),
    ],
)
def test_a_store_section_that_says_nothing_usable_is_refused(place: Place, written: str, fault: str) -> None:
    assert place("init").code == 0
    config = place.directory / ".detent" / "config.toml"
    config.write_text(f"{config.read_text()}\n[store]\n{written}\n")
    refused = place("list")
    assert refused.code == 2, refused.err
    assert fault in refused.err
    assert "secret" not in refused.err


# Passwords


def test_a_password_is_never_shown(place: Place, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on the command line, in the settings, in messages, or in what a command prints."""
    secret = "s3cr3t-pass"
    url = postgres.store_url()
    with_password = url.replace("detent@", f"detent:{secret}@", 1)
    refused = place("init", "--store", with_password)
    assert refused.code == 2
    assert "process" in refused.err or "other users" in refused.err
    monkeypatch.setenv("DETENT_STORE", with_password)
    results = [place("init"), place("doctor"), place("verify"), place("list"), place("doctor", "-o", "json")]
    assert [result.code for result in results[:4]] == [0, 0, 0, 0]
    monkeypatch.setenv("DETENT_STORE", with_password.replace("127.0.0.1:", "127.0.0.1:1"))
    results += [place("verify"), place("run", "pipeline.yaml"), refused]
    assert results[5].code != 0
    for result in results:
        assert secret not in result.out + result.err
    for path in (place.directory / ".detent").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_a_url_file_is_read_and_must_be_closed_to_others(place: Place, postgres: Server) -> None:
    url = postgres.store_url()
    assert place("init", "--store", url).code == 0
    config = place.directory / ".detent" / "config.toml"
    config.write_text(config.read_text().replace(f'url = "{url}"', 'url_file = "store-url"'))
    file = config.parent / "store-url"
    file.write_text(url.replace("detent@", "detent:anything@", 1) + "\n")
    file.chmod(0o644)
    refused = place("list")
    assert refused.code == 2
    assert "other users" in refused.err
    file.chmod(0o600)
    assert place("list").code == 0


# One owner


def test_a_second_process_is_a_client_of_the_owner(place: Place, postgres: Server) -> None:
    """X-172"""
    assert place("init", "--store", postgres.store_url()).code == 0
    home = Home(place.directory / ".detent")
    with Session(home) as owner:
        assert owner.owns
        asked = subprocess.run(
            [sys.executable, "-m", "detent", "run", "pipeline.yaml", "-o", "json"],
            capture_output=True, text=True, check=False, cwd=place.directory, env={**os.environ},
        )  # fmt: skip
        assert asked.returncode == 0, asked.stderr
        assert json.loads(asked.stdout)["status"] == "succeeded"
        assert owner.owns
    assert place("verify").code == 0


def test_an_owner_on_another_host_is_named(place: Place, postgres: Server) -> None:
    url = postgres.store_url()
    assert place("init", "--store", url).code == 0
    with closing(PostgresStore.open(parse_store(url, "the test", password=True))) as other:
        assert other.hold(0, "worker-7.example", "boot/1/4711/1", "/nowhere/owner.sock", 60.0) is None
        refused = place("run", "pipeline.yaml")
        assert refused.code == 4
        assert "process 4711 on host worker-7.example" in refused.err
        assert place("list").code == 0  # Reading needs no owner.
    assert place("run", "pipeline.yaml").code == 0


def test_a_process_with_another_home_of_the_same_ledger_asks_its_owner(place: Place, postgres: Server) -> None:
    """The same keys and the same store in a second directory of this host: whoever comes second is a client."""
    import shutil

    assert place("init", "--store", postgres.store_url()).code == 0
    first = Home(place.directory / ".detent")
    second = Home(place.directory / "second")
    shutil.copytree(first.path, second.path)
    with Session(first) as owner, Session(second) as client:
        assert (owner.owns, client.owns) == (True, False)
        assert client.linked


def test_what_a_dead_owner_left_is_taken_over(place: Place, postgres: Server) -> None:
    """Its session may outlive it on the server while the network still believes in it."""
    from detent.owner.ledgers import process_mark

    url = postgres.store_url()
    assert place("init", "--store", url).code == 0
    dead = "/".join([*process_mark().split("/")[:2], "999999999", "1"])
    with closing(PostgresStore.open(parse_store(url, "the test", password=True))) as ghost:
        assert ghost.hold(0, socket.gethostname(), dead, "/nowhere", 60.0) is None
        assert place("run", "pipeline.yaml").code == 0


# The same decisions


def test_the_same_scenario_gives_the_same_log_on_both_stores(tmp_path: Path, postgres: Server) -> None:
    """X-050"""
    hashes = []
    for name, store in (("file", None), ("server", postgres.address())):
        (tmp_path / name).mkdir()
        played = play_in(tmp_path / name, store=store, random=seeded())
        with closing(open_ledger(played.home.ledger)) as reader:
            hashes.append((log_hash(reader), reader.origin, reader.job_counts()))
    assert hashes[0] == hashes[1]
    assert sum(hashes[0][2].values()) == 6


# Moves


def test_a_ledger_moves_to_postgresql_and_back_with_one_hash(place: Place, postgres: Server) -> None:
    """PIPE-119"""
    assert place("init").code == 0
    ran = place.json("run", "pipeline.yaml")
    exported = place.json("export", "--output", "before.detent")
    url = postgres.store_url()
    there = place.json("copy", ".detent", url)
    with closing(open_ledger(place.directory / ".detent" / "ledger.db")) as source:
        assert there["transition_log_hash"] == "sha256:" + log_hash(source).hex()
        label = next(source.label_rows()).label
    named = [job["job_id"] for job in place.json("list", "--label", label)]
    assert len(named) == 1
    assert place("verify").code == 0
    assert place("verify", "before.detent", "--root", exported["root"]).code == 0
    again = place.json("run", "pipeline.yaml")
    assert again["run_id"] != ran["run_id"]
    assert len(place.json("list")) == 2
    old = place.directory / ".detent" / "ledger.db"
    for left in old.parent.glob("ledger.db*"):
        left.rename(place.directory / left.name)
    back = place.json("copy", url, ".detent")
    assert back["batches"] > there["batches"]
    assert [job["job_id"] for job in place.json("list", "--label", label)] == named
    assert "[store]\nurl" not in (place.directory / ".detent" / "config.toml").read_text()
    assert place("verify").code == 0
    assert place("verify", "before.detent", "--root", exported["root"]).code == 0
    assert len(place.json("list")) == 2
    assert place("run", "pipeline.yaml", "-p", "longest=1").code == 0


def test_the_source_of_a_move_is_read_on_and_never_written_to(place: Place, postgres: Server) -> None:
    assert place("init").code == 0
    assert place("run", "pipeline.yaml").code == 0
    config = place.directory / ".detent" / "config.toml"
    before = config.read_text()
    url = postgres.store_url()
    assert place("copy", ".detent", url).code == 0
    config.write_text(before)  # As if the settings had not followed.
    assert place("verify").code == 0
    refused = place("run", "pipeline.yaml", "-p", "longest=1")
    assert refused.code == 4
    assert url in refused.err
    second = postgres.store_url()
    config.write_text(before + f'\n[store]\nurl = "{url}"\n')
    assert place("copy", url, second).code == 0
    refused = place("run", "pipeline.yaml", "-p", "longest=1")
    assert refused.code == 4
    assert second in refused.err


def test_a_move_that_was_cut_short_goes_on_where_it_ended(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = play_in(tmp_path)
    monkeypatch.setattr(move, "PIECE_BATCHES", 3)
    address = postgres.address()
    taken: list[int] = []

    def cut(loader: PostgresLoader, rows: Load) -> None:
        taken.append(1)
        if len(taken) == 3:
            raise StoreUnavailable("the network fails here")
        load(loader, rows)

    load = PostgresLoader.load
    monkeypatch.setattr(PostgresLoader, "load", cut)
    source = played.home.ledger
    with pytest.raises(StoreUnavailable, match="network"):
        move_ledger(source, address, played.home)
    with pytest.raises(StoreUnavailable):
        PostgresStore.open(address)  # An unfinished copy is not a ledger.
    moved = move_ledger(source, address, played.home)
    assert moved.resumed_at == 6
    with closing(open_ledger(source)) as old, closing(open_ledger(address)) as new:
        assert log_hash(old) == log_hash(new) == moved.log_hash


def test_a_target_that_is_not_empty_is_refused(place: Place, postgres: Server) -> None:
    assert place("init").code == 0
    url = postgres.store_url()
    assert place("init", "--home", "other", "--store", url).code == 0
    refused = place("copy", ".detent", url)
    assert refused.code == 2
    assert "another ledger" in refused.err
    assert place("run", "pipeline.yaml").code == 0


def test_what_cannot_be_moved_is_refused(place: Place, postgres: Server) -> None:
    assert place("init").code == 0
    assert place("copy", ".detent").code == 2
    assert place("copy", "nowhere", postgres.store_url()).code == 2
    assert place("copy", ".detent", ".detent").code == 2
    assert place("init", "--home", "other").code == 0
    assert place("copy", ".detent", "other").code == 2


# Backups


def test_a_ledger_is_dumped_and_restored_with_the_tools_of_postgresql(
    place: Place, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `docs/how-to/postgresql.md` says. A restored dump goes on; one that is older than what was kept outside is found out."""
    url = postgres.store_url()
    assert place("init", "--store", url).code == 0
    assert place.json("run", "pipeline.yaml")["status"] == "succeeded"
    schema = parse_store(url, "the test", password=True).schema
    dump = place.directory / "ledger.dump"
    postgres.tool("pg_dump", f"--schema={schema}", "--format=custom", f"--file={dump}", postgres.url)
    restored = []
    for number in range(2):
        name = f"restored_{schema}_{number}"
        postgres.execute(f"CREATE DATABASE {name}")
        other = postgres.url.replace("/postgres", f"/{name}")
        postgres.tool("pg_restore", f"--dbname={other}", str(dump))
        restored.append(url.replace("/postgres?", f"/{name}?"))
    monkeypatch.setenv("DETENT_STORE", restored[0])
    assert place("verify").code == 0
    assert place("replay").code == 0
    assert place.json("run", "pipeline.yaml")["status"] == "succeeded"
    assert place("verify").code == 0
    monkeypatch.setenv("DETENT_STORE", restored[1])
    refused = place("run", "pipeline.yaml")
    assert refused.code != 0
    assert "ROLLED_BACK" in refused.err
    for number in range(2):
        postgres.execute(f"DROP DATABASE restored_{schema}_{number} WITH (FORCE)")
