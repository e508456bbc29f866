"""A home: the directory one ledger lives in, found like a git repository and made all at once.

    .detent/
      ledger.db     records, heads, small content       owner.lock    held by the process that owns the home
      content/      large content by digest             owner.sock    where that process listens
      keys/         private keys, 0600                  config.toml   settings
      live/         what workers are doing right now    resources/    locks on what is counted, such as gpu
      serve/        token and address of `detent serve`   .gitignore    `*`: nothing in here belongs into a repository
      uploads/      what clients of a server upload

A new home is built under another name, synced once as a whole and renamed into place, so a crash leaves none or a whole one.
Nothing is synced while it is built: what has no name yet need not outlive a power cut. What a crash leaves
of the building is swept away by the next one who makes a home there: a building is locked while a process works on it, and the
lock ends with the process. An empty directory may be a mounted volume, which cannot be replaced: a home for it is built inside
and moved up, the settings last, which are what makes a directory a home.

Several processes may make the same home at once. Each builds one of its own; the first to put it in place wins, and the
others drop theirs and use the winner's (`home_or_new`).

What a home's environment is pinned to: the versions of Detent's own dependencies, and the lock files of the project.

Versions are read without `importlib.metadata`, which takes longer to load than all else of a home.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from detent.canon import digest_text, encode, sha256
from detent.canon.late import dataclass, pattern
from detent.errors import HomeError
from detent.ledger import KeyEntry, SignedTrust, TrustConfig, sign_trust
from detent.owner.home_permissions import ROLES, KeyFiles, insist_on_own, insist_on_writable, no_access
from detent.owner.place import DIRECTORY, named_place, places
from detent.owner.settings import TEMPLATE, Settings, read_settings
from detent.store.content import ContentFiles
from detent.store.files import DISK, refuse_network_file_system
from detent.store.sqlite import SqliteStore
from detent.store.sqlite.database import UNSYNCED

BUILDING = ".new-"
ORIGIN_BYTES = 8
DEPENDENCIES = ("apsw", "libipld", "pynacl")
"""Packages whose version can change bytes or durability: part of the environment policy (PIPE-032)."""
LOCK = "lock:"
"""How the name of a lock file begins in the environment policy."""
_BUILDING_NUMBER = pattern(r"[0-9a-f]{8}")
"""How the name of a building ends."""
_SETTINGS = "config.toml"
_OF_THE_VOLUME = "lost+found"
"""What an empty volume holds."""


@dataclass(frozen=True, slots=True)
class Home:
    """Paths of one home."""

    path: Path

    @property
    def ledger(self) -> Path:
        """The database."""
        return self.path / "ledger.db"

    @property
    def lock(self) -> Path:
        """The file whose lock makes a process the owner."""
        return self.path / "owner.lock"

    @property
    def socket(self) -> Path:
        """Where the owner listens."""
        return self.path / "owner.sock"

    @property
    def keyring(self) -> KeyFiles:
        """The private keys."""
        return KeyFiles(self.path / "keys")

    def settings(self) -> Settings:
        """The settings, read now."""
        return read_settings(self.path / _SETTINGS)

    def content_files(self) -> ContentFiles:
        """Large content."""
        return ContentFiles(self.path / "content")

    @property
    def trees(self) -> Path:
        """Where source trees are laid out."""
        return self.path / "trees"

    @property
    def uploads(self) -> Path:
        """What clients of a server upload; a home that was never served has none."""
        return self.path / "uploads"


def find_home(start: Path, environment: Mapping[str, str], explicit: Path | None = None) -> Home | None:
    """The home to use: the one named, else the one of ``DETENT_HOME``, else the nearest upwards; None if there is none.

    Raises `StoreUnavailable` for one that this user may not look into, and `HomeUntrusted` for one that another user made or
    could replace: going on with another would be a surprise.
    """
    for path in places(start, environment, explicit):
        if is_home(path):
            insist_on_own(path, environment, found=named_place(environment, explicit) is None)
            return Home(path)
    return None


def is_home(path: Path) -> bool:
    """Whether there is a home at a place; `StoreUnavailable` for one that this user may not look into."""
    try:
        (path / _SETTINGS).lstat()
    except PermissionError as exc:
        if not os.path.lexists(path):
            return False  # A directory above it is closed, so it is unknown whether there is one.
        raise no_access(path, "read") from exc
    except OSError:
        return False
    if not os.access(path / _SETTINGS, os.R_OK, effective_ids=True, follow_symlinks=False):
        raise no_access(path, "read")
    return True


def new_home_path(start: Path, environment: Mapping[str, str], explicit: Path | None = None) -> Path:
    """Where a home would be made if none is found; `HomeUntrusted` for a place where it would not be this user's alone."""
    named = named_place(environment, explicit)
    path = start / DIRECTORY if named is None else named
    is_home(path)  # One that may not be looked into is refused for that first, as `find_home` does.
    insist_on_own(path, environment, found=named is None)
    return path


def make_home(
    path: Path,
    begin: Callable[[Home, SignedTrust], None],
    *,
    partitions: int = 1,
    random: Callable[[int], bytes] = os.urandom,
) -> Home:
    """Make a new home at ``path``, whole or not at all.

    ``begin`` writes the first batch, which announces the trust configuration. Refuses a path where there is anything but an
    empty directory, and leaves that as it is.
    """
    _refuse_taken(path)
    if not path.parent.is_dir():
        raise HomeError(f"{path.parent} is not a directory", hint="make it first, or choose another place")
    refuse_network_file_system(path)
    inside = path.is_dir()
    stem = path / BUILDING if inside else path.with_name(path.name + BUILDING)
    try:
        _sweep_buildings(stem)
        with _building(stem, random) as building:
            _build(Home(building), begin, partitions, random)
            _sync_tree(building)
            if inside:
                _move_up(building)
            elif not _put_in_place(building, path):
                # Another process has put something there since: its home, or a directory in which it makes one.
                return make_home(path, begin, partitions=partitions, random=random)
    except OSError as exc:
        raise HomeError(
            f"{path} cannot be made: {exc.strerror or exc}", hint="check permissions and free space"
        ) from exc
    return Home(path)


def home_or_new(path: Path, begin: Callable[[Home, SignedTrust], None]) -> Home:
    """The home at ``path``, made by this process or, if another is faster, by that one; writable by this user."""
    try:
        return make_home(path, begin)
    except HomeError:
        if not is_home(path):
            raise
    insist_on_writable(path)
    return Home(path)


def _refuse_taken(path: Path) -> None:
    """Refuse, as `_refuse_unless_empty`, but never for a home that another process is moving up at this moment."""
    if not path.is_dir():
        _refuse_unless_empty(path)
        return
    with _locked(path):
        _refuse_unless_empty(path)


def _refuse_unless_empty(path: Path) -> None:
    """Refuse to make a home where there is anything but an empty directory: keys are never written over."""
    elsewhere = "choose another place with --home or DETENT_HOME"
    if is_home(path):
        insist_on_writable(path)
        if Home(path).ledger.exists():
            raise HomeError(f"{path} exists already", hint=f"use it, or {elsewhere}")
        raise HomeError(
            f"{path} exists already, and its ledger.db is missing",
            hint=f"restore ledger.db from a copy, or move {path} away, which has its keys, to begin anew",
        )
    if not path.exists():
        return
    if not path.is_dir():
        raise HomeError(f"{path} is a file, and a home is a directory", hint=elsewhere)
    try:
        names = {entry.name for entry in path.iterdir()}
    except PermissionError as exc:
        raise no_access(path, "read") from exc
    if any(name != _OF_THE_VOLUME and not _is_building(name, BUILDING) for name in names):
        raise HomeError(
            f"{path} exists already: it has files in it and is not a home, as it has no {_SETTINGS}",
            hint=f"restore {_SETTINGS} from a copy if it was a home; else empty the directory, or {elsewhere}",
        )


def _move_up(building: Path) -> None:
    """Make the empty directory that a home was built in that home. Another process that does so meanwhile goes first."""
    path = building.parent
    with _locked(path):
        _refuse_unless_empty(path)
        with suppress(PermissionError):  # It may be a group's; keys, content and the ledger are closed by themselves.
            path.chmod(0o700)
        for entry in building.iterdir():
            if entry.name != _SETTINGS:
                entry.rename(path / entry.name)
        DISK.sync_directory(path)
        (building / _SETTINGS).rename(path / _SETTINGS)
        DISK.sync_directory(path)


def _put_in_place(building: Path, path: Path) -> bool:
    """Give a built home its name; say whether it got it, or the name was taken meanwhile."""
    try:
        building.rename(path)
    except OSError:
        if path.exists():
            return False
        raise
    DISK.sync_directory(path.parent)
    return True


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock on a directory, under which a home is moved up in it."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError as exc:
        raise no_access(directory, "read") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_building(name: str, stem: str) -> bool:
    return name.startswith(stem) and _BUILDING_NUMBER.fullmatch(name.removeprefix(stem)) is not None


@contextmanager
def _building(stem: Path, random: Callable[[int], bytes]) -> Iterator[Path]:
    """A new directory, whose name begins so, to build a home in; locked, and gone afterwards unless it was renamed."""
    while True:
        building = stem.with_name(f"{stem.name}{random(4).hex()}")
        building.mkdir(mode=0o700)
        try:
            descriptor = os.open(building, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # Swept away already: another process makes a home here as well.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if building.exists():
            break
        os.close(descriptor)  # Swept away between its making and its lock.
    try:
        yield building
    finally:
        shutil.rmtree(building, ignore_errors=True)
        os.close(descriptor)


def _sweep_buildings(stem: Path) -> None:
    """Remove what processes that died while they made this home have left of it."""
    for left in stem.parent.glob(f"{glob.escape(stem.name)}*"):
        if not _is_building(left.name, stem.name):
            continue
        try:
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # Not a directory, not ours, or gone meanwhile.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except BlockingIOError:
            pass  # Another process works on it.
        finally:
            os.close(descriptor)


def environment_policy(home: Home) -> dict[str, str]:
    """What this machine runs a ledger with, by digest: the pinned dependencies' versions, and the project's lock files.

    A home whose project has no lock file has the policy that it always had (PIPE-032).
    """
    versions = {name: installed_version(name) for name in DEPENDENCIES}
    locks = {f"{LOCK}{name}": digest for name, digest in project_locks(home.path.absolute().parent).items()}
    return {"dependencies": digest_text(sha256(encode(versions))), **locks}


def genesis_trust(origin: str, public_keys: Mapping[str, bytes]) -> TrustConfig:
    """The first trust configuration of a ledger: one key for each role, valid from the first batch on."""
    return TrustConfig(
        origin=origin,
        version=1,
        prev=None,
        keys=tuple(KeyEntry(public_keys[role], role) for role in ROLES),
    )


def _build(
    home: Home, begin: Callable[[Home, SignedTrust], None], partitions: int, random: Callable[[int], bytes]
) -> None:
    (home.path / ".gitignore").write_text("*\n")
    (home.path / "keys").mkdir(mode=0o700)
    (home.path / "content").mkdir(mode=0o700)
    origin = f"detent/{random(ORIGIN_BYTES).hex()}"
    keys = {role: home.keyring.add(role, random(32), sync=False) for role in ROLES}
    signed = sign_trust(genesis_trust(origin, {role: key.public_key for role, key in keys.items()}), keys["root"])
    (home.path / _SETTINGS).write_text(TEMPLATE.format(origin=origin, root=digest_text(sha256(signed.body))))
    SqliteStore.make(home.ledger, origin, partitions, _options=UNSYNCED)
    begin(home, signed)


def _sync_tree(directory: Path) -> None:
    """Make everything in a directory durable; a name that outlives a power cut must not lead to empty files."""
    for path in directory.iterdir():
        if path.is_dir():
            _sync_tree(path)
        else:
            DISK.sync_file(path)
    DISK.sync_directory(directory)


_VERSION = pattern(rb"^Version: *(\S+)\s*$", re.MULTILINE)
_HEADER_BYTES_MAX = 4096
"""How much of a distribution's description is read; its version stands at the top."""

LOCK_FILES: Final = ("pylock.toml", "uv.lock", "poetry.lock", "pdm.lock", "requirements.lock")
"""Files that pin everything a project needs."""
LOCK_BYTES_MAX: Final = 64 * 1024 * 1024
"""A larger file is not taken for a lock."""
_PROJECT_MARKS: Final = ("pyproject.toml", ".git")


def project_locks(start: Path) -> dict[str, str]:
    """The lock files of the project that a directory belongs to, each with its digest; none where there is none.

    They lie in the directory itself, or in the nearest one above it that is the root of a project.
    """
    for directory in (start, *start.parents):
        is_root = any((directory / mark).exists() for mark in _PROJECT_MARKS)
        found = _locks_in(directory) if is_root or directory == start else {}
        if found or is_root:
            return found
    return {}


def _locks_in(directory: Path) -> dict[str, str]:
    found = {}
    for name in LOCK_FILES:
        path = directory / name
        try:
            if path.is_file() and path.stat().st_size <= LOCK_BYTES_MAX:
                with path.open("rb") as file:
                    found[name] = digest_text(hashlib.file_digest(file, "sha256").digest())
        except OSError:
            continue  # What this user may not read pins nothing for them.
    return found


@cache
def installed_version(name: str) -> str:
    """The version of an installed distribution, as `importlib.metadata.version` tells it; raises what that raises."""
    for directory in _found(_normal(name)):
        try:
            with open(f"{directory}/METADATA", "rb") as file:  # noqa: PTH123 - before `pathlib` is worth its time
                header = file.read(_HEADER_BYTES_MAX)
        except OSError:
            break
        if (match := _VERSION.search(header)) is not None:
            return match[1].decode()
        break
    from importlib import metadata  # noqa: PLC0415 - an egg, an archive, or an importer of its own

    return metadata.version(name)


def _found(normal: str) -> Iterator[str]:
    """Descriptions of a distribution, in the order in which modules are found; one that is not a directory ends it."""
    for place in sys.path:
        try:
            entries = os.listdir(place or ".")  # noqa: PTH208
        except OSError:
            continue
        for entry in entries:
            stem, dot, kind = entry.rpartition(".")
            if dot and kind in {"dist-info", "egg-info"} and _normal(stem.partition("-")[0]) == normal:
                yield f"{place or '.'}/{entry}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
