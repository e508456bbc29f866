"""Private keys on disk: one file each, for the owner of the home alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from detent.canon import SigningKey
from detent.errors import HomeError
from detent.owner.home_permissions import KeyFiles

SEED = bytes(range(32))


@pytest.fixture
def keyring(tmp_path: Path) -> KeyFiles:
    return KeyFiles(tmp_path)


def key_file(keyring: KeyFiles) -> Path:
    (path,) = keyring.directory.iterdir()
    return path


def test_a_key_comes_back_as_it_was_stored(keyring: KeyFiles) -> None:
    key = keyring.add("log", SEED)
    assert keyring.find("log", key.key_id).key_id == SigningKey(SEED).key_id
    assert stat.S_IMODE(key_file(keyring).stat().st_mode) == 0o600
    assert list(keyring.stored()) == [("log", key.key_id.hex()[:16])]


def test_a_key_is_never_written_over(keyring: KeyFiles) -> None:
    keyring.add("log", SEED)
    with pytest.raises(FileExistsError):
        keyring.add("log", SEED)


def test_a_missing_key_is_named_by_role_and_id(keyring: KeyFiles) -> None:
    with pytest.raises(HomeError, match="the log key 00000000") as caught:
        keyring.find("log", bytes(32))
    assert str(keyring.directory) in str(caught.value)
    assert "backup" in str(caught.value.hint)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604])
def test_a_key_that_others_can_read_is_refused_with_the_remedy(keyring: KeyFiles, mode: int) -> None:
    key = keyring.add("log", SEED)
    path = key_file(keyring)
    path.chmod(mode)
    with pytest.raises(HomeError, match=f"mode {mode:03o}") as caught:
        keyring.find("log", key.key_id)
    assert caught.value.hint == f"chmod 600 {path}"


@pytest.mark.parametrize("text", ["", "zz", "00", "00" * 31, "00" * 33, "\u00e9"])
def test_a_file_that_holds_no_key_is_named(keyring: KeyFiles, text: str) -> None:
    key = keyring.add("log", SEED)
    path = key_file(keyring)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(HomeError, match="does not hold a key"):
        keyring.find("log", key.key_id)


def test_another_key_under_the_name_of_this_one_is_refused(keyring: KeyFiles) -> None:
    key = keyring.add("log", SEED)
    key_file(keyring).write_text(bytes(32).hex())
    with pytest.raises(HomeError, match="another key than its name says"):
        keyring.find("log", key.key_id)


def test_a_directory_in_the_place_of_a_key_is_a_typed_error(keyring: KeyFiles) -> None:
    key = keyring.add("log", SEED)
    path = key_file(keyring)
    path.unlink()
    path.mkdir(mode=0o700)
    with pytest.raises(HomeError, match="cannot be read"):
        keyring.find("log", key.key_id)
