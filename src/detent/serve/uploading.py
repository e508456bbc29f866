"""Uploads as requests: bodies written while they arrive, on threads of their own, within the limits of key, workspace and disk.

The HTTP loop never waits for the disk: pieces are gathered to a quarter of a megabyte and written on a thread, and while that
goes on the client is held up, not the memory. What a request has not finished when it ends leaves nothing behind, except that an
upload in parts keeps what it has got.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

from detent.access.quotas import Uploaded, UploadQuota, upload_refusal
from detent.access.scopes import Principal
from detent.errors import DetentError, RequestRefused, StoreUnavailable, error_of
from detent.owner.home import Home
from detent.serve.incoming import Incoming
from detent.store.uploads import OPEN_MAX, Open, PartFile, Uploads, mismatch

T = TypeVar("T")
OpenUpload: TypeAlias = Open

AT_ONCE_MAX: Final = 8
"""Uploads of one credential that are being written."""
THREADS: Final = 4
GATHER_BYTES: Final = 256 * 1024
SYNC_BYTES: Final = 64 * 1024 * 1024
"""How much of a long body a power cut may take."""
SWEEP_SECONDS: Final = 3_600.0


class Uploading:
    """The uploads of one server. For the HTTP loop."""

    def __init__(self, home: Home, own_quota: Callable[[str, str], int | None]) -> None:
        """``own_quota`` gives a number that a workspace has for itself; where it has none, the settings hold."""
        self._uploads = Uploads(home.uploads, home.content_files())
        self._settings: UploadQuota = home.settings().uploads
        self._own_quota = own_quota
        self._pool = ThreadPoolExecutor(THREADS, "detent-upload")
        self._at_once: Counter[str] = Counter()
        self._writing: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take away what an earlier server left, and go on doing so."""
        await self._do(lambda: self._uploads.sweep(starting=True))
        self._task = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        """Sweep no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._pool.shutdown()
        self._uploads.close()

    async def insist_on_known(self, workspace: str, digests: list[bytes], path: str = "body") -> None:
        """Refuse content that a workspace may not name (``CONTENT_UNKNOWN``); what it may is its own for ever from now on."""
        if digests:
            await self._do(lambda: self._uploads.insist_on_known(workspace, digests, path=path))

    async def missing(self, workspace: str, digests: list[bytes]) -> list[bytes]:
        """Those of some digests that a workspace has to upload first."""
        return await self._do(lambda: self._uploads.missing(workspace, digests))

    async def put(self, principal: Principal, digest: bytes, body: Incoming) -> tuple[int, bool]:
        """Store a whole body; its size, and whether it was new to the workspace. What does not have the digest is thrown away."""
        workspace = principal.workspace
        with self._one_more(principal):
            await self._insist_on_quota(workspace, body.size_bytes or 0)
            file = await self._do(self._uploads.new_file)
            try:
                try:
                    await self._write(file, body.pieces)
                    await self._do(file.sync)
                finally:
                    file.close()
                if file.digest != digest:
                    raise mismatch(digest, file.digest or b"")
                return file.size_bytes, await self._do(lambda: self._uploads.keep(workspace, file))
            except BaseException:
                await asyncio.shield(self._do(lambda: self._uploads.drop(workspace, file)))
                raise

    async def begin(self, workspace: str, digest: bytes, size_bytes: int) -> Open:
        """Begin an upload in parts."""
        await self._insist_on_quota(workspace, size_bytes)
        return await self._do(lambda: self._uploads.begin(workspace, digest, size_bytes))

    async def find(self, workspace: str, upload_id: str) -> Open:
        """An upload in parts, as far as it has come."""
        return await self._do(lambda: self._uploads.find(workspace, upload_id))

    async def cancel(self, workspace: str, upload_id: str) -> None:
        """Give up an upload in parts."""
        with self._alone(await self.find(workspace, upload_id)):
            await self._do(lambda: self._uploads.cancel(upload_id))

    async def append(self, principal: Principal, upload_id: str, offset: int, body: Incoming) -> tuple[Open, bool]:
        """Go on with an upload in parts; where it is then, and whether it is complete.

        What came stays, also when the caller goes away in the middle. If the disk fails, this request's part is taken back.
        """
        workspace = principal.workspace
        found = await self.find(workspace, upload_id)
        with self._one_more(principal), self._alone(found):
            found = await self.find(workspace, upload_id)
            _insist_on_offset(found, offset, body.size_bytes)
            await self._do(lambda: self._uploads.insist_on_room(body.size_bytes or 0))
            file = await self._do(lambda: self._uploads.append_to(found))
            try:
                await self._write(file, body.pieces, found.size_bytes)
            except StoreUnavailable:
                await self._do(file.undo)
                raise
            finally:
                try:
                    await asyncio.shield(self._do(file.sync))
                finally:
                    file.close()
            now = found._replace(offset=file.size_bytes)
            complete = now.offset == now.size_bytes
            if complete:
                await self._do(lambda: self._uploads.complete(workspace, now, file.digest))
            return now, complete

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _write(self, file: PartFile, pieces: AsyncIterator[bytes], size_max: int | None = None) -> None:
        """Write pieces as they come; a failure keeps what came before it."""
        gathered, synced = bytearray(), file.size_bytes
        try:
            async for piece in pieces:
                gathered += piece
                if size_max is not None and file.size_bytes + len(gathered) > size_max:
                    gathered.clear()
                    raise RequestRefused(f"the upload has {size_max:,} bytes; more came", code="UPLOAD_OFFSET")
                if len(gathered) >= GATHER_BYTES:
                    data = bytes(gathered)
                    gathered.clear()
                    await self._do(lambda: file.write(data))  # noqa: B023 - awaited at once
                    if file.size_bytes - synced >= SYNC_BYTES:
                        synced = file.size_bytes
                        await self._do(file.sync)
        finally:
            if gathered:
                data = bytes(gathered)
                await asyncio.shield(self._do(lambda: file.write(data)))

    def _quota(self, workspace: str) -> UploadQuota:
        stored, day = (self._own_quota(workspace, name) for name in ("stored_bytes", "upload_bytes_per_day"))
        settings = self._settings
        return UploadQuota(
            settings.stored_bytes_max if stored is None else stored,
            settings.day_bytes_max if day is None else day,
            settings.day_count_max,
        )

    async def _insist_on_quota(self, workspace: str, size_bytes: int) -> None:
        quota = self._quota(workspace)

        def check() -> None:
            usage = self._uploads.usage(workspace)
            so_far = Uploaded(usage.stored_bytes, usage.day_bytes, usage.day_count, usage.day_began_ms)
            refusal = upload_refusal(quota, so_far, size_bytes, now_ms=time.time_ns() // 1_000_000)
            if refusal is not None:
                raise error_of(
                    refusal, hint="[uploads] in the settings of the home says how much, or the quotas of the workspace"
                )
            if usage.open_count >= OPEN_MAX:
                raise RequestRefused(f"the workspace has {OPEN_MAX:,} uploads open", code="UPLOADS_FULL")
            self._uploads.insist_on_room(size_bytes)

        await self._do(check)

    @contextmanager
    def _one_more(self, principal: Principal) -> Iterator[None]:
        credential_id = principal.credential_id
        most = self._own_quota(principal.workspace, "uploads_at_once") or AT_ONCE_MAX
        if self._at_once[credential_id] >= most:
            raise RequestRefused(f"a credential has at most {most} uploads at once", code="UPLOADS_FULL")
        self._at_once[credential_id] += 1
        try:
            yield
        finally:
            self._at_once[credential_id] -= 1
            if not self._at_once[credential_id]:
                del self._at_once[credential_id]

    @contextmanager
    def _alone(self, upload: Open) -> Iterator[None]:
        if upload.upload_id in self._writing:
            raise RequestRefused("another request is writing to this upload", code="UPLOAD_OFFSET")
        self._writing.add(upload.upload_id)
        try:
            yield
        finally:
            self._writing.discard(upload.upload_id)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self._do(self._uploads.sweep)
            except DetentError:
                continue  # The disk may be full; the next hour tries again.

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _insist_on_offset(upload: Open, offset: int, size_bytes: int | None) -> None:
    if offset != upload.offset or offset + (size_bytes or 0) > upload.size_bytes:
        raise RequestRefused(
            f"the upload has {upload.offset:,} of {upload.size_bytes:,} bytes; this request begins at {offset:,}"
            + ("" if size_bytes is None else f" and has {size_bytes:,}"),
            code="UPLOAD_OFFSET",
            hint="HEAD the upload and go on from its Upload-Offset",
            details={"headers": {"upload-offset": upload.offset}},
        )
