"""What jobs were asked to do, read for checking: an unreadable one is None here and a finding where it is looked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.canon import NotCanonical, decode
from detent.errors import DetentError, InvariantBroken
from detent.jobs.order import Order, read_order
from detent.kernel import Job
from detent.ledger.schema import SubmittedManifest, read_submitted
from detent.owner.content import Content, open_value
from detent.store.api import JobRow, RecordRow, StoreReader


def job_of(row: JobRow | None) -> Job | None:
    """The job in a row."""
    try:
        return None if row is None else Job.decode(row.body)
    except (NotCanonical, InvariantBroken, TypeError, ValueError):
        return None


def order_of(content: Content, job: Job) -> Order | None:
    """The order that a job's payload is; None also for a payload of another kind."""
    said = opened(content, job.payload_digest)
    try:
        return None if said is None else read_order(said)
    except (DetentError, TypeError):
        return None


def opened(content: Content, digest: bytes) -> Mapping[str, Any] | None:
    """The map in sealed content."""
    try:
        data = content.get(digest)
        said = None if data is None else open_value(data)
    except (DetentError, TypeError):
        return None
    return said if isinstance(said, dict) else None


def fields_of(record: RecordRow) -> Mapping[str, Any]:
    """The fields of a record."""
    return _map(record.body)


def created_ms(reader: StoreReader, job_id: str) -> int | None:
    """When a job's submitter signed its manifest, by the submitter's clock."""
    record = next(reader.records_of_job(job_id), None)
    signed = None if record is None or record.evidence is None else read_submitted(record.evidence)
    tick = _map(signed.body).get("created_tick") if isinstance(signed, SubmittedManifest) else None
    return tick if type(tick) is int else None


def _map(data: bytes) -> Mapping[str, Any]:
    try:
        said = decode(data)
    except NotCanonical:
        return {}
    return said if isinstance(said, dict) else {}
