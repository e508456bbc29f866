"""Where one cycle takes place: a home, a project, folders for temporary files, and the line that is typed again."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from detent.executor.sandbox.capabilities import probe, profile_of
from detent.executor.sandbox.model import DEFAULT_REQUIRED
from detent.store.api import StoreReader
from detent.store.sqlite import SqliteStore
from detent.testing import TemporaryHome, temporary_home
from tests.faults.commands import WAIT_SECONDS, Command, Commands, Stuck
from tests.faults.pipelines import STEPS, Pipeline

LOOK_SECONDS = 0.001
WORKERS = 2

LEASE_MS_SHORT = 1500
"""For cycles that wait for leases to run out. A third of it is the grace after a stall, which a busy machine needs."""


class Site:
    """A home that commands are run on."""

    def __init__(
        self, home: TemporaryHome, commands: Commands, *, task_ms: float = 1.0, place: Path | None = None
    ) -> None:
        place = home.directory if place is None else place
        self.home = home
        self.commands = commands
        self.place = place
        self.project = place / "project"
        self.temporary = place / "tmp"
        self.outputs = place / "outputs"
        self.effects = place / "effects"
        for path in (self.project, self.temporary, self.outputs):
            path.mkdir()
        self.effects.touch()
        (self.project / "steps.py").write_text(STEPS)
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            **home.environment,
            "TMPDIR": str(self.temporary),
            "FAULT_EFFECTS": str(self.effects),
            "FAULT_TASK_SECONDS": str(task_ms / 1000),
            "DETENT_DEBUG": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.started = 0
        best = profile_of(probe())
        if best.strength < DEFAULT_REQUIRED.strength:
            # Where the machine offers less, cells run with less: it is kills that are tried here.
            self._set("required", f'"{best.value}"')

    def write(self, pipeline: Pipeline | str, name: str = "flow.yaml") -> None:
        """Put a contract into the project."""
        (self.project / name).write_text(pipeline if isinstance(pipeline, str) else pipeline.contract)

    def set_pauses(self, pause_ms: int) -> None:
        """Have interruptions cost no more than this, where a task is interrupted as often as it may be (X-191)."""
        path = self.home.path / "config.toml"
        text = path.read_text()
        assert "[backoffs]\n" in text
        path.write_text(text.replace("[backoffs]\n", f"[backoffs]\ninterruptions = [{pause_ms}]\n"))

    def set_leases(self, ttl_ms: int) -> None:
        """Shorten the leases of the home, as an operator would."""
        for key in ("ttl_ms", "heartbeat_ms"):
            self._set(key, str(ttl_ms))

    def _set(self, key: str, value: str) -> None:
        """Change a setting of the home."""
        path = self.home.path / "config.toml"
        text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", path.read_text())
        assert count == 1, f"{key} stands {count} times in {path}"
        path.write_text(text)

    def run(self, name: str = "flow.yaml", *, task_ms: float | None = None, **more: Any) -> Command:
        """Type the line."""
        self.started += 1
        out = self.outputs / f"{self.started}.json"
        line = ["run", name, "-o", "json", "--workers", str(WORKERS)]
        pace = {} if task_ms is None else {"FAULT_TASK_SECONDS": str(task_ms / 1000)}
        return self.commands.start(line, self.project, self.environment | pace, out, **more)

    @contextmanager
    def reader(self) -> Iterator[StoreReader]:
        """The ledger as it is."""
        reader = SqliteStore.open_reader(self.home.home.ledger_file)
        try:
            yield reader
        finally:
            reader.close()

    def runs(self, status: str) -> list[str]:
        """The runs that stand so."""
        with self.reader() as reader:
            return [row.run_id for row in reader.runs() if row.status == status]

    def begun(self) -> list[tuple[str, int, str]]:
        """The side effects so far: token, attempt and step of each."""
        lines = self.effects.read_text().splitlines()
        return [(token, int(attempt), step) for token, attempt, step in (line.split() for line in lines)]

    def await_effects(self, count: int, command: Command) -> bool:
        """Wait until so many side effects have happened; False when the command ended before."""
        return until(lambda: len(self.effects.read_bytes().splitlines()) >= count, command)

    def errors(self) -> str:
        """What commands have said on standard error."""
        return "".join(path.read_text() for path in sorted(self.outputs.glob("*.err")))


def until(holds: Callable[[], bool], command: Command, seconds: float = WAIT_SECONDS) -> bool:
    """Look again and again until something holds; False when the command has ended without it."""
    gate = threading.Event()
    for _ in range(int(seconds / LOOK_SECONDS)):
        if holds():
            return True
        if command.has_ended:
            return holds()
        gate.wait(LOOK_SECONDS)
    raise Stuck("it has not come to that")


@contextmanager
def new_site(commands: Commands, *, task_ms: float = 1.0) -> Iterator[Site]:
    """A site of its own, gone afterwards."""
    with temporary_home() as home:
        yield Site(home, commands, task_ms=task_ms)


def files_below(path: Path) -> list[str]:
    """Everything below a directory, as paths relative to it."""
    return sorted(str(one.relative_to(path)) for one in path.rglob("*"))
