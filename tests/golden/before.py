"""What earlier versions wrote, unpacked for a test: a home and bundles whose manifests name no ledger."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.golden.make import FOLDER


def unpack_before_origin(directory: Path) -> None:
    """Unpack the home and the bundles. The archive is ours, and early releases of Python 3.11 know no filter."""
    with tarfile.open(FOLDER / "before-origin.tar.gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(directory)
