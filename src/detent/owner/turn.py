"""One turn of the owner: what waits in its inbox, the commands made of it, and the kernel's decisions gathered for one commit.

Nothing is durable here and no caller is answered; both are the owner's (`owner/owner.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, TypedDict, TypeVar

from detent.access.actions import check_action
from detent.canon import check_uint64
from detent.canon.grammar import label_fault
from detent.canon.late import dataclass
from detent.errors import DetentError, InvalidInput, InvariantBroken, OutcomeUnknown, Refused
from detent.jobs.dedupe import IdempotencyLimits
from detent.kernel import (
    Claim,
    Command,
    Heartbeat,
    Kernel,
    Operate,
    Outcome,
    ReuseStep,
    Submit,
    VerifiedManifest,
    partition_of,
)
from detent.kernel.commands import OUTCOME_OF_REQUEST, stamped
from detent.kernel.handlers import HANDLERS
from detent.kernel.identity import JOB_TRANSITION
from detent.kernel.manifest import digest_fault, id_fault
from detent.kernel.outcome import DEDUPLICATED
from detent.kernel.run import has_result
from detent.owner.kept_answers import KeptAnswers
from detent.owner.log_writer import Turn, refusal_rows
from detent.owner.store_history import StoreHistory
from detent.owner.ticks import Ticker
from detent.store.api import ANSWER_BYTES_MAX, CONTENT_INLINE_BYTES_MAX, NEVER_REUSED, AnswerRow, Hashed, Store, WorkRow

TURN_COMMANDS_MAX = 10_000
"""Commands after which a group commit takes no further request, and the most that one request may hold."""

ELEMENT_KEYS_MAX = 100_000
"""Keys of elements of arrays that one request may bring."""

LOOK_AHEAD_MIN = 8
"""Commands of one request from which on the jobs they are about are read at once."""

LABEL_BYTES_MAX = 1024
"""The longest name that work is indexed under."""

Make: TypeAlias = Callable[[int], Command]
"""A command without its tick: the owner supplies it."""


class Judged(NamedTuple):
    """Commands made within a turn, and what was refused beside them, which is logged."""

    commands: Sequence[Command]
    refusals: Sequence[Refused]


Judge: TypeAlias = Callable[[Kernel], Sequence[Command] | Judged | Refused]
"""Makes the commands of a request within its turn, from what stands then; or refuses it, which is logged."""

T = TypeVar("T")


class Reply:
    """What a caller that takes the turn itself is answered through: a future without the locks it does not need."""

    __slots__ = ("_done", "_error", "_outcomes")

    def __init__(self) -> None:
        self._done = False
        self._error: BaseException | None = None
        self._outcomes: list[Outcome] = []

    def set_running_or_notify_cancel(self) -> bool:
        """No other process knows of it, so it cannot have been cancelled."""
        return True

    def set_result(self, outcomes: list[Outcome]) -> None:
        """Answer."""
        self._done, self._outcomes = True, outcomes

    def set_exception(self, error: BaseException | None) -> None:
        """Answer with a failure, unless there is an answer."""
        if not self._done:
            self._done, self._error = True, error

    def result(self) -> list[Outcome]:
        """The answer."""
        if self._error is not None:
            raise self._error
        return self._outcomes


class Carried(TypedDict, total=False):
    """What a request carries beside its commands, for the same commit."""

    content: Sequence[tuple[bytes, bytes]]
    """What the commands name, by digest."""
    work: Sequence[WorkRow]
    """Rows of the index of work: each is kept if the request submits its job or finds it submitted."""
    answers: Sequence[AnswerRow]
    """Answers to idempotency keys: kept if every command is granted."""


@dataclass(slots=True)
class Request:
    """Commands that one caller wants decided together, with the content they name and what is kept beside the ledger."""

    makes: Sequence[Make]
    future: Future[list[Outcome]] | Reply
    content: Sequence[Hashed] = ()
    work: Sequence[WorkRow] = ()
    answers: Sequence[AnswerRow] = ()
    judge: Judge | None = None


@dataclass(slots=True)
class Look:
    """A question about the kernel's state, answered on the owner's thread."""

    ask: Callable[[Kernel], Any]
    future: Future[Any]


@dataclass(slots=True)
class Stop:
    """The wish to end the owner once everything before it is done."""

    future: Future[None]


def request_of(
    makes: Sequence[Make],
    future: Future[list[Outcome]] | Reply,
    content: Sequence[tuple[bytes, bytes]],
    work: Sequence[WorkRow] = (),
    answers: Sequence[AnswerRow] = (),
    judge: Judge | None = None,
) -> Request:
    """A request within its limits; one that is not could spoil the commit of others."""
    if len(makes) > TURN_COMMANDS_MAX:
        raise InvalidInput(f"{len(makes)} commands in one request (limit {TURN_COMMANDS_MAX})", hint="ask in parts")
    if work or answers:
        _check_beside(work, answers)
    return Request(makes, future, [_hashed(piece) for piece in content], work, answers, judge)


def _hashed(piece: tuple[bytes, bytes]) -> Hashed:
    """A piece of content that may go with a commit; one that this process has not hashed is hashed here."""
    digest, data = piece
    if len(data) > CONTENT_INLINE_BYTES_MAX:
        raise InvalidInput(
            f"{len(data)} bytes of content are too large to go with a commit (limit {CONTENT_INLINE_BYTES_MAX})",
            hint="put larger content into the content store first",
        )
    known = piece if type(piece) is Hashed else Hashed(data)
    if known[0] != digest:
        raise InvalidInput("content does not have the digest it is sent under")
    return known


def commands_of(request: Request, tick: int, kernel: Kernel) -> tuple[list[Command], Sequence[Refused]] | Refused:
    """The commands themselves, with their tick, and what is refused beside them.

    Refuses what the kernel does not know, and a batch full of claims.
    """
    commands = [make(tick) for make in request.makes]
    refusals: Sequence[Refused] = ()
    if request.judge is not None:
        judged = request.judge(kernel)
        if isinstance(judged, Refused):
            return judged
        if isinstance(judged, Judged):
            judged, refusals = judged
        commands += [stamped(command, tick) for command in judged]
    claimed = 0
    for command in commands:
        if type(command) not in HANDLERS:
            raise InvalidInput(f"{type(command).__name__} is not a command of the kernel")
        if type(command) is Operate:
            check_action(command.action)
        if isinstance(command, Claim) and type(command.limit) is int:
            claimed += command.limit
    if claimed > TURN_COMMANDS_MAX and len(commands) > 1:  # A single claim has its own limit, and its own refusal.
        raise InvalidInput(f"one request claims {claimed} jobs (limit {TURN_COMMANDS_MAX})", hint="ask in parts")
    return commands, refusals


def with_outcome(command: Command, before: Sequence[Outcome]) -> Command:
    """An operator's action with what came of its request: the code of the first refusal among the commands before it, or OK."""
    if type(command) is not Operate or command.outcome_code != OUTCOME_OF_REQUEST:
        return command
    refusal = next((outcome.refusal for outcome in before if outcome.refusal is not None), None)
    return replace(command, outcome_code="OK" if refusal is None else refusal.code)


def jobs_looked_for(commands: Sequence[Command]) -> list[str]:
    """Which jobs the kernel will look for in the past to decide these commands, if it is asked for several."""
    if len(commands) < LOOK_AHEAD_MIN:
        return []
    submitted = [
        command.manifest.job_id
        for command in commands
        if type(command) is Submit and type(command.manifest) is VerifiedManifest
    ]
    reused = [command.job_id for command in commands if type(command) is ReuseStep and type(command.job_id) is str]
    return submitted + reused


def indexed(
    work: Sequence[WorkRow], commands: Sequence[Command], outcomes: Sequence[Outcome], tick: int
) -> list[WorkRow]:
    """Those rows of the work index whose job this very request submitted, now or before; a refused one leaves no row."""
    payloads = {
        outcome.job.job_id: outcome.job.payload_digest
        for command, outcome in zip(commands, outcomes, strict=True)
        if type(command) is Submit and outcome.refusal is None and outcome.job is not None
    }
    return [row._replace(tick=tick, payload_digest=payloads[row.job_id]) for row in work if row.job_id in payloads]


def answer_look(future: Future[T], ask: Callable[[Kernel], T], kernel: Kernel) -> None:
    """Answer a question about the kernel's state."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(ask(kernel))
    except Exception as exc:  # noqa: BLE001 - the question is the caller's code; its failure is the caller's answer
        future.set_exception(exc)


def tell(future: Future[Any] | Reply, error: BaseException) -> None:
    """Give a caller bad news, unless the caller has an answer or has stopped waiting for one."""
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)


def told(exc: BaseException) -> BaseException:
    """What a caller hears whose turn was under way: a typed error, or that the outcome is not known."""
    if isinstance(exc, DetentError | InvariantBroken):
        return exc
    unknown = OutcomeUnknown(f"the owner failed before it could answer: {exc!r}")
    unknown.__cause__ = exc
    return unknown


def _check_beside(work: Sequence[WorkRow], answers: Sequence[AnswerRow]) -> None:
    if max(len(work), len(answers)) > TURN_COMMANDS_MAX:
        raise InvalidInput(f"more than {TURN_COMMANDS_MAX} rows beside one request", hint="ask in parts")
    if sum(len(row.element_keys) for row in work) > ELEMENT_KEYS_MAX:
        raise InvalidInput(f"more than {ELEMENT_KEYS_MAX} keys of elements beside one request", hint="ask in parts")
    for row in work:
        fault = (
            id_fault("workspace", row.workspace)
            or id_fault("job_id", row.job_id)
            or (digest_fault("execution_key", row.execution_key) if row.execution_key != NEVER_REUSED else None)
            or _label_fault(row.label)
            or (None if row.pool is None else label_fault("pool", row.pool))
        )
        for key in row.element_keys:
            fault = fault or (None if key is None else digest_fault("execution_key", key))
        if fault:
            raise InvalidInput(fault)
    for answer in answers:
        fault = digest_fault("scope", answer.scope) or digest_fault("body_digest", answer.body_digest)
        if fault:
            raise InvalidInput(fault)
        check_uint64("stored_at_ms", answer.stored_at_ms)
        if type(answer.response) is not bytes or len(answer.response) > ANSWER_BYTES_MAX:
            raise InvalidInput(f"a stored answer has at most {ANSWER_BYTES_MAX} bytes")


def _label_fault(label: object) -> str | None:
    try:
        fits = type(label) is str and 1 <= len(label.encode()) <= LABEL_BYTES_MAX
    except UnicodeEncodeError:
        fits = False
    return None if fits else f"a label is a text of 1 to {LABEL_BYTES_MAX} bytes"


class TurnDecider:
    """Decides the requests of one partition. For the holder of the turn."""

    def __init__(
        self,
        kernel: Kernel,
        history: StoreHistory,
        store: Store,
        pace: Ticker,
        partition: int,
        idempotency: IdempotencyLimits,
    ) -> None:
        self._kernel = kernel
        self._history = history
        self._store = store
        self._ticker = pace
        self._partition = partition
        self._answers = KeptAnswers(store, idempotency)

    def decide(self, request: Request, turn: Turn, beats: dict[str, Outcome]) -> list[Outcome] | None:
        """What a request is to be answered; None when it failed in its caller's own code, and has its answer.

        ``beats`` are the heartbeats of the turn so far, by job.
        """
        try:
            made = commands_of(request, turn.tick, self._kernel)
        except Exception as exc:  # noqa: BLE001 - a caller's own code; its failure is its answer, not the owner's end
            request.future.set_exception(exc)
            return None
        if isinstance(made, Refused):
            return [self._turn_away(made, turn)]
        commands, refusals = made
        for refusal in refusals:
            self._turn_away(refusal, turn)
        if request.answers and (full := self._answers.refusal(request.answers, turn.answers)) is not None:
            # Also of a request without commands, whose caller has to learn that its key is not remembered.
            return [self._turn_away(full, turn)] * max(1, len(commands))
        if names := jobs_looked_for(commands):
            self._history.look_ahead(names)
        outcomes: list[Outcome] = []
        for command in commands:
            outcomes.append(self._apply(with_outcome(command, outcomes), turn, beats))
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
        if type(command) is ReuseStep and (refusal := self._reuse_fault(command)) is not None:
            return self._turn_away(refusal, turn)
        outcome = self._kernel.apply(command)
        if outcome.recorded:
            turn.add(command, outcome)
        if outcome.refusal is not None:
            turn.refusals.extend(refusal_rows(self._partition, turn.tick, command, outcome))
        if outcome.heartbeat is not None:
            beats[outcome.heartbeat.job_id] = outcome
            named = command.lease if type(command) is Heartbeat else None
            self._ticker.hear(outcome.heartbeat.job_id, outcome.heartbeat.lease_id, named)
        if outcome.grants:
            self._ticker.hear_all(outcome.grants, command.lease if type(command) is Claim else None)
        return outcome

    def _reuse_fault(self, command: ReuseStep) -> Refused | None:
        """Why a run cannot take the result of a job of another partition, whose history its own kernel cannot know."""
        partitions = self._kernel.config.partitions
        if type(command.job_id) is not str or partition_of(command.job_id, partitions) == self._partition:
            return None
        run = self._kernel.runs.get(command.run_id) if type(command.run_id) is str else None
        job = self._history.job_elsewhere(command.job_id)
        if run is None or (
            job is not None and has_result(job.state, command.element) and job.tenant_id == run.tenant_id
        ):
            return None  # Of a run that is not open, the kernel knows whether it is a repeat.
        return Refused("UNKNOWN_JOB", f"job {command.job_id!r} has no result to reuse", {"job_id": command.job_id})

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
