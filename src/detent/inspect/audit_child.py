"""The auditor: a process that writes a bundle or verifies for a server, once, and ends.

Both read as much as the ledger has and check every signature, which would hold up the requests of everyone in the server's own process. So
each is a process of its own, which gives way to others (nice), tells its answer as one JSON document on standard output, and ends at once when
the server that started it has gone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from detent.canon import digest_text
from detent.errors import DetentError
from detent.inspect.audit import verify_home
from detent.inspect.export import export
from detent.inspect.signatures import signature_checkers
from detent.ledger.verify import verify_bundle
from detent.owner.home import Home
from detent.owner.socket_messages import error_to_map
from detent.store.spill import SpilledHeads

BUNDLE: Final = "bundle"
VERIFY: Final = "verify"
NICE: Final = 10


def audited(home: Home, mode: str, run_id: str | None, target: Path | None) -> dict[str, Any]:
    """Write a bundle to a file, or verify; of a run, or of the whole ledger."""
    environment: Mapping[str, str] = os.environ
    if mode == BUNDLE:
        assert target is not None
        done = export(home, target, run_id=run_id, environment=environment)
        return {"root": digest_text(done.root), "size_bytes": done.size_bytes, "counts": dict(done.counts)}
    if run_id is None:
        return verify_home(home, environment=environment).to_map()
    with tempfile.TemporaryDirectory(prefix="detent-verify-") as directory:
        file = Path(directory, "run.detent")
        done = export(home, file, run_id=run_id, environment=environment)
        with file.open("rb") as bundle, SpilledHeads() as heads, signature_checkers() as verify_many:
            return verify_bundle(bundle, done.root, heads=heads, verify_many=verify_many).to_map()


def _end_with(lifeline: int) -> None:
    """Wait until the server has gone; what it asked for is of no use then."""
    os.read(lifeline, 1)
    os._exit(1)


def main(arguments: list[str]) -> int:
    """`--home DIR --lifeline DESCRIPTOR MODE RUN TARGET`, as the server starts it; empty words for what is not there."""
    _, where, _, lifeline, mode, run_id, target = arguments
    threading.Thread(target=_end_with, args=(int(lifeline),), daemon=True).start()
    os.nice(NICE)
    try:
        said = {"answer": audited(Home(Path(where)), mode, run_id or None, Path(target) if target else None)}
    except DetentError as exc:
        said = {"error": error_to_map(exc)}
    sys.stdout.write(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
