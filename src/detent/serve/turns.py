"""Answers the turns of workers on other machines.

    a turn  ->  its number  ->  reports checked, commands made within the owner's turn, one commit  ->  grants, or a wait  ->  the answer

* The same number again is the same answer, also while the first one still waits. A lower number is stale.
* At most one turn of a worker waits: a higher number answers the older one at once.
* A worker names all its leases. One that it was granted and does not name is granted again, since its answer was lost.
* Leases are extended when a sixth of their time has passed, so a worker may count on the other five sixths from each answered turn.
* New jobs are claimed for the workers that wait longest in the commit that submits them (`vacancies`). Other jobs that come into the queue
  wake those workers. A claim that found nothing passes the news on.

Everything here happens in the HTTP loop, except what reads the ledger or commits: that has threads of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from detent.access.certificate import replica_of
from detent.access.turn import PROGRESS, UNSUITED, Answer, Granted, Log, Turn
from detent.canon import sha256
from detent.errors import DetentError, HomeError, InvalidInput, RequestRefused
from detent.jobs.work import WorkReport
from detent.kernel import Claim, Grant
from detent.kernel.history import Record
from detent.ledger import SignedResult
from detent.owner.backend import Backend
from detent.owner.policies import REMOTE
from detent.owner.routing import FIRST
from detent.owner.session import Session
from detent.owner.worker_offers import Offered, read_offers, write_offers
from detent.owner.worker_turn import OK, End, Lease, Report, WorkerTurn
from detent.serve.far_output import FarOutput, FarOutputs
from detent.serve.fleet import ANSWERS_KEPT, Fleet, HeldLease, Worker, enrolled_records, is_about_workers
from detent.serve.grants import Opened, TreeDigests, opened
from detent.serve.reported_values import value_fault
from detent.serve.vacancies import Taken, Vacancies
from detent.store.api import CONTENT_INLINE_BYTES_MAX, RecordRow
from detent.store.streams import VerifiedStream
from detent.workers.action_leases import ActionLeases
from detent.workers.home_bench import news_of

T = TypeVar("T")

THREADS: Final = 4
PIECE_BYTES: Final = 256 * 1024
BEATS_PER_LEASE: Final = 6
KINDS: Final = ("action", "task", "platform", "seq")
"""What a worker elsewhere may be given; what needs the home asks for a worker there."""
MISSING: Final = "CONTENT_MISSING"
INTERRUPTED: Final = "INTERRUPTED"
OFFERS_MAX: Final = 256
SHOWS_OUTPUT: Final = 2
"""The version of the protocol from which on a worker sends what its jobs print."""
FIRST_OUTPUT_SECONDS: Final = 2.0
"""How long the first request for a job's output waits for it."""


class Decided(NamedTuple):
    """What came of one commit for a worker."""

    turn: WorkerTurn
    opened: Sequence[Opened]
    missing: Sequence[bytes]


class Turns:
    """The turns of all workers."""

    def __init__(self, session: Session, backend: Backend, draining: asyncio.Event) -> None:
        self.fleet = Fleet()
        self._outputs = FarOutputs(session.home.path)
        self._session, self._backend = session, backend
        self._draining = draining
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(THREADS, "detent-turn")
        self._actions = ActionLeases(lambda: backend.reader)
        self._trees = TreeDigests()
        self._waiting: OrderedDict[Worker, None] = OrderedDict()
        self._vacancies = Vacancies(self._loop, self._came)
        self._news = 0
        """How often jobs have come into the queue."""
        self._bringing: set[asyncio.Task[None]] = set()
        self._holders: dict[str, Worker] = {}
        self._writing_offers = threading.Lock()
        self._end: Callable[[], None] = lambda: None
        self.started_ms = backend.now_ms()
        self.answered = 0
        """Turns answered since the start."""
        self.follow: Callable[[Record | RecordRow], None] = lambda _record: None
        """Told of records about enrolment tokens."""
        self.reported: Callable[[Worker, Sequence[Grant]], None] = lambda _worker, _grants: None
        """Told of the jobs whose reports by a worker were accepted."""

    async def start(self) -> None:
        """Read who is enrolled, and follow from there."""
        self._session.take_jobs(self._vacancies.take)
        self._end = await asyncio.to_thread(self._session.observe, self._observe)
        for row in await self.run(lambda: enrolled_records(self._backend.reader)):
            self._take_record(row)
        for worker_id, offered in (await self.run(self._known_offers)).items():
            if (worker := self.fleet.get(worker_id)) is not None:
                worker.told = offered.offer
        await self.run(self._write_offers)

    def _known_offers(self) -> dict[str, Offered]:
        with contextlib.suppress(HomeError):
            return read_offers(self._session.home.path)
        return {}

    def close(self) -> None:
        """Follow no longer."""
        self._end()
        self._threads.shutdown()
        for worker in self.fleet:
            worker.let_all_go()
        self._outputs.close()

    async def run(self, work: Callable[[], T]) -> T:
        """Do something that commits or reads, on a thread for that."""
        return await self._loop.run_in_executor(self._threads, work)

    # -- a turn --------------------------------------------------------------------------------------------------------

    async def turn(self, worker: Worker, said: Turn, gone: asyncio.Event) -> bytes:
        """The answer to a turn of a worker, which has been authenticated. ``gone`` is set when it hangs up."""
        known = worker.answers.get(said.turn)
        if known is not None:
            return await asyncio.shield(known)
        if said.turn <= worker.turn:
            raise RequestRefused(
                f"turn {said.turn} of worker {worker.worker_id} comes after turn {worker.turn}",
                code="TURN_STALE",
                hint="go on with a higher number",
                details={"errors": [{"path": "turn", "message": str(worker.turn)}]},
            )
        before, worker.turn = worker.turn, said.turn
        worker.wake.set()
        answer: asyncio.Future[bytes] = self._loop.create_future()
        worker.answers[said.turn] = answer
        try:
            data = (await self._answer(worker, said, gone)).encode()
        except BaseException:
            # Nothing is known to be done: the same number may come again and is decided anew, which is safe.
            worker.answers.pop(said.turn, None)
            if worker.turn == said.turn:
                worker.turn = before
            answer.cancel()
            raise
        answer.set_result(data)
        while len(worker.answers) > ANSWERS_KEPT:
            worker.answers.popitem(last=False)
        self.answered += 1
        return data

    async def _answer(self, worker: Worker, said: Turn, gone: asyncio.Event) -> Answer:
        arrived = time.monotonic()
        certified = worker.certificate.pools
        if said.pool is not None and certified is not None and said.pool not in certified:
            raise RequestRefused(
                f"worker {worker.worker_id} is not certified for pool {said.pool}",
                code="ENROLMENT_REFUSED",
                hint=f"start it for one of {', '.join(certified) or 'no pool'}, or enrol it with a token for that pool",
            )
        if self._hear(worker, said):
            await self.run(self._write_offers)
        recovers = worker.boot != said.boot
        if recovers:
            worker.begin(said.boot)
        wanted = 0 if said.draining or worker.draining else said.wanted
        for end in said.ended:  # Before the claim of the same commit, which would grant them again.
            if end.code in UNSUITED:
                worker.give_back(end.job_id, for_good=True)
            elif end.code == INTERRUPTED and end.lease_id in worker.leases:
                worker.give_back(end.job_id, for_good=False)
        worker.news = self._news
        decided = await self.run(lambda: self._decide(worker, said, wanted, recovers=recovers))
        self.reported(
            worker, [held.grant for lease_id in _accepted(said, decided) if (held := worker.leases.get(lease_id))]
        )
        self._take_in(worker, decided)
        for log in said.logs:
            held = worker.leases.get(log.lease_id)
            if held is not None and held.output is not None and log.stream != PROGRESS:
                held.output.came.set()
        results = dict(decided.turn.results)
        grants = [one.granted for one in decided.opened] + self._unheard(worker, said, decided)
        worker.arrived.clear()  # They are among those that it has not heard of.
        gone_leases = list(decided.turn.gone)
        waited_ms = 0
        if not (results or grants or gone_leases or decided.missing or said.logs) and said.wait_ms:
            grants, gone_leases, looked_at = await self._wait(worker, said, wanted, gone)
            waited_ms = int(max(0.0, looked_at - arrived) * 1_000)
        for lease_id in gone_leases:
            self._let_go(worker, lease_id)
        return Answer(
            said.turn,
            self._backend.now_ms(),
            waited_ms,
            tuple(results.items()),
            tuple(decided.missing),
            tuple((lease_id, "LEASE_INVALID") for lease_id in gone_leases),
            tuple(grants),
            worker.watched(),
            directive="drain" if worker.draining else None,
            protocol=said.protocol,
        )

    def _hear(self, worker: Worker, said: Turn) -> bool:
        """Take note of what a worker says of itself; whether it offers something else than before."""
        worker.heard_at = time.monotonic()
        worker.slots, worker.version, worker.wanted = said.slots, said.version, said.wanted
        worker.resources, worker.protocol = dict(said.resources), said.protocol
        worker.pool, worker.labels = said.pool, frozenset(said.labels)
        for beat in said.beats:
            if (held := worker.leases.get(beat.lease_id)) is not None:
                held.named = True
        return worker.tells()

    async def offer_anew(self) -> None:
        """Tell the other processes of the home that something else is offered now."""
        await self.run(self._write_offers)

    async def give_up(self, worker: Worker) -> None:
        """End all leases of a worker that is known to run nothing any more: its jobs were interrupted."""
        turn = WorkerTurn(replica_of(worker.worker_id, ""), worker.worker_id, recovers=True)
        await self.run(lambda: self._committed(turn))

    def _write_offers(self) -> None:
        """Tell the other processes of the home what workers offer. A full disk does not keep a worker from working."""
        with self._writing_offers, contextlib.suppress(OSError):
            write_offers(self._session.home.path, self.fleet.offered())

    def _unheard(self, worker: Worker, said: Turn, decided: Decided) -> list[Granted]:
        """Leases that the worker has, and has never named: their grants are told again.

        One that it named before and does not name now was given up there, because its time was over on the worker's clock. It ends here, too.
        """
        named = {beat.lease_id for beat in said.beats} | decided.turn.results.keys()
        told = {one.granted.grant[5] for one in decided.opened} | set(decided.turn.gone)
        return [
            held.granted
            for lease_id, held in worker.leases.items()
            if held.granted is not None and not held.named and lease_id not in named and lease_id not in told
        ]

    # -- one commit ----------------------------------------------------------------------------------------------------

    def _decide(self, worker: Worker, said: Turn, wanted: int, *, recovers: bool) -> Decided:
        """Check what was reported, commit it together with heartbeats and a claim, and open what was granted. On a thread."""
        reports, missing = self._reports(worker, said)
        self._show(worker, said.logs)
        now = time.monotonic()
        named = {beat.lease_id for beat in said.beats}
        unheard = {lease_id: held for lease_id, held in worker.leases.items() if lease_id not in named}
        turn = WorkerTurn(
            worker.holder,
            worker.worker_id,
            reports,
            [End(end.job_id, end.lease_id, end.code) for end in said.ended],
            [
                *(Lease(beat.job_id, beat.lease_id) for beat in said.beats),
                *(Lease(held.grant.job_id, lease_id) for lease_id, held in unheard.items()),
            ],
            # Those that are told again begin anew, so they are extended, too; those that the worker gave up are not.
            frozenset(lease_id for lease_id in named if _is_due(worker.leases.get(lease_id), now))
            | {lease_id for lease_id, held in unheard.items() if not held.named},
            self._claim(worker, wanted),
            recovers,
            self._lease,
        )
        granted = self._committed(turn)
        turn.results.update(dict.fromkeys(self._unsent(said, reports), MISSING))
        found = [grant for grant in turn.found if grant.lease_id not in named]
        return Decided(turn, [self._open(grant) for grant in (*found, *granted)], missing)

    def _committed(self, turn: WorkerTurn) -> Sequence[Grant]:
        """Have a turn decided: in one commit, or in one for each partition that has a part in it."""
        session, granted = self._session, list[Grant]()
        if session.partitions == 1:
            return session.worker_turn(turn, FIRST)
        for partition in session.rounds.order(session.partitions):
            left = 0 if turn.claim is None else turn.claim.limit - len(granted)
            claims = session.may_have_work(partition)
            part = turn.part(lambda job_id: session.partition(job_id) == partition, claims=claims, left=left)  # noqa: B023
            if part is None:
                continue
            got = session.worker_turn(part, partition)
            turn.take(part)
            granted += got
            if got:
                session.rounds.served(partition)
        return granted

    def _claim(self, worker: Worker, wanted: int) -> Claim | None:
        if not wanted or worker.retired or self._vacancies.is_claimed_for(worker):
            return None
        return Claim(
            0,
            worker.holder,
            wanted,
            worker.certificate.tenants,
            KINDS,
            worker.excluded or None,
            tuple(sorted(worker.offers)[:OFFERS_MAX]) or None,
            self._lease,
        )

    def _reports(self, worker: Worker, said: Turn) -> tuple[list[Report], list[bytes]]:
        """The reports of a turn with the content that they bring, and what they name that is not there.

        A report may name what came with it, what its worker uploaded under the same lease, and what its job was given. That other content
        is in the home counts for nothing: it may be another workspace's (T4).
        """
        pieces = {sha256(piece): piece for piece in said.content}
        if any(len(piece) > CONTENT_INLINE_BYTES_MAX for piece in said.content):
            raise InvalidInput(f"a piece of content in a turn has at most {CONTENT_INLINE_BYTES_MAX} bytes")
        reports: list[Report] = []
        missing: list[bytes] = []
        for lease_id, envelope in said.reports:
            report = _report(envelope)
            named = [] if report is None else list(dict.fromkeys(report.contents()))
            job_id = "" if report is None else report.job_id
            held = worker.leases.get(lease_id)
            known = set() if held is None else held.inputs | held.uploaded
            lacking = [digest for digest in named if digest not in pieces and digest not in known]
            if lacking and held is not None:
                missing += lacking
                continue
            own = [(digest, pieces[digest]) for digest in named if digest in pieces]
            fault = None if report is None else value_fault(report, lambda one: pieces.get(one) or self._stored(one))
            if fault is None and len(envelope) > CONTENT_INLINE_BYTES_MAX:
                self._backend.files.put(envelope)
            reports.append(Report(lease_id, envelope, job_id, own, fault))
        return reports, missing

    def _stored(self, digest: bytes) -> bytes | None:
        with contextlib.suppress(DetentError):
            return self._backend.content(digest)
        return None

    def _unsent(self, said: Turn, reports: Sequence[Report]) -> list[bytes]:
        judged = {report.lease_id for report in reports}
        return [lease_id for lease_id, _ in said.reports if lease_id not in judged]

    def _open(self, grant: Grant) -> Opened:
        return opened(self._backend, self._actions, self._trees, grant, self._lease_ms(grant))

    def _lease_ms(self, grant: Grant) -> int:
        return self._backend.policies.lease_ms(grant.lease_policy_id, self._lease)

    @property
    def _lease(self) -> str | None:
        """The lease of workers elsewhere; an owner that is not a server does not know it."""
        return REMOTE if self._session.owns else None

    def _take_in(self, worker: Worker, decided: Decided) -> None:
        """Keep in memory what was committed."""
        now = time.monotonic()
        for lease_id, code in decided.turn.results.items():
            if code != MISSING:
                self._let_go(worker, lease_id)
        for lease_id in decided.turn.beats:
            if (held := worker.leases.get(lease_id)) is not None:
                held.beat_at = now
        told = {one.granted.grant[5] for one in decided.opened}
        for grant in decided.turn.found:
            if grant.lease_id not in told:
                self._hold(worker, HeldLease(grant, self._lease_ms(grant) / 1_000, beat_at=now))
        for one in decided.opened:
            grant = Grant(*one.granted.grant)
            self._hold(worker, HeldLease(grant, self._lease_ms(grant) / 1_000, *one, beat_at=now))

    def _hold(self, worker: Worker, held: HeldLease) -> None:
        worker.leases[held.grant.lease_id] = held
        self._holders[held.grant.job_id] = worker

    def _let_go(self, worker: Worker, lease_id: bytes) -> None:
        held = worker.let_go(lease_id)
        if held is not None and self._holders.get(held.grant.job_id) is worker:
            del self._holders[held.grant.job_id]

    # -- output --------------------------------------------------------------------------------------------------------

    def watch(self, workspace: str, job_id: str) -> FarOutput | None:
        """Have a worker send what a job of a workspace prints; its output where it was not asked before, else None."""
        worker = self._holders.get(job_id)
        if worker is None or worker.protocol < SHOWS_OUTPUT:
            return None
        held = next((one for one in worker.leases.values() if one.grant.job_id == job_id), None)
        if held is None or held.grant.tenant_id != workspace:
            return None
        if held.output is None:
            held.output = self._outputs.new()
        if not held.output.watch():
            return None
        worker.wake.set()
        return held.output

    async def watch_first(self, workspace: str, job_ids: Sequence[str]) -> None:
        """The same for several; waits a moment for what those that were not asked before have printed so far."""
        asked = [output for job_id in job_ids if (output := self.watch(workspace, job_id)) is not None]
        deadline = time.monotonic() + FIRST_OUTPUT_SECONDS
        for output in asked:
            await _first(max(0.0, deadline - time.monotonic()), output.came, self._draining)

    def ask_progress(self, wanted: set[tuple[str, str]]) -> None:
        """Have workers say how far the jobs are that are followed: by workspace and topic, that of the job or of its run."""
        for worker in self.fleet if wanted else ():
            if worker.protocol < SHOWS_OUTPUT:
                continue
            for held in worker.leases.values():
                tenant, job_id, run_id = held.grant[:3]
                if (tenant, f"job:{job_id}") in wanted or (tenant, f"run:{run_id}") in wanted:
                    if held.output is None:
                        held.output = self._outputs.new()
                    if held.output.follow():
                        worker.wake.set()

    def _show(self, worker: Worker, logs: Sequence[Log]) -> None:
        """Keep what watched jobs have printed. On a thread."""
        for log in logs:
            if (held := worker.leases.get(log.lease_id)) is not None and held.output is not None:
                held.output.take(held.grant.job_id, held.since_ns, [log])

    # -- content -------------------------------------------------------------------------------------------------------

    async def open(self, held: HeldLease) -> None:
        """Find out what a lease names, where that is not known: after a restart of the server."""
        if held.granted is None:
            found = await self.run(lambda: self._open(held.grant))
            held.granted, held.inputs, held.code = found

    async def content(self, digest: bytes) -> bytes | AsyncIterator[bytes] | None:
        """Content that a lease names: whole where it is small, else piece by piece as it is read and checked."""
        stream = await self.run(lambda: self._backend.files.stream(digest))
        if stream is None:
            return await self.run(lambda: self._backend.content(digest))
        return self._pieces(stream)

    async def _pieces(self, stream: VerifiedStream) -> AsyncIterator[bytes]:
        try:
            while piece := await self.run(lambda: stream.read1(PIECE_BYTES)):
                yield piece
        finally:
            await self.run(stream.close)

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def _wait(
        self, worker: Worker, said: Turn, wanted: int, gone: asyncio.Event
    ) -> tuple[list[Granted], list[bytes], float]:
        """Wait for jobs, or until a lease is gone; ends at once when a newer turn comes, or when the worker hangs up.

        Gives the moment before which no lease was granted, too.
        """
        deadline = time.monotonic() + said.wait_ms / 1_000
        try:
            while worker.turn == said.turn and not gone.is_set() and not self._draining.is_set() and not worker.retired:
                worker.wake.clear()
                self._waiting[worker] = None
                left = deadline - time.monotonic()
                if left <= 0 or worker.draining or worker.has_unwatched:
                    break
                if not worker.arrived and (not wanted or worker.news == self._news):
                    if (claim := self._claim(worker, wanted)) is not None:
                        self._vacancies.put(worker, claim)
                    await _first(min(left, worker.rest_seconds), worker.wake, gone, self._draining)
                self._waiting.pop(worker, None)
                self._vacancies.drop(worker)  # It looks itself now.
                if worker.turn != said.turn or gone.is_set() or worker.retired:
                    break
                if worker.arrived:
                    arrived, worker.arrived = worker.arrived, []
                    return arrived, [], worker.arrived_at
                looked_at = time.monotonic()
                grants, lost = await self._look(worker, wanted)
                if grants or lost:
                    return grants, lost, looked_at
        finally:
            self._waiting.pop(worker, None)
            self._vacancies.drop(worker)
        return [], [], 0.0

    def exclude(self, worker: Worker, job_id: str) -> None:
        """Never grant a job to this start of a worker."""
        worker.give_back(job_id, for_good=True)
        self._vacancies.drop(worker)
        worker.wake.set()  # If its turn waits, it goes on with another claim.

    def _came(self, taken: Taken) -> None:
        """The owner has claimed for a worker that waited."""
        if not taken.grants:
            if taken.worker in self._waiting:
                taken.worker.wake.set()  # Others were quicker; it looks itself, and waits on.
            return
        task = self._loop.create_task(self._bring(taken))
        self._bringing.add(task)
        task.add_done_callback(self._bringing.discard)

    async def _bring(self, taken: Taken) -> None:
        """Have the turn that waits answered with what was leased; where none waits any more, the next one is told."""
        worker = taken.worker
        if worker.retired or worker.holder != taken.holder:
            ends = [End(grant.job_id, grant.lease_id, INTERRUPTED) for grant in taken.grants]
            await self.run(lambda: self._committed(WorkerTurn(taken.holder, worker.worker_id, ends=ends)))
            return
        opened = await self.run(lambda: [self._open(grant) for grant in taken.grants])
        if worker.holder != taken.holder:
            return  # The start that came meanwhile has given them up.
        self._take_in(worker, Decided(WorkerTurn(taken.holder, worker.worker_id), opened, ()))
        worker.arrived += [one.granted for one in opened]
        worker.arrived_at = taken.taken_at
        worker.wake.set()

    async def _look(self, worker: Worker, wanted: int) -> tuple[list[Granted], list[bytes]]:
        """Claim for a worker that waits, and see which of its leases that moved are gone."""
        moved, worker.woken_jobs = worker.woken_jobs, set()
        worker.news = self._news
        leases = [
            Lease(held.grant.job_id, lease_id) for lease_id, held in worker.leases.items() if held.grant.job_id in moved
        ]
        turn = WorkerTurn(worker.holder, worker.worker_id, leases=leases, claim=self._claim(worker, wanted))

        def decide() -> Decided:
            return Decided(turn, [self._open(grant) for grant in self._committed(turn)], ())

        decided = await self.run(decide)
        self._take_in(worker, decided)
        if wanted and len(decided.opened) in (0, wanted):
            self._wake_next()
        return [one.granted for one in decided.opened], list(decided.turn.gone)

    def _wake_next(self) -> None:
        """Pass the news of jobs on to a worker that has not looked since they came."""
        worker = next((one for one in self._waiting if one.news < self._news), None)
        if worker is not None:
            self._waiting.pop(worker)
            worker.wake.set()

    # -- what happens on the ledger ------------------------------------------------------------------------------------

    def _observe(self, records: Sequence[Record]) -> None:
        """Called after commits, on the thread that made them."""
        queued, moved = news_of(records)
        workers = [record for record in records if is_about_workers(record)]
        if (queued or moved or workers) and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # The loop has ended meanwhile.
                self._loop.call_soon_threadsafe(self._heard, queued, [job_id for job_id, _ in moved], workers)

    def _take_record(self, record: Record | RecordRow) -> None:
        self.fleet.take_in(record.kind, record.body, record.evidence)
        self.follow(record)

    def _heard(self, queued: int, moved: Sequence[str], workers: Sequence[Record]) -> None:
        for record in workers:
            self._take_record(record)
        if workers:
            self._threads.submit(self._write_offers)
        for job_id in moved:
            worker = self._holders.get(job_id)
            if worker is not None:
                worker.woken_jobs.add(job_id)
                worker.wake.set()
        self._news += queued > 0
        seen: set[tuple[str, ...] | None] = set()
        for worker in list(self._waiting):
            tenants = worker.certificate.tenants
            if queued > 0 or (seen and tenants not in seen):
                seen.add(tenants)
                queued -= worker.wanted
                worker.wake.set()


def _accepted(said: Turn, decided: Decided) -> list[bytes]:
    return [lease_id for lease_id, _ in said.reports if decided.turn.results.get(lease_id) == OK]


def _is_due(held: HeldLease | None, now: float) -> bool:
    """Whether a lease is to be extended now; one that this process does not know is."""
    return held is None or now - held.beat_at >= held.lease_seconds / BEATS_PER_LEASE


def _report(envelope: bytes) -> WorkReport | None:
    """What a worker reports of a function or command; None for what is not such a report, which is refused later."""
    from detent.jobs.report import read_report  # noqa: PLC0415 - loads Pydantic for platform jobs

    try:
        report = read_report(SignedResult.parse(envelope).body)
    except InvalidInput:
        return None
    return report if isinstance(report, WorkReport) else None


async def _first(seconds: float, *events: asyncio.Event) -> None:
    """Wait for the first of some events, or for so long."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
