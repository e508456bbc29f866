"""Ids of actions and leases, derived instead of drawn (X-011).

An id is a UUIDv8 of ``SHA-256(CBOR(["wf-id/v1", purpose, id_root, workflow_id, operation_id, step_id]))``, with UUIDs as
text and null for what is not given. Two operations share no id because each has a fresh random ``operation_id``; the
same call repeated gives the same ids, which is a replay and not a second use.

Where a step's action goes, and how urgent it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import UUID, SafeUUID

from detent.canon import encode_trusted
from detent.canon.show import show
from detent.workflow.vocabulary import EnumActionType, ModelOnexError

if TYPE_CHECKING:
    from detent.workflow.models import ModelWorkflowStep
    from detent.workflow.plain import PlainStep

Purpose: TypeAlias = Literal["action", "lease"]

LABEL: Final = "wf-id/v1"

_STEP_ID_CHARS: Final = 36
# RFC 9562: four bits of version 8, two bits of variant; the other 122 bits are the digest's.
_KEPT: Final = ~((0xF << 76) | (0x3 << 62))
_VERSION_8: Final = (0x8 << 76) | (0x2 << 62)
_set: Final = object.__setattr__
_UNKNOWN: Final = SafeUUID.unknown


def uuid8(digest: bytes) -> UUID:
    """The first 16 bytes of a digest, all but six bits of them, as a UUID of version 8."""
    value = UUID.__new__(UUID)
    # What UUID.__init__ does in the end, without the checks on its six forms of input: planning makes two ids a step.
    _set(value, "int", int.from_bytes(digest[:16], "big") & _KEPT | _VERSION_8)
    _set(value, "is_safe", _UNKNOWN)
    return value


def derive_id(
    purpose: Purpose, id_root: UUID | None, workflow_id: UUID, operation_id: UUID | None, step_id: UUID
) -> UUID:
    """The id of one step's action or lease."""
    return uuid8(sha256(_encoded(purpose, id_root, workflow_id, operation_id, str(step_id))).digest())


def ids_of(
    id_root: UUID | None,
    workflow_id: UUID,
    operation_id: UUID | None,
    suits: Callable[[str], bool] | None = None,
) -> Callable[[str], tuple[UUID, UUID]]:
    """For one operation: a function from a step id, as text, to the ids of its action and its lease.

    Where only some ids of actions can be used, ``suits`` says so: the ids are derived with another root then, the first of a fixed
    sequence that gives one which suits.
    """
    derive = _derived(id_root, workflow_id, operation_id)
    if suits is None:
        return derive

    def chosen(step_id: str) -> tuple[UUID, UUID]:
        found, number = derive(step_id), 0
        while not suits(str(found[0])):
            number += 1
            root = uuid8(sha256(encode_trusted([LABEL, "root", _text(id_root), number])).digest())
            found = _derived(root, workflow_id, operation_id)(step_id)
        return found

    return chosen


def _derived(id_root: UUID | None, workflow_id: UUID, operation_id: UUID | None) -> Callable[[str], tuple[UUID, UUID]]:
    begin_action = _beginning("action", id_root, workflow_id, operation_id)
    begin_lease = _beginning("lease", id_root, workflow_id, operation_id)

    def derive(step_id: str) -> tuple[UUID, UUID]:
        ending = step_id.encode()
        action, lease = begin_action(), begin_lease()
        action.update(ending)
        lease.update(ending)
        return uuid8(action.digest()), uuid8(lease.digest())

    return derive


def _beginning(
    purpose: Purpose, id_root: UUID | None, workflow_id: UUID, operation_id: UUID | None
) -> Callable[[], Any]:
    """What all ids of an operation have in common, encoded and hashed once.

    The step id is the last item of the array and has always the same length, so everything before it is a fixed beginning.
    """
    encoded = _encoded(purpose, id_root, workflow_id, operation_id, " " * _STEP_ID_CHARS)
    return sha256(encoded[:-_STEP_ID_CHARS]).copy


def _encoded(
    purpose: Purpose, id_root: UUID | None, workflow_id: UUID, operation_id: UUID | None, step_id: str
) -> bytes:
    return encode_trusted([LABEL, purpose, _text(id_root), str(workflow_id), _text(operation_id), step_id])


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)


# Looked up without a default: an unknown type is an error, never quietly custom.
ROUTES: Final[Mapping[str, tuple[EnumActionType, str]]] = {
    "compute": (EnumActionType.COMPUTE, "NodeCompute"),
    "effect": (EnumActionType.EFFECT, "NodeEffect"),
    "reducer": (EnumActionType.REDUCE, "NodeReducer"),
    "orchestrator": (EnumActionType.ORCHESTRATE, "NodeOrchestrator"),
    "custom": (EnumActionType.CUSTOM, "NodeCustom"),
    "parallel": (EnumActionType.CUSTOM, "NodeCustom"),
}
ACTION_PRIORITY_MAX: Final = 10
"""Steps speak of 1 to 1000, actions of 1 to 10; what is above is cut, without a word (WF-061)."""


def route_of(step: ModelWorkflowStep | PlainStep) -> tuple[EnumActionType, str]:
    """The type of a step's action and the node it goes to. Raises ``ModelOnexError`` for a type that has no route."""
    route = ROUTES.get(step.step_type)
    if route is None:
        raise ModelOnexError(
            f"No action for step type {show(step.step_type)}", context={"step_type": show(step.step_type)}
        )
    return route


def priority_of(step: ModelWorkflowStep | PlainStep) -> int:
    """The priority of a step's action."""
    return min(step.priority, ACTION_PRIORITY_MAX)
