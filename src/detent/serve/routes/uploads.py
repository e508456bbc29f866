"""Uploads: content for jobs and source trees, which name it by its digest.

A body up to 64 MiB is sent at once. A larger one is sent in parts: begin it, send parts from the offset that `HEAD` tells, and it is
complete when it has its size; then it is checked. What a workspace uploaded, only that workspace may name.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Final

from pydantic import Field

from detent.canon import digest_text, parse_digest, tick_to_iso
from detent.errors import InvalidInput
from detent.serve.call import WHOLE, Answer, Call, Shape
from detent.serve.table import Route
from detent.serve.uploading import OpenUpload

PUT_BYTES_MAX: Final = 64 * 1024 * 1024
PART_BYTES_MAX: Final = 50 * 1024**3
DIGEST_PATTERN: Final = r"^sha256:[0-9a-f]{64}$"
BYTES: Final = "application/octet-stream"
PART: Final = "application/partial-upload"
_CONTENT_DIGEST: Final = re.compile(r"([a-z][a-z0-9-]{0,31})=:([A-Za-z0-9+/]{2,200}={0,2}):")
_OFFSET: Final = re.compile(r"[0-9]{1,15}")


class UploadStart(Shape):
    """What is going to be uploaded."""

    digest: Annotated[str, Field(pattern=DIGEST_PATTERN)]
    size_bytes: Annotated[int, Field(ge=0, le=PART_BYTES_MAX), WHOLE]


class Upload(Shape):
    """How far an upload has come."""

    upload_id: str
    digest: str
    size_bytes: int
    offset: int
    complete: bool
    expires_at: str
    """When an upload that is not complete is given up."""


class Stored(Shape):
    """Content that this workspace may name."""

    digest: str
    size_bytes: int


async def _put(call: Call) -> Answer:
    principal = call.principal
    assert principal is not None
    digest = _digest(call.path["upload"])
    _insist_on_content_digest(call.head.header(b"content-digest"), digest)
    size_bytes, new = await call.serving.uploads.put(principal, digest, call.body)
    return Answer(Stored(digest=digest_text(digest), size_bytes=size_bytes), status=201 if new else 200)


async def _begin(call: Call) -> Answer:
    body: UploadStart = call.body
    found = await call.serving.uploads.begin(call.workspace, parse_digest(body.digest), body.size_bytes)
    answer = _shown(found)
    return Answer(answer.content, status=201, headers={**answer.headers, "location": f"/v1/uploads/{found.upload_id}"})


async def _look(call: Call) -> Answer:
    return _shown(await call.serving.uploads.find(call.workspace, call.path["upload"]))


async def _append(call: Call) -> Answer:
    principal = call.principal
    assert principal is not None
    written = call.head.header(b"upload-offset") or ""
    if not _OFFSET.fullmatch(written):
        raise _invalid("header.upload-offset", "is the offset at which this part begins, as a whole number")
    found, complete = await call.serving.uploads.append(principal, call.path["upload"], int(written), call.body)
    return _shown(found, complete=complete)


async def _cancel(call: Call) -> Answer:
    await call.serving.uploads.cancel(call.workspace, call.path["upload"])
    return Answer(None, status=204)


def _shown(upload: OpenUpload, *, complete: bool = False) -> Answer:
    shown = Upload(
        upload_id=upload.upload_id,
        digest=digest_text(upload.digest),
        size_bytes=upload.size_bytes,
        offset=upload.offset,
        complete=complete,
        expires_at=tick_to_iso(upload.expires_at_ms, 1, 0),
    )
    headers = {
        "upload-offset": str(upload.offset),
        "upload-length": str(upload.size_bytes),
        "upload-complete": "?1" if complete else "?0",
    }
    return Answer(shown, headers=headers)


def _digest(written: str) -> bytes:
    if not re.fullmatch(DIGEST_PATTERN, written):
        raise _invalid("path.upload", "is the digest of the bytes: sha256: and 64 hexadecimal digits")
    return parse_digest(written)


def _insist_on_content_digest(header: str | None, digest: bytes) -> None:
    """Check a `Content-Digest` (RFC 9530) before the body is read: its sha-256 has to be the digest in the path."""
    if header is None:
        return
    found = [_CONTENT_DIGEST.fullmatch(part.strip()) for part in header.split(",")]
    if any(one is None for one in found):
        raise _invalid("header.content-digest", "is not written as in RFC 9530: sha-256=:BASE64:")
    for one in found:
        assert one is not None
        if one[1] == "sha-256":
            try:
                said = base64.b64decode(one[2], validate=True)
            except binascii.Error:
                raise _invalid("header.content-digest", "is not base64") from None
            if said != digest:
                raise InvalidInput("the Content-Digest is not the digest that the path names", code="DIGEST_MISMATCH")


def _invalid(path: str, message: str) -> InvalidInput:
    return InvalidInput(
        f"{path} {message}", code="VALIDATION_ERROR", details={"errors": [{"path": path, "message": message}]}
    )


_QUOTAS: Final = ("UPLOADS_FULL", "UPLOAD_QUOTA", "STORE_UNAVAILABLE")
ROUTES: Final = (
    Route(
        "PUT",
        "/v1/uploads/{upload}",
        _put,
        "Upload content of up to 64 MiB under its digest.",
        "artifacts:write",
        ("DIGEST_MISMATCH", *_QUOTAS),
        {201: Stored, 200: Stored},
        headers=("Content-Digest",),
        takes=(BYTES,),
        body_bytes_max=PUT_BYTES_MAX,
    ),
    Route(
        "POST",
        "/v1/uploads",
        _begin,
        "Begin an upload in parts, of up to 50 GiB.",
        "artifacts:write",
        _QUOTAS,
        {201: Upload},
        body=UploadStart,
        idempotent=True,
    ),
    Route(
        "GET",
        "/v1/uploads/{upload}",
        _look,
        "Say how far an upload in parts has come.",
        "artifacts:write",
        ("NOT_FOUND", "STORE_UNAVAILABLE"),
        {200: Upload},
    ),
    Route(
        "PATCH",
        "/v1/uploads/{upload}",
        _append,
        "Send a part of an upload, from `Upload-Offset` on; the last one completes it.",
        "artifacts:write",
        ("NOT_FOUND", "UPLOAD_OFFSET", "DIGEST_MISMATCH", *_QUOTAS),
        {200: Upload},
        headers=("Upload-Offset",),
        takes=(PART, BYTES),
        body_bytes_max=PART_BYTES_MAX,
    ),
    Route(
        "DELETE",
        "/v1/uploads/{upload}",
        _cancel,
        "Give up an upload in parts.",
        "artifacts:write",
        ("NOT_FOUND", "UPLOAD_OFFSET", "STORE_UNAVAILABLE"),
        {204: None},
    ),
)
