"""Versions of installed distributions, told as `importlib.metadata` tells them and without loading it."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from detent.owner.home import installed_version, project_locks


@pytest.fixture(autouse=True)
def forgotten() -> None:
    installed_version.cache_clear()


def test_every_installed_distribution_has_the_version_that_the_standard_library_tells() -> None:
    names = {str(one.metadata["Name"]) for one in metadata.distributions()}
    assert {"apsw", "libipld", "PyNaCl"} <= names
    assert {name: installed_version(name) for name in names} == {name: metadata.version(name) for name in names}


@pytest.mark.parametrize(
    ("entry", "file", "text"),
    [
        ("Some_Thing-1.5.dist-info", "METADATA", "Name: some.thing\nVersion: 1.5-1\r\n\nVersion: 9"),
        ("some.thing-1.5.egg-info", "PKG-INFO", "Name: some.thing\nVersion: 1.5-1\n"),
    ],
)
def test_what_counts_is_the_description_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, file: str, text: str
) -> None:
    (tmp_path / entry).mkdir()
    (tmp_path / entry / file).write_bytes(text.encode())
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed_version("some-thing") == "1.5-1" == metadata.version("some-thing")


def test_the_first_one_on_the_path_is_the_one_that_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, version in enumerate(("1.0", "2.0")):
        info = tmp_path / str(number) / f"thing-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: thing\nVersion: {version}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "no"), str(tmp_path / "1"), str(tmp_path / "0")])
    assert installed_version("thing") == "2.0"


def test_what_is_not_installed_is_an_error_as_ever() -> None:
    with pytest.raises(metadata.PackageNotFoundError):
        installed_version("no-such-distribution")


def test_nothing_is_loaded_for_it() -> None:
    script = (
        f"import sys; sys.path[:] = {sys.path!r}\nfrom pathlib import Path\nfrom detent.owner.home import Home, environment_policy\n"
        "environment_policy(Home(Path('.detent')))\nsys.exit('importlib.metadata' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_lock_of_a_project_is_found_from_a_directory_inside_it(tmp_path: Path) -> None:
    """PIPE-032: a lock further up, which belongs to another project, is not this one's."""
    project, inside = tmp_path / "project", tmp_path / "project" / "pipelines" / "daily"
    inside.mkdir(parents=True)
    (tmp_path / "uv.lock").write_text("another project's")
    assert project_locks(inside) == {}
    (project / "poetry.lock").write_text("no project without a mark")
    assert project_locks(inside) == {}
    (project / "pyproject.toml").write_text("")
    assert list(project_locks(inside)) == ["poetry.lock"]
    (inside / "pylock.toml").write_text("nearer")
    assert list(project_locks(inside)) == ["pylock.toml"]
    (inside / "uv.lock").mkdir()
    assert list(project_locks(inside)) == ["pylock.toml"]
