"""The built files of the dashboard: from these sources, the same bytes each time, small, and from nowhere else."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.api_types import TARGET as TYPES
from tools.api_types import types
from tools.web import DIGEST_FILE, STATIC, WEB, digest

NEEDS_NODE = not (WEB / "node_modules").is_dir() or shutil.which("node") is None


def packed(kind: str) -> int:
    return sum(len(gzip.compress(path.read_bytes(), mtime=0)) for path in STATIC.glob(f"*.{kind}"))


def test_the_built_files_are_from_the_sources_that_are_here() -> None:
    assert (STATIC / DIGEST_FILE).read_text(encoding="utf-8").strip() == digest(), "run `make web`"


def test_the_types_of_the_api_are_those_of_the_routes() -> None:
    assert TYPES.read_text(encoding="utf-8") == types(), "run `make docs`"


@pytest.mark.skipif(NEEDS_NODE, reason="`make web` has installed no packages here; the test above needs none")
def test_building_again_gives_the_same_bytes(tmp_path: Path) -> None:
    subprocess.run(["node", "build.mjs", str(tmp_path)], cwd=WEB, check=True)
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert built == {path.name: path.read_bytes() for path in STATIC.iterdir() if path.name != DIGEST_FILE}


def test_the_bundle_is_small() -> None:
    assert packed("js") <= 90 * 1024
    assert packed("css") <= 12 * 1024


def test_the_page_loads_what_is_beside_it_and_runs_no_inline_script() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert {name.rpartition(".")[2] for name in loaded} == {"js", "css", "svg"}
    assert all((STATIC / name.removeprefix("/static/")).is_file() for name in loaded)
    assert "style=" not in page
    assert re.findall(r"<script(?![^>]* src=)", page) == []


def test_neither_sources_nor_locks_name_another_host() -> None:
    """Comments and samples may; nothing that is loaded does."""
    lock = json.loads((WEB / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert "http" not in json.dumps(packages)
    assert all(one["integrity"].startswith("sha512-") for one in packages.values())
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", "".join(p.read_text() for p in STATIC.glob("*.css")))
