"""A home in which things have happened, for tests of what reads, exports, rotates and erases.

It is built once for each test process and copied for each test: a test may break its copy as it likes.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import apsw

from detent.canon import digest_text, json_digest, json_encode, sha256
from detent.jobs.work import WorkReport
from detent.kernel import Cancel, Claim, Command, EndRun, Finish, Grant, Manifest, StartRun, Submit, VerifiedManifest
from detent.kernel.policy import UNLIMITED_QUOTA
from detent.ledger import sign_manifest, sign_result
from detent.owner.content import Content, seal_value
from detent.owner.decision_records import read_decisions
from detent.owner.home import Home, make_home
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.owner.wiring import Parts, begin_ledger, load_trust, signing_key
from detent.store.postgres.address import PostgresAddress
from detent.testing import FakeClock
from tests.flat_reports import flat_report

TENANT = "demo"
RUN = "run-1"
OTHER_RUN = "run-2"
LARGE = "x" * 40_000
"""A payload that does not fit into the database and goes to a file."""
EARLY_MS = 1_700_000_000_000
BACKOFF = "default = [1000, 2000, 4000]"
"""As it stands in the settings of a new home."""


@dataclass(frozen=True, slots=True)
class Played:
    """A home with two runs: `run-1` has ended, `run-2` is open with one job waiting."""

    home: Home
    state: Path

    @property
    def environment(self) -> dict[str, str]:
        """The surroundings in which its tree heads are kept."""
        return {"XDG_STATE_HOME": str(self.state)}

    @property
    def root(self) -> str:
        """The root digest to pin."""
        return digest_text(self.home.settings().root)

    def session(self, clock: FakeClock | None = None) -> Session:
        """Open it for asking."""
        return Session(self.home, Parts(clock=clock or FakeClock(EARLY_MS + 3_600_000)), environment=self.environment)

    def edit(self, change: Callable[[apsw.Connection], object]) -> None:
        """Change the database behind Detent's back, as anyone with the file can."""
        connection = apsw.Connection(str(self.home.ledger))
        try:
            connection.pragma("ignore_check_constraints", 1)
            triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            change(connection)
            for _, sql in triggers:
                connection.execute(str(sql))
        finally:
            connection.close()

    def keep_decisions_apart(self) -> None:
        """Have every decision as content of its own, as ledgers had it before decisions were kept by the commit."""
        with Parts().open_reader(self.home.ledger) as reader:
            rows = [row for partition in range(reader.partitions) for row in reader.decisions(partition)]
        decisions = {sha256(decision): decision for row in rows for decision in read_decisions(row)}

        def move(database: apsw.Connection) -> None:
            database.execute("DELETE FROM decisions")
            database.executemany("INSERT INTO content (digest, bytes) VALUES (?, ?)", decisions.items())

        self.edit(move)

    def damage_index(self) -> None:
        """Have an index of the database contradict its table, as a bad sector would."""
        connection = apsw.Connection(str(self.home.ledger))
        connection.pragma("wal_checkpoint", "TRUNCATE")
        page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'jobs_by_state'").get
        size = connection.pragma("page_size")
        connection.close()
        data = bytearray(self.home.ledger_file.read_bytes())
        place = data.index(b"QUEUED", (page - 1) * size, page * size)
        data[place : place + 6] = b"QUEUEE"
        self.home.ledger_file.write_bytes(data)


def fresh(directory: Path) -> Played:
    """A copy of the played home in a directory of the test's own."""
    source = _template()
    # Without the note of where the template lives: to everybody, the copy is the original.
    shutil.copytree(source, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.place"))
    return Played(Home(directory / ".detent"), directory / "state")


def retry_at_once(home: Home) -> None:
    """Have what failed tried again without the seconds of a home's own settings."""
    path = home.path / "config.toml"
    text = path.read_text()
    assert BACKOFF in text
    path.write_text(text.replace(BACKOFF, "default = [1, 1, 1]\ninterruptions = [1]"))


@cache
def _template() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="detent-test-home-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    play_in(directory)
    return directory


def play_in(
    directory: Path, *, store: PostgresAddress | None = None, random: Callable[[int], bytes] = os.urandom
) -> Played:
    """Make a home and play the scenario in it; the same random bytes give the same ledger."""
    clock = FakeClock(EARLY_MS)
    begin: Callable[..., None] = partial(begin_ledger, parts=Parts(clock=clock))
    home = make_home(directory / ".detent", begin, partitions=1, store=store, random=random)
    with Session(home, Parts(clock=clock), environment={"XDG_STATE_HOME": str(directory / "state")}) as session:
        _play(Hand(home, session), clock)
    return Played(home, directory / "state")


class Hand:
    """One session with the keys a submitter and an executor need."""

    def __init__(self, home: Home, session: Session) -> None:
        self.home = home
        self.session = session
        with Parts().open_reader(home.ledger) as reader:
            trust, size = load_trust(reader, home.settings()), reader.head(0).size
        self.origin = trust.origin
        self._manifest_key = signing_key(home, trust, "manifest", size)
        self._result_key = signing_key(home, trust, "result", size)
        self._nonces = iter(range(1, 1_000))

    def ask(self, command: Command, content: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
        """Have a command decided and insist that it is granted."""
        (answer,) = self.session.ask([command], content=content)
        assert answer.refusal is None, answer.refusal
        return answer

    def submit(self, job_id: str, value: object = None, run_id: str | None = None, *, max_retries: int = 1) -> bytes:
        """Submit a job with a payload; gives back the payload's digest."""
        sealed = seal_value(value, next(self._nonces).to_bytes(16, "big"))
        return self.submit_bytes(job_id, sealed, run_id, max_retries=max_retries)

    def submit_bytes(self, job_id: str, sealed: bytes, run_id: str | None = None, *, max_retries: int = 1) -> bytes:
        """Submit a job with a payload that is sealed already."""
        digest, inline = self.stage(sealed)
        self.ask(Submit(0, self.signed(job_id, digest, max_retries=max_retries), run_id), inline)
        return digest

    def signed(self, job_id: str, payload_digest: bytes, **fields: Any) -> VerifiedManifest:
        """The manifest of an ordinary job, signed for this home's ledger unless the fields say otherwise."""
        fields = {"origin": self.origin, **fields}
        manifest = Manifest(TENANT, job_id, "task", payload_digest, 5, UNLIMITED_QUOTA.hash(), 0, **fields)
        return sign_manifest(manifest, self._manifest_key)

    def claim(self) -> Grant:
        """Lease the next job."""
        return self.ask(Claim(0, "worker-a")).grants[0]

    def succeed(self, grant: Grant, value: object = None) -> bytes:
        """Finish an attempt with a signed result; gives back the result's digest."""
        return self.hand_in(grant, report(grant, value, next(self._nonces)).body())

    def hand_in(self, grant: Grant, body: bytes) -> bytes:
        """Finish an attempt with whatever body the executor signs; gives back the digest of the envelope."""
        digest, inline = self.stage(sign_result(body, self._result_key).envelope())
        self.ask(Finish(0, grant.job_id, grant.lease_id, detail_digest=digest), inline)
        return digest

    def stage(self, data: bytes) -> tuple[bytes, tuple[tuple[bytes, bytes], ...]]:
        """Get content ready to be named."""
        with Parts().open_reader(self.home.ledger) as reader:
            staged = Content(reader, self.home.content_files()).stage(data)
        return staged.digest, staged.inline


def report(grant: Grant, value: object, nonce: int) -> WorkReport:
    """What an executor says of an attempt that succeeded."""
    data = json_encode(value)
    return flat_report(
        job_id=grant.job_id,
        attempt_id=grant.attempt_id,
        lease_id=grant.lease_id,
        manifest_hash=grant.job_manifest_hash,
        status="SUCCEEDED",
        nonce=nonce.to_bytes(16, "big"),
        value=data,
        value_digest=json_digest(data),
    )


def _play(hand: Hand, clock: FakeClock) -> None:
    hand.ask(StartRun(0, TENANT, RUN, "first", bytes(32), bytes(32), bytes(32), "op-1"))
    for job_id, value in (("done", 1), ("large", LARGE), ("broken", 3), ("slow", 4), ("dropped", 5)):
        hand.submit(job_id, value, RUN)
    hand.succeed(hand.claim(), {"answer": 42})
    hand.succeed(hand.claim(), LARGE)
    broken = hand.claim()
    hand.ask(Finish(0, broken.job_id, broken.lease_id, ok=False, reason_code="BAD_INPUT", category="VALIDATION_ERROR"))
    hand.claim()  # slow: its worker is never heard of again
    hand.ask(Cancel(0, TENANT, "dropped"))
    for _ in range(8):
        clock.jump(5_000)
        hand.session.ask([])
    hand.succeed(hand.claim())  # slow, second attempt
    hand.ask(EndRun(0, RUN, "failed"))
    hand.ask(StartRun(0, TENANT, OTHER_RUN, "second", bytes(32), bytes(32), bytes(32), "op-2"))
    hand.submit("waiting", 6, OTHER_RUN)
