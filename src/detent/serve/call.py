"""What a handler gets and gives: a `Call` with checked values, and an `Answer`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

from detent.access.headers import readable_traceparent
from detent.access.scopes import Principal
from detent.access.signature import Evidence
from detent.canon import sha256
from detent.serve.authenticate import Known
from detent.serve.caller import Caller
from detent.serve.incoming import Head

if TYPE_CHECKING:
    from detent.owner.socket_messages import Answer as Decided
    from detent.serve.serving import Serving
    from detent.serve.tenant_reader import TenantReader
    from detent.serve.writing import Writing
    from detent.store.api import AnswerRow

T = TypeVar("T")
_REQUEST: Final = b"detent/request/v1\0"


def _whole(value: object) -> object:
    """A number as JSON has it: 5.0 is 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
"""For a whole number in a body, behind its bounds: ``Annotated[int, Field(ge=0), WHOLE]``."""


class Shape(BaseModel):
    """The base of every document that goes in or out: closed, so that nothing is taken or told that the API does not name."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class Once(Protocol):
    """A request under an idempotency key that was not used before (`serve/idempotency.py`)."""

    @property
    def scope(self) -> bytes: ...

    @property
    def body(self) -> bytes: ...

    def row(self, answer: Answer, jobs: Sequence[str] = ()) -> AnswerRow:
        """The answer as it is kept, for the commit of what the request does."""


@dataclass(slots=True, eq=False)  # Nothing changes it; frozen, it takes three times as long to make.
class Call:
    """One request, as far as a handler needs to know it."""

    request_id: str
    principal: Principal | None
    """None on a public route."""
    path: Mapping[str, str]
    query: Any
    """An instance of the route's query model; None where it has none."""
    body: Any
    """The same for its body; an `Incoming` on a route that takes bytes."""
    last_event_id: str | None
    if_none_match: str | None
    head: Head
    media_type: str
    """The one of the route's media types that the caller likes best."""
    serving: Serving = field(repr=False)
    known: Known | None = None
    """The principal and how it made itself known; None on a public route."""
    caller: Caller | None = field(default=None, repr=False)
    operation: str = ""
    """The route's method and address, as records call it."""
    once: Once | None = None
    """Under an idempotency key: how the answer is kept in the commit of what the request does."""
    signature: Evidence | None = field(default=None, repr=False)
    """That the operator signed the request; None where that was not so."""
    gone: Callable[[], Awaitable[None]] | None = field(default=None, repr=False)
    """Waits until the caller closes the connection; for a handler that has read the whole body."""

    @property
    def workspace(self) -> str:
        """The one workspace that this request may see. It comes from the credential and from nowhere else."""
        assert self.principal is not None
        return self.principal.workspace

    @property
    def traceparent(self) -> str | None:
        """The trace that the request says it belongs to; None for one that says none."""
        return readable_traceparent(self.head.header(b"traceparent"))

    @property
    def logged_id(self) -> str | None:
        """The id of the request for the order of a job; None where no log would say it, since earlier workers refuse an order that has one."""
        return self.request_id if self.serving.logs_attempts else None

    def may(self, scope: str) -> bool:
        """Whether the credential has a scope. A route that takes the `-own` form of its scope asks for the whole one."""
        return self.principal is not None and self.principal.may(scope)

    @property
    def request_digest(self) -> bytes:
        """What was asked, in 32 bytes: the method, the address with its query, and the body as it was understood.

        Of a request that the operator signed: what was signed.
        """
        assert self.caller is not None
        if self.signature is not None:
            return sha256(self.signature.base)
        body = "" if not isinstance(self.body, BaseModel) else self.body.model_dump_json()
        return sha256(_REQUEST + f"{self.caller.method} {self.caller.target}\n{body}".encode())

    def acting_as(self, known: Known) -> Call:
        """The same call by a principal that has just become known."""
        return replace(self, principal=known.principal, known=known)

    async def read(self, question: Callable[[TenantReader], T]) -> T:
        """Ask the ledger, on one of the threads for that."""
        return await self.serving.readers.read(question)

    async def write(self, make: Callable[[], Writing]) -> list[Decided]:
        """Have commands decided together with those of other requests; see `Writer.write`."""
        answers = await self.serving.writer.write(make)
        for answer in answers:
            if answer.refusal is not None and answer.refusal.code == "QUEUE_FULL":
                self.serving.counters.rejected.count(time.monotonic())
                self.serving.alerts.queue_full(self.workspace, answer.refusal.message)
        return answers


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler answers."""

    content: BaseModel | bytes | AsyncIterator[bytes] | None
    status: int = 200
    tag: str | None = None
    """The entity tag; a caller that has it already gets 304 and no content."""
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str | None = None
    """None: the route's own."""


Handler = Callable[[Call], Awaitable[Answer]]
