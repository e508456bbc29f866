"""Who asks: the one place where a credential becomes a principal.

Until keys have their own records, a server knows one credential: a token in the home, readable by the user whose home it is. It acts for
the home's own workspace and may do everything there, as that user can by commands. Other credentials come in here, behind
the same protocol, and nothing else changes.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final, Protocol

from detent.access.scopes import ROLES, Principal
from detent.access.tokens import API_KEY, ID_BYTES, SECRET_BYTES, Token, make_token, read_token
from detent.errors import HomeError
from detent.owner.backend import TENANT
from detent.store.files import read_no_follow, replace_no_follow

DIRECTORY: Final = "serve"
TOKEN_FILE: Final = "token"  # noqa: S105 - the name of a file


class Authenticator(Protocol):
    """Turns credentials into principals."""

    def principal(self, token: Token) -> Principal | None:
        """Whose token it is; None for one that counts for nothing here."""


class LocalToken:
    """The token of the home itself."""

    def __init__(self, token: Token) -> None:
        self._digest = token.digest
        self._principal = Principal("p_local", token.token_id, TENANT, ROLES["server_admin"])

    def principal(self, token: Token) -> Principal | None:
        """The user of the home, for the home's own token."""
        return self._principal if token.fits(self._digest) else None


def local_token(home: Path) -> tuple[LocalToken, Path]:
    """The home's own token, made when it is first needed, and the file that holds it: mode 0600, in a directory of mode 0700."""
    path = home / DIRECTORY / TOKEN_FILE
    path.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        token = read_token(read_no_follow(path).decode("ascii").strip())
    except FileNotFoundError:
        token = make_token(API_KEY, secrets.token_bytes(ID_BYTES + SECRET_BYTES))
        replace_no_follow(path, f"{token.text}\n".encode())
    except UnicodeDecodeError:
        token = None
    if token is None:
        raise HomeError(
            f"{path} does not hold a token", hint="remove the file: the server writes a new one when it starts"
        )
    if path.stat().st_mode & 0o077:
        raise HomeError(
            f"{path} can be read by others", hint=f"remove it, or `chmod 600 {path}` if no other user has read it"
        )
    return LocalToken(token), path
