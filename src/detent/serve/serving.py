"""What the handlers of one server share: the home, the way to its owner and its ledger, access, counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from detent.inspect.monitoring import Exposition
from detent.kernel.records import OPERATED, RUN_STARTED
from detent.owner.home import Home
from detent.owner.session import Session
from detent.serve.access import Access
from detent.serve.alerts import Alerts
from detent.serve.auditing import Auditing
from detent.serve.budgets import Budgets
from detent.serve.counters import Counters
from detent.serve.downloads import Downloads
from detent.serve.driving import Driving
from detent.serve.ended_jobs import EndedJobs
from detent.serve.enrolling import Enrolling
from detent.serve.events import Hub
from detent.serve.known_jobs import ShownJobs
from detent.serve.notifying import Notifier
from detent.serve.operator_auth import OperatorSignatures
from detent.serve.pools import Pools
from detent.serve.readers import Readers
from detent.serve.repeating import Repeating
from detent.serve.submitting import Submitting
from detent.serve.turns import Turns
from detent.serve.uploading import Uploading
from detent.serve.writing import Writer
from detent.store.api import RecordRow


@dataclass(slots=True)
class Serving:
    """One server, as its handlers see it."""

    home: Home
    session: Session
    access: Access
    readers: Readers
    hub: Hub
    uploads: Uploading
    writer: Writer
    budgets: Budgets
    submitting: Submitting
    downloads: Downloads
    notifier: Notifier
    alerts: Alerts
    turns: Turns
    enrolling: Enrolling
    pools: Pools
    signatures: OperatorSignatures
    origin: str
    """The name of the ledger."""
    logs_attempts: bool
    """Whether a line of a log tells of each attempt (`[log]`)."""
    counters: Counters
    repeating: Repeating
    hosts: frozenset[str]
    openapi: Callable[[], tuple[bytes, str]]
    """The description of all routes and its tag, made when it is first asked for."""
    metrics: Exposition
    driving: Driving
    ended_jobs: EndedJobs
    shown_jobs: ShownJobs[Any]
    """What lists show of jobs."""
    auditing: Auditing
    broken: Callable[[BaseException], None] = lambda _: None
    """Stops the process: an invariant is broken."""

    def heard(self, row: RecordRow) -> None:
        """Hand a record that was committed to those who go by it."""
        self.access.take(row)
        self.notifier.hear(row)
        if row.kind in {RUN_STARTED, OPERATED}:
            self.take_up()

    def take_up(self) -> None:
        """Have the driver host run if the ledger has anything that it may have to drive: an open run, or a schedule."""
        if self.hub.has_open_runs or any(self.access.schedules):
            self.driving.take_up()
