"""Interpreters that were moved, or that need LD_LIBRARY_PATH to start: the sandbox works as with any other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from detent.executor.sandbox import Job, Profile, Sandbox, bare_interpreter, interpreter
from detent.executor.sandbox.interpreter import Interpreter, Needs, _system_directories, foreign_libraries, needs_of
from detent.testing import temporary_home
from tests.hostile.payloads import SMALL
from tests.hostile.rig import CONTAINED, STRONG, run

ROOT = Path(__file__).parents[2]
SEEN = """
import os, ssl, sys, sysconfig, _ctypes

def main():
    told = [sysconfig.get_config_var(name) for name in ("prefix", "LIBDIR", "BINDIR", "INCLUDEPY", "CONFIG_ARGS")]
    return [sys.prefix, sys.executable, sys.path, told, dict(os.environ), sorted(os.listdir("/"))]
"""
CONTRACT = f"name: moved\nresult: {{$from: look}}\nsteps: [{{id: look, run: {{code: {json.dumps(SEEN)}}}}}]\n"


@dataclass(frozen=True, slots=True)
class Moved:
    """A copy of this interpreter that starts only with its library path."""

    executable: Path
    environment: dict[str, str]

    def __call__(
        self, *arguments: str, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.executable), *arguments],
            cwd=cwd,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    """As an environment module would have it, below a path with a space and an umlaut.

    One of the libraries it needs gets another name, of the same length, that is found through LD_LIBRARY_PATH alone.
    """
    place = tmp_path_factory.mktemp("software") / "Größe 2"
    original, libraries = Path(bare_interpreter()), place / "shared"
    needed = (*needs_of(original).names, "libm.so.6")
    name = next(name for name in needed if not name.startswith(("libc.", "libm.", "ld-")) or name == needed[-1])
    of_the_system = [directory / name for directory in _system_directories()]
    library = Interpreter().libraries.get(name) or next(path for path in of_the_system if path.exists())
    other = f"libq{name[4:]}"
    for directory in (place / "bin", place / "lib", libraries):
        directory.mkdir(parents=True)
    executable = place / "bin" / original.name
    executable.write_bytes(original.read_bytes().replace(name.encode(), other.encode()))
    executable.chmod(0o755)
    shutil.copy(library.resolve(), libraries / other)
    standard = Path(os.__file__).parent
    (place / sys.platlibdir / standard.name).symlink_to(standard)
    paths = [str(ROOT / "src"), *(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))]
    environment = {
        "PYTHONPATH": os.pathsep.join(paths),
        "LD_LIBRARY_PATH": f":relative:{libraries}",
        "LC_ALL": "C.UTF-8",
    }
    return Moved(executable, environment)


def test_the_copy_starts_with_its_library_path_alone(moved: Moved) -> None:
    """Else what follows would show nothing."""
    assert moved("-c", "pass").returncode == 0
    refused = moved("-c", "pass", LD_LIBRARY_PATH="")
    assert refused.returncode == 127
    assert "error while loading shared libraries" in refused.stderr


def test_doctor_finds_the_same_primitives_for_an_interpreter_that_needs_its_library_path(moved: Moved) -> None:
    with temporary_home() as home:
        answer = moved("-m", "detent", "doctor", "-o", "json", cwd=home.directory, **home.environment)
        assert answer.returncode == 0, answer.stderr
        found = json.loads(answer.stdout)["sandbox"]
    assert found["profile"] == STRONG.value
    assert [primitive["name"] for primitive in found["primitives"] if not primitive["works"]] == [
        name
        for name, works, _ in Sandbox(required=Profile.NONE, profile=Profile.NONE).capabilities.lines()
        if not works
    ]


@pytest.mark.skipif(not CONTAINED, reason="no profile of this machine has a root of its own")
def test_a_code_step_runs_with_a_moved_interpreter_and_sees_what_it_sees_with_any_other(moved: Moved) -> None:
    """JOB-073: equal jobs see equal paths, whatever the host's."""
    with temporary_home() as home:
        (home.directory / "moved.yaml").write_text(CONTRACT)
        ended = moved("-m", "detent", "run", "moved.yaml", "-o", "json", cwd=home.directory, **home.environment)
        assert ended.returncode == 0, ended.stderr
        seen = json.loads(ended.stdout)["result"]
    with Sandbox() as supervisor:
        execution = run(supervisor, Job(source=SEEN, entry="main"))
        assert seen == json.loads(execution.result or b"")
    assert seen[0] == "/runtime/python"


def test_without_a_root_of_its_own_a_job_runs_with_a_moved_interpreter_too(moved: Moved) -> None:
    script = (
        "from detent.executor.sandbox import *\n"
        "with Sandbox(required=Profile.NONE, profile=Profile.NONE) as supervisor:\n"
        "    source = 'import sys, subprocess\\n'\n"
        '    source += \'subprocess.run([sys.executable, "-S", "-c", "print(6 * 7)"], check=True)\'\n'
        "    execution = supervisor.run(Job(source=source))\n"
        "    print(execution.message, execution.stdout.text)"
    )
    answer = moved("-c", script)
    assert answer.stdout.split() == ["done", "42"], answer.stderr


def test_a_file_tells_which_libraries_it_needs_and_where_it_looks(tmp_path: Path) -> None:
    assert "libc.so.6" in needs_of(Path(bare_interpreter())).names
    (tmp_path / "text.so").write_text("not a library")
    (tmp_path / "empty.so").touch()
    (tmp_path / "cut.so").write_bytes(Path(bare_interpreter()).read_bytes()[:80])
    for name in ("text.so", "empty.so", "cut.so", "missing.so"):
        assert needs_of(tmp_path / name) == Needs()


def test_only_libraries_from_outside_the_system_are_shown(tmp_path: Path) -> None:
    """A directory of LD_LIBRARY_PATH may be a user's home: what the interpreter does not load stays out of sight."""
    (name,) = {name for name in needs_of(Path(bare_interpreter())).names if name.startswith("libc.")}
    (tmp_path / "secret.txt").touch()
    (tmp_path / name).touch()
    files = [Path(bare_interpreter())]
    out_of_reach = Path("/" + 300 * "x")
    assert (
        foreign_libraries(files, system=_system_directories(), search=[out_of_reach, tmp_path])[name].parent == tmp_path
    )
    assert foreign_libraries(files, system=_system_directories(), search=[tmp_path])[name] == tmp_path / name
    assert name not in foreign_libraries(files, system=[*_system_directories(), tmp_path], search=[tmp_path])


def test_a_library_path_is_passed_on_without_parts_that_mean_another_place_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", ":lib:/opt/a::/opt/b")
    assert interpreter.surroundings()["LD_LIBRARY_PATH"] == "/opt/a:/opt/b"
    monkeypatch.setenv("LD_LIBRARY_PATH", ":")
    assert "LD_LIBRARY_PATH" not in interpreter.surroundings()


def test_packages_of_the_operator_have_a_neutral_path(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir(mode=0o755)
    (packages / "ours.py").write_text("VALUE = 7\n")
    with Sandbox(library_paths=(packages,)) as supervisor:
        source = "import ours\ndef main(): return [ours.VALUE, ours.__file__]"
        execution = run(supervisor, Job(source=source, entry="main", limits=SMALL))
        assert json.loads(execution.result or b"") == [7, "/runtime/packages/0/ours.py"]
        assert supervisor.library_paths == (packages,)


def test_packages_installed_beside_the_interpreter_are_masked() -> None:
    found = Interpreter()
    assert all(path.parent == found.standard for path in found.masks)
    assert [path.name for path in found.masks if path.name == "site-packages"] == [
        path.name for path in found.standard.iterdir() if path.name == "site-packages"
    ]


LIMITED = """
import os, sys
from detent.executor.sandbox import linux
CAP_SYS_ADMIN = 21
if sys.argv[1:] != ["again"]:
    linux.prctl(linux.PR_CAPBSET_DROP, CAP_SYS_ADMIN)
    os.execv(sys.executable, [sys.executable, sys.argv[0], "again"])
from detent.executor.sandbox import Job, Sandbox
with Sandbox(warm=1) as supervisor:
    execution = supervisor.run(Job(source="import sys\\ndef main(): return sys.prefix", entry="main"))
    print(supervisor.profile.value, execution.message, execution.result)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no right to give up")
@pytest.mark.skipif(not CONTAINED, reason="no profile of this machine has a root of its own")
def test_root_of_a_container_who_may_not_mount_has_jails_all_the_same(tmp_path: Path) -> None:
    """Namespaces for users give back what is needed, and identities outside stay what they were."""
    script = tmp_path / "limited.py"
    script.write_text(LIMITED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert answer.stdout.split() == [STRONG.value, "done", "b'\"/runtime/python\"'"], answer.stderr
