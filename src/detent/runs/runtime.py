"""A process at work on a home: the session, the backend, the supervisor of workers and what they run on, wired together."""

from __future__ import annotations

import copy
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from detent.canon.grammar import CPU
from detent.errors import InvalidInput, InvariantBroken, RequestRefused
from detent.executor.leftovers import has_leftovers
from detent.jobs.order import JobLimits, Order
from detent.jobs.placing import Offer, lacking, wanted_by
from detent.owner.backend import Backend
from detent.owner.home import Home, find_home, home_or_new, new_home_path
from detent.owner.home_permissions import insist_on_writable
from detent.owner.server_address import insist_on_sharing, running
from detent.owner.session import Session
from detent.owner.wiring import Parts, begin_ledger
from detent.owner.worker_offers import offers_here
from detent.reuse.work_keys import WorkKeys
from detent.runs.ahead import LOADED_BY_TASKS, has_results
from detent.workers.bench import Attempted
from detent.workers.executor import Executor, LazyExecutor, Sleeper
from detent.workers.resources import ResourceGate, Resources, feasible_fault
from detent.workers.supervisor import Supervisor

if TYPE_CHECKING:
    from detent.executor.plain.host_process import HostProcess
    from detent.executor.plain.pool import Pool

MakeExecutors: TypeAlias = Callable[[Backend], tuple[Mapping[str, Executor], Sleeper]]
"""Makes the executors of a supervisor, by the kinds of work they do, and what the supervisor sleeps on."""

logger = logging.getLogger("detent.runs")

NO_WORK_HINT: Final = "`detent replicas` lists the registered replicas, `detent replicas remove REPLICA` removes one"
LIVE: Final = "live"
WORKERS_MAX: Final = 1024


def home_at(explicit: Path | None = None, environment: Mapping[str, str] | None = None) -> Home:
    """The home to work on: found upwards like a git repository, else made where a new one belongs.

    Processes that start at once on a new home all get the same one. Raises `StoreUnavailable` for one that this user may not write to.
    """
    environment = os.environ if environment is None else environment
    found = find_home(Path.cwd(), environment, explicit)
    if found is not None:
        insist_on_writable(found.path)
        return found
    return home_or_new(new_home_path(Path.cwd(), environment, explicit), begin_ledger)


def worker_count(given: int | None, *, least: int = 1) -> int:
    """How many workers: as many as asked for, else as many as there are processors for this process."""
    if given is None:
        return len(os.sched_getaffinity(0))
    if type(given) is not int or not least <= given <= WORKERS_MAX:
        raise InvalidInput(f"workers must be from {least} to {WORKERS_MAX}, not {given!r}")
    return given


class Runtime:
    """Everything that a run or a client needs, open. Closing it ends the workers and gives the home up.

    With ``idle`` it takes no work before `start`, and none at all when it has no workers. With ``late`` a run starts the workers,
    when something has to run: of a run whose results are all there, none would do anything. ``host`` was started ahead for it.
    ``session`` is one that its caller opened and closes: a server's, which lives long and keeps no content in memory.
    """

    def __init__(  # noqa: PLR0913 - settings, all but the first by name
        self,
        home: Home,
        *,
        workers: int | None = None,
        parts: Parts | None = None,
        on_attempted: Callable[[Sequence[Attempted]], None] | None = None,
        executors: MakeExecutors | None = None,
        idle: bool = False,
        late: bool = False,
        host: HostProcess | None = None,
        session: Session | None = None,
    ) -> None:
        self.home = home
        self._host = host
        self._whole: Runtime | None = None
        self.workers = worker_count(workers, least=0 if idle else 1)
        self.progress: dict[str, Callable[[], tuple[int, int, int]]] = {}
        """Of jobs that drive an ordered run here: how to ask for items committed, failed and to be done."""
        self.told: dict[str, tuple[float, str]] = {}
        """Of tasks that run here and say how far they are (`detent.context().progress`): the share, and what they say."""
        self.tell: Callable[[str], None] = logger.warning
        """Tells the person who waits for this process what holds its work up."""
        self.parts = parts or Parts()
        self._listeners: list[Callable[[Sequence[Attempted]], None]] = [] if on_attempted is None else [on_attempted]
        self._listening = threading.Lock()
        self._starting = threading.Lock()
        self._started = self._closed = False
        self._executors = executors
        insist_on_writable(home.path)
        self.settings = home.settings()
        self.pools = self.settings.step_pools
        """How many workers the steps of a type have for themselves, beside the shared ones."""
        begins = not idle and not (late and has_results(home.path))
        self._is_late = late
        # First of all: while the process that the workers are made by comes up, the home is opened.
        self._pool = self._make_pool() if executors is None and begins else None
        self._owns_session = session is None
        try:
            self.session = session or Session(home, self.parts)
        except BaseException:
            self._close_pool()
            raise
        try:
            # Without workers of its own it cannot know how many others have.
            self.resources: Mapping[str, int] = {CPU: self.workers or WORKERS_MAX, **self.settings.resources}
            """What there is for work to take, of each kind."""
            self.offers: Callable[[str], Sequence[Offer]] = partial(offers_here, home.path)
            """What workers elsewhere offer to a workspace."""
            self.idempotency = self.settings.idempotency
            self.backend = Backend(home, self.session, parts=self.parts, remembers=session is None)
            self.backend.wanted_by = self._wanted
            if self._owns_session and self.workers and not self.session.owns:
                insist_on_sharing(home, self.backend.reader)
            self.work_keys = WorkKeys(self.backend)
            self.supervisor = self._make_supervisor()
            if begins:
                self.start()
        except BaseException:
            self._close_pool()
            if self._owns_session:
                self.session.close()
            raise

    @property
    def has_started(self) -> bool:
        """Whether its workers take work."""
        return self._started if self._whole is None else self._whole.has_started

    def for_tenant(self, tenant: str) -> Runtime:
        """The same for the work of another workspace: with its own backend and work keys, on the same session and workers.

        It is closed with the whole, and closing it alone does nothing.
        """
        if tenant == self.backend.tenant:
            return self
        other = copy.copy(self)
        other._whole = self._whole or self  # noqa: SLF001 - its own class's
        other.backend, other.work_keys = self.backend.for_tenant(tenant), self.work_keys.for_tenant(tenant)
        return other

    def start(self) -> None:
        """Begin to take work; once more does nothing, and neither does it without workers."""
        if self._whole is not None:
            self._whole.start()
            return
        with self._starting:
            if self._started or self._closed or not self.workers:
                return
            if self._executors is None and self._pool is None:
                self._pool = self._make_pool()
            executors, sleeper = (self._make_executors if self._executors is None else self._executors)(self.backend)
            self.supervisor.start(
                {"map": LazyExecutor(lambda: self._map_executor(sleeper.wake), 1), **executors}, sleeper
            )
            self._started = True

    def listen(self, listener: Callable[[Sequence[Attempted]], None]) -> Callable[[], None]:
        """Subscribe to the attempts that the supervisor closes, those of one commit at once; returns what unsubscribes."""
        with self._listening:
            self._listeners.append(listener)

        def unlisten() -> None:
            with self._listening:
                self._listeners[:] = [one for one in self._listeners if one is not listener]

        return unlisten

    def close(self) -> None:
        """End the workers, then the session."""
        if self._whole is not None:
            return
        with self._starting:
            self._closed = True
            host, self._host = self._host, None
        if host is not None:
            host.drop()  # Nothing had to run.
        if self._is_late and not self._started and self._has_leftovers():
            self._sweep()  # Starting the workers would have done it.
        try:
            self.supervisor.close()
        finally:
            self.backend.close()
            if self._owns_session:
                self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attempted(self, attempted: Sequence[Attempted]) -> None:
        for listener in tuple(self._listeners):
            listener(attempted)

    def _make_supervisor(self) -> Supervisor:
        return Supervisor(
            self.backend,
            witness=WorkKeys(self.backend).witness,  # Of its own: the other one is the driver's thread's.
            on_attempted=self._attempted,
            on_refused=lambda refusal: self.tell(
                f"no work for the workers of this process: {refusal.message}; {NO_WORK_HINT}"
            ),
        )

    def insist_on_place(self, what: str, limits: JobLimits, step_type: str | None = None) -> None:
        """Refuse work that neither this home nor a worker elsewhere could ever run, before anything of it is begun."""
        if not limits.asks or not wanted_by(limits, self._has(step_type)):
            return
        lacks = lacking(limits, self.offers(self.backend.tenant), self.settings.pools)
        if lacks is not None:
            raise self._unplaceable(what, limits, lacks, step_type)

    def _wanted(self, order: Order) -> tuple[str, ...]:
        """What the worker must offer that takes a job of this home."""
        return wanted_by(order.limits, self._has(order.origin.action.get("step_type")))

    def _unplaceable(self, what: str, limits: JobLimits, lacks: str, step_type: str | None) -> RequestRefused:
        has, config = self._has(step_type), self.settings.path
        served = running(self.home.path) is not None
        worker = "`detent worker --connect URL`" if served else "`detent serve` and `detent worker --connect URL`"
        if limits.wanted:
            return RequestRefused(
                f"{what} can never run: no worker of this workspace offers {lacks}",
                code="NO_FEASIBLE_POOL",
                hint=f"start one that does with {worker}, or name the pool under [pools] in {config}: then the job waits for one",
                details={"wanted": list(limits.wanted), "needs": dict(limits.resources)},
            )
        have = ", ".join(f"{amount} {name}" for name, amount in has.items())
        more = "--workers" if (step_type or "") not in self.pools else f"[workers.{step_type}]"
        return RequestRefused(
            f"{what} can never run here: {feasible_fault(limits.resources, has)}",
            code="NO_FEASIBLE_POOL",
            hint=f"there is {have} for it; [resources] in {config} names more, {more} gives more {CPU}, and a worker elsewhere "
            f"that has {lacks} would take it: {worker}",
            details={"needs": dict(limits.resources), "has": dict(has)},
        )

    def _has(self, step_type: str | None) -> Mapping[str, int]:
        own = self.pools.get(step_type or "")
        return self.resources if own is None else {**self.resources, CPU: own}

    def refuse_unknown_policies(self, what: str, names: Mapping[str, str]) -> None:
        """Refuse work that names a quota, lease or backoff which the home's settings do not define."""
        try:
            self.backend.chosen(names)
        except InvalidInput as exc:
            raise InvalidInput(
                f"{what}: {exc} in {self.settings.path}",
                code=exc.code,
                hint=exc.hint,
                details={"policies": dict(names)},
            ) from exc

    def _has_leftovers(self) -> bool:
        live = self.home.path / LIVE
        return (live.is_dir() and any(live.iterdir())) or has_leftovers()

    def _sweep(self) -> None:
        """End and remove what pools of this home, and sandboxes, left that are gone."""
        from detent.executor.plain.sweep import sweep_orphans  # noqa: PLC0415 - `import detent` stays cheap

        sweep_orphans(self.home.path / LIVE)
        if has_leftovers():
            from detent.executor.sandbox.collect import sweep  # noqa: PLC0415 - the sandbox takes time to load

            sweep()

    def _make_pool(self) -> Pool:
        from detent.executor.plain.pool import Pool  # noqa: PLC0415 - `import detent` stays cheap

        self._sweep()
        live = self.home.path / LIVE
        live.mkdir(mode=0o700, exist_ok=True)
        host, self._host = self._host, None
        return Pool(
            self._processes, live=live, content=self.home.content_files().directory, preload=LOADED_BY_TASKS, host=host
        )

    @property
    def _processes(self) -> int:
        """Workers of all pools."""
        return self.workers + sum(self.pools.values())

    def _close_pool(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _make_executors(self, _backend: Backend) -> tuple[Mapping[str, Executor], Sleeper]:
        if self._pool is None:
            raise InvariantBroken("a runtime without executors of its own has a pool")
        from detent.workers.plain_executor import PlainExecutor  # noqa: PLC0415 - a run that reuses everything needs no pool

        plain = PlainExecutor(self._pool, self.told)
        sandboxed = LazyExecutor(lambda: self._sandbox_executor(plain.wake), self._processes)
        executors: dict[str, Executor] = {"python": plain, "shell": plain, "code": sandboxed, "job": sandboxed}
        taken = Resources(self.home.path, self.settings.resources, self.workers)
        return dict.fromkeys(executors, ResourceGate(executors, taken, self.backend.now_ms, self.pools)), plain

    def _map_executor(self, wake: Callable[[], None]) -> Executor:
        from detent.runs.map_executor import MapExecutor  # noqa: PLC0415 - ordered runs take time to load

        return MapExecutor(self, wake)

    def _sandbox_executor(self, wake: Callable[[], None]) -> Executor:
        from detent.executor.sandbox import Profile, Sandbox  # noqa: PLC0415
        from detent.workers.sandbox_executor import HomeFiles, SandboxExecutor  # noqa: PLC0415

        return SandboxExecutor(
            lambda: Sandbox(required=Profile(self.settings.sandbox_required), warm=1),
            HomeFiles(self.backend.files),
            bounds=self.settings.bounds,
            plans=self.settings.plans,
            threads=self._processes,
            wake=wake,
            clock_ms=self.backend.now_ms,
            random=self.backend.random,
            live=self.home.path / LIVE,
        )
