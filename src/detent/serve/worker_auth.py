"""Whether a request comes from the worker it names: its signature, its clock, its body.

A signature is checked before anything that the request says is used. A request that was signed before this server started is refused
like one of a wrong clock: what an earlier server took must not be taken again from a recording (the numbers of turns protect the
rest). A worker whose clock is wrong learns the server's time with the refusal and signs by that.
"""

from __future__ import annotations

from typing import Final

from detent.access.signature import (
    CONTENT_DIGEST,
    SIGNATURE,
    SIGNATURE_INPUT,
    Said,
    read_content_digest,
    read_signature,
)
from detent.errors import InvalidInput, RequestRefused
from detent.serve.fleet import Fleet, Worker
from detent.serve.incoming import Head

SKEW_SECONDS: Final = 300
_STRANGER: Final = "the request is not signed by a worker of this name"


def authenticated(fleet: Fleet, worker_id: str, head: Head, *, origin: str, now_ms: int, started_ms: int) -> Worker:
    """The worker that signed a request, and whose name it uses. Whether the body has the digest it says is checked where it is read.

    An unknown worker and a wrong signature get the same answer.
    """
    worker = fleet.get(worker_id)
    headers = {name: head.header(name.encode()) for name in (CONTENT_DIGEST, SIGNATURE_INPUT, SIGNATURE)}
    try:
        signed = read_signature(headers)
        said = Said(head.method, head.path, head.query, read_content_digest(headers[CONTENT_DIGEST]))
    except InvalidInput as exc:
        raise RequestRefused(str(exc), code="UNAUTHENTICATED", hint="workers sign every request") from exc
    if worker is None or signed.key_id != worker.key_id or signed.origin != origin:
        raise RequestRefused(_STRANGER, code="UNAUTHENTICATED")
    if not signed.verifies(said, worker.certificate.public_key):
        raise RequestRefused(_STRANGER, code="UNAUTHENTICATED")
    if abs(signed.created - now_ms // 1_000) > SKEW_SECONDS or signed.created < started_ms // 1_000:
        raise RequestRefused(
            "the request was signed at another time than now",
            code="CLOCK_SKEW",
            hint="sign again, by the time of the server",
            details={"errors": [{"path": "now_ms", "message": str(now_ms)}]},
        )
    if worker.retired:
        raise RequestRefused(
            f"worker {worker_id} was retired", code="WORKER_RETIRED", hint="enrol it again under a new token"
        )
    return worker


def insist_on_body(head: Head, digest: bytes) -> None:
    """Refuse a body that is not the signed one."""
    if read_content_digest(head.header(CONTENT_DIGEST.encode())) != digest:
        raise RequestRefused("the body is not the one that was signed", code="UNAUTHENTICATED")
