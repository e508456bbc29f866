"""Tasks that do harm: to their own process, to what is above and below it, to pipes and to their readers."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from tests.faults.audit import Audit, audit
from tests.faults.commands import Commands
from tests.faults.faults import Cycle, Fault
from tests.faults.site import LEASE_MS_SHORT, Site, new_site

GOOD = 20

SOURCE = """
import ctypes
import os
import signal
import subprocess
import sys
import time


def exits():
    os._exit(7)


def leaves():
    sys.exit("that is all")


def segfaults():
    ctypes.string_at(0)


def prints_forever():
    while True:
        print("x" * 1000)


def returns_much():
    return "x" * 100_000_000


class Silent(Exception):
    def __str__(self):
        while True:
            pass

    __repr__ = __str__


def raises_silently():
    raise Silent


def leaves_children():
    for _ in range(3):
        if os.fork() == 0:
            time.sleep(1000)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 64)
            os.environ.clear()
            time.sleep(1000)
        os._exit(0)
    subprocess.Popen(["sleep", "1000"], start_new_session=True, env={})
    return "left"


def holds_the_interpreter():
    ctypes.PyDLL(None).usleep(2_000_000)
    return "held"


def ignores_the_end():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass


def kills_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def kills_its_host(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    return "survived"


def closes_everything():
    os.closerange(3, 1024)
    return "closed"


def stops_itself():
    os.kill(os.getpid(), signal.SIGSTOP)


def good(number):
    return number + 1
"""


class Task(NamedTuple):
    """A task, and what must become of it."""

    run: str
    state: str
    code: str | None
    attempts: int = 1
    more: str = ""
    short_lease: bool = False


TASKS = {
    "a task that exits": Task("python: 'hostile:exits'", "FAILED", "PROCESS_EXITED"),
    "a task that leaves with a message": Task("python: 'hostile:leaves'", "FAILED", "EXITED"),
    "a task that segfaults": Task("python: 'hostile:segfaults'", "FAILED", "PROCESS_CRASHED"),
    "a task that prints forever": Task("python: 'hostile:prints_forever'", "FAILED", "LIMIT_WALL", 1, "timeout: 1s"),
    "a command that prints forever": Task("shell: 'yes'", "FAILED", "LIMIT_WALL", 1, "timeout: 1s"),
    "a task that returns 100 MB": Task("python: 'hostile:returns_much'", "FAILED", "RESULT_TOO_LARGE"),
    "an exception whose str() never returns": Task("python: 'hostile:raises_silently'", "FAILED", "PYTHON_EXCEPTION"),
    "a task that leaves children": Task("python: 'hostile:leaves_children'", "SUCCEEDED", None),
    "a command that leaves children": Task(
        "shell: '(sleep 1000 &) ; setsid sleep 1000 & env -i setsid -f sleep 1000 >/dev/null 2>&1'", "SUCCEEDED", None
    ),
    "C code that holds the interpreter": Task(
        "python: 'hostile:holds_the_interpreter'", "SUCCEEDED", None, short_lease=True
    ),
    "a task that does not end when told": Task(
        "python: 'hostile:ignores_the_end'", "FAILED", "LIMIT_WALL", 1, "timeout: 500ms"
    ),
    "a task that stops itself": Task("python: 'hostile:stops_itself'", "FAILED", "LIMIT_WALL", 1, "timeout: 500ms"),
    "a task that kills itself every time": Task("python: 'hostile:kills_itself'", "FAILED", None, 11),
    "a task that kills its host once": Task(
        "python: 'hostile:kills_its_host', with: {path: ../killed}", "SUCCEEDED", None, 2
    ),
    "a task that closes every descriptor": Task("python: 'hostile:closes_everything'", "FAILED", "PROCESS_EXITED"),
}


def hostile_cycle(task: Task, commands: Commands, fault: str, seed: int) -> Cycle:
    """A task that does harm beside twenty that do not: it gets what it deserves, and they never notice."""
    cycle = Cycle(fault, seed)
    with new_site(commands) as site:
        if task.short_lease:
            site.set_leases(LEASE_MS_SHORT)
        site.set_pauses(1)
        (site.project / "hostile.py").write_text(SOURCE)
        numbers = ", ".join(str(number + seed) for number in range(GOOD))
        site.write(f"""
name: hostile
steps:
- id: bad
  run: {{{task.run}}}
  on_error: continue
  {task.more}
- id: good
  map: {{number: [{numbers}]}}
  run: {{python: 'hostile:good'}}
result: {{$from: good}}
""")
        command = site.run()
        code = command.wait()
        if code != (0 if task.state == "SUCCEEDED" else 1):
            cycle.wrong.append(f"the line ended with {code}: {site.errors()[-1500:]} {command.out.read_text()[:500]}")
        cycle.found = found = audit(site)
        _check(cycle, found, command.document(), task, seed)
        cycle.hit = found.interrupted
        _check_home_size(cycle, site)
    return cycle


def _check(cycle: Cycle, found: Audit, document: dict[str, Any], task: Task, seed: int) -> None:
    bad = [life for life in found.jobs.values() if life.step == "bad"]
    good = [life.state for life in found.jobs.values() if life.step == "good"]
    if good != ["SUCCEEDED"] * GOOD:
        cycle.found.lost.append(f"of {GOOD} good tasks {good.count('SUCCEEDED')} succeeded")
    if len(bad) != 1:
        cycle.found.lost.append(f"there are {len(bad)} jobs of the bad step")
        return
    cycle.injected += bad[0].begun >= task.attempts
    if (bad[0].state, bad[0].begun) != (task.state, task.attempts):
        cycle.wrong.append(
            f"it is {bad[0].state} after {bad[0].begun} attempts, not {task.state} after {task.attempts}"
        )
    codes = [failure["code"] for failure in document["failures"]]
    if task.code is not None and codes != [task.code]:
        cycle.wrong.append(f"its failure is {document['failures']}, not {task.code}")
    if task.state == "SUCCEEDED" and document.get("result") != [number + seed + 1 for number in range(GOOD)]:
        cycle.wrong.append(f"the result is {document['result']!r:.200}")


def _check_home_size(cycle: Cycle, site: Site) -> None:
    """What a task prints or returns does not end up in the home beyond its limits."""
    size = sum(path.stat().st_size for path in site.home.path.rglob("*") if path.is_file())
    if size > 8 << 20:
        cycle.wrong.append(f"the home has {size} bytes")


HOSTILE: dict[str, Fault] = {name: partial(hostile_cycle, task) for name, task in TASKS.items()}
