"""What a map step goes on with: the items that an ordered run of it, cancelled or failed, did not bring to the destination.

An ordered run that has ended is not touched. The rest of its items is an ordered run of its own, which names the one that it
retries and the seqs that its items had there (X-183), and whose results are added to what the destination holds. The step
gives what both came to together, the same as one run of all items would have given.

Only the end of a run can be gone on with: results are added behind those that are there, so a gap before them would leave the
destination out of order. An item that failed and has committed ones behind it stays as it ended with ``on_error: continue``;
otherwise the step could never succeed, and all of it is done anew.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from detent.canon.destinations import file_of
from detent.canon.late import dataclass
from detent.errors import DetentError, StoreCorrupt
from detent.jobs.order import Order
from detent.kernel import Run
from detent.kernel.run import RUNNING
from detent.ordered import Envelope, SeqState, Summary
from detent.ordered.outcomes import item_bytes
from detent.ordered.states import OUTCOME_WORDS
from detent.ordered.summary import BlockTree, count_failure
from detent.owner.backend import Backend
from detent.owner.content import Content
from detent.reuse.path_arguments import expanded
from detent.reuse.work_keys import WorkKeys
from detent.runs.map_step import KEPT
from detent.runs.ordered.items import Items, open_spool, spool
from detent.runs.ordered.recorded import ordered_inputs, recorded_ordered
from detent.runs.ordered.recovery import committed, standing
from detent.runs.ordered.resume import Earlier, earlier_run
from detent.runs.ordered.retry import AGAIN, first_seqs
from detent.runs.ordered.spec import OrderedInputs, OrderedSpec
from detent.runs.record.inputs import RETRY_OF
from detent.targets.api import CommitTarget, Mark


class StepTarget(CommitTarget, Protocol):
    """A destination that a step can have: it knows whether it still has what a run left there."""

    def holds(self, run_id: str, recorded: Mark | None, rows: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class Rest:
    """The items of a step that are still to be done."""

    before: str
    """The ordered run that is gone on with."""
    spec: OrderedSpec
    items: Items
    seqs: list[int]
    """The numbers of the items in the step; none when a retry by hand has done them all."""


def rest_of(backend: Backend, order: Order, inputs: OrderedInputs, target: StepTarget) -> Rest | None:
    """The rest of a step; None where all of it is to be done: nothing was done before, or what was done is gone or unwanted."""
    if not _is_wanted(backend, order) or _is_open(backend, inputs):
        return None
    with suppress(DetentError):  # A run whose notes, items or results were erased: it cannot be gone on with.
        earlier, mark = earlier_run(backend, inputs), None
        while earlier is not None and (mark := standing(backend, earlier.run.run_id).mark) is None:
            earlier = _origin(backend, earlier)  # It never began to write.
        if earlier is None or mark is None or not _is_made_of(earlier, inputs):
            return None
        rest = _rest(backend, earlier)
        if rest is None or _is_open(backend, replace(inputs, spec=rest.spec, items=rest.items.digest)):
            return rest
        path = file_of(order.call.target["commit"])
        if path is not None and _size(Path(inputs.spec.base or "", expanded(path))) != mark.offset:
            return None
        if target.holds(earlier.run.run_id, mark, earlier.delivered):
            return rest
    return None


def whole(backend: Backend, run_id: str) -> Summary:
    """The outcome of a run together with those that it continues."""
    content = Content(backend.reader, backend.files)
    ended: dict[int, Envelope] = {}
    total, named = 0, run_id
    while named:
        row = backend.reader.run(named)
        inputs = None if row is None else ordered_inputs(content, Run.decode(row.body))
        if inputs is None:
            raise StoreCorrupt(f"what run {named!r} was started with is gone", hint="begin a new run")
        total = inputs.config.total
        known = replace(standing(backend, named), cursor=total)
        seqs = first_seqs(backend.reader, content, inputs.spec) or range(total)
        for seq, envelope in zip(seqs, committed(backend, named, inputs.config, known), strict=True):
            ended.setdefault(seq, envelope)
        named = inputs.spec.origin.get("run_id", "")
    return _summary([ended[seq] for seq in range(total)])


def _summary(ended: list[Envelope]) -> Summary:
    tree, failures = BlockTree(), dict[str, int]()
    tree.extend([item_bytes(seq, one.outcome, one.payload_digest) for seq, one in enumerate(ended)])
    counts = Counter(OUTCOME_WORDS[one.outcome] for one in ended)
    for one in ended:
        if OUTCOME_WORDS[one.outcome] == "fail":
            count_failure(failures, one.code or "UNKNOWN")
    said = {word: counts[word] for word in OUTCOME_WORDS.values()}
    return Summary(total=len(ended), **said, root=tree.root(), failures=failures)


def _rest(backend: Backend, earlier: Earlier) -> Rest | None:
    run_id, inputs = earlier.run.run_id, earlier.recorded.inputs
    total = inputs.config.total
    seqs = first_seqs(backend.reader, Content(backend.reader, backend.files), inputs.spec)
    if seqs is not None and seqs != list(range(seqs[0], seqs[0] + total)):
        return None  # A retry by hand of items that failed here and there: they stand behind the others.
    ended = list(committed(backend, run_id, inputs.config, replace(standing(backend, run_id), cursor=total)))
    first = total
    while first and ended[first - 1].outcome in AGAIN:
        first -= 1
    is_stuck = inputs.spec.on_error == "stop" and any(one.outcome is SeqState.TERMINAL_FAIL for one in ended[:first])
    if is_stuck or (first == total and seqs is None):
        return None
    own = list(range(first, total))
    spec = replace(inputs.spec, origin={"run_id": run_id, "origin_seq": own})
    items = open_spool(backend.files, inputs.items)
    rest = spool(backend.files, (items.lines(seq, seq)[0] for seq in own))
    return Rest(run_id, spec, rest, own if seqs is None else seqs[first:])


def _origin(backend: Backend, earlier: Earlier) -> Earlier | None:
    """The run that a run retries, without what that one delivered itself."""
    named = earlier.recorded.inputs.spec.origin.get("run_id")
    row = None if named is None else backend.reader.run(named)
    run = None if row is None else Run.decode(row.body)
    recorded = None if run is None else recorded_ordered(backend.reader, Content(backend.reader, backend.files), run)
    return None if run is None or recorded is None else Earlier(run, recorded, earlier.delivered)


def _is_wanted(backend: Backend, order: Order) -> bool:
    """Whether what was done before may stay: in a retry always, else unless the step is never reused, or `--force` was given."""
    row = None if order.origin.run_id is None else backend.reader.run(order.origin.run_id)
    said: Any = None if row is None else backend.unsealed(Run.decode(row.body).inputs_digest)
    if not isinstance(said, dict):
        return False
    return RETRY_OF in said.get("about", {}) or (
        bool(order.origin.ingredients) and not said.get("options", {}).get("force")
    )


def _is_open(backend: Backend, inputs: OrderedInputs) -> bool:
    """Whether a run that does this has not ended: then it is gone on with, wherever its destination stands."""
    runs = (Run.decode(row.body) for row in backend.reader.runs(status=RUNNING) if row.tenant_id == backend.tenant)
    return any((run.contract_digest, run.bindings_digest) == inputs.digests() for run in runs)


def _is_made_of(earlier: Earlier, inputs: OrderedInputs) -> bool:
    """Whether a run called the same functions, in the words of a step; one that was begun by hand may say more."""
    known = earlier.recorded.inputs.ingredients
    made = {name: value for name, value in inputs.ingredients.items() if name in KEPT}
    return not WorkKeys.difference({name: known[name] for name in KEPT if name in known}, made)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
