"""What a new run does about what was done before (X-192).

The same line typed again is answered by the run that did it, as long as its destination still has what that run left. A line
that asks for other work begins a new run, which must not be mixed with what its destination holds: that is refused, unless the
new run is to add to it, or to replace what earlier runs of the same map left there.

Running again what did not succeed of an ordered run: as a new run, in order, whose items name their old seqs (X-183).

Nothing that has ended is touched. The items are those that failed or were cancelled; their bytes are taken from the old run's
spool, so they are the same items. A run that never ended is simply gone on with.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from detent.canon.late import dataclass
from detent.errors import DetentError, InvalidInput, StoreCorrupt
from detent.kernel import Run
from detent.kernel.run import COMPLETED, RUNNING
from detent.ordered import SeqState, Summary
from detent.owner.backend import Backend
from detent.owner.content import Content
from detent.reuse.work_keys import WorkKeys
from detent.runs.ordered.recorded import RecordedOrdered, ordered_inputs, recorded_ordered
from detent.runs.ordered.recovery import committed, standing
from detent.runs.ordered.spec import Items, OrderedInputs, OrderedSpec, open_spool, read_ordered, spool
from detent.store.api import RunRow, StoreReader
from detent.targets.api import Anew, CommitTarget

OWN_RUNS_LOOKED_MAX: Final = 8
"""Earlier runs of the same work that are asked whether they left a file as it is."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a new run begins, if it comes to one."""

    force: bool = False
    """Start over, without reuse, and replace the output of earlier runs of the same map."""
    append: bool = False
    """Add to what the destination holds."""
    answers: bool = True
    """Whether an earlier run can be the answer. Not where the destination is a function of this very process: what it did before
    may be gone with the process that had it."""

    def anew(self, backend: Backend, spec: OrderedSpec) -> Anew | None:
        """What is done about what the destination holds; None: it is added to."""
        if self.append:
            return None
        return left_by(backend, lambda: runs_like(backend, spec), replaces_own=self.force, refuses_others=True)


@dataclass(frozen=True, slots=True)
class Earlier:
    """An ended run that did, or tried to do, the very work that is asked for."""

    run: Run
    recorded: RecordedOrdered
    delivered: int
    """Items that it, or a run that it retried, brought to the destination."""

    @property
    def is_complete(self) -> bool:
        """Whether every item succeeded or was skipped."""
        return self.run.status == COMPLETED and self.recorded.summary is not None

    def summary(self) -> Summary:
        """The outcome of the run."""
        said: dict[str, Any] = self.recorded.summary or {}
        counts = {name: said[name] for name in ("total", "success", "skip", "fail", "cancel")}
        return Summary(**counts, root=bytes.fromhex(said["root"]), failures=dict(said["failures"]))

    def is_kept(self, backend: Backend, target: CommitTarget) -> bool:
        """Whether the destination still has what the run left there."""
        holds = getattr(target, "holds", None)
        if holds is None:
            return True  # A destination of the user's own making: nothing here can know.
        last = self.recorded.last_commit or {}
        with suppress(DetentError):  # A run whose notes were erased cannot say.
            return bool(holds(self.run.run_id, standing(backend, self.run.run_id).mark, last.get("success", 0)))
        return False


def earlier_run(backend: Backend, inputs: OrderedInputs) -> Earlier | None:
    """The newest ended run of this very work; or, if that was retried, the run that retried it last."""
    content = Content(backend.reader, backend.files)
    retries: dict[str, RunRow] = {}
    for row in _named(backend, inputs.spec.name):
        run = Run.decode(row.body)
        began = None if row.status == RUNNING else ordered_inputs(content, run)
        if began is None:
            continue
        if _is_same(run, began, inputs):
            return _last(backend, content, row, retries)
        if origin := began.spec.origin.get("run_id"):
            retries.setdefault(origin, row)
    return None


def runs_like(backend: Backend, spec: OrderedSpec) -> Iterator[RunRow]:
    """The runs of the same map, newest first: of the same name, with the same destination."""
    content = Content(backend.reader, backend.files)
    for row in _named(backend, spec.name):
        began = ordered_inputs(content, Run.decode(row.body))
        if began is not None and (began.spec.commit, began.spec.base) == (spec.commit, spec.base):
            yield row


def left_by(backend: Backend, runs: Callable[[], Iterator[RunRow]], **said: bool) -> Anew:
    """What is done about a destination that holds what some of these runs may have left, newest first."""

    def whose(length: int, tail: str) -> str | None:
        for place, row in enumerate(runs()):
            if place == OWN_RUNS_LOOKED_MAX:
                break
            with suppress(DetentError):  # One whose notes were erased cannot say.
                mark = standing(backend, row.run_id).mark
                if mark is not None and (mark.offset, mark.tail) == (length, tail):
                    return row.run_id
        return None

    def own_runs() -> Container[str]:
        return {row.run_id for row in runs()}

    return Anew(whose, own_runs, **said)


def _named(backend: Backend, name: str) -> list[RunRow]:
    return [row for row in backend.reader.runs() if row.name == name and row.tenant_id == backend.tenant]


def _is_same(run: Run, began: OrderedInputs, wanted: OrderedInputs) -> bool:
    """Whether a run was asked for the same. What a retry has committed counts, with any version of the code."""
    if (run.contract_digest, run.bindings_digest) != wanted.digests():
        return False
    made = wanted.ingredients
    is_known = made.get("code") is not None or "version" in made  # Code that cannot be read whole may be any other.
    return bool(wanted.spec.origin) or (is_known and not WorkKeys.difference(began.ingredients, made))


def _last(backend: Backend, content: Content, row: RunRow, retries: dict[str, RunRow]) -> Earlier | None:
    """The run that came last in a chain of retries, with what all of them delivered."""
    delivered = 0
    while True:
        run = Run.decode(row.body)
        recorded = recorded_ordered(backend.reader, content, run)
        if recorded is None:
            return None
        delivered += (recorded.last_commit or {}).get("success", 0)
        later = retries.get(row.run_id)
        if later is None:
            return Earlier(run, recorded, delivered)
        row = later


AGAIN = frozenset({SeqState.TERMINAL_FAIL, SeqState.TERMINAL_CANCEL})


@dataclass(frozen=True, slots=True)
class OrderedRetry:
    """What to start to retry an ordered run; or that run itself, when it never ended."""

    spec: OrderedSpec
    items: Items
    seqs: Sequence[int] | None
    """The seqs that the items had when they were first computed; None where that is now."""


def ordered_to_retry(backend: Backend, run: Run) -> OrderedRetry | None:
    """What to start to retry a run; None when it is not an ordered run. Raises `InvalidInput` where that cannot be done."""
    try:
        inputs = read_ordered(backend.unsealed(run.inputs_digest))
    except StoreCorrupt:
        return None  # What it was is gone; the next request says so.
    if inputs is None:
        return None
    if inputs.spec.commit is None:
        raise InvalidInput(
            f"the results of run {run.run_id!r} went to a loop, which is not here",
            hint="call ordered_map with the same items again",
        )
    items = open_spool(backend.files, inputs.items)
    if run.status == RUNNING:
        return OrderedRetry(
            inputs.spec, items, first_seqs(backend.reader, Content(backend.reader, backend.files), inputs.spec)
        )
    seqs = list(unsuccessful(backend, run.run_id, inputs))
    if not seqs:
        raise InvalidInput(f"every item of run {run.run_id!r} succeeded or was skipped")
    again = spool(backend.files, (items.lines(seq, seq)[0] for seq in seqs))
    spec = replace(inputs.spec, origin={"run_id": run.run_id, "origin_seq": seqs})
    return OrderedRetry(spec, again, first_seqs(backend.reader, Content(backend.reader, backend.files), spec))


def first_seqs(reader: StoreReader, content: Content, spec: OrderedSpec) -> list[int] | None:
    """The seqs that a retry's items had in the run that it goes back to, through all retries between; None if it is none."""
    seqs: list[int] | None = None
    origin = spec.origin
    while origin:
        own = origin["origin_seq"]
        seqs = list(own) if seqs is None else [own[seq] for seq in seqs]
        row = reader.run(origin["run_id"])
        before = None if row is None else ordered_inputs(content, Run.decode(row.body))
        origin = {} if before is None else before.spec.origin
    return seqs


def unsuccessful(backend: Backend, run_id: str, inputs: OrderedInputs) -> Iterator[int]:
    """The seqs of an ended run that failed or were cancelled, in order."""
    ended = committed(backend, run_id, inputs.config, replace(standing(backend, run_id), cursor=inputs.config.total))
    for seq, envelope in enumerate(ended):
        if envelope.outcome in AGAIN:
            yield seq
