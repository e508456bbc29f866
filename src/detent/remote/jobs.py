"""Single jobs at a server: a payload that is submitted, and what a job gave back, whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from detent.access.headers import path_part
from detent.canon import digest_text, json_decode, json_digest, json_encode
from detent.errors import DetentError
from detent.jobs.work import Failure
from detent.remote.http import Http
from detent.remote.uploads import Uploads

SUBMIT_SECONDS: Final = 24 * 3600.0
"""For how long a submission waits for room, unless it says so itself; a full queue makes a local one wait, too."""
_NULL: Final = digest_text(json_digest(json_encode(None)))
_FAILURE: Final = ("category", "code", "message", "type", "traceback")


def post(http: Http, path: str, body: object, *, seconds: float | None = None, key: str | None = None) -> Any:
    """Submit something; a full queue makes it wait, for so many seconds. A repeat after a lost answer is the same request."""
    patience = SUBMIT_SECONDS if seconds is None else seconds
    return http.post(path, body, idempotency_key=key or uuid4().hex, patience=patience)


def submit_payload(  # noqa: PLR0913 - options, all by name
    http: Http,
    uploads: Uploads,
    document: Mapping[str, Any],
    *,
    reuse_failed: bool = False,
    join: bool = False,
    files: Sequence[str | Path] = (),
    place: Mapping[str, Any] | None = None,
    seconds: float | None = None,
    key: str | None = None,
) -> dict[str, Any]:
    """Submit a platform job; the files that its payload names by digest are sent first. Gives the server's answer."""
    for path in map(Path, files):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
        uploads.send_file(path, digest)
    body = {"payload": dict(document), "reuse_failed": reuse_failed, "in_flight": "join" if join else "new"}
    if said := {name: value for name, value in (place or {}).items() if value}:
        body["place"] = said
    taken: dict[str, Any] = post(http, "/v1/jobs", body, seconds=seconds, key=key)
    return taken


def submitted_map(taken: Mapping[str, Any]) -> dict[str, Any]:
    """What a server answers to a payload, as `detent submit` tells it."""
    told = {"job_id": taken["job_id"], **taken["platform"], "deduplicated": taken["deduplicated"]}
    return {**told, "status": taken["status"]}


def value_of_job(http: Http, detail: Mapping[str, Any]) -> Any:
    """The stored value of a job that succeeded; one that is too large for the job's own answer is read by itself."""
    value = detail["value"]
    if value is not None or detail["value_digest"] in {None, _NULL}:
        return value
    try:
        return json_decode(http.ask("GET", f"/v1/jobs/{path_part(str(detail['job_id']))}/value").body, name="result")
    except DetentError as exc:
        if exc.code != "CONTENT_GONE":
            raise
        hint = "run the task again"
        raise DetentError(f"the result of job {detail['job_id']} was erased", code="CONTENT_GONE", hint=hint) from exc


def failure_of_job(detail: Mapping[str, Any]) -> Failure | None:
    """Why the last attempt at a job failed, as its report says it."""
    error = detail["error"]
    return None if error is None else Failure(**{name: error[name] for name in _FAILURE})
