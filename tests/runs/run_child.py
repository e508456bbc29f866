"""A process that runs a contract of a rig's project and may be killed on the way: at a crash point, or from outside.

Reads one JSON object from its arguments: home, contract (text), base, and what else is wanted. With ``point`` the process
kills itself with SIGKILL the n-th time that its owner passes that point. Says one line of JSON when the run has ended.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from detent.contract import load
from detent.executor.plain import current
from detent.owner.home import Home
from detent.owner.wiring import Parts
from detent.reuse.work_keys import Options
from detent.runs.handle import RunHandle
from detent.runs.record.inputs import RunInputs
from detent.runs.runtime import Runtime
from detent.testing import InlineLane
from detent.testing.faults import CrashAt


def main(task: dict[str, Any]) -> None:
    home = Home(Path(task["home"]))
    parts = Parts(crash_point=CrashAt(task["point"], task["times"], kill=True)) if "point" in task else Parts()
    lane = InlineLane(content=home.path / "content", slots=task.get("slots", 64))
    lane.held = set(task.get("held", ()))
    current.work_for(lane.content)
    contract = load(task["contract"].encode(), name="flow.yaml", base=task["base"])
    executors = None if task.get("pool") else lane.executors
    with Runtime(home, parts=parts, workers=2, executors=executors) as work:
        handle = RunHandle(work, RunInputs(contract, {}), options=Options(), new=task.get("new", False))
        say(run_id=handle.open(), owns=work.session.owns)
        said: list[str] = []

        def idle() -> None:
            for target in lane.held:
                if lane.waiting(target) and target not in said:
                    said.append(target)
                    say(held=target)

        lane.on_idle = idle
        lane.wake()  # A job that was left may have begun already.
        result = handle.run()
    say(status=result.status, value=result.value, run_id=result.run_id, calls=[a.order.origin.step for a in lane.began])


def say(**words: Any) -> None:
    """One line."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
