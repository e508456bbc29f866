"""Where a home may be, found without loading what a home needs: a command asks before it has loaded anything else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DIRECTORY = ".detent"
HOME_VARIABLE = "DETENT_HOME"
LOCKS = "runs"
"""In a home: where the locks of runs are, from the first run that is driven there on."""


def named_place(environment: Mapping[str, str], explicit: Path | None = None) -> Path | None:
    """The place that a command or ``DETENT_HOME`` names for the home; None if neither does."""
    named = explicit or (Path(environment[HOME_VARIABLE]) if environment.get(HOME_VARIABLE) else None)
    return None if named is None else named.absolute()


def places(start: Path, environment: Mapping[str, str], explicit: Path | None = None) -> list[Path]:
    """Where a home is looked for, in this order: the place named, or a directory and those above it."""
    named = named_place(environment, explicit)
    return [directory / DIRECTORY for directory in (start, *start.parents)] if named is None else [named]
