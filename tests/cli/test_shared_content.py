"""`[content] url`: large content in a directory that several machines share, each with a home of its own of one ledger."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.test_postgres import Place, place
from tests.postgres_server import Server

__all__ = ["place"]

TASKS = """\
def page(n):
    return "x" * n


def size(text):
    return len(text)
"""
CONTRACT = """\
name: pages
steps:
  - {id: page, run: {python: "tasks:page", with: {n: 200000}}}
  - {id: size, run: {python: "tasks:size", with: {text: {$from: page}}}}
result: {$from: size}
"""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory that all machines have mounted, with a space in its name."""
    made = tmp_path / "a volume"
    made.mkdir()
    return made


def share(home: Path, url: str) -> None:
    """Set it, as a user does."""
    with (home / "config.toml").open("a") as settings:
        settings.write(f'\n[content]\nurl = "{url}"\n')


def files_in(directory: Path) -> set[str]:
    return {path.name for path in directory.rglob("*") if path.is_file()}


def test_two_machines_have_one_content(place: Place, postgres: Server, shared: Path, tmp_path: Path) -> None:
    here, there = place.directory / ".detent", tmp_path / "elsewhere" / ".detent"
    place.json("init", "--store", postgres.store_url())
    (place.directory / "tasks.py").write_text(TASKS)
    (place.directory / "pages.yaml").write_text(CONTRACT)
    share(here, shared.as_uri())
    first = place.json("run", "pages.yaml")
    assert (first["result"], first["steps"]["reused"]) == (200_000, 0)
    assert files_in(here / "content") == set()
    (of_ledger,) = shared.iterdir()
    assert of_ledger.stat().st_mode & 0o777 == 0o700
    kept = files_in(of_ledger)
    assert kept
    shutil.copytree(here, there, ignore=shutil.ignore_patterns("owner.*"))
    shutil.rmtree(here)
    (place.directory / "tasks.py").write_text(TASKS.replace("len(text)", "2 * len(text)"))
    again = place.json("run", "pages.yaml", "--home", str(there))
    assert (again["result"], again["steps"]["reused"]) == (400_000, 1), "the large value came from the shared directory"
    for command in ("verify", "replay", "gc"):
        assert place(command, "--home", str(there)).code == 0
    assert kept <= files_in(of_ledger)


def test_ledgers_that_share_a_directory_do_not_share_content(place: Place, shared: Path, tmp_path: Path) -> None:
    (place.directory / "tasks.py").write_text(TASKS)
    (place.directory / "pages.yaml").write_text(CONTRACT)
    homes = [tmp_path / name for name in ("one", "two")]
    for home in homes:
        place.json("init", "--home", str(home))
        share(home, shared.as_uri())
        place.json("run", "pages.yaml", "--home", str(home))
    first, second = sorted(shared.iterdir())
    assert files_in(first) & files_in(second)
    run = place.json("list", "--home", str(homes[0]))[0]["run_id"]
    assert place("erase", "--run", run, "--yes", "--home", str(homes[0])).code == 0
    assert place("verify", "--home", str(homes[1])).code == 0
    assert place.json("run", "pages.yaml", "--home", str(homes[1]))["steps"]["reused"] == 2


@pytest.mark.parametrize("url", ["s3://bucket/detent", "file://server/share", "mnt", "file:relative"])
def test_a_url_that_names_no_directory_is_refused(place: Place, url: str) -> None:
    place.json("init")
    share(place.directory / ".detent", url)
    refused = place("run", "pipeline.yaml")
    assert refused.code == 2, refused.err
    assert "content.url must name a directory, as file:///mnt/shared does" in refused.err


def test_a_volume_that_is_not_mounted_is_never_made_up_for(place: Place, tmp_path: Path) -> None:
    place.json("init")
    share(place.directory / ".detent", (tmp_path / "unmounted").as_uri())
    refused = place("run", "pipeline.yaml")
    assert refused.code == 4, refused.err
    assert "mount the volume" in refused.err
    assert not (tmp_path / "unmounted").exists()
