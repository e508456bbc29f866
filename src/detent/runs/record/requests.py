"""What one run asks of its home: that it began, that open jobs be cancelled, that it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from detent.errors import Refused, error_of
from detent.kernel import Command, EndRun, StartRun
from detent.kernel.run import CANCELLED_WITH_RUN
from detent.kernel.table import TERMINAL
from detent.owner.backend import Backend, joined
from detent.runs.record.inputs import RunIdentity, RunInputs, digests_of

if TYPE_CHECKING:
    from detent.runs.submit.submitter import Submitter  # Readers of what is recorded load no supervisor.

END_TRIES: Final = 3
RUN_TIMEOUT: Final = "RUN_TIMEOUT"
"""Why a run ended that ran out of its own time, and why its open jobs were cancelled then (X-116)."""


class Requests:
    """The requests of one run. All of them are safe to repeat, and are repeated while the home has no owner (X-173)."""

    def __init__(self, backend: Backend, identity: RunIdentity, submitter: Submitter[Any]) -> None:
        self._backend = backend
        self._identity = identity
        self._submitter = submitter

    def begin(self, inputs: RunInputs, behind: Sequence[Command] = ()) -> None:
        """Open the run; ``behind`` are decided in the same commit. Refuses by `InvalidInput` one that exists with other inputs."""
        # The contract was checked when it was loaded, the parameters when they were bound to it.
        digest, inline = self._backend.sealed_trusted(inputs.document())
        contract, bindings = digests_of(inputs.contract)
        command = StartRun(
            0,
            self._backend.tenant,
            self._identity.run_id,
            inputs.name,
            contract,
            bindings,
            digest,
            str(self._identity.operation_id),
        )
        answer, *_ = self._submitter.ask([command, *behind], inline)
        if answer.refusal is not None:
            raise error_of(answer.refusal)

    def record_reuses(self, commands: Sequence[Command], content: Sequence[tuple[bytes, bytes]]) -> list[Refused]:
        """Record in one commit that elements took earlier results; returns the refusals."""
        answers = self._submitter.ask(commands, joined([content]))
        return [answer.refusal for answer in answers if answer.refusal is not None]

    def end(self, status: str, reason_code: str | None = None) -> tuple[str, bool]:
        """Record the end of the run; how it ended, and whether that was decided elsewhere before."""
        run_id, reader = self._identity.run_id, self._backend.reader
        tries = 0
        while True:
            (answer,) = self._submitter.ask([EndRun(0, run_id, status, reason_code)])
            if answer.refusal is None:
                return status, False
            tries += 1
            if answer.refusal.code == "CONFLICT" and (run := reader.run(run_id)) is not None:
                return run.status, True
            if answer.refusal.code != "RUN_NOT_DONE" or tries == END_TRIES:
                raise error_of(answer.refusal)
            # A job of the run that its driver does not know: another program submitted it, or the contract lost its step.
            left = [row.job_id for row in reader.jobs(run_id=run_id) if row.state not in TERMINAL]
            self._submitter.cancel(left, reason_code or CANCELLED_WITH_RUN)


def out_of_time(timeout_ms: int) -> str:
    """What is said of a run that ran out of its own time, and of what it had under way then."""
    return f"the run's {timeout_ms} ms had elapsed (timeout of the workflow)"
