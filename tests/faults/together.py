"""Faults of several commands on one home: the owner is killed, a client or the owner is stopped past its leases (X-172)."""

from __future__ import annotations

import random
import signal
import threading

from detent.kernel import Job
from tests.faults import commands as processes
from tests.faults.audit import audit, check_run
from tests.faults.commands import Command, Commands
from tests.faults.faults import KILLED, Cycle, completed, some
from tests.faults.pipelines import HOLD, hundred
from tests.faults.site import LEASE_MS_SHORT, Site, new_site, until

TASK_MS = 4.0
UNREACHABLE = 4
"""The exit code of a command that cannot reach what it needs."""


def take_over(commands: Commands, fault: str, seed: int) -> Cycle:
    """Two pipelines on one home. The owner is killed; the other command goes on, and then the line is typed again."""
    cycle, draw = Cycle(fault, seed), random.Random(f"{fault}/{seed}")
    with new_site(commands, task_ms=TASK_MS) as site:
        pipelines = {"first.yaml": hundred("first"), "second.yaml": hundred("second", first=1000)}
        for name, pipeline in pipelines.items():
            site.write(pipeline, name)
        owner = site.run("first.yaml")
        site.await_effects(1, owner)
        client = site.run("second.yaml")
        _await_run(site, "second", client)
        site.await_effects(len(site.begun()) + draw.randint(1, 60), owner)
        left = [owner.pid, *owner.tree()] if draw.random() < 0.5 else [owner.pid]
        processes.kill(left)
        cycle.injected += owner.wait() == KILLED
        before = site.runs("running")
        ended = {"second.yaml": client}
        client.wait()
        ended["first.yaml"] = site.run("first.yaml")
        runs = {name: completed(cycle, site, command, pipelines[name]) for name, command in ended.items()}
        if cycle.injected and runs["first.yaml"] not in before:
            cycle.wrong.append(f"the run that was left is not the one that was taken up: {before}, {runs}")
        _close(site, cycle, [run_id for run_id in runs.values() if run_id is not None])
    return cycle


def same_line_twice(commands: Commands, fault: str, seed: int) -> Cycle:
    """The same line in two terminals: the second waits for the first one's jobs. The first is killed; all of it gets done."""
    cycle, draw = Cycle(fault, seed), random.Random(f"{fault}/{seed}")
    with new_site(commands, task_ms=TASK_MS) as site:
        pipeline = hundred()
        site.write(pipeline)
        first = site.run()
        site.await_effects(1, first)
        second = site.run()
        site.await_effects(len(site.begun()) + draw.randint(1, 60), first)
        processes.kill([first.pid, *first.tree()] if draw.random() < 0.5 else [first.pid])
        cycle.injected += first.wait() == KILLED
        second.wait()
        left = site.runs("running")
        runs = [completed(cycle, site, command, pipeline) for command in (second, site.run())]
        if left and runs[1] not in left:
            cycle.wrong.append(f"{left} were left, {runs[1]} was taken up")
        _close(site, cycle, [run_id for run_id in runs if run_id is not None])
    return cycle


def stop_client(commands: Commands, fault: str, seed: int) -> Cycle:
    """A command that is no owner is stopped, with its workers, until its leases have run out and others did its jobs."""
    cycle, draw = Cycle(fault, seed), random.Random(f"{fault}/{seed}")
    with new_site(commands, task_ms=TASK_MS) as site:
        site.set_leases(LEASE_MS_SHORT)
        pipeline = hundred()
        site.write(pipeline)
        site.write(HOLD, "hold.yaml")
        owner = site.run("hold.yaml")
        site.await_effects(1, owner)
        client = site.run()
        stopped: list[int] = []

        def caught() -> bool:
            """Stop it at a moment when it holds leases; otherwise let it go on and try again."""
            stopped[:] = _stop_tree(client)
            if _held_by(site, client.pid):
                return True
            processes.kill(stopped, signal.SIGCONT)
            return False

        site.await_effects(len(site.begun()) + draw.randint(1, 60), client)
        if until(caught, client):
            cycle.injected += 1
            until(lambda: not _held_by(site, client.pid) and not _open_jobs(site), owner)
        processes.kill(stopped, signal.SIGCONT)
        run_id = completed(cycle, site, client, pipeline)
        (site.place / "go").touch()
        held = completed(cycle, site, owner, None)
        _close(site, cycle, [one for one in (run_id, held) if one is not None], may_expire=True)
        if cycle.injected and not cycle.found.expired:
            cycle.wrong.append("no lease has run out")
        cycle.hit = cycle.found.expired
    return cycle


def stop_owner(commands: Commands, fault: str, seed: int) -> Cycle:
    """The owner is stopped, with its workers, for longer than its leases; another command meanwhile gets a clear message, and the owner goes on.

    No process can take over from one that may wake up at any moment. When it does, the leases of its live workers are
    renewed before any of them runs out (X-180).
    """
    cycle, draw = Cycle(fault, seed), random.Random(f"{fault}/{seed}")
    with new_site(commands, task_ms=TASK_MS) as site:
        site.set_leases(LEASE_MS_SHORT)
        pipeline = hundred()
        site.write(pipeline)
        owner = site.run()
        site.await_effects(draw.randint(1, 60), owner)
        stopped = _stop_tree(owner)
        cycle.injected += not owner.has_ended
        settings = {"detent.owner.session.CONNECT_SECONDS": 0.2, "detent.owner.socket_client.HELLO_SECONDS": 0.2}
        other = site.run(settings=settings)
        if cycle.injected and other.wait() != UNREACHABLE:
            cycle.wrong.append("a second command did not say that the owner does not answer")
        threading.Event().wait(2 * LEASE_MS_SHORT / 1000)
        processes.kill(stopped, signal.SIGCONT)
        run_id = completed(cycle, site, owner, pipeline)
        _close(site, cycle, [] if run_id is None else [run_id])
    return cycle


def stop_worker(commands: Commands, fault: str, seed: int) -> Cycle:
    """Workers alone are stopped for longer than a lease: their supervisor keeps it (X-179), and nothing runs twice."""
    cycle, draw = Cycle(fault, seed), random.Random(f"{fault}/{seed}")
    with new_site(commands, task_ms=TASK_MS) as site:
        site.set_leases(LEASE_MS_SHORT)
        pipeline = hundred()
        site.write(pipeline)
        command = site.run()
        site.await_effects(draw.randint(1, 60), command)
        workers = some(command.workers, command)
        cycle.injected += processes.kill(workers, signal.SIGSTOP)
        threading.Event().wait(2 * LEASE_MS_SHORT / 1000)
        processes.kill(workers, signal.SIGCONT)
        run_id = completed(cycle, site, command, pipeline)
        _close(site, cycle, [] if run_id is None else [run_id])
        if cycle.found.interrupted:
            cycle.wrong.append(f"{cycle.found.interrupted} attempts were taken for lost")
    return cycle


def _close(site: Site, cycle: Cycle, run_ids: list[str], *, may_expire: bool = False) -> None:
    cycle.found = audit(site, may_expire=may_expire)
    for run_id in run_ids:
        check_run(cycle.found, run_id, None if run_id.startswith("hold-") else hundred().jobs)
    cycle.hit = cycle.found.interrupted


def _stop_tree(command: Command) -> list[int]:
    """Stop a command and everything below it, the command first: then nothing new begins."""
    command.signal(signal.SIGSTOP)
    stopped = [command.pid]
    while more := [pid for pid in command.tree() if pid not in stopped]:
        processes.kill(more, signal.SIGSTOP)
        stopped += more
    return stopped[::-1]


def _held_by(site: Site, pid: int) -> list[str]:
    with site.reader() as reader:
        jobs = [Job.decode(row.body) for row in reader.jobs(state="RUNNING")]
    return [job.job_id for job in jobs if (job.lease_holder or "").split("/")[3:4] == [str(pid)]]


def _open_jobs(site: Site) -> bool:
    """Whether jobs wait that a worker could do: all but the one that holds the owner."""
    with site.reader() as reader:
        counts = reader.job_counts()
    return counts.get("QUEUED", 0) + counts.get("RETRYING", 0) + counts.get("RUNNING", 0) > 1


def _await_run(site: Site, name: str, command: Command) -> None:
    until(lambda: any(run_id.startswith(f"{name}-") for run_id in site.runs("running")), command)


TOGETHER = {
    "kill -9 of the owner, another command goes on": take_over,
    "kill -9 of one of two equal lines": same_line_twice,
    "SIGSTOP of a command past its leases": stop_client,
    "SIGSTOP of the owner past its leases": stop_owner,
    "SIGSTOP of workers past their leases": stop_worker,
}
