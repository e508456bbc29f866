"""What content belongs to a job or a run, and which other jobs and runs name it too.

A job's own content is its payload and its reports. Inside them stand the digests of more: values and streams too large for a
report, files, items of an ordered run. All of it goes with the job, unless another job or run names it as well: then it is that
one's content, too, and stays. A payload that was given the result of an erased job names that job's report; the report goes all
the same once the other job has ended, because the name in a payload is a reference and not a copy.

Everything is found by reading the whole ledger and the content that it names, once. Erasing is rare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import chain

from detent.canon import decode
from detent.canon.late import NamedTuple, dataclass
from detent.errors import StoreCorrupt
from detent.kernel import Evidence, Job, Run
from detent.kernel.table import TERMINAL
from detent.owner.content import Content, scheduled_inputs
from detent.store.api import RecordRow, RunRow, StoreReader

PAYLOAD, REPORT, INPUTS, INNER = "payload", "report", "inputs", "file, value or output"


@dataclass(frozen=True, slots=True)
class Holders:
    """Who else names some content."""

    stays: Mapping[bytes, str] = field(default_factory=dict)
    """By digest: the job or run for whose sake it stays."""
    theirs: frozenset[bytes] = frozenset()
    """What is named, but is another job's own payload or report: it was never part of this."""
    used_by: tuple[str, ...] = ()
    """Ended jobs that were given a result which goes: what they made of it is theirs."""


def digests_of_job(reader: StoreReader, job_id: str) -> Iterator[bytes]:
    """Every digest of content that a job and its evidence name, the payload first."""
    row = reader.job(job_id)
    if row is not None:
        yield Job.decode(row.body).payload_digest
    for record in reader.records_of_job(job_id):
        if (detail := _report_in(record)) is not None:
            yield detail


def content_of_jobs(content: Content, job_ids: Iterable[str]) -> dict[bytes, str]:
    """The content of jobs, each piece by its digest with what it is; only what their records and own content name."""
    found: dict[bytes, str] = {}
    for job_id in job_ids:
        for place, digest in enumerate(digests_of_job(content.reader, job_id)):
            found[digest] = REPORT if place else PAYLOAD
    return found | _inner(content, found)


def content_of_run(content: Content, run: Run) -> dict[bytes, str]:
    """The content of a run beside that of its jobs: what it was started with, and what it noted of reused results."""
    found = {run.inputs_digest: INPUTS}
    for record in content.reader.records_of_run(run.run_id):
        if (digest := _ingredients_in(record)) is not None:
            found[digest] = INPUTS
    return found | _inner(content, found)


def holders(content: Content, wanted: Mapping[bytes, str], jobs: frozenset[str], runs: frozenset[str]) -> Holders:
    """Which of some content is named by jobs and runs other than these."""
    stays: dict[bytes, str] = {}
    theirs: set[bytes] = set()
    used_by: dict[str, None] = {}
    for named in chain(_by_jobs(content, jobs), _by_records(content, jobs, runs), _by_runs(content, runs)):
        if (what := wanted.get(named.digest)) is None:
            continue
        if named.own and what == INNER:
            theirs.add(named.digest)
        elif named.own or what == INNER:
            stays.setdefault(named.digest, named.holder)
        elif named.is_live:
            stays.setdefault(named.digest, f"{named.holder}, which has not ended and is given it")
        elif named.job_id is not None:
            used_by[named.job_id] = None
    return Holders(
        {digest: holder for digest, holder in stays.items() if digest not in theirs}, frozenset(theirs), tuple(used_by)
    )


def ordered_runs_of(content: Content, parent: RunRow) -> list[RunRow]:
    """The ordered runs that were made for map steps of a run, and for no other run."""
    from detent.runs.ordered.recorded import is_step_of, ordered_inputs  # noqa: PLC0415 - ordered runs take time to load

    reader, found = content.reader, []
    rows = list(reader.runs())
    others = [row.run_id for row in rows if row.name == parent.name and row.run_id != parent.run_id]
    for row in rows:
        run = Run.decode(row.body) if row.name.startswith(f"{parent.name}/") else None
        began = None if run is None else ordered_inputs(content, run)
        if run is None or began is None or not is_step_of(reader, run, began, parent.run_id):
            continue
        if not any(is_step_of(reader, run, began, other) for other in others):
            found.append(row)
    return found


def _inner(content: Content, own: Mapping[bytes, str]) -> dict[bytes, str]:
    """What own content names further in, as far as it is stored here."""
    named = {digest for each in own for digest in _named_by(content, each)}
    return {digest: INNER for digest in sorted(named) if digest not in own and content.has(digest)}


class _Named(NamedTuple):
    """One digest, and what names it."""

    digest: bytes
    holder: str
    own: bool
    """It is the holder's own payload, report or inputs, and not merely named in one."""
    job_id: str | None = None
    is_live: bool = False


def _by_jobs(content: Content, jobs: frozenset[str]) -> Iterator[_Named]:
    for row in content.reader.jobs():
        if row.job_id not in jobs:
            holder, payload = f"job {row.job_id}", Job.decode(row.body).payload_digest
            yield _Named(payload, holder, own=True)
            for digest in _named_by(content, payload):
                yield _Named(digest, holder, own=False, job_id=row.job_id, is_live=row.state not in TERMINAL)


def _by_records(content: Content, jobs: frozenset[str], runs: frozenset[str]) -> Iterator[_Named]:
    for partition in range(content.reader.partitions):
        for record in content.reader.records(partition):
            if record.job_id is not None and record.job_id not in jobs and (report := _report_in(record)) is not None:
                yield _Named(report, f"job {record.job_id}", own=True)
                yield from (_Named(each, f"job {record.job_id}", own=False) for each in _named_by(content, report))
            elif record.run_id not in runs and (ingredients := _ingredients_in(record)) is not None:
                yield _Named(ingredients, f"run {record.run_id}", own=True)
            elif (inputs := scheduled_inputs(record)) is not None:
                holder = f"a schedule made at position {record.position}"
                yield _Named(inputs, holder, own=True)
                yield from (_Named(each, holder, own=False) for each in _named_by(content, inputs))


def _by_runs(content: Content, runs: frozenset[str]) -> Iterator[_Named]:
    for row in content.reader.runs():
        if row.run_id not in runs:
            inputs = Run.decode(row.body).inputs_digest
            yield _Named(inputs, f"run {row.run_id}", own=True)
            yield from (_Named(each, f"run {row.run_id}", own=False) for each in _named_by(content, inputs))


def _report_in(record: RecordRow) -> bytes | None:
    if record.kind != "transition" or record.evidence is None:
        return None
    evidence = Evidence.decode(record.evidence)
    return None if evidence.names_decision else evidence.detail_digest


def _ingredients_in(record: RecordRow) -> bytes | None:
    body = decode(record.body) if record.kind in {"step_reused", "run_reused"} else None
    found = body.get("ingredients_digest") if isinstance(body, dict) else None
    return found if isinstance(found, bytes) else None


def _named_by(content: Content, digest: bytes) -> Iterator[bytes]:
    """Damaged content names nothing any more: it must not be in the way of an erasure."""
    try:
        yield from content.named_by(digest)
    except StoreCorrupt:
        return
