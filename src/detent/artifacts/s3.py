"""Artifacts in a bucket that speaks S3, through `obstore`.

``PREFIX/ab/cdef…`` holds the bytes whose SHA-256 is ``abcdef…``. The key is known only when all bytes have been hashed, so
content that does not fit into one part waits in a temporary file of our own: what is uploaded is what was hashed, even if the
source changes, and memory stays bounded.

One part is put on condition that there is no such object. S3 has no such condition for uploads in parts that every server
honours; there the object is asked for first, and two writers who ask at the same time upload the same bytes to the same key.

Servers accept wrong checksums and buckets have other writers, so nothing that is read is believed before it was hashed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

from detent.artifacts.api import READ_BYTES_MAX, Source, Stored, insist_on_digest, opened, too_large
from detent.canon import sha256
from detent.errors import InvalidInput, StoreCorrupt, StoreUnavailable
from detent.store.streams import VerifiedStream, copy_hashed, insist_on_announced, wrong_bytes

PART_BYTES: Final = 8 * 1024 * 1024
"""The largest content that is put at once, and the size of a part beyond that."""
PARTS_MAX: Final = 10_000
"""As S3 has it: larger content gets larger parts."""
UPLOADS_AT_ONCE: Final = 2
LIST_KEYS: Final = 1_000
_HEX: Final = frozenset("0123456789abcdef")


class S3Store:
    """A store of artifacts in a bucket, below a prefix.

    Credentials, region and endpoint come from ``AWS_*`` variables unless ``config`` says otherwise; ``spool`` is the
    directory for content on its way. Raises `StoreUnavailable` when the bucket cannot be listed.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        config: Mapping[str, Any] | None = None,
        client_options: Mapping[str, Any] | None = None,
        retry: Mapping[str, Any] | None = None,
        spool: str | None = None,
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        self._spool = spool
        self._api = _obstore()
        with self._translated():
            self._store = self._api.store.S3Store(
                bucket,
                prefix=self._prefix or None,
                config=config,
                client_options=client_options,
                retry_config=retry,
            )
        self._insist_on_bucket()

    def put(self, source: Source, *, digest: bytes | None = None, bytes_max: int | None = None) -> Stored:
        """Keep content; see `ArtifactStore.put`."""
        if digest is not None:
            insist_on_digest(digest)
        with tempfile.SpooledTemporaryFile(max_size=PART_BYTES, dir=self._spool) as spool:
            with opened(source) as readable, _spooling():
                found, size = copy_hashed(readable, lambda _: _Spool(spool), bytes_max=bytes_max)
            insist_on_announced(found, digest)
            spool.seek(0)
            if size <= PART_BYTES:
                self._put_at_once(found, spool.read())
            else:
                self._put_in_parts(found, spool, size)
        return Stored(found, size, self._uri(found))

    def open(self, digest: bytes) -> VerifiedStream | None:
        """The bytes as a stream that verifies; see `ArtifactReader.open`."""
        size = self.size(digest)
        return None if size is None else VerifiedStream(self._pieces(digest, size), digest, self._uri(digest))

    def read_bytes(self, digest: bytes, *, bytes_max: int = READ_BYTES_MAX) -> bytes | None:
        """All the bytes, verified."""
        size = self.size(digest)
        if size is None:
            return None
        if size > bytes_max:
            raise too_large(digest, size, bytes_max)
        data = b"".join(self._pieces(digest, size))
        if sha256(data) != digest:
            raise wrong_bytes(self._uri(digest))
        return data

    def has(self, digest: bytes) -> bool:
        """Whether there is content under a digest."""
        return self.size(digest) is not None

    def size(self, digest: bytes) -> int | None:
        """The number of bytes under a digest."""
        key = _key(insist_on_digest(digest))
        with self._translated():
            try:
                return int(self._api.head(self._store, key)["size"])
            except FileNotFoundError:
                pass
        # The answer to this question has no body: a missing bucket looks like a missing object.
        self._insist_on_bucket()
        return None

    def delete(self, digest: bytes) -> bool:
        """Remove content for good."""
        if not self.has(digest):
            return False
        with self._translated():
            self._api.delete(self._store, _key(digest))
        return True

    def digests(self) -> Iterator[bytes]:
        """Every digest there is content for, in order."""
        with self._translated():
            for page in self._api.list(self._store, chunk_size=LIST_KEYS):
                for entry in page:
                    found = _digest_in(str(entry["path"]))
                    if found is not None:
                        yield found

    def _put_at_once(self, digest: bytes, data: bytes) -> None:
        with self._translated():
            try:
                self._api.put(self._store, _key(digest), data, mode="create", use_multipart=False)
                return
            except self._api.exceptions.AlreadyExistsError:
                pass
        self._insist_on_size(digest, len(data))

    def _put_in_parts(self, digest: bytes, spool: IO[bytes], size: int) -> None:
        if self.has(digest):
            self._insist_on_size(digest, size)
            return
        part_bytes = max(PART_BYTES, -(-size // PARTS_MAX))
        with self._translated():
            self._api.put(
                self._store,
                _key(digest),
                iter(lambda: spool.read(part_bytes), b""),
                use_multipart=True,
                chunk_size=part_bytes,
                max_concurrency=UPLOADS_AT_ONCE,
            )
        self._insist_on_size(digest, size)

    def _pieces(self, digest: bytes, size: int) -> Iterator[bytes]:
        """The object in pieces, each a request of its own: a slow reader outlives no request's time limit."""
        for start in range(0, size, PART_BYTES):
            with self._translated():
                try:
                    end = min(start + PART_BYTES, size)
                    piece = self._api.get_range(self._store, _key(digest), start=start, end=end)
                except FileNotFoundError as exc:
                    raise StoreCorrupt(f"{self._uri(digest)} went away while it was read") from exc
            yield bytes(piece)

    def _insist_on_bucket(self) -> None:
        with self._translated():
            next(iter(self._api.list(self._store, chunk_size=1)), None)

    def _insist_on_size(self, digest: bytes, size: int) -> None:
        if self.size(digest) != size:
            raise wrong_bytes(self._uri(digest))

    def _uri(self, digest: bytes) -> str:
        return "/".join(part for part in (f"s3://{self._bucket}", self._prefix, _key(digest)) if part)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        exceptions = self._api.exceptions
        try:
            yield
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as exc:
            raise StoreUnavailable(
                f"s3://{self._bucket} does not let us in: {_first_line(exc)}",
                hint="check the credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY and the bucket's policy",
                retryable=False,
            ) from exc
        except (exceptions.BaseError, OSError, ValueError) as exc:
            if isinstance(exc, FileNotFoundError) or "NoSuchBucket" in str(exc):
                raise StoreUnavailable(
                    f"there is no bucket {self._bucket!r}", hint="make it first; Detent makes none", retryable=False
                ) from exc
            raise StoreUnavailable(
                f"s3://{self._bucket} failed: {_first_line(exc)}",
                hint="check AWS_ENDPOINT_URL, AWS_REGION and the network",
            ) from exc


class _Spool:
    """A temporary file as something to copy to. Nothing in it has to survive, so it is never synced."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def _spooling() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StoreUnavailable(
            f"content on its way to S3 cannot be kept: {exc.strerror or exc}",
            hint="check the free space of the temporary directory; TMPDIR can point elsewhere",
            details={"errno": exc.errno},
        ) from exc


def _key(digest: bytes) -> str:
    name = digest.hex()
    return f"{name[:2]}/{name[2:]}"


def _digest_in(key: str) -> bytes | None:
    """The digest that a key stands for; None for any other object in the bucket."""
    shard, _, name = key.partition("/")
    fits = len(shard) == 2 and len(name) == 62 and _HEX.issuperset(shard) and _HEX.issuperset(name)
    return bytes.fromhex(shard + name) if fits else None


def _first_line(exc: BaseException) -> str:
    """What an error says in short: the rest of it is a dump of the client's own structures."""
    return (str(exc).strip() or type(exc).__name__).splitlines()[0][:300]


def _obstore() -> Any:
    """The client, loaded when it is needed: it is an extra, and it is large."""
    try:
        import obstore  # noqa: PLC0415
        import obstore.exceptions  # noqa: PLC0415
        import obstore.store  # noqa: PLC0415
    except ImportError as exc:
        raise InvalidInput("S3 needs the package obstore", hint="pip install 'detent[s3]'") from exc
    return obstore
