"""Whose a module is: the project's, a distribution's in some version, or Python's."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from detent.jobs import work_key
from detent.reuse.ingredients import CodeReader, env_version, platform_name, python_version
from detent.reuse.ingredients.job import ENV_VERSION_BYTES_MAX
from tests.reuse.ingredients.projects import edit, write

STEP = "import {0}\ndef step(x):\n    return {0}.f(x)\n"


def install(site: Path, name: str, version: str, *, record: str = "", requires: tuple[str, ...] = ()) -> None:
    """A distribution as an installer leaves it, without its code."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text(record)
    (info / "METADATA").write_text(
        "".join(f"Requires-Dist: {each}\n" for each in requires) + "\nRequires-Dist: pytest\n"
    )


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "lib" / "site-packages"


def read(tmp_path: Path, site: Path, module: str) -> tuple[bytes | None, dict[str, str]]:
    write(tmp_path / "base", {"pipeline.py": STEP.format(module)})
    code = CodeReader(tmp_path / "base", path=(str(site),)).digest("pipeline:step")
    return code.digest, dict(code.distributions)


def test_installed_code_counts_by_distribution_and_version(tmp_path: Path, site: Path) -> None:
    """X-176: third-party code by distribution name and version"""
    install(site, "numpy", "2.1.0")
    write(site, {"numpy/__init__.py": "def f(x):\n    return 1\n"})
    first = read(tmp_path, site, "numpy")
    assert first[1] == {"numpy": "2.1.0"}
    edit(site, "numpy/__init__.py", "return 1", "return 2")
    assert read(tmp_path, site, "numpy") == first
    (site / "numpy-2.1.0.dist-info").rename(site / "numpy-2.2.0.dist-info")
    assert read(tmp_path, site, "numpy") == (first[0], {"numpy": "2.2.0"})
    assert env_version({"numpy": "2.1.0"}) != env_version({"numpy": "2.2.0"})


def test_a_distribution_of_another_name_is_found_by_what_it_brought(tmp_path: Path, site: Path) -> None:
    install(site, "PyYAML", "6.0.3", record="yaml/__init__.py,,\n_yaml.cpython-311-x86_64-linux-gnu.so,,\n")
    install(site, "other", "1.0", record="other.py,,\n")
    write(site, {"yaml/__init__.py": "", "other.py": ""})
    assert read(tmp_path, site, "yaml")[1] == {"PyYAML": "6.0.3"}


def test_what_a_distribution_requires_counts_with_it(tmp_path: Path, site: Path) -> None:
    install(site, "pandas", "2.0", requires=("numpy>=1", 'pytest ; extra == "test"', "absent"))
    install(site, "numpy", "1.26", requires=("pandas",))
    install(site, "pytest", "9.0")
    write(site, {"pandas/__init__.py": ""})
    assert read(tmp_path, site, "pandas")[1] == {"numpy": "1.26", "pandas": "2.0"}


def test_a_namespace_counts_by_every_distribution_in_it(tmp_path: Path, site: Path) -> None:
    install(site, "google_a", "1.0", record="google/a/__init__.py,,\n")
    install(site, "google_b", "2.0", record="google/b/__init__.py,,\n")
    write(site, {"google/a/__init__.py": "", "google/b/__init__.py": ""})
    assert read(tmp_path, site, "google.a")[1] == {"google_a": "1.0", "google_b": "2.0"}


def test_a_loose_file_among_distributions_counts_as_the_projects(tmp_path: Path, site: Path) -> None:
    site.mkdir(parents=True)
    write(site, {"loose.py": "def f(x):\n    return 1\n"})
    first, distributions = read(tmp_path, site, "loose")
    assert distributions == {}
    edit(site, "loose.py", "return 1", "return 2")
    assert read(tmp_path, site, "loose")[0] not in {first, None}


def test_an_editable_installation_counts_as_the_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-176: both forms, a directory of the path and a table of modules"""
    write(tmp_path / "src", {"mine.py": "def f(x):\n    return 1\n", "pack/__init__.py": "def f(x):\n    return 1\n"})
    table = {"pack": str(tmp_path / "src" / "pack")}
    monkeypatch.setitem(sys.modules, "__editable___pack_1_0_finder", SimpleNamespace(MAPPING=table))
    for module, file, path in (("mine", "mine.py", tmp_path / "src"), ("pack", "pack/__init__.py", tmp_path / "none")):
        first = read(tmp_path, path, module)[0]
        edit(tmp_path / "src", file, "return 1", "return 2")
        assert read(tmp_path, path, module)[0] not in {first, None}


def test_a_project_may_be_spread_over_directories_without_init(tmp_path: Path, site: Path) -> None:
    write(tmp_path / "base", {"space/a.py": "def f():\n    return 1\n"})
    write(tmp_path / "more", {"space/b.py": "def f():\n    return 1\n"})
    write(tmp_path / "base", {"pipeline.py": "from space import a, b\ndef step():\n    return a.f() + b.f()\n"})
    code = CodeReader(tmp_path / "base", path=(str(tmp_path / "more"),)).digest("pipeline:step")
    assert code.digest is not None
    assert list(code.parts) == ["pipeline:step", "space.a:f", "space.b:f"]


def test_compiled_code_of_the_project_cannot_be_told(tmp_path: Path, site: Path) -> None:
    """X-176"""
    from importlib.machinery import EXTENSION_SUFFIXES

    write(tmp_path / "base", {f"fast{EXTENSION_SUFFIXES[0]}": ""})
    assert read(tmp_path, site, "fast")[0] is None


def test_our_own_package_counts_by_its_version(tmp_path: Path) -> None:
    from detent import __version__

    write(tmp_path, {"pipeline.py": "import detent\ndef step():\n    return detent.context()\n"})
    code = CodeReader(tmp_path).digest("pipeline:step")
    assert code.digest is not None
    assert code.distributions == {"detent": __version__}


def test_env_version_names_interpreter_machine_and_distributions_and_stays_short() -> None:
    """JOB-024, X-176: env_version = interpreter + the distributions actually reached"""
    assert python_version().startswith(f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}")
    assert env_version({}) == f"python-{python_version()}-{platform_name()}"
    assert env_version({"b": "2", "a": "1"}) == f"{env_version({})}+a-1,b-2"
    many = {f"package-{index}": "1.0" for index in range(100)}
    assert len(env_version(many).encode()) <= ENV_VERSION_BYTES_MAX
    assert env_version(many) != env_version({**many, "package-99": "1.1"})
    work_key("task", bytes(32), f"sha256:{'0' * 64}", env_version(many))
