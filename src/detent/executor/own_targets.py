"""Functions of Detent's own that orders name, and the modules that hold them.

An order is recorded content: its target is the name that it was submitted with, in this version and in every later one. So
these names are fixed texts, and a worker that is given one looks up where the function is today. Nothing else may depend on
them being modules.
"""

from __future__ import annotations

from typing import Final

COMPUTE_CHUNK: Final = "detent.engine.ordered_runtime.chunk:compute_chunk"
"""Computes a chunk of an ordered run."""
STATED: Final = "detent.engine.ordered_runtime.notes:stated"
"""The target of a note of an ordered run, which is closed in the commit that submits it."""

DELIVER: Final = "detent.serve.deliver:deliver"
"""Sends one event to a webhook."""

HELD_BY: Final = {
    COMPUTE_CHUNK: "detent.runs.ordered.chunk",
    STATED: "detent.runs.ordered.notes",
    DELIVER: "detent.serve.deliver",
}
