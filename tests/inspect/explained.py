"""A real home with a fake clock, and the words in which one fills its queue: where the tests of `explain` begin."""

from __future__ import annotations

import atexit
import re
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from detent.canon import SigningKey, encode
from detent.inspect.explain_job import Explanation, explain
from detent.kernel import Cancel, Claim, Command, Dispatch, Finish, Grant, Heartbeat, Order, ReportUsage, Submit
from detent.ledger import sign_manifest
from detent.owner.content import Content
from detent.owner.home import Home, make_home
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.owner.wiring import Parts, begin_ledger, load_trust, signing_key
from detent.scheduling import ReplicaStatus
from detent.scheduling.orders import write_request
from detent.testing import FakeClock
from tests.homes import EARLY_MS, Played
from tests.kernel.builders import NO_PAYLOAD, TENANT, manifest
from tests.owner.homes import scratch_directory

LEASE_MS = 30_000
STEP_MS = 5_000
"""Time passes in steps that no owner takes for a stall of its own."""

_made = TemporaryDirectory(prefix="detent-explained-", dir=scratch_directory())
atexit.register(_made.cleanup)  # Left to itself it warns of that, and warnings are errors here.


@cache
def _template() -> Path:
    directory = Path(_made.name)
    make_home(directory / ".detent", partial(begin_ledger, parts=Parts(clock=FakeClock(EARLY_MS))))
    return directory


class Stage:
    """A home that this process owns. Its methods ask for one thing each, so a test reads as the story it tells.

    ``settings`` change `config.toml`: a line takes the place of the one that sets the same key, or shows how to; more than
    a line is added.
    """

    def __init__(self, directory: Path, *settings: str, checkpoint_records: int | None = None) -> None:
        shutil.copytree(_template(), directory, dirs_exist_ok=True)
        self.played = Played(Home(directory / ".detent"), directory / "state")
        self.home = self.played.home
        _configure(self.home.path / "config.toml", settings)
        with Parts().open_reader(self.home.ledger) as reader:
            trust, size = load_trust(reader, self.home.settings()), reader.head(0).size
        self._origin = trust.origin
        self._key = signing_key(self.home, trust, "manifest", size)
        self.clock = FakeClock(EARLY_MS + 1_000)
        parts = Parts(clock=self.clock, checkpoint_records=checkpoint_records)
        self.session = Session(self.home, parts, environment=self.played.environment, listen=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(self, command: Command) -> Answer:
        (answer,) = self.session.ask([command])
        return answer

    def do(self, command: Command) -> Answer:
        """Ask, and insist on a yes."""
        answer = self.ask(command)
        assert answer.refusal is None, answer.refusal
        return answer

    def submission(
        self, job_id: str, *, key: SigningKey | None = None, asks: dict[str, Any] | None = None, **changes: Any
    ) -> Submit:
        described = manifest(
            job_id, **{"job_kind": "inference", "payload_digest": NO_PAYLOAD, "origin": self._origin, **changes}
        )
        request = None if asks is None else write_request(**asks)
        return Submit(0, sign_manifest(described, key or self._key), None, request)

    def submit(self, *job_ids: str, **changes: Any) -> None:
        for job_id in job_ids:
            self.do(self.submission(job_id, **changes))

    def refuse(self, job_id: str, **changes: Any) -> str:
        """Submit what is refused; gives back the code."""
        refusal = self.ask(self.submission(job_id, **changes)).refusal
        assert refusal is not None
        return refusal.code

    def order(self, name: str, **fields: Any) -> Answer:
        return self.do(Order(0, name, encode(fields)))

    def register(self, *replicas: ReplicaStatus) -> None:
        for one in replicas:
            self.order("replica_register", replica=one.to_map())

    def claim(self, worker: str = "worker-1", limit: int = 1) -> Grant:
        return self.do(Claim(0, worker, limit)).grants[0]

    def dispatch(self, limit: int = 100) -> list[Grant]:
        return list(self.do(Dispatch(0, limit)).grants)

    def succeed(self, grant: Grant) -> None:
        self.do(Finish(0, grant.job_id, grant.lease_id))

    def fail(self, grant: Grant, category: str = "INTERNAL_ERROR", reason_code: str = "TASK_FAILED") -> None:
        self.do(Finish(0, grant.job_id, grant.lease_id, ok=False, reason_code=reason_code, category=category))

    def beat(self, grant: Grant, *, progress: bool = False) -> None:
        self.do(Heartbeat(0, grant.job_id, grant.lease_id, progress))

    def use(self, grant: Grant, **amounts: int) -> None:
        self.ask(ReportUsage(0, grant.job_id, grant.lease_id, 0, **amounts))

    def cancel(self, job_id: str) -> None:
        self.do(Cancel(0, TENANT, job_id))

    def pass_ms(self, ms: int, *alive: Grant) -> None:
        """Let time pass, with a turn at each step and a heartbeat for each grant in ``alive``."""
        while ms > 0:
            jump = min(ms, STEP_MS)
            self.clock.jump(jump)
            self.session.ask([])
            for grant in alive:
                self.beat(grant)
            ms -= jump

    # -- looking -------------------------------------------------------------------------------------------------------

    def told(self, job_id: str, **options: Any) -> Explanation:
        """The explanation of a job, read as another process would read it."""
        with Parts().open_snapshot(self.home.ledger) as reader:
            return explain(reader, Content(reader, self.home.content_files()), job_id, **options)

    def edit(self, change: Callable[[Any], object]) -> None:
        """Change the database behind everybody's back."""
        self.played.edit(change)


def _configure(path: Path, settings: tuple[str, ...]) -> None:
    text = path.read_text()
    for setting in settings:
        if "\n" in setting:
            text += setting
            continue
        key = setting.partition(" ")[0]
        text, found = re.subn(rf"^(?:# )?{key} = .*$", setting, text, flags=re.MULTILINE)
        assert found == 1, f"config.toml does not set {key} once"
    path.write_text(text)
