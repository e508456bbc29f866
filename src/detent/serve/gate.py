"""Whether a request may use a route: address, credential, origin, scope, rate, in this order.

Nothing is said about what exists before the credential is known. A credential that a browser sends on its own counts only
where the request cannot come from a foreign page (`access/browser.py`), reads included: an open stream costs as much as a write.
"""

from __future__ import annotations

from typing import Final, Protocol

from detent.access.browser import Asked, cookie_value, foreign
from detent.access.buckets import Rate
from detent.access.problem import Problem
from detent.access.scopes import OWN_CREDENTIAL, PUBLIC, own_scope, roles_hint
from detent.access.tokens import bearer
from detent.serve.authenticate import BY_KEY, Authenticator, Known
from detent.serve.caller import Caller
from detent.serve.limits import Limits, Rates
from detent.serve.refusal import Refusal


class Rule(Protocol):
    """What a route asks of its callers."""

    @property
    def method(self) -> str: ...

    @property
    def scope(self) -> str: ...

    @property
    def streams(self) -> bool: ...

    @property
    def writes(self) -> bool: ...


CSRF_HEADER: Final = b"detent-csrf"
WORKSPACE_HEADER: Final = b"detent-workspace"


class Gate:
    """Judges requests. For the HTTP loop alone."""

    def __init__(
        self,
        authenticator: Authenticator,
        limits: Limits,
        rates: Rates,
        origins: frozenset[str],
        proxy_header: bytes | None = None,
        *,
        reads_only: bool = False,
    ) -> None:
        self._authenticator, self._limits, self._rates = authenticator, limits, rates
        self._origins, self._proxy_header, self._reads_only = origins, proxy_header, reads_only

    def known(self, caller: Caller, route: Rule) -> Known | None:
        """Who asks; None on a public route. Raises the `Refusal` of a caller that is not known or may be a foreign page."""
        if not caller.local:
            self._count("requests", caller.address, self._rates.addresses)
        if route.scope == PUBLIC or route.scope in OWN_CREDENTIAL:
            if route.method not in {"GET", "HEAD"}:
                self._insist_on_own_page(caller, route)
            return None
        known = self._credential(caller)
        if known is None:
            self._count("failures", caller.address, self._rates.failures)
            raise Refusal(
                Problem(
                    "UNAUTHENTICATED",
                    "the request needs a valid credential",
                    "send `Authorization: Bearer ...` with a key, or with the token that `detent serve` names",
                ),
                {"www-authenticate": 'Bearer realm="detent"'},
            )
        if known.via != BY_KEY:
            why = foreign(self._asked(caller, route), self._origins, known.csrf or "")
            if why is not None:
                raise _csrf(why)
        return known.for_reading() if self._reads_only else known

    def insist(self, known: Known, route: Rule) -> None:
        """Refuse a principal without the route's scope, or one that asks too often."""
        principal, own = known.principal, own_scope(route.scope)
        if not principal.may(route.scope) and (own is None or not principal.may(own)):
            raise Refusal(
                Problem("FORBIDDEN", f"the credential lacks the scope {route.scope}", roles_hint(route.scope))
            )
        quotas = self._authenticator.state.workspace(principal.workspace)
        kind, rate = self._rates.of(route.writes, None if quotas is None else quotas.quotas)
        self._count(kind, principal.credential_id, rate)

    def count_login(self, caller: Caller) -> None:
        """Refuse an address that tries to log in too often."""
        self._count("logins", caller.address, self._rates.logins)

    def _credential(self, caller: Caller) -> Known | None:
        """The credential of a request: a key where one is sent, else the user that a proxy names, else the cookie."""
        workspace = caller.header(WORKSPACE_HEADER)
        written = caller.header(b"authorization")
        if written is not None:
            token = bearer(written)
            return None if token is None else self._authenticator.by_token(token, workspace)
        user = None if self._proxy_header is None or not caller.proxied else caller.header(self._proxy_header)
        if user is not None:
            return self._authenticator.by_proxy(user, workspace)
        value = cookie_value(caller.header(b"cookie"), caller.header(b"host"), secure=caller.secure)
        return None if value is None else self._authenticator.by_cookie(value, workspace)

    def _insist_on_own_page(self, caller: Caller, route: Rule) -> None:
        """A public route that changes something: a foreign page must not log a browser in as someone else."""
        header = caller.header
        if header(b"origin") is None and header(b"sec-fetch-site") is None:
            return  # No browser: there is nothing that it would send on its own.
        why = foreign(
            Asked(caller.method, header(b"origin"), header(b"sec-fetch-site"), "", route.streams), self._origins, ""
        )
        if why is not None:
            raise _csrf(why)

    def _asked(self, caller: Caller, route: Rule) -> Asked:
        header = caller.header
        csrf = header(CSRF_HEADER)
        return Asked(caller.method, header(b"origin"), header(b"sec-fetch-site"), csrf, route.streams)

    def _count(self, kind: str, name: str, rate: Rate) -> None:
        wait_ms = self._limits.wait_ms(kind, name, rate)
        if wait_ms:
            raise Refusal(
                Problem("RATE_LIMITED", f"more than {rate.words} {kind}", retry_after_ms=wait_ms),
                {
                    "ratelimit-policy": f'"{kind}";q={rate.burst};w={rate.window_seconds}',
                    "ratelimit": f'"{kind}";r=0;t={-(-wait_ms // 1_000)}',
                },
            )


def _csrf(why: str) -> Refusal:
    return Refusal(Problem("CSRF_REFUSED", f"the request is refused: {why}"))
