"""Runs that the server itself drives, and contracts that it looks at: how handlers have both done by other processes.

Nothing of it happens on the HTTP loop. The driver host (`detent.runs.driver_host`) starts, retries and drives runs; the contract
checker (`detent.inspect.contract_checker`) looks at contracts within limits of time and memory; a cancellation waits on a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from detent.canon.crypto import sha256
from detent.errors import DetentError, InvalidInput
from detent.inspect.contract_checker import NAME
from detent.jobs.source_tree import SourceTree, read_tree
from detent.kernel import Command
from detent.owner.backend import RandomBlocks
from detent.owner.home import Home
from detent.owner.session import Session
from detent.owner.socket_messages import error_from_map
from detent.owner.wiring import Parts
from detent.runs.cancel import Cancelled, Canceller
from detent.runs.record.identity import new_run_id
from detent.serve.children import Children
from detent.store.trees import laid_out

T = TypeVar("T")

DRIVER: Final = "driver host"
CHECKER: Final = "contract checker"
THREADS: Final = 8
LOOK_SECONDS: Final = 90.0
"""How long a contract may take to be looked at, with its time in the queue for that."""
ANSWER_SECONDS: Final = 30.0
"""How long the driver host may take to have a run recorded, also when it has just died."""
CANCEL_SECONDS: Final = 10.0
ONCE_LABEL: Final = b"detent/run-once/v1\0"


class Driving:
    """Has runs driven and contracts looked at."""

    def __init__(self, home: Home, session: Session, parts: Parts, children: Children, *, project: Path) -> None:
        self._home, self._session, self._parts = home, session, parts
        self._driver, self._checker = children[DRIVER], children[CHECKER]
        self._random = RandomBlocks()
        self._pool = ThreadPoolExecutor(THREADS, "detent-drive")
        self._looking = ThreadPoolExecutor(THREADS, "detent-look")
        self.project = str(project)
        """Where the functions are found that a contract sent as a text names."""

    def close(self) -> None:
        """Take nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._looking.shutdown(wait=False, cancel_futures=True)

    async def look(self, mode: str, workspace: str, text: str, **asked: Any) -> dict[str, Any]:
        """Have a contract looked at. Raises `CONTRACT_INVALID` with its findings, unless they are what was asked for."""
        document = {
            "mode": mode,
            "workspace": workspace,
            "text": text,
            "home": str(self._home.path),
            "base": self.project,
            "name": NAME,
            "params": {},
            **asked,
        }
        said = await self._on(self._looking, lambda: self._checker.ask(document, LOOK_SECONDS))
        if "error" in said:
            raise error_from_map(said["error"])
        if not said["ok"] and mode != "check":
            raise _invalid(said)
        return said

    async def lay_out(self, tree: bytes, insist: Callable[[list[bytes]], Awaitable[None]]) -> tuple[SourceTree, Path]:
        """A source tree that was uploaded, in its directory; ``insist`` refuses files that its workspace may not name."""
        content = self._home.content_files()
        await insist([tree])
        data = await self._on(self._pool, lambda: content.get(tree))
        if data is None:
            raise InvalidInput("the list of the source tree is not stored here", code="CONTENT_GONE")
        found = await self._on(self._pool, lambda: read_tree(data))
        await insist([one.digest for one in found.files])
        return found, await self._on(self._pool, lambda: laid_out(self._home.path, found, content))

    async def start(
        self,
        workspace: str,
        requested_by: str,
        looked: Mapping[str, Any],
        options: Mapping[str, Any],
        *,
        once: bytes | None = None,
    ) -> str:
        """Have a run recorded and driven; gives its id once it is on the ledger. The same ``once`` is the same run."""
        asked = {"op": "start", "inputs": looked["inputs"], "options": dict(options)}
        return await self._run(workspace, requested_by, looked["name"], once, asked)

    async def retry(self, workspace: str, requested_by: str, run_id: str, name: str, once: bytes | None = None) -> str:
        """Have the parts of a run that did not succeed run again; gives the id of the run that does."""
        return await self._run(workspace, requested_by, name, once, {"op": "retry", "retry_of": run_id})

    async def cancel(self, run_id: str, reason: str | None, beside: Command) -> Cancelled:
        """Cancel a run; ``beside`` is recorded in the first commit of it."""
        return await self._on(self._pool, lambda: self._cancel(run_id, reason, beside))

    async def record(self, command: Command) -> None:
        """Have an operator's action recorded whose effect another process has recorded."""
        await self._on(self._pool, lambda: self._session.ask([command]))

    def _cancel(self, run_id: str, reason: str | None, beside: Command) -> Cancelled:
        with self._parts.open_reader(self._home.ledger) as reader:
            canceller = Canceller(self._home, self._session, reader, reason=reason, beside=beside)
            return canceller.run(run_id, wait_seconds=CANCEL_SECONDS)

    async def _run(
        self, workspace: str, requested_by: str, name: str, once: bytes | None, asked: Mapping[str, Any]
    ) -> str:
        # Under an idempotency key the ids follow from it: what a killed server began and did not answer is the same run again.
        drawn = self._random(16) if once is None else sha256(ONCE_LABEL + once)[:16]
        operation = UUID(bytes=drawn, version=4)
        run_id = new_run_id(name, lambda size: sha256(operation.bytes)[:size])
        document = {
            **asked,
            "workspace": workspace,
            "requested_by": requested_by,
            "run_id": run_id,
            "operation_id": str(operation),
        }
        await self._on(self._pool, lambda: self._driver.ask(document, ANSWER_SECONDS))
        return run_id

    async def _on(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)


def _invalid(said: Mapping[str, Any]) -> DetentError:
    findings = [
        {
            "path": ":".join([NAME, *(str(one[name]) for name in ("line", "column") if one[name]), one["path"] or ""]),
            "message": one["message"] + (f" ({one['hint']})" if one["hint"] else ""),
        }
        for one in said["findings"]
    ]
    return InvalidInput(
        f"the contract has {said['findings_total']} finding{'' if said['findings_total'] == 1 else 's'}",
        code="CONTRACT_INVALID",
        hint="POST /v1/contracts:validate tells them with their lines and columns",
        details={"errors": findings},
    )
