"""Keeps the hosts of one pool: a child of a server that starts, drains and replaces them.

    look: what the provisioner has  ->  tell the server, hear what is wanted  ->  balance  ->  start, drain, end

It asks the server over HTTP, as an operator would, so everything that it does is on the ledger: a token for each host, and the end of each
worker. It remembers nothing that the next keeper could not find out. A host that is gone was interrupted: its worker is retired, its jobs go to
other workers at once, and another host takes its place.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from detent.errors import DetentError
from detent.jobs.pools import ALL, HOST_LABEL, RAY, Pool
from detent.owner.home import Home
from detent.owner.names import DIRECTORY, TOKEN_FILE
from detent.owner.server_address import told_address
from detent.remote.address import parse_address
from detent.remote.http import Http
from detent.runs.ending import Ending
from detent.workers.provision import GONE, HostOrder, Provisioner, ProvisionFailed
from detent.workers.provision.balance import BUSY, IDLE, LEAVING, LOST, STARTING, Host, balance, rest_after
from detent.workers.provision.processes import Processes

LOOK_SECONDS: Final = 1.0
TOKEN_SECONDS: Final = 3_600
NEVER_SECONDS: Final = 120.0
"""How long an enrolled host may take to its first turn before it counts as lost."""
FAULT_CHARS_MAX: Final = 2_000
_PHASES: Final = {"never": STARTING, "idle": IDLE, "busy": BUSY, "draining": LEAVING, "silent": LOST}


class PoolKeeper:
    """Keeps one pool. `look` does everything once."""

    def __init__(
        self,
        pool: Pool,
        http: Http,
        order: Callable[[str, str], HostOrder],
        provisioner: Provisioner,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``order`` makes the order of a host from its id and its token."""
        self._pool, self._http, self._order, self._provisioner, self._now = pool, http, order, provisioner, now
        self._path = f"/v1/pools/{quote(pool.name, safe='')}/hosts"
        self._since: dict[str, tuple[str, float]] = {}
        """What each host does, and since when."""
        self._failures, self._rests_until = 0, 0.0
        self._aim: int | None = None

    def look(self) -> None:
        """See what there is and what is wanted, and bring the two together as far as that can be begun now."""
        try:
            present, fault = self._provisioner.list(), self._provisioner.fault()
        except ProvisionFailed as exc:
            self._tell({"hosts": len(self._since), "unready": _text(exc)})
            return
        said = self._tell({"hosts": len(present), "fault": fault and fault[:FAULT_CHARS_MAX]})
        workers = {str(one["enrolment_id"]): one for one in said["workers"]}
        for host_id, worker in workers.items():
            if host_id not in present:
                self._http.ask("POST", f"/v1/workers/{worker['worker_id']}/gone")
        self._count_failures(present)
        hosts = [self._host(host_id, takes_jobs, workers.get(host_id)) for host_id, takes_jobs in present.items()]
        may_start = fault is None and self._now() >= self._rests_until
        scaled = said["wanted"] if said["scaled"] else None
        done = balance(self._pool, scaled, hosts, said["waiting"], may_start=may_start)
        self._aim = done.wanted
        for host_id in done.drain:
            self._http.ask("POST", f"/v1/workers/{workers[host_id]['worker_id']}/drain")
        for host_id in done.end:
            self._end(host_id, enrolled=host_id in workers)
        for _ in range(done.start):
            self._start()

    def _tell(self, report: Mapping[str, Any]) -> Any:
        return self._http.ask("PUT", self._path, body={**report, "aim": self._aim}).json

    def _host(self, host_id: str, takes_jobs: bool, worker: Mapping[str, Any] | None) -> Host:
        """What a host does, by what its worker does."""
        phase = STARTING if worker is None else _PHASES.get(worker["state"], LEAVING)
        phase = phase if takes_jobs or phase == LOST else LEAVING
        before, since = self._since.get(host_id, (phase, self._now()))
        since = since if before == phase else self._now()
        self._since[host_id] = (phase, since)
        lasts = self._now() - since
        if worker is not None and phase == STARTING and lasts > NEVER_SECONDS:
            phase = LOST
        return Host(host_id, phase, lasts if phase == IDLE else 0.0, None if worker is None else worker["worker_id"])

    def _count_failures(self, present: Mapping[str, bool]) -> None:
        """Rest before the next start while hosts end that have not taken a turn."""
        if any(phase in {IDLE, BUSY} and host_id in present for host_id, (phase, _) in self._since.items()):
            self._failures = 0
        for host_id in [host_id for host_id in self._since if host_id not in present]:
            phase, _ = self._since.pop(host_id)
            if phase == STARTING:
                self._failures += 1
                self._rests_until = self._now() + rest_after(self._failures)

    def _start(self) -> None:
        pool = self._pool
        wanted = {
            "tenants": [ALL] if pool.workspaces is None else list(pool.workspaces),
            "pools": [pool.name],
            "labels": [*pool.labels, f"{HOST_LABEL}{pool.provision}"],
            "ttl_seconds": TOKEN_SECONDS,
        }
        made = self._http.post("/v1/enrolments", wanted)
        self._since[made["enrolment_id"]] = (STARTING, self._now())
        self._provisioner.ensure(self._order(made["enrolment_id"], made["token"]))

    def _end(self, host_id: str, *, enrolled: bool) -> None:
        self._provisioner.release(host_id)
        self._since.pop(host_id, None)  # It did not fail.
        if not enrolled:
            self._http.ask("DELETE", f"/v1/enrolments/{host_id}")


def keep(keeper: PoolKeeper, ending: Ending, wake: threading.Event, tell: Callable[[str], None]) -> None:
    """Look every second, and whenever a host has gone, until the end is asked for."""
    told = ""
    while not ending.asked.is_set():
        wake.clear()
        try:
            keeper.look()
            told = ""
        except DetentError as exc:
            if ending.asked.is_set():
                return  # The server goes.
            if (text := _text(exc)) != told:  # Once, not every second.
                tell(text)
            told = text
        wake.wait(LOOK_SECONDS)


def provisioner_of(pool: Pool, home: Path, on_gone: GONE) -> Provisioner:
    """The provisioner that the settings of a pool name."""
    if pool.provision == RAY:
        from detent.workers.provision.ray_hosts import RayHosts  # noqa: PLC0415 - loads Ray, an extra

        return RayHosts(pool, Home(home).settings().origin)
    return Processes(pool, home / DIRECTORY / "pools" / pool.name, on_gone)


@click.command()
@click.option("--home", type=click.Path(path_type=Path), required=True)
@click.option("--pool", "name", required=True)
@click.option("--pin")
@click.option("--lifeline", type=int, required=True)
def main(home: Path, name: str, pin: str | None, lifeline: int) -> None:
    """Keep a pool until the server ends."""
    pool = Home(home).settings().provisioned[name]
    url, token = told_address(home), (home / DIRECTORY / TOKEN_FILE).read_text("ascii").strip()
    if url is None:
        raise SystemExit(f"the server of {home} has told no address")
    # A node of a cluster has directories of its own.
    project = pool.project or "." if pool.provision == RAY else str(Path(pool.project or ".").resolve())
    connect = (url, pin) if pool.connect is None else (pool.connect, pool.pin)
    ending, wake = Ending(lifeline), threading.Event()
    provisioner = provisioner_of(pool, home, lambda _host_id: wake.set())
    with ending.caught(), Http(parse_address(url, key=token, pin=pin), agent="detent-pool") as http:
        keeper = PoolKeeper(pool, http, lambda host, secret: HostOrder(host, secret, *connect, project), provisioner)
        threading.Thread(target=_pass_on, args=(ending, wake), daemon=True).start()
        try:
            keep(keeper, ending, wake, lambda text: print(f"pool {name}: {text}", file=sys.stderr, flush=True))  # noqa: T201
        finally:
            provisioner.close()


def _pass_on(ending: Ending, wake: threading.Event) -> None:
    ending.asked.wait()
    wake.set()


def _text(exc: DetentError) -> str:
    return (f"{exc}; {exc.hint}" if exc.hint else str(exc))[:FAULT_CHARS_MAX]


if __name__ == "__main__":
    main()
