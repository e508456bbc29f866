"""Records of the ledger as answers show them: names and words, digests as text, never content."""

from __future__ import annotations

from pydantic import JsonValue

from detent.owner.views import RecordView
from detent.serve.call import Shape


class LedgerRecord(Shape):
    """One record of the ledger."""

    partition: int
    position: int
    batch_no: int
    kind: str
    readable: bool
    at: str | None
    fields: dict[str, JsonValue]
    """What the record says, under the names it is signed with."""
    evidence: JsonValue
    """What justified it; null for a record without evidence of this form."""


def record_of(view: RecordView) -> LedgerRecord:
    """One record."""
    shown = view.to_map()
    own = {"partition", "position", "batch_no", "kind", "readable", "at", "tick", "evidence", "attempt"}
    return LedgerRecord.model_validate(
        {
            **{name: shown[name] for name in ("partition", "position", "batch_no", "kind", "readable", "at")},
            "fields": {name: value for name, value in shown.items() if name not in own},
            "evidence": shown.get("evidence"),
        }
    )
