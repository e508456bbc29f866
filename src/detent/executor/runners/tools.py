"""The tools that job types draw with: where they are installed, which versions, and what of them a jail gets to see.

A jail gets the directories of the distributions it needs and nothing else of the installation. Nothing of a tool is ever
imported in this process: its input is untrusted, so it is imported where it runs.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

REVISION: Final = 1
"""Of our own part in the output; goes up whenever a runner gives other bytes for the same payload."""

TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "object_execute": (),
    "object_render": ("ziamath", "ziafont", "latex2mathml", "resvg_py"),
    "document_export": ("typst", "ziamath", "ziafont", "latex2mathml"),
    "thumbnail_generate": ("pillow", "resvg_py"),
}
"""The distributions each job type needs, beside the interpreter."""

NAMES: Final[Mapping[str, str]] = {
    "object_execute": "py-executor",
    "object_render": "render",
    "document_export": "export",
    "thumbnail_generate": "thumbnail",
}
MISSING: Final = "none"


def env_version(job_type: str, library_paths: tuple[Path, ...] = ()) -> str:
    """The name of what a job of this type runs in here: ``render@1+py3.11.7+ziamath-0.13+...``.

    Code that may import packages of the operator's (``library_paths``) runs in an environment that these are part of. A
    tool that is not installed is named as such; no payload that was made for a working environment asks for that.
    """
    name = named(runner_of(job_type), platform.python_version(), versions(job_type))
    if library_paths and job_type == "object_execute":
        name += f"+lib-{_packages_digest(library_paths)}"
    return name


def named(runner: str, python: str, tools: Mapping[str, str]) -> str:
    """The name of an environment made of these."""
    return "+".join([runner, f"py{python}", *(f"{name}-{version}" for name, version in tools.items())])


def runner_of(job_type: str) -> str:
    """What runs jobs of this type, with the revision of our own code that affects results."""
    return f"{NAMES[job_type]}@{REVISION}"


def versions(job_type: str) -> dict[str, str]:
    """The version of each tool of a job type, as it is installed at this moment."""
    return {name: version_of(name) or MISSING for name in TOOLS[job_type]}


def missing_tools(job_type: str) -> tuple[str, ...]:
    """The distributions that a job type needs and that are not installed here."""
    return tuple(name for name in TOOLS[job_type] if not places_of(name))


def libraries(job_type: str) -> dict[str, Path]:
    """What a jail for this job type has to see of the tools, by the names they are imported by."""
    return {path.name: path for name in TOOLS[job_type] for path in places_of(name)}


def version_of(name: str) -> str | None:
    """The installed version of a distribution; None when there is none. Never remembered: it may be upgraded meanwhile."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def places_of(name: str) -> tuple[Path, ...]:
    """The top-level directories and files of a distribution: its packages, shared libraries and metadata."""
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return ()
    tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in {"..", "__pycache__"}}
    found = [Path(str(distribution.locate_file(top))) for top in sorted(tops)]
    return tuple(path for path in found if path.exists())


def _packages_digest(paths: tuple[Path, ...]) -> str:
    found = sorted(
        f"{distribution.name}=={distribution.version}"
        for distribution in metadata.distributions(path=[str(path) for path in paths])
    )
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]
