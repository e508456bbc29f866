"""Files that jobs made: their list with URLs, and their bytes by URL alone."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from detent.access.headers import UNSATISFIABLE, byte_range, matches, weak_tag
from detent.access.scopes import PUBLIC
from detent.canon import digest_text, parse_digest, tick_to_iso
from detent.errors import RequestRefused
from detent.serve.call import Answer, Call, Shape
from detent.serve.downloads import Opened, shown_headers
from detent.serve.table import ANYTHING, READING, Route


class Artifact(Shape):
    """A file that a job made."""

    artifact_id: str
    kind: str
    format: str
    digest: str
    size_bytes: int
    content_type: str
    metadata: JsonValue
    url: str
    """Where its bytes are until `url_expires_at`, for every holder of the URL."""
    url_expires_at: str


class Artifacts(Shape):
    """The files that a job made."""

    items: list[Artifact]


_FIELDS: Final = tuple(name for name in Artifact.model_fields if not name.startswith("url"))


async def _artifacts(call: Call) -> Answer:
    view, found = await call.read(lambda reader: reader.artifacts(call.workspace, call.path["job_id"]))
    downloads = call.serving.downloads
    items = []
    for one in found:
        link = downloads.link(call.head, call.workspace, one)
        items.append(
            Artifact.model_validate(
                {
                    **{name: one[name] for name in _FIELDS},
                    "url": link.url,
                    "url_expires_at": tick_to_iso(link.expires_s, 1_000, 0),
                }
            )
        )
    tag = weak_tag(view.row.job_id, view.row.transition_seq, downloads.expires_s(), call.head.host)
    return Answer(Artifacts(items=items), tag=tag)


async def _file(call: Call) -> Answer:
    workspace, artifact_id = call.path["workspace"], call.path["artifact"]
    access = call.serving.downloads.checked(call.head, workspace)
    artifact, inline = await call.read(lambda reader: reader.artifact(workspace, artifact_id))
    if parse_digest(str(artifact["digest"])) != access.digest:
        raise RequestRefused("the URL was made for other content", code="URL_INVALID")
    tag = f'"{digest_text(access.digest)}"'
    if matches(call.if_none_match, tag):
        return Answer(None, tag=tag)
    opened = await call.serving.downloads.open(access.digest, inline)
    try:
        first, stop, status = _asked(call, tag, opened)
    except BaseException:
        opened.close()
        raise
    headers = {
        **shown_headers(opened, artifact),
        "accept-ranges": "bytes",
        "content-length": str(stop - first),
    }
    if status == 206:
        headers["content-range"] = f"bytes {first}-{stop - 1}/{opened.size_bytes}"
    return Answer(call.serving.downloads.pieces(opened, first, stop), status=status, tag=tag, headers=headers)


def _asked(call: Call, tag: str, opened: Opened) -> tuple[int, int, int]:
    """Which bytes a request asks for, and the status that says so."""
    condition = call.head.header(b"if-range")
    wanted = call.head.header(b"range") if condition is None or condition == tag else None
    found = byte_range(wanted, opened.size_bytes)
    if found == UNSATISFIABLE:
        raise RequestRefused(
            f"the file has {opened.size_bytes:,} bytes",
            code="RANGE_UNSATISFIABLE",
            details={"headers": {"content-range": f"bytes */{opened.size_bytes}"}},
        )
    return (0, opened.size_bytes, 200) if found is None else (*found, 206)


_OWN: Final = ("UNKNOWN_JOB", *READING, "RESULT_NOT_READY", "CONTENT_GONE", "TRUST_INVALID")
ROUTES: Final = (
    Route(
        "GET",
        "/v1/jobs/{job_id}/artifacts",
        _artifacts,
        "List the files that a job made, each with a URL that gives its bytes for some minutes.",
        "artifacts:read",
        _OWN,
        {200: Artifacts},
        etag=True,
    ),
    Route(
        "GET",
        "/v1/files/{workspace}/{artifact}/{name}",
        _file,
        "Give the bytes of a file that a job made, to the holder of its signed URL.",
        PUBLIC,
        ("URL_INVALID", "RANGE_UNSATISFIABLE", *_OWN),
        {200: None, 206: None},
        headers=("Range", "If-Range"),
        media_type=ANYTHING,
        signed=True,
        etag=True,
    ),
)
