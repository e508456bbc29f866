"""The ledger as one workspace sees it: every method takes the workspace, and what belongs to another does not exist.

Handlers get this and never a store reader (tests/rooms.py refuses that import in `serve/routes`), so a route cannot forget to
ask whose a row is. A row is looked at before anything that it names: a digest found in a foreign row is never followed.

For one thread. What takes several looks at the ledger looks at one moment of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from detent.canon import digest_text, json_decode_trusted, parse_digest
from detent.canon.merkle import consistency_path, inclusion_path, root_at
from detent.errors import DetentError, InvalidInput, StoreCorrupt
from detent.inspect.explain_job import explained
from detent.inspect.explain_run import explain_run
from detent.inspect.job_results import job_result
from detent.inspect.logs import AttemptLog, JobLog, attempts_in, attempts_of, job_log, job_times
from detent.inspect.run_changes import behind, changed_steps
from detent.inspect.run_history import difference, timeline_of_run
from detent.jobs.order import Order
from detent.jobs.status import Timeline, timeline
from detent.jobs.work import WorkFile, WorkReport, returned_files
from detent.kernel.records import OPERATED
from detent.owner.content import Content, order_of
from detent.owner.home import Home
from detent.owner.operating import opened
from detent.owner.recovery import tree_node
from detent.owner.views import (
    JobView,
    RecordView,
    RunView,
    Times,
    moves_of_job,
    records_of_run,
    timeline_of_job,
    view_of_run,
)
from detent.owner.wiring import Parts
from detent.runs.ordered.recorded import ordered_inputs
from detent.runs.record.identity import is_driven
from detent.runs.record.recorded_outcome import RecordedOutcome, recorded_outcome
from detent.runs.record.recorded_run import Live, RecordedRun, RecordedStep, report_of, value_of
from detent.serve.element_facts import ElementFacts, ElementsWanted, element_facts
from detent.serve.known_jobs import KnownJobs
from detent.serve.known_runs import KnownRuns
from detent.serve.listing import JobFilter, Place, RunFilter, Seen, jobs_listed, runs_listed
from detent.serve.own_rows import own_rows
from detent.serve.requesters import Starter, asked_for_job, asked_for_run
from detent.store.api import AnswerRow, BatchRow, JobRow, LedgerHead, RecordRow, RunRow, StoreReader
from detent.store.content import ContentFiles
from detent.workers.live_output import live_jobs, live_progress, live_since

SCANNED_MAX: Final = 2_000
"""Actions that one page looks at; with filters it may hold fewer than its limit and still have a next one."""
T = TypeVar("T")
KEPT_BYTES_MAX: Final = 8 * 1024
KEPT_PIECES_MAX: Final = 8
"""What is kept in memory of a job that has ended reads no more, and no larger pieces of content, than this."""
VALUE_BYTES_MAX: Final = 1024 * 1024
"""A value larger than this is left out of a job's answer."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known about one job at one moment."""

    view: JobView
    order: Order | None
    """What it was asked to do; None when that was erased."""
    report: WorkReport | None
    value: Any
    result: Mapping[str, Any] | None
    """The result of a platform job, without addresses of the store."""
    told: Timeline | None
    attempts: list[AttemptLog]
    waited_ms: int
    ran_ms: int


class _Noted(Content):
    """Content that notes what was read of it."""

    def __init__(self, reader: StoreReader, files: ContentFiles) -> None:
        super().__init__(reader, files)
        self.named: set[bytes] = set()
        self.small = True
        """Whether all that was asked for was there, and it was little."""

    def get(self, digest: bytes) -> bytes | None:
        """As the content has it."""
        data = super().get(digest)
        self.named.add(digest)
        self.small = (
            self.small and data is not None and len(data) <= KEPT_BYTES_MAX and len(self.named) <= KEPT_PIECES_MAX
        )
        return data


class Inclusion(NamedTuple):
    """That a batch is in a tree."""

    size: int
    root: bytes
    leaf: bytes
    path: list[bytes]


class Consistency(NamedTuple):
    """That a tree goes on from an earlier one."""

    first_root: bytes
    second_root: bytes
    path: list[bytes]


@dataclass(frozen=True, slots=True)
class Action:
    """What an operator did, as the ledger has it."""

    row: RecordRow
    body: dict[str, Any]
    evidence: dict[str, Any]
    at: str


class Actions(NamedTuple):
    """A page of actions, and the place behind which the next begins."""

    actions: list[Action]
    last: tuple[int, int, int] | None


class TenantReader:
    """Reads a home for the workspaces that it serves."""

    def __init__(self, home: Home, parts: Parts, known: KnownJobs[JobFacts], runs: KnownRuns) -> None:
        self._home, self._parts, self._known, self._runs = home, parts, known, runs
        self._reader = parts.read_ledger(home.ledger)
        self._files = home.content_files()
        self._times: tuple[int, Times] | None = None

    def close(self) -> None:
        """Let go of the ledger."""
        self._reader.close()

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def jobs(
        self, tenant: str, wanted: JobFilter, place: Place | None, limit: int
    ) -> tuple[list[JobView], Place | None]:
        """A page of jobs, and the place behind it."""
        return jobs_listed(self._reader, Seen(self._times_now(), self._known), tenant, wanted, place, limit)

    def jobs_of(self, tenant: str, job_ids: Sequence[str]) -> list[JobView]:
        """Those of these jobs that exist here, in the order in which they were asked for."""
        times = self._times_now()
        found = {row.job_id: row for row in self._reader.jobs_of(job_ids) if row.tenant_id == tenant}
        return [self._known.view(found[job_id], times) for job_id in dict.fromkeys(job_ids) if job_id in found]

    def job(self, tenant: str, job_id: str) -> JobView:
        """One job as it stands."""
        return self._known.view(_own_job(self._reader, tenant, job_id), self._times_now())

    def jobs_asked_by(self, tenant: str, job_ids: Sequence[str], principal_id: str) -> list[str]:
        """Those of these jobs that a principal submitted, alone or as part of a run."""
        with self._moment() as (reader, content):
            rows = [row for row in reader.jobs_of(job_ids) if row.tenant_id == tenant]
            return [row.job_id for row in rows if asked_for_job(reader, content, row) == principal_id]

    def progress(self) -> dict[str, tuple[float, str]]:
        """How far running tasks of all workspaces say they are, by job: for `live_topics`, which divides them."""
        return live_progress(self._home.path)

    def attempts(self, tenant: str, job_id: str) -> tuple[JobView, list[AttemptLog]]:
        """A job's attempts in order."""
        with self._moment() as (reader, content):
            view = self._known.view(_own_job(reader, tenant, job_id), self._times_at(reader))
            return view, list(attempts_of(reader, content, view))

    def detail(self, tenant: str, job_id: str) -> JobFacts:
        """Everything about a job that its answer has. Of a job that has ended it is kept, until a part of it is erased."""
        row = _own_job(self._reader, tenant, job_id)
        kept = self._known.ended(row, self._times_now())
        if kept is not None and not any(self._reader.is_erased(digest) for digest in kept.digests):
            return kept.facts
        with self._moment() as (reader, _):
            content = _Noted(reader, self._files)
            row = _own_job(reader, tenant, job_id)
            facts = self._facts(reader, content, row)
            if facts.view.job.terminal and content.small:
                self._known.keep(facts.view, content.named, facts)
            return facts

    def details(
        self, tenant: str, wanted: JobFilter, place: Place | None, limit: int
    ) -> tuple[list[JobFacts], Place | None]:
        """A page of jobs with everything about each, and the place behind it."""
        found, following = self.jobs(tenant, wanted, place, limit)
        return [self.detail(tenant, view.row.job_id) for view in found], following

    def _facts(self, reader: StoreReader, content: Content, row: JobRow) -> JobFacts:
        job_id, view = row.job_id, self._known.view(row, self._times_at(reader))
        records = moves_of_job(reader, view)
        attempts = list(attempts_in(reader, content, view, records, printed=False))
        since_ms = None if view.job.terminal else live_since(self._home.path).get(job_id)
        waited_ms, ran_ms = job_times(view, attempts, since_ms, self._parts.clock.wall_ms())
        report = report_of(reader, content, row)
        data = None if report is None else value_of(content, report)
        value = None if data is None or len(data) > VALUE_BYTES_MAX else json_decode_trusted(data)
        result = None
        if view.job.job_kind == "platform" and view.job.terminal:
            with suppress(DetentError):  # What was erased or is damaged is told by the content's own state.
                result = job_result(self._home, content, job_id).result
        bodies = [record.fields for record in records]
        told = timeline(bodies) if all(bodies) else None
        return JobFacts(view, order_of(content, row), report, value, result, told, attempts, waited_ms, ran_ms)

    def value(self, tenant: str, job_id: str) -> tuple[JobView, bytes | None]:
        """What a function returned, as it is stored; None when it returned nothing, or it is gone."""
        with self._moment() as (reader, content):
            row = _own_job(reader, tenant, job_id)
            report = report_of(reader, content, row)
            data = None if report is None or not report.ok else value_of(content, report)
            return self._known.view(row, self._times_at(reader)), data

    def log(self, tenant: str, job_id: str) -> JobLog:
        """What a job has printed so far, attempt by attempt, also while it runs."""
        with self._moment() as (reader, content):
            _own_job(reader, tenant, job_id)
            found = job_log(reader, content, job_id, live_jobs(self._home.path).get(job_id))
            assert found is not None
            return found

    def explain_job(self, tenant: str, job_id: str) -> dict[str, object]:
        """Why a job is where it is. Jobs of other workspaces are counted and never named."""
        with self._moment() as (reader, content):
            _own_job(reader, tenant, job_id)
            return explained(self._home, reader, content, job_id, tenant=tenant).to_map()

    def job_records(self, tenant: str, job_id: str) -> tuple[JobView, list[RecordView]]:
        """A job's records in order."""
        with self._moment() as (reader, content):
            view = self._known.view(_own_job(reader, tenant, job_id), self._times_at(reader))
            return view, timeline_of_job(reader, content, view)

    def artifacts(self, tenant: str, job_id: str) -> tuple[JobView, list[Mapping[str, Any]]]:
        """The files that a job made, as its signed result names them."""
        with self._moment() as (reader, content):
            view = self._known.view(_own_job(reader, tenant, job_id), self._times_at(reader))
            if view.job.job_kind == "platform":
                return view, job_result(self._home, content, job_id).artifacts
            report = report_of(reader, content, view.row)
            value = None if report is None or not report.ok else value_of(content, report)
            files = () if report is None else (*report.result.files, *returned_files(value))
            return view, [_file(job_id, number, file) for number, file in enumerate(files, 1)]

    def artifact(self, tenant: str, artifact_id: str) -> tuple[Mapping[str, Any], bytes | None]:
        """One file that a job made, with its bytes where the ledger itself holds them."""
        _, found = self.artifacts(tenant, artifact_id.rpartition(".")[0])
        for one in found:
            if one["artifact_id"] == artifact_id:
                return one, self._reader.content(parse_digest(str(one["digest"])))
        raise InvalidInput("the job has no such artifact", code="NOT_FOUND")

    def kept_answer(self, _tenant: str, scope: bytes) -> AnswerRow | None:
        """What a request under an idempotency key was answered; the scope of a key is made of its workspace."""
        return self._reader.answer(scope)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def runs(
        self, tenant: str, wanted: RunFilter, place: Place | None, limit: int
    ) -> tuple[list[tuple[RunView, Starter]], Place | None]:
        """A page of runs, newest first, each with who or what started it, and the place behind it."""
        with self._moment() as (reader, content):
            found, following = runs_listed(reader, self._times_at(reader), tenant, wanted, place, limit)
            starters = self._runs.starters(reader, content, (view.row for view in found))
            return list(zip(found, starters, strict=True)), following

    def run(self, tenant: str, run_id: str) -> RunView:
        """One run as it stands."""
        return view_of_run(_own_run(self._reader, tenant, run_id), self._times_now())

    def last_runs(self, tenant: str, prefixes: Sequence[str]) -> list[RunView | None]:
        """For each beginning of an id, the last run by id that has it."""
        with self._moment() as (reader, _):
            times = self._times_at(reader)
            rows = [reader.last_run_prefixed(tenant, prefix) for prefix in prefixes]
            return [None if row is None else view_of_run(row, times) for row in rows]

    def is_run_of(self, tenant: str, run_id: str, principal_id: str) -> bool:
        """Whether a principal started a run."""
        with self._moment() as (reader, content):
            return asked_for_run(content, _own_run(reader, tenant, run_id)) == principal_id

    def steps(
        self,
        tenant: str,
        run_id: str,
        since: str | None,
        asked: object,
        make: Callable[[RecordedRun, str, frozenset[str] | None], bytes],
    ) -> tuple[RunView, bytes | None]:
        """What ``make`` shows of a run's steps; None in place of it when what the run was started with is gone.

        It is told where the ledger stands, and which steps have changed behind a position; None for all of them.
        """
        with self._moment() as (reader, content):
            view = view_of_run(_own_run(reader, tenant, run_id), self._times_at(reader))
            run = self._recorded(reader, content, view)
            position, jobs = behind(reader, run_id, since)
            if run is None:
                return view, None
            if jobs is not None:
                return view, make(run, position, changed_steps(run, jobs))
            return view, self._runs.shown(run, asked, lambda whole: make(whole, position, None))

    def shown_run(
        self, tenant: str, run_id: str, asked: object, make: Callable[[RecordedRun], bytes]
    ) -> tuple[RunView, bytes | None]:
        """What ``make`` shows of a run, on this thread and not on the HTTP loop; None when what it was started with is gone."""
        view, run = self.recorded(tenant, run_id)
        return view, None if run is None else self._runs.shown(run, asked, make)

    def recorded(self, tenant: str, run_id: str) -> tuple[RunView, RecordedRun | None]:
        """A run with its steps; None in place of them when what it was started with is gone."""
        with self._moment() as (reader, content):
            view = view_of_run(_own_run(reader, tenant, run_id), self._times_at(reader))
            return view, self._recorded(reader, content, view)

    def elements(
        self, tenant: str, run_id: str, wanted: ElementsWanted
    ) -> tuple[RecordedStep | None, list[ElementFacts]]:
        """A step of a run with its elements; None when what the run was started with is gone."""
        with self._moment() as (reader, content):
            times = self._times_at(reader)
            view = view_of_run(_own_run(reader, tenant, run_id), times)
            run = self._recorded(reader, content, view)
            if run is None:
                return None, []
            step = run.step(wanted.step)
            if step is None:
                raise InvalidInput(
                    "the run has no such step", code="NOT_FOUND", hint="`GET /v1/runs/RUN/steps` lists them"
                )
            return step, element_facts(reader, content, times, tenant, step, wanted)

    def outcome(
        self, tenant: str, run_id: str, make: Callable[[RecordedOutcome], bytes]
    ) -> tuple[RunView, bytes | None]:
        """What ``make`` shows of what a run left behind; None in place of that when what it was started with is gone."""
        with self._moment() as (reader, content):
            view = view_of_run(_own_run(reader, tenant, run_id), self._times_at(reader))
            run = self._recorded(reader, content, view)
            if run is None:
                return view, None

            def made(whole: RecordedRun) -> bytes:
                return make(recorded_outcome(own_rows(reader, tenant), content, self._home.content_files(), whole))

            return view, self._runs.shown(run, "outcome", made)

    def timeline(self, tenant: str, run_id: str, since: str | None = None) -> tuple[RunView, dict[str, Any] | None]:
        """The attempts of a run as columns, of jobs that changed behind a position; None in place of them when its inputs are gone."""
        with self._moment() as (reader, content):
            view, times = view_of_run(_own_run(reader, tenant, run_id), self._times_at(reader)), self._times_at(reader)
            run = self._recorded(reader, content, view)
            position, jobs = behind(reader, run_id, since)
            if run is None:
                return view, None
            return view, {**timeline_of_run(reader, content, run, times, jobs), "position": position}

    def run_records(self, tenant: str, run_id: str, behind: tuple[int, int], limit: int) -> list[RecordView]:
        """A run's records behind a partition and position, in that order."""
        with self._moment() as (reader, content):
            view = view_of_run(_own_run(reader, tenant, run_id), self._times_at(reader))
            return records_of_run(reader, content, view, behind, limit)

    def difference(self, tenant: str, first: str, second: str) -> dict[str, Any] | None:
        """What differs between two runs; None when what one of them was started with is gone. A map is refused."""
        with self._moment() as (reader, content):
            times = self._times_at(reader)
            views = [view_of_run(_own_run(reader, tenant, run_id), times) for run_id in (first, second)]
            runs = [self._recorded(reader, content, view) for view in views]
            for view, run in zip(views, runs, strict=True):
                if run is None and ordered_inputs(content, view.run) is not None:
                    raise InvalidInput(
                        f"run {view.row.run_id} is a map: it has no steps to compare",
                        code="NO_STEPS",
                        hint="compare two runs of a contract; GET /v1/jobs?run= lists the jobs of a map",
                    )
            if runs[0] is None or runs[1] is None:
                return None
            return difference(reader, content, runs[0], runs[1])

    def explain_run(self, tenant: str, run_id: str, step: str | None) -> dict[str, object]:
        """Why each step of a run is where it is."""
        with self._moment() as (reader, content):
            _own_run(reader, tenant, run_id)
            driven = is_driven(self._home.path, run_id)
            return explain_run(reader, content, run_id, step, driven=driven).to_map()

    # -- pages ---------------------------------------------------------------------------------------------------------

    def page(self, tenant: str, make: Callable[[Home, StoreReader], T]) -> T:
        """What a command tells, read by a reader that finds the rows of this workspace alone."""
        with self._moment() as (reader, _):
            return make(self._home, own_rows(reader, tenant))

    # -- the ledger ----------------------------------------------------------------------------------------------------

    def ledger_head(self, _tenant: str, partition: int) -> tuple[LedgerHead, str | None]:
        """Where a partition's log stands, and its newest signed tree head."""
        self._check_partition(partition)
        newest = next(iter(self._reader.tree_heads(partition)), None)
        return self._reader.head(partition), None if newest is None else newest.note

    def inclusion(self, _tenant: str, partition: int, batch_no: int, size: int | None) -> Inclusion:
        """The proof that a batch is in the tree of the first ``size`` batches; of the newest signed head, where none is given."""
        self._check_partition(partition)
        with self._moment() as (reader, _):
            size = self._size(reader, partition, size)
            batch = reader.batch(partition, batch_no)
            if batch is None or batch_no >= size:
                raise InvalidInput(f"batch {batch_no} is not among the first {size}", code="NOT_FOUND")
            node = partial(tree_node, reader, partition)
            return Inclusion(size, root_at(size, node), batch.leaf_hash, inclusion_path(batch_no, size, node))

    def consistency(self, _tenant: str, partition: int, first: int, second: int) -> Consistency:
        """The proof that the first ``second`` batches go on from the first ``first`` unchanged."""
        self._check_partition(partition)
        with self._moment() as (reader, _):
            if not 1 <= first <= second <= reader.head(partition).size:
                raise InvalidInput(
                    f"the ledger has {reader.head(partition).size} batches: `from` and `to` are in that range, in order",
                    code="NOT_FOUND",
                )
            node = partial(tree_node, reader, partition)
            roots = root_at(first, node), root_at(second, node)
            return Consistency(*roots, consistency_path(first, second, node))

    def _size(self, reader: StoreReader, partition: int, size: int | None) -> int:
        if size is not None:
            return min(size, reader.head(partition).size)
        newest = next(iter(reader.tree_heads(partition)), None)
        return reader.head(partition).size if newest is None else newest.size

    def _check_partition(self, partition: int) -> None:
        if not 0 <= partition < self._reader.partitions:
            raise InvalidInput(f"the ledger has no partition {partition}", code="NOT_FOUND")

    # -- what operators did --------------------------------------------------------------------------------------------

    def actions(
        self,
        tenant: str | None,
        places: Sequence[tuple[int, int, int]],
        limit: int,
        wanted: Callable[[dict[str, Any], int], bool],
    ) -> Actions:
        """Those of these places, newest first, that are wanted; the records themselves say whose they are."""
        times, found = self._times_now(), list[Action]()
        full = len(places) >= SCANNED_MAX
        for count, place in enumerate(places, 1):
            action = self._action(place[1], place[2], times)
            if action is not None and action.body["tenant_id"] == tenant and wanted(action.body, times.ms(place[0])):
                found.append(action)
            if len(found) >= limit:
                return Actions(found, place if full or count < len(places) else None)
        return Actions(found, places[-1] if full else None)

    def action(
        self, tenants: Sequence[str | None], partition: int, position: int
    ) -> tuple[Action, BatchRow, Inclusion]:
        """One action of these tenants (None: of the whole server), with its batch and the proof that the batch is in the tree."""
        found = self._action(partition, position, self._times_now()) if partition < self._reader.partitions else None
        if found is None or found.body["tenant_id"] not in tenants:
            raise InvalidInput("there is no such action here", code="NOT_FOUND", hint="GET /v1/audit lists them")
        batch = self._reader.batch(partition, found.row.batch_no)
        if batch is None:
            raise StoreCorrupt(f"batch {found.row.batch_no} of a record is missing")
        size = self._reader.head(partition).size
        return found, batch, self.inclusion("", partition, found.row.batch_no, size)

    def _action(self, partition: int, position: int, times: Times) -> Action | None:
        row = next(iter(self._reader.records(partition, position, position + 1)), None)
        body, evidence = opened(row) if row is not None and row.kind == OPERATED else ({}, {})
        return None if row is None or not body else Action(row, body, evidence, times.iso(body["tick"]))

    # -- events --------------------------------------------------------------------------------------------------------

    def positions(self) -> list[int]:
        """The next position of each partition: where the log ends now."""
        return [self._reader.head(partition).next_position for partition in range(self._reader.partitions)]

    def counts(self) -> tuple[list[int], dict[tuple[str, str], int], dict[tuple[str, str], int]]:
        """Jobs by tenant and state and runs by tenant and status, with the positions at which that holds. Reads all of them."""
        with self._moment() as (reader, _):
            positions = [reader.head(partition).next_position for partition in range(reader.partitions)]
            return positions, *reader.tenant_counts()

    def operated(self, positions: Sequence[int]) -> tuple[Times, list[RecordRow]]:
        """Every action of an operator before these positions, of all tenants, for `access`, which divides them."""
        found = [
            row
            for partition, stop in enumerate(positions)
            for row in self._reader.records_of_kind(partition, OPERATED)
            if row.position < stop
        ]
        return self._times_now(), found

    def tenants_of_runs(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Whose runs these are."""
        found = (self._reader.run(run_id) for run_id in run_ids)
        return {row.run_id: row.tenant_id for row in found if row is not None}

    def happened(self, partition: int, first: int, stop: int) -> tuple[Times, list[RecordRow]]:
        """The records of all tenants from a position up to another, oldest first, and when ticks are: for `events`, which divides them."""
        return self._times_now(), list(self._reader.records(partition, first, stop))

    def moments(self, ticks: Iterable[int]) -> dict[int, str]:
        """When ticks were."""
        times = self._times_now()
        return {tick: times.iso(tick) for tick in ticks}

    # -- inside --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _moment(self) -> Iterator[tuple[StoreReader, Content]]:
        """The ledger at one moment, with the content that it names."""
        with self._reader.snapshot() as reader:
            yield reader, Content(reader, self._files)

    def _recorded(self, reader: StoreReader, content: Content, view: RunView) -> RecordedRun | None:
        """A run with its steps as they stand now; None in place of them when what it was started with is gone."""
        live = Live(live_since(self._home.path), self._parts.clock.wall_ms())
        return self._runs.recorded(reader, content, view, live)

    def _times_now(self) -> Times:
        return self._times_at(self._reader)

    def _times_at(self, reader: StoreReader) -> Times:
        """How ticks are written as time. Every owner records it anew, so it is read once for each."""
        epoch = reader.head(0).epoch
        if self._times is None or self._times[0] != epoch:
            self._times = (epoch, Times.of(reader))
        return self._times[1]


def _file(job_id: str, number: int, file: WorkFile) -> dict[str, Any]:
    """A file of a function or command, in the words of artifacts."""
    return {
        "artifact_id": f"{job_id}.{number}",
        "kind": "file",
        "format": file.name.rpartition(".")[2] if "." in file.name else "",
        "digest": digest_text(file.digest),
        "size_bytes": file.size_bytes,
        "content_type": file.content_type,
        "metadata": {"name": file.name, "output": file.output},
    }


def _own_job(reader: StoreReader, tenant: str, job_id: str) -> JobRow:
    row = reader.job(job_id)
    if row is None or row.tenant_id != tenant:
        raise InvalidInput(
            "there is no such job in this workspace", code="UNKNOWN_JOB", hint="GET /v1/jobs lists the jobs"
        )
    return row


def _own_run(reader: StoreReader, tenant: str, run_id: str) -> RunRow:
    row = reader.run(run_id)
    if row is None or row.tenant_id != tenant:
        raise InvalidInput(
            "there is no such run in this workspace", code="UNKNOWN_RUN", hint="GET /v1/runs lists the runs"
        )
    return row
