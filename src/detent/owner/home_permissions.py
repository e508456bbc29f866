"""Who may use a home, and the private keys that only its owner may read.

Who may use a home: its files are readable and writable, and it belongs to this user or is listed in this user's settings (X-195).

Private keys on disk: one file for each key, readable by the owner of the home alone.

A file is named by role and key id, so that a rotation adds a file and never replaces one; which of them signs is decided
by the trust configuration on the ledger, not by the directory.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from detent.canon import SigningKey
from detent.errors import HomeError, HomeUntrusted, InvalidInput, StoreUnavailable
from detent.store.files import DISK, open_no_follow, untrusted_file


def no_access(path: Path, what: str) -> StoreUnavailable:
    """That this user may not ``read`` or ``write`` a home, whose it is, and what to do."""
    owner = path.stat().st_uid
    another = "name another home with --home or DETENT_HOME"
    if owner == os.geteuid():
        message, hint = f"the home {path} does not let you {what} it", f"chmod 700 {path}, or {another}"
    else:
        message = f"the home {path} belongs to {user_name(owner)}, and you may not {what} it"
        hint = f"{another}, or ask {user_name(owner)} for what you need: `detent export` writes it to a file"
    return StoreUnavailable(message, hint=hint, details={"home": str(path)}, retryable=False)


def insist_on_writable(path: Path) -> None:
    """Refuse, with `StoreUnavailable`, a home that this user may not write to, or that lies on a read-only file system.

    One that is not there is for others to miss.
    """
    if os.access(path, os.W_OK | os.X_OK, effective_ids=True) or not path.exists():
        return
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise StoreUnavailable(
            f"the home {path} cannot be written to: its file system is read-only",
            hint="mount it for writing, or name another home with --home or DETENT_HOME",
            details={"home": str(path)},
            retryable=False,
        )
    raise no_access(path, "write to")


def user_name(number: int) -> str:
    """A user for people: by name where the system knows one."""
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


SAFE_DIRECTORIES = "safe_directories"
_ROOT = 0


def insist_on_own(home: Path, environment: Mapping[str, str], *, found: bool) -> None:
    """Refuse, with `HomeUntrusted`, a home that another user made or could replace, and any link in it.

    ``found`` says that the home was not named: then the directory it lies in counts, too. What is missing is for others to miss.
    """
    fault = _foreign(home, found=found)
    if fault is not None and not _is_listed(home, environment):
        what, owner = fault
        raise HomeUntrusted(
            f"{what} {user_name(owner)}, who could decide what runs here",
            hint="use a home of your own with --home or DETENT_HOME; if you trust that user, list it in"
            f' {user_settings(environment)}: {SAFE_DIRECTORIES} = ["{home}"]',
            details={"home": str(home), "uid": owner},
        )
    _refuse_links(home)


def refuse_foreign_state(directory: Path) -> None:
    """Refuse a state directory of another user, as `sudo` with a kept HOME leads to: its files could be planted or taken away."""
    owner = _other_owner(directory, trusted=(_ROOT,))
    if owner is not None:
        raise HomeUntrusted(
            f"the state directory {directory} belongs to {user_name(owner)}",
            hint="set XDG_STATE_HOME or HOME to a directory of your own",
            details={"path": str(directory), "uid": owner},
        )


def user_settings(environment: Mapping[str, str]) -> Path:
    """The settings of this user for all homes: below ``XDG_CONFIG_HOME``, else ``~/.config``."""
    base = environment.get("XDG_CONFIG_HOME")
    home = environment.get("HOME") or Path("~").expanduser()
    return (Path(base) if base else Path(home) / ".config") / "detent" / "config.toml"


def _foreign(home: Path, *, found: bool) -> tuple[str, int] | None:
    """What belongs to another user, in words, and to whom; None when all is this user's."""
    owner = _other_owner(home)
    if owner is not None:
        return f"the home {home} belongs to", owner
    owner = _other_owner(home.parent, trusted=(_ROOT,)) if found else None
    if owner is not None:
        return f"the home {home} lies in a directory of", owner
    for path in _entries(home):
        owner = _other_owner(path, trusted=(_ROOT,))
        if owner is not None:
            return f"{path} belongs to", owner
    return None


def _other_owner(path: Path, trusted: tuple[int, ...] = ()) -> int | None:
    """The user that a path, or what it leads to as a link, belongs to, if that is another one; None for what is missing."""
    for look in (os.lstat, os.stat):
        try:
            owner = look(path).st_uid
        except OSError:
            return None
        if owner != os.geteuid() and owner not in trusted:
            return owner
    return None


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _refuse_links(home: Path) -> None:
    """Refuse links in a home and in its directories: what is opened below them is opened by names that go through them."""
    waiting = [(home, 0)]
    while waiting:
        directory, depth = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        raise untrusted_file(entry.path, "is a symbolic link")
                    if depth == 0 and entry.is_dir(follow_symlinks=False):
                        waiting.append((Path(entry.path), depth + 1))
        except OSError:
            continue  # What cannot be looked into cannot be opened either, and its opening says so.


def _is_listed(home: Path, environment: Mapping[str, str]) -> bool:
    real = home.resolve()
    return any(real.is_relative_to(safe) for safe in _safe_directories(user_settings(environment)))


def _safe_directories(path: Path) -> list[Path]:
    """The directories that this user trusts; none without the file. A file that others could write is an error."""
    import tomllib  # noqa: PLC0415 - wanted only where a home of another user is met

    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            tables = tomllib.load(file)
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise HomeError(f"{path} cannot be read: {exc}", hint="correct the file and start again") from exc
    if found.st_uid not in {os.geteuid(), _ROOT} or stat.S_IMODE(found.st_mode) & 0o022:
        raise HomeUntrusted(
            f"{path} lists homes to trust, and {user_name(found.st_uid)} or others may write to it",
            hint=f"make it yours alone: chown and chmod 600 {path}",
            details={"path": str(path)},
        )
    if unknown := sorted(tables.keys() - {SAFE_DIRECTORIES}):
        raise HomeError(f"{path}: unknown key {unknown[0]}", hint=f"known: {SAFE_DIRECTORIES}")
    listed = tables.get(SAFE_DIRECTORIES, [])
    if not isinstance(listed, list) or not all(isinstance(one, str) and one.startswith("/") for one in listed):
        raise HomeError(
            f"{path}: {SAFE_DIRECTORIES} must be a list of absolute paths", hint="correct it and start again"
        )
    return [Path(one).resolve() for one in listed]


ROLES = ("root", "manifest", "transition", "result", "log")
KEY_FILE_CHARS_MAX = 1024
"""Far more than a key file has."""


class KeyFiles:
    """The keys of one home."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def add(self, role: str, seed: bytes, *, sync: bool = True) -> SigningKey:
        """Store a new key of a role, durable before it is returned unless the caller syncs; the seed comes from the caller."""
        key = SigningKey(seed)
        path = self._path(role, key.key_id)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(seed.hex().encode() + b"\n")
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if sync:
            # The name too: a ledger must never announce a key whose file a power cut could still take away.
            DISK.sync_directory(self.directory)
        return key

    def find(self, role: str, key_id: bytes) -> SigningKey:
        """The private key with this id; a missing, readable-by-others or foreign file is a `HomeError` naming it."""
        path = self._path(role, key_id)
        try:
            with os.fdopen(open_no_follow(path), encoding="ascii", errors="replace") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(KEY_FILE_CHARS_MAX).strip()
        except FileNotFoundError:
            raise HomeError(
                f"the {role} key {key_id.hex()[:16]} is not in {self.directory}",
                hint="restore the keys directory from a backup; without this key nothing more can be signed",
                details={"path": str(path)},
            ) from None
        except OSError as exc:
            raise HomeError(f"the key file {path} cannot be read: {exc.strerror}") from exc
        if stat.S_IMODE(mode) & 0o077:
            raise HomeError(
                f"the key file {path} is readable by others (mode {stat.S_IMODE(mode):03o})", hint=f"chmod 600 {path}"
            )
        try:
            key = SigningKey(bytes.fromhex(text))
        except (ValueError, InvalidInput):
            raise HomeError(f"the key file {path} does not hold a key") from None
        if key.key_id != key_id:
            raise HomeError(
                f"the key file {path} holds another key than its name says", hint="restore it from a backup"
            )
        return key

    def first(self, role: str, key_ids: Iterable[bytes]) -> SigningKey | None:
        """The private key of the first of these ids that is here; if none is, `HomeError` as `find`, and None for no ids at all."""
        listed = [*key_ids]
        held = [key_id for key_id in listed if self.holds(role, key_id)]
        for key_id in held or listed:
            return self.find(role, key_id)
        return None

    def holds(self, role: str, key_id: bytes) -> bool:
        """Whether there is a file for this key, usable or not."""
        return self._path(role, key_id).exists()

    def stored(self) -> Iterator[tuple[str, str]]:
        """(role, short key id) of every key file here, by name."""
        for path in sorted(self.directory.glob("*.key")):
            role, _, short = path.stem.rpartition("-")
            yield role, short

    def _path(self, role: str, key_id: bytes) -> Path:
        return self.directory / f"{role}-{key_id.hex()[:16]}.key"
