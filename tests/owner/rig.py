"""An owner on the test's own thread, with a clock that jumps: what the tests of the engine start from.

`Rig` is a ledger and the owner that has it now. Its methods ask for one thing each and take the turn themselves, so a
test reads as the story it tells; `crash` throws the owner away as a power cut would, `reopen` begins the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from detent.canon import SigningKey, decode
from detent.kernel import (
    Cancel,
    ChangeTrust,
    Claim,
    Command,
    EndRun,
    Finish,
    Grant,
    Heartbeat,
    KernelConfig,
    Outcome,
    StartRun,
    Submit,
    checkpoint,
    decode_commands,
    plain_queue,
)
from detent.ledger import KeyEntry, SignedTrust, sign_trust
from detent.owner.home import genesis_trust
from detent.owner.owner import Owner
from detent.owner.recovery import Recovered, recover
from detent.owner.turn import Make
from detent.store.api import Store, TreeHeadRow
from detent.testing import FakeClock
from tests.kernel.builders import NO_PAYLOAD, SUBMITTER, TENANT, config, verified

ORIGIN = "detent/0123456789abcdef"
OWNER_KEY = SigningKey(b"\x02" * 32)
LOG_KEY = SigningKey(b"\x03" * 32)
ROOT_KEY = SigningKey(b"\x04" * 32)
RESULT_KEY = SigningKey(b"\x05" * 32)
ENROLL_KEY = SigningKey(b"\x06" * 32)
PUBLIC_KEYS = {
    "root": ROOT_KEY.public_key,
    "manifest": SUBMITTER.public_key,
    "transition": OWNER_KEY.public_key,
    "result": RESULT_KEY.public_key,
    "log": LOG_KEY.public_key,
}
START_MS = 1_000_000
LEASE_TICKS = 100
"""Lease of the builders' configuration; a heartbeat gives 60 more, a third of it is the gap of a stall."""
GAP_TICKS = LEASE_TICKS // 3


def first_trust() -> SignedTrust:
    """The first trust configuration of the test ledger: that of every home, and a key that certifies workers."""
    config = genesis_trust(ORIGIN, PUBLIC_KEYS)
    return sign_trust(replace(config, keys=(*config.keys, KeyEntry(ENROLL_KEY.public_key, "enroll"))), ROOT_KEY)


def announce_trust(tick: int) -> ChangeTrust:
    """Announce it."""
    signed = first_trust()
    return ChangeTrust(tick, 1, signed.digest(), signed.envelope())


def stamped(command: Command) -> Make:
    """A command whose tick the owner sets."""
    return lambda tick: replace(command, tick=tick)


def submit(job_id: str = "job-1", *, run_id: str | None = None, **changes: Any) -> Submit:
    """Submit an ordinary job."""
    return Submit(0, verified(job_id, **{"payload_digest": NO_PAYLOAD, **changes}), run_id)


def finish(grant: Grant, **changes: Any) -> Finish:
    """Report an attempt's result."""
    return Finish(0, grant.job_id, grant.lease_id, **changes)


def fail(grant: Grant) -> Finish:
    """Report that an attempt failed in a way that may be retried."""
    return finish(grant, ok=False, reason_code="TASK_FAILED", category="INTERNAL_ERROR")


def heartbeat(grant: Grant) -> Heartbeat:
    """Send a sign of life."""
    return Heartbeat(0, grant.job_id, grant.lease_id)


def cancel(job_id: str = "job-1", **changes: Any) -> Cancel:
    """Cancel a job."""
    return Cancel(0, TENANT, job_id, **changes)


def start_run(run_id: str = "run-1") -> StartRun:
    """Open a run."""
    return StartRun(0, TENANT, run_id, "nightly", bytes(32), bytes(32), bytes(32), f"op-{run_id}")


def end_run(run_id: str = "run-1", status: str = "completed") -> EndRun:
    """Close a run."""
    return EndRun(0, run_id, status)


class Rig:
    """A store, a clock, and the owner that has the store now."""

    def __init__(self, store: Store, *, settings: KernelConfig | None = None, clock: FakeClock | None = None) -> None:
        self.store = store
        self.settings = settings or config()
        self.clock = clock or FakeClock(START_MS)
        self.kept: list[TreeHeadRow] = []
        """Tree heads that were handed to the keeper outside."""
        self.sent: list[Grant] = []
        """Dispatches that left the outbox."""
        self.owner = self.open()

    def open(
        self,
        *,
        store: Store | None = None,
        crash_point: Callable[[str], None] | None = None,
        settings: KernelConfig | None = None,
        **options: Any,
    ) -> Owner:
        """Recover the ledger and begin a new epoch on it; the owner before it is forgotten, not closed."""
        chosen = store or self.store
        recovered = self.recover(chosen)
        self.owner = Owner(
            chosen,
            recovered,
            partition=0,
            config=settings or self.settings,
            batch_key=OWNER_KEY,
            head_key=LOG_KEY,
            clock=self.clock,
            keep_head=self.kept.append,
            on_dispatch=self.sent.append,
            crash_point=crash_point,
            **options,
        )
        self.owner.begin([] if recovered.tail.size else [announce_trust])
        return self.owner

    def recover(self, store: Store | None = None) -> Recovered:
        """What an owner that opened the ledger now would start from."""
        return recover(store or self.store, 0, self.settings, make_queue=plain_queue)

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(self, *commands: Command, content: Sequence[tuple[bytes, bytes]] = ()) -> Future[list[Outcome]]:
        """Put a request into the inbox, undecided."""
        return self.owner.ask([stamped(command) for command in commands], content=content)

    def do(self, *commands: Command, content: Sequence[tuple[bytes, bytes]] = ()) -> list[Outcome]:
        """Ask, take the turn, and return the answers."""
        future = self.ask(*commands, content=content)
        self.owner.step()
        return future.result(timeout=0)

    def one(self, command: Command) -> Outcome:
        """Ask for one thing and return its answer."""
        (outcome,) = self.do(command)
        return outcome

    def start(self, job_id: str = "job-1", worker: str = "worker-1", **changes: Any) -> Grant:
        """Submit a job and claim it; nothing else may be waiting."""
        assert self.one(submit(job_id, **changes)).ok
        (grant,) = self.one(Claim(0, worker)).grants
        assert grant.job_id == job_id
        return grant

    def pass_ms(self, ms: int, *, step_ms: int = 10) -> None:
        """Let time pass in small steps with a turn after each, as it passes for an owner that is awake."""
        while ms > 0:
            jump = min(ms, step_ms)
            self.clock.jump(jump)
            self.owner.step()
            ms -= jump

    def stall_ms(self, ms: int) -> None:
        """Let time pass without a turn, as on a machine that is asleep."""
        self.clock.jump(ms)

    # -- looking -------------------------------------------------------------------------------------------------------

    @property
    def tick(self) -> int:
        """The kernel's tick."""
        return self.owner._kernel.tick

    @property
    def size(self) -> int:
        """Batches in the store."""
        return self.store.head(0).size

    def state(self, job_id: str = "job-1") -> str | None:
        """A job's state in the store."""
        row = self.store.job(job_id)
        return None if row is None else row.state

    def edges(self, job_id: str = "job-1") -> list[str]:
        """A job's transitions in the store, as ``FROM->TO``."""
        return [
            f"{body['from_state']}->{body['to_state']}"
            for body in bodies(self.store, job_id)
            if body["kind"] == "transition"
        ]

    def checkpoint(self) -> bytes:
        """The bytes of the kernel's whole state."""
        return checkpoint(self.owner._kernel)

    def commands(self, batch_no: int = -1) -> list[Command]:
        """The recorded commands of a batch, the last one unless told otherwise."""
        row = self.store.batch(0, batch_no if batch_no >= 0 else self.size + batch_no)
        assert row is not None
        return decode_commands(row.commands)


def bodies(store: Store, job_id: str) -> list[dict[str, Any]]:
    """The bodies of a job's records, read."""
    return [decode(record.body) for record in store.records_of_job(job_id)]
