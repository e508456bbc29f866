"""A home of a test's own, ready within a millisecond and gone afterwards.

Making a home waits for the disk a dozen times, so one is made for each test process and copied for each test. All copies
have the same origin and the same keys; since each keeps its tree heads in a state directory of its own, they never meet.

Nothing of the product is turned off for speed: the store syncs as it always does. The copies lie in memory (``/dev/shm``)
where the machine has room there, and syncing memory takes no time. A power cut is thus the one thing that cannot be tried
here; crashes of processes can.

A clock that moves only when a test moves it.
"""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any

from detent.errors import InvalidInput
from detent.owner.home import Home, checked_partitions, make_home
from detent.owner.place import HOME_VARIABLE
from detent.owner.session import Session
from detent.owner.wiring import Parts, begin_ledger

if TYPE_CHECKING:
    from detent.ledger.findings import Report

START_MS = 1_704_067_200_000
"""2024-01-01 00:00 UTC: when every temporary home was made, and where `detent_clock` begins."""
STEP_MS = 1_000
"""How far time moves in one step for a live owner; far below what an owner takes for a stall."""
MEMORY = Path("/dev/shm")  # noqa: S108 - directories in it have names that cannot be guessed, and belong to their maker
MEMORY_BYTES_MIN = 128 * 1024 * 1024


class TemporaryHome:
    """A home, its surroundings, and the sessions that a test opens on it."""

    def __init__(self, directory: Path, parts: Parts | None = None) -> None:
        self.directory = directory
        """Holds the home, its state directory, and files of the test."""
        self.home = Home(directory / ".detent")
        self.parts = parts or Parts()
        self.environment: Mapping[str, str] = {
            HOME_VARIABLE: str(self.home.path),
            "XDG_STATE_HOME": str(directory / "state"),
        }
        """The variables that lead a process to this home and keep it away from the user's own state."""
        self._sessions: list[Session] = []

    @property
    def path(self) -> Path:
        """The home's directory."""
        return self.home.path

    def session(self, *, listen: bool = True, **parts: Any) -> Session:
        """Open the home; closed with the home unless it was closed before. ``parts`` replace some of the home's `Parts`."""
        chosen = replace(self.parts, **parts) if parts else self.parts
        session = Session(self.home, chosen, environment={**os.environ, **self.environment}, listen=listen)
        self._sessions.append(session)
        return session

    def pass_ms(self, ms: int, *, step_ms: int = STEP_MS) -> None:
        """Let time pass on the fake clock as for an owner that is awake: in steps, with a turn after each.

        A single jump of the clock is something else: the owner takes it for a stall of its own and gives workers the
        time to speak up before any lease runs out. Refuses a home that runs on the machine's clock.
        """
        clock = self.parts.clock
        if not isinstance(clock, FakeClock):
            raise InvalidInput("this home runs on the machine's clock", hint="ask for `detent_clock` as well")
        while ms > 0:
            clock.jump(min(ms, step_ms))
            ms -= step_ms
            self.take_turns()

    def take_turns(self) -> None:
        """Have every owner that this process has opened look at the clock, and wait until it has done what is due."""
        for session in self._sessions:
            owned = session.owned
            for owner in [*owned.owners.values()] if owned is not None else ():
                owner.look(_nothing).result()

    def verify(self) -> Report:
        """Verify the ledger and everything stored beside it, as `detent verify` does."""
        from detent.inspect.audit import verify_home  # noqa: PLC0415 - most tests never ask

        return verify_home(self.home, environment=self.environment)

    def close(self) -> None:
        """Close every session that is still open."""
        while self._sessions:
            self._sessions.pop().close()


@contextmanager
def temporary_home(parts: Parts | None = None, *, partitions: int | None = None) -> Iterator[TemporaryHome]:
    """A temporary home for as long as the block lasts; for tests that do without pytest.

    It has so many ``partitions``, or as many as `DETENT_PARTITIONS` says, or one.
    """
    with TemporaryDirectory(prefix="detent-test-", dir=scratch_directory(), ignore_cleanup_errors=True) as name:
        made = TemporaryHome(Path(name), parts)
        shutil.copytree(_template(checked_partitions(partitions)), made.path)
        try:
            yield made
        finally:
            made.close()


@cache
def scratch_directory() -> str | None:
    """Where temporary homes lie: in memory, if there is room; None: where temporary files usually lie."""
    roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES_MIN
    return str(MEMORY) if roomy else None


@cache
def _template(partitions: int) -> Path:
    """The home that all others with so many partitions are copies of, made once for each process."""
    directory = Path(mkdtemp(prefix="detent-template-", dir=scratch_directory()))
    atexit.register(_remove, directory, os.getpid())
    begin: Callable[..., None] = partial(begin_ledger, parts=Parts(clock=FakeClock(START_MS)))
    return make_home(directory / ".detent", begin, partitions=partitions).path


def _remove(directory: Path, pid: int) -> None:
    """Remove the template, unless this is a child that was forked after it was made."""
    if os.getpid() == pid:
        shutil.rmtree(directory, ignore_errors=True)


def _nothing(kernel: object) -> None:
    del kernel


class FakeClock:
    """Wall and monotonic time as two numbers; `jump` moves both, `set_wall` only the one an operator could set."""

    def __init__(self, wall_ms: int = 1_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._wall_ms

    def monotonic_ms(self) -> int:
        """Milliseconds since the clock was made."""
        return self._monotonic_ms

    def jump(self, ms: int) -> None:
        """Let time pass."""
        self._wall_ms += ms
        self._monotonic_ms += ms

    def set_wall(self, wall_ms: int) -> None:
        """Set the wall clock, as an operator or a time server might."""
        self._wall_ms = wall_ms
