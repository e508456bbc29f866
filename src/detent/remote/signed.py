"""Requests that a worker signs, and the time it signs them by.

A worker whose clock is wrong is told the server's time and keeps the difference: leases never depend on its clock, and signatures do
only within five minutes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from detent.access.signature import NONCE_BYTES, Said, sign
from detent.access.turn import MEDIA_TYPE, TURN_BYTES_MAX
from detent.canon import SigningKey, digest_text, sha256
from detent.errors import DetentError
from detent.remote.http import Http
from detent.store.content import ContentFiles

EMPTY: Final = sha256(b"")


class SignedRequests:
    """The requests of one worker. Safe for several threads."""

    def __init__(self, http: Http, worker_id: str, key: SigningKey, origin: str) -> None:
        self._http, self._worker_id, self._key, self._origin = http, worker_id, key, origin
        self._offset_ms = 0

    def now_ms(self) -> int:
        """The time, as far as possible that of the server."""
        return time.time_ns() // 1_000_000 + self._offset_ms

    def turn(self, body: bytes, seconds: float) -> bytes:
        """Send a turn; the answer's bytes. A wrong clock is set right once."""
        path = f"/v1/workers/{self._worker_id}/turn"

        def once() -> bytes:
            headers = self._headers("POST", path, "", sha256(body))
            return self._http.ask(
                "POST",
                path,
                data=body,
                media_type=MEDIA_TYPE,
                headers=headers,
                seconds=seconds,
                bytes_max=TURN_BYTES_MAX,
                patience=0.0,
            ).body

        try:
            return once()
        except DetentError as exc:
            if exc.code != "CLOCK_SKEW" or not self._set_clock(exc):
                raise
            return once()

    def fetch(self, digest: bytes, lease_id: bytes, files: ContentFiles) -> Path:
        """Content of a lease as a file here; checked while it is written, and not fetched twice."""
        if not files.has(digest):
            path = f"/v1/workers/{self._worker_id}/content/{digest_text(digest)}"
            query = {"lease": lease_id.hex()}
            headers = self._headers("GET", path, f"lease={lease_id.hex()}", EMPTY)
            with self._http.opened(path, query=query, headers=headers, signed=True, patience=0.0) as answer:
                files.put(answer.pieces(), digest=digest)
        return files.path(digest)

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._http.address.url

    def newest(self) -> object:
        """The note of the ledger's newest tree head; a server of an older version does not tell it."""
        try:
            return self._head({})["note"]
        except DetentError as exc:
            if exc.code in {"NOT_FOUND", "METHOD_NOT_ALLOWED"}:
                return None
            raise

    def proof(self, first: int, second: int) -> object:
        """A document whose `path` proves that one head continues another."""
        return self._head({"from_size": first, "to_size": second})

    def _head(self, query: Mapping[str, int]) -> Any:
        path = f"/v1/workers/{self._worker_id}/head"
        headers = self._headers("GET", path, urlencode(query), EMPTY)
        return self._http.get(path, query, headers=headers, patience=0.0)

    def send(self, digest: bytes, lease_id: bytes, files: ContentFiles) -> None:
        """Send a file that a report under a lease names."""
        path = f"/v1/workers/{self._worker_id}/content/{digest_text(digest)}"
        headers = self._headers("PUT", path, f"lease={lease_id.hex()}", digest)
        file = files.open(digest)
        if file is None:
            return  # It is gone here, too: the report is refused for it.
        with file:
            size = os.fstat(file.fileno()).st_size
            self._http.put_file(path, file, size, query={"lease": lease_id.hex()}, headers=headers)

    def _headers(self, method: str, path: str, query: str, digest: bytes) -> dict[str, str]:
        return sign(
            Said(method, path, query, digest),
            self._key,
            created=self.now_ms() // 1_000,
            nonce=os.urandom(NONCE_BYTES),
            origin=self._origin,
        )

    def _set_clock(self, exc: DetentError) -> bool:
        told = told_number(exc, "now_ms")
        if told is None:
            return False
        self._offset_ms = told - time.time_ns() // 1_000_000
        return True


def told_number(exc: DetentError, path: str) -> int | None:
    """A number that a refusal tells under a path."""
    errors = exc.details.get("errors")
    for one in errors if isinstance(errors, list) else ():
        if isinstance(one, dict) and one.get("path") == path and str(one.get("message", "")).isdecimal():
            return int(one["message"])
    return None
