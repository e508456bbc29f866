"""Runs payloads and looks for what they might have left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from detent.errors import Refused
from detent.executor.sandbox import Execution, Job, Profile, Sandbox, cgroup, probe, profile_of
from tests.hostile.payloads import SMALL, Payload

STRONG = profile_of(probe())
CONTAINED = [profile for profile in (Profile.FULL, Profile.FULL_ROOTLESS) if profile.strength <= STRONG.strength]


def job_of(payload: Payload) -> Job:
    """The payload as a job; one with a function main is called."""
    entry = "main" if "def main(" in payload.source else None
    return Job(source=payload.source, entry=entry, limits=payload.limits)


def run(supervisor: Sandbox, job: Job) -> Execution:
    """Run a job that must not be refused."""
    execution = supervisor.run(job)
    assert not isinstance(execution, Refused), execution
    return execution


def faults(payload: Payload, execution: Execution) -> list[str]:
    """Everything in which an execution is not what the payload says."""
    found = []
    category = None if execution.category is None else execution.category.value
    if category != payload.category:
        found.append(f"category {category}, not {payload.category}: {execution.message} {execution.stderr.text[-300:]}")
    if payload.code is not None and execution.code != payload.code:
        found.append(f"code {execution.code}, not {payload.code}: {execution.message}")
    if payload.category == "SANDBOX_VIOLATION" and execution.code != "SANDBOX_VIOLATION":
        found.append(f"code {execution.code}")
    if payload.raises is not None and (execution.raised is None or payload.raises not in execution.message):
        found.append(f"raised {execution.raised}, not {payload.raises}")
    if payload.returns is not ... and (execution.result is None or json.loads(execution.result) != payload.returns):
        found.append(f"returned {execution.result!r}")
    if max(len(execution.stdout.data), len(execution.stderr.data)) > payload.limits.output_bytes:
        found.append("more output than the limit")
    return found


def traces(supervisor: Sandbox) -> list[str]:
    """What is left of served jails: processes, control groups, files, mounts. Must be nothing."""
    supervisor.settle()
    found = []
    waiting = {str(jail.pid) for jail in supervisor._ready}
    children = Path(f"/proc/{supervisor._process.pid}/task/{supervisor._process.pid}/children").read_text().split()
    found += [f"process {pid}" for pid in children if pid not in waiting and len(waiting - {"None"}) == len(waiting)]
    place: dict[str, Any] | None = supervisor.place
    if place is not None:
        numbers = {f"{supervisor.group}-{jail.number}" for jail in supervisor._ready}
        for key in cgroup.KEYS:
            names = [path.name for path in Path(place[key]).glob(f"{supervisor.group}*")]
            found += [f"group {name}" for name in names if name not in numbers]
    found += [f"file {path}" for path in supervisor.staging.iterdir() if not path.name.startswith("out-")]
    return found + mounts()


def mounts() -> list[str]:
    """Mounts of jails that can be seen from outside. Must be none."""
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - tmpfs jail " in line]


__all__ = ["CONTAINED", "SMALL", "STRONG", "faults", "job_of", "mounts", "run", "traces"]
