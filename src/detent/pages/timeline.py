"""Records as a timeline: what each one says happened, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from detent.pages.sheet import Cell, Sheet, state_cell
from detent.pages.text import BAD, FAINT, short
from detent.words.quantities import count_text, time_text
from detent.words.states import SUCCEEDED, word_of

if TYPE_CHECKING:
    from detent.owner.views import RecordView


def draw_timeline(page: Sheet, records: list[RecordView], names: Mapping[str, str] | None = None) -> None:
    """A line for each record; ``names`` are those of steps, by their ids."""
    page.table(
        ("RECORD", "TIME (UTC)", "WHAT", "WHY"),
        [
            [
                str(record.row.position),
                Cell(time_text(record.times.iso(record.tick)) if record.tick is not None else "?", FAINT),
                _what(record),
                _why(record, names or {}),
            ]
            for record in records
        ],
    )


def _what(record: RecordView) -> Cell:
    fields = record.fields
    if not fields:
        return Cell(f"{record.row.kind}: unreadable", BAD)
    if record.row.kind == "transition":
        before, after = word_of(str(fields.get("from_state"))), state_cell(str(fields.get("to_state")))
        return Cell(f"{before} -> {after.text}", after.style)
    if record.row.kind == "operated":
        return Cell(f"operated: {fields.get('action')}")
    return Cell(record.row.kind.replace("_", " "))


def _taken(fields: Mapping[str, Any]) -> str:
    """What a run took of another one; the record may be damaged."""
    count, excepted = fields.get("steps_reused"), fields.get("except_steps")
    taken = f"{count_text(count, 'job') if type(count) is int else 'jobs'} of run {fields['reused_run_id']}"
    return taken + (f", {count_text(len(excepted), 'step')} excepted" if type(excepted) is list and excepted else "")


def _why(record: RecordView, names: Mapping[str, str]) -> str:
    if not record.fields:
        return "`detent verify` says what is wrong"
    evidence = record.evidence
    if record.row.kind == "operated":
        fields = record.fields
        return f"{fields.get('outcome_code')}, by {fields.get('principal_id')} ({fields.get('credential_id')})"
    if evidence is None:
        step, bracket, index = str(record.fields.get("step_id") or "").partition("[")
        if "reused_run_id" in record.fields:
            return _taken(record.fields)
        if step in names:
            return f"{names[step]}{bracket}{index} from job {record.fields.get('job_id')}"
        return str(word_of(str(record.fields.get("status") or "")) or record.fields.get("step_id") or "")
    succeeded = word_of(str(record.fields.get("to_state"))) == SUCCEEDED
    said = succeeded or evidence.reason_code.lower().startswith(evidence.kind)
    what = evidence.kind if said else f"{evidence.kind}: {evidence.reason_code}"
    if evidence.replica_id is not None:
        what += f" to {evidence.replica_id}" if evidence.kind == "dispatch" else f" by {evidence.replica_id}"
    words = [what]
    if evidence.category is not None:
        words.append(evidence.category)
    if record.detail is not None and evidence.detail_digest is not None:
        words.append(f"{short('sha256:' + evidence.detail_digest.hex(), 8)} {record.detail}")
    return ", ".join(words)
