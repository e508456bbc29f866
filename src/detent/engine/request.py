"""What waits in an owner's inbox: requests, questions, and the way each is answered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeAlias, TypeVar

from detent.canon import check_uint64, sha256
from detent.canon.late import dataclass
from detent.errors import DetentError, InvalidInput, InvariantBroken, OutcomeUnknown, Refused
from detent.kernel import Claim, Command, Kernel, Outcome, ReuseStep, Submit, VerifiedManifest
from detent.kernel.commands import stamped
from detent.kernel.handlers import HANDLERS
from detent.kernel.manifest import digest_fault, id_fault
from detent.store.api import ANSWER_BYTES_MAX, CONTENT_INLINE_BYTES_MAX, AnswerRow, WorkRow

TURN_COMMANDS_MAX = 10_000
"""Commands after which a group commit takes no further request, and the most that one request may hold."""

LOOK_AHEAD_MIN = 8
"""Commands of one request from which on the jobs they are about are read at once."""

LABEL_BYTES_MAX = 1024
"""The longest name that work is indexed under."""

Make: TypeAlias = Callable[[int], Command]
"""A command without its tick: the owner supplies it."""

Judge: TypeAlias = Callable[[Kernel], Sequence[Command] | Refused]
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
        """Nobody else knows of it, so nobody can have cancelled it."""
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


@dataclass(slots=True)
class Request:
    """Commands that one caller wants decided together, with the content they name and what is kept beside the ledger."""

    makes: Sequence[Make]
    future: Future[list[Outcome]] | Reply
    content: Sequence[tuple[bytes, bytes]] = ()
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
    for digest, data in content:
        if len(data) > CONTENT_INLINE_BYTES_MAX:
            raise InvalidInput(
                f"{len(data)} bytes of content are too large to go with a commit (limit {CONTENT_INLINE_BYTES_MAX})",
                hint="put larger content into the content store first",
            )
        if sha256(data) != digest:
            raise InvalidInput("content does not have the digest it is sent under")
    if work or answers:
        _check_beside(work, answers)
    return Request(makes, future, content, work, answers, judge)


def commands_of(request: Request, tick: int, kernel: Kernel) -> list[Command] | Refused:
    """The commands themselves, with their tick; refuses what the kernel does not know, and a batch full of claims."""
    commands = [make(tick) for make in request.makes]
    if request.judge is not None:
        judged = request.judge(kernel)
        if isinstance(judged, Refused):
            return judged
        commands += [stamped(command, tick) for command in judged]
    claimed = 0
    for command in commands:
        if type(command) not in HANDLERS:
            raise InvalidInput(f"{type(command).__name__} is not a command of the kernel")
        if isinstance(command, Claim) and type(command.limit) is int:
            claimed += command.limit
    if claimed > TURN_COMMANDS_MAX and len(commands) > 1:  # A single claim has its own limit, and its own refusal.
        raise InvalidInput(f"one request claims {claimed} jobs (limit {TURN_COMMANDS_MAX})", hint="ask in parts")
    return commands


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
    for row in work:
        fault = (
            id_fault("workspace", row.workspace)
            or id_fault("job_id", row.job_id)
            or digest_fault("execution_key", row.execution_key)
            or _label_fault(row.label)
        )
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
