"""Runs that the server itself drives, and contracts that it looks at: how handlers have both done by other processes.

Nothing of it happens on the HTTP loop. The driver host (`detent.runs.driver_host`) starts, retries and drives runs; the contract
checker (`detent.inspect.contract_checker`) looks at contracts within limits of time and memory; a cancellation waits on a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64encode
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
from detent.kernel.commands import encode_commands
from detent.owner.backend import Backend, Inline, RandomBlocks
from detent.owner.home import Home
from detent.owner.session import Session
from detent.owner.socket_messages import error_from_map
from detent.owner.views import Times
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
ONCE_LABEL: Final = b"detent/run-once/v2\0"


class Driving:
    """Has runs driven and contracts looked at."""

    def __init__(
        self,
        home: Home,
        session: Session,
        parts: Parts,
        children: Children,
        backend: Backend,
        *,
        project: Path,
        drives: bool = True,
    ) -> None:
        self._home, self._session, self._parts, self._backend = home, session, parts, backend
        self._driver, self._checker = children[DRIVER], children[CHECKER]
        self._random, self._drives = RandomBlocks(), drives
        self._window_ms = max(1, home.settings().idempotency.window_ms)
        self._pool = ThreadPoolExecutor(THREADS, "detent-drive")
        self._looking = ThreadPoolExecutor(THREADS, "detent-look")
        self.project = str(project)
        """Where the functions are found that a contract sent as a text names."""

    def close(self) -> None:
        """Take nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._looking.shutdown(wait=False, cancel_futures=True)

    def take_up(self) -> None:
        """Have the driver host run: there are open runs, or schedules. Which of them are the server's is for the host to say."""
        if self._drives:
            self._driver.start()

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
        traced: Mapping[str, str | None],
    ) -> str:
        """Have a run recorded and driven; gives its id once it is on the ledger. The same ``once`` is the same run.

        ``traced`` is how the request is known: its trace and its id.
        """
        asked = {"op": "start", "inputs": looked["inputs"], "options": dict(options), **traced}
        return await self._run(workspace, requested_by, looked["name"], once, asked)

    async def keep(self, workspace: str, looked: Mapping[str, Any]) -> tuple[bytes, Inline]:
        """What a schedule will run, as content: its digest, and what the commit that names it has to carry."""
        return await self._on(self._pool, lambda: self._backend.for_tenant(workspace).sealed_trusted(looked["inputs"]))

    async def schedule_changed(self, schedule_id: str) -> None:
        """Return when the driver host goes by a schedule as the ledger has it; one that starts later does so by itself."""
        asked = {"op": "schedule_changed", "schedule_id": schedule_id}
        with contextlib.suppress(DetentError):
            await self._on(self._pool, lambda: self._driver.ask(asked, ANSWER_SECONDS))

    async def retry(
        self,
        workspace: str,
        requested_by: str,
        run_id: str,
        name: str,
        behind: Callable[[str], Command],
        once: bytes | None,
        traced: Mapping[str, str | None],
    ) -> str:
        """Have the parts of a run that did not succeed run again; gives the id of the run that does.

        ``behind`` gives what is recorded in the commit that opens that run, by its id.
        """
        asked = {"op": "retry", "retry_of": run_id, **traced}
        return await self._run(workspace, requested_by, name, once, asked, behind)

    async def cancel(self, run_id: str, reason: str | None, beside: Command) -> Cancelled:
        """Cancel a run; ``beside`` is recorded in the first commit of it."""
        return await self._on(self._pool, lambda: self._cancel(run_id, reason, beside))

    def _cancel(self, run_id: str, reason: str | None, beside: Command) -> Cancelled:
        with self._parts.open_reader(self._home.ledger) as reader:
            canceller = Canceller(self._home, self._session, reader, reason=reason, beside=beside)
            return canceller.run(run_id, wait_seconds=CANCEL_SECONDS)

    async def _run(
        self,
        workspace: str,
        requested_by: str,
        name: str,
        once: bytes | None,
        asked: Mapping[str, Any],
        behind: Callable[[str], Command] | None = None,
    ) -> str:
        self._session.insist_on_writable()  # The host would ask for as long as it takes.
        if once is None:
            operation = UUID(bytes=self._random(16), version=4)
        else:
            operation = await self._on(self._pool, lambda: self._operation(name, once))
        run_id = _run_id(name, operation)
        document = {
            **asked,
            "workspace": workspace,
            "requested_by": requested_by,
            "run_id": run_id,
            "operation_id": str(operation),
        }
        if behind is not None:
            document["behind"] = b64encode(encode_commands([behind(run_id)])).decode()
        await self._on(self._pool, lambda: self._driver.ask(document, ANSWER_SECONDS))
        return run_id

    def _operation(self, name: str, once: bytes) -> UUID:
        """The operation of a request under an idempotency key: the same one for as long as the key counts.

        So what a killed server began and did not answer is the same run again, and a key that is used again after its window
        starts another. Ids are drawn by spans of the window's length; a run of the span before counts until it is too old.
        """
        window_ms, now_ms = self._window_ms, self._parts.clock.wall_ms()
        span = now_ms // window_ms
        before, present = (UUID(bytes=_drawn(once, number), version=4) for number in (span - 1, span))
        with self._parts.open_reader(self._home.ledger) as reader:
            row = reader.run(_run_id(name, before))
            if row is not None and now_ms < Times.of(reader).ms(row.started_tick) + window_ms:
                return before
        return present

    async def _on(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)


def _drawn(once: bytes, span: int) -> bytes:
    return sha256(ONCE_LABEL + once + str(span).encode())[:16]


def _run_id(name: str, operation: UUID) -> str:
    return new_run_id(name, lambda size: sha256(operation.bytes)[:size])


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
