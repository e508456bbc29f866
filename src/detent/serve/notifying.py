"""Webhooks: follow the ledger and submit a delivery for every event that a hook asks for.

A delivery is a job of the workspace. Its id follows from the hook and the position of the record, so an event that is looked at twice,
after a crash or a restart, leads to the same job: every event has one delivery, and none is lost. The file that holds how far
the ledger was looked at may therefore be old, and is written without haste.

The end of a delivery is itself an event of the ledger. It is told to no hook; it counts for or against its own: a receiver that
answers 410, or fails 50 deliveries in a row, is switched off, with a record that says why.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from detent.access.changes import Change
from detent.access.scopes import Principal
from detent.access.webhooks import ED25519, FAILURES_MAX, Hook, event_id_of
from detent.canon import decode_trusted, digest, tick_to_iso
from detent.canon.grammar import PRIORITY_NAMES
from detent.errors import DetentError
from detent.executor.own_targets import DELIVER
from detent.jobs.order import Call, JobLimits, Order, Origin, Retries
from detent.kernel.history import RUN_ENDED
from detent.kernel.records import TRANSITION
from detent.kernel.table import TERMINAL, State
from detent.owner.backend import Backend, Submission
from detent.owner.operating import new_request_id, operate
from detent.serve.access import Access
from detent.serve.deliver import GONE, KEYS
from detent.serve.events import PAGE, Hub, happening
from detent.serve.readers import Readers
from detent.serve.writing import Writer, Writing
from detent.store.api import RecordRow
from detent.store.files import replace_no_follow
from detent.workers.claim_ahead import FULL
from detent.workflow.identity import uuid8

BACKOFF: Final = "webhook"
"""The name of the backoff that deliveries take, where the settings define it; else the default one."""
RETRIES: Final = Retries(8, ("INTERNAL_ERROR", "USER_CODE_ERROR"))
WALL_MS: Final = 60_000
PAUSE_SECONDS: Final = 1.0
"""Between two tries where the queue was full or the ledger could not be read."""
CURSOR_FILE: Final = "position"
PRINCIPAL: Final = "p_webhooks"
_JOB_LABEL: Final = b"detent/webhook_job/v1\0"


def label_of(hook_id: str) -> str:
    """What the deliveries of a hook are called."""
    return f"webhook {hook_id}"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one hook."""

    hook: Hook
    event: Mapping[str, Any]


class Notifier:
    """Submits deliveries. Its methods are for the HTTP loop, `delivery` for the writing thread."""

    def __init__(
        self, home: Path, hub: Hub, readers: Readers, writer: Writer, access: Access, backend: Backend
    ) -> None:
        self._home, self._hub, self._readers, self._writer = home, hub, readers, writer
        self._access, self._backend = access, backend
        self._allowed = list(backend.home.settings().webhooks_allowed)
        self._at: list[int] = []
        self._heard = asyncio.Event()
        self._failures: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None

    # -- for the server ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Go on where the last server stopped."""
        kept = self._kept()
        known = kept is not None and len(kept) == len(self._hub.at)
        self._at = [min(own, end) for own, end in zip(kept or (), self._hub.at, strict=False)] if known else []
        self._at = self._at or list(self._hub.at)
        self._heard.set()
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Follow no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._keep()

    def hear(self, row: RecordRow) -> None:
        """Take note that something was committed."""
        if row.kind in {TRANSITION, RUN_ENDED}:
            self._heard.set()

    # -- for handlers --------------------------------------------------------------------------------------------------

    def delivery(self, one: Delivery, job_id: str) -> Submission:
        """The job that delivers an event."""
        hook = one.hook
        backend = self._backend.for_tenant(hook.workspace)
        key = hook.workspace if hook.signature == ED25519 else hook.hook_id
        said = {"id": hook.hook_id, "url": hook.url, "signature": hook.signature, "key": key}
        known = BACKOFF in backend.policies.backoffs
        order = Order(
            Call(
                kind="python",
                target=DELIVER,
                keywords={"home": str(self._home), "hook": said, "event": dict(one.event), "allowed": self._allowed},
                cache=False,
            ),
            label_of(hook.hook_id),
            JobLimits(
                wall_ms=WALL_MS, wall_by="webhooks", retries=RETRIES, policies={"backoff": BACKOFF} if known else {}
            ),
            Origin(requested_by=PRINCIPAL),
        )
        return backend.submission(order, job_id=job_id, job_kind="task", priority=PRIORITY_NAMES["normal"], key=None)

    # -- following -----------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            await self._heard.wait()
            self._heard.clear()
            try:
                for partition, end in enumerate(list(self._hub.at)):
                    await self._look(partition, end)
                self._keep()
            except DetentError as exc:
                sys.stderr.write(f"detent serve: webhooks wait: {exc}\n")
                await asyncio.sleep(PAUSE_SECONDS)
                self._heard.set()

    async def _look(self, partition: int, end: int) -> None:
        if not len(self._access.hooks):
            self._at[partition] = max(self._at[partition], end)
            return
        while (first := self._at[partition]) < end:
            stop = min(end, first + PAGE)
            rows = await self._readers.read(lambda reader: reader.happened(partition, first, stop))  # noqa: B023
            wanted = await self._writer.run(lambda: self._wanted(rows))  # noqa: B023
            await self._submit(wanted)
            self._at[partition] = stop

    def _wanted(self, rows: Sequence[RecordRow]) -> list[tuple[Delivery, str]]:
        """The deliveries that records lead to, each with the id of its job."""
        found: list[tuple[Delivery, str]] = []
        for row in rows:
            with suppress(ValueError, KeyError, TypeError):  # For `verify` to report.
                found += self._of(row, decode_trusted(row.body))
        return found

    def _of(self, row: RecordRow, body: dict[str, Any]) -> Iterable[tuple[Delivery, str]]:
        kind = _event_of(row, body)
        if kind is None:
            return
        workspace = body["tenant_id"]
        if row.job_id is not None and self._settled(workspace, row.job_id, body):
            return
        told = happening(row, body)
        for hook in list(self._access.hooks.wanting(workspace, kind)):
            if told is None or (row.partition == 0 and row.position < hook.from_position):
                continue
            event = {
                "id": event_id_of(hook.hook_id, row.partition, row.position),
                "type": kind,
                "timestamp": tick_to_iso(self._access.at_ms(body["tick"]), 1, 0),
                "workspace": workspace,
                "position": f"{row.partition}:{row.position}",
                "data": json.loads(told.data),
            }
            yield Delivery(hook, event), job_id_of(event["id"])

    def _settled(self, workspace: str, job_id: str, body: Mapping[str, Any]) -> bool:
        """Whether a job was a delivery itself; its outcome counts for its hook."""
        if not self._access.hooks.of(workspace):
            return False
        asked = self._backend.submitted([job_id]).get(job_id)
        if asked is None or asked.order.call.target != DELIVER:
            return False
        hook_id = str(asked.order.call.keywords.get("hook", {}).get("id"))
        reported = self._backend.report_of(job_id)
        value = None if reported is None else self._backend.value(reported[1])
        if isinstance(value, dict) and value.get("status") == GONE:
            self._switch_off(workspace, hook_id, "the receiver answered 410")
        elif body["to_state"] == State.SUCCEEDED:
            self._failures.pop(hook_id, None)
        else:
            self._failures[hook_id] += 1
            if self._failures[hook_id] >= FAILURES_MAX:
                self._switch_off(workspace, hook_id, f"{FAILURES_MAX} deliveries in a row failed")
        return True

    def _switch_off(self, workspace: str, hook_id: str, reason: str) -> None:
        hook = self._access.hooks.hook(workspace, hook_id)
        if hook is None or hook.disabled is not None:
            return
        principal = Principal(PRINCIPAL, PRINCIPAL, workspace, frozenset())
        change = Change("webhook.disabled", "webhook", hook_id, workspace)
        command = operate(principal, change, request_id=new_request_id(), route="webhooks", reason=reason)
        self._backend.session.ask([command])

    async def _submit(self, wanted: Sequence[tuple[Delivery, str]]) -> None:
        """Submit deliveries; those that are there already stay as they are, and a full queue is waited for."""
        while wanted:
            some = list(wanted)
            answers = await self._writer.write(lambda: Writing([self.delivery(one, job) for one, job in some]))  # noqa: B023
            pairs = list(zip(some, answers, strict=True))
            wanted = [one for one, answer in pairs if answer.refusal is not None and answer.refusal.code in FULL]
            for (one, _), answer in pairs:
                if answer.refusal is not None and answer.refusal.code not in {*FULL, "CONFLICT"}:
                    sys.stderr.write(f"detent serve: webhook {one.hook.hook_id}: {answer.refusal.message}\n")
            if wanted:
                await asyncio.sleep(PAUSE_SECONDS)

    # -- how far it is -------------------------------------------------------------------------------------------------

    @property
    def _file(self) -> Path:
        return self._home / "serve" / KEYS / CURSOR_FILE

    def _kept(self) -> list[int] | None:
        try:
            kept = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return None
        good = isinstance(kept, list) and all(type(one) is int and one >= 0 for one in kept)
        return kept if good else None

    def _keep(self) -> None:
        if len(self._access.hooks) or self._file.exists():
            with suppress(OSError):  # An older one leads to the same deliveries.
                replace_no_follow(self._file, json.dumps(self._at).encode())


def job_id_of(event_id: str) -> str:
    """The id of the job that delivers an event: the same each time it is looked at."""
    return str(uuid8(digest(_JOB_LABEL, event_id.encode())))


def _event_of(row: RecordRow, body: Mapping[str, Any]) -> str | None:
    """What a record is for hooks: the end of a run, or of a job that was submitted alone."""
    if row.kind == RUN_ENDED:
        return "run.ended"
    if row.kind != TRANSITION or body["to_state"] not in TERMINAL or body["batch_index"] + 1 != body["batch_len"]:
        return None
    return "job.ended" if row.run_id is None else None
