"""Compare the locks, and the oldest releases that pyproject.toml allows, with a list of known holes.

Offline: the list is a file or a directory that was fetched beforehand, in the OSV format (one JSON document for each advisory; a
zip of them, as the OSV project publishes for PyPI, is read as it is). Without a list nothing is compared, and the exit code says
so: 0 nothing found, 1 something found, 2 nothing was compared.

Known weak spot: it is as new as the list, and it judges packages by name and version. Libraries inside of wheels are theirs to name.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)


def used(root: Path) -> Iterator[tuple[str, str, Version]]:
    """(where it is said, package, version): every pin of the locks, and every lower bound of pyproject.toml."""
    for lock in LOCKS:
        for name, version in _PIN.findall((root / lock).read_text(encoding="utf-8")):
            yield lock, canonicalize_name(name), Version(version)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    for text in [
        *project["dependencies"],
        *(text for name, texts in extras.items() if name != "dev" for text in texts),
    ]:
        requirement = Requirement(text)
        for specifier in requirement.specifier:
            if specifier.operator == ">=":
                yield "pyproject.toml, oldest", canonicalize_name(requirement.name), Version(specifier.version)


def advisories(place: Path) -> Iterator[dict[str, Any]]:
    """Every advisory of a list: a zip, a directory or one document."""
    if place.suffix == ".zip":
        with zipfile.ZipFile(place) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    yield json.loads(archive.read(name))
        return
    for path in sorted(place.rglob("*.json")) if place.is_dir() else [place]:
        yield json.loads(path.read_bytes())


def is_affected(version: Version, affected: Mapping[str, Any]) -> bool:
    """Whether a version is among those that an advisory names, one by one or by ranges."""
    if any(_version(text) == version for text in affected.get("versions", ())):
        return True
    ranges = [one.get("events", ()) for one in affected.get("ranges", ()) if one.get("type") in {"ECOSYSTEM", "SEMVER"}]
    return any(_in_range(version, events) for events in ranges)


def _in_range(version: Version, events: Iterable[Mapping[str, str]]) -> bool:
    """The last event at or before a version decides; ``last_affected`` ends a range after itself."""
    inside = False
    for kind, bound in sorted((_event(one) for one in events), key=lambda event: event[1]):
        if kind == "introduced" and bound <= version:
            inside = True
        elif (kind == "fixed" and bound <= version) or (kind == "last_affected" and bound < version):
            inside = False
    return inside


def _event(event: Mapping[str, str]) -> tuple[str, Version]:
    [(kind, text)] = event.items()
    return kind, _version(text) or Version("0")


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def findings(root: Path, place: Path) -> tuple[int, list[str]]:
    """How many advisories there are for PyPI, and a line for each that names something used here."""
    wanted: dict[str, list[tuple[str, Version]]] = {}
    for where, name, version in used(root):
        wanted.setdefault(name, []).append((where, version))
    count, found = 0, set()
    for advisory in advisories(place):
        entries = [one for one in advisory.get("affected", ()) if one.get("package", {}).get("ecosystem") == "PyPI"]
        count += bool(entries) and "withdrawn" not in advisory
        for affected in entries if "withdrawn" not in advisory else ():
            name = canonicalize_name(affected["package"]["name"])
            for where, version in wanted.get(name, ()):
                if is_affected(version, affected):
                    found.add(f"{name} {version} ({where}): {advisory['id']} {advisory.get('summary', '')}".rstrip())
    return count, sorted(found)


def main(arguments: list[str] | None = None) -> int:
    """Print what was found; the exit code says whether anything was."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--advisories", type=Path, help="a zip, a directory or a file of advisories in the OSV format")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.advisories is None or not chosen.advisories.exists():
        print(
            f"nothing was compared: no list of advisories at {chosen.advisories or 'ADVISORIES=...'}", file=sys.stderr
        )
        print("docs/how-to/dependencies.md says where to get one", file=sys.stderr)
        return 2
    count, found = findings(chosen.root, chosen.advisories)
    if count == 0:
        print(f"nothing was compared: {chosen.advisories} has no advisory for PyPI", file=sys.stderr)
        return 2
    print("\n".join([*found, f"{len(found)} found; advisories compared: {count:,}"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
