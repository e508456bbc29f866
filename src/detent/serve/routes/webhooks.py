"""Webhooks of a workspace: made, listed, tried, deleted. Deliveries are jobs; their list says when each is tried next, and why."""

from __future__ import annotations

import secrets
from base64 import b32encode
from typing import Annotated, Final, Literal
from urllib.parse import quote

from pydantic import Field

from detent.access.changes import Change
from detent.access.cursor import read_cursor, write_cursor
from detent.access.destinations import URL_CHARS_MAX, read_destination
from detent.access.headers import path_part
from detent.access.webhooks import ED25519, EVENTS, HOOKS_MAX, Hook, event_id_of, public_text, secret_text
from detent.canon import SigningKey, tick_to_iso
from detent.errors import DetentError, InvalidInput, RequestRefused, error_of
from detent.executor.own_targets import DELIVER
from detent.kernel.table import State
from detent.serve.audit import recorded
from detent.serve.call import Answer, Call, Shape
from detent.serve.deliver import DeliveryFailed, judged_addresses, key_or_new
from detent.serve.listing import JobFilter
from detent.serve.notifying import Delivery, job_id_of, label_of
from detent.serve.paging import Cursor
from detent.serve.table import READING, Route
from detent.serve.tenant_reader import JobFacts
from detent.serve.times import written_ms
from detent.serve.writing import Writing
from detent.words.states import word_of

EventName = Literal["job.ended", "run.ended", "worker.lost", "worker.mismatch", "queue.full", "verify.failed"]
assert EventName.__args__ == EVENTS  # type: ignore[attr-defined]
DELIVERIES_MAX: Final = 50
"""Deliveries of a page: each is read with its event and its last report."""
_COMMITTING: Final = ("STORE_UNAVAILABLE", "OUTCOME_UNKNOWN")


class WebhookBody(Shape):
    """The webhook to make."""

    url: Annotated[str, Field(min_length=1, max_length=URL_CHARS_MAX)]
    """Where events go: https, and an address of the public internet."""
    events: Annotated[list[EventName], Field(min_length=1, max_length=len(EVENTS))]
    """`job.ended` for jobs that were submitted alone, `run.ended` for runs; `worker.lost`, `worker.mismatch`, `queue.full` and `verify.failed` for what the
    server notices."""
    signature: Literal["ed25519", "hmac"] = "ed25519"


class WebhookShown(Shape):
    """A webhook."""

    hook_id: str
    url: str
    events: list[str]
    signature: str
    state: Literal["on", "off"]
    reason: str | None
    """Why it was switched off."""
    created_at: str | None
    public_key: str | None
    """What its deliveries are verified with, as `whpk_` and base64; null where a shared secret signs them."""
    deliveries: str
    """Where its deliveries are listed: each is a job."""


class WebhookMade(Shape):
    """A new webhook; a shared secret is shown here and never again."""

    webhook: WebhookShown
    secret: str | None


class WebhookList(Shape):
    """The webhooks of the workspace, oldest first."""

    items: list[WebhookShown]


class DeliveriesQuery(Shape):
    """Where to go on."""

    limit: Annotated[int, Field(ge=1, le=DELIVERIES_MAX)] = DELIVERIES_MAX
    cursor: Cursor | None = None


class WebhookDelivery(Shape):
    """One event on its way to a webhook, or delivered: a job."""

    job_id: str
    event_id: str | None
    """The `webhook-id` that the receiver gets; null when the event was erased."""
    event: str | None
    """What it tells: a type of event, or `webhook.test`."""
    state: str
    """As a job's: `retrying` waits for its next attempt."""
    attempts: int
    """How often it was sent."""
    attempts_max: int
    """How often it is sent at most, unless an attempt is interrupted."""
    next_at: str | None
    """When it is sent next; null unless it waits for that."""
    last_answer: str | None
    """What came of the last attempt that ended; null before that."""
    submitted_at: str
    changed_at: str


class WebhookDeliveries(Shape):
    """Deliveries, newest first."""

    items: list[WebhookDelivery]
    next: str | None
    """The cursor of the following page; null on the last one."""


class Tried(Shape):
    """The job that delivers a test event."""

    job_id: str


async def _list(call: Call) -> Answer:
    hooks = call.serving.access.hooks.of(call.workspace)
    return Answer(WebhookList(items=[_shown(call, hook) for hook in hooks]))


async def _read(call: Call) -> Answer:
    return Answer(_shown(call, _found(call)))


async def _create(call: Call) -> Answer:
    body: WebhookBody = call.body
    access = call.serving.access
    await call.serving.writer.run(lambda: _judge(call, body.url))
    async with access.changing:
        if len(access.hooks.of(call.workspace)) >= HOOKS_MAX:
            raise RequestRefused(
                f"the workspace has {HOOKS_MAX} webhooks", code="ACCESS_FULL", hint="delete those that are not used"
            )
        hook_id = f"wh_{b32encode(secrets.token_bytes(10)).decode().lower()}"
        own = body.signature == ED25519
        secret = await call.serving.writer.run(
            lambda: key_or_new(call.serving.home.path, call.workspace if own else hook_id)
        )
        parameters = {"url": body.url, "events": sorted(set(body.events)), "signature": body.signature}
        change = Change("webhook.create", "webhook", hook_id, call.workspace, parameters)
        await access.commit(call.serving.hub, recorded(call, change))
    made = access.hooks.hook(call.workspace, hook_id)
    if made is None:
        raise RequestRefused("the webhook was deleted as it was made", code="CONFLICT")
    shown = WebhookMade(webhook=_shown(call, made), secret=None if own else secret_text(secret))
    return Answer(shown, 201, headers={"location": f"/v1/webhooks/{hook_id}"})


async def _delete(call: Call) -> Answer:
    access, hook = call.serving.access, _found(call)
    async with access.changing:
        change = Change("webhook.delete", "webhook", hook.hook_id, call.workspace)
        await access.commit(call.serving.hub, recorded(call, change))
    return Answer(None, 204)


async def _test(call: Call) -> Answer:
    hook, notifier = _found(call), call.serving.notifier
    event_id = event_id_of(call.request_id, 0, 0)
    now = tick_to_iso(call.serving.access.now_ms(), 1, 0)
    event = {"id": event_id, "type": "webhook.test", "timestamp": now, "workspace": call.workspace, "data": {}}
    job_id = job_id_of(event_id)
    change = Change("webhook.test", "webhook", hook.hook_id, call.workspace)
    answers = await call.write(
        lambda: Writing([notifier.delivery(Delivery(hook, event), job_id)], [recorded(call, change)])
    )
    for answer in answers:
        if answer.refusal is not None:
            raise error_of(answer.refusal)
    return Answer(Tried(job_id=job_id), 202, headers={"location": f"/v1/jobs/{path_part(job_id)}"})


async def _deliveries(call: Call) -> Answer:
    hook, query = _found(call), call.query
    route, filters = "/v1/webhooks/deliveries", {"hook": hook.hook_id}
    place = None if query.cursor is None else read_cursor(query.cursor, route, filters, (int,))
    wanted = JobFilter(label=label_of(hook.hook_id))
    found, behind = await call.read(lambda reader: reader.details(call.workspace, wanted, place, query.limit))
    # Other jobs may have the same label.
    items = [_delivery(one) for one in found if one.order is None or one.order.call.target == DELIVER]
    following = None if behind is None else write_cursor(route, filters, behind)
    return Answer(WebhookDeliveries(items=items, next=following))


def _delivery(facts: JobFacts) -> WebhookDelivery:
    view, job = facts.view, facts.view.job
    event = {} if facts.order is None else facts.order.call.keywords.get("event", {})
    return WebhookDelivery(
        job_id=view.row.job_id,
        event_id=event.get("id"),
        event=event.get("type"),
        state=word_of(view.row.state),
        attempts=len(facts.attempts),
        attempts_max=job.max_retries + 1,
        next_at=view.times.iso(job.ready_tick) if job.state == State.RETRYING and job.ready_tick is not None else None,
        last_answer=_answered(facts),
        submitted_at=view.times.iso(job.submitted_tick),
        changed_at=view.times.iso(view.row.tick),
    )


def _answered(facts: JobFacts) -> str | None:
    """What came of the last attempt: the status that answered, or why none did."""
    if facts.report is None:
        return None
    if facts.report.result.failure is not None:
        return facts.report.result.failure.message
    return f"answered {facts.value['status']}" if isinstance(facts.value, dict) else None


def _judge(call: Call, url: str) -> None:
    """Refuse a URL that could never be delivered to. A name that is not known yet may be known later."""
    try:
        judged_addresses(read_destination(url), call.serving.home.settings().webhooks_allowed)
    except DeliveryFailed:
        pass
    except DetentError as exc:
        raise InvalidInput(
            str(exc), code="URL_REFUSED", hint=exc.hint, details={"errors": [{"path": "body.url", "message": str(exc)}]}
        ) from exc


def _found(call: Call) -> Hook:
    hook = call.serving.access.hooks.hook(call.workspace, call.path["hook_id"])
    if hook is None:
        raise InvalidInput(
            "there is no such webhook in this workspace", code="NOT_FOUND", hint="GET /v1/webhooks lists the webhooks"
        )
    return hook


def _shown(call: Call, hook: Hook) -> WebhookShown:
    public = None
    if hook.signature == ED25519:
        public = public_text(SigningKey(key_or_new(call.serving.home.path, hook.workspace)).public_key)
    return WebhookShown(
        hook_id=hook.hook_id,
        url=hook.url,
        events=list(hook.events),
        signature=hook.signature,
        state="on" if hook.disabled is None else "off",
        reason=hook.disabled,
        created_at=written_ms(hook.created_ms),
        public_key=public,
        deliveries=f"/v1/jobs?label={quote(label_of(hook.hook_id))}",
    )


ROUTES: Final = (
    Route(
        "GET", "/v1/webhooks", _list, "List the webhooks of this workspace.", "webhooks:write", (), {200: WebhookList}
    ),
    Route(
        "POST",
        "/v1/webhooks",
        _create,
        "Make a webhook: events of this workspace are sent to its URL, signed.",
        "webhooks:write",
        ("URL_REFUSED", "ACCESS_FULL", "CONFLICT", *_COMMITTING),
        {201: WebhookMade},
        body=WebhookBody,
        audited=True,
        action="webhook.create",
    ),
    Route(
        "GET",
        "/v1/webhooks/{hook_id}",
        _read,
        "Read one webhook.",
        "webhooks:write",
        ("NOT_FOUND",),
        {200: WebhookShown},
    ),
    Route(
        "DELETE",
        "/v1/webhooks/{hook_id}",
        _delete,
        "Delete a webhook; deliveries that are queued are still made.",
        "webhooks:write",
        ("NOT_FOUND", *_COMMITTING),
        {204: None},
        audited=True,
        action="webhook.delete",
    ),
    Route(
        "GET",
        "/v1/webhooks/{hook_id}/deliveries",
        _deliveries,
        "List the deliveries of a webhook, newest first: what came of each, and when those that wait are sent next.",
        "webhooks:write",
        (*READING, "NOT_FOUND"),
        {200: WebhookDeliveries},
        query=DeliveriesQuery,
        pages=True,
    ),
    Route(
        "POST",
        "/v1/webhooks/{hook_id}/test",
        _test,
        "Send a test event to a webhook.",
        "webhooks:write",
        (*READING, "NOT_FOUND", "QUEUE_FULL", "LIMIT_TENANT", "INBOX_FULL", "CONFLICT", *_COMMITTING),
        {202: Tried},
        audited=True,
        action="webhook.test",
    ),
)
