"""What clients have uploaded: the bytes on their way in, and which workspace may name which digest.

    uploads/
      uploads.db   who holds what, uploads in parts, and what came in the last day
      new-...      a body that is being written          up_...   an upload in parts; its size is how far it has come

A digest is not a capability. A workspace may name content that it uploaded itself within the last day, and for ever once a job of
it has named it; what another workspace uploaded, or what merely lies in the content store, does not exist for it, and it is
answered alike whether it exists or not (`insist_on_known`).

These rows lie beside the ledger, in a file of their own: a server that is not the owner of its home takes uploads as well, and
history needs none of it. A row is written after the content is durable and before the upload is acknowledged; a digest is marked
as named before the job that names it is committed. So a crash leaves at worst content that nothing names, which garbage
collection finds.

One server of a home writes here, from several threads; others only read.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from detent.canon import digest_text
from detent.errors import DetentError, InvalidInput, StoreUnavailable
from detent.store.content import ContentFiles, marked_name
from detent.store.files import free_bytes, open_no_follow, refuse_links
from detent.store.queries import parse_queries
from detent.store.streams import Copied, pieces_of

HELD_MS: Final = 86_400_000
"""How long an uploaded digest can be named if no job names it, and how long an upload in parts may take."""
OPEN_MAX: Final = 1_000
"""Uploads in parts that a workspace may have open."""
FREE_BYTES_MIN: Final = 256 * 1024 * 1024
"""Room that uploads leave on the disk: the ledger needs some."""
_BUSY_MS: Final = 5_000
_PREFIX: Final = "up_"
_NEW: Final = "new-"


class Open(NamedTuple):
    """An upload in parts."""

    upload_id: str
    digest: bytes
    size_bytes: int
    begun_at_ms: int
    offset: int

    @property
    def expires_at_ms(self) -> int:
        """When it is given up."""
        return self.begun_at_ms + HELD_MS


class Usage(NamedTuple):
    """What a workspace has uploaded."""

    stored_bytes: int
    """What it holds, with what is on its way in parts."""
    day_count: int
    day_bytes: int
    day_began_ms: int | None
    """When the oldest of the uploads that are counted came."""
    open_count: int


class PartFile:
    """A file that is being written, with its digest as far as it has come."""

    def __init__(self, path: Path, *, append: bool = False) -> None:
        flags = os.O_WRONLY | os.O_APPEND if append else os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self.path = path
        with _translated(path):
            self._handle = open_no_follow(path, flags)
            self.size_bytes = self.began_at = os.fstat(self._handle).st_size
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Append all of the bytes."""
        rest = memoryview(data)
        with _translated(self.path):
            while rest:
                rest = rest[os.write(self._handle, rest) :]
        self._digest.update(data)
        self.size_bytes += len(data)

    def sync(self) -> None:
        """Return when everything would survive a power cut."""
        with _translated(self.path):
            os.fsync(self._handle)

    def undo(self) -> None:
        """Take back what was appended: on a full disk that makes room again."""
        with suppress(OSError):
            os.ftruncate(self._handle, self.began_at)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)

    @property
    def digest(self) -> bytes | None:
        """The digest of the whole file; None for one of which an earlier request wrote a part."""
        return self._digest.digest() if self.began_at == 0 else None


class Uploads:
    """The uploads of one home."""

    def __init__(
        self,
        directory: Path,
        content: ContentFiles,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._directory, self._content, self._now_ms = directory, content, now_ms
        self._lock = threading.Lock()
        self._database: apsw.Connection | None = None
        with _translated(directory):
            directory.mkdir(mode=0o700, exist_ok=True)

    def close(self) -> None:
        """Let go of the database."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    # -- who may name what ---------------------------------------------------------------------------------------------

    def insist_on_known(self, workspace: str, digests: Iterable[bytes], *, path: str = "body") -> None:
        """Refuse content that a workspace has not uploaded; what it has is its own for ever from now on.

        Call this before the commit of whatever names the digests: payloads, tasks, source trees. The refusal is
        ``CONTENT_UNKNOWN`` and is the same for content of others and for content that does not exist.
        """
        wanted = list(dict.fromkeys(digests))
        since_ms = self._now_ms() - HELD_MS
        unknown = [
            digest
            for digest in wanted
            if not self._rows("holds", workspace, digest, since_ms) or not self._content.has(digest)
        ]
        if unknown:
            raise InvalidInput(
                f"this workspace has not uploaded {digest_text(unknown[0])}"
                + (f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""),
                code="CONTENT_UNKNOWN",
                hint="PUT /v1/uploads/{digest} uploads it; an upload that no job names is kept for 24 hours",
                details={"errors": [{"path": path, "message": f"{digest_text(one)} is not known"} for one in unknown]},
            )
        with self._together() as execute:
            for digest in wanted:
                execute("name_held", workspace, digest)

    def missing(self, workspace: str, digests: Sequence[bytes]) -> list[bytes]:
        """Those of some digests that a workspace has to upload first, in the order asked."""
        since_ms = self._now_ms() - HELD_MS
        return [
            digest
            for digest in dict.fromkeys(digests)
            if not self._rows("holds", workspace, digest, since_ms) or not self._content.has(digest)
        ]

    def kept(self) -> set[bytes]:
        """Digests that garbage collection leaves alone: a job may still name them."""
        return {row[0] for row in self._rows("held_after", self._now_ms() - HELD_MS)}

    def forget(self, digests: Sequence[bytes]) -> None:
        """Content is erased: it has to be uploaded again before it can be named."""
        with self._together() as execute:
            for digest in digests:
                execute("forget", digest)

    def usage(self, workspace: str) -> Usage:
        """What a workspace has uploaded, for its quotas."""
        (stored,) = self._rows("stored_bytes", workspace)[0]
        count, received, began_ms = self._rows("received_after", workspace, self._now_ms() - HELD_MS)[0]
        open_count, open_bytes = self._rows("open_of_workspace", workspace)[0]
        return Usage(stored + open_bytes, count, received, began_ms, open_count)

    # -- whole bodies --------------------------------------------------------------------------------------------------

    def new_file(self) -> PartFile:
        """A file for a body that comes at once. Close it, and `keep` or `drop` it."""
        return PartFile(self._directory / f"{_NEW}{marked_name()}")

    def keep(self, workspace: str, file: PartFile) -> bool:
        """Make a whole body content of a workspace; says whether it was new to it. The file must be synced."""
        assert file.digest is not None
        return self._adopt(workspace, file.path, Copied(file.digest, file.size_bytes))

    def drop(self, workspace: str, file: PartFile) -> None:
        """Throw a body away, and count what came of it."""
        with suppress(OSError):
            file.path.unlink(missing_ok=True)
        self._write("receive", workspace, self._now_ms(), file.size_bytes)

    # -- uploads in parts ----------------------------------------------------------------------------------------------

    def begin(self, workspace: str, digest: bytes, size_bytes: int) -> Open:
        """Begin an upload in parts."""
        upload_id, now_ms = f"{_PREFIX}{os.urandom(16).hex()}", self._now_ms()
        path = self._directory / upload_id
        with _translated(path):
            os.close(open_no_follow(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        with self._together() as execute:
            execute("begin_upload", upload_id, workspace, digest, size_bytes, now_ms)
            execute("receive", workspace, now_ms, size_bytes)
        return Open(upload_id, digest, size_bytes, now_ms, 0)

    def find(self, workspace: str, upload_id: str) -> Open:
        """An upload of a workspace, as far as it has come."""
        rows = self._rows("upload", upload_id, workspace, self._now_ms() - HELD_MS)
        size = None
        if rows:
            with suppress(FileNotFoundError):
                size = (self._directory / rows[0][0]).lstat().st_size
        if size is None:
            raise InvalidInput(
                "there is no such upload in this workspace",
                code="NOT_FOUND",
                hint="an upload ends when it is complete or cancelled, or after 24 hours; POST /v1/uploads begins one",
            )
        _, digest, size_bytes, begun_at_ms = rows[0]
        return Open(upload_id, digest, size_bytes, begun_at_ms, size)

    def append_to(self, upload: Open) -> PartFile:
        """The file of an upload, to go on with. Close it, and `complete` the upload when it is whole."""
        return PartFile(self._directory / upload.upload_id, append=True)

    def complete(self, workspace: str, upload: Open, digest: bytes | None = None) -> bool:
        """Check a whole upload and make it content of the workspace; says whether it was new to it.

        An upload that does not have its digest is given up: ``DIGEST_MISMATCH``.
        """
        path = self._directory / upload.upload_id
        found = digest or _digest_of(path)
        if found != upload.digest:
            self.cancel(upload.upload_id)
            raise mismatch(upload.digest, found)
        return self._adopt(workspace, path, Copied(found, upload.size_bytes), upload.upload_id)

    def cancel(self, upload_id: str) -> None:
        """Give an upload up."""
        self._write("end_upload", upload_id)
        with suppress(OSError):
            (self._directory / upload_id).unlink(missing_ok=True)

    # -- tidying up ----------------------------------------------------------------------------------------------------

    def sweep(self, *, starting: bool = False) -> int:
        """Give up what is a day old; how many files that were. ``starting``: no other request writes here yet."""
        until_ms = self._now_ms() - HELD_MS
        late = [row[0] for row in self._rows("uploads_begun_by", until_ms)]
        for upload_id in late:
            self.cancel(upload_id)
        with self._together() as execute:
            execute("expire_held", until_ms)
            execute("expire_received", until_ms)
        left = self._left_over() if starting else []
        for path in left:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        return len(late) + len(left)

    def insist_on_room(self, size_bytes: int) -> None:
        """Refuse an upload that would fill the disk."""
        if free_bytes(self._directory) < size_bytes + FREE_BYTES_MIN:
            raise StoreUnavailable(
                "the disk of the home has no room for this upload",
                hint="`detent gc` takes away what no job needs; try again when there is room",
            )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _adopt(self, workspace: str, path: Path, copied: Copied, upload_id: str | None = None) -> bool:
        new = not self._rows("holds", workspace, copied.digest, self._now_ms() - HELD_MS)
        self._content.adopt(path, copied.digest)
        with self._together() as execute:
            execute("hold", workspace, copied.digest, copied.size_bytes, self._now_ms())
            if upload_id is not None:
                execute("end_upload", upload_id)
            else:
                execute("receive", workspace, self._now_ms(), copied.size_bytes)
        return new

    def _left_over(self) -> list[Path]:
        """Files that no upload needs: what a killed server was writing, and parts whose upload is over."""
        known = {row[0] for row in self._rows("all_uploads")}
        return [
            path
            for path in self._directory.iterdir()
            if path.name.startswith((_PREFIX, _NEW)) and path.name not in known
        ]

    def _rows(self, name: str, *values: Any) -> list[Any]:
        with self._lock, _translated(self._directory):
            return self._open().execute(_sql()[name], values).fetchall()

    def _write(self, name: str, *values: Any) -> None:
        with self._together() as execute:
            execute(name, *values)

    @contextmanager
    def _together(self) -> Iterator[Callable[..., object]]:
        """Writes that are durable together or not at all."""
        with self._lock, _translated(self._directory):
            database = self._open()
            database.execute(_sql()["begin"])
            try:
                yield lambda name, *values: database.execute(_sql()[name], values).fetchall()
                database.execute(_sql()["commit"])
            except BaseException:
                with suppress(apsw.Error):
                    database.execute(_sql()["rollback"])
                raise

    def _open(self) -> apsw.Connection:
        if self._database is None:
            path = self._directory / "uploads.db"
            refuse_links(path, path.with_name("uploads.db-wal"), path.with_name("uploads.db-shm"))
            database = apsw.Connection(str(path))
            database.set_busy_timeout(_BUSY_MS)
            for setting in ("journal_mode=WAL", "synchronous=FULL", "trusted_schema=OFF", "cell_size_check=ON"):
                database.pragma(*setting.split("="))
            for name, statement in _sql().items():
                if name.startswith("create_"):
                    database.execute(statement)
            self._database = database
        return self._database


def uploads_kept(
    directory: Path, content: ContentFiles, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
) -> set[bytes]:
    """What garbage collection leaves alone in a home; nothing where no server ever took an upload."""
    if not (directory / "uploads.db").exists():
        return set()
    with closing(Uploads(directory, content, now_ms=now_ms)) as uploads:
        return uploads.kept()


def mismatch(announced: bytes, found: bytes) -> InvalidInput:
    """The refusal of bytes that do not have the digest they were announced with."""
    return InvalidInput(
        f"the bytes announced as {digest_text(announced)} have the digest {digest_text(found)}",
        code="DIGEST_MISMATCH",
        hint="they were changed or cut short on their way, or the digest is that of other bytes; nothing was kept",
    )


def _digest_of(path: Path) -> bytes:
    digest = hashlib.sha256()
    with _translated(path), os.fdopen(open_no_follow(path), "rb") as file:
        for piece in pieces_of(file):
            digest.update(piece)
    return digest.digest()


@cache
def _sql() -> dict[str, str]:
    return dict(parse_queries(files("detent.store").joinpath("uploads.sql").read_text(encoding="utf-8")))


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except DetentError:
        raise
    except (OSError, apsw.Error) as exc:
        raise StoreUnavailable(
            f"the upload cannot be written: {getattr(exc, 'strerror', None) or exc}",
            hint="check the free space of the home's disk and its permissions",
            details={"path": str(path)},
        ) from exc
