"""Erasing content on purpose, and collecting what no record refers to any more.

An erasure is itself a fact: the ledger gets an `erased` record with the digests, the bytes leave the database in that same
commit, and the files after it. The other way round a crash could leave bytes gone and nothing that explains it. What a
crash leaves between the two, the next owner finishes (`Content.sweep`). When an erasure returns, the bytes are in no file of the
home: the database overwrites them, and its log is emptied.

Garbage collection writes no record: it takes away only what no record names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import field, replace
from pathlib import Path

from detent.canon import digest_text
from detent.canon.late import dataclass
from detent.errors import DetentError, InvalidInput, OutcomeUnknown, StoreCorrupt, StoreUnavailable
from detent.kernel import Command, Erase, Job, Run
from detent.kernel.manifest import PLATFORM
from detent.kernel.records import DIGESTS_PER_ERASED_MAX
from detent.kernel.run import RUNNING
from detent.kernel.table import TERMINAL, State
from detent.owner.content import GC_GRACE_MS, Content, unreferenced
from detent.owner.home import Home
from detent.owner.ledgers import held_ledger
from detent.owner.lock import held_alone
from detent.owner.operating import read_schedules
from detent.owner.session import Session
from detent.owner.views import Times
from detent.owner.wiring import Parts
from detent.runs.erasable import Holders, content_of_jobs, content_of_run, holders, ordered_runs_of
from detent.store.api import StoreReader
from detent.store.content import ContentFiles
from detent.store.sqlite.database import empty_wal
from detent.store.trees import old_trees, remove_tree
from detent.store.uploads import Uploads, uploads_kept
from detent.words.states import word_of

REASON = "ERASED_BY_USER"
SCHEDULE_DELETED = "SCHEDULE_DELETED"
"""Why what a schedule runs is erased."""
EXPIRED = "RETENTION_EXPIRED"
"""Why content is erased whose time in the home is over."""
ERASE_TRIES_MAX = 1_000
"""How often an erasure steps back behind others before it gives up."""
UNKNOWN_TRIES_MAX = 3
"""How often it is asked again when the outcome is unknown."""
LIVE = tuple(state.value for state in State if state not in TERMINAL)


@dataclass(frozen=True, slots=True)
class Erased:
    """What an erasure did, or would do."""

    erased: tuple[bytes, ...]
    """Digests whose bytes are gone and whose erasure is on the ledger now."""
    already: tuple[bytes, ...] = ()
    """Digests that had been erased before."""
    size_bytes: int = 0
    stays: Mapping[bytes, str] = field(default_factory=dict)
    """Digests left alone, each with the job or run that names it too."""
    what: Mapping[bytes, str] = field(default_factory=dict)
    """What each digest is: a payload, a report, inputs, or a file, value or output named in one of these."""
    used_by: tuple[str, ...] = ()
    """Jobs that were given an erased result; what they made of it is theirs, and stays."""
    jobs: int = 0
    """Jobs whose content it was."""
    in_log: bool = False
    """Whether a reader kept the old bytes in the database's log; they go when it lets go of them."""

    @property
    def shared(self) -> tuple[bytes, ...]:
        """Digests left alone because others name them too."""
        return tuple(self.stays)


@dataclass(frozen=True, slots=True)
class Collected:
    """What a garbage collection took away, or would take away."""

    garbage: tuple[tuple[bytes, str], ...]
    """(digest, place) of each piece of content that no record names; the place is ``database`` or ``file``."""
    size_bytes: int
    unfinished: int
    """Files that interrupted writes had left behind."""
    trees: tuple[str, ...] = ()
    """Source trees that no run, schedule or job names, by their digests."""


def erase(
    home: Home,
    digests: Sequence[bytes],
    *,
    environment: Mapping[str, str],
    parts: Parts | None = None,
    reason_code: str = REASON,
    dry_run: bool = False,
) -> Erased:
    """Erase content by digest, wherever it lies, and record it.

    Refuses digests that are not stored here and never were, and payloads of jobs that have not ended.
    """
    chosen = parts or Parts()
    with chosen.open_snapshot(home.ledger) as reader:
        already = tuple(digest for digest in digests if _is_gone(reader, home.content_files(), digest))
        wanted = tuple(dict.fromkeys(digest for digest in digests if digest not in already))
        sizes = {digest: _size(reader, home.content_files(), digest) for digest in wanted}
        for digest, size in sizes.items():
            if size is None:
                raise InvalidInput(
                    f"no content with the digest {digest_text(digest)} is stored here",
                    hint="`detent show JOB` names the digests of a job",
                )
        _refuse_live(reader, frozenset(wanted))
    planned = Erased(wanted, already, sum(size or 0 for size in sizes.values()))
    return planned if dry_run else _carried_out(planned, home, chosen, environment, reason_code)


def erase_job(
    home: Home,
    job_id: str,
    *,
    environment: Mapping[str, str],
    parts: Parts | None = None,
    reason_code: str = REASON,
    dry_run: bool = False,
    behind: Sequence[Command] = (),
) -> Erased:
    """Erase everything that one job names: its payload, its reports, and the values, streams and files named in them.

    Content that another job or run names as well stays, and is listed. Refuses a job that is not there or has not ended.
    ``behind`` are commands for the commit of the last erasure.
    """
    chosen = parts or Parts()
    with chosen.open_snapshot(home.ledger) as reader:
        row = reader.job(job_id)
        if row is None:
            raise InvalidInput(f"there is no job {job_id!r}", code="UNKNOWN_JOB", hint="`detent list --jobs`")
        if row.state not in TERMINAL:
            raise _still_needed(job_id, row.state)
        content = Content(reader, home.content_files())
        found = content_of_jobs(content, [job_id])
        planned = _planned(content, home, found, frozenset({job_id}), frozenset())
    return planned if dry_run else _carried_out(planned, home, chosen, environment, reason_code, behind)


def erase_scheduled(
    home: Home,
    inputs: bytes,
    *,
    environment: Mapping[str, str],
    parts: Parts | None = None,
    behind: Sequence[Command] = (),
) -> Erased:
    """Erase what a schedule runs, in the commit of ``behind``, which deletes it. Runs that it began keep inputs of their own."""
    chosen = parts or Parts()
    with chosen.open_snapshot(home.ledger) as reader:
        size = _size(reader, home.content_files(), inputs)
        here = size is not None and not _is_gone(reader, home.content_files(), inputs)
    planned = Erased((inputs,) if here else (), () if here else (inputs,), size or 0)
    return _carried_out(planned, home, chosen, environment, SCHEDULE_DELETED, behind)


def erase_expired(
    home: Home,
    *,
    environment: Mapping[str, str],
    parts: Parts | None = None,
    reason_code: str = EXPIRED,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    dry_run: bool = False,
) -> Erased:
    """Erase everything that platform jobs name whose retention is over: those that ended ``jobs.retention_ms`` ago or earlier.

    Content that another job or run names as well stays, and is listed. Refuses a home whose settings set no retention.
    """
    retention_ms = home.settings().retention_ms
    if retention_ms is None:
        raise InvalidInput(
            "the settings of this home set no retention for platform jobs",
            hint=f"write retention_ms under [jobs] in {home.settings().path}",
        )
    chosen, ended_by_ms = parts or Parts(), now_ms() - retention_ms
    with chosen.open_snapshot(home.ledger) as reader:
        times = Times.of(reader)
        jobs = [
            row.job_id
            for state in sorted(TERMINAL)
            for row in reader.jobs(state=state)
            if times.ms(row.tick) <= ended_by_ms and Job.decode(row.body).job_kind == PLATFORM
        ]
        content = Content(reader, home.content_files())
        planned = _planned(content, home, content_of_jobs(content, jobs), frozenset(jobs), frozenset())
    return planned if dry_run else _carried_out(planned, home, chosen, environment, reason_code)


def erase_run(
    home: Home,
    run_id: str,
    *,
    environment: Mapping[str, str],
    parts: Parts | None = None,
    reason_code: str = REASON,
    dry_run: bool = False,
) -> Erased:
    """Erase everything that one run names: what it was started with, the content of its jobs, and that of its ordered runs.

    Results that it took from earlier runs are theirs, and stay. Refuses a run that is not there or has not ended.
    """
    chosen = parts or Parts()
    with chosen.open_snapshot(home.ledger) as reader:
        row = reader.run(run_id)
        if row is None:
            raise InvalidInput(f"there is no run {run_id!r}", code="UNKNOWN_RUN", hint="`detent list` shows all")
        content = Content(reader, home.content_files())
        rows = [row, *ordered_runs_of(content, row)]
        jobs: list[str] = []
        found: dict[bytes, str] = {}
        for each in rows:
            if each.status == RUNNING:
                raise InvalidInput(
                    f"run {each.run_id!r} has not ended and still needs its content",
                    hint=f"wait until it has ended, or `detent cancel {each.run_id}` first",
                )
            jobs += [job.job_id for job in reader.jobs(run_id=each.run_id)]
            found |= content_of_run(content, Run.decode(each.body))
        found |= content_of_jobs(content, jobs)
        planned = _planned(content, home, found, frozenset(jobs), frozenset(each.run_id for each in rows))
    return planned if dry_run else _carried_out(planned, home, chosen, environment, reason_code)


def _planned(
    content: Content, home: Home, found: Mapping[bytes, str], jobs: frozenset[str], runs: frozenset[str]
) -> Erased:
    """What of some jobs' and runs' content goes, and what stays for whose sake."""
    reader, files = content.reader, home.content_files()
    already = tuple(digest for digest in found if _is_gone(reader, files, digest))
    sizes = {digest: _size(reader, files, digest) for digest in found if digest not in already}
    stored = {digest: size for digest, size in sizes.items() if size is not None}
    others = holders(content, {digest: found[digest] for digest in stored}, jobs, runs) if stored else Holders()
    wanted = tuple(digest for digest in stored if digest not in others.stays and digest not in others.theirs)
    return Erased(
        wanted,
        already,
        sum(stored[digest] for digest in wanted),
        {digest: others.stays[digest] for digest in stored if digest in others.stays},
        dict(found),
        others.used_by,
        len(jobs),
    )


def _carried_out(
    planned: Erased,
    home: Home,
    parts: Parts,
    environment: Mapping[str, str],
    reason_code: str,
    behind: Sequence[Command] = (),
) -> Erased:
    _record(home, planned.erased, parts, environment, reason_code, behind)
    return replace(planned, in_log=bool(planned.erased) and _in_log(home))


def _in_log(home: Home) -> bool:
    """Whether a file still holds what was overwritten; what PostgreSQL keeps until it vacuums is not told apart."""
    ledger = home.ledger
    return isinstance(ledger, Path) and not empty_wal(ledger)


def collect(
    home: Home,
    *,
    parts: Parts | None = None,
    grace_ms: int = GC_GRACE_MS,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    dry_run: bool = False,
) -> Collected:
    """Take away content that no record names; files only when they are older than the grace.

    A file is written before the record that names it, so a young file without a record may be on its way. Needs the home
    for itself, because it changes the database. Files go first, without opening it for writing: on a full disk that may be what
    makes room for a change of the database. `StoreUnavailable` if that cannot be changed even so.
    """

    def young(path: Path) -> bool:
        try:
            return now_ms() - path.stat().st_mtime_ns // 1_000_000 < grace_ms
        except FileNotFoundError:
            return True

    chosen, files = parts or Parts(), home.content_files()
    with (
        held_alone(home.lock, "no process may work on the home while garbage is collected: stop that one first"),
        held_ledger(home.ledger, home.socket),
    ):
        unfinished = 0 if dry_run else files.sweep_abandoned() + files.sweep_temporary(young)
        with chosen.open_still(home.ledger) as reader:
            content, uploaded = Content(reader, files), uploads_kept(home.uploads, files, now_ms)
            garbage = unreferenced(
                content, content.digests(), lambda digest: digest in uploaded or young(files.path(digest))
            )
            size = sum(_size(reader, files, digest) or 0 for digest, _ in garbage)
            trees = unnamed_trees(content, old_trees(home.path, young))
        if not dry_run:
            size += sum(map(remove_tree, trees))
            taken = sum(files.erase(digest) for digest, place in garbage if place == "file")
            _remove(chosen, home, [digest for digest, place in garbage if place == "database"], taken + unfinished)
        return Collected(tuple(garbage), size, unfinished, tuple(path.name for path in trees))


def unnamed_trees(content: Content, trees: Sequence[Path]) -> list[Path]:
    """Those of these source trees that neither a run, a schedule nor the payload of a job names, by path or digest."""
    names = {path.name.encode(): path for path in trees}

    def strike(digest: bytes) -> None:
        data = content.get(digest)
        for name in [name for name in names if data is not None and name in data]:
            del names[name]

    for run in content.reader.runs() if names else ():
        strike(Run.decode(run.body).inputs_digest)
    for schedule in read_schedules(content.reader) if names else ():
        strike(schedule.inputs)
    for job in content.reader.jobs() if names else ():
        strike(Job.read(job.body).payload_digest)
    return list(names.values())


def _remove(parts: Parts, home: Home, digests: Sequence[bytes], taken: int) -> None:
    """Take content out of the database; when that fails, say that so many files are gone already."""
    if not digests:
        return
    try:
        with closing(parts.open_store(home.ledger)) as store:
            store.remove_content(digests)
    except StoreUnavailable as exc:
        if not taken:
            raise
        raise StoreUnavailable(
            f"files taken away: {taken:,}; the content in the database stays: {exc}",
            hint=exc.hint,
            details=exc.details,
            retryable=exc.retryable,
        ) from exc


def _record(
    home: Home,
    digests: Sequence[bytes],
    parts: Parts,
    environment: Mapping[str, str],
    reason_code: str,
    behind: Sequence[Command] = (),
) -> None:
    """Have the erasures recorded, then remove the files; the owner of the home writes the record."""
    if not digests:
        if behind:
            with Session(home, parts, environment=environment) as session:
                session.ask(behind)
        return
    files = home.content_files()
    if home.uploads.is_dir():
        # Before the record: who holds one of them afterwards has uploaded it since.
        with closing(Uploads(home.uploads, files)) as uploads:
            uploads.forget(digests)
    with parts.open_reader(home.ledger) as reader:
        expected = sum(1 for _ in reader.records_of_kind(0, "erased"))
    with Session(home, parts, environment=environment) as session:
        for start in range(0, len(digests), DIGESTS_PER_ERASED_MAX):
            chunk = tuple(digests[start : start + DIGESTS_PER_ERASED_MAX])
            is_last = start + len(chunk) >= len(digests)
            expected = _erase_chunk(session, chunk, expected, reason_code, behind if is_last else ())
            for digest in chunk:
                files.erase(digest)


def _erase_chunk(
    session: Session, chunk: tuple[bytes, ...], expected: int, reason_code: str, behind: Sequence[Command] = ()
) -> int:
    """Have one erasure recorded, behind those of others who erase at the same time; gives back the next number.

    An unknown outcome is asked again under the same number, which is answered by the record if there is one (X-173).
    """
    lost = 0
    for _ in range(ERASE_TRIES_MAX):
        try:
            answer, *_ = session.ask([Erase(0, chunk, expected, reason_code), *behind])
        except OutcomeUnknown:
            lost += 1
            if lost >= UNKNOWN_TRIES_MAX:
                raise
            continue
        if answer.refusal is None:
            return expected + 1
        stored = answer.refusal.details.get("stored_erasures")
        if not isinstance(stored, int):
            raise DetentError(answer.refusal.message, code=answer.refusal.code, details=answer.refusal.details)
        expected = stored
    raise StoreUnavailable("others keep erasing at the same time", hint="try again when they are done")


def _refuse_live(reader: StoreReader, digests: frozenset[bytes]) -> None:
    """Refuse payloads of jobs that have not ended, and what schedules run. Needs a snapshot: a job may change its state between two looks."""
    for state in LIVE:
        for row in reader.jobs(state=state):
            if Job.decode(row.body).payload_digest in digests:
                raise _still_needed(row.job_id, state)
    for schedule in read_schedules(reader):
        if schedule.inputs in digests:
            raise InvalidInput(
                f"schedule {schedule.schedule_id} of workspace {schedule.workspace} runs it",
                hint="delete the schedule: that erases what it runs",
            )


def _still_needed(job_id: str, state: str) -> InvalidInput:
    return InvalidInput(
        f"job {job_id!r} is {word_of(state)} and still needs its payload",
        hint="wait until it has ended, or cancel it first",
    )


def _is_gone(reader: StoreReader, files: ContentFiles, digest: bytes) -> bool:
    """Whether content was erased and has not come back since, as a large file can."""
    return reader.is_erased(digest) and not files.has(digest)


def _size(reader: StoreReader, files: ContentFiles, digest: bytes) -> int | None:
    """How many bytes are stored under a digest; damaged ones count, or they could not be erased."""
    try:
        data = reader.content(digest)
    except StoreCorrupt:
        return 0
    return files.size(digest) if data is None else len(data)
