"""The files that a run left, as lines of a page: one for each file, or for all files of a step that made many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from detent.cli.page import Cell, Cellish
from detent.cli.terminal import FAINT
from detent.words.quantities import size_text

if TYPE_CHECKING:
    from detent.runs.record.outcome import Artifact

ARTIFACTS_SHOWN_MAX: Final = 20
ARTIFACTS_OF_STEP_MAX: Final = 5
"""Files of one step that are shown one by one; of more, the first stands for all, so that no step hides the others."""


def artifact_fields(name: str, artifacts: Sequence[Artifact]) -> list[tuple[str, Cellish]]:
    """The files of a run under a name, and how many are not shown."""
    groups = _grouped(artifacts)
    fields: list[tuple[str, Cellish]] = [(name, _artifact_text(*group)) for group in groups[:ARTIFACTS_SHOWN_MAX]]
    if (more := sum(map(len, groups[ARTIFACTS_SHOWN_MAX:]))) > 0:
        fields.append(("", Cell(f"... and {more:,} more: `-o json` has all", FAINT)))
    return fields


def _grouped(artifacts: Sequence[Artifact]) -> list[Sequence[Artifact]]:
    """The files of each step, one by one or, where they are many, as one."""
    steps: dict[str, list[Artifact]] = {}
    for artifact in artifacts:
        steps.setdefault(artifact.step, []).append(artifact)
    return [
        group
        for made in steps.values()
        for group in ([made] if len(made) > ARTIFACTS_OF_STEP_MAX else [[one] for one in made])
    ]


def _artifact_text(artifact: Artifact, *others: Artifact) -> str:
    path = Path(artifact.path)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    # A file in the content store has a digest for a name; people know it by the one that the step gave it.
    name = "" if path.name == Path(artifact.name).name else f": {artifact.name}"
    more = f" and {len(others):,} more" if others else ""
    size = sum(one.size_bytes for one in (artifact, *others))
    return f"{shown}{more}  {size_text(size)}, {artifact.step}{name}"
