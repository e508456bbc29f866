"""Who asks: the one place where a credential becomes a principal.

Four kinds of credentials count. The home's own token, in a file that only its user can read, may do everything in every workspace. API keys
are folded from the ledger (`access/state.py`). A browser session stands for the token or the key it was begun with, and
ends with it. A proxy that the operator trusts may name a member.

A request acts in one workspace: that of its credential. ``Detent-Workspace`` chooses among several for a principal that has several, and
is refused for any other, whether the named workspace exists or not.

For the HTTP loop alone.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from detent.access.browser import csrf_token
from detent.access.changes import ADMIN, local_principal
from detent.access.problem import Problem
from detent.access.scopes import LOOKING, ROLES, Principal
from detent.access.state import AccessState, Key
from detent.access.tokens import API_KEY, ID_BYTES, SECRET_BYTES, Token, make_token, read_token
from detent.errors import HomeError
from detent.owner.names import DIRECTORY, TOKEN_FILE
from detent.serve.browser_sessions import BrowserSessions
from detent.serve.refusal import Refusal
from detent.store.files import read_no_follow, replace_no_follow

BY_KEY, BY_SESSION, BY_PROXY = "key", "session", "proxy"
_NO_SECRET: Final = bytes(32)
_PROXY: Final = "proxy"


@dataclass(frozen=True, slots=True)
class Known:
    """A principal, and how it made itself known."""

    principal: Principal
    via: str
    """`key`, `session` or `proxy`; the last two are sent by browsers on their own and need more than themselves."""
    csrf: str | None = field(default=None, repr=False)
    session: bytes | None = None
    """The stored form of a session's secret."""

    def for_reading(self) -> Known:
        """The same, without anything that changes the home."""
        return replace(self, principal=replace(self.principal, scopes=self.principal.scopes & LOOKING))


class Authenticator:
    """Turns credentials into principals."""

    def __init__(
        self,
        token: Token,
        sessions: BrowserSessions,
        now_ms: Callable[[], int],
        principal_named: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self._local = token
        self._local_known = Known(local_principal(token.token_id), BY_KEY)
        self._now_ms = now_ms
        self._principal_named = principal_named
        self._proxy_secret = secrets.token_hex(SECRET_BYTES)
        self.sessions = sessions
        self.state = AccessState()

    def by_token(self, token: Token, workspace: str | None = None) -> Known | None:
        """Whose token it is; None for one that counts for nothing here. Takes equally long for every token that does not."""
        now_ms = self._now_ms()
        key = self.state.key(token.token_id) if token.kind == API_KEY else None
        opened = [token.fits(one) for one in (key.secrets(now_ms) if key is not None else (_NO_SECRET,))]
        if hmac.compare_digest(token.text.encode(), self._local.text.encode()):
            if workspace is None:
                return self._local_known
            return Known(self._chosen(self._local_known.principal, workspace), BY_KEY)
        if key is None or not any(opened) or not key.counts(now_ms):
            return None
        self.sessions.used(key.key_id, now_ms)
        return Known(self._chosen(self._of_key(key), workspace), BY_KEY)

    def by_cookie(self, value: str, workspace: str | None = None) -> Known | None:
        """Whose session it is; None for one that has ended, or whose key has."""
        now_ms = self._now_ms()
        held = self.sessions.find(value, now_ms)
        if held is None:
            return None
        principal = self._of_session(held.key_id, held.session_id, now_ms)
        if principal is None:
            self.sessions.end(held.stored)
            return None
        return Known(self._chosen(principal, workspace), BY_SESSION, csrf_token(value), held.stored)

    def by_proxy(self, user: str, workspace: str | None = None) -> Known | None:
        """The member that a trusted proxy names, in the first of its workspaces unless another is chosen."""
        principal_id = self._principal_named(user)
        homes = [] if principal_id is None else self.state.workspaces_of(principal_id)
        if principal_id is None or not homes:
            return None
        first = workspace if workspace in homes else homes[0]
        principal = Principal(principal_id, _PROXY, first, ROLES[self.state.members(first)[principal_id]])
        return Known(self._chosen(principal, workspace), BY_PROXY, csrf_token(self._proxy_secret + principal_id))

    def still(self, known: Known) -> bool:
        """Whether a credential that was good a moment ago allows as much now: asked about open streams."""
        now_ms, principal = self._now_ms(), known.principal
        if known.via == BY_PROXY:
            role = self.state.role(principal.workspace, principal.principal_id)
            now: Principal | None = None if role is None else replace(principal, scopes=ROLES[role])
        elif known.session is not None:
            held = self.sessions.get(known.session, now_ms)
            now = None if held is None else self._of_session(held.key_id, held.session_id, now_ms)
        elif principal.credential_id == self._local.token_id:
            return True
        else:
            key = self.state.key(principal.credential_id)
            now = self._of_key(key) if key is not None and key.counts(now_ms) else None
        try:
            return now is not None and self._chosen(now, principal.workspace).scopes >= principal.scopes
        except Refusal:
            return False

    def left_ms(self, known: Known) -> int | None:
        """How long a credential still counts; None where it does not end by itself."""
        ends = known.principal.expires_ms
        return None if ends is None else max(0, ends - self._now_ms())

    def begin_session(self, key_id: str | None) -> str:
        """Begin a session for the home's user or for a key; gives its secret."""
        return self.sessions.begin(key_id, self._now_ms())

    def _of_key(self, key: Key) -> Principal:
        return Principal(key.principal_id, key.key_id, key.workspace, self.state.scopes_of(key), key.expires_ms)

    def _of_session(self, key_id: str | None, name: str, now_ms: int) -> Principal | None:
        if key_id is None:
            return local_principal(name)
        key = self.state.key(key_id)
        if key is None or not key.counts(now_ms):
            return None
        return replace(self._of_key(key), credential_id=name)

    def _chosen(self, principal: Principal, workspace: str | None) -> Principal:
        """The principal in the workspace that the request chooses."""
        if workspace is None or workspace == principal.workspace:
            return principal
        if principal.may(ADMIN) and self.state.workspace(workspace) is not None:
            return replace(principal, workspace=workspace)
        role = self.state.role(workspace, principal.principal_id)
        if role is None:
            raise Refusal(Problem("WORKSPACE_MISMATCH", "the credential is not for the workspace in Detent-Workspace"))
        return replace(principal, workspace=workspace, scopes=principal.scopes & ROLES[role])


def local_token(home: Path) -> tuple[Token, Path]:
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
    return token, path
