"""What operators can do that the ledger records: a closed list, so that a reader of the ledger knows every word in it.

Submissions are not in it: who asked for a job is in the signed payload. Plain reads are in the access log only.
"""

from __future__ import annotations

from typing import Final

from detent.canon.show import show
from detent.errors import InvalidInput

ACTIONS: Final = frozenset(
    {
        *("login", "logout"),
        *("key.create", "key.rotate", "key.revoke"),
        *("member.set", "member.remove"),
        *("workspace.create", "workspace.change"),
        *("webhook.create", "webhook.delete", "webhook.test", "webhook.disabled"),
        *("enrolment.create", "enrolment.revoke", "enrolment.refused"),
        *("worker.enrol", "worker.drain", "worker.retire", "worker.lost", "worker.mismatch"),
        "pool.scale",
        *("job.cancel", "job.retry", "job.erase", "run.cancel", "run.retry"),
        *("session.open", "session.close", "schedule.create", "schedule.delete", "schedule.pause", "schedule.resume"),
        "schedule.failed",
        *("queue.full", "verify.failed"),
        *("export", "verify", "erase", "config.changed", "trust.changed"),
        *("server.started", "server.stopped", "server.drained"),
    }
)
"""Every action. A new one is added here and, where it needs one, in `docs/`."""


def check_action(action: str) -> str:
    """The action, if there is such a one; `InvalidInput` otherwise."""
    if type(action) is not str or action not in ACTIONS:
        raise InvalidInput(f"there is no action {show(action)}", hint="add it to access/actions.py if it is a new one")
    return action
