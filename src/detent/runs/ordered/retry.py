"""Running again what did not succeed of an ordered run: as a new run, in order, whose items name their old seqs (X-183).

Nothing that has ended is touched. The items are those that failed or were cancelled; their bytes are taken from the old run's
spool, so they are the same items. A run that never ended is simply gone on with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from detent.canon.late import dataclass
from detent.errors import InvalidInput, StoreCorrupt
from detent.kernel import Run
from detent.kernel.run import RUNNING
from detent.ordered import SeqState
from detent.owner.backend import Backend
from detent.owner.content import Content
from detent.runs.ordered.items import Items, open_spool, spool
from detent.runs.ordered.recorded import ordered_inputs
from detent.runs.ordered.recovery import committed, standing
from detent.runs.ordered.spec import OrderedInputs, OrderedSpec, read_ordered
from detent.store.api import StoreReader

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
