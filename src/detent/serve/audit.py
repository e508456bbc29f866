"""Operators' actions, recorded: the command that a handler puts behind its own.

A handler that does something for an operator adds `operated(...)` to the commands it has decided: wish, effect and outcome then share one
commit. A request that is refused before it comes to that leaves a record as well (`serve/refused_attempts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from detent.access.changes import Change
from detent.kernel import Operate
from detent.kernel.commands import OUTCOME_OF_REQUEST
from detent.owner.operating import operate
from detent.serve.call import Call

_OWN: Final = "\0"
"""In place of a workspace: the call's own."""


def operated(  # noqa: PLR0913 - one for each part of the record
    call: Call,
    action: str,
    object_kind: str,
    object_id: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    reason: str | None = None,
    before: object = None,
    after: object = None,
    workspace: str | None = _OWN,
    outcome_code: str = OUTCOME_OF_REQUEST,
) -> Operate:
    """The command that records what a call's principal does, to go behind the commands that do it.

    Its outcome is that of those commands. ``parameters`` hold no secrets; ``before`` and ``after`` are small and canonical.
    """
    own = call.workspace if workspace == _OWN else workspace
    return recorded(
        call, Change(action, object_kind, object_id, own, parameters or {}), reason, before, after, outcome_code
    )


def recorded(
    call: Call,
    change: Change,
    reason: str | None = None,
    before: object = None,
    after: object = None,
    outcome_code: str = OUTCOME_OF_REQUEST,
) -> Operate:
    """The same for a change of access, whose parameters are the change itself."""
    assert call.principal is not None
    signed = None if call.signature is None else {"base": call.signature.base, "sig": call.signature.signature}
    said = {"before": before, "after": after, "signature": signed}
    more = {name: value for name, value in said.items() if value is not None}
    return operate(
        call.principal,
        change,
        request_id=call.request_id,
        route=call.operation,
        request_digest=call.request_digest,
        reason=reason,
        outcome_code=outcome_code,
        more=more,
    )
