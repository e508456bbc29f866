"""What there is to see of runs and jobs, put together from the store for people and programs.

Everything here is read from the ledger's file and changes nothing; no owner is needed. Every view has `to_map`, the JSON
that `detent list` and `detent show` print: digests as ``sha256:…``, ticks also as ISO time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from detent.canon import NotCanonical, decode, digest_text, tick_to_iso
from detent.canon.late import dataclass
from detent.errors import DetentError, InvariantBroken, StoreCorrupt
from detent.kernel import Evidence, Job, KernelConfig, Run
from detent.kernel.records import OPERATED
from detent.owner.content import Content, open_value
from detent.owner.decision_records import find_decision
from detent.store.api import JobRow, RecordRow, RunRow, StoreReader
from detent.words.states import word_of

HERE, ERASED, ABSENT, DAMAGED = "here", "erased", "absent", "damaged"
"""Where content is: stored here, erased on purpose, never stored here, or damaged."""


@dataclass(frozen=True, slots=True)
class Times:
    """How this ledger's ticks are written as time."""

    tick_ms: int = 1
    epoch_base_ms: int = 0

    @classmethod
    def of(cls, reader: StoreReader) -> Times:
        """As the newest owner's recorded configuration says."""
        newest = None
        for record in reader.records_of_kind(0, "owner_epoch"):
            newest = record
        if newest is None or newest.evidence is None:
            return cls()
        try:
            config = KernelConfig.decode(newest.evidence)
        except DetentError:
            return cls()  # A damaged configuration is for `verify` to report; times are shown all the same.
        return cls(config.tick_ms, config.epoch_base_ms)

    def ms(self, tick: int) -> int:
        """The moment of a tick, in milliseconds since 1970."""
        return self.epoch_base_ms + tick * self.tick_ms

    def iso(self, tick: int) -> str:
        """The moment of a tick, in UTC."""
        return tick_to_iso(tick, self.tick_ms, self.epoch_base_ms)

    def to_map(self, name: str, tick: int | None) -> dict[str, object]:
        """A tick and its moment, under two names."""
        return {f"{name}_tick": tick, f"{name}_at": None if tick is None else self.iso(tick)}


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as its row says it stands."""

    row: RunRow
    run: Run
    times: Times

    def to_map(self) -> dict[str, object]:
        """One object of `detent list -o json`."""
        return {
            "run_id": self.row.run_id,
            "name": self.row.name,
            "status": word_of(self.row.status),
            "reason_code": self.run.reason_code,
            "tenant_id": self.row.tenant_id,
            "jobs": self.run.jobs,
            "live_jobs": self.run.live_jobs,
            "jobs_reused": self.run.steps_reused,  # Its record of a reuse is one for each element of a step.
            **self.times.to_map("started", self.row.started_tick),
            **self.times.to_map("ended", self.row.ended_tick),
        }


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as its row says it stands."""

    row: JobRow
    job: Job
    times: Times

    @property
    def attempt(self) -> int | None:
        """Which attempt it is in, counted from 1; None for a job that no worker ever had."""
        return self.row.attempt_id + 1 if self.job.ever_dispatched else None

    def to_map(self) -> dict[str, object]:
        """One object of `detent list --jobs -o json`."""
        return {
            "job_id": self.row.job_id,
            "run_id": self.row.run_id,
            "tenant_id": self.row.tenant_id,
            "state": word_of(self.row.state),
            "reason_code": self.job.reason_code,
            "attempt": self.attempt,
            "attempt_id": self.row.attempt_id,
            "transition_seq": self.row.transition_seq,
            "priority": self.job.priority,
            **self.times.to_map("submitted", self.job.submitted_tick),
            **self.times.to_map("changed", self.row.tick),
        }


@dataclass(frozen=True, slots=True)
class RecordView:
    """One record of the ledger in words."""

    row: RecordRow
    fields: dict[str, Any]
    """The body's fields; empty when the bytes cannot be read."""
    evidence: Evidence | None
    detail: str | None
    """Where the content that the evidence names is; None when it names none."""
    times: Times

    @property
    def tick(self) -> int | None:
        """When it happened."""
        tick = self.fields.get("tick")
        return tick if isinstance(tick, int) else None

    def to_map(self) -> dict[str, object]:
        """One object of a timeline."""
        shown: dict[str, object] = {
            "partition": self.row.partition,
            "position": self.row.position,
            "batch_no": self.row.batch_no,
            "kind": self.row.kind,
            "readable": bool(self.fields),
            "tick": self.tick,
            "at": None if self.tick is None else self.times.iso(self.tick),
        }
        for name in _SHOWN:
            if name in self.fields:
                shown[name] = plain(self.fields[name])
        if type(number := shown.get("attempt_id")) is int:
            shown["attempt"] = number + 1
        if self.evidence is not None:
            shown["evidence"] = {
                "kind": self.evidence.kind,
                "reason_code": self.evidence.reason_code,
                "replica_id": self.evidence.replica_id,
                "category": self.evidence.category,
                "detail_digest": plain(self.evidence.detail_digest),
                "detail": self.detail,
            }
        return shown

    def raw(self) -> dict[str, dict[str, Any]]:
        """The record as it is signed: every field of its body and of its evidence, under the contract's names."""
        evidence = {} if self.row.evidence is None else _decoded(self.row.evidence)
        if self.row.kind == "submitted" and isinstance(evidence.get("body"), bytes):
            evidence = {**evidence, "body": _decoded(evidence["body"])}  # The signed manifest.
        parts = {"body": self.fields, "evidence": evidence}
        return {part: {name: plain(value) for name, value in fields.items()} for part, fields in parts.items()}


_SHOWN = (
    "from_state",
    "to_state",
    "reason_code",
    "attempt_id",
    "transition_seq",
    "dispatch",
    "lease_id",
    "job_id",
    "run_id",
    "step_id",
    "name",
    "status",
    "job_count",
    "job_manifest_hash",
    "jobs_digest",
    "ingredients_digest",
    "reused_run_id",
    "except_steps",
    "principal_id",
    "credential_id",
    "action",
    "object_kind",
    "object_id",
    "outcome_code",
    "worker_id",
)
"""Fields of record bodies that a timeline repeats, in this order."""


def runs(reader: StoreReader, *, limit: int | None = None) -> Iterator[RunView]:
    """Runs, newest first."""
    times = Times.of(reader)
    for row in reader.runs(limit=limit):
        yield view_of_run(row, times)


def jobs(
    reader: StoreReader, *, run_id: str | None = None, state: str | None = None, limit: int | None = None
) -> Iterator[JobView]:
    """Jobs as they were submitted, newest first."""
    times = Times.of(reader)
    for row in reader.recent_jobs(run_id=run_id, state=state, limit=limit):
        yield view_of_job(row, times)


def steps_reused(reader: StoreReader, content: Content, view: RunView) -> int:
    """How many steps of a run took all of their results from before; one that ran a single element is not among them."""
    steps: dict[str, bytes] = {}
    elements: set[str] = set()
    of_run: dict[str, Any] = {}
    for row in reader.records_of_run(view.row.run_id) if view.run.steps_reused else ():
        fields = _fields(row) if row.kind in {"step_reused", "run_reused"} else {}
        if "reused_run_id" in fields:
            of_run = fields
        elif "step_id" in fields:
            elements.add(str(fields["step_id"]))
            steps.setdefault(str(fields["step_id"]).partition("[")[0], fields["ingredients_digest"])
    is_mapped = len(steps) < len(elements) or any(element.endswith("]") for element in elements)
    ran = reader.labels_of_run(view.row.run_id) if view.run.jobs and (is_mapped or of_run) else set()
    if is_mapped and ran:
        steps = {step: digest for step, digest in steps.items() if _label(content, digest) not in ran}
    if not of_run:
        return len(steps)
    earlier, listed = reader.labels_of_run(str(of_run["reused_run_id"])), of_run.get("except_steps")
    excepted = set(map(str, listed)) if isinstance(listed, list) else set()  # The record may be damaged.
    beside = sum(_label(content, digest) not in earlier for digest in steps.values())
    # Excepted steps of a run that has not ended, or has failed, may not have begun.
    unbegun = max(0, len(excepted - elements) - view.run.jobs)
    return max(0, len(earlier - ran) + beside - unbegun)


def _label(content: Content, digest: bytes) -> str | None:
    """What the record of a reuse calls the work; None when that was erased."""
    try:
        data = content.get(digest)
        said = None if data is None else open_value(data)
    except DetentError:
        return None
    return said.get("label") if isinstance(said, dict) else None


def run_view(reader: StoreReader, run_id: str) -> RunView | None:
    """One run, or None."""
    row = reader.run(run_id)
    if row is None:
        return None
    return view_of_run(row, Times.of(reader))


def job_view(reader: StoreReader, job_id: str) -> JobView | None:
    """One job, or None."""
    row = reader.job(job_id)
    if row is None:
        return None
    if not 0 <= row.partition < reader.partitions:
        raise StoreCorrupt(
            f"the row of job {job_id!r} is of partition {row.partition}, which the ledger does not have",
            hint="run `detent verify`, then restore the ledger from a backup",
        )
    return view_of_job(row, Times.of(reader))


def timeline_of_job(reader: StoreReader, content: Content, view: JobView) -> list[RecordView]:
    """A job's records in order: submitted, then every transition with why it happened."""
    return [_record_view(reader, content, row, view.times) for row in _rows_of_job(reader, view)]


def moves_of_job(reader: StoreReader, view: JobView) -> list[RecordView]:
    """The same without a look at the content that they name."""
    return [RecordView(row, *_read_record(row), None, view.times) for row in _rows_of_job(reader, view)]


def _rows_of_job(reader: StoreReader, view: JobView) -> Iterator[RecordRow]:
    return (row for row in reader.records_of_job(view.row.job_id) if row.partition == view.row.partition)


def timeline_of_run(reader: StoreReader, content: Content, view: RunView) -> list[RecordView]:
    """A run's own records in order: started, steps reused, ended."""
    rows = (row for row in reader.records_of_run(view.row.run_id) if row.kind != "submitted")
    return [_record_view(reader, content, row, view.times) for row in rows]


def records_of_run(
    reader: StoreReader, content: Content, view: RunView, behind: tuple[int, int], limit: int
) -> list[RecordView]:
    """A run's own records and the submissions of its jobs behind a partition and position, in that order."""
    found: list[RecordView] = []
    for row in reader.records_of_run(view.row.run_id):
        if (row.partition, row.position) <= behind:
            continue
        record = _record_view(reader, content, row, view.times)
        if record.fields.get("tenant_id", view.row.tenant_id) == view.row.tenant_id:
            found.append(record)
        if len(found) >= limit:
            break
    return found


def actions_on(reader: StoreReader, content: Content, view: JobView | RunView) -> list[RecordView]:
    """What operators asked for about a job or a run of their own workspace, in order."""
    kind, name = ("job", view.row.job_id) if isinstance(view, JobView) else ("run", view.row.run_id)
    needle, wanted = name.encode(), (kind, name, view.row.tenant_id)
    return [
        _record_view(reader, content, row, view.times)
        for partition in range(reader.partitions)
        for row in reader.records_of_kind(partition, OPERATED)
        if needle in row.body
        if tuple(_fields(row).get(field) for field in ("object_kind", "object_id", "tenant_id")) == wanted
    ]


def refusals_of_job(reader: StoreReader, job_id: str, *, limit: int) -> list[dict[str, Any]]:
    """The failure records of what was refused about a job, newest first; they are kept beside the signed history."""
    rows = reader.refusals(job_id=job_id, limit=limit)
    return [{name: plain(value) for name, value in _decoded(row.body).items()} for row in rows]


def state_counts(reader: StoreReader, run_id: str) -> dict[str, int]:
    """How many jobs of a run are in each state."""
    counts: dict[str, int] = {}
    for row in reader.jobs(run_id=run_id):
        word = word_of(row.state)
        counts[word] = counts.get(word, 0) + 1
    return dict(sorted(counts.items()))


def whereabouts(
    reader: StoreReader, content: Content, digest: bytes, decided: RecordRow | None = None
) -> tuple[str, int | None]:
    """Whether content is here, erased, absent or damaged, and how many bytes of it are here.

    ``decided`` is the record that names a decision, through which that is found.
    """
    try:
        data = content.get(digest) if decided is None else find_decision(reader, decided, digest)
    except StoreCorrupt:
        return DAMAGED, None
    if data is not None:
        return HERE, len(data)
    return (ERASED if reader.is_erased(digest) else ABSENT), None


def plain(value: object) -> object:
    """A field of a record as JSON has it: digests by their text, other bytes as hex."""
    if isinstance(value, bytes):
        return digest_text(value) if len(value) == 32 else value.hex()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


def view_of_run(row: RunRow, times: Times) -> RunView:
    """A run that was read already."""
    return RunView(row, _read(Run.decode, row.body, f"run {row.run_id!r}"), times)


def view_of_job(row: JobRow, times: Times) -> JobView:
    """A job that was read already."""
    return JobView(row, _read(Job.decode, row.body, f"job {row.job_id!r}"), times)


def quick_view_of_job(row: JobRow, times: Times) -> JobView:
    """The same for an answer to a request: the row is not encoded again to be compared, which `verify` does."""
    return JobView(row, _read(Job.read, row.body, f"job {row.job_id!r}"), times)


def _record_view(reader: StoreReader, content: Content, row: RecordRow, times: Times) -> RecordView:
    fields, evidence = _read_record(row)
    detail = None
    if evidence is not None and evidence.detail_digest is not None:
        detail, _ = whereabouts(reader, content, evidence.detail_digest, row if evidence.names_decision else None)
    return RecordView(row, fields, evidence, detail, times)


def _read_record(row: RecordRow) -> tuple[dict[str, Any], Evidence | None]:
    """A record's fields and why it happened; no fields when either cannot be read."""
    if row.kind != "transition" or row.evidence is None:
        return _fields(row), None
    try:
        return _fields(row), Evidence.decode(row.evidence)
    except DetentError:
        return {}, None


def _fields(row: RecordRow) -> dict[str, Any]:
    """The fields of a record's body; none when it cannot be read, which `verify` has more to say about."""
    return _decoded(row.body)


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        fields = decode(data)
    except NotCanonical:
        return {}
    return fields if isinstance(fields, dict) else {}


def _read(read: Any, body: bytes, what: str) -> Any:
    """Decode a stored row; one that cannot be read is damage, not a bug of ours."""
    try:
        return read(body)
    except (DetentError, InvariantBroken, TypeError, ValueError, RecursionError) as exc:
        raise StoreCorrupt(
            f"the stored row of {what} cannot be read: {exc}", hint="run `detent verify` to see what was changed"
        ) from exc
