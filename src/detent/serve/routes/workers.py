"""Workers on other machines: tokens to enrol them, the workers themselves, their turns and the content of their leases."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Annotated, Any, Final

from pydantic import Field

from detent.access.certificate import Certificate, Proof
from detent.access.enrolments import (
    CREATE,
    RANDOM_BYTES,
    REVOKE,
    TTL_SECONDS,
    TTL_SECONDS_MAX,
    USES_MAX,
    EnrolmentDraft,
    EnrolmentToken,
    create_enrolment,
)
from detent.access.scopes import BY_ENROLMENT, WORKER, Principal
from detent.access.tokens import ENROLMENT, Token, read_token
from detent.access.turn import MEDIA_TYPE, PROTOCOLS, TURN_BYTES_MAX, protocol_of, read_turn
from detent.canon import check_public_key, key_id_of, parse_digest, sha256
from detent.errors import DetentError, InvalidInput, RequestRefused, TrustError
from detent.kernel import Operate
from detent.serve.audit import operated
from detent.serve.call import WHOLE, Answer, Call, Shape
from detent.serve.fleet import HeldLease, Worker
from detent.serve.incoming import Incoming
from detent.serve.routes.ledger import Size, hashes
from detent.serve.table import READING, Route
from detent.serve.times import written_ms
from detent.serve.worker_auth import authenticated, insist_on_body

BYTES: Final = "application/octet-stream"
CONTENT_BYTES_MAX: Final = 50 * 1024**3
HEX_64: Final = r"^[0-9a-f]{64}$"
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$"
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x20\x7f-\x9f]+$")]
_WRITING: Final = ("OUTCOME_UNKNOWN", "INBOX_FULL")
_SIGNED: Final = ("UNAUTHENTICATED", "CLOCK_SKEW", "WORKER_RETIRED")


class EnrolmentStart(Shape):
    """What a new enrolment token allows."""

    tenants: Annotated[list[Name] | None, Field(max_length=256)] = None
    """The workspaces whose jobs the workers run. Left out: that of the credential; ``["*"]``: all."""
    pools: Annotated[list[Name] | None, Field(max_length=256)] = None
    labels: Annotated[list[Name], Field(default_factory=list, max_length=256)]
    uses: Annotated[int, Field(ge=1, le=USES_MAX), WHOLE] = 1
    ttl_seconds: Annotated[int, Field(ge=1, le=TTL_SECONDS_MAX), WHOLE] = TTL_SECONDS


class EnrolmentShown(Shape):
    """An enrolment token, without its secret."""

    enrolment_id: str
    tenants: list[str] | None
    pools: list[str] | None
    labels: list[str]
    uses: int
    used: int
    created_at: str | None
    expires_at: str | None
    state: str
    """`active`, `expired`, `used` or `revoked`."""


class EnrolmentMade(EnrolmentShown):
    """The same with its secret, which is shown once."""

    token: str


class Enrolments(Shape):
    """All enrolment tokens, oldest first."""

    items: list[EnrolmentShown]


class WorkerStart(Shape):
    """What a worker says to be enrolled."""

    token: Annotated[str, Field(max_length=200)]
    public_key: Annotated[str, Field(pattern=HEX_64)]
    proof: Annotated[str, Field(max_length=1_000, pattern=r"^[0-9a-f]+$")]
    name: Annotated[str, Field(pattern=NAME)] = "worker"
    labels: Annotated[list[Name], Field(default_factory=list, max_length=64)]


class WorkerCertified(Shape):
    """A worker's certificate."""

    worker_id: str
    certificate: str
    """The signed certificate, as hex digits."""
    origin: str


class WorkerShown(Shape):
    """A worker on another machine."""

    worker_id: str
    state: str
    """`idle`, `busy`, `draining`, `silent`, `never` (not heard of since the server started) or `retired`."""
    key_id: str
    tenants: list[str] | None
    pools: list[str] | None
    labels: list[str]
    """Of its certificate, and those that its present start says."""
    boot: str | None
    slots: int
    leases: int
    resources: dict[str, int]
    version: str
    silent_ms: int | None
    """Since its last turn; null when none came since the server started."""


class WorkersShown(Shape):
    """All workers on other machines, in the order of their enrolment."""

    items: list[WorkerShown]


class LeaseQuery(Shape):
    """Which lease names the content."""

    lease: Annotated[str, Field(pattern=HEX_64)]


class WorkerHeadQuery(Shape):
    """Which sizes to prove: that the tree over the first `to_size` batches goes on from the one over the first `from_size`."""

    from_size: Size | None = None
    to_size: Size | None = None


class WorkerHead(Shape):
    """Where the ledger stands, for a worker that keeps heads."""

    note: str | None
    """The newest signed tree head, a C2SP note. Null where none is signed yet."""
    path: list[str]
    """The proof that was asked for (RFC 6962): hashes, in base64."""


# -- enrolment ----------------------------------------------------------------------------------------------------------


async def _create(call: Call) -> Answer:
    body: EnrolmentStart = call.body
    assert call.principal is not None
    draft = EnrolmentDraft(
        None if body.tenants == ["*"] else tuple(body.tenants or [call.workspace]),
        None if body.pools is None else tuple(body.pools),
        tuple(body.labels),
        body.uses,
        body.ttl_seconds * 1_000,
    )
    made, token = create_enrolment(
        draft, call.principal.credential_id, random=secrets.token_bytes(RANDOM_BYTES), now_ms=_now_ms()
    )
    await call.serving.enrolling.create(
        made, _operated(call, CREATE, "enrolment", made.enrolment_id, made.parameters())
    )
    return Answer(EnrolmentMade(**_enrolment(call, made).model_dump(), token=token.text), status=201)


async def _list(call: Call) -> Answer:
    return Answer(Enrolments(items=[_enrolment(call, token) for token in call.serving.enrolling.tokens]))


async def _revoke(call: Call) -> Answer:
    token = call.serving.enrolling.tokens.get(call.path["enrolment_id"])
    if token is None:
        raise RequestRefused("there is no such enrolment", code="NOT_FOUND")
    await call.serving.enrolling.revoke(token, _operated(call, REVOKE, "enrolment", token.enrolment_id))
    return Answer(None, status=204)


async def _enrol(call: Call) -> Answer:
    async with call.serving.enrolling.one_at_a_time:
        return await _enrolled(call)


async def _enrolled(call: Call) -> Answer:
    body: WorkerStart = call.body
    serving = call.serving
    token = read_token(body.token)
    known = None if token is None or token.kind != ENROLMENT else serving.enrolling.tokens.get(token.token_id)
    if token is None or known is None or not token.fits(known.secret):
        raise RequestRefused("the enrolment token is not one of this server", code="ENROLMENT_REFUSED")
    public_key, proof = _key_and_proof(body, token)
    existing = next((one for one in serving.turns.fleet if one.key_id == key_id_of(public_key)), None)
    if existing is not None and existing.token_digest == token.digest and not existing.retired:
        return _certified(call, existing)  # The answer to the first request was lost.
    fault = known.fault(serving.turns.fleet.uses.get(token.digest, 0), _now_ms())
    if fault is not None:
        raise RequestRefused(fault, code="ENROLMENT_REFUSED", hint="ask for another token")
    certificate = Certificate(
        serving.origin,
        f"{body.name}-{secrets.token_hex(4)}",
        public_key,
        known.tenants,
        known.pools,
        tuple(sorted({*known.labels, *body.labels})),
        0,
    )
    await serving.enrolling.enrol(call.request_id, call.operation, known, certificate, proof)
    worker = serving.turns.fleet.get(certificate.worker_id)
    assert worker is not None
    return _certified(call, worker, status=201)


def _key_and_proof(body: WorkerStart, token: Token) -> tuple[bytes, Proof]:
    try:
        public_key = bytes.fromhex(body.public_key)
        check_public_key(public_key)
        proof = Proof.parse(bytes.fromhex(body.proof))
    except (ValueError, TrustError, InvalidInput) as exc:
        raise RequestRefused(f"the key or the proof cannot be read: {exc}", code="ENROLMENT_REFUSED") from exc
    if proof.token_digest != token.digest:
        raise RequestRefused("the proof was made for another token", code="ENROLMENT_REFUSED")
    return public_key, proof


def _certified(call: Call, worker: Worker, status: int = 200) -> Answer:
    return Answer(
        WorkerCertified(worker_id=worker.worker_id, certificate=worker.envelope.hex(), origin=call.serving.origin),
        status=status,
    )


def _enrolment(call: Call, token: EnrolmentToken) -> EnrolmentShown:
    used = call.serving.turns.fleet.uses.get(token.secret, 0)
    return EnrolmentShown(
        enrolment_id=token.enrolment_id,
        tenants=None if token.tenants is None else list(token.tenants),
        pools=None if token.pools is None else list(token.pools),
        labels=list(token.labels),
        uses=token.uses,
        used=used,
        created_at=written_ms(token.created_ms),
        expires_at=written_ms(token.expires_ms),
        state=token.state(used, _now_ms()),
    )


# -- the fleet ----------------------------------------------------------------------------------------------------------


async def _workers(call: Call) -> Answer:
    shown = [_shown(worker) for worker in call.serving.turns.fleet if _is_seen(call, worker)]
    return Answer(WorkersShown(items=shown))


async def _worker(call: Call) -> Answer:
    return Answer(_shown(_found(call)))


async def _drain(call: Call) -> Answer:
    worker = _found(call)
    await call.serving.enrolling.drain(worker, _operated(call, "worker.drain", "worker", worker.worker_id))
    return Answer(_shown(worker))


async def _retire(call: Call) -> Answer:
    worker = _found(call)
    await call.serving.enrolling.retire(worker, _operated(call, "worker.retire", "worker", worker.worker_id))
    return Answer(_shown(worker))


async def _gone(call: Call) -> Answer:
    worker = _found(call)
    operated = _operated(call, "worker.retire", "worker", worker.worker_id, {"gone": True})
    await call.serving.enrolling.retire(worker, operated, gone=True)
    return Answer(_shown(worker))


def _found(call: Call) -> Worker:
    worker = call.serving.turns.fleet.get(call.path["worker_id"])
    if worker is None or not _is_seen(call, worker):
        raise RequestRefused("there is no such worker", code="NOT_FOUND")
    return worker


def _is_seen(call: Call, worker: Worker) -> bool:
    """A workspace sees the workers that may run its jobs."""
    return worker.certificate.covers(call.workspace)


def _shown(worker: Worker) -> WorkerShown:
    certificate = worker.certificate
    return WorkerShown(
        worker_id=worker.worker_id,
        state=worker.state,
        key_id=worker.key_id.hex(),
        tenants=None if certificate.tenants is None else list(certificate.tenants),
        pools=sorted(worker.pools) or (None if certificate.pools is None else []),
        labels=sorted({*certificate.labels, *worker.labels}),
        boot=worker.boot,
        slots=worker.slots,
        leases=len(worker.leases),
        resources=worker.resources,
        version=worker.version,
        silent_ms=None if (silent := worker.silent_seconds) is None else int(silent * 1_000),
    )


# -- what workers ask ---------------------------------------------------------------------------------------------------


async def _turn(call: Call) -> Answer:
    worker = _authenticated(call)
    data = b"".join([piece async for piece in call.body.pieces])
    insist_on_body(call.head, sha256(data))
    protocol, fields = protocol_of(data)
    if protocol not in PROTOCOLS:
        raise RequestRefused(
            f"protocol {protocol} is not spoken here: {', '.join(map(str, PROTOCOLS))} are",
            code="PROTOCOL_UNSUPPORTED",
            hint="install a version of detent on the worker that is at most one release away from the server's",
            details={"errors": [{"path": "protocol", "message": str(one)} for one in PROTOCOLS]},
        )
    said = read_turn(fields)
    gone = asyncio.Event()
    watching = asyncio.ensure_future(_watch(call, gone))
    try:
        answer = await call.serving.turns.turn(worker, said, gone)
        call.serving.counters.turns.inc()
        return Answer(answer, media_type=MEDIA_TYPE)
    finally:
        watching.cancel()


async def _watch(call: Call, gone: asyncio.Event) -> None:
    assert call.gone is not None
    await call.gone()
    gone.set()


async def _head(call: Call) -> Answer:
    _authenticated(call)
    insist_on_body(call.head, sha256(b""))
    query: WorkerHeadQuery = call.query
    _, note = await call.read(lambda reader: reader.ledger_head("", 0))
    if query.from_size is None or query.to_size is None:
        return Answer(WorkerHead(note=note, path=[]))
    first, second = query.from_size, query.to_size
    found = await call.read(lambda reader: reader.consistency("", 0, first, second))
    return Answer(WorkerHead(note=note, path=hashes(found.path)))


async def _fetch(call: Call) -> Answer:
    worker = _authenticated(call)
    insist_on_body(call.head, sha256(b""))
    held, digest = await _lease(call, worker)
    if digest not in held.inputs and digest not in held.code:
        raise RequestRefused("no live lease of this worker names such content", code="NOT_FOUND")
    content = await call.serving.turns.content(digest)
    if content is None:
        raise RequestRefused("the content is gone", code="NOT_FOUND")
    return Answer(content, media_type=BYTES)


async def _send(call: Call) -> Answer:
    worker = _authenticated(call)
    held, digest = await _lease(call, worker)
    insist_on_body(call.head, digest)
    body: Incoming = call.body
    principal = Principal(worker.worker_id, worker.worker_id, held.grant.tenant_id, frozenset())
    await call.serving.uploads.put(principal, digest, body)
    held.uploaded.add(digest)
    return Answer(None, status=204)


def _authenticated(call: Call) -> Worker:
    serving = call.serving
    return authenticated(
        serving.turns.fleet,
        call.path["worker_id"],
        call.head,
        origin=serving.origin,
        now_ms=_now_ms(),
        started_ms=serving.turns.started_ms,
    )


async def _lease(call: Call, worker: Worker) -> tuple[HeldLease, bytes]:
    """The live lease that a request names, and the digest of the content it asks for."""
    query: LeaseQuery = call.query
    try:
        digest = parse_digest(call.path["digest"])
    except DetentError as exc:
        raise RequestRefused("no live lease of this worker names such content", code="NOT_FOUND") from exc
    held = worker.leases.get(bytes.fromhex(query.lease))
    if held is None:
        raise RequestRefused("no live lease of this worker names such content", code="NOT_FOUND")
    await call.serving.turns.open(held)
    return held, digest


def _operated(call: Call, action: str, kind: str, name: str, parameters: dict[str, Any] | None = None) -> Operate:
    """The record of what an operator does to the whole server's workers."""
    return operated(call, action, kind, name, parameters=parameters, workspace=None)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


ROUTES: Final = (
    Route(
        *("POST", "/v1/enrolments", _create, "Make a token that enrols workers; it is shown once."),
        *("workers:write", _WRITING, {201: EnrolmentMade}),
        body=EnrolmentStart,
        audited=True,
        action="enrolment.create",
    ),
    Route(
        *("GET", "/v1/enrolments", _list, "List the enrolment tokens, without their secrets."),
        *("workers:write", (), {200: Enrolments}),
    ),
    Route(
        *("DELETE", "/v1/enrolments/{enrolment_id}", _revoke, "Revoke an enrolment token."),
        *("workers:write", ("NOT_FOUND", *_WRITING), {204: None}),
        audited=True,
        action="enrolment.revoke",
    ),
    Route(
        *("POST", "/v1/workers", _enrol, "Enrol a worker: certify its key, with a token and a proof of the key."),
        *(
            BY_ENROLMENT,
            ("ENROLMENT_REFUSED", "TRUST_INVALID", *_WRITING),
            {200: WorkerCertified, 201: WorkerCertified},
        ),
        body=WorkerStart,
    ),
    Route(
        *("GET", "/v1/workers", _workers, "List the workers on other machines that may run jobs of the workspace."),
        *("workers:read", (), {200: WorkersShown}),
    ),
    Route(
        *("GET", "/v1/workers/{worker_id}", _worker, "Show a worker."),
        *("workers:read", ("NOT_FOUND",), {200: WorkerShown}),
    ),
    Route(
        *("POST", "/v1/workers/{worker_id}/drain", _drain, "Have a worker finish what it runs and take nothing more."),
        *("workers:write", ("NOT_FOUND", *_WRITING), {200: WorkerShown}),
        audited=True,
        action="worker.drain",
    ),
    Route(
        *(
            "POST",
            "/v1/workers/{worker_id}/retire",
            _retire,
            "End a worker's key: nothing that it signs from now on counts.",
        ),
        *("workers:write", ("NOT_FOUND", *_WRITING), {200: WorkerShown}),
        audited=True,
        action="worker.retire",
    ),
    Route(
        *(
            "POST",
            "/v1/workers/{worker_id}/gone",
            _gone,
            "Retire a worker whose machine is gone: the jobs that it had are interrupted and go to other workers at once.",
        ),
        *("workers:write", ("NOT_FOUND", *_WRITING), {200: WorkerShown}),
        audited=True,
        action="worker.retire",
    ),
    Route(
        *(
            "GET",
            "/v1/workers/{worker_id}/head",
            _head,
            "Read the newest signed tree head, and whether it continues another.",
        ),
        *(WORKER, ("NOT_FOUND", *_SIGNED, *READING), {200: WorkerHead}),
        query=WorkerHeadQuery,
    ),
    Route(
        *("POST", "/v1/workers/{worker_id}/turn", _turn, "Take a worker's turn: results, leases, a claim and a wait."),
        *(
            WORKER,
            ("PROTOCOL_UNSUPPORTED", "TURN_STALE", "ENROLMENT_REFUSED", *_SIGNED, *READING, *_WRITING),
            {200: None},
        ),
        takes=(MEDIA_TYPE,),
        media_type=MEDIA_TYPE,
        body_bytes_max=TURN_BYTES_MAX,
    ),
    Route(
        *(
            "GET",
            "/v1/workers/{worker_id}/content/{digest}",
            _fetch,
            "Fetch content that a live lease of the worker names.",
        ),
        *(WORKER, ("NOT_FOUND", *_SIGNED, *READING), {200: None}),
        query=LeaseQuery,
        media_type=BYTES,
    ),
    Route(
        *(
            "PUT",
            "/v1/workers/{worker_id}/content/{digest}",
            _send,
            "Store content that a result under the lease will name.",
        ),
        *(WORKER, ("NOT_FOUND", "DIGEST_MISMATCH", "UPLOADS_FULL", *_SIGNED, *READING), {204: None}),
        query=LeaseQuery,
        takes=(BYTES,),
        body_bytes_max=CONTENT_BYTES_MAX,
    ),
)
