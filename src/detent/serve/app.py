"""What is done for every request, in this order: host, path, route, credential, scope, rate, media types, query, body, handler.

Each check answers with a problem and ends there. The order is part of the promise: nothing is said about what exists before the
credential is known, and no body is read for a caller who may not send it.

An `InvariantBroken` is our own bug: the caller gets the number of the request and nothing else, and the process stops. Any other
exception that has no code is answered alike and told on standard error, and the server goes on: one unreadable row must
not take everyone's server away.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import traceback
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, Final, NoReturn, TextIO
from urllib.parse import parse_qsl, unquote, urlencode

from pydantic import BaseModel, ValidationError

from detent.access.headers import host_is_allowed, is_media_type, matches, path_fault, quality, trace_id_of
from detent.access.problem import MEDIA_TYPE, Problem, bug, problem_of
from detent.canon import json_decode, sha256
from detent.canon.show import show
from detent.errors import DetentError, InvariantBroken, StoreCorrupt
from detent.serve.call import Answer, Call
from detent.serve.caller import caller_in
from detent.serve.exchange import Exchange
from detent.serve.idempotency import Idempotency
from detent.serve.incoming import Gone, Incoming, pieces_of
from detent.serve.open_streams import OpenStreams
from detent.serve.refusal import Refusal
from detent.serve.serving import Serving
from detent.serve.table import ANYTHING, JSON, Route, Table

QUERY_FIELDS_MAX: Final = 32
BODY_DEPTH_MAX: Final = 32
NOT_RECORDED: Final = frozenset({429, 500, 503})
"""Refusals that say nothing about the operator: too many requests, or a server in trouble."""


class Application:
    """Answers requests."""

    def __init__(self, serving: Serving, table: Table, idempotency: Idempotency, log: TextIO | None = None) -> None:
        self._serving, self._log = serving, log
        self._endpoints = {path: Endpoint(serving, idempotency, methods) for path, methods in table.by_path().items()}
        self._find = table.address_of

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request, whatever happens."""
        began = time.monotonic()
        try:
            await self._answer(exchange)
        finally:
            self._told(exchange, time.monotonic() - began)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            self._admit(exchange)
            path, exchange.named = self._find(exchange.path) or _nothing_here()
            await self._endpoints[path].answer(exchange)
        except Gone:
            exchange.status = exchange.status or 499
        except Refusal as exc:
            await self._recorded(exchange, exc.problem)
            await exchange.problem(exc.problem, exc.headers)
        except DetentError as exc:
            problem = problem_of(exc)
            if isinstance(exc, StoreCorrupt):
                _print_fault(
                    exchange, exc
                )  # What is damaged is for the operator; the caller learns which request it was.
            if problem.status < 400 or exchange.status:
                await self._bug(exchange, exc)
            else:
                await self._recorded(exchange, problem)
                await exchange.problem(problem, _headers_of(exc))
        except InvariantBroken as exc:
            await self._bug(exchange, exc)
            self._serving.broken(exc)
        except Exception as exc:  # noqa: BLE001 - a bug in one handler is answered and told
            await self._bug(exchange, exc)

    async def _recorded(self, exchange: Exchange, problem: Problem) -> None:
        """Leave a record of an operator's request that was refused."""
        if exchange.principal is None or exchange.used is None or problem.status in NOT_RECORDED:
            return
        route, named = exchange.used, exchange.named
        if route.action is not None:
            await self._serving.access.refused.refused(
                exchange.principal,
                route.action,
                next(reversed(named.values()), route.action),
                request_id=exchange.request_id,
                route=route.name,
                digest=sha256(exchange.caller.target.encode()),
                code=problem.code,
            )

    def _admit(self, exchange: Exchange) -> None:
        """Judge what a request says about itself, before anything is looked up."""
        exchange.caller = caller_in(exchange, self._serving.access.proxies)
        if self._serving.hub.draining.is_set():
            raise Refusal(Problem("DRAINING", "the server is stopping; it takes no new requests"))
        host = exchange.header(b"host")
        if host is None or not host_is_allowed(host, self._serving.hosts, exchange.caller.scheme):
            raise Refusal(
                Problem(
                    "HOST_REFUSED",
                    "the Host of the request is not one that this server answers for",
                    "use the address that `detent serve` printed, or start it with --allow-host NAME",
                )
            )
        fault = path_fault(exchange.path, unquote(exchange.path) if "%" in exchange.path else exchange.path)
        if fault is not None:
            raise Refusal(Problem("NOT_FOUND", fault))

    async def _bug(self, exchange: Exchange, exc: BaseException) -> None:
        exchange.code = "INVARIANT_VIOLATION"
        _print_fault(exchange, exc)
        if exchange.status:
            return  # The answer has begun: the connection ends without its end.
        body = json.dumps(bug(exchange.request_id)).encode()
        await exchange.whole(500, {"content-type": MEDIA_TYPE, "cache-control": "no-store"}, body)

    def _told(self, exchange: Exchange, seconds: float) -> None:
        self._serving.counters.answered(exchange.route, exchange.status, seconds)
        if self._log is None:
            return
        principal = exchange.principal
        line = {
            "at_ms": time.time_ns() // 1_000_000,
            "request_id": exchange.request_id,
            "trace_id": trace_id_of(exchange.header(b"traceparent")),
            "method": exchange.method,
            "route": exchange.route,
            "status": exchange.status,
            "code": exchange.code or None,
            "principal": None if principal is None else principal.principal_id,
            "credential": None if principal is None else principal.credential_id,
            "workspace": None if principal is None else principal.workspace,
            "ms": round(seconds * 1_000, 3),
            "bytes": exchange.sent_bytes,
        }
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()


class Endpoint:
    """One address, with the routes of its methods."""

    def __init__(self, serving: Serving, idempotency: Idempotency, methods: Mapping[str, Route]) -> None:
        self._serving, self._idempotency = serving, idempotency
        self._methods = {**({"HEAD": methods["GET"]} if "GET" in methods else {}), **methods}

    async def answer(self, exchange: Exchange) -> None:
        """Answer a request to this address."""
        route = self._methods.get(exchange.method)
        exchange.route = next(iter(self._methods.values())).path
        if route is None:
            raise Refusal(
                Problem("METHOD_NOT_ALLOWED", f"{exchange.route} does not take {exchange.method}"),
                {"allow": ", ".join(sorted(self._methods))},
            )
        exchange.used = route
        gate = self._serving.access.gate
        exchange.known = gate.known(exchange.caller, route)
        if exchange.known is not None:
            gate.insist(exchange.known, route)
        media_type = _media_type(route, exchange)
        body = await _body(route, exchange)
        head = exchange.head()
        call = Call(
            exchange.request_id,
            exchange.principal,
            exchange.named,
            None if route.signed or route.page else _query(route, exchange.query),
            body,
            exchange.header(b"last-event-id"),
            exchange.header(b"if-none-match"),
            head,
            media_type,
            self._serving,
            exchange.known,
            exchange.caller,
            route.name,
            signature=self._serving.signatures.evidence(exchange.known, head, exchange.said) if route.audited else None,
            gone=exchange.gone,
        )
        answer = await self._idempotency.answered(call, route, exchange.said, route.handler)
        await _send(exchange, route, answer, self._serving.access.open)


def _nothing_here() -> NoReturn:
    raise Refusal(Problem("NOT_FOUND", "no route has this address", "GET /v1/openapi.json lists the routes"))


def _query(route: Route, raw: str) -> BaseModel | None:
    """The query as the route's model; every fault of it is told at once."""
    try:
        pairs = parse_qsl(
            raw.encode("ascii").decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(raw),
            max_num_fields=QUERY_FIELDS_MAX,
            errors="strict",
        )
    except ValueError:
        raise _invalid([("query", "is not a query of name=value pairs in UTF-8")]) from None
    values = dict(pairs)
    if len(values) != len(pairs):
        raise _invalid([("query", "names a parameter twice")])
    if route.query is None:
        if values:
            raise _invalid([(f"query.{show(name)}", "is not a parameter of this route") for name in values])
        return None
    try:
        return route.query.model_validate(values)
    except ValidationError as exc:
        raise _invalid(_faults(exc, "query")) from None


def _media_type(route: Route, exchange: Exchange) -> str:
    """The media type of the answer: the one that the caller likes best, and the route's own among equals."""
    accepted = exchange.header(b"accept")
    if route.media_type == ANYTHING:
        return ANYTHING  # What the content is, and no caller's wish changes that.
    found = (route.media_type, *route.also)
    likes = [quality(accepted, media_type.partition(";")[0]) for media_type in found]
    if not max(likes):
        raise Refusal(Problem("NOT_ACCEPTABLE", f"{route.path} answers with {' or '.join(found)}"))
    return found[likes.index(max(likes))]


async def _body(route: Route, exchange: Exchange) -> BaseModel | Incoming | None:
    """The body within its bound: as bytes that are still to be read, or as the route's model, whole and in strict JSON."""
    length = exchange.header(b"content-length")
    chunked = exchange.header(b"transfer-encoding") is not None
    empty = route.body is None and not route.takes
    most = 0 if empty else route.body_bytes_max
    if int(length or 0) > most or (empty and chunked):
        raise _too_large(route, most)
    if empty:
        return None
    pieces = pieces_of(exchange.piece, most, lambda: _too_large(route, most))
    if route.takes:
        _insist_on_plain_bytes(route, exchange)
        return Incoming(pieces, None if chunked else int(length or 0))
    if not is_media_type(exchange.header(b"content-type"), JSON):
        raise Refusal(Problem("UNSUPPORTED_MEDIA_TYPE", f"{route.path} takes {JSON} in UTF-8"))
    data = bytearray()
    async for piece in pieces:
        data += piece
    exchange.said = said = bytes(data)
    json_decode(said, name="body", bytes_max=most, depth_max=BODY_DEPTH_MAX)
    assert route.body is not None
    try:
        return route.body.model_validate_json(said, strict=True)
    except ValidationError as exc:
        raise _invalid(_faults(exc, "body")) from None


def _insist_on_plain_bytes(route: Route, exchange: Exchange) -> None:
    """Refuse bytes of another media type, and bytes that would have to be unpacked first."""
    kind, coding = exchange.header(b"content-type"), exchange.header(b"content-encoding")
    if kind is not None and kind.strip().lower() not in route.takes:
        raise Refusal(Problem("UNSUPPORTED_MEDIA_TYPE", f"{route.path} takes {' or '.join(route.takes)}"))
    if coding is not None and coding.strip().lower() != "identity":
        raise Refusal(Problem("UNSUPPORTED_MEDIA_TYPE", f"{route.path} takes bytes without a Content-Encoding"))


def _headers_of(exc: DetentError) -> dict[str, str]:
    """Headers that an error brings along: where an upload goes on, how large a file is."""
    found = exc.details.get("headers")
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, Mapping) else {}


def _too_large(route: Route, most: int) -> Refusal:
    takes = f"at most {most:,} bytes" if most else "no body"
    return Refusal(Problem("BODY_TOO_LARGE", f"{route.method} {route.path} takes {takes}"))


def _faults(exc: ValidationError, name: str) -> list[tuple[str, str]]:
    """What is wrong with a document, without repeating any value of it."""
    errors = exc.errors(include_input=False, include_context=False, include_url=False)
    return [(".".join([name, *(str(part)[:100] for part in error["loc"])]), error["msg"]) for error in errors]


def _invalid(faults: list[tuple[str, str]]) -> Refusal:
    first = f"{faults[0][0]}: {faults[0][1]}"
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return Refusal(Problem("VALIDATION_ERROR", f"{first}{more}", errors=tuple(faults)))


async def _send(exchange: Exchange, route: Route, answer: Answer, streams: OpenStreams) -> None:
    """Send what a handler answered; 304 where the caller has it already."""
    fields = {
        **({} if answer.status == 204 else {"content-type": answer.media_type or route.media_type}),
        "cache-control": "no-store" if answer.tag is None else "private, no-cache",
        **answer.headers,
    }
    following = getattr(answer.content, "next", None) if route.pages else None
    if following is not None:
        fields["link"] = f'<{_next_page(exchange, following)}>; rel="next"'
    if answer.tag is not None:
        fields["etag"] = answer.tag
        if matches(exchange.header(b"if-none-match"), answer.tag):
            fields.pop("content-type", None)
            await exchange.bare(304, fields)
            return
    content = answer.content
    if isinstance(content, BaseModel):
        await exchange.whole(answer.status, fields, content.model_dump_json().encode())
    elif answer.status == 204:
        await exchange.bare(204, fields)
    elif content is None or isinstance(content, bytes):
        await exchange.whole(answer.status, fields, content or b"")
    elif exchange.method == "HEAD":
        await exchange.bare(answer.status, fields)
    else:
        await exchange.begin(answer.status, fields)
        with streams.watch(exchange.known) as ended:
            await _stream(exchange, content, ended)


def _next_page(exchange: Exchange, cursor: str) -> str:
    """The address of the following page: that of this one with another cursor."""
    asked = parse_qsl(exchange.query, keep_blank_values=True)
    kept = [(name, value) for name, value in asked if name != "cursor"]
    return f"{exchange.path}?{urlencode([*kept, ('cursor', cursor)])}"


async def _stream(exchange: Exchange, content: AsyncIterator[bytes], ended: asyncio.Event) -> None:
    """Send pieces as they come, until they end, the caller goes, or its credential no longer counts."""
    gone = asyncio.ensure_future(_first_of(exchange.gone(), ended.wait()))
    iterator = content.__aiter__()
    following: asyncio.Future[bytes] | None = None
    try:
        while not gone.done():
            following = asyncio.ensure_future(_next(iterator))
            await asyncio.wait({gone, following}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                if ended.is_set():
                    await exchange.body(b"")
                break
            piece = following.result()
            if not piece:
                await exchange.body(b"")
                break
            await exchange.body(piece, more=True)
    finally:
        for task in (gone, following):
            if task is not None:
                task.cancel()
        await asyncio.gather(gone, *([] if following is None else [following]), return_exceptions=True)
        close: Any = getattr(iterator, "aclose", None)
        if close is not None:
            await close()


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of them does."""
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _next(iterator: AsyncIterator[bytes]) -> bytes:
    """The next piece; an empty one is the end."""
    return await anext(iterator, b"")


def _print_fault(exchange: Exchange, exc: BaseException) -> None:
    sys.stderr.write(
        f"detent serve: {exchange.request_id} {exchange.route}\n{''.join(traceback.format_exception(exc))}"
    )
    sys.stderr.flush()
