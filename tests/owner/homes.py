"""Real homes on a real disk, for the tests of sessions, sockets and locks."""

from __future__ import annotations

import atexit
import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from detent.canon import SigningKey
from detent.errors import OutcomeUnknown
from detent.kernel import Command, Submit, VerifiedManifest
from detent.ledger import Trust, sign_manifest
from detent.owner.home import Home, make_home
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.owner.wiring import Parts, begin_ledger, load_trust, signing_key
from detent.store.sqlite import SqliteReader, SqliteStore
from tests.kernel.builders import NO_PAYLOAD, manifest

WAIT_SECONDS = 60
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 128 * 1024 * 1024


@cache
def scratch_directory() -> str | None:
    """Where tests that cut no power may write: in memory, if there is room."""
    roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES_MIN
    return str(MEMORY) if roomy else None


_made = TemporaryDirectory(prefix="detent-homes-", dir=scratch_directory())
atexit.register(_made.cleanup)  # Left to itself it warns of that, and warnings are errors here.


@cache
def _template(partitions: int, number: int) -> Home:
    """A home made once and copied for each test: making one waits for the disk a dozen times."""
    return make_home(Path(_made.name) / f"home-{partitions}-{number}", begin_ledger, partitions=partitions)


class House:
    """A home in a directory of its own, its surroundings, and the key that submits to it.

    Homes of the same number have the same origin and keys, as copies of a home have.
    """

    def __init__(self, directory: Path, *, partitions: int = 1, number: int = 0) -> None:
        self.directory = directory
        self.environment = {"XDG_STATE_HOME": str(directory / "state"), "HOME": str(directory)}
        self.home = Home(directory / ".detent")
        shutil.copytree(_template(partitions, number).path, self.home.path)
        self._key: SigningKey | None = None
        self._origin: str | None = None

    def session(self, parts: Parts | None = None, **options: Any) -> Session:
        """Open the home."""
        return Session(self.home, parts, environment=self.environment, **options)

    def reader(self) -> closing[SqliteReader]:
        """Look at the ledger."""
        return closing(SqliteStore.open_reader(self.home.ledger_file))

    def trust(self) -> Trust:
        """The trust on the ledger."""
        with self.reader() as reader:
            return load_trust(reader, self.home.settings())

    def verified(self, job_id: str = "job-1", **changes: Any) -> VerifiedManifest:
        """A manifest signed with the home's own key."""
        if self._key is None:
            trust = self.trust()
            self._key, self._origin = signing_key(self.home, trust, "manifest", 1), trust.origin
        return sign_manifest(
            manifest(job_id, **{"payload_digest": NO_PAYLOAD, "origin": self._origin, **changes}), self._key
        )

    def submit(self, job_id: str = "job-1", **changes: Any) -> Submit:
        """Submit an ordinary job."""
        return Submit(0, self.verified(job_id, **changes))

    def state(self, job_id: str = "job-1") -> str | None:
        """A job's state on the ledger."""
        with self.reader() as reader:
            row = reader.job(job_id)
        return None if row is None else row.state

    def epochs(self) -> list[int]:
        """The epoch of every batch."""
        with self.reader() as reader:
            return [row.epoch for row in reader.batches(0)]

    def size(self) -> int:
        """Number of batches."""
        with self.reader() as reader:
            return reader.head(0).size


def ask(session: Session, *commands: Command, **options: Any) -> list[Answer]:
    """Ask, and ask again while the outcome is unknown: what a caller is told to do (X-173)."""
    for _ in range(100):
        try:
            return session.ask(commands, **options)
        except OutcomeUnknown:
            continue
    raise AssertionError("the outcome stays unknown")


def one(session: Session, command: Command) -> Answer:
    """Ask for one thing."""
    (answer,) = ask(session, command)
    return answer


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait for another thread or process to get there; it looks again whenever a take-over has ended."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)  # What is waited for needs the processor more.
