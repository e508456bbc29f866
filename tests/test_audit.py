"""`make audit`: the locks and the oldest releases that are allowed, against a list of known holes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PILLOW = {
    "id": "BIT-pillow-2026-42309",
    "summary": "Heap buffer overflow with nested list coordinates",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "Pillow"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "11.2.1"}, {"fixed": "12.2.0"}]}],
        }
    ],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["apsw>=3.52,<4"]\noptional-dependencies.render = ["pillow>=12,<14"]\n'
    )
    for name in ("requirements.lock", "requirements-dev.lock"):
        (tmp_path / name).write_text("pillow==12.2.0 \\\n    --hash=sha256:00\napsw==3.54.1.0\n")
    return tmp_path


def audit(*words: str | Path) -> tuple[int, str]:
    line = [sys.executable, ROOT / "tools" / "audit.py", *words]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def listed(place: Path, *documents: object) -> Path:
    with zipfile.ZipFile(place / "all.zip", "w") as archive:
        for number, document in enumerate(documents):
            archive.writestr(f"{number}.json", json.dumps(document))
    return place / "all.zip"


def test_the_oldest_release_that_is_allowed_is_compared_as_the_lock_is(project: Path) -> None:
    code, out = audit("--root", project, "--advisories", listed(project, PILLOW))
    assert code == 1
    assert "pillow 12 (pyproject.toml, oldest): BIT-pillow-2026-42309 Heap buffer overflow" in out
    assert "requirements.lock" not in out


@pytest.mark.parametrize(
    ("affected", "code"),
    [
        ({"versions": ["12.2.0"]}, 1),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"last_affected": "12.2.0"}]}]}, 1),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"last_affected": "11"}]}]}, 0),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "12.2.1"}]}]}, 0),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, 0),
    ],
)
def test_versions_and_ranges_of_an_advisory_are_understood(
    project: Path, affected: dict[str, object], code: int
) -> None:
    document = {"id": "X", "affected": [{"package": {"ecosystem": "PyPI", "name": "pillow"}, **affected}]}
    assert audit("--root", project, "--advisories", listed(project, document))[0] == code


def test_without_a_list_nothing_is_called_safe(project: Path) -> None:
    assert audit("--root", project)[0] == 2
    code, out = audit("--root", project, "--advisories", project / "none.zip")
    assert (code, "nothing was compared" in out) == (2, True)
    assert audit("--root", project, "--advisories", listed(project))[0] == 2
    assert audit("--root", project, "--advisories", listed(project, {**PILLOW, "withdrawn": "2026-01-01"}))[0] == 2


def test_the_known_holes_of_pillow_are_below_what_the_project_allows(tmp_path: Path) -> None:
    events = [{"introduced": "0"}, {"fixed": "12.3.0"}]
    affected = {"package": {"ecosystem": "PyPI", "name": "pillow"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    code, out = audit("--advisories", listed(tmp_path, {"id": "below 12.3", "affected": [affected]}))
    assert (code, out) == (0, "0 found; advisories compared: 1\n")
