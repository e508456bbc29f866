"""Operators' actions on their way to the ledger and back: the command for one, and the access that all of them add up to."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, Unpack

from detent.access.actions import check_action
from detent.access.changes import Change
from detent.access.enrolments import EnrolmentTokens
from detent.access.pools import PoolScales
from detent.access.schedules import Schedules
from detent.access.scopes import Principal
from detent.access.state import OK, AccessState
from detent.canon import NotCanonical, decode, encode, sha256
from detent.errors import RequestRefused
from detent.kernel import Operate
from detent.kernel.history import WORKER_ENROLLED
from detent.kernel.records import OPERATED
from detent.ledger.trust_config import TrustFault
from detent.ledger.workers import read_enrolment
from detent.owner.session import Session
from detent.owner.turn import Carried
from detent.owner.views import Times
from detent.store.api import RecordRow, StoreReader

REASON_BYTES_MAX: Final = 1_000
REQUEST_LABEL: Final = b"detent/request/v1\0"


def new_request_id() -> str:
    """The name of a request, in its answer, its problem, its line of the log and its record."""
    return f"req_{secrets.token_hex(12)}"


def operate(  # noqa: PLR0913 - one for each part of the record
    principal: Principal,
    change: Change,
    *,
    request_id: str,
    route: str,
    request_digest: bytes | None = None,
    reason: str | None = None,
    outcome_code: str = OK,
    more: Mapping[str, Any] | None = None,
) -> Operate:
    """The command that records a principal's action. ``more`` are further parts of its evidence."""
    evidence: dict[str, Any] = {"request_id": request_id, "route": route, **(more or {})}
    if change.parameters:
        evidence["parameters"] = dict(change.parameters)
    if reason:
        evidence["reason"] = reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")
    if request_digest is None:
        request_digest = sha256(REQUEST_LABEL + encode([route, change.object_id, dict(change.parameters)]))
    return Operate(
        0,
        principal.principal_id,
        principal.credential_id,
        check_action(change.action),
        change.object_kind,
        change.object_id,
        outcome_code,
        request_digest,
        change.workspace,
        encode(evidence),
    )


def commit(session: Session, commands: Sequence[Operate], **carried: Unpack[Carried]) -> None:
    """Have actions recorded, all of them in one commit, and wait for it. Changes of access belong to the first partition."""
    for answer in session.ask(list(commands), partition=0, **carried):
        if answer.refusal is not None:
            raise RequestRefused(answer.refusal.message, code=answer.refusal.code)


def opened(row: RecordRow) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of an `operated` record and of its evidence; evidence that is not the record's own is nothing."""
    try:
        body = decode(row.body)
        bound = (
            isinstance(body, dict) and row.evidence is not None and body.get("evidence_digest") == sha256(row.evidence)
        )
        evidence = decode(row.evidence) if bound and row.evidence is not None else {}
    except NotCanonical:
        return {}, {}
    return (body if isinstance(body, dict) else {}), (evidence if isinstance(evidence, dict) else {})


def read_access(reader: StoreReader) -> AccessState:
    """What the ledger says about access now."""
    state, times = AccessState(), Times.of(reader)
    for row in reader.records_of_kind(0, OPERATED):
        take_in(state, row, times)
    return state


def read_schedules(reader: StoreReader) -> Schedules:
    """The schedules that the ledger says there are now."""
    schedules, times = Schedules(), Times.of(reader)
    for row in reader.records_of_kind(0, OPERATED):
        body, evidence = opened(row)
        if body:
            schedules.apply(body, evidence, at_ms=times.ms(body["tick"]))
    return schedules


def read_enrolments(reader: StoreReader) -> tuple[EnrolmentTokens, dict[bytes, int]]:
    """The enrolment tokens that the ledger knows, and how often each was used, by the digest of its secret."""
    tokens, uses = EnrolmentTokens(), dict[bytes, int]()
    for row in reader.records_of_kind(0, OPERATED):
        body, evidence = opened(row)
        parameters = evidence.get("parameters")
        tokens.take_in(body, parameters if isinstance(parameters, dict) else {})
    for row in reader.records_of_kind(0, WORKER_ENROLLED):
        fields, _ = opened(row)
        if not fields:
            continue
        enrolment = read_enrolment(
            row.evidence or b"", fields["worker_id"], fields["key_id"], fields["certificate_digest"]
        )
        if not isinstance(enrolment, TrustFault):
            digest = enrolment.proof.token_digest
            uses[digest] = uses.get(digest, 0) + 1
    return tokens, uses


def read_scales(reader: StoreReader) -> PoolScales:
    """How many hosts operators want in pools, as the ledger says."""
    scales = PoolScales()
    for row in reader.records_of_kind(0, OPERATED):
        body, evidence = opened(row)
        parameters = evidence.get("parameters")
        scales.take_in(body, parameters if isinstance(parameters, dict) else {})
    return scales


def take_in(state: AccessState, row: RecordRow, times: Times) -> bool:
    """Apply one record; whether it changed anything about access."""
    body, evidence = opened(row)
    return bool(body) and state.apply(body, evidence, at_ms=times.ms(body["tick"]))
