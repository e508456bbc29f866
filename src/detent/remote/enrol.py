"""Enrolment: a worker makes its key, proves that it has it, and gets a certificate of the server."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Final

from detent.access.certificate import NONCE_BYTES, Certificate, SignedCertificate, prove
from detent.access.tokens import ENROLMENT, read_token
from detent.canon import SigningKey
from detent.errors import InvalidInput, RequestRefused
from detent.remote.address import Address
from detent.remote.http import Http
from detent.remote.problems import AnswerInvalid
from detent.remote.worker_state import Enrolled, WorkerState

PATIENCE: Final = 30.0
"""For how long a server that does not answer is asked again."""
_NAME_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def enrol(state: WorkerState, address: Address, token: str, *, pin: str | None, labels: Sequence[str] = ()) -> Enrolled:
    """Enrol a worker and write the certificate down. Makes a new key; a repeat after a lost answer gets the same certificate."""
    given = read_token(token.strip())
    if given is None or given.kind != ENROLMENT:
        raise InvalidInput(
            "the enrolment token is not one: its form or its checksum is wrong",
            code="ENROLMENT_REFUSED",
            hint="it begins with dte_ and is shown once, when it is made",
        )
    key = state.new_key()
    with Http(address, patience=PATIENCE, agent="detent-worker") as http:
        origin = str(http.get("/v1/version").get("origin", ""))
        proof = prove(origin, given.digest, os.urandom(NONCE_BYTES), key)
        answer = http.post(
            "/v1/workers",
            {
                "token": given.text,
                "public_key": key.public_key.hex(),
                "proof": proof.encode().hex(),
                "name": host_name(),
                "labels": sorted(set(labels)),
            },
        )
    certificate = _certificate(answer, origin, key)
    enrolled = Enrolled(address.url, pin, certificate.worker_id, origin, str(answer["certificate"]))
    state.keep(enrolled)
    return enrolled


def host_name() -> str:
    """The name of this machine, as far as a worker's id may hold it."""
    name = "".join(char for char in socket.gethostname().partition(".")[0] if char in _NAME_CHARS).lstrip("._-")[:40]
    return name or "worker"


def _certificate(answer: object, origin: str, key: SigningKey) -> Certificate:
    """The certificate in an answer, if it is for this key and this ledger."""
    try:
        signed = SignedCertificate.parse(bytes.fromhex(answer["certificate"]))  # type: ignore[index]
    except (InvalidInput, KeyError, TypeError, ValueError) as exc:
        raise AnswerInvalid("the server did not send a certificate", hint="is it a Detent server?") from exc
    certificate = signed.certificate
    if certificate.public_key != key.public_key or certificate.origin != origin:
        raise RequestRefused(
            "the server certified another key or ledger than asked for",
            code="SERVER_UNTRUSTED",
            hint="do not work for it; ask its operator",
        )
    return certificate
