"""Where workers will be needed, the process that makes them is started before the engine is loaded, and just once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from detent.executor.plain.host_process import HostProcess
from detent.runs.runtime import Runtime
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_home

__all__ = ["detent_home"]

WATCHED = """
import subprocess, sys
real = subprocess.Popen.__init__
def start(self, command, *args, **options):
    print("started", "detent.kernel" in sys.modules, "detent.runs.runtime" in sys.modules, flush=True)
    real(self, command, *args, **options)
subprocess.Popen.__init__ = start
"""
EARLY, LATE = "started False False", "started True True"
RUN = "from detent.cli.app import run; sys.exit(run(['run', 'one.yaml', '-q', *sys.argv[1:]]))"
MAP = "from detent.cli.app import run; sys.exit(run(['map', '--items', 'rows.jsonl', '--compute', 'math:sqrt', '--commit', 'jsonl:out', '-q']))"
SDK_RUN = "import detent; detent.run('one.yaml', force=True)"
SDK_MAP = "import detent, math; list(detent.ordered_map([1, 4], math.sqrt))"
SDK_CLIENT = (
    "import detent, math; client = detent.Client(workers=1); client.submit(math.sqrt, 4).result(); client.close()"
)
SDK_READER = "import detent; detent.Client().close()"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "one.yaml").write_text(
        "name: one\nsteps:\n  - id: a\n    run: {python: 'operator:add', args: [1, 2]}\n"
    )
    (tmp_path / "rows.jsonl").write_text("1\n4\n")
    return tmp_path


def starts(project: Path, script: str, *arguments: str) -> list[str]:
    """What was loaded whenever a process was started."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_STATE_HOME": str(project / "state")}
    command = [sys.executable, "-c", WATCHED + script, *arguments]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("started")]


def test_detent_run_starts_workers_before_the_engine_in_a_new_home(project: Path) -> None:
    assert starts(project, RUN) == [EARLY]
    assert starts(project, RUN) == [], "everything is reused"
    assert starts(project, RUN, "--force") == [EARLY]


def test_detent_run_starts_them_when_something_has_to_run_where_results_may_be_reused(project: Path) -> None:
    starts(project, RUN)
    (project / "one.yaml").write_text((project / "one.yaml").read_text().replace("[1, 2]", "[1, 3]"))
    assert starts(project, RUN) == [LATE]


@pytest.mark.parametrize("script", [MAP, SDK_RUN, SDK_MAP, SDK_CLIENT])
def test_work_that_is_always_done_has_its_workers_started_first(project: Path, script: str) -> None:
    assert starts(project, script) == [EARLY]


def test_a_client_that_only_reads_starts_no_process(project: Path) -> None:
    assert starts(project, SDK_READER) == []


def test_a_wrong_contract_leaves_no_process_behind(project: Path) -> None:
    (project / "one.yaml").write_text("name: one\nsteps: 3\n")
    script = RUN.replace("sys.exit(", "code = ").removesuffix(")")
    script += "; import os; from pathlib import Path"
    script += "; print(Path(f'/proc/self/task/{os.getpid()}/children').read_text().split(), code)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WATCHED + script]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.splitlines()[0] == EARLY
    assert done.stdout.splitlines()[-1] == "[] 2"
    assert not (project / ".detent").exists()


def test_a_host_that_was_not_needed_ends_with_the_runtime(detent_home: TemporaryHome) -> None:
    host = HostProcess()
    with Runtime(detent_home.home, workers=1, idle=True, host=host):
        assert host.process.poll() is None
    assert host.process.poll() is not None
