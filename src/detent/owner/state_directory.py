"""What is kept about a home outside of it, in the user's state directory: tree heads and where the ledger lives.

A keeper of tree heads outside the home: one small file for each ledger in the user's state directory.

Replacing a home by an older copy, by malice or from a backup, replaces its tree heads too; the one kept
here is still there, and the owner refuses to sign on top of a ledger that is shorter than what it once was (X-178).

Where a ledger lives, kept beside its tree heads in the user's state directory: so a copied home is known as a copy (X-200).

A home that was copied has the same ledger, keys and tree heads as its original. What tells them apart is that the original
is still where it was. So the owner of a home writes down where that is, under the name the ledger goes by, and looks before it
writes: a home at another place, while the one that was written down is still there, is a copy.

* A home that was renamed or moved is not a copy: nothing is left at its old place.
* A home restored from a backup to its old place is not a copy: it is the original, and its kept tree heads say whether it is older.
* A copy with an identity of its own that takes the original's place must hold all that the original was known to hold.

Known weak spot: a copy on another machine, or of another user, finds no note of its original. `detent copy --force` is for those.
"""

from __future__ import annotations

import glob
import json
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

from detent.canon import decode, encode
from detent.canon.cbor import NotCanonical
from detent.canon.late import dataclass
from detent.errors import DetentError, HomeCopied, HomeError, StoreUnavailable
from detent.ledger import SignedTrust, Trust, TrustConfig
from detent.owner.home import Home, is_home
from detent.owner.home_permissions import refuse_foreign_state
from detent.owner.ledgers import open_ledger
from detent.store.api import StoreReader
from detent.store.files import read_no_follow, replace_no_follow

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Room for the heads of as many partitions as a ledger can have."""


def state_directory(environment: Mapping[str, str]) -> Path:
    """Where tree heads are kept: ``XDG_STATE_HOME``, else ``~/.local/state``."""
    base = environment.get("XDG_STATE_HOME")
    home = environment.get("HOME") or Path("~").expanduser()
    return (Path(base) if base else Path(home) / ".local" / "state") / "detent" / "heads"


class KeptHeads:
    """Keeps the newest tree head of each partition of one ledger."""

    def __init__(self, directory: Path, origin: str) -> None:
        self.path = directory / (re.sub(r"[^A-Za-z0-9.-]", "_", origin) + ".heads")
        self._lock = threading.Lock()  # The owners of all partitions keep their heads in this one file.

    def heads(self) -> dict[int, tuple[int, str]]:
        """Partition -> (size, note) of what is kept; empty when nothing is.

        Raises `HomeError` when the file is there but not readable as such: a keeper that forgets silently keeps nothing.
        """
        refuse_foreign_state(self.path.parent)
        try:
            data = read_no_follow(self.path)
        except FileNotFoundError:
            return {}
        except OSError as exc:
            raise HomeError(f"the kept tree heads in {self.path} cannot be read: {exc.strerror}") from exc
        try:
            entries = decode(data, bytes_max=KEPT_BYTES_MAX)
            return {partition: (size, note) for partition, size, note in entries}
        except (NotCanonical, TypeError, ValueError) as exc:
            raise HomeError(
                f"the kept tree heads in {self.path} are damaged",
                hint="compare the ledger with a tree head kept elsewhere, then remove the file",
            ) from exc

    def prepare(self) -> None:
        """Make sure that something can be kept, before an owner begins that would fail with its first tree head."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass
            self._sweep()
        except OSError as exc:
            raise self._unwritable(exc) from exc

    def keep(self, partition: int, size: int, note: str) -> None:
        """Replace the kept head of a partition by a newer one; an older one changes nothing."""
        with self._lock:
            heads = self.heads()
            if partition in heads and heads[partition][0] >= size:
                return
            heads[partition] = (size, note)
            try:
                self._write(encode([[number, *heads[number]] for number in sorted(heads)]))
            except OSError as exc:
                raise self._unwritable(exc) from exc

    def forget(self) -> None:
        """Drop what is kept: only when a ledger's rollback is accepted on purpose."""
        self.path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove what processes left that were killed while they wrote, these heads or the place of their home."""
        for left in self.path.parent.glob(f"{glob.escape(self.path.stem)}.*.tmp"):
            pid = left.name.split(".")[-2]
            if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
                left.unlink(missing_ok=True)

    def _unwritable(self, error: OSError) -> HomeError:
        return HomeError(
            f"a tree head cannot be kept in {self.path}: {error.strerror or error}",
            hint="make that directory writable, or set XDG_STATE_HOME to one that is",
        )

    def _write(self, data: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_no_follow(self.path, data)


COPY_HINT = "`detent copy` has given it a name and keys of its own"


@dataclass(frozen=True, slots=True)
class Place:
    """A directory by its path and by what the system calls it."""

    path: str
    device: int
    inode: int

    @classmethod
    def of(cls, home: Home) -> Place:
        """Where a home is now."""
        found = home.path.stat()
        return cls(str(home.path.resolve()), found.st_dev, found.st_ino)

    def is_same(self, other: Place) -> bool:
        """Whether it is one place: a directory that was renamed keeps its number, one that was restored its path."""
        return self.path == other.path or (self.device, self.inode) == (other.device, other.inode)


class PlaceKeeper:
    """The note of where one ledger lives."""

    def __init__(self, environment: Mapping[str, str], origin: str) -> None:
        self.path = state_directory(environment) / (re.sub(r"[^A-Za-z0-9.-]", "_", origin) + ".place")

    def read(self) -> Place | None:
        """What is noted; None when nothing is, or nothing that can be read."""
        refuse_foreign_state(self.path.parent)
        try:
            said = json.loads(read_no_follow(self.path))
            return Place(str(said["path"]), int(said["device"]), int(said["inode"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, place: Place) -> None:
        """Note a place in the stead of what was noted."""
        text = json.dumps({"path": place.path, "device": place.device, "inode": place.inode})
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_no_follow(self.path, f"{text}\n".encode())
        except OSError as exc:
            raise HomeError(
                f"the place of the home cannot be kept in {self.path}: {exc.strerror or exc}",
                hint="make that directory writable, or set XDG_STATE_HOME to one that is",
            ) from exc


def ledger_name(reader: StoreReader) -> str:
    """The name that a ledger goes by now, as it says itself; what it does not prove is for others to find."""
    announced = list(reader.records_of_kind(0, "trust_changed"))
    with suppress(DetentError):
        return TrustConfig.parse(SignedTrust.parse(announced[-1].evidence or b"").body).origin if announced else ""
    return reader.origin


def copied_from(home: Home, environment: Mapping[str, str]) -> Path | None:
    """The home that this one is a copy of, for those who only look: None also when its ledger cannot be read."""
    with suppress(DetentError, OSError), closing(open_ledger(home.ledger)) as reader:
        return original_of(home, ledger_name(reader), environment)
    return None


def original_of(home: Home, origin: str, environment: Mapping[str, str]) -> Path | None:
    """The home that this one is a copy of; None when it is none, or its original is not there any more."""
    noted = PlaceKeeper(environment, origin).read()
    if noted is None or noted.is_same(Place.of(home)) or not isinstance(home.ledger, Path):
        return None
    path = Path(noted.path)
    try:
        if is_home(path) and Home(path).settings().root == home.settings().root:
            return path
    except StoreUnavailable:
        return path  # It is there, and this user may not look into it.
    except HomeError:
        pass
    return None


def refuse_copy(home: Home, origin: str, environment: Mapping[str, str]) -> None:
    """Refuse, with `HomeCopied`, a copy that has no identity of its own."""
    original = original_of(home, origin, environment)
    if original is not None:
        raise copied(home, original)


def copied(home: Home, original: Path) -> HomeCopied:
    """That a home is a copy, whose, and what to do."""
    return HomeCopied(
        f"the home {home.path} is a copy of {original}",
        hint="`detent copy` gives it a name and keys of its own, after which both can be used; or work in the original",
        details={"home": str(home.path), "original": str(original)},
    )


def settle_in(home: Home, origin: str, environment: Mapping[str, str]) -> None:
    """Note that a ledger lives here; refuse a copy of one that lives elsewhere."""
    refuse_copy(home, origin, environment)
    keeper, here = PlaceKeeper(environment, origin), Place.of(home)
    if keeper.read() != here:
        keeper.write(here)


def binding_heads(home: Home, trust: Trust, environment: Mapping[str, str]) -> Iterator[tuple[int, tuple[int, str]]]:
    """(partition, (size, note)) of the kept tree heads that a home must continue: those of its own name, and displaced ones."""
    yield from KeptHeads(state_directory(environment), trust.origin).heads().items()
    yield from displaced_heads(home, trust, environment)


def displaced_heads(home: Home, trust: Trust, environment: Mapping[str, str]) -> Iterator[tuple[int, tuple[int, str]]]:
    """The kept tree heads of an original whose place a copy has taken.

    With a name of its own it would otherwise pass for the original, without what that held.
    """
    for name, _ in _displaced(home, trust, environment):
        yield from KeptHeads(state_directory(environment), name).heads().items()


def forget_bound_heads(home: Home, trust: Trust, environment: Mapping[str, str]) -> None:
    """Give up what a home would have to continue: only when a rollback is accepted on purpose.

    Tree heads of an original stay, because it may yet come back; they no longer bind this home.
    """
    KeptHeads(state_directory(environment), trust.origin).forget()
    for _, note in list(_displaced(home, trust, environment)):
        note.path.unlink(missing_ok=True)


def _displaced(home: Home, trust: Trust, environment: Mapping[str, str]) -> Iterator[tuple[str, PlaceKeeper]]:
    here = Place.of(home)
    for version in trust.copies:
        name = version.config.copy_of or ""
        keeper = PlaceKeeper(environment, name)
        noted = keeper.read()
        if noted is not None and noted.is_same(here):
            yield name, keeper
