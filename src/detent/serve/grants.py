"""What a lease opens to its worker: the order, the values and files that it names, and nothing else.

The set is built when the lease is granted and can be built again from the lease alone, so a server that was started again answers
the same. A digest is not a capability: content is handed out below a lease that names it (T4, T7).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from detent.access.turn import INLINE_BYTES_MAX, Granted
from detent.canon import json_decode_trusted, parse_digest
from detent.errors import DetentError, StoreCorrupt
from detent.executor.own_targets import items_of
from detent.jobs.order import Order, read_order
from detent.jobs.source_tree import read_tree, tree_of
from detent.jobs.values import files_named
from detent.kernel import Grant
from detent.owner.backend import Backend
from detent.owner.content import open_value
from detent.workers.action_leases import ActionLeases
from detent.workers.bench import Allowance
from detent.workers.home_bench import allowance_of
from detent.workflow.vocabulary import EpochConflictError, LeaseExpiredError

GRANT_BYTES_MAX: Final = 512 * 1024
"""Of values that come with one grant; what is beyond is fetched as content, or refused if it has no digest of its own."""

TREES_KNOWN_MAX: Final = 64


class Opened(NamedTuple):
    """A grant as the worker is told it, and the digests that it may fetch."""

    granted: Granted
    inputs: frozenset[bytes]
    code: frozenset[bytes] = frozenset()
    """The list and the files of the source tree that its code is; leases of one tree share the set."""


class TreeDigests:
    """The digests of source trees, as far as leases named them lately. Safe for several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, frozenset[bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, backend: Backend, base: str | None) -> frozenset[bytes]:
        """What the base of an order opens; nothing unless it is a tree."""
        named = tree_of(base)
        if named is None:
            return frozenset()
        tree = named[0]
        with self._lock:
            if (known := self._known.get(tree)) is not None:
                self._known.move_to_end(tree)
                return known
        data = backend.content(tree)
        if data is None:
            raise StoreCorrupt("the source tree of the job is gone", hint="submit the run again")
        found = frozenset({tree, *(one.digest for one in read_tree(data).files)})
        with self._lock:
            self._known[tree] = found
            if len(self._known) > TREES_KNOWN_MAX:
                self._known.popitem(last=False)
        return found


def opened(backend: Backend, action_leases: ActionLeases, trees: TreeDigests, grant: Grant, lease_ms: int) -> Opened:
    """Everything that an attempt needs. An attempt that cannot begin comes with its failure, for the worker to report."""
    try:
        return _opened(backend, action_leases, trees, grant, lease_ms)
    except (LeaseExpiredError, EpochConflictError) as exc:
        refusal = ("VALIDATION_ERROR", exc.code, str(exc)[:1_000])
    except DetentError as exc:
        refusal = ("DEPENDENCY_ERROR", exc.code, str(exc)[:1_000])
    return Opened(Granted(tuple(grant), lease_ms, None, (), (), refusal=refusal), frozenset())


def _opened(backend: Backend, action_leases: ActionLeases, trees: TreeDigests, grant: Grant, lease_ms: int) -> Opened:
    sealed = backend.content(grant.payload_digest)
    if sealed is None:
        raise StoreCorrupt("the order of the job is gone", hint="it was erased, or the home is damaged")
    order = read_order(open_value(sealed))
    action_leases.held(grant.run_id, order.origin.action)
    values, files = _values(backend, order)
    allowance = allowance_of(backend, grant, order)
    earlier = None
    if order.elements and grant.attempt_id and (found := backend.array_report(grant.job_id)) is not None:
        earlier = found[0]
        files |= set(found[1].contents())
    inputs = {grant.payload_digest, *files, *(digest for _, _, digest in values if digest is not None)}
    if earlier is not None:
        inputs.add(earlier)
    granted = Granted(
        tuple(grant),
        lease_ms,
        sealed if len(sealed) <= INLINE_BYTES_MAX else None,
        tuple(values),
        tuple(sorted(files)),
        _left(allowance),
        earlier,
        tuple(sorted(allowance.retried)),
    )
    return Opened(granted, frozenset(inputs), trees.of(backend, order.call.base))


def _values(backend: Backend, order: Order) -> tuple[list[tuple[str, bytes | None, bytes | None]], set[bytes]]:
    """The values of the results that an order names, inline or by digest, and the files that any of it names."""
    values: list[tuple[str, bytes | None, bytes | None]] = []
    files = {parse_digest(named) for named in order.files()}
    if (items := items_of(order)) is not None:
        files.add(parse_digest(items))
    inline_bytes = 0
    for named in dict.fromkeys(order.results()):
        report = backend.result(named)
        if report is None:
            raise StoreCorrupt(f"the result {named} is gone", hint="run its step again with --force")
        data = backend.value_bytes(report) or b"null"
        if b'"$file"' in data:
            files |= {parse_digest(one) for one in files_named(json_decode_trusted(data))}
        if report.value_content is not None and len(data) > INLINE_BYTES_MAX:
            values.append((named, None, report.value_content))
        else:
            inline_bytes += len(data)
            values.append((named, data, None))
        if inline_bytes > GRANT_BYTES_MAX:
            raise StoreCorrupt("the order names more values than a worker elsewhere can be given", hint="pass files")
    return values, files


def _left(allowance: Allowance) -> dict[str, object] | None:
    left = allowance.left
    return None if left is None else {name: getattr(left, name) for name in (*left.BUDGETS, "evaluation_rule_id")}
