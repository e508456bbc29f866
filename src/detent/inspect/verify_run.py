"""Verify one run of a home as a stranger would: by its bundle, and by nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from detent.inspect.export import export
from detent.inspect.signatures import signature_checkers
from detent.ledger.bundle import read_items
from detent.ledger.findings import Report
from detent.ledger.verify import verify_items
from detent.owner.home import Home
from detent.store.spill import SpilledHeads


def verify_run(
    home: Home,
    run_id: str,
    *,
    environment: Mapping[str, str],
    root: bytes | None = None,
    kept_heads: Iterable[str] = (),
) -> Report:
    """Export a run and verify the bundle; ``root`` came another way than with the home, else the home's own is pinned."""
    with tempfile.TemporaryDirectory(prefix="detent-verify-") as directory:
        file = Path(directory, "run.detent")
        done = export(home, file, run_id=run_id, environment=environment)
        with file.open("rb") as bundle, SpilledHeads() as heads, signature_checkers() as verify_many:
            return verify_items(
                read_items(bundle),
                root=done.root if root is None else root,
                heads=heads,
                kept_heads=kept_heads,
                pinned_home=root is None,
                verify_many=verify_many,
            )
