"""The one table of routes: what is served, to whom, with which answers and which codes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from pydantic import BaseModel

from detent.access.actions import ACTIONS
from detent.access.scopes import ANY, OWN_CREDENTIAL, PUBLIC, SCOPES
from detent.errors import InvariantBroken, registered
from detent.serve.call import Handler

JSON: Final = "application/json"
ANYTHING: Final = "*/*"
"""The media type of a route whose answer says what it is."""
BODY_BYTES_MAX: Final = 64 * 1024
_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_NAME: Final = re.compile(r"\{([a-z_]+)\}")

ID_PATTERN: Final = r"^[A-Za-z0-9._:-]{1,200}$"
"""What an id in a path may be. Ids are opaque and nothing of them is normalised."""
JOB_ID_PATTERN: Final = r"^[A-Za-z0-9._:~/-]{1,200}$"
"""What the id of a job may be. An ordered run names its jobs `run/seq-4`; in a path the slash is written %2F."""
_OF_JOBS: Final = frozenset({"job_id", "artifact", "name"})
"""The names in paths that may be ids of jobs, or begin with one."""

_ALWAYS: Final = (
    *("REQUEST_INVALID", "VALIDATION_ERROR", "NOT_ACCEPTABLE", "REQUEST_TIMEOUT", "BODY_TOO_LARGE", "HOST_REFUSED"),
    *("HEADERS_TOO_LARGE", "INVARIANT_VIOLATION", "CONNECTIONS_FULL", "DRAINING", "RATE_LIMITED"),
)
_WITH_CREDENTIAL: Final = ("UNAUTHENTICATED", "FORBIDDEN", "CSRF_REFUSED", "WORKSPACE_MISMATCH")
_WITH_BODY: Final = ("NOT_STRICT_JSON", "UNSUPPORTED_MEDIA_TYPE")
_SIGNED: Final = ("CLOCK_SKEW",)
"""The codes of routes whose requests operators may sign."""
_WITH_KEY: Final = (
    *("IDEMPOTENCY_KEY_REUSED", "IDEMPOTENCY_KEY_DECIDED", "IDEMPOTENCY_KEYS_FULL", "INBOX_FULL", "OUTCOME_UNKNOWN"),
    *("STORE_UNAVAILABLE", "STORE_CORRUPT"),
)
READING: Final = ("STORE_UNAVAILABLE", "STORE_CORRUPT")
"""The codes of every route that reads the ledger."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one address."""

    method: str
    path: str
    handler: Handler
    summary: str
    """What it does, as a sentence that begins with a verb."""
    scope: str = ""
    """What the credential must allow; `PUBLIC` for none."""
    codes: tuple[str, ...] | None = None
    """The codes of its own, beside those that every route may answer with; () says that there are none."""
    answers: Mapping[int, type[BaseModel] | None] = field(default_factory=lambda: {200: None})
    """The documents of its successes; None for one that is not JSON."""
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    headers: tuple[str, ...] = ()
    """Headers of the request that its handler reads, for the description."""
    takes: tuple[str, ...] = ()
    """The media types of a body of bytes, which the handler reads as it comes; no other body then."""
    media_type: str = JSON
    also: tuple[str, ...] = ()
    """Further media types of its answer, for callers that ask for one."""
    signed: bool = False
    """Whether its query is a signature that the handler checks as it was sent."""
    page: bool = False
    """Whether it is a page for people: the page reads its query itself, and it is no part of the API's description."""
    etag: bool = False
    pages: bool = False
    streams: bool = False
    idempotent: bool = False
    """Whether it takes an Idempotency-Key."""
    audited: bool = False
    """Whether it leaves an `operated` record."""
    action: str | None = None
    """The action of that record (`access/actions.py`); attempts that are refused are recorded under it, too."""
    body_bytes_max: int = BODY_BYTES_MAX

    @property
    def name(self) -> str:
        """As records and logs call it."""
        return f"{self.method} {self.path}"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names in its path."""
        return tuple(_NAME.findall(self.path))

    @property
    def writes(self) -> bool:
        """Whether it counts against the rate of writes."""
        return self.method != "GET" and (self.audited or self.idempotent)

    @property
    def all_codes(self) -> tuple[str, ...]:
        """Every code that it may answer with."""
        codes = [*_ALWAYS, *(self.codes or ())]
        codes += [] if self.scope == PUBLIC or self.scope in OWN_CREDENTIAL else _WITH_CREDENTIAL
        codes += ["CSRF_REFUSED"] if self.scope == PUBLIC and self.method != "GET" else []
        codes += _WITH_BODY if self.body is not None else ()
        codes += _WITH_KEY if self.idempotent else ()
        codes += _SIGNED if self.audited and self.scope not in OWN_CREDENTIAL | {PUBLIC} else ()
        codes += ["UNSUPPORTED_MEDIA_TYPE"] if self.takes else []
        codes += ["NOT_FOUND"] if self.parameters else []  # A path that no id can have.
        return tuple(dict.fromkeys(codes))


class _Place:
    """Where the parts of a path lead: to further places by a word or by any id, and to an address if it ends here."""

    __slots__ = ("id", "names", "path", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Place] = {}
        self.id: _Place | None = None
        self.path: str | None = None
        self.names: Sequence[str] = ()


class Table:
    """All routes, checked when the server starts."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = tuple(routes)
        self._addresses = _Place()
        self._pages = frozenset(route.path for route in self._routes if route.page)
        seen: set[tuple[str, str]] = set()
        for route in self._routes:
            fault = _fault(route)
            shape = (route.method, _NAME.sub("{}", route.path))
            if fault is None and shape in seen:
                fault = "is there twice"
            fault = fault or self._enter(route.path)
            if fault is not None:
                raise InvariantBroken(f"the route {route.method} {route.path} {fault}")
            seen.add(shape)

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def address_of(self, path: str) -> tuple[str, dict[str, str]] | None:
        """The address that a path as it was sent names, as routes write it, and the ids in it; None where there is no such address.

        People type a slash behind the address of a page, and programs link to it: it is the same page.
        """
        if path.endswith("/") and path != "/" and not path.endswith("//"):
            found = self.address_of(path[:-1])
            return found if found is not None and found[0] in self._pages else None
        place, ids = self._addresses, []
        for written in path[1:].split("/"):
            part = unquote(written) if "%" in written else written
            following = place.words.get(part)
            if following is None:
                following = place.id if part else None
                ids.append(part)
            if following is None:
                return None
            place = following
        if place.path is None:
            return None
        named = dict(zip(place.names, ids, strict=True))
        if ("%" in path or "~" in path) and any(
            _is_of_job(part) and name not in _OF_JOBS for name, part in named.items()
        ):
            return None
        return place.path, named

    def _enter(self, path: str) -> str | None:
        """Take an address in; gives what is wrong where one path could name two addresses."""
        place = self._addresses
        for part in path[1:].split("/"):
            if _NAME.fullmatch(part):
                place.id = place.id or _Place()
                following = place.id
            else:
                following = place.words.setdefault(part, _Place())
            if place.words and place.id is not None:
                return f"has an id where another address has a word, behind {part}"
            place = following
        if place.path not in {None, path}:
            return f"calls its ids otherwise than {place.path}"
        place.path, place.names = path, _NAME.findall(path)
        return None

    def by_path(self) -> dict[str, dict[str, Route]]:
        """The methods of every address, in the order of the table."""
        found: dict[str, dict[str, Route]] = {}
        for route in self._routes:
            found.setdefault(route.path, {})[route.method] = route
        return found


def _is_of_job(part: str) -> bool:
    return "/" in part or "~" in part


def _fault(route: Route) -> str | None:
    if route.scope not in SCOPES | OWN_CREDENTIAL | {PUBLIC, ANY}:
        return f"has the scope {route.scope!r}, which does not exist" if route.scope else "has no scope"
    if route.action is not None and (route.action not in ACTIONS or not route.audited):
        return f"has the action {route.action!r}, which does not exist or is not recorded"
    if route.codes is None:
        return "does not say its codes"
    if route.method not in _METHODS:
        return "has a method that is not served"
    if not route.answers or not route.summary.endswith("."):
        return "does not say what it answers"
    if (route.body is not None or route.takes) and route.method == "GET":
        return "takes a body with GET"
    if route.body is not None and route.takes:
        return "takes both a document and bytes"
    for code in route.all_codes:
        if registered(code).http_status < 400:
            return f"answers with {code}, which is not a refusal"
    return None
