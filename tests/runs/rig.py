"""Runs of small projects: contracts as text, steps as a Python file, work done in this process unless a test asks otherwise."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from detent.canon import decode
from detent.contract import Contract, load
from detent.contract.params import bind
from detent.inspect.replay import replay_home
from detent.jobs.work import WorkReport
from detent.kernel import Job
from detent.reuse.work_keys import Options
from detent.runs.handle import RunHandle, RunResult
from detent.runs.record.inputs import RunInputs
from detent.runs.runtime import Runtime
from detent.store.api import JobRow, RunRow
from detent.store.sqlite import SqliteStore
from detent.testing import FakeClock, InlineLane, TemporaryHome

WAIT_SECONDS = 60.0
STEPS = '''
import json, pathlib
from detent.testing import Fails, Lost

def one(): return 1
def double(x): return 2 * x
def add(a, b): return a + b
def total(xs): return sum(xs)
def numbers(n): return list(range(n))
def same(value): return value
def boom(**_): raise ValueError("boom")
def nothing(): return None
def odd(x):
    if x % 2: raise ValueError(f"{x} is odd")
    return x
def fails(category, code="FAILED"): raise Fails(category, code)
def until(path, times, category="USER_CODE_ERROR"):
    """Fails so many times, then tells how often it was tried."""
    file = pathlib.Path(path)
    tried = int(file.read_text()) + 1 if file.exists() else 1
    file.write_text(str(tried))
    if tried <= times: raise Fails(category, "NOT_YET", f"try {tried}")
    return tried
def lost(path, times):
    file = pathlib.Path(path)
    tried = int(file.read_text()) + 1 if file.exists() else 1
    file.write_text(str(tried))
    if tried <= times: raise Lost
    return tried
'''


class Rig:
    """One project on one home."""

    def __init__(self, home: TemporaryHome) -> None:
        self.home = home
        self.project = home.directory / "project"
        self.project.mkdir()
        self.write(STEPS)
        self.lane = self.new_lane()
        self.checked = True
        """Whether the history is looked at when the test is over."""
        self._works: list[Runtime] = []
        self.children: list[Child] = []

    @property
    def clock(self) -> FakeClock:
        assert isinstance(self.home.parts.clock, FakeClock)
        return self.home.parts.clock

    def write(self, source: str, name: str = "steps.py") -> Path:
        """Write a file of the project; it differs from what stood there in more than its time."""
        path = self.project / name
        path.write_text(dedent(source))
        return path

    def contract(self, text: str) -> Contract:
        """A contract of this project."""
        return load(dedent(text).encode(), name="flow.yaml", base=str(self.project))

    def new_lane(self, **options: Any) -> InlineLane:
        """An executor that calls functions right here; the one that the next work gets."""
        self.lane = InlineLane(
            content=self.home.path / "content", clock_ms=self.home.parts.clock.wall_ms, **{"slots": 64, **options}
        )
        return self.lane

    def work(self, **options: Any) -> Runtime:
        """Open the home for work, by default without any processes; closed after the test."""
        lane = self.lane
        options.setdefault("executors", lane.executors)
        options.setdefault("parts", self.home.parts)
        work = Runtime(self.home.home, workers=options.pop("workers", 2), **options)
        self._works.append(work)
        return work

    def pool(self, **options: Any) -> Runtime:
        """Open the home for work with real processes."""
        return self.work(executors=None, **options)

    def handle(
        self,
        work: Runtime,
        text: str | Contract,
        params: Mapping[str, Any] | None = None,
        *,
        new: bool = False,
        **options: Any,
    ) -> RunHandle:
        """A run that has not begun."""
        contract = self.contract(text) if isinstance(text, str) else text
        inputs = RunInputs(contract, bind(contract, dict(params or {})))
        return RunHandle(work, inputs, options=Options(**options), new=new)

    def run(self, text: str | Contract, params: Mapping[str, Any] | None = None, **options: Any) -> RunResult:
        """Run a contract to its end, with workers of its own."""
        self.new_lane(**{key: options.pop(key) for key in ("slots",) if key in options})
        work = self.work()
        try:
            return self.handle(work, text, params, **options).run()
        finally:
            work.close()

    def close(self) -> None:
        """Close what a test left open."""
        for child in self.children:
            if child.process.poll() is None:
                child.kill()
        while self._works:
            self._works.pop().close()

    def check(self) -> None:
        """The history verifies, replays to the same bytes, and holds each job's end once."""
        if not self.checked:
            return
        report = self.home.verify()
        assert report.ok, report.findings
        replayed = replay_home(self.home.home)
        assert replayed.ok, replayed
        ends: Counter[str] = Counter()
        with self.reader() as reader:
            for row in reader.jobs():
                assert row.state in {"SUCCEEDED", "FAILED", "CANCELED", "QUEUED", "RUNNING", "RETRYING"}
                for seq in range(row.transition_seq):
                    record = reader.transition(row.job_id, seq)
                    body = None if record is None else decode(record.body)
                    if isinstance(body, dict) and body["to_state"] in {"SUCCEEDED", "FAILED", "CANCELED"}:
                        ends[row.job_id] += 1
        assert all(count == 1 for count in ends.values()), ends

    # -- looking -------------------------------------------------------------------------------------------------------

    @contextmanager
    def reader(self) -> Iterator[Any]:
        """The ledger as it is."""
        reader = SqliteStore.open_reader(self.home.home.ledger_file)
        try:
            yield reader
        finally:
            reader.close()

    def runs(self) -> list[RunRow]:
        """Runs, oldest first."""
        with self.reader() as reader:
            return list(reader.runs())[::-1]

    def jobs(self, run_id: str | None = None) -> list[JobRow]:
        """Jobs on the ledger."""
        with self.reader() as reader:
            return list(reader.jobs(run_id=run_id))

    def kinds(self, run_id: str) -> list[str]:
        """Kinds of the records that a run has of its own."""
        with self.reader() as reader:
            return [record.kind for record in reader.records_of_run(run_id)]

    def calls(self) -> list[str]:
        """The steps that were begun, one entry for each attempt."""
        return [str(one.order.origin.step or one.order.label) for one in self.lane.began]

    def report(self, work: Runtime, job_id: str) -> WorkReport:
        """The report that ended a job."""
        found = work.backend.report_of(job_id)
        assert found is not None
        return found[1]

    def job(self, job_id: str) -> Job:
        """A job as the kernel holds it."""
        with self.reader() as reader:
            row = reader.job(job_id)
        assert row is not None
        return Job.decode(row.body)

    def time_passes(self) -> None:
        """Let virtual time pass whenever a job waits for its next try: a second each time, and a turn of the owner."""

        def retrying() -> bool:
            with self.reader() as reader:
                return next(iter(reader.jobs(state="RETRYING")), None) is not None

        def idle() -> None:
            while retrying():
                self.clock.jump(1000)
                for work in self._works:
                    owned = work.session.owned
                    for owner in owned.owners.values() if owned is not None else ():
                        owner.look(lambda _kernel: None).result()

        self.lane.on_idle = idle


def states(result: RunResult) -> dict[str, str]:
    """How each step ended."""
    return {step.key: step.state for step in result.view.steps}


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait for another thread or process to get there."""
    gate = threading.Event()
    for _ in range(int(WAIT_SECONDS / 0.01)):
        if holds():
            return
        gate.wait(0.01)
    raise AssertionError(what)


def in_thread(function: Callable[[], Any]) -> Callable[[], Any]:
    """Begin something beside the test; what comes back waits for its result."""
    box: dict[str, Any] = {}

    def run() -> None:
        try:
            box["result"] = function()
        except BaseException as exc:  # noqa: BLE001 - raised where the result is asked for
            box["error"] = exc

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive(), "it has not ended"
        if "error" in box:
            raise box["error"]
        return box["result"]

    return result


def environment(home: TemporaryHome) -> dict[str, str]:
    """What a process needs to find the home and this project's modules."""
    root = Path(__file__).resolve().parents[3]
    return {**os.environ, **home.environment, "PYTHONPATH": f"{root / 'src'}:{root}", "PYTHONWARNINGS": "error"}


class Child:
    """A process of `run_child`; every wait is for a line of it, or for its end."""

    def __init__(self, rig: Rig, text: str, **task: Any) -> None:
        asked = {"home": str(rig.home.path), "contract": dedent(text), "base": str(rig.project), **task}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("run_child.py")), json.dumps(asked)],
            env=environment(rig.home),
            cwd=rig.project,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            bufsize=0,  # A line that was read ahead would not be seen by `select`.
        )
        rig.children.append(self)

    def line(self) -> dict[str, Any]:
        """What it says next; nothing when it has ended without a word."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], WAIT_SECONDS)
        assert ready, "the child says nothing"
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def end(self) -> int:
        """Wait for its end."""
        code = self.process.wait(WAIT_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def kill(self) -> None:
        """End it the hard way."""
        self.process.kill()
        self.end()
