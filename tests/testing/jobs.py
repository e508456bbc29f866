"""The least that a test of a home needs of jobs: submit one, claim it, report it."""

from __future__ import annotations

from detent.kernel import Claim, Command, Grant, Manifest, Submit
from detent.kernel.policy import UNLIMITED_QUOTA
from detent.ledger import sign_manifest
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.owner.wiring import load_trust, signing_key
from detent.store.sqlite import SqliteStore
from detent.testing import TemporaryHome

TENANT = "tenant-a"


def submission(home: TemporaryHome, job_id: str, *, max_retries: int = 0) -> Submit:
    """Submit an ordinary job."""
    reader = SqliteStore.open_reader(home.home.ledger_file)
    try:
        trust = load_trust(reader, home.home.settings())
        key = signing_key(home.home, trust, "manifest", 1)
    finally:
        reader.close()
    nothing, quota = bytes(32), UNLIMITED_QUOTA.hash()  # A digest that no home looks for: these jobs have no payload.
    manifest = Manifest(TENANT, job_id, "task", nothing, 5, quota, 0, max_retries=max_retries, origin=trust.origin)
    return Submit(0, sign_manifest(manifest, key))


def ask(session: Session, command: Command) -> Answer:
    """Ask for one thing and insist that it is granted."""
    (answer,) = session.ask([command])
    assert answer.refusal is None, answer.refusal
    return answer


def claim(session: Session) -> Grant:
    """Claim the one job that waits."""
    (grant,) = ask(session, Claim(0, "worker-1")).grants
    return grant


def state(home: TemporaryHome, job_id: str) -> str | None:
    """A job's state on the ledger."""
    reader = SqliteStore.open_reader(home.home.ledger_file)
    try:
        row = reader.job(job_id)
    finally:
        reader.close()
    return None if row is None else row.state
