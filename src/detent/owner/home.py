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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from detent.canon import SigningKey, digest_text, encode, sha256
from detent.canon.late import dataclass, pattern
from detent.canon.show import show
from detent.errors import HomeError, InvalidInput
from detent.ledger import KeyEntry, SignedTrust, TrustConfig, sign_trust
from detent.owner.content_place import content_place
from detent.owner.home_permissions import ROLES, KeyFiles, insist_on_own, insist_on_writable, no_access
from detent.owner.ledgers import LEDGER_FILE, LedgerPlace, finish_ledger, ledger_of, new_ledger, store_section
from detent.owner.place import DIRECTORY, named_place, places
from detent.owner.settings import TEMPLATE, Settings, read_settings
from detent.store.api import Store
from detent.store.content import ContentFiles
from detent.store.files import DISK, refuse_network_file_system

if TYPE_CHECKING:
    from detent.store.postgres.address import PostgresAddress

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
    def ledger(self) -> LedgerPlace:
        """Where the ledger is: a file of the home, or an address of PostgreSQL."""
        return ledger_of(self.path, os.environ)

    @property
    def ledger_file(self) -> Path:
        """The ledger of a home that keeps it itself."""
        return self.path / LEDGER_FILE

    @property
    def lock(self) -> Path:
        """The file whose lock makes a process the owner."""
        return self.path / "owner.lock"

    @property
    def socket(self) -> Path:
        """Where the owner listens."""
        return self.path / "owner.sock"

    @property
    def join_request(self) -> Path:
        """The public keys of a home that was made to join a ledger, for the root key to admit; no other home has it."""
        return self.path / "join.json"

    @property
    def keyring(self) -> KeyFiles:
        """The private keys."""
        return KeyFiles(self.path / "keys")

    def settings(self) -> Settings:
        """The settings, read now."""
        return read_settings(self.path / _SETTINGS)

    def content_files(self) -> ContentFiles:
        """Large content."""
        return ContentFiles(content_place(self.path), trees=self.trees)

    @property
    def trees(self) -> Path:
        """Where source trees are laid out."""
        return self.path / "trees"

    @property
    def uploads(self) -> Path:
        """What clients of a server upload; a home that was never served has none."""
        return self.path / "uploads"


Begin = Callable[[Home, SignedTrust, Store], None]
"""Writes the first batch of a new ledger."""


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
    begin: Begin,
    *,
    partitions: int | None = None,
    random: Callable[[int], bytes] = os.urandom,
    store: PostgresAddress | None = None,
) -> Home:
    """Make a new home at ``path``, whole or not at all.

    ``begin`` writes the first batch, which announces the trust configuration, to the new ledger. Refuses a path where there is anything
    but an empty directory, and leaves that as it is. With ``store``, the ledger is made in PostgreSQL, in one transaction that is
    committed when the home is in its place: a crash between the two leaves a home whose ledger is missing, and no more.
    The number of ``partitions`` is fixed from then on; None: what `DETENT_PARTITIONS` says, or one.
    """
    partitions = checked_partitions(partitions)
    return put_home(path, lambda home: _built(home, begin, partitions, random, store), random=random)


Build = Callable[[Home], AbstractContextManager[Callable[[], None]]]
"""Fills the directory of a new home, and gives what is to be done when it has its place."""


def put_home(path: Path, build: Build, *, random: Callable[[int], bytes] = os.urandom) -> Home:
    """Build a home beside its place and put it there, whole or not at all; refuses, as `make_home`, a place that is taken."""
    _refuse_taken(path)
    if not path.parent.is_dir():
        raise HomeError(f"{path.parent} is not a directory", hint="make it first, or choose another place")
    refuse_network_file_system(path)
    inside = path.is_dir()
    stem = path / BUILDING if inside else path.with_name(path.name + BUILDING)
    try:
        _sweep_buildings(stem)
        with _building(stem, random) as building, build(Home(building)) as finish:
            _sync_tree(building)
            if inside:
                _move_up(building)
            if inside or _put_in_place(building, path):
                finish()
                return Home(path)
    except OSError as exc:
        raise HomeError(
            f"{path} cannot be made: {exc.strerror or exc}", hint="check permissions and free space"
        ) from exc
    # Another process has put something there since: its home, or a directory in which it makes one.
    return put_home(path, build, random=random)


PARTITIONS_MAX: Final = 256
"""Of a home: each has a log, an owner and a tree head of its own in one process."""
PARTITIONS_VARIABLE: Final = "DETENT_PARTITIONS"


def checked_partitions(partitions: int | None, environment: Mapping[str, str] = os.environ) -> int:
    """How many partitions a new home gets: as many as are asked for, or as the environment says. Refuses what no home can have."""
    written, where = environment.get(PARTITIONS_VARIABLE) if partitions is None else None, "--partitions"
    if written is not None:
        where = PARTITIONS_VARIABLE
        partitions = int(written) if written.isascii() and written.isdigit() else 0
    partitions = 1 if partitions is None else partitions
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidInput(
            f"{where}: a home has 1 to {PARTITIONS_MAX} partitions, not {show(partitions if written is None else written)}",
            hint="one is right for most homes; the number cannot be changed later",
        )
    return partitions


def home_or_new(path: Path, begin: Begin) -> Home:
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
        ledger = Home(path).ledger
        if not isinstance(ledger, Path) or ledger.exists():
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


@contextmanager
def _built(
    home: Home, begin: Begin, partitions: int, random: Callable[[int], bytes], store: PostgresAddress | None
) -> Iterator[Callable[[], None]]:
    """Everything of a new home, and its ledger, which is open and in PostgreSQL not there yet; closed afterwards."""
    origin = f"detent/{random(ORIGIN_BYTES).hex()}"
    keys = new_keys(home, ROLES, random)
    signed = sign_trust(genesis_trust(origin, {role: key.public_key for role, key in keys.items()}), keys["root"])
    write_settings(home, origin, sha256(signed.body), store)
    ledger = new_ledger(home.ledger_file if store is None else store, origin, partitions)
    try:
        begin(home, signed, ledger)
        if store is None:
            ledger.close()  # Nothing is left in a journal when the directory is synced.
        yield partial(finish_ledger, ledger)
    finally:
        ledger.close()


def new_keys(home: Home, roles: Iterable[str], random: Callable[[int], bytes]) -> dict[str, SigningKey]:
    """Begin the directory of a home that is being built, with a new key for each role."""
    (home.path / ".gitignore").write_text("*\n")
    (home.path / "keys").mkdir(mode=0o700)
    (home.path / "content").mkdir(mode=0o700)
    return {role: home.keyring.add(role, random(32), sync=False) for role in roles}


def write_settings(home: Home, origin: str, root: bytes, store: PostgresAddress | None) -> None:
    """Write the settings of a home that is being built."""
    section = "" if store is None else f"\n{store_section(store)}"
    (home.path / _SETTINGS).write_text(TEMPLATE.format(origin=origin, root=digest_text(root)) + section)


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
