"""Links that are planted after a home was looked over: each file is opened without following one (X-195)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from detent.canon import SigningKey
from detent.errors import HomeUntrusted
from detent.owner.home import Home
from detent.owner.lock import try_lock
from detent.owner.socket_client import Connection
from detent.owner.state_directory import KeptHeads, Place, PlaceKeeper
from detent.runs.record.identity import RunLock
from detent.store.files import open_no_follow, replace_no_follow
from detent.store.sqlite import SqliteStore
from detent.workers.resources import Resources
from tests.owner.homes import House

SEED = b"k" * 32
KEY = SigningKey(SEED)
DIGEST = bytes(32)
OPENINGS: dict[str, Callable[[Home], object]] = {
    "owner.lock": lambda home: try_lock(home.lock),
    "owner.sock": lambda home: Connection.to(home.socket, lambda _: None),
    "config.toml": lambda home: home.settings(),
    "ledger.db": lambda home: SqliteStore.open_reader(home.ledger_file),
    "ledger.db-wal": lambda home: SqliteStore.open(home.ledger_file),
    "ledger.db-shm": lambda home: SqliteStore.open(home.ledger_file),
    f"keys/root-{KEY.key_id.hex()[:16]}.key": lambda home: home.keyring.find("root", KEY.key_id),
    f"content/{'00'}/{'00' * 31}": lambda home: home.content_files().get(DIGEST),
    "runs/a.lock": lambda home: RunLock.take(home.path, "a"),
    "resources/gpu": lambda home: Resources(home.path, {"gpu": 1}, 1)._descriptor("gpu"),
}


@pytest.mark.parametrize("name", OPENINGS)
def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path, name: str) -> None:
    """X-195"""
    home = House(tmp_path).home
    victim, link = tmp_path / "victim", home.path / name
    victim.write_text("precious")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(victim)
    with pytest.raises(HomeUntrusted, match="is a symbolic link") as caught:
        OPENINGS[name](home)
    assert caught.value.details == {"path": str(link)}
    assert victim.read_text() == "precious"


def test_files_of_the_state_directory_are_replaced_and_never_written_through(tmp_path: Path) -> None:
    """X-195"""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    heads = KeptHeads(tmp_path, "detent/a")
    place = PlaceKeeper({"XDG_STATE_HOME": str(tmp_path)}, "detent/a")
    place.path.parent.mkdir(parents=True)
    for path in (heads.path, place.path):
        path.with_name(f"{path.name}.{os.getpid()}.tmp").symlink_to(victim)
    heads.keep(0, 1, "note")
    place.write(Place("/a", 1, 2))
    assert (heads.heads(), place.read()) == ({0: (1, "note")}, Place("/a", 1, 2))
    heads.path.unlink()
    heads.path.symlink_to(victim)
    with pytest.raises(HomeUntrusted):
        heads.heads()
    assert victim.read_text() == "precious"


def test_a_pipe_holds_nothing_up_and_a_second_name_is_not_written_to(tmp_path: Path) -> None:
    """X-195"""
    os.mkfifo(tmp_path / "pipe")
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        with pytest.raises(HomeUntrusted, match="is not a regular file"):
            open_no_follow(tmp_path / "pipe", flags)
    replace_no_follow(tmp_path / "file", b"precious")
    (tmp_path / "second").hardlink_to(tmp_path / "file")
    with pytest.raises(HomeUntrusted, match="has a second name"):
        open_no_follow(tmp_path / "second", os.O_RDWR)
