"""`detent run`: exit codes, what stands on which stream, signals, and the same line typed again."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from detent.cli.app import run
from detent.cli.shell import interrupts
from detent.inspect.replay import replay_home
from detent.store.sqlite import SqliteStore
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_home
from tests.runs.rig import WAIT_SECONDS, environment, eventually

__all__ = ["detent_home"]

STEPS = """
import pathlib, time
def one(): return 1
def double(x): return 2 * x
def boom(): raise ValueError("boom")
def stuck():
    here = pathlib.Path(__file__).parent
    if (here / "go").exists(): return "went on"
    (here / "began").write_text("yes")
    time.sleep(600)
"""
CHAIN = """
name: chain
params: {x: {type: integer, default: 3}}
steps:
  - {id: a, run: {python: "cli_steps:double", with: {x: {$param: x}}}}
  - {id: b, run: {python: "cli_steps:double", with: {x: {$from: a}}}}
result: {$from: b}
"""
STUCK = 'name: stuck\nsteps: [{id: a, run: {python: "cli_steps:stuck"}}]\nresult: {$from: a}\n'


class Project:
    """A directory with steps, run with real workers."""

    def __init__(self, home: TemporaryHome, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys
        (home.directory / "cli_steps.py").write_text(STEPS)

    def write(self, text: str, name: str = "flow.yaml") -> str:
        (self.home.directory / name).write_text(dedent(text))
        return name

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command line here."""
        self._capsys.readouterr()
        code = run(arguments)
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Run a command line in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "detent", *arguments],
            cwd=self.home.directory,
            env=environment(self.home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def began(self, process: subprocess.Popen[str]) -> None:
        """Wait until the step that is stuck has begun."""
        marker = self.home.directory / "began"
        try:
            eventually(lambda: marker.exists() or process.poll() is not None, "it did not begin")
            assert marker.exists(), "it has ended"
        except AssertionError as exc:
            process.kill()
            raise AssertionError(f"{exc}: {process.communicate()}") from None

    def runs(self) -> list[tuple[str, str]]:
        """Runs by id with their status, oldest first."""
        reader = SqliteStore.open_reader(self.home.home.ledger_file)
        try:
            return [(row.run_id, row.status) for row in reader.runs()][::-1]
        finally:
            reader.close()

    def states(self) -> list[str]:
        """States of all jobs."""
        reader = SqliteStore.open_reader(self.home.home.ledger_file)
        try:
            return sorted(row.state for row in reader.jobs())
        finally:
            reader.close()


@pytest.fixture
def project(
    detent_home: TemporaryHome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    monkeypatch.chdir(detent_home.directory)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield Project(detent_home, capsys)
    for name, module in list(sys.modules.items()):
        if str(detent_home.directory) in str(getattr(module, "__file__", "")):
            del sys.modules[name]  # Another test writes another module of that name.
    report = detent_home.verify()
    assert report.ok, report.findings
    assert replay_home(detent_home.home).ok


def test_a_pipeline_runs_to_its_end_and_again_from_what_is_there(project: Project) -> None:
    """X-174: exit 0; the second time everything is cached."""
    file = project.write(CHAIN)
    code, out, _ = project("run", file, "-w", "2", "-o", "json")
    assert code == 0
    first = json.loads(out)
    assert (first["status"], first["result"]) == ("succeeded", 12)
    code, out, _ = project("run", file, "-w", "1", "-o", "json")
    second = json.loads(out)
    assert (code, second["status"], second["result"]) == (0, "succeeded", 12)
    assert {step["state"] for step in second["step_list"]} == {"reused"}
    assert second["run_id"] != first["run_id"]
    code, out, _ = project("run", file, "-p", "x=10", "-q", "-w", "1")
    assert (code, "40" in out) == (0, True)


def test_a_contract_from_standard_input_lies_where_you_are(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its functions are found there, and what a file of the same steps has done is not done again."""
    project.write(CHAIN)
    project("run", "flow.yaml", "-q")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CHAIN.encode())))
    document = json.loads(project("run", "-", "-o", "json")[1])
    assert (document["status"], document["result"], document["steps"]["reused"]) == ("succeeded", 12, 2)


def test_progress_goes_to_stderr_and_the_summary_to_stdout(project: Project) -> None:
    code, out, err = project("run", project.write(CHAIN), "-w", "1")
    assert code == 0
    (run_id, _) = project.runs()[0]
    assert run_id in out
    assert err
    code, _, err = project("run", "flow.yaml", "-w", "1", "-q")
    assert (code, err) == (0, "")


def test_a_failed_run_exits_with_1_and_says_why(project: Project) -> None:
    file = project.write('name: bad\nsteps: [{id: a, run: {python: "cli_steps:boom"}}]')
    code, out, _ = project("run", file, "-w", "1", "-o", "json")
    document = json.loads(out)
    assert (code, document["status"]) == (1, "failed")
    assert "boom" in json.dumps(document["failures"])
    assert project.runs()[0][1] == "failed"
    code, out, _ = project("run", file, "-w", "1", "--reuse-failed", "-o", "json")
    assert (code, json.loads(out)["status"]) == (1, "failed")
    assert project.states() == ["FAILED"]


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (["run", "nothing.yaml"], CHAIN, "nothing.yaml"),
        (["run", "flow.yaml"], "name: n\nsteps: [{id: a}]", "has no run"),
        (["run", "flow.yaml", "-p", "y=1"], CHAIN, "'y'"),
        (["run", "flow.yaml", "-p", "x=text"], CHAIN, "x"),
        (["run", "flow.yaml", "-w", "0"], CHAIN, "0"),
        (["run", "cli_steps.py"], CHAIN, "has no flow"),
        (["run", "no_such.deep:flow"], CHAIN, "no module"),
    ],
    ids=["no file", "invalid", "unknown parameter", "wrong type", "no workers", "no flow", "no module"],
)
def test_bad_usage_exits_with_2_and_begins_nothing(
    project: Project, arguments: list[str], text: str, message: str
) -> None:
    project.write(text)
    code, _, err = project(*arguments)
    assert code == 2
    assert message in err
    assert project.runs() == []


def test_a_flow_in_a_python_file_is_run_with_its_arguments(project: Project) -> None:
    project.write(
        """
        import detent
        import cli_steps

        @detent.flow
        def twice(x: int):
            return detent.task(cli_steps.double)(x)
        """,
        "cli_flow.py",
    )
    code, out, _ = project("run", "cli_flow.py:twice", "-p", "x=21", "-w", "1", "-o", "json")
    assert code == 0, out
    assert json.loads(out)["result"] == 42


def test_force_and_new_and_salt(project: Project) -> None:
    """Issue 6.3, X-174."""
    file = project.write(CHAIN)
    states = []
    for options in ([], ["--force"], ["--salt", "s"], ["--new", "--max-parallel", "1"]):
        code, out, _ = project("run", file, "-w", "1", "-o", "json", *options)
        assert code == 0
        states.append({step["state"] for step in json.loads(out)["step_list"]})
    assert states == [{"succeeded"}, {"succeeded"}, {"succeeded"}, {"reused"}]


class Handle:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def cancel(self, reason: str) -> None:
        self.asked.append(reason)

    def stop(self) -> None:
        self.asked.append("stop")


@pytest.mark.parametrize(
    ("signals", "asked"),
    [
        ([signal.SIGINT], ["interrupted"]),
        ([signal.SIGINT, signal.SIGINT], ["interrupted", "stop"]),
        ([signal.SIGTERM], ["stop"]),
        ([signal.SIGINT, signal.SIGTERM], ["interrupted", "stop"]),
    ],
)
def test_once_cancels_and_twice_leaves_it_as_it_stands(signals: list[signal.Signals], asked: list[str]) -> None:
    """Issue 6.5; and afterwards signals mean what they meant before."""
    before = signal.getsignal(signal.SIGINT)
    handle: Any = Handle()
    with interrupts(handle):
        for number in signals:
            os.kill(os.getpid(), number)
    assert handle.asked == asked
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_cancels_the_run(project: Project) -> None:
    """Issue 6.5: exit 130; the run has ended as cancelled and nothing is left behind."""
    process = project.start("run", project.write(STUCK), "-w", "1")
    project.began(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert [status for _, status in project.runs()] == ["cancelled"]
    assert project.states() == ["CANCELED"]
    assert project.runs()[0][0] in out


def test_sigterm_leaves_the_run_to_be_resumed(project: Project) -> None:
    """X-174, X-163: what ran is given up, and the same line goes on with it."""
    file = project.write(STUCK)
    process = project.start("run", file, "-w", "1")
    project.began(process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130, err
    ((run_id, status),) = project.runs()
    assert status == "running"
    assert project.states() == ["QUEUED"]
    (project.home.directory / "go").touch()
    code, out, _ = project("run", file, "-w", "1", "-o", "json")
    document = json.loads(out)
    assert (code, document["run_id"], document["result"]) == (0, run_id, "went on")


def test_kill_9_of_the_command_and_the_same_line_again(project: Project) -> None:
    """X-067, X-163, X-174, PIPE-123: real workers, no lease to wait for, and no process left over."""
    file = project.write(STUCK)
    process = project.start("run", file, "-w", "1")
    project.began(process)
    process.kill()
    process.communicate(timeout=WAIT_SECONDS)
    ((run_id, _),) = project.runs()
    assert project.states() == ["RUNNING"]
    (project.home.directory / "go").touch()
    code, out, _ = project("run", file, "-w", "1", "-o", "json")
    document = json.loads(out)
    assert (code, document["run_id"], document["result"]) == (0, run_id, "went on")
    assert project.states() == ["SUCCEEDED"]


def test_two_commands_on_one_file_at_once_are_two_runs_and_one_execution(project: Project) -> None:
    """X-172, X-186."""
    file = project.write(STUCK.replace("cli_steps:stuck", "cli_steps:wait"))
    (project.home.directory / "cli_steps.py").write_text(
        STEPS.replace("def stuck():", "def wait():").replace(
            "time.sleep(600)", "\n    while not (here / 'go').exists(): time.sleep(0.01)\n    return 'both'"
        )
    )
    first = project.start("run", file, "-w", "1", "-o", "json")
    project.began(first)
    second = project.start("run", file, "-w", "1", "-o", "json")
    eventually(lambda: len(project.runs()) == 2, "the second run did not begin")
    (project.home.directory / "go").touch()
    documents = [json.loads(one.communicate(timeout=WAIT_SECONDS)[0]) for one in (first, second)]
    assert [document["result"] for document in documents] == ["both", "both"]
    assert [status for _, status in project.runs()] == ["completed", "completed"]
    assert project.states() == ["SUCCEEDED"]


def test_a_home_is_made_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DETENT_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "flow.yaml").write_text('name: n\nsteps: [{id: a, run: {shell: "echo here"}}]')
    assert run(["run", "flow.yaml", "-q", "-w", "1"]) == 0
    assert capsys.readouterr().out
    assert (tmp_path / ".detent" / "ledger.db").is_file()
    assert run(["verify"]) == 0


@pytest.mark.parametrize("form", ["yaml", "python", "again"])
def test_a_run_loads_no_models_and_nothing_that_only_others_need(project: Project, form: str) -> None:
    """Loading takes most of the time of a small run."""
    file = str(project.write(CHAIN))
    if form == "python":
        flow = project.home.directory / "steps_of_a_flow.py"
        flow.write_text("import detent\n@detent.task\ndef one(): return 1\n@detent.flow\ndef ones(): return one()\n")
        file = f"{flow}:ones"
    if form == "again":
        assert project("run", file, "-q", "-w", "1")[0] == 0
    script = (
        "import sys\nfrom detent.cli.app import run\ncode = run(sys.argv[1:])\n"
        "heavy = {'pydantic', 'importlib.metadata', 'email', 'rich', 'asyncio', 'zoneinfo', 'multiprocessing', 'obstore',\n"
        "    'detent.workflow.models', 'detent.executor.sandbox', 'detent.inspect.explain_job'}\n"
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else code)"
    )
    # Left-overs of sandboxes are swept, which loads the sandbox; here are none.
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "DETENT_HOME": str(project.home.path),
        "TMPDIR": str(project.home.directory),
    }
    line = [sys.executable, "-c", script, "run", file, "-q", "-w", "1"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
