"""A home and two bundles of the first version that records operators' actions and enrols workers, kept for ever.

A server owned the home: its trust has a key that certifies workers. Two workers were enrolled. One reported the result of the job of
a run, and was retired; a job that it still held when it was lost ended under the other. Operators made a key, cancelled
a job, and were refused. The archive was made once, in a directory with a copy of ``tests``, by

    python -m tests.golden.operators

which draws keys, ids and times anew: it is not made again, because what it has to show is that these very bytes verify.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from pathlib import Path

from detent.access.certificate import Certificate, prove, replica_of
from detent.canon import SigningKey, encode, sha256
from detent.kernel import Cancel, Claim, Command, EndRun, Finish, Grant, Operate, RetireWorker, StartRun, Submit
from detent.kernel.commands import OUTCOME_OF_REQUEST
from detent.ledger import sign_manifest, sign_result
from detent.owner.enrolled import certify
from detent.owner.home import make_home
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.owner.wiring import Parts, begin_ledger, load_trust, signing_key
from tests.golden.archives import pack
from tests.kernel.builders import NO_PAYLOAD, TENANT, manifest
from tests.owner.reports import work_report

ARCHIVE = "operators.tar.gz"
RUN = "remote-run"
WORKERS = ("gpu-1", "gpu-2")
ACTIONS = 4


class Stage:
    """A home that a server owns."""

    def __init__(self, place: Path) -> None:
        self.home = make_home(place / "home", begin_ledger)
        self.session = Session(self.home, Parts(serves=True))
        with Parts().open_reader(self.home.ledger) as reader:
            self.trust = load_trust(reader, self.home.settings())
        self.workers = {worker_id: SigningKey(secrets.token_bytes(32)) for worker_id in WORKERS}

    def ask(self, *commands: Command) -> list[Answer]:
        """Have commands decided together."""
        return self.session.ask(list(commands))

    def enroll(self, worker_id: str) -> None:
        """Certify a worker and put it on the ledger."""
        key = self.workers[worker_id]
        certificate = Certificate(self.trust.origin, worker_id, key.public_key, (TENANT,), None, ("a100",), 0)
        proof = prove(self.trust.origin, sha256(b"token"), secrets.token_bytes(16), key)
        with Parts().open_reader(self.home.ledger) as reader:
            command = certify(self.home, self.trust, certificate, proof, reader.head(0).size)
        (answer,) = self.ask(command)
        assert answer.ok

    def submit(self, job_id: str, run_id: str | None = None) -> Submit:
        """Submit a job."""
        key = signing_key(self.home, self.trust, "manifest", 1)
        made = manifest(job_id, payload_digest=NO_PAYLOAD, origin=self.trust.origin)
        return Submit(0, sign_manifest(made, key), run_id)

    def work(self, worker_id: str) -> None:
        """Have a worker take a job and report its result."""
        grants: tuple[Grant, ...] = ()
        while not grants:
            time.sleep(0.05)
            ((*_, grants, _, _),) = self.ask(Claim(0, replica_of(worker_id, "boot-1")))
        (grant,) = grants
        assert self.session.report(sign_result(work_report(grant).body(), self.workers[worker_id]).envelope()).ok


def operate(action: str, object_kind: str, object_id: str, **evidence: object) -> Operate:
    """What an operator asked for."""
    request = sha256(f"{action} {object_id}".encode())
    said = encode({"request_id": f"req_{secrets.token_hex(12)}", **evidence})
    return Operate(0, "p_ann", "dtk_ann", action, object_kind, object_id, OUTCOME_OF_REQUEST, request, TENANT, said)


def play(stage: Stage) -> None:
    """Everything that the archive shows."""
    for worker_id in WORKERS:
        stage.enroll(worker_id)
    stage.ask(operate("key.create", "key", "dtk_ann", parameters={"role": "operator", "secret": bytes(32)}))
    stage.ask(StartRun(0, TENANT, RUN, "remote", bytes(32), bytes(32), bytes(32), "op-1"), stage.submit("own", RUN))
    stage.work("gpu-1")
    stage.ask(EndRun(0, RUN, "completed"))
    stage.ask(stage.submit("lost"))
    (claimed,) = stage.ask(Claim(0, replica_of("gpu-1", "boot-2")))
    retired = operate("worker.retire", "worker", "gpu-1", reason="its disk failed")
    lost = Finish(
        0, "lost", claimed.grants[0].lease_id, kind="worker_lost", ok=False, reason_code="WORKER_LOST", category=None
    )
    stage.ask(lost, RetireWorker(0, "gpu-1", "RETIRED_BY_USER"), retired)
    stage.work("gpu-2")
    stage.ask(stage.submit("unwanted"))
    stage.ask(Cancel(0, TENANT, "unwanted"), operate("job.cancel", "job", "unwanted", reason="not needed"))
    stage.ask(Cancel(0, TENANT, "nobody"), operate("job.cancel", "job", "nobody"))


def main() -> None:
    """Make the archive."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        os.environ["XDG_STATE_HOME"] = str(place / "state")
        stage = Stage(place)
        play(stage)
        stage.session.close()
        pack(ARCHIVE, place, RUN)


if __name__ == "__main__":
    main()
