"""The key with which a person signs requests to servers, and the requests that it signs.

The key never leaves the machine. A server knows its public half from the API key that was made with it (`detent keys create --public-key`);
only requests under such an API key are signed. The signature is kept with the record of the action, so the ledger proves who asked, and not
only the server says so.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from detent.access.signature import NONCE_BYTES, Said, sign
from detent.canon import SigningKey, sha256
from detent.canon.crypto import SEED_BYTES
from detent.errors import DetentError, HomeError
from detent.owner.state_directory import state_directory
from detent.remote.http import Http
from detent.store.files import read_no_follow, replace_no_follow

KEY_FILE: Final = "operator.key"
UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def operator_key(environment: Mapping[str, str], *, make: bool = False) -> SigningKey | None:
    """This user's own key; made if it is not there and ``make``, else None. Refuses a file that others can read."""
    path = state_directory(environment).parent / KEY_FILE
    try:
        if path.lstat().st_mode & 0o077:
            raise HomeError(f"{path} can be read by others", hint=f"`chmod 600 {path}`, or make another key")
        seed = read_no_follow(path)
    except FileNotFoundError:
        return _made(path) if make else None
    except OSError as exc:
        raise HomeError(
            f"{path} cannot be read: {exc.strerror}", hint="it is the key that you sign requests with"
        ) from exc
    if len(seed) != SEED_BYTES:
        raise HomeError(f"{path} is not a key", hint="remove it; `detent keys operator` makes another one")
    return SigningKey(seed)


def _made(path: Path) -> SigningKey:
    seed = secrets.token_bytes(SEED_BYTES)
    try:
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        replace_no_follow(path, seed)
    except OSError as exc:
        raise HomeError(
            f"{path} cannot be made: {exc.strerror}", hint="set XDG_STATE_HOME to a directory of yours"
        ) from exc
    return SigningKey(seed)


def sign_requests(http: Http, environment: Mapping[str, str] | None = None) -> Http:
    """Have requests to a server signed by this user's own key, if there is one and the server knows it."""
    key = operator_key(os.environ if environment is None else environment)
    if key is not None and http.address.key is not None:
        http.signer = OperatorSigner(http, key)
    return http


class OperatorSigner:
    """Signs what changes something. Asks the server once whether it knows the key, and by which name the ledger goes."""

    def __init__(self, http: Http, key: SigningKey) -> None:
        self._http, self._key = http, key
        self._origin: str | None = None
        self._offset_ms = 0
        self._asked = False

    def __call__(self, method: str, path: str, query: str, content: bytes) -> dict[str, str]:
        """The headers to add to a try of a request: none for one that changes nothing, or where the key is not known."""
        if method not in UNSAFE:
            return {}
        if not self._asked:
            self._ask()
        if self._origin is None:
            return {}
        said = Said(method, path, query, sha256(content))
        created = (time.time_ns() // 1_000_000 + self._offset_ms) // 1_000
        return sign(said, self._key, created=created, nonce=os.urandom(NONCE_BYTES), origin=self._origin)

    def _ask(self) -> None:
        try:
            me = self._http.get("/v1/me")
        except DetentError as exc:
            if exc.code not in {"UNAUTHENTICATED", "NOT_FOUND", "FORBIDDEN"}:
                raise  # The request itself would fail alike.
            me = {}
        self._asked = True
        if me.get("signing_key") == self._key.key_id.hex():
            self._origin = me["origin"]
            self._offset_ms = int(me["now_ms"]) - time.time_ns() // 1_000_000
