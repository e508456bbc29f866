"""A world with operators and with workers of other machines: their commands are lost, repeated and overtake each other like all others."""

from __future__ import annotations

from pathlib import Path

from detent.access.certificate import Certificate, Enrolment, issue, prove
from detent.canon import SigningKey, decode, sha256
from detent.kernel import Operate, Outcome, RetireWorker
from detent.kernel.commands import OUTCOME_OF_REQUEST
from detent.kernel.table import State
from tests.kernel.builders import TENANT
from tests.ledger.build import enroll_command
from tests.owner.rig import ENROLL_KEY, ORIGIN, cancel
from tests.sim.world import Message, World

WORKERS = 6


class OperatorWorld(World):
    """A world in which most jobs are cancelled by operators."""

    def __init__(self, seed: int, directory: Path | None) -> None:
        super().__init__(seed, directory)
        self.operated: set[bytes] = set()
        """Actions that were answered, by the digest of their request."""
        self.actions += [(15, self.send_operated_cancel), (15, self.send_enrolment)]

    def send_operated_cancel(self) -> None:
        """An operator cancels a job, perhaps one that is not known yet; the action goes behind the cancel, in one request."""
        if self.jobs:
            self.number += 1
            job_id, request = self.random.choice(self.jobs), sha256(b"%d" % self.number)
            who = (0, "p_ann", "dtk_1", "job.cancel", "job", job_id)
            self.send("user", cancel(job_id), Operate(*who, OUTCOME_OF_REQUEST, request, TENANT))

    def send_enrolment(self) -> None:
        """A worker comes or goes."""
        worker_id = f"gpu-{self.random.randrange(WORKERS)}"
        if self.random.random() < 0.4:
            self.send("user", RetireWorker(0, worker_id, "RETIRED_BY_USER"))
            return
        worker = SigningKey(sha256(worker_id.encode()))
        certificate = Certificate(ORIGIN, worker_id, worker.public_key, None, None, (), 0)
        proof = prove(ORIGIN, bytes(32), bytes(16), worker)
        self.send("user", enroll_command(0, Enrolment(issue(certificate, ENROLL_KEY), proof)))

    def hear(self, message: Message, outcomes: list[Outcome]) -> None:
        """An action that was answered must be on the ledger from then on."""
        super().hear(message, outcomes)
        for command, outcome in zip(message.commands, outcomes, strict=True):
            if isinstance(command, Operate):
                assert outcome.ok, outcome.refusal
                self.operated.add(command.request_digest)

    def check_counts(self) -> None:
        """Every action that was answered is on the ledger, and says how it ended; workers come once and go once."""
        super().check_counts()
        actions = [decode(row.body) for row in self.store.records_of_kind(0, "operated")]
        assert self.operated <= {action["request_digest"] for action in actions}
        for action in actions:
            job = self.store.job(action["object_id"])
            canceled = job is not None and job.state == State.CANCELED
            assert canceled or action["outcome_code"] != "OK", f"{action['object_id']} was not cancelled"
        enrolled, retired = (
            [(decode(row.body)["worker_id"], row.position) for row in self.store.records_of_kind(0, kind)]
            for kind in ("worker_enrolled", "worker_retired")
        )
        assert (len(dict(enrolled)), len(dict(retired))) == (len(enrolled), len(retired))
        assert all(dict(enrolled)[worker_id] < position for worker_id, position in retired)
