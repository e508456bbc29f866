"""What one request comes to: its commands are made, the kernel decides them, and what has to be written is gathered in a turn.

Nothing is durable here and nobody is answered; both are the owner's (`engine/owner.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from detent.engine.assemble import Turn, refusal_rows
from detent.engine.history import StoreHistory
from detent.engine.kept_answers import KeptAnswers
from detent.engine.pace import Pace
from detent.engine.request import Request, commands_of, indexed, jobs_looked_for
from detent.errors import Refused
from detent.jobs.idempotency import IdempotencyLimits
from detent.kernel import Command, Heartbeat, Kernel, Outcome
from detent.kernel.identity import JOB_TRANSITION
from detent.kernel.outcome import DEDUPLICATED
from detent.store.api import Store


class Decider:
    """Decides the requests of one partition. For whoever holds the turn."""

    def __init__(
        self,
        kernel: Kernel,
        history: StoreHistory,
        store: Store,
        pace: Pace,
        partition: int,
        idempotency: IdempotencyLimits,
    ) -> None:
        self._kernel = kernel
        self._history = history
        self._store = store
        self._pace = pace
        self._partition = partition
        self._answers = KeptAnswers(store, idempotency)

    def decide(self, request: Request, turn: Turn, beats: dict[str, Outcome]) -> list[Outcome] | None:
        """What a request is to be answered; None when it failed in its caller's own code, and has its answer.

        ``beats`` are the heartbeats of the turn so far, by job.
        """
        try:
            commands = commands_of(request, turn.tick, self._kernel)
        except Exception as exc:  # noqa: BLE001 - a caller's own code; its failure is its answer, not the owner's end
            request.future.set_exception(exc)
            return None
        if isinstance(commands, Refused):
            return [self._turn_away(commands, turn)]
        if request.answers and (full := self._answers.refusal(request.answers, turn.answers)) is not None:
            # Also of a request without commands, whose caller has to learn that its key is not remembered.
            return [self._turn_away(full, turn)] * max(1, len(commands))
        if names := jobs_looked_for(commands):
            self._history.look_ahead(names)
        outcomes = [self._apply(command, turn, beats) for command in commands]
        if request.content and any(outcome.records for outcome in outcomes):
            turn.content.extend(request.content)  # With the record that names it, or not at all.
        if request.work or request.answers:
            self._keep_beside(request, commands, outcomes, turn)
        return outcomes

    def _turn_away(self, refusal: Refused, turn: Turn) -> Outcome:
        """Answer a request that was refused before the kernel heard of it; the decision log gets it all the same."""
        outcome = Outcome()
        self._kernel.refuse_with(outcome, refusal, JOB_TRANSITION)
        turn.refusals.extend(refusal_rows(self._partition, turn.tick, None, outcome))
        return outcome

    def _keep_beside(
        self, request: Request, commands: Sequence[Command], outcomes: Sequence[Outcome], turn: Turn
    ) -> None:
        """Take over what a request wants kept beside the ledger, as far as it was granted."""
        rows = indexed(request.work, commands, outcomes, turn.tick)
        if any(outcome.status == DEDUPLICATED for outcome in outcomes):
            # A job found submitted may have lost its payload since; its key must not come back.
            rows = [row for row in rows if not self._store.is_erased(row.payload_digest)]
        turn.work.extend(rows)
        if all(outcome.refusal is None for outcome in outcomes):
            self._answers.keep(request.answers, turn.answers)
            turn.answers.extend(request.answers)
            turn.answers_kept_ms = self._answers.window_ms

    def _apply(self, command: Command, turn: Turn, beats: dict[str, Outcome]) -> Outcome:
        if type(command) is Heartbeat and (repeated := self._repeated_beat(command, beats)) is not None:
            return repeated
        outcome = self._kernel.apply(command)
        if outcome.recorded:
            turn.add(command, outcome)
        if outcome.refusal is not None:
            turn.refusals.extend(refusal_rows(self._partition, turn.tick, command, outcome))
        if outcome.heartbeat is not None:
            beats[outcome.heartbeat.job_id] = outcome
            self._pace.hear(outcome.heartbeat.job_id, outcome.heartbeat.lease_id)
        if outcome.grants:
            self._pace.hear_all(outcome.grants)
        return outcome

    def _repeated_beat(self, command: Heartbeat, beats: dict[str, Outcome]) -> Outcome | None:
        """What an earlier heartbeat of this turn was answered, as long as its lease is in force (X-165).

        A report of progress says more than the beat before it and is never left out.
        """
        if command.progress is not False:
            return None
        known = beats.get(command.job_id) if type(command.job_id) is str else None
        if known is None or known.heartbeat is None or known.heartbeat.lease_id != command.lease_id:
            return None
        job = self._kernel.jobs.get(command.job_id)
        return known if job is not None and job.lease_id == command.lease_id else None
