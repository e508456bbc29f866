"""Enrolment tokens, workers and pools as operators change them: each change and its `operated` record share one commit."""

from __future__ import annotations

import asyncio
from typing import Final

from detent.access.certificate import Certificate, Proof
from detent.access.changes import Change
from detent.access.enrolments import EnrolmentToken, EnrolmentTokens
from detent.access.pools import PoolScales
from detent.access.scopes import Principal
from detent.access.state import LOCAL
from detent.canon import decode_trusted
from detent.errors import StoreUnavailable, error_of
from detent.kernel import Command, EnrollWorker, Operate, RetireWorker
from detent.kernel.commands import OUTCOME_OF_REQUEST
from detent.kernel.history import Record
from detent.kernel.records import OPERATED
from detent.owner.enrolled import certify
from detent.owner.home import Home
from detent.owner.operating import operate
from detent.owner.session import Session
from detent.serve.fleet import Worker
from detent.serve.turns import Turns
from detent.store.api import RecordRow

REASON_RETIRED: Final = "RETIRED_BY_OPERATOR"


class Enrolling:
    """Makes and ends tokens and workers. For the HTTP loop; what commits has threads of its own."""

    def __init__(self, home: Home, session: Session, turns: Turns) -> None:
        self.tokens, self.scales = EnrolmentTokens(), PoolScales()
        self._home, self._session, self._turns = home, session, turns
        self.one_at_a_time = asyncio.Lock()
        """Held from reading a token and the enrolled keys until the commit that changes them."""

    def take_in(self, record: Record | RecordRow) -> None:
        """Apply a record about enrolment tokens or pools; others change nothing."""
        if record.kind != OPERATED:
            return
        fields, evidence = decode_trusted(record.body), decode_trusted(record.evidence or b"\xa0")
        if isinstance(fields, dict) and isinstance(evidence, dict):
            parameters = evidence.get("parameters")
            said = parameters if isinstance(parameters, dict) else {}
            self.tokens.take_in(fields, said)
            self.scales.take_in(fields, said)

    async def create(self, token: EnrolmentToken, operated: Operate) -> None:
        """Put a token on the ledger: its record is what it is."""
        await self._write([operated])
        self.tokens.add(token)

    async def revoke(self, token: EnrolmentToken, operated: Operate) -> None:
        """End a token; once more changes nothing."""
        if not token.revoked:
            await self._write([operated])
            self.tokens.revoke(token.enrolment_id)

    async def enrol(
        self, request_id: str, route: str, token: EnrolmentToken, certificate: Certificate, proof: Proof
    ) -> None:
        """Certify a worker's key, and put the certificate on the ledger, in every partition."""
        who = Principal(token.made_by, token.enrolment_id, LOCAL, frozenset())
        change = Change("worker.enrol", "worker", certificate.worker_id, None, {"enrolment_id": token.enrolment_id})
        operated = operate(who, change, request_id=request_id, route=route, outcome_code=OUTCOME_OF_REQUEST)
        command = await self._turns.run(lambda: self._enrol(operated, certificate, proof))
        self._turns.fleet.enrolled(command)

    async def record(self, operated: Operate) -> None:
        """Have an action recorded that concerns the workers of the server."""
        await self._write([operated])

    async def drain(self, worker: Worker, operated: Operate) -> None:
        """Have a worker take nothing more."""
        await self._write([operated])
        worker.draining = True
        worker.wake.set()

    async def retire(self, worker: Worker, operated: Operate, *, gone: bool = False) -> None:
        """End a worker's key from here on; once more changes nothing.

        Its leases end by themselves, since it may still run their jobs; at once if it is ``gone``.
        """
        if not worker.retired:
            retired = RetireWorker(0, worker.worker_id, REASON_RETIRED)
            await self._turns.run(lambda: self._everywhere(retired, operated))
            worker.retired = True
            worker.wake.set()
        if gone:
            await self._turns.give_up(worker)

    # -- commits, on threads -------------------------------------------------------------------------------------------

    def _enrol(self, operated: Operate, certificate: Certificate, proof: Proof) -> EnrollWorker:
        owned = self._session.owned
        if owned is None:
            raise StoreUnavailable("another process owns the home", hint="ask again when that process has ended")
        command = certify(self._home, owned.trusts[0], certificate, proof, owned.owners[0].size)
        self._everywhere(command, operated)
        return command

    def _everywhere(self, command: Command, operated: Operate) -> None:
        """Have a command decided in every partition; the record of who asked is in the first."""
        for partition in range(self._session.partitions):
            self._ask([command] if partition else [command, operated], partition)

    async def _write(self, commands: list[Command]) -> None:
        await self._turns.run(lambda: self._ask(commands))

    def _ask(self, commands: list[Command], partition: int = 0) -> None:
        for answer in self._session.send(commands, partition=partition)():
            if answer.refusal is not None:
                raise error_of(answer.refusal)
