"""The previous version of Detent, as a source tree from the history of this repository: for tests in which two versions work together.

Nothing of it is kept among the tests: 6 MB of code would be stored once more with every release. A clone without the commit cannot run such tests;
they are then reported as skipped, which the last lines of the report say.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "ec0a9ac6aba9f7e358935fc6d4f9d0a761f9be30"
"""Of version N-1. It moves on when a version is released."""
NOT_RUN = f"this clone lacks commit {COMMIT[:7]}, so two versions were not tried together: git fetch --unshallow"


@dataclass(frozen=True, slots=True)
class Version:
    """A source tree that commands are started from."""

    name: str
    source: Path

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """That of a process of this version."""
        return {**environment, "PYTHONPATH": str(self.source)}

    def line(self, *words: str) -> list[str]:
        """A command line of `detent`."""
        return [sys.executable, "-m", "detent", *words]


PRESENT = Version("present", ROOT / "src")


def previous(directory: Path) -> Version:
    """Unpack the previous version into a directory."""
    tree = _git("archive", "--format=tar", COMMIT, "src/detent")
    if tree.returncode:
        pytest.skip(NOT_RUN)
    with tarfile.open(fileobj=io.BytesIO(tree.stdout)) as archive:
        archive.extractall(directory)
    return Version("previous", directory / "src")


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, timeout=60, check=False)
    except OSError:
        return subprocess.CompletedProcess(words, 127, b"", b"")
