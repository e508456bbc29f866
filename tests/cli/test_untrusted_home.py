"""A home that another user made, and links planted in one: refused before anything in it is believed or written (X-195).

As root the home is given to another user. Any other user cannot give files away; there the child says that it is another user
than the one whose files these are, which is what the decision rests on. What needs files of two users runs as root only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from detent.owner.home import make_home
from detent.owner.wiring import begin_ledger

IS_ROOT = os.geteuid() == 0
OTHER = 65534 if IS_ROOT else os.geteuid()
CHILD = f"""
import os, sys
if {not IS_ROOT}:
    os.geteuid = lambda: {os.geteuid() + 1}
from detent.cli import main
sys.argv[0] = "detent"
main()
"""
two_users = pytest.mark.skipif(not IS_ROOT, reason="needs files of two users, which only root can make")
CONTRACT = "name: demo\nsteps:\n  - {id: one, run: {shell: 'true'}}\n"


def give_away(*tops: Path) -> None:
    for top in tops if IS_ROOT else ():
        for path in (top, *top.rglob("*")):
            os.chown(path, OTHER, OTHER, follow_symlinks=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a contract and a home."""
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "demo.yaml").write_text(CONTRACT)
    make_home(directory / ".detent", begin_ledger)
    return directory


def detent(cwd: Path, *words: str, foreign: bool = True, **variables: str) -> tuple[int, str, str]:
    top = next(path for path in (cwd, *cwd.parents) if path.name == "project").parent
    environment = {name: value for name, value in os.environ.items() if name != "DETENT_HOME"}
    environment |= {"XDG_STATE_HOME": str(top / "state"), "XDG_CONFIG_HOME": str(top / "config"), **variables}
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
    line = [sys.executable, *(("-c", CHILD) if foreign else ("-m", "detent")), *words]
    ended = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def trust(project: Path, *paths: Path) -> Path:
    """List directories in the settings of the user who types."""
    settings = project.parent / "config" / "detent" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"safe_directories = {[str(path) for path in paths]}\n")
    settings.chmod(0o600)
    return settings


@pytest.mark.parametrize(
    "words", [("list",), ("verify",), ("doctor",), ("run", "demo.yaml"), ("list", "--home", ".detent"), ("init",)]
)
def test_a_home_of_another_user_is_refused_with_the_way_out(project: Path, words: tuple[str, ...]) -> None:
    """X-195: its settings could say `sandbox.required = "none"`."""
    home = project / ".detent"
    give_away(home)
    before = {path: path.lstat().st_mtime_ns for path in home.rglob("*")}
    code, out, err = detent(project, *words)
    assert (code, out) == (3, "")
    assert err.startswith(f"error: the home {home} belongs to user ")
    assert "(HOME_UNTRUSTED)" in err
    assert f'{project.parent}/config/detent/config.toml: safe_directories = ["{home}"]' in err
    assert {path: path.lstat().st_mtime_ns for path in home.rglob("*")} == before


def test_a_home_of_another_user_above_is_refused_as_well(project: Path) -> None:
    """X-195, the planted home: work below a directory in which another user has put one."""
    below = project / "deep" / "er"
    below.mkdir(parents=True)
    give_away(project / ".detent")
    code, _, err = detent(below, "list")
    assert (code, "(HOME_UNTRUSTED)" in err) == (3, True)


@pytest.mark.skipif(
    not IS_ROOT, reason="needs a home and its directory to belong to two users, which only root can make"
)
def test_an_own_home_in_a_directory_of_another_user_is_refused_unless_it_is_named(project: Path) -> None:
    """X-195: the other could put another home there."""
    os.chown(project, OTHER, OTHER)
    code, _, err = detent(project, "list")
    assert code == 3
    assert err.startswith(f"error: the home {project / '.detent'} lies in a directory of user ")
    assert detent(project, "list", "--home", ".detent")[0] == 0
    trust(project, project)
    assert detent(project, "list")[0] == 0


@two_users
def test_a_file_of_another_user_in_an_own_home_is_refused(project: Path) -> None:
    """X-195: settings that another user wrote are not the owner's, whosever directory they lie in."""
    os.chown(project / ".detent" / "config.toml", OTHER, OTHER)
    code, _, err = detent(project, "list")
    assert code == 3
    assert err.startswith(f"error: {project / '.detent' / 'config.toml'} belongs to user ")


def test_no_home_is_made_in_a_directory_of_another_user(project: Path) -> None:
    """X-195: it would be refused the next time."""
    shutil.rmtree(project / ".detent")
    give_away(project)
    for words in (("run", "demo.yaml"), ("init",)):
        code, _, err = detent(project, *words)
        assert (code, "lies in a directory of user " in err) == (3, True)
    assert not (project / ".detent").exists()


@two_users
@pytest.mark.parametrize("listed", [".", ".detent"])
def test_a_listed_home_of_another_user_is_used(project: Path, listed: str) -> None:
    """X-195: the way out, for a volume or for sudo; an entry stands for all that lies below it."""
    give_away(project)
    trust(project, project / listed)
    code, _, err = detent(project, "run", "demo.yaml")
    assert code == 0, err
    code, out, _ = detent(project, "doctor")
    assert "the home is not yours: user " in out


@two_users
def test_only_settings_of_this_user_list_exceptions(project: Path) -> None:
    """X-195: a file that others may write to, or that is not understood, opens no door."""
    give_away(project / ".detent")
    settings = trust(project, project)
    settings.chmod(0o666)
    code, _, err = detent(project, "list")
    assert (code, f"{settings} lists homes to trust" in err) == (3, True)
    for text, fault in (
        ('safe_directories = ["project"]', "must be a list of absolute paths"),
        ("safe_homes = []", "unknown key safe_homes"),
        ("safe_directories = [", "cannot be read"),
        (f'safe_directories = ["{project}-two", "{project}/.detent/keys"]', "HOME_UNTRUSTED"),
    ):
        settings.chmod(0o600)
        settings.write_text(text)
        code, _, err = detent(project, "list")
        assert code in {2, 3}
        assert fault in err


@two_users
def test_a_state_directory_of_another_user_is_refused(project: Path) -> None:
    """X-195: tree heads that another user can take away protect nothing; sudo may leave HOME as it was."""
    heads = project.parent / "state" / "detent" / "heads"
    heads.mkdir(parents=True)
    give_away(project, heads.parent.parent)
    trust(project, project)
    code, _, err = detent(project, "run", "demo.yaml")
    assert code == 3
    assert err.startswith(f"error: the state directory {heads} belongs to user ")


PLANTED = (
    "owner.lock",
    "owner.sock",
    "config.toml",
    "ledger.db",
    "ledger.db-wal",
    "ledger.db-shm",
    "keys",
    "content",
    "runs",
)


@pytest.mark.parametrize("name", [*PLANTED, "live", "resources", "keys/root-x.key", "content/ab", "runs/x.lock"])
def test_a_link_planted_in_a_home_is_named_and_not_followed(project: Path, name: str) -> None:
    """X-195: `owner.lock` once truncated the file that it led to."""
    victim = project.parent / "victim"
    link = project / ".detent" / name
    if link.exists():
        link.rename(victim)
    else:
        link.parent.mkdir(exist_ok=True)
        victim.write_text("precious")
    before = victim.read_bytes() if victim.is_file() else sorted(victim.iterdir())
    link.symlink_to(victim)
    code, _, err = detent(project, "run", "demo.yaml", foreign=False)
    assert code == 3
    assert err.startswith(f"error: {link} is a symbolic link")
    assert "(HOME_UNTRUSTED)" in err
    assert (victim.read_bytes() if victim.is_file() else sorted(victim.iterdir())) == before
