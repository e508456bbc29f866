"""A home of another user: which one, whose it is, and what to do, whatever command finds it.

The commands run in children for whom permissions hold. Root is above them, so a child of root gives that up before it begins,
and the home is another user's; an ordinary user closes a home of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.owner.home import make_home
from detent.owner.wiring import begin_ledger

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24
CHILD = f"""
import ctypes, os, sys
for capability in ({CAP_DAC_OVERRIDE}, {CAP_DAC_READ_SEARCH}):
    ctypes.CDLL(None).prctl({PR_CAPBSET_DROP}, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-m", "detent", *sys.argv[1:]])
"""
"""What is dropped from the bounding set is not there after the next program begins."""
CONTRACT = "name: demo\nsteps:\n  - {id: one, run: {shell: 'true'}}\n"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A directory with a contract and a home that this user may not use."""
    (tmp_path / "demo.yaml").write_text(CONTRACT)
    home = make_home(tmp_path / ".detent", begin_ledger).path
    if IS_ROOT:
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    home.chmod(0o700 if IS_ROOT else 0o000)
    yield tmp_path
    home.chmod(0o700)


def detent(project: Path, *words: str, home: Path | None = None) -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "DETENT_HOME"}
    environment |= {
        "XDG_STATE_HOME": str(project / "state"),
        "XDG_CONFIG_HOME": str(project / "config"),
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    environment |= {} if home is None else {"DETENT_HOME": str(home)}
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, *words], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


def whose(home: Path) -> str:
    return f"the home {home} belongs to user " if IS_ROOT else f"the home {home} does not let you "


@pytest.mark.parametrize(
    "words", [("list",), ("verify",), ("run", "demo.yaml"), ("list", "--home", ".detent"), ("init",)]
)
def test_a_home_that_may_not_be_read_is_named_with_what_to_do(project: Path, words: tuple[str, ...]) -> None:
    code, out, err = detent(project, *words)
    assert (code, out) == (4, "")
    assert err.startswith(f"error: {whose(project / '.detent')}")
    assert err.splitlines()[0].endswith("read it (STORE_UNAVAILABLE)")
    assert "name another home with --home or DETENT_HOME" in err
    assert "config.toml" not in err


def test_one_that_the_environment_names_is_as_well(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code, _, err = detent(elsewhere, "list", home=project / ".detent")
    assert code == 4
    assert err.startswith(f"error: {whose(project / '.detent')}")


def test_one_whose_settings_alone_may_not_be_read_is_as_well(project: Path) -> None:
    (project / ".detent").chmod(0o755)
    (project / ".detent" / "config.toml").chmod(0o600 if IS_ROOT else 0o000)
    code, _, err = detent(project, "list")
    assert code == 4
    assert err.startswith(f"error: {whose(project / '.detent')}")


@pytest.mark.parametrize("words", [("run", "demo.yaml"), ("init",), ("gc",)])
def test_one_that_may_be_read_and_not_written_is_named_before_work_begins(
    project: Path, words: tuple[str, ...]
) -> None:
    (project / ".detent").chmod(0o755 if IS_ROOT else 0o500)
    settings = project / "config" / "detent" / "config.toml"
    settings.parent.mkdir(parents=True)
    # Else another user's home would be refused whatever its mode.
    settings.write_text(f'safe_directories = ["{project}"]\n')
    code, _, err = detent(project, *words)
    assert code == 4
    assert err.startswith(f"error: {whose(project / '.detent')}")
    assert err.splitlines()[0].endswith("write to it (STORE_UNAVAILABLE)")


def test_a_plan_needs_no_home(project: Path) -> None:
    code, out, err = detent(project, "plan", "demo.yaml")
    assert code == 0
    assert "one" in out
    assert err.startswith(f"cannot tell what would be reused: {whose(project / '.detent')}")


def test_what_lies_in_a_closed_directory_is_not_called_a_home(project: Path) -> None:
    code, _, err = detent(project, "list", "--home", ".detent/inner")
    assert code == 2
    assert err.startswith("error: no home in .detent/inner (HOME_INVALID)")
