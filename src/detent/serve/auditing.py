"""Bundles and verifications for clients: each in a process of its own, one at a time for a workspace, and a few for the server.

A verification is asked for and looked at later: it takes as long as the ledger is long. What came of the last one is kept in memory for each
run and for the whole ledger; a server that was started anew knows of none. A bundle is written to a temporary file, whose name goes
before its bytes are sent, so that nothing is left behind however the server ends.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from detent.errors import DetentError, RequestRefused
from detent.inspect.audit_child import BUNDLE, REPORTS, VERIFY
from detent.owner.home import Home
from detent.owner.socket_messages import error_from_map
from detent.words.states import FAILED, RUNNING

AT_ONCE: Final = 2
"""Processes of a server; more wait."""
WAITING_MAX: Final = 8
"""Bundles of one workspace that may wait for their turn."""
KEPT_MAX: Final = 1_000
PIECE_BYTES: Final = 256 * 1024
DONE: Final = "done"


@dataclass(slots=True)
class Verification:
    """One verification: how far it is, and what came of it."""

    started_ms: int
    state: str = RUNNING
    ended_ms: int | None = None
    report: dict[str, Any] | None = None
    """As `detent verify -o json` tells it."""
    error: str | None = None
    """Why there is no report."""


class Bundle(NamedTuple):
    """A bundle that is about to be sent."""

    root: str
    size_bytes: int
    counts: dict[str, int]
    """What it holds, and how much was left out and why."""
    file: BinaryIO


class Auditing:
    """Has bundles written and ledgers verified. For the HTTP loop alone."""

    def __init__(
        self, home: Home, now_ms: Callable[[], int], on_failed: Callable[[dict[str, Any]], None] = lambda _: None
    ) -> None:
        """``on_failed`` is told the report of a whole ledger that does not verify."""
        self._home, self._now_ms, self._on_failed = home, now_ms, on_failed
        self._places = asyncio.Semaphore(AT_ONCE)
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, int] = {}
        self._known: OrderedDict[tuple[str, str | None], Verification] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def bundle(self, workspace: str, run_id: str | None, held: str = REPORTS) -> Bundle:
        """A bundle of a run, or of the whole ledger, in a file that has no name any more."""
        if self._waiting.get(workspace, 0) >= WAITING_MAX:
            raise RequestRefused(
                f"{WAITING_MAX} bundles of this workspace are being written or wait for it",
                code="RATE_LIMITED",
                hint="wait for one of them",
                retryable=True,
            )
        with tempfile.TemporaryDirectory(prefix="detent-bundle-", ignore_cleanup_errors=True) as directory:
            target = Path(directory, "bundle.detent")
            async with self._turn(workspace):
                said = await self._child(BUNDLE, run_id, target, held)
            file = await asyncio.to_thread(target.open, "rb")
            return Bundle(said["root"], said["size_bytes"], said["counts"], file)

    def verify(self, workspace: str, run_id: str | None) -> Verification:
        """Begin to verify, unless that is under way."""
        known = self._known.get((workspace, run_id))
        if known is not None and known.state == RUNNING:
            return known
        begun = self._known[workspace, run_id] = Verification(self._now_ms())
        self._known.move_to_end((workspace, run_id))
        ended = [key for key, one in self._known.items() if one.state != RUNNING]
        for key in ended[: max(0, len(self._known) - KEPT_MAX)]:
            del self._known[key]
        task = asyncio.create_task(self._verify(workspace, run_id, begun))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return begun

    def verification(self, workspace: str, run_id: str | None) -> Verification | None:
        """The last verification of a run or of the ledger; None where this server knows of none."""
        return self._known.get((workspace, run_id))

    async def _verify(self, workspace: str, run_id: str | None, told: Verification) -> None:
        try:
            async with self._turn(workspace):
                told.report = await self._child(VERIFY, run_id, None)
            told.state = DONE
            if run_id is None and not told.report["ok"]:
                self._on_failed(told.report)
        except DetentError as exc:
            told.state, told.error = FAILED, str(exc)
        finally:
            told.ended_ms = self._now_ms()
            if told.state == RUNNING:
                told.state, told.error = FAILED, "the server stopped"

    @asynccontextmanager
    async def _turn(self, workspace: str) -> AsyncIterator[None]:
        """The one place of a workspace, and one of the server's."""
        self._waiting[workspace] = self._waiting.get(workspace, 0) + 1
        try:
            async with self._turns.setdefault(workspace, asyncio.Lock()), self._places:
                yield
        finally:
            self._waiting[workspace] -= 1
            if not self._waiting[workspace]:
                del self._waiting[workspace], self._turns[workspace]

    async def _child(self, mode: str, run_id: str | None, target: Path | None, held: str = REPORTS) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "detent.inspect.audit_child"),
                    *("--home", str(self._home.path), "--lifeline", str(theirs.fileno())),
                    *(mode, run_id or "", "" if target is None else str(target), held),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            try:
                data, _ = await process.communicate()
            except BaseException:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                raise
        try:
            said = json.loads(data)
        except ValueError:
            raise DetentError(
                f"the process that was to {mode} ended with exit code {process.returncode}",
                code="NOT_READY",
                hint="send the request again; the server's standard error has more",
            ) from None
        if "error" in said:
            raise error_from_map(said["error"])
        answer: dict[str, Any] = said["answer"]
        return answer


async def pieces(bundle: Bundle) -> AsyncIterator[bytes]:
    """The bytes of a bundle, read beside the loop."""
    try:
        while piece := await asyncio.to_thread(bundle.file.read, PIECE_BYTES):
            yield piece
    finally:
        bundle.file.close()
