"""A supervisor to be killed: starts a pool with work that leaves all kinds of processes, says so, and waits."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.executor.plain.rig import Rig


def main() -> None:
    rig = Rig(Path(sys.argv[1]), workers=4)
    rig.submit("hold_interpreter")
    rig.submit("begin_and_wait", "waits")
    rig.submit("sleep 1000 & setsid sleep 1000 & echo > ready; sleep 1000", kind="shell", cwd=sys.argv[1])
    for said in ("begun", "waits"):
        rig.begun(said)
    (Path(sys.argv[1]) / "ready").read_text()
    rig.until(lambda: len(rig.pool.worker_pids) == 4)
    sys.stdout.write(" ".join(str(pid) for pid in (rig.pool.host_pid, *rig.pool.worker_pids)) + "\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
