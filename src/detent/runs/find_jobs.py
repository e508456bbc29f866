"""Which jobs a user means: by job, by run, by a step's name, by a workflow's, or by the beginning of an id.

Steps are not on the ledger; their names are in the orders of the jobs, so a step is looked for in the newest runs only,
unless the run is named too. A step that has no job yet is found in the contract that its run was started with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Final

from detent.canon.late import dataclass, pattern
from detent.errors import InvalidInput
from detent.jobs.elements import element_id, split_element_id
from detent.kernel import Job, Run
from detent.kernel.run import RUNNING
from detent.owner.content import Content, order_of
from detent.runs.record.reuses import Reuses
from detent.store.api import JobRow, RunRow, StoreReader

RUNS_SEARCHED_MAX: Final = 20
"""Newest runs in which a step is looked for."""
PREFIX_MIN: Final = 4
"""Characters of an id that stand for all of it, where no other id begins so."""
NEAR_MAX: Final = 3
NAMES_COMPARED_MAX: Final = 2_000
_LAST_CHARACTER: Final = "\U0010ffff"
_UUID: Final = pattern(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
JOB, RUN, STEP = "job", "run", "step"
NEWEST, OPEN, ONLY = "newest", "open", "only"
"""Which run the name of a workflow stands for: the newest; the only open one, or the newest when all have ended; the only one."""


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job with what it is called by people."""

    job_id: str
    step: str
    """Key of its step or name of its task; empty when it says neither."""
    index: int | None = None
    reused: bool = False
    """Whether it belongs to an earlier run, whose result was taken over."""
    element: int | None = None
    """Which element of the job is meant; None: the job itself."""
    elements: int = 0
    """How many elements the job has, if it is an array."""

    @property
    def label(self) -> str:
        """``extract[3]``; the job's id when it has no other name."""
        if not self.step:
            return self.name
        return self.step if self.index is None else f"{self.step}[{self.index}]"

    @property
    def name(self) -> str:
        """The id of the job, or of the element of it."""
        return element_id(self.job_id, self.element)


@dataclass(frozen=True, slots=True)
class Found:
    """What an identifier stands for."""

    kind: str
    """``job``, ``run`` or ``step``."""
    run_id: str | None
    jobs: tuple[FoundJob, ...]
    """Of a step that has not begun there are none."""
    step: str | None = None
    """The key of the step that is meant."""


def find_jobs(
    reader: StoreReader, content: Content, identifier: str, run_id: str | None = None, *, named: str = NEWEST
) -> Found:
    """What an identifier stands for, in one run if that is named. Raises `InvalidInput` with the nearest names.

    ``named``: which run the name of a workflow stands for. Commands that change something ask for the only one; they take no
    steps, so for them a workflow's name goes before a step's.
    """
    if run_id is not None:
        run_id = the_run(reader, run_id).run_id
    row = reader.job(identifier)
    if row is not None and run_id in {None, row.run_id}:
        return Found(JOB, row.run_id, (_found(content, row),))
    if run_id is None and reader.run(identifier) is not None:
        return Found(RUN, identifier, tuple(members(reader, content, identifier)))
    if (element := _element(reader, content, identifier)) is not None:
        return element
    if named != NEWEST and run_id is None and (row_named := _of_name(reader, identifier, named)) is not None:
        return Found(RUN, row_named.run_id, tuple(members(reader, content, row_named.run_id)))
    known: dict[str, None] = {}
    runs = [the_run(reader, run_id)] if run_id is not None else list(islice(reader.runs(), RUNS_SEARCHED_MAX))
    for place, each in enumerate(runs):
        # Reading a contract takes a while, so that of an old run that has ended is not looked at.
        read = place == 0 or each.ended_tick is None
        jobs = tuple(members(reader, content, each.run_id, renamed=read))
        if matching := tuple(job for job in jobs if job.step == identifier):
            return Found(STEP, each.run_id, matching, identifier)
        known |= dict.fromkeys(job.step for job in jobs if job.step)
        planned = _planned(content, each).values() if read else ()
        if identifier in planned:
            return Found(STEP, each.run_id, (), identifier)
        known |= dict.fromkeys(planned)
    if (traced := next(correlated(reader, content, identifier, run_id), None)) is not None:
        return traced
    if run_id is None and (newest := _of_name(reader, identifier)) is not None:
        return Found(RUN, newest.run_id, tuple(members(reader, content, newest.run_id)))
    return _by_beginning(reader, content, identifier, run_id, known)


def _element(reader: StoreReader, content: Content, identifier: str) -> Found | None:
    """The element that an id stands for, of which the job's part may be a beginning; None for any other id."""
    named = split_element_id(identifier)
    if named is None:
        return None
    job_id, place = named
    rows = [reader.job(job_id)]
    if rows == [None] and len(job_id) >= PREFIX_MIN:
        rows = [row for row in reader.jobs(after=job_id, limit=2) if row.job_id.startswith(job_id)]
    row = rows[0] if len(rows) == 1 else None
    order = None if row is None else order_of(content, row)
    if row is None or order is None or not order.elements:
        return None
    if place >= len(order.elements):
        raise InvalidInput(
            f"job {row.job_id!r} has {len(order.elements)} elements, counted from 0: there is no element {place}",
            code="UNKNOWN_JOB",
            hint=f"`detent show {row.job_id}` lists them",
        )
    own = order.of_element(place)
    return Found(
        JOB, row.run_id, (FoundJob(row.job_id, own.origin.step or own.label, own.origin.index, element=place),)
    )


def insist_on_whole(found: Found, verb: str) -> None:
    """Refuse one element where a command is about whole jobs."""
    for job in found.jobs[:1]:
        if job.element is not None:
            raise InvalidInput(
                f"{job.name!r} is an element of job {job.job_id}, and a job is {verb} as a whole",
                hint=f"name the job: {job.job_id}",
            )


def correlated(
    reader: StoreReader, content: Content, correlation_id: str, run_id: str | None = None
) -> Iterator[Found]:
    """The steps that have a correlation id, each with its jobs, the newest run first (WF-065).

    Runs of one contract have their steps' ids in common, so each contract is read once, however many runs it had.
    """
    wanted = correlation_id.lower()
    if not _UUID.fullmatch(wanted):
        return
    keys: dict[bytes, str | None] = {}
    for row in [the_run(reader, run_id)] if run_id is not None else reader.runs():
        contract = Run.decode(row.body).contract_digest
        if contract not in keys:
            keys[contract] = _step_of(content, row, wanted)
        if (key := keys[contract]) is not None:
            jobs = tuple(job for job in members(reader, content, row.run_id) if job.step == key)
            yield Found(STEP, row.run_id, jobs, key)


def _step_of(content: Content, row: RunRow, correlation_id: str) -> str | None:
    """The key of the step with a correlation id in the contract that a run was started with."""
    from detent.runs.record.recorded_run import inputs_of  # noqa: PLC0415 - which reads runs with the help of this module

    inputs = inputs_of(content, Run.decode(row.body))
    steps = () if inputs is None else inputs.contract.plain_steps
    found = next((step.step_id for step in steps if str(step.correlation_id) == correlation_id), None)
    return None if found is None or inputs is None else inputs.contract.keys[found]


def members(reader: StoreReader, content: Content, run_id: str, *, renamed: bool = True) -> Iterator[FoundJob]:
    """The jobs of a run in the order they were submitted, those first that it took over from earlier runs.

    What was taken over is called as this run calls it, which its contract says, and without ``renamed`` as the run that did
    the work called it: nearly always the same.
    """
    row = reader.run(run_id)
    keys: Mapping[str, str] | None = None if renamed and row is not None else {}
    reuses = Reuses(reader, run_id, partial(order_of, content))
    yield from _as_submitted(_found_at(content, taken, reused=True) for taken in reuses.with_run())
    for element, taken in reuses.steps.items():
        source = reader.job(taken.job_id)
        if source is None:
            continue
        if keys is None:
            keys = {} if row is None else _planned(content, row)
        found = _found(content, source, reused=True)
        if taken.element is not None:
            found = replace(found, job_id=element_id(source.job_id, taken.element), elements=0)
        step_id, _, index = element.partition("[")
        if step_id in keys:
            found = replace(found, step=keys[step_id], index=int(index.removesuffix("]")) if index else None)
        yield found
    yield from _as_submitted(_found_at(content, row) for row in reader.jobs(run_id=run_id))


def _as_submitted(jobs: Iterable[tuple[int, FoundJob]]) -> list[FoundJob]:
    """Jobs in the order of their submission, those of one moment by their names."""
    return [job for _, job in sorted(jobs, key=lambda pair: (pair[0], pair[1].step, pair[1].index or 0))]


def _found_at(content: Content, row: JobRow, *, reused: bool = False) -> tuple[int, FoundJob]:
    """A job with its name and when it was submitted."""
    return Job.decode(row.body).submitted_tick, _found(content, row, reused=reused)


def found_job(reader: StoreReader, content: Content, job_id: str) -> FoundJob:
    """A job that is there, with its name."""
    row = reader.job(job_id)
    return FoundJob(job_id, "") if row is None else _found(content, row)


def named_job(content: Content, row: JobRow) -> FoundJob:
    """A job with what people call it."""
    return _found(content, row)


def _found(content: Content, row: JobRow, *, reused: bool = False) -> FoundJob:
    order = order_of(content, row)
    if order is None:
        return FoundJob(row.job_id, "", None, reused)
    name = order.origin.step or order.label
    return FoundJob(row.job_id, name, order.origin.index, reused, elements=len(order.elements))


def _planned(content: Content, row: RunRow) -> dict[str, str]:
    """The keys of the steps that a run was started with, by id; none when that is gone, or when it has no steps."""
    from detent.runs.record.recorded_run import inputs_of  # noqa: PLC0415 - which reads runs with the help of this module

    inputs = inputs_of(content, Run.decode(row.body))
    return {} if inputs is None else {str(step_id): key for step_id, key in inputs.contract.keys.items()}


def _of_name(reader: StoreReader, name: str, which: str = NEWEST) -> RunRow | None:
    """The run that the name of a workflow stands for; None when no run has it, an error when more than one could be meant."""
    newest = next((row for row in reader.runs() if row.name == name), None)
    if newest is None or which == NEWEST:
        return newest
    runs = reader.runs(status=RUNNING) if which == OPEN else reader.runs()
    meant = [row.run_id for row in runs if row.name == name]
    if len(meant) > 1:
        more = f" and {len(meant) - NEAR_MAX} more" if len(meant) > NEAR_MAX else ""
        raise InvalidInput(
            f"{len(meant)} {'open ' if which == OPEN else ''}runs are named {name!r}",
            hint=f"write the id of the one you mean, newest first: {', '.join(meant[:NEAR_MAX])}{more}",
        )
    return newest if which == OPEN and not meant else reader.run(meant[0])


def _by_beginning(
    reader: StoreReader, content: Content, identifier: str, run_id: str | None, known: dict[str, None]
) -> Found:
    jobs: list[JobRow] = []
    runs: list[RunRow] = []
    if len(identifier) >= PREFIX_MIN:
        # Ids that begin so follow the beginning itself in the order of ids; two are enough to see that it is not clear.
        jobs = [
            row for row in reader.jobs(run_id=run_id, after=identifier, limit=2) if row.job_id.startswith(identifier)
        ]
        runs = [row for row in reader.runs() if row.run_id.startswith(identifier)] if run_id is None else []
        if len(runs) == 1:
            # A prefix of a run's id does not mean one of its jobs, whose ids begin with it, too.
            own = f"{runs[0].run_id}/"
            after = own + _LAST_CHARACTER if any(row.job_id.startswith(own) for row in jobs) else identifier
            jobs = [row for row in reader.jobs(after=after, limit=2) if row.job_id.startswith(identifier)]
            jobs = [row for row in jobs if not row.job_id.startswith(own)]
    if len(jobs) + len(runs) == 1:
        if runs:
            return Found(RUN, runs[0].run_id, tuple(members(reader, content, runs[0].run_id)))
        return Found(JOB, jobs[0].run_id, (_found(content, jobs[0]),))
    if jobs or runs:
        names = [row.job_id for row in jobs] + [row.run_id for row in runs]
        raise InvalidInput(
            f"more than one id begins with {identifier!r}",
            hint=f"write more of it: {_listed(sorted(names)[:NEAR_MAX])}",
        )
    where = "" if run_id is None else f" in run {run_id!r}"
    names = list(known)
    names += [row.job_id for row in reader.jobs(run_id=run_id, limit=NAMES_COMPARED_MAX)]
    names += [row.run_id for row in reader.runs(limit=NAMES_COMPARED_MAX)] if run_id is None else []
    near = get_close_matches(identifier, names, NEAR_MAX)
    hint = f"did you mean {_listed(near)}?" if near else "`detent list` and `detent list --jobs` show all"
    if run_id is None and next(islice(reader.runs(), RUNS_SEARCHED_MAX, None), None) is not None:
        hint += f" Steps are looked for in the newest {RUNS_SEARCHED_MAX} runs."
    raise InvalidInput(f"there is no job, run or step {identifier!r}{where}", code="UNKNOWN_JOB", hint=hint)


def the_run(reader: StoreReader, run_id: str) -> RunRow:
    """The run that a user means: by its id, by its beginning, or by the workflow's name the newest one."""
    row = reader.run(run_id) or _of_name(reader, run_id)
    if row is not None:
        return row
    runs = list(reader.runs(limit=NAMES_COMPARED_MAX))
    begins = [run for run in runs if run.run_id.startswith(run_id)] if len(run_id) >= PREFIX_MIN else []
    if len(begins) == 1:
        return begins[0]
    near = get_close_matches(run_id, [run.run_id for run in runs], NEAR_MAX)
    hint = f"did you mean {_listed(near)}?" if near else "`detent list` shows the runs"
    raise InvalidInput(f"there is no run {run_id!r}", code="UNKNOWN_RUN", hint=hint)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + (" or " if len(names) > 1 else "") + names[-1]
