"""What must hold after every fault: nothing lost, nothing twice, nothing left over, and the history verifies."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detent.canon import decode
from detent.executor.plain import processes
from detent.executor.plain.sweep import home_id
from detent.executor.plain.wire import MARKER
from detent.inspect.audit import verify_home
from detent.inspect.elements import elements_of
from detent.inspect.replay import replay_home
from detent.jobs.elements import SUCCEEDED
from detent.jobs.order import read_order
from detent.kernel import Evidence, Job
from detent.kernel.evidence import DISPATCH, EXPIRY, INTERRUPTIONS
from detent.kernel.policy import INTERRUPTION_PAUSES
from detent.ledger.signing import report_named
from detent.owner.content import Content, open_value
from detent.owner.views import JobView, Times
from detent.runs.record.outcome import read_report
from detent.runs.record.reuses import Reuses
from detent.store.api import StoreReader
from tests.faults.site import Site, files_below

TERMINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELED"})
REFUSALS_MAX = 1000
BACKOFF_MS = 1000
"""The shortest delay of a retry by default: an interrupted attempt is followed by the next sooner."""
KEPT = re.compile(r"\.gitignore|config\.toml|content|keys|ledger\.db(-shm|-wal)?|live|owner\.lock|runs")
_JOB = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}(\.[0-9]+)?")
"""A job, or an element of an array."""


@dataclass(slots=True)
class Life:
    """One job as its records tell it, or one element as its array's records and report tell it."""

    state: str
    step: str
    run_id: str | None
    ends: int = 0
    begun: int = 0
    interrupted: int = 0
    expired: int = 0
    settled_by: int | None = None
    """Of an element: the attempt in which it succeeded; it must not begin again."""


@dataclass(slots=True)
class Audit:
    """What was found on a site; everything but the lives and the counts of faults must be empty."""

    jobs: dict[str, Life] = field(default_factory=dict)
    """Of each job that does one thing, and of each element of the others."""
    arrays: dict[str, Life] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    reused: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """What workers and others asked for in vain, by the code of the refusal."""
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    verify: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        found = {
            "lost": self.lost,
            "twice": self.twice,
            "orphan": self.orphans,
            "left over": self.leftovers,
            "verify": self.verify,
            "late": self.late,
        }
        return [f"{name}: {what}" for name, whats in found.items() for what in whats]

    @property
    def interrupted(self) -> int:
        """Attempts that ended without a fault of the task."""
        return sum(life.interrupted for life in (*self.jobs.values(), *self.arrays.values()))

    @property
    def expired(self) -> int:
        """Leases that ran out."""
        return sum(life.expired for life in (*self.jobs.values(), *self.arrays.values()))


def audit(site: Site, *, may_expire: bool = False) -> Audit:
    """Look a site over when everything on it has ended."""
    found = Audit()
    _read_ledger(site, found, may_expire=may_expire)
    _check_effects(site, found)
    report = verify_home(site.home.home, environment=site.environment)
    found.verify += [str(finding) for finding in report.findings]
    if not report.ok and not report.findings:
        found.verify.append("verify is not green")
    replayed = replay_home(site.home.home)
    if not replayed.ok:
        found.verify.append(f"replay: {replayed}")
    found.orphans = site.commands.strays() + _marked(site)
    _check_leftovers(site, found)
    return found


def check_run(found: Audit, run_id: str, jobs: int | None) -> None:
    """A run of so many jobs has completed: each of them is there with its one end, or took an earlier result."""
    lives = [life for life in found.jobs.values() if life.run_id == run_id]
    if found.runs.get(run_id) != "completed":
        found.lost.append(f"run {run_id} is {found.runs.get(run_id, 'not there')}")
    there = sum(life.state == "SUCCEEDED" for life in lives) + found.reused[run_id]
    if jobs is not None and there != jobs:
        found.lost.append(f"run {run_id} has {there} results of {jobs}")


def _read_ledger(site: Site, found: Audit, *, may_expire: bool) -> None:
    with site.reader() as reader:
        found.runs = {row.run_id: row.status for row in reader.runs()}
        for run_id in found.runs:
            found.reused[run_id] = len(Reuses(reader, run_id, lambda _row: None))
        found.refused = Counter(row.code for row in reader.refusals(limit=REFUSALS_MAX))
        content = Content(reader, site.home.home.content_files())
        for row in reader.jobs():
            job = Job.decode(row.body)
            payload: Any = open_value(content.get(job.payload_digest) or b"")
            life = Life(row.state, str(payload["step"]), row.run_id)
            is_array = "elements" in payload
            (found.arrays if is_array else found.jobs)[row.job_id] = life
            _follow(row.job_id, life, reader.records_of_job(row.job_id), found)
            if life.ends > 1:
                found.twice.append(f"job {row.job_id} of {life.step} ended {life.ends} times")
            if life.ends == 0:
                found.lost.append(f"job {row.job_id} of {life.step} is {row.state}")
            if life.expired and not may_expire:
                found.late.append(f"job {row.job_id} of {life.step} waited for {life.expired} leases to run out")
            if is_array:
                settled = _settled(reader, content, row.job_id)
                for one in elements_of(reader, content, JobView(row, job, Times()), read_order(payload)):
                    by = settled.get(one.place)
                    found.jobs[one.name] = Life(one.state, life.step, life.run_id, life.ends, life.begun, settled_by=by)
                    if one.state == "SUCCEEDED" and by is None:
                        found.lost.append(f"element {one.name} of {life.step} has no outcome")


def _settled(reader: StoreReader, content: Content, job_id: str) -> dict[int, int]:
    """The attempt in which each element of an array succeeded, by the first report that says so."""
    settled: dict[int, int] = {}
    for record in reader.records_of_job(job_id):
        digest = None if record.evidence is None else report_named(record.evidence)
        report = None if digest is None else read_report(content, digest)
        elements = None if report is None else report.result.elements
        if report is not None and elements is not None:
            for place in range(len(elements)):
                if elements.codes[place] == SUCCEEDED:
                    settled.setdefault(place, report.attempt_id + 1)
    return settled


def _follow(job_id: str, life: Life, records: Any, found: Audit) -> None:
    lost_at: int | None = None
    for record in records:
        if record.kind != "transition" or record.evidence is None:
            continue
        body, evidence = decode(record.body), Evidence.decode(record.evidence)
        assert isinstance(body, dict)
        life.ends += body["to_state"] in TERMINAL
        life.begun += evidence.kind == DISPATCH
        life.expired += evidence.kind == EXPIRY
        life.interrupted += evidence.kind in INTERRUPTIONS
        pause = INTERRUPTION_PAUSES.delay_ms(max(0, life.interrupted - 1))
        if lost_at is not None and body["to_state"] == "QUEUED" and body["tick"] - lost_at >= pause + BACKOFF_MS:
            found.late.append(f"job {job_id} came back {body['tick'] - lost_at} ticks after its worker was gone")
        lost_at = body["tick"] if evidence.kind in INTERRUPTIONS else None


def _check_effects(site: Site, found: Audit) -> None:
    """Each attempt that a worker began is on the ledger, and each success was begun."""
    begun = Counter(token for token, _, _ in site.begun() if _JOB.fullmatch(token))
    attempts = {(token, attempt) for token, attempt, _ in site.begun() if _JOB.fullmatch(token)}
    if len(attempts) != begun.total():
        found.twice.append(f"{begun.total() - len(attempts)} attempts were begun twice")
    for token, times in begun.items():
        life = found.jobs.get(token)
        if life is None:
            found.lost.append(f"job {token} was begun, but the ledger does not know it")
        elif times > life.begun:
            found.twice.append(f"job {token} of {life.step} was begun {times} times, dispatched {life.begun} times")
    for token, attempt in attempts:
        settled_by = found.jobs[token].settled_by if token in found.jobs else None
        if settled_by is not None and attempt > settled_by:
            found.twice.append(f"element {token} was begun in attempt {attempt}, and had ended in attempt {settled_by}")
    for job_id, life in found.jobs.items():
        of_python = life.step.startswith(("numbers", "squares", "link", "total"))
        if of_python and life.state == "SUCCEEDED" and not begun[job_id]:
            found.lost.append(f"job {job_id} of {life.step} succeeded without having been begun")
    by_step = Counter(step for token, _, step in site.begun() if not _JOB.fullmatch(token))
    for step, times in by_step.items():
        dispatched = sum(life.begun for life in found.jobs.values() if life.step == step)
        if times > dispatched:
            found.twice.append(f"{step} was begun {times} times, dispatched {dispatched} times")


def _marked(site: Site) -> list[str]:
    """Processes that bear the mark of this home's pools, wherever they are by now."""
    mark = f"{MARKER}={home_id(site.home.path / 'live')}:".encode()
    found: list[str] = []
    for pid in processes.all_pids():
        with suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(f"{pid} bears the mark of the home")
    return found


def _check_leftovers(site: Site, found: Audit) -> None:
    home = site.home.path
    found.leftovers += [f".detent/{path.name}" for path in home.iterdir() if not KEPT.fullmatch(path.name)]
    for name in ("live", "runs"):
        found.leftovers += [f".detent/{name}/{path}" for path in files_below(home / name)]
    found.leftovers += [f".detent/content/{path}" for path in files_below(home / "content") if "new-" in path]
    found.leftovers += [f"tmp/{path}" for path in files_below(site.temporary)]
    state = site.home.directory / "state"
    found.leftovers += [
        f"state/{path}" for path in files_below(state) if not path.endswith((".heads", ".place", "detent", "heads"))
    ]
    found.leftovers += [f"project/{path}" for path in files_below(site.project) if path.endswith((".tmp", ".new"))]
