"""Artifacts of a job, copied out of the content store, or from a server, into a directory of the user's.

A file appears under its name whole or not at all, and only if its bytes have the digest that the signed result names. Nothing is
overwritten unless that was asked for. Names come from untrusted code: only a plain file name is used, anything else is replaced
by the artifact's id, so no name leads out of the directory.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from detent.canon import digest_text, parse_digest
from detent.canon.late import dataclass, pattern
from detent.errors import DetentError, InvalidInput
from detent.store.streams import VerifiedStream

PLAIN_NAME: Final = pattern(r"[A-Za-z0-9_][A-Za-z0-9_. +@=-]{0,199}")
COPY_BYTES: Final = 1 << 20


class Streams(Protocol):
    """Where artifacts come from: the content store of a home, or a server."""

    def stream(self, digest: bytes, /) -> VerifiedStream | None:
        """The bytes of a digest, checked while they are read; None when they are gone."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """An artifact that is in a directory now."""

    artifact_id: str
    path: Path
    size_bytes: int
    digest: str

    def to_map(self) -> dict[str, Any]:
        """As data."""
        return {
            "artifact_id": self.artifact_id,
            "path": str(self.path),
            "size_bytes": self.size_bytes,
            "digest": self.digest,
        }


def chosen(artifacts: Sequence[Mapping[str, Any]], wanted: Sequence[str]) -> list[Mapping[str, Any]]:
    """The artifacts that ids, numbers or names mean; all of them when none is given. Refuses what means none."""
    if not wanted:
        return list(artifacts)
    found = []
    for word in wanted:
        means = [one for one in artifacts if word in (one["artifact_id"], _number(one), one["metadata"].get("name"))]
        if not means:
            known = ", ".join(str(one["artifact_id"]) for one in artifacts[:10]) or "none"
            raise InvalidInput(f"the job has no artifact {word!r:.80}", hint=f"its artifacts: {known}")
        found += [one for one in means if one not in found]
    return found


def fetch_artifacts(
    files: Streams, artifacts: Sequence[Mapping[str, Any]], directory: Path, *, force: bool = False
) -> list[Fetched]:
    """Copy artifacts into a directory, which is made if need be; where each is now.

    Raises `InvalidInput` before anything is written if a file is in the way that has other bytes, unless ``force``; and
    `DetentError` (``CONTENT_GONE``) for an artifact that was erased.
    """
    directory.mkdir(parents=True, exist_ok=True)
    targets = _targets(artifacts, directory)
    if not force:
        for path, artifact in targets.items():
            if os.path.lexists(path) and not _is_same(path, artifact):
                raise InvalidInput(
                    f"{path} exists and is another file", hint="--force overwrites it; --output names another directory"
                )
    return [_fetch(files, artifact, path, force=force) for path, artifact in targets.items()]


def file_name(artifact: Mapping[str, Any]) -> str:
    """The name that an artifact gets in a directory: its own where it is plain, else its id and its format."""
    name = artifact["metadata"].get("name")
    if isinstance(name, str) and PLAIN_NAME.fullmatch(name):
        return name
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"artifact-{artifact['artifact_id']}.{artifact['format']}")


def _targets(artifacts: Sequence[Mapping[str, Any]], directory: Path) -> dict[Path, Mapping[str, Any]]:
    """Where each artifact goes; of several with one name the later ones get their number before it."""
    targets: dict[Path, Mapping[str, Any]] = {}
    for artifact in artifacts:
        name = file_name(artifact)
        path = directory / name
        targets[path if path not in targets else directory / f"{_number(artifact)}-{name}"] = artifact
    return targets


def _number(artifact: Mapping[str, Any]) -> str:
    """The last part of an artifact's id: ``2`` of ``JOB.2``."""
    return str(artifact["artifact_id"]).rpartition(".")[2]


def _is_same(path: Path, artifact: Mapping[str, Any]) -> bool:
    import hashlib  # noqa: PLC0415 - only where a file is in the way

    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return digest_text(hashlib.file_digest(file, "sha256").digest()) == str(artifact["digest"])


def _fetch(files: Streams, artifact: Mapping[str, Any], path: Path, *, force: bool) -> Fetched:
    digest = parse_digest(str(artifact["digest"]))
    stream = files.stream(digest)
    if stream is None:
        raise DetentError(
            f"the artifact {artifact['artifact_id']} is gone",
            code="CONTENT_GONE",
            hint="it was erased, or the home is damaged: `detent verify` tells which",
            details={"artifact_id": artifact["artifact_id"], "digest": digest_text(digest)},
        )
    with stream:
        size = _write(stream, path, force=force)
    return Fetched(str(artifact["artifact_id"]), path, size, digest_text(digest))


def _write(stream: VerifiedStream, path: Path, *, force: bool) -> int:
    """Copy a stream to a file under a name of its own, then give it its name; the stream ends only if its digest fits."""
    handle, unfinished = tempfile.mkstemp(prefix=".detent-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            size = 0
            while piece := stream.read1(COPY_BYTES):
                size += file.write(piece)
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            file.flush()
            os.fsync(file.fileno())
        if force:
            Path(unfinished).replace(path)
        else:
            with suppress(FileExistsError):  # The same bytes: another file was refused before anything was written.
                os.link(unfinished, path)
    finally:
        Path(unfinished).unlink(missing_ok=True)
    return size


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
