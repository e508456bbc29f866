"""Downloads: URLs that let their holder fetch one file of a job for a while, and the bytes behind them.

A URL is bound to method, host, path, tenant, digest and time (`artifacts/signed_url.py`). The secrets lie in the home, in
`serve/url-keys`: the first line signs, all of them are honoured. Remove a line and its URLs end.

A file is read whole and compared with its digest once for each (inode, size, time of change), then sent from any offset. The weak
spot: a change that keeps all three is not noticed until the server starts again; `detent verify` notices it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from detent.access.headers import path_part
from detent.artifacts.content_type import HEAD_BYTES, INLINE, TEXT, Kind, headers, sniff
from detent.artifacts.signed_url import Access, UrlKey, check, sign
from detent.canon import digest_text, parse_digest
from detent.errors import DetentError, HomeError, InvalidInput, Refused, error_of
from detent.serve.incoming import Head
from detent.store.content import ContentFiles
from detent.store.files import open_no_follow, read_no_follow, replace_no_follow
from detent.store.streams import pieces_of, wrong_bytes

KEYS_FILE: Final = "url-keys"
LIFETIME_S: Final = 900
STEP_S: Final = 300
"""URLs made within such a span are the same, so that a listing can be compared by its tag."""
PIECE_BYTES: Final = 256 * 1024
VERIFIED_MAX: Final = 10_000
THREADS: Final = 4
SHOWN: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", TEXT})
"""What a browser may show; everything else is saved."""
_DIGEST: Final = re.compile(r"(?:.*&)?digest=sha256%3A([0-9a-f]{64})(?:&.*)?")


class Link(NamedTuple):
    """A signed URL."""

    url: str
    expires_s: int


class Opened(NamedTuple):
    """A file that is about to be sent, verified."""

    size_bytes: int
    kind: Kind
    read: Callable[[int, int], bytes]
    """So many bytes from an offset."""
    close: Callable[[], None]


class Downloads:
    """The downloads of one server."""

    def __init__(self, files: ContentFiles, keys: Mapping[str, UrlKey], public_url: str | None) -> None:
        self._files, self._keys, self._public_url = files, keys, public_url
        self._pool = ThreadPoolExecutor(THREADS, "detent-download")
        self._verified: OrderedDict[tuple[bytes, int, int, int], None] = OrderedDict()
        self._verifying: dict[bytes, asyncio.Lock] = {}

    def close(self) -> None:
        """Finish what is being read."""
        self._pool.shutdown()

    # -- URLs ----------------------------------------------------------------------------------------------------------

    def expires_s(self) -> int:
        """When a URL that is made now ends."""
        return (int(time.time()) // STEP_S + 1) * STEP_S + LIFETIME_S

    def link(self, head: Head, workspace: str, artifact: Mapping[str, Any]) -> Link:
        """A URL for one file of a job of a workspace, under the name of the server that the caller used."""
        base = self._public_url or f"{head.scheme}://{head.host}"
        access = Access(
            method="GET",
            host=urlsplit(base).netloc.lower(),
            path=f"/v1/files/{workspace}/{path_part(str(artifact['artifact_id']))}/{plain_name(artifact)}",
            expires_s=self.expires_s(),
            tenant=workspace,
            digest=parse_digest(str(artifact["digest"])),
            disposition=INLINE,
        )
        return Link(f"{base}{access.path}?{sign(access, next(iter(self._keys.values())))}", access.expires_s)

    def checked(self, head: Head, workspace: str) -> Access:
        """What a request with a signed URL may have; `URL_INVALID` for anything else. Nothing is looked up before this."""
        found = _DIGEST.fullmatch(head.query)
        access = check(
            head.query,
            method=head.method,
            host=head.host,
            path=head.path,
            tenant=workspace,
            digest=bytes.fromhex(found[1]) if found else bytes(32),
            keys=self._keys,
            now_s=int(time.time()),
        )
        if isinstance(access, Refused):
            raise error_of(access, hint="GET /v1/jobs/{job_id}/artifacts gives new URLs")
        return access

    # -- bytes ---------------------------------------------------------------------------------------------------------

    async def open(self, digest: bytes, inline: bytes | None) -> Opened:
        """The bytes of a digest, verified whole; `CONTENT_GONE` when they are not here."""
        if inline is not None:
            if hashlib.sha256(inline).digest() != digest:
                raise wrong_bytes(digest_text(digest))
            return Opened(len(inline), sniff(inline), lambda first, count: inline[first : first + count], lambda: None)
        loop = asyncio.get_running_loop()
        try:
            handle = await loop.run_in_executor(self._pool, lambda: open_no_follow(self._files.path(digest)))
        except FileNotFoundError:
            raise DetentError("the content was erased or is not stored here", code="CONTENT_GONE") from None
        try:
            await self._verify(handle, digest)
            size = os.fstat(handle).st_size
            begins = await loop.run_in_executor(self._pool, lambda: os.pread(handle, HEAD_BYTES, 0))
        except BaseException:
            os.close(handle)
            raise
        return Opened(
            size,
            sniff(begins),
            lambda first, count: os.pread(handle, count, first),
            lambda: os.close(handle),
        )

    async def _verify(self, handle: int, digest: bytes) -> None:
        lock = self._verifying.setdefault(digest, asyncio.Lock())
        try:
            async with lock:
                status = os.fstat(handle)
                mark = (digest, status.st_ino, status.st_size, status.st_mtime_ns)
                if mark in self._verified:
                    self._verified.move_to_end(mark)
                    return
                await asyncio.get_running_loop().run_in_executor(self._pool, _insist_on_digest, handle, digest)
                self._verified[mark] = None
                while len(self._verified) > VERIFIED_MAX:
                    self._verified.popitem(last=False)
        finally:
            self._verifying.pop(digest, None)

    async def pieces(self, opened: Opened, first: int, stop: int) -> AsyncIterator[bytes]:
        """The bytes from one offset up to another, piece by piece."""
        loop = asyncio.get_running_loop()
        try:
            while first < stop:
                count = min(PIECE_BYTES, stop - first)
                piece = await loop.run_in_executor(self._pool, opened.read, first, count)
                if not piece:
                    raise wrong_bytes("a file that is being sent became shorter, so it")
                first += len(piece)
                yield piece
        finally:
            opened.close()


def plain_name(artifact: Mapping[str, Any]) -> str:
    """The last part of a file's URL: its name, of plain characters alone."""
    name = str(artifact["metadata"].get("name") or f"artifact.{artifact['format']}")
    return re.sub(r"[^A-Za-z0-9._-]", "_", name.rpartition("/")[2])[-100:].lstrip(".") or "artifact"


def shown_headers(opened: Opened, artifact: Mapping[str, Any]) -> dict[str, str]:
    """What the answer with a file tells a browser: its type, not to guess another, to run nothing, and whether to show it."""
    kind = opened.kind
    kind = Kind(kind.content_type, kind.may_inline and kind.content_type in SHOWN, kind.format)
    name = str(artifact["metadata"].get("name") or plain_name(artifact)).rpartition("/")[2]
    return {key.lower(): value for key, value in headers(kind, name).items()}


def url_keys(directory: Path) -> dict[str, UrlKey]:
    """The keys of signed URLs, made when they are first needed; the first one signs."""
    path = directory / KEYS_FILE
    try:
        lines = read_no_follow(path).decode("ascii").split("\n")
    except FileNotFoundError:
        lines = [f"k{secrets.token_hex(4)} {secrets.token_hex(32)}"]
        replace_no_follow(path, f"{lines[0]}\n".encode())
    except UnicodeDecodeError:
        lines = [""]
    try:
        keys = [UrlKey(name, bytes.fromhex(secret)) for name, _, secret in (one.partition(" ") for one in lines if one)]
    except (ValueError, InvalidInput):
        keys = []
    if not keys or path.stat().st_mode & 0o077:
        raise HomeError(
            f"{path} does not hold keys, or can be read by others",
            hint="remove it: the server makes a new key when it starts, and URLs that it signed before end",
        )
    return {key.key_id: key for key in keys}


def checked_public_url(written: str) -> str:
    """The base of signed URLs, as --public-url says it: scheme and host, nothing else."""
    parts = urlsplit(written)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.netloc
        or parts.path.strip("/")
        or parts.query
        or "@" in written
    ):
        raise InvalidInput(
            f"--public-url {written!r:.100} is not the address of a server",
            hint="write it as https://detent.example.org",
        )
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _insist_on_digest(handle: int, digest: bytes) -> None:
    found = hashlib.sha256()
    with os.fdopen(os.dup(handle), "rb") as file:
        file.seek(0)
        for piece in pieces_of(file):
            found.update(piece)
    if found.digest() != digest:
        raise wrong_bytes(digest_text(digest))
