"""Homes and bundles that a version wrote and that are kept for ever: packed by the program that made them, unpacked for tests."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

from detent.inspect.export import export
from detent.owner.home import Home
from detent.owner.state_directory import state_directory
from detent.store.sqlite.database import empty_wal
from tests.golden.make import FOLDER

BEFORE_ORIGIN = "before-origin.tar.gz"
"""Of a version whose manifests named no ledger. No program is left that makes it."""


def unpack(name: str, directory: Path) -> None:
    """Unpack ``home`` and the bundles. The archive is ours, and early releases of Python 3.11 know no filter."""
    with tarfile.open(FOLDER / name) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(directory)


def put_in_place(name: str, home: Path) -> None:
    """Unpack a kept home, with its bundles beside it, in place of another home."""
    shutil.rmtree(home)
    unpack(name, home.parent)
    (home.parent / "home").rename(home)


def pack(name: str, place: Path, run_id: str) -> None:
    """Pack the home in a directory, with a bundle of all of it and one of a run."""
    home = Home(place / "home")
    assert state_directory(os.environ).is_relative_to(place)
    export(home, place / "all.detent", with_content=True, environment=os.environ)
    export(home, place / "run.detent", run_id=run_id, environment=os.environ)
    print("root", home.settings().root.hex(), "run", run_id)  # noqa: T201 - for the test that pins it
    assert empty_wal(home.ledger_file)
    with tarfile.open(FOLDER / name, "w:gz") as archive:
        for part in ("config.toml", ".gitignore", "content", "keys", "ledger.db"):
            archive.add(place / "home" / part, f"home/{part}")
        for part in ("all.detent", "run.detent"):
            archive.add(place / part, part)
