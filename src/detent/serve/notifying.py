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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from detent.access.changes import SERVER, Change
from detent.access.scopes import Principal
from detent.access.webhooks import ALERTS, ED25519, FAILURES_MAX, Hook, event_id_of
from detent.canon import decode_trusted, digest, tick_to_iso
from detent.canon.grammar import PRIORITY_NAMES
from detent.errors import NO_ROOM, DetentError
from detent.executor.own_targets import DELIVER
from detent.jobs.order import Call, JobLimits, Order, Origin, Retries
from detent.kernel.history import RUN_ENDED
from detent.kernel.records import OPERATED, TRANSITION
from detent.kernel.table import TERMINAL, State
from detent.owner.backend import Backend, Submission
from detent.owner.operating import new_request_id, opened, operate
from detent.owner.views import Times
from detent.serve.access import ACCESS_PARTITION, Access
from detent.serve.deliver import GONE, KEYS
from detent.serve.events import PAGE, Hub, happening
from detent.serve.fleet import Fleet
from detent.serve.readers import Readers
from detent.serve.writing import Writer, Writing
from detent.store.api import RecordRow
from detent.store.files import replace_no_follow
from detent.workflow.identity import uuid8

BACKOFF: Final = "webhook"
"""The name of the backoff that deliveries take: 1 s to 6 h, where the settings define no other (`owner.policies.WEBHOOKS`)."""
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


class Outcome(NamedTuple):
    """How a delivery ended."""

    workspace: str
    hook_id: str
    ok: bool
    gone: bool
    """Whether the receiver said that it wants nothing more."""


class Seen(NamedTuple):
    """What some records lead to."""

    deliveries: list[tuple[Delivery, str]]
    outcomes: list[Outcome]


class Notifier:
    """Submits deliveries. Its methods are for the HTTP loop, `delivery` for the writing thread."""

    def __init__(
        self, home: Path, hub: Hub, readers: Readers, writer: Writer, access: Access, backend: Backend, fleet: Fleet
    ) -> None:
        self._fleet = fleet
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
        at, failures = self._kept() or ([], {})
        self._at = list(self._hub.at)
        if len(at) == len(self._at):
            self._at = [min(own, end) for own, end in zip(at, self._at, strict=True)]
            self._failures = Counter(failures)
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
        if row.kind in {TRANSITION, RUN_ENDED, OPERATED}:
            self._heard.set()

    # -- for handlers --------------------------------------------------------------------------------------------------

    def delivery(self, one: Delivery, job_id: str, *, plain: bool = False) -> Submission:
        """The job that delivers an event; ``plain`` with the default backoff, for an owner of the home that has no other."""
        hook = one.hook
        backend = self._backend.for_tenant(hook.workspace)
        signer = hook.workspace if hook.signature == ED25519 else hook.hook_id
        said = {"id": hook.hook_id, "url": hook.url, "signature": hook.signature, "key": signer}
        policies = {} if plain else {"backoff": BACKOFF}
        order = Order(
            Call(
                kind="python",
                target=DELIVER,
                keywords={"home": str(self._home), "hook": said, "event": dict(one.event), "allowed": self._allowed},
                cache=False,
            ),
            label_of(hook.hook_id),
            JobLimits(wall_ms=WALL_MS, wall_by="webhooks", retries=RETRIES, policies=policies),
            Origin(requested_by=PRINCIPAL),
        )
        # What is wrong with the server itself has a class of its own: a queue that is full would keep the news of it.
        priority = PRIORITY_NAMES["high" if one.event["type"] in ALERTS else "normal"]
        return backend.submission(order, job_id=job_id, job_kind="task", priority=priority, key=None)

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
            times, rows = await self._readers.read(lambda reader: reader.happened(partition, first, stop))  # noqa: B023
            seen = await self._writer.run(lambda: self._seen(rows, times))  # noqa: B023
            await self._submit(seen.deliveries)
            # Counted in the same step as the position moves on: the file has both, so no end of a delivery counts twice.
            off = self._counted(seen.outcomes)
            self._at[partition] = stop
            for workspace, hook_id, reason in off:
                await asyncio.to_thread(self._switch_off, workspace, hook_id, reason)

    def _seen(self, rows: Sequence[RecordRow], times: Times) -> Seen:
        """What records lead to: deliveries, each with the id of its job, and how earlier ones ended."""
        seen = Seen([], [])
        for row in rows:
            with suppress(ValueError, KeyError, TypeError):  # For `verify` to report.
                self._look_at(row, decode_trusted(row.body), times, seen)
        return seen

    def _look_at(self, row: RecordRow, body: dict[str, Any], times: Times, seen: Seen) -> None:
        kind = _event_of(row, body)
        if kind is None:
            return
        if row.job_id is not None and (outcome := self._outcome(body["tenant_id"], row.job_id, body)) is not None:
            seen.outcomes.append(outcome)
            return
        told = happening(row, body, times)
        data = _alerted(row, body) if kind in ALERTS else None if told is None else json.loads(told.data)
        if data is None:
            return
        for workspace in self._workspaces(kind, body):
            for hook in list(self._access.hooks.wanting(workspace, kind)):
                if self._is_before(row, body, hook):
                    continue
                event_id = event_id_of(hook.hook_id, row.partition, row.position)
                event = {
                    "id": event_id,
                    "type": kind,
                    "timestamp": tick_to_iso(self._access.at_ms(body["tick"]), 1, 0),
                    "workspace": workspace,
                    "position": f"{row.partition}:{row.position}",
                    "data": data,
                }
                seen.deliveries.append((Delivery(hook, event), job_id_of(event_id)))

    def _is_before(self, row: RecordRow, body: Mapping[str, Any], hook: Hook) -> bool:
        """Whether something happened before a hook was made, which is recorded in the first partition."""
        if row.partition == ACCESS_PARTITION:
            return row.position < hook.from_position
        return self._access.at_ms(body["tick"]) < hook.created_ms

    def _workspaces(self, kind: str, body: Mapping[str, Any]) -> list[str]:
        """Whose event it is. What concerns the whole server is told to all, and a worker to those that it works for."""
        if body["tenant_id"] is not None:
            return [body["tenant_id"]]
        worker = self._fleet.get(body["object_id"]) if kind == "worker.lost" else None
        return [name for name in self._access.hooks.workspaces() if worker is None or worker.certificate.covers(name)]

    def _outcome(self, workspace: str, job_id: str, body: Mapping[str, Any]) -> Outcome | None:
        """How a delivery ended; None for a job that is not one."""
        if not self._access.hooks.of(workspace):
            return None
        asked = self._backend.submitted([job_id]).get(job_id)
        if asked is None or asked.order.call.target != DELIVER:
            return None
        hook_id = str(asked.order.call.keywords.get("hook", {}).get("id"))
        reported = self._backend.report_of(job_id)
        value = None if reported is None else self._backend.value(reported[1])
        gone = isinstance(value, dict) and value.get("status") == GONE
        return Outcome(workspace, hook_id, ok=body["to_state"] == State.SUCCEEDED and not gone, gone=gone)

    def _counted(self, outcomes: Sequence[Outcome]) -> list[tuple[str, str, str]]:
        """Count failures in a row; the hooks that are to be switched off, each with the reason."""
        off: list[tuple[str, str, str]] = []
        for workspace, hook_id, ok, gone in outcomes:
            if ok:
                self._failures.pop(hook_id, None)
                continue
            self._failures[hook_id] += 1
            if gone:
                off.append((workspace, hook_id, "the receiver answered 410"))
            elif self._failures[hook_id] >= FAILURES_MAX:
                off.append((workspace, hook_id, f"{FAILURES_MAX} deliveries in a row failed"))
        return off

    def _switch_off(self, workspace: str, hook_id: str, reason: str) -> None:
        hook = self._access.hooks.hook(workspace, hook_id)
        if hook is None or hook.disabled is not None:
            return
        principal = Principal(PRINCIPAL, PRINCIPAL, workspace, frozenset())
        change = Change("webhook.disabled", "webhook", hook_id, workspace)
        command = operate(principal, change, request_id=new_request_id(), route="webhooks", reason=reason)
        self._backend.session.ask([command])

    async def _submit(self, wanted: Sequence[tuple[Delivery, str]], *, plain: bool = False) -> None:
        """Submit deliveries; those that are there already stay as they are, and a full queue is waited for."""
        while wanted:
            some, again = list(wanted), list[tuple[Delivery, str]]()
            answers = await self._writer.write(
                lambda: Writing([self.delivery(one, job, plain=plain) for one, job in some])  # noqa: B023
            )
            wanted = []
            for one, answer in zip(some, answers, strict=True):
                code = None if answer.refusal is None else answer.refusal.code
                if code in NO_ROOM:
                    wanted.append(one)
                elif code is not None and code != "CONFLICT":
                    again.append(one)
                    if plain and answer.refusal is not None:
                        sys.stderr.write(f"detent serve: webhook {one[0].hook.hook_id}: {answer.refusal.message}\n")
            if again and not plain:
                await self._submit(again, plain=True)
            if wanted:
                await asyncio.sleep(PAUSE_SECONDS)

    # -- how far it is -------------------------------------------------------------------------------------------------

    @property
    def _file(self) -> Path:
        return self._home / "serve" / KEYS / CURSOR_FILE

    def _kept(self) -> tuple[list[int], dict[str, int]] | None:
        """How far the last server was, and how many deliveries of each hook had failed in a row by then."""
        try:
            kept = json.loads(self._file.read_bytes())
            at, failures = (kept, {}) if isinstance(kept, list) else (kept["at"], kept["failures"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        numbers = [*at, *failures.values()] if isinstance(at, list) and isinstance(failures, dict) else [None]
        return (at, failures) if all(type(one) is int and one >= 0 for one in numbers) else None

    def _keep(self) -> None:
        if len(self._access.hooks) or self._file.exists():
            known = self._access.hooks.ids()
            self._failures = Counter({name: count for name, count in self._failures.items() if name in known})
            with suppress(OSError):  # An older one leads to the same deliveries, and the same counts.
                replace_no_follow(self._file, json.dumps({"at": self._at, "failures": self._failures}).encode())


def job_id_of(event_id: str) -> str:
    """The id of the job that delivers an event: the same each time it is looked at."""
    return str(uuid8(digest(_JOB_LABEL, event_id.encode())))


def _event_of(row: RecordRow, body: Mapping[str, Any]) -> str | None:
    """What a record is for hooks: the end of a run, or of a job that was submitted alone, or what the server noticed."""
    if row.kind == OPERATED:
        return body["action"] if body["action"] in ALERTS and body["principal_id"] == SERVER else None
    if row.kind == RUN_ENDED:
        return "run.ended"
    if row.kind != TRANSITION or body["to_state"] not in TERMINAL or body["batch_index"] + 1 != body["batch_len"]:
        return None
    return "job.ended" if row.run_id is None else None


def _alerted(row: RecordRow, body: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of something that the server noticed."""
    _, evidence = opened(row)
    said = evidence.get("parameters")
    return {body["object_kind"]: body["object_id"], **(said if isinstance(said, dict) else {})}
