"""Signatures of operators: whether the holder of a credential signed a request with its own key, and the evidence of it.

A signature is optional. Where the API key of a request was made with a public key and the request is signed, the signature has to hold, is
of now, and is taken once; it goes into the `operated` record, where everyone can check it. A credential without a public key is known by
its secret alone, and a signature beside it is not looked at.

For the HTTP loop alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from detent.access.signature import (
    CONTENT_DIGEST,
    SIGNATURE,
    SIGNATURE_INPUT,
    Evidence,
    Said,
    read_content_digest,
    read_signature,
)
from detent.access.state import AccessState
from detent.canon import sha256
from detent.canon.crypto import key_id_of
from detent.errors import InvalidInput, RequestRefused
from detent.serve.authenticate import BY_KEY, Known
from detent.serve.incoming import Head

SKEW_MS: Final = 300_000
NONCES_MAX: Final = 100_000
"""Signatures that are remembered; when there are more within ten minutes, signed requests are refused."""


class OperatorSignatures:
    """Checks the signatures of requests, each of which counts once."""

    def __init__(self, state: Callable[[], AccessState], origin: str, now_ms: Callable[[], int]) -> None:
        self._state, self._origin, self._now_ms = state, origin, now_ms
        self._started_ms = now_ms()
        self._seen: OrderedDict[bytes, int] = OrderedDict()

    def evidence(self, known: Known | None, head: Head, body: bytes) -> Evidence | None:
        """The evidence that an operator signed a request; None where it is not signed. Raises for a signature that does not hold."""
        if known is None or known.via != BY_KEY or head.header(SIGNATURE_INPUT.encode()) is None:
            return None
        key = self._state().key(known.principal.credential_id)
        if key is None or key.public_key is None:
            return None
        headers = {name: head.header(name.encode()) for name in (CONTENT_DIGEST, SIGNATURE_INPUT, SIGNATURE)}
        try:
            signed = read_signature(headers)
            said = Said(head.method, head.path, head.query, read_content_digest(headers[CONTENT_DIGEST]))
        except InvalidInput as exc:
            raise _refused(str(exc)) from exc
        if said.content_digest != sha256(body):
            raise _refused("the body is not the one that was signed")
        if signed.key_id != key_id_of(key.public_key) or signed.origin != self._origin:
            raise _refused("the request is signed by another key, or for another ledger")
        if not signed.verifies(said, key.public_key):
            raise _refused("the signature of the request does not verify")
        self._insist_on_now(signed.created * 1_000)
        self._insist_on_once(key.public_key + signed.nonce)
        return signed.evidence(said)

    def _insist_on_now(self, created_ms: int) -> None:
        now_ms = self._now_ms()
        if abs(created_ms - now_ms) > SKEW_MS or created_ms + 1_000 <= self._started_ms:
            raise RequestRefused(
                "the request was signed at another time than now",
                code="CLOCK_SKEW",
                hint="sign again, by the time of the server (`now_ms` of GET /v1/me)",
                details={"errors": [{"path": "now_ms", "message": str(now_ms)}]},
            )

    def _insist_on_once(self, nonce: bytes) -> None:
        now_ms = self._now_ms()
        while self._seen and next(iter(self._seen.values())) < now_ms - 2 * SKEW_MS:
            self._seen.popitem(last=False)
        if nonce in self._seen:
            raise _refused("the signature of the request was used before")
        if len(self._seen) >= NONCES_MAX:
            raise RequestRefused(f"{NONCES_MAX:,} signed requests came within minutes", code="RATE_LIMITED")
        self._seen[nonce] = now_ms


def _refused(why: str) -> RequestRefused:
    return RequestRefused(
        why, code="UNAUTHENTICATED", hint="sign the request as it is sent, or send it without a signature"
    )
