"""Functions of Detent's own that orders name, and the modules that hold them.

An order is recorded content: its target is the name that it was submitted with, in this version and in every later one. So
these names are fixed texts, and a worker that is given one looks up where the function is today. Nothing else may depend on
them being modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from detent.jobs.order import Call, Order

COMPUTE_CHUNK: Final = "detent.engine.ordered_runtime.chunk:compute_chunk"
"""Computes a chunk of an ordered run: of what is to be done, and of which part of the items."""
CHUNK_ARGUMENTS: Final = 2
STATED: Final = "detent.engine.ordered_runtime.notes:stated"
"""The target of a note of an ordered run, which is closed in the commit that submits it."""

DELIVER: Final = "detent.serve.deliver:deliver"
"""Sends one event to a webhook."""


def needs_home(call: Call) -> bool:
    """Whether only the home's own workers can do this: it drives a run, reads the home's files, or its code is a directory there."""
    if call.kind == "map" or call.target == DELIVER:
        return True
    if call.target != COMPUTE_CHUNK:
        return False
    from detent.jobs.source_tree import tree_of  # noqa: PLC0415 - a process of workers holds no kernel and no keys

    work = call.arguments[0] if call.arguments else {}
    return tree_of(call.base) is None or (isinstance(work, dict) and bool(work.get("files")))


def items_of(order: Order) -> str | None:
    """The content that the items of a chunk are a part of, by its digest; None for other orders.

    A task that names the same function is not a chunk: only an ordered run makes orders of a run with this step.
    """
    call = order.call
    if call.target != COMPUTE_CHUNK or order.origin.run_id is None or len(call.arguments) != CHUNK_ARGUMENTS:
        return None
    part = call.arguments[1]
    return str(part["items"]) if isinstance(part, dict) and "items" in part else None


HELD_BY: Final = {
    COMPUTE_CHUNK: "detent.runs.ordered.chunk",
    STATED: "detent.runs.ordered.notes",
    DELIVER: "detent.serve.deliver",
}
