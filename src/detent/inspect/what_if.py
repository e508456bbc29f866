"""What-if: put the recorded traffic of a home or a bundle through another scheduling policy, and say what changes.

Nothing is checked here: `detent verify` and `detent replay` say whether a ledger can be believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Final

from detent.errors import DetentError, InvalidInput
from detent.inspect.audit import commits
from detent.inspect.traffic import Recorder
from detent.kernel import KernelConfig
from detent.ledger.bundle import read_bundle
from detent.ledger.findings import Finding
from detent.ledger.items import SCOPE_RUN, BatchItem, HeaderItem, PartialItem, Readable, batch_item
from detent.owner.home import Home
from detent.owner.wiring import Parts
from detent.scheduling.policy import SchedulingPolicy
from detent.scheduling.scheduler import policy_of
from detent.scheduling.what_if import Fate, simulate
from detent.scheduling.what_if_figures import Comparison, compare
from detent.store.api import REFUSALS_KEPT_MAX, StoreReader
from detent.words.quantities import count_text

ADMISSION_CODES: Final = frozenset(
    {
        "QUEUE_FULL",
        "LIMIT_TENANT",
        "POOL_UNREADY",
        "NO_FEASIBLE_POOL",
        "CTX_TOO_LONG",
        "TOKEN_BUDGET_EXCEEDED",
        "SESSION_BUDGET_EXCEEDED",
    }
)
"""Refusals that say that the scheduler would not have a job."""


def what_if_home(home: Home, policy: SchedulingPolicy, *, parts: Parts | None = None) -> Comparison:
    """What another policy would have changed in a home, as its ledger is at this moment."""
    with (parts or Parts()).open_snapshot(home.ledger) as reader:
        refused = sum(row.code in ADMISSION_CODES for row in reader.refusals(limit=REFUSALS_KEPT_MAX))
        return _what_if(str(home.ledger), _items(reader), policy, refused)


def what_if_file(path: Path, policy: SchedulingPolicy) -> Comparison:
    """What another policy would have changed in the ledger of a bundle.

    Raises `InvalidInput` for a file that cannot be read, or that is the bundle of one run: it holds no commands.
    """
    try:
        file = path.open("rb")
    except OSError as exc:
        raise InvalidInput(
            f"{path} cannot be read: {exc.strerror or exc}", hint="give the path of a bundle that `detent export` wrote"
        ) from exc
    with closing(file):
        return _what_if(str(path), read_bundle(file), policy, None)


def _items(reader: StoreReader) -> Iterator[Readable]:
    for partition in range(reader.partitions):
        for batch, records in commits(reader, partition):
            yield batch_item(batch, records)


def _what_if(what: str, items: Iterable[Readable], policy: SchedulingPolicy, refused: int | None) -> Comparison:
    recorders = _read(what, items)
    recorded: dict[str, Fate] = {}
    before: dict[str, Fate] = {}
    after: dict[str, Fate] = {}
    for recorder in recorders:
        traffic = recorder.traffic()
        recorded.update(recorder.fates())
        before.update(simulate(traffic))
        after.update(simulate(traffic, policy))
    configs = recorders[-1].configs or [KernelConfig()]
    return compare(
        recorded,
        before,
        after,
        policies=(policy_of(configs[-1]), policy),
        tick_ms=configs[-1].tick_ms,
        notes=tuple(_notes(recorders, refused)),
    )


def _read(what: str, items: Iterable[Readable]) -> list[Recorder]:
    recorders: dict[int, Recorder] = {}
    for item in items:
        if isinstance(item, Finding):
            raise InvalidInput(
                f"{what} cannot be read: {item.message}", hint="`detent verify` says what is wrong with it"
            )
        if isinstance(item, PartialItem) or (isinstance(item, HeaderItem) and item.scope == SCOPE_RUN):
            raise InvalidInput(
                f"{what} is the bundle of one run; commands are not in it, so there is no traffic to put through a policy",
                hint="`detent export` without a run exports the whole ledger",
            )
        if isinstance(item, BatchItem):
            try:
                recorders.setdefault(item.partition, Recorder()).batch(item)
            except (DetentError, KeyError, TypeError, AttributeError) as exc:
                raise InvalidInput(
                    f"{what} holds a batch that cannot be read: {exc}",
                    hint="`detent verify` says what is wrong with it",
                ) from exc
    if not recorders:
        raise InvalidInput(f"{what} holds no batches", hint="a bundle that `detent export` wrote has some")
    return [recorders[partition] for partition in sorted(recorders)]


def _notes(recorders: list[Recorder], refused: int | None) -> Iterator[str]:
    """What the simulation could not know, and what it took instead."""
    yield "What was refused then left no command behind and is not tried again." + (
        f" The decision log has {refused:,} of it." if refused else ""
    )
    never = sum(recorder.estimates.never_ran for recorder in recorders)
    unfinished = sum(recorder.estimates.unfinished for recorder in recorders)
    unknown = sum(recorder.estimates.unknown for recorder in recorders)
    stopped = sum(recorder.estimates.stopped for recorder in recorders)
    if never > unknown:
        yield f"Never ran, and is taken to need the median of its kind: {_jobs(never - unknown)}."
    if unknown:
        yield f"Never ran, and with no other job to go by is taken to end at once: {_jobs(unknown)}."
    if unfinished:
        yield f"Had begun and not ended, and is estimated from its kind and its past: {_jobs(unfinished)}."
    if stopped:
        yield f"Was stopped by a limit, and is assumed to end there under any limit: {_jobs(stopped)}."
    workers = [worker for recorder in recorders for worker in recorder.workers.values()]
    if workers:
        yield (
            "Claimed work without being registered as a replica, so that the placement order has no say over it: "
            f"{count_text(len(workers), 'worker')} with {count_text(sum(worker.slots for worker in workers), 'place')} in all."
        )
    changes = sum(policy_of(old) != policy_of(new) for recorder in recorders for old, new in pairwise(recorder.configs))
    if changes:
        times = count_text(changes, "time")
        yield f"The recorded policy changed {times}. The recorded side follows it; the settings shown are its last ones."


def _jobs(count: int) -> str:
    return count_text(count, "job")
