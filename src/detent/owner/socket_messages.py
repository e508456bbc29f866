"""What travels over ``owner.sock``: frames of canonical CBOR, and answers that mean the same in both processes."""

from __future__ import annotations

from collections.abc import Sequence

from detent.canon import NotCanonical, decode, encode_trusted
from detent.canon.late import NamedTuple
from detent.errors import CODES, DetentError, InvalidInput, Refused
from detent.kernel import (
    AdvanceTick,
    ChangeTrust,
    Command,
    Grant,
    HeartbeatRecord,
    JobState,
    Outcome,
    RaiseEpoch,
    Resume,
)
from detent.kernel.commands import command_to_list
from detent.store.api import AnswerRow, WorkRow

FRAME_BYTES_MAX = 16 * 1024 * 1024
LENGTH_BYTES = 4
PROTOCOL = 4

CLIENT_COMMANDS = frozenset(
    {
        "submit",
        "transition",
        "heartbeat",
        "cancel",
        "claim",
        "dispatch",
        "order",
        "finish",
        "usage",
        "run_start",
        "step_reuse",
        "run_reuse",
        "run_end",
        "erase",
        "operate",
        "worker_enroll",
        "worker_retire",
    }
)
"""What another process may ask for. Epochs, trust and the passing of time are the owner's own."""

OWNER_COMMANDS = (AdvanceTick, ChangeTrust, RaiseEpoch, Resume)
"""The rest: what an owner sends by itself and no client can ask for."""


class Answer(NamedTuple):
    """The answer to one command, after its commit."""

    status: str
    job: JobState | None
    record: bytes | None
    """Body of the record that answers the request."""
    refusal: Refused | None
    grants: tuple[Grant, ...]
    heartbeat: HeartbeatRecord | None
    answer: bytes = b""
    """What the scheduler answered to an order."""

    @property
    def ok(self) -> bool:
        """Whether the request was granted, now or by an earlier commit."""
        return self.refusal is None


def answer_of(outcome: Outcome) -> Answer:
    """The part of an outcome that its caller sees."""
    return Answer(
        outcome.status,
        outcome.job,
        outcome.record.body if outcome.record is not None else None,
        outcome.refusal,
        tuple(outcome.grants),
        outcome.heartbeat,
        outcome.answer,
    )


def frame(value: object) -> bytes:
    """One message with its length in front."""
    data = encode_trusted(value)
    if len(data) > FRAME_BYTES_MAX:
        raise InvalidInput(
            f"a message of {len(data)} bytes is too large for the owner's socket (limit {FRAME_BYTES_MAX})",
            hint="send fewer commands at once; large content goes to the content store",
        )
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def read_message(data: bytes) -> dict[str, object]:
    """A message without its length; refuses what is not a canonical map."""
    try:
        value = decode(data)
    except NotCanonical as exc:
        raise InvalidInput(f"not a message: {exc}") from exc
    if not isinstance(value, dict):
        raise InvalidInput("a message is a map")
    return value


def command_items(commands: Sequence[Command]) -> list[list[object]]:
    """Commands as they travel; the owner puts its own tick in."""
    return [command_to_list(command) for command in commands]


def answer_to_list(answer: Answer) -> list[object]:
    """An answer as plain values."""
    refusal = answer.refusal
    return [
        answer.status,
        None if answer.job is None else list(answer.job),
        answer.record,
        None if refusal is None else [refusal.code, refusal.message, _plain(refusal.details)],
        [list(grant) for grant in answer.grants],
        None if answer.heartbeat is None else list(answer.heartbeat),
        answer.answer,
    ]


def answer_from_list(value: object) -> Answer:
    """Rebuild an answer from `answer_to_list`."""
    try:
        status, job, record, refusal, grants, heartbeat, answered = value  # type: ignore[misc]
        return Answer(
            status,  # type: ignore[has-type]
            None if job is None else JobState(*job),  # type: ignore[has-type]
            record,  # type: ignore[has-type]
            None if refusal is None else Refused(*refusal),  # type: ignore[has-type]
            tuple(Grant(*grant) for grant in grants),  # type: ignore[has-type]
            None if heartbeat is None else HeartbeatRecord(*heartbeat),  # type: ignore[has-type]
            answered,  # type: ignore[has-type]
        )
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"not an answer: {exc}") from exc


def grants_from_list(value: object) -> list[Grant]:
    """Rebuild a page of grants that another process sent."""
    try:
        return [Grant(*grant) for grant in value]  # type: ignore[attr-defined]
    except TypeError as exc:
        raise InvalidInput(f"not a list of grants: {exc}") from exc


def work_items(work: Sequence[WorkRow]) -> list[list[object]]:
    """Rows of the work index as they travel: without what the owner sets."""
    return [[row.workspace, row.execution_key, row.job_id, row.label, list(row.element_keys), row.pool] for row in work]


def work_from_list(value: list[object]) -> list[WorkRow]:
    """Rebuild what `work_items` made; the owner looks at each value itself."""
    try:
        return [_work_row(*row) for row in value]  # type: ignore[misc]
    except (TypeError, ValueError) as exc:
        raise InvalidInput("work is a list of workspace, execution key, job, label, keys of elements and pool") from exc


def _work_row(
    workspace: str, key: bytes, job_id: str, label: str, element_keys: list[bytes | None], pool: str | None
) -> WorkRow:
    return WorkRow(workspace, key, job_id, label, element_keys=tuple(element_keys), pool=pool)


def answers_from_list(value: list[object]) -> list[AnswerRow]:
    """Rebuild answers to keep that another process sent."""
    try:
        return [AnswerRow(*row) for row in value]  # type: ignore[misc]
    except TypeError as exc:
        raise InvalidInput("an answer to keep is a scope, the digest of a body, a response and a time") from exc


def error_to_map(error: BaseException) -> dict[str, object]:
    """An error as it travels to another process."""
    if isinstance(error, DetentError):
        return {
            "code": error.code,
            "message": str(error),
            "hint": error.hint,
            "retryable": error.retryable,
            "details": _plain(error.details),
        }
    return {"code": "INVARIANT_VIOLATION", "message": str(error), "hint": None, "retryable": False, "details": {}}


def error_from_map(value: object) -> DetentError:
    """Rebuild an error that another process sent, as the class its code stands for."""
    if not isinstance(value, dict) or value.get("code") not in CODES:
        return InvalidInput("the owner sent an error that cannot be read")
    # A class comes before its own subclasses, and the most general one of a code is the one to raise.
    cls = next((cls for cls in _subclasses(DetentError) if cls.code == value["code"]), DetentError)
    return cls(
        str(value.get("message")),
        code=value["code"],
        hint=value.get("hint"),
        retryable=value.get("retryable"),
        details=value.get("details"),
    )


def _subclasses(cls: type[DetentError]) -> list[type[DetentError]]:
    found = []
    for sub in cls.__subclasses__():
        found += [sub, *_subclasses(sub)]
    return found


def _plain(details: object) -> dict[str, object]:
    """Details reduced to what canonical CBOR can hold."""
    if not isinstance(details, dict):
        return {}
    return {
        str(name): value if value is None or isinstance(value, str | int | bytes | bool) else str(value)
        for name, value in details.items()
    }
