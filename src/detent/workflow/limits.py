"""Numbers and words that models, validation and the loader of contracts share; loading them loads no model."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

StepType: TypeAlias = Literal["compute", "effect", "reducer", "orchestrator", "conditional", "parallel", "custom"]
ErrorAction: TypeAlias = Literal["stop", "continue", "retry", "compensate"]

STEP_TYPES: Final = frozenset({"compute", "effect", "reducer", "orchestrator", "custom", "parallel"})
"""Types that can be planned. ``conditional`` is reserved: a step may say it, validation refuses it."""
ERROR_ACTIONS: Final = frozenset({"stop", "continue", "retry", "compensate"})

TIMEOUT_MS_MIN: Final = 100
"""Below this, a timeout of a step or a workflow is an error of the contract itself (WF-075)."""
WORKFLOW_TIMEOUT_MS_MIN: Final = 1000
"""The least bound on a whole run that a definition may name (X-114)."""
