"""The action: a leased declaration of work, frozen once it is made."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from detent.workflow.defaults import new_id, utc_now
from detent.workflow.enums import EnumActionType
from detent.workflow.fields import Integer, JsonPayload, Text


class ModelAction(BaseModel):
    """Work for a target node, owned by the holder of ``lease_id``.

    Frozen, but shallowly: use ``model_copy(deep=True)`` before changing anything inside. A payload that is not JSON
    raises ``ModelOnexError``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_enum_values=False, defer_build=True)

    action_id: UUID = Field(default_factory=new_id)
    action_type: EnumActionType
    target_node_type: Annotated[Text, Field(min_length=1, max_length=100)]
    payload: JsonPayload = Field(default_factory=dict)
    dependencies: list[UUID] = Field(default_factory=list)
    """Action ids, never step ids."""
    priority: Annotated[Integer, Field(ge=1, le=10)] = 1
    """Higher is more urgent."""
    timeout_ms: Annotated[Integer, Field(ge=100, le=300_000)] = 30_000
    lease_id: UUID
    epoch: Annotated[Integer, Field(ge=0)]
    """Counts successful executions. A new action has 0; only the target node raises it."""
    retry_count: Annotated[Integer, Field(ge=0, le=10)] = 0
    metadata: dict[str, Any] = Field(default_factory=dict)
    created_at: datetime = Field(default_factory=utc_now)
