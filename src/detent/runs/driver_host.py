"""The driver host: a process that drives runs for a server, so that a run goes on when its client has gone.

A server starts it beside itself and asks it over a socket, one JSON document a line: start this run, retry that one. It answers
when the run is on the ledger. That the server drives a run is part of the run's recorded inputs (`DRIVEN_BY`), so nothing else has to
be remembered: killed at any moment, the next host finds the open runs of the server on the ledger and goes on with each (X-174). The
run's lock decides between two hosts. A request names the ids of the run it wants, so asking twice is one run.

It also begins runs by the schedules of the server (`schedules/keeper.py`), which it reads off the ledger in the same way.

At most `RUNS_MAX` runs are driven at once; others are recorded, wait, and are taken up in the order of the ledger. The host has no
workers: those are processes of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from detent.access.schedules import Scheduled
from detent.errors import DetentError, RequestRefused
from detent.kernel import Command, Run
from detent.kernel.commands import decode_commands
from detent.kernel.run import COMPLETED, RUNNING
from detent.owner.home import Home
from detent.owner.session import Session
from detent.owner.socket_messages import error_to_map
from detent.reuse.work_keys import Options
from detent.runs.ending import Ending
from detent.runs.handle import RunHandle
from detent.runs.record.inputs import REQUEST_ID, TRACEPARENT, RunIdentity, RunInputs, RunLock, parse_inputs
from detent.runs.retry import run_to_retry
from detent.runs.runtime import Runtime
from detent.runs.scheduled_runs import ScheduledRuns
from detent.store.api import RunRow

DRIVEN_BY: Final = "driven_by"
SERVER: Final = "server"
OPTIONS: Final = "options"
"""What else the inputs of a server's run say: how it was asked for, so that the next driver can resume it."""
RUNS_MAX: Final = 64
ASKED_AT_ONCE: Final = 4
LOOK_SECONDS: Final = 2.0
"""How often it looks for runs of the server that no process drives."""
REST_SECONDS: Final = 2.0
REST_SECONDS_MAX: Final = 60.0
"""How long a run rests that could not be driven; doubled each time."""
STOP_SECONDS: Final = 10.0


def about_run(requested_by: str, options: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the inputs of a run say that a server drives; of the request that asked for it, its trace and its id."""
    traced = {name: asked[name] for name in (TRACEPARENT, REQUEST_ID) if asked.get(name) is not None}
    return {DRIVEN_BY: SERVER, "requested_by": requested_by, **({OPTIONS: dict(options)} if options else {}), **traced}


def options_of(inputs: RunInputs) -> Options:
    """How a run of the server goes about its work, from its inputs."""
    said: Any = inputs.about.get(OPTIONS, {})
    return Options(
        force=said.get("force", False),
        reuse_failed=said.get("reuse_failed", False),
        max_parallel=said.get("max_parallel"),
        salt=said.get("salt"),
    )


class DriverHost:
    """Drives runs. Safe for several threads."""

    def __init__(self, home: Home, work: Runtime) -> None:
        self._home, self._work = home, work
        self._lock = threading.Lock()
        self._driven: dict[str, tuple[RunHandle, threading.Thread]] = {}
        self._rests: dict[str, tuple[float, float]] = {}
        """Runs that could not be driven: until when they rest, and for how long."""
        self._not_ours: set[str] = set()
        """Open runs that other processes started for themselves."""
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._scheduled = ScheduledRuns(work, self._begin_scheduled, self._driven_now, self._wake.set)

    # -- requests ------------------------------------------------------------------------------------------------------

    def start(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Have a run recorded, and drive it from then on."""
        inputs = parse_inputs(asked["inputs"], asked["run_id"])
        inputs = replace(inputs, about=about_run(asked["requested_by"], asked["options"], asked))
        return self._begin(asked, inputs)

    def retry(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Run again what did not succeed of a run that has ended, as a run of its own."""
        work = self._work.for_tenant(asked["workspace"])
        row = work.backend.reader.run(asked["retry_of"])
        if row is None or row.tenant_id != asked["workspace"]:
            raise RequestRefused("there is no such run in this workspace", code="UNKNOWN_RUN")
        if row.status in {RUNNING, COMPLETED}:
            how = "has not ended" if row.status == RUNNING else "succeeded: there is nothing to run again"
            raise RequestRefused(f"run {row.run_id!r} {how}", code="CONFLICT")
        earlier = run_to_retry(work.backend, Run.decode(row.body)).inputs
        about = {name: value for name, value in earlier.about.items() if name != REQUEST_ID}
        about |= about_run(asked["requested_by"], {}, asked)
        return self._begin(asked, replace(earlier, about=about))

    def _begin(self, asked: Mapping[str, Any], inputs: RunInputs) -> dict[str, Any]:
        run_id, operation_id = asked["run_id"], UUID(asked["operation_id"])
        behind = decode_commands(b64decode(asked["behind"])) if "behind" in asked else ()
        created = self._begin_run(asked["workspace"], RunIdentity(run_id, operation_id), inputs, behind)
        return {"run_id": run_id, "created": created}

    def _begin_run(
        self, workspace: str, identity: RunIdentity, inputs: RunInputs, behind: Sequence[Command] = ()
    ) -> bool:
        """Have a run recorded and drive it; False when it was asked for before: it is on the ledger, or about to be."""
        run_id, work = identity.run_id, self._work.for_tenant(workspace)
        lock = RunLock.take(self._home.path, run_id)
        row = work.backend.reader.run(run_id)
        if lock is None or row is not None:
            if lock is not None:
                lock.release()
            return False
        handle = RunHandle(work, inputs, options=options_of(inputs), taken=(identity, lock))
        try:
            handle.begin(behind)
        except BaseException:
            lock.release()
            raise
        if not self._drive(handle, run_id):
            handle.leave()
        return True

    # -- schedules -----------------------------------------------------------------------------------------------------

    def schedule_changed(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Go by a schedule as the ledger has it now."""
        self._scheduled.refresh(asked["schedule_id"])
        self._wake.set()
        return {}

    def _begin_scheduled(self, scheduled: Scheduled, identity: RunIdentity, inputs: RunInputs) -> None:
        traced = {TRACEPARENT: scheduled.traceparent}
        about = {**inputs.about, **about_run(scheduled.made_by, scheduled.options, traced)}
        self._begin_run(scheduled.workspace, identity, replace(inputs, about=about))

    def _driven_now(self) -> list[str]:
        with self._lock:
            return list(self._driven)

    # -- driving -------------------------------------------------------------------------------------------------------

    def _drive(self, handle: RunHandle, run_id: str) -> bool:
        """Drive a run on a thread of its own; False when there are as many as may be."""
        with self._lock:
            if len(self._driven) >= RUNS_MAX or self._stopping.is_set() or run_id in self._driven:
                return False
            thread = threading.Thread(
                target=self._drive_to_end, args=(handle, run_id), name=f"detent-{run_id}", daemon=True
            )
            self._driven[run_id] = (handle, thread)
        thread.start()
        return True

    def _drive_to_end(self, handle: RunHandle, run_id: str) -> None:
        try:
            handle.run()
            self._rests.pop(run_id, None)
        except Exception as exc:  # noqa: BLE001 - one run that cannot be driven leaves the others alone
            self._rest(run_id, exc)
        finally:
            handle.leave()
            with self._lock:
                self._driven.pop(run_id, None)
            self._wake.set()

    def _rest(self, run_id: str, exc: Exception) -> None:
        _, before = self._rests.get(run_id, (0.0, REST_SECONDS / 2))
        seconds = min(2 * before, REST_SECONDS_MAX)
        self._rests[run_id] = (time.monotonic() + seconds, seconds)
        if not self._stopping.is_set():
            sys.stderr.write(f"run {run_id} could not be driven: {exc}; trying again in {seconds:g} s\n")

    def follow(self, ending: Ending) -> None:
        """Take up the server's open runs that no process drives, until the end is asked for."""
        while not ending.asked.is_set():
            self._wake.clear()
            seconds = LOOK_SECONDS
            with contextlib.suppress(DetentError):
                self._take_up()
                seconds = min(seconds, self._scheduled.look())
            self._wake.wait(seconds)

    def _take_up(self) -> None:
        rows = list(self._work.backend.reader.runs(status=RUNNING))
        self._not_ours &= {row.run_id for row in rows}
        self._scheduled.keep_open({row.run_id for row in rows})
        for row in reversed(rows):  # The oldest first.
            if len(self._driven) >= RUNS_MAX or self._stopping.is_set():
                return
            until, _ = self._rests.get(row.run_id, (0.0, 0.0))
            if row.run_id in self._driven or row.run_id in self._not_ours or time.monotonic() < until:
                continue
            try:
                self._resume(row)
            except DetentError as exc:
                self._rest(row.run_id, exc)

    def _resume(self, row: RunRow) -> None:
        run, work = Run.decode(row.body), self._work.for_tenant(row.tenant_id)
        document: Any = work.backend.unsealed(run.inputs_digest)
        about = document.get("about") if isinstance(document, dict) else None
        if not isinstance(about, dict) or about.get(DRIVEN_BY) != SERVER:
            self._not_ours.add(row.run_id)
            return
        self._scheduled.resumed(row.run_id, about)
        lock = RunLock.take(self._home.path, row.run_id)
        if lock is None:
            return  # A host that is about to end has it.
        still = work.backend.reader.run(row.run_id)
        if still is None or still.status != RUNNING:
            lock.release()
            return
        try:
            inputs = parse_inputs(document, row.run_id)
            taken = (RunIdentity(row.run_id, UUID(run.operation_id), resumed=True), lock)
            handle = RunHandle(work, inputs, options=options_of(inputs), taken=taken)
        except BaseException:
            lock.release()
            raise
        if not self._drive(handle, row.run_id):
            lock.release()

    def stop(self) -> None:
        """Leave every run as it stands, for the next host."""
        self._stopping.set()
        self._wake.set()
        with self._lock:
            driven = list(self._driven.values())
        for handle, _ in driven:
            handle.stop()
        deadline = time.monotonic() + STOP_SECONDS
        for _, thread in driven:
            thread.join(max(0.0, deadline - time.monotonic()))


class Desk:
    """Hears requests on a socket, and answers each on one of a few threads."""

    def __init__(self, host: DriverHost, link: socket.socket, ending: Ending) -> None:
        self._ops = {"start": host.start, "retry": host.retry, "schedule_changed": host.schedule_changed}
        self._link, self._ending = link, ending
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(ASKED_AT_ONCE, "detent-asked")

    def listen(self) -> None:
        """Answer until the server hangs up, which asks for the end."""
        with contextlib.suppress(OSError), self._link.makefile("rb") as lines:
            for line in lines:
                self._pool.submit(self._answer, json.loads(line))
        self._ending.asked.set()

    def _answer(self, asked: Mapping[str, Any]) -> None:
        try:
            said = {"answer": self._ops[asked["op"]](asked)}
        except Exception as exc:  # noqa: BLE001 - it is the server that tells its client
            said = {"error": error_to_map(exc)}
        with self._lock, contextlib.suppress(OSError):
            self._link.sendall(json.dumps({"id": asked["id"], **said}).encode() + b"\n")


def drive_until(home: Home, link: socket.socket) -> int:
    """Drive runs for the server at the other end of a socket until it hangs up; gives the exit code."""
    ending = Ending()
    failed = threading.Event()

    def ownerless(_: object) -> None:
        failed.set()
        ending.asked.set()

    with (
        ending.caught(),
        Session(home, take_over=False, on_failed=ownerless) as session,
        Runtime(home, workers=0, idle=True, session=session) as work,
    ):
        host = DriverHost(home, work)
        threading.Thread(target=Desk(host, link, ending).listen, name="detent-desk", daemon=True).start()
        try:
            host.follow(ending)
        finally:
            host.stop()
    return 4 if failed.is_set() else 0


if __name__ == "__main__":
    # `--home DIR --lifeline DESCRIPTOR`, as the server starts it.
    _, _, where, _, descriptor = sys.argv
    os.set_inheritable(int(descriptor), False)
    sys.exit(drive_until(Home(Path(where)), socket.socket(fileno=int(descriptor))))
