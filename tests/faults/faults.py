"""The faults: each injects itself into a site and says how often it really happened; then the line is typed again."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.faults import commands as processes
from tests.faults.audit import Audit, audit, check_run
from tests.faults.commands import Command, Commands
from tests.faults.pipelines import HOLD, HUNDRED, QUARTER, Pipeline, Size, hundred
from tests.faults.points import ENDS, POINTS
from tests.faults.site import Site, new_site, until

KILLED = -signal.SIGKILL
TIMES = 5
EFFECTS = 77 + 19
"""Side effects of a run that nothing happens to, about: the cells of the sandbox have none."""
RANDOM_SECONDS = 0.5
TASK_MS = 2.0


@dataclass(slots=True)
class Cycle:
    """What one cycle came to."""

    fault: str
    seed: int
    injected: int = 0
    hit: int = 0
    """Attempts that the fault cut short, by the ledger."""
    found: Audit = field(default_factory=Audit)
    wrong: list[str] = field(default_factory=list)
    """What was not as it should be beside what an audit looks for."""

    @property
    def problems(self) -> list[str]:
        return [*self.found.problems, *self.wrong]


Inject = Callable[[Site, random.Random, Cycle], Command | None]
"""Starts the line, does harm to it, and gives the command that is left, if one is."""


def kill_cycle(inject: Inject, commands: Commands, fault: str, seed: int, *, size: Size = HUNDRED) -> Cycle:
    """One fault into a run of a hundred jobs, then the same line again until it completes, then the audit."""
    cycle = Cycle(fault, seed)
    draw = random.Random(f"{fault}/{seed}")
    with new_site(commands, task_ms=draw.choice((0.0, TASK_MS, TASK_MS))) as site:
        pipeline = hundred(size=size)
        site.write(pipeline)
        command = inject(site, draw, cycle)
        run_id = completed(cycle, site, again(site, cycle, pipeline) if command is None else command, pipeline)
        cycle.found = audit(site)
        if run_id is not None:
            check_run(cycle.found, run_id, pipeline.jobs)
        cycle.hit = cycle.found.interrupted
    return cycle


def completed(cycle: Cycle, site: Site, command: Command, pipeline: Pipeline | None) -> str | None:
    """The run that a command has driven to its end, with the right result; None when there is none."""
    code = command.wait()
    if code != 0:
        answer = command.out.read_text()[:1500]
        cycle.wrong.append(f"the line ended with {code}: {site.errors()[-1500:]} {answer}")
        return None
    document = command.document()
    if pipeline is not None and document.get("result") != pipeline.result:
        cycle.wrong.append(f"the result is {document['result']!r:.200}")
    return str(document["run_id"])


def again(site: Site, cycle: Cycle, pipeline: Pipeline | None = None) -> Command:
    """Type the same line; it takes up the run that was left, if one was (X-174)."""
    before, done = site.runs("running"), site.runs("completed")
    command = site.run()
    code = command.wait()
    if code == 0:
        document = command.document()
        if before and [document["run_id"]] != before:
            cycle.wrong.append(f"the run {before} was left, but {document['run_id']} was driven")
        if before and not document["resumed"]:
            cycle.wrong.append("a run that was left was not resumed")
        jobs, run_again = document["jobs"], 0 if pipeline is None else pipeline.never_reused
        if done and not before and jobs["reused"] + run_again != jobs["total"]:
            cycle.wrong.append(f"a finished run was repeated: {document['jobs']}")
    return command


def moment(site: Site, draw: random.Random, command: Command) -> bool:
    """Wait for a random moment of a run: after some side effect, or some time after the start; False if it came too late."""
    if draw.random() < 0.25:
        threading.Event().wait(draw.random() * RANDOM_SECONDS)
    elif not site.await_effects(draw.randint(1, EFFECTS - 6), command):
        return False
    else:
        threading.Event().wait(draw.random() * 0.004)
    return not command.has_ended


# -- kill -9 -----------------------------------------------------------------------------------------------------------


def kill_worker(site: Site, draw: random.Random, cycle: Cycle) -> Command:
    """A worker, once, twice or three times in a run; the command goes on."""
    command = site.run()
    for _ in range(draw.randint(1, 3)):
        if moment(site, draw, command) and (workers := some(command.workers, command)):
            cycle.injected += processes.kill([draw.choice(workers)])
    return command


def kill_host(site: Site, draw: random.Random, cycle: Cycle) -> Command:
    """The process that the workers are children of; they go with it, and the command goes on."""
    command = site.run()
    for _ in range(draw.randint(1, 2)):
        if moment(site, draw, command) and (hosts := some(command.hosts, command)):
            cycle.injected += processes.kill(hosts)
    return command


def kill_sandbox(site: Site, draw: random.Random, cycle: Cycle) -> Command:
    """What makes the jails, once or twice in a run; they go with it, and the command goes on.

    A guest that is killed alone counts as failed: it may have killed itself.
    """
    command = site.run()

    def spawners() -> list[int]:
        return [pid for pid in processes.children_of(command.pid) if not processes.is_marked(pid)]

    def busy() -> list[int]:
        return [pid for pid in spawners() if len(processes.below(pid)) > 1]

    for find in draw.choice(((busy,), (spawners, busy), (busy, busy))):
        if found := some(find, command):
            threading.Event().wait(draw.random() * 0.02)
            cycle.injected += processes.kill(find() or found)
    return command


def kill_command(site: Site, draw: random.Random, cycle: Cycle) -> None:
    """The command alone, at a random moment."""
    command = site.run()
    moment(site, draw, command)
    command.signal(signal.SIGKILL)
    cycle.injected += command.wait() == KILLED


def kill_both(site: Site, draw: random.Random, cycle: Cycle) -> None:
    """The command and everything below it, in any order, so that no process is left to tidy up.

    What runs the user's commands and cells comes before these: one that is killed alone counts as failed.
    """
    command = site.run()
    moment(site, draw, command)
    tree = command.tree()
    ours = list({command.pid, *processes.children_of(command.pid), *command.workers()})
    draw.shuffle(ours)
    processes.kill(ours)
    processes.kill([pid for pid in tree if pid not in ours])
    processes.kill(command.tree())
    cycle.injected += command.wait() == KILLED


def kill_often(site: Site, draw: random.Random, cycle: Cycle) -> None:
    """The command, five times in one run, each time a little further on."""
    for number in range(TIMES):
        command = site.run()
        if not site.await_effects(len(site.begun()) + draw.randint(1, 6), command):
            break
        before = site.runs("running")
        command.signal(signal.SIGKILL)
        if command.wait() != KILLED:
            break
        cycle.injected += 1
        if number and len(before) != 1:
            cycle.wrong.append(f"after {number + 1} kills there are the runs {before}")


def kill_inside(commands: Commands, fault: str, seed: int) -> Cycle:
    """The command, with or without its workers, five times inside one and the same step (X-163)."""
    cycle, draw = Cycle(fault, seed), random.Random(f"{fault}/{seed}")
    with new_site(commands) as site:
        site.write(HOLD)
        for number in range(TIMES):
            command = site.run()
            site.await_effects(number + 1, command)
            processes.kill([command.pid, *command.tree()] if draw.random() < 0.5 else [command.pid])
            cycle.injected += command.wait() == KILLED
        (site.place / "go").touch()
        run_id = completed(cycle, site, again(site, cycle), None)
        cycle.found = audit(site)
        check_run(cycle.found, str(run_id), 1)
        cycle.hit = cycle.found.interrupted
        if [life.begun for life in cycle.found.jobs.values()] != [TIMES + 1] or cycle.hit != TIMES:
            cycle.wrong.append(f"{cycle.hit} attempts were interrupted, not {TIMES}")
    return cycle


def kill_at(point: str, size: Size = HUNDRED) -> Inject:
    """The command, by itself, at a named point."""
    times_max = max(min(2, POINTS[point]), POINTS[point] * size.jobs // HUNDRED.jobs)

    def inject(site: Site, draw: random.Random, cycle: Cycle) -> None:
        command = site.run(point=point, times=draw.randint(1, times_max))
        code = command.wait()
        cycle.injected += code == KILLED
        if code != KILLED:
            cycle.wrong.append(f"the point {point!r} was not reached: it ended with {code}")
        if point in ENDS and not site.runs("completed"):
            cycle.wrong.append(f"at {point!r} the run should be closed")

    return inject


def some(find: Callable[[], list[int]], command: Command) -> list[int]:
    """Processes, as soon as there are some; none when the command ended first."""
    found: list[int] = []

    def there() -> bool:
        found[:] = find()
        return bool(found)

    until(there, command)
    return found


Fault = Callable[[Commands, str, int], Cycle]
"""Runs one cycle under a name and a seed."""

KILLS: dict[str, Fault] = {
    "kill -9 of a worker": partial(kill_cycle, kill_worker),
    "kill -9 of the workers' host": partial(kill_cycle, kill_host),
    "kill -9 of the sandbox": partial(kill_cycle, kill_sandbox),
    "kill -9 of the command": partial(kill_cycle, kill_command),
    "kill -9 of command and workers": partial(kill_cycle, kill_both),
    "kill -9 of the command, five times in a run": partial(kill_cycle, kill_often),
    "kill -9 of the command, five times in a step": kill_inside,
}
NAMED: dict[str, Fault] = {f"kill -9 at {point!r}": partial(kill_cycle, kill_at(point)) for point in POINTS}

NAMED_IN_A_QUARTER: dict[str, Fault] = {
    f"kill -9 at {point!r}": partial(kill_cycle, kill_at(point, QUARTER), size=QUARTER) for point in POINTS
}
"""The same in a run of a quarter of the jobs, for `make test`."""
