"""The auditor: a process that writes a bundle or verifies for a server, once, and ends.

Both read as much as the ledger has and check every signature, which would hold up the requests of everyone in the server's own process. So
each is a process of its own, which gives way to others (nice), tells its answer as one JSON document on standard output, and ends at once when
the server that started it has gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from detent.canon import digest_text
from detent.errors import DetentError
from detent.inspect.audit import verify_home
from detent.inspect.export import export
from detent.inspect.verify_run import verify_run
from detent.owner.home import Home
from detent.owner.socket_messages import error_to_map

BUNDLE: Final = "bundle"
VERIFY: Final = "verify"
REPORTS: Final = "reports"
ALL: Final = "all"
NO_CONTENT: Final = "none"
"""What a bundle holds beside its records: the executors' reports, everything that they name, or nothing."""
NICE: Final = 10


def audited(home: Home, mode: str, run_id: str | None, target: Path | None, held: str = REPORTS) -> dict[str, Any]:
    """Write a bundle to a file, or verify; of a run, or of the whole ledger."""
    environment: Mapping[str, str] = os.environ
    if mode == BUNDLE:
        assert target is not None
        done = export(
            home,
            target,
            run_id=run_id,
            with_content=held == ALL,
            with_reports=held == REPORTS,
            environment=environment,
        )
        return {"root": digest_text(done.root), "size_bytes": done.size_bytes, "counts": dict(done.counts)}
    if run_id is None:
        return verify_home(home, environment=environment).to_map()
    return verify_run(home, run_id, environment=environment).to_map()


def _end_with(lifeline: int) -> None:
    """Wait until the server has gone; what it asked for is of no use then."""
    os.read(lifeline, 1)
    os._exit(1)


def main(arguments: list[str]) -> int:
    """`--home DIR --lifeline DESCRIPTOR MODE RUN TARGET HELD`, as the server starts it; empty words for what is not there."""
    _, where, _, lifeline, mode, run_id, target, held = arguments
    threading.Thread(target=_end_with, args=(int(lifeline),), daemon=True).start()
    os.nice(NICE)
    try:
        said = {"answer": audited(Home(Path(where)), mode, run_id or None, Path(target) if target else None, held)}
    except DetentError as exc:
        said = {"error": error_to_map(exc)}
    sys.stdout.write(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
