"""What a server notices by itself and operators want to be told: a worker that fell silent, a full queue, a
ledger that does not verify, a job that came to something else on another worker.

Each is an `operated` record of the server's own. So webhooks hear of it like of everything else, by a position of the ledger: once, and also
after a crash. A worker is lost once for each silence, and time in which the server itself stood still is no silence; a full queue is told once a minute for each workspace.

For the HTTP loop alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from detent.access.changes import Change, server_principal
from detent.errors import DetentError
from detent.kernel import Operate
from detent.owner.operating import commit, new_request_id, operate
from detent.owner.session import Session
from detent.serve.fleet import Fleet

LOOK_SECONDS: Final = 1.0
STALL_SECONDS: Final = 5.0
"""A look that comes later than this says that the server itself stood still, and heard no worker meanwhile."""
QUIET_SECONDS: Final = 60.0
"""How long after one full queue the next is not told to the same workspace."""
PENDING_MAX: Final = 1_000
SILENT: Final = "silent"


class Alerts:
    """Records what a server notices."""

    def __init__(
        self,
        session: Session,
        fleet: Fleet,
        now: Callable[[], float] = time.monotonic,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._session, self._fleet, self._now, self._look_seconds = session, fleet, now, look_seconds
        self._told_at: dict[str, float] = {}
        self._lost: set[str] = set()
        self._pending: list[Operate] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look every second."""
        self._task = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """Record what is left, and look no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._record()

    def queue_full(self, workspace: str, detail: str) -> None:
        """A request of a workspace was refused because the queue has no room."""
        now = self._now()
        if now - self._told_at.get(workspace, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        self._told_at = {name: at for name, at in self._told_at.items() if now - at < QUIET_SECONDS}
        self._told_at[workspace] = now
        self._noticed("queue.full", "queue", "jobs", workspace, {"detail": detail})

    def verify_failed(self, report: Mapping[str, Any]) -> None:
        """A verification of the whole ledger found something."""
        findings = [str(one["code"]) for one in report["findings"]]
        said = {"findings": len(findings), "first": findings[0] if findings else None}
        self._noticed("verify.failed", "ledger", "ledger", None, said)

    def mismatched(self, worker_id: str, workspace: str, said: Mapping[str, Any]) -> None:
        """A job that a worker did came to something else when another one did it again."""
        self._noticed("worker.mismatch", "worker", worker_id, workspace, dict(said))

    def _noticed(
        self, action: str, kind: str, object_id: str, workspace: str | None, parameters: dict[str, Any]
    ) -> None:
        if len(self._pending) < PENDING_MAX:
            change = Change(action, kind, object_id, workspace, parameters)
            principal = server_principal(workspace)
            self._pending.append(operate(principal, change, request_id=new_request_id(), route="server"))

    async def _look(self) -> None:
        looked_at = self._now()
        while True:
            await asyncio.sleep(self._look_seconds)
            late = self._now() - looked_at - self._look_seconds
            looked_at = self._now()
            if late > STALL_SECONDS:
                self._fleet.excuse(late)
            silent = {worker.worker_id: worker for worker in self._fleet if worker.state == SILENT}
            self._lost &= silent.keys()
            for name, worker in silent.items():
                if name not in self._lost:
                    self._lost.add(name)
                    seconds = round(worker.silent_seconds or 0)
                    said = {"silent_seconds": seconds, "leases": len(worker.leases)}
                    self._noticed("worker.lost", "worker", name, None, said)
            await self._record()

    async def _record(self) -> None:
        some, self._pending = self._pending, []
        if not some:
            return
        try:
            await asyncio.to_thread(commit, self._session, some)
        except DetentError:
            self._pending = [*some, *self._pending][:PENDING_MAX]  # The next look tries again.
