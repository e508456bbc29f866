"""Reads what the decision about an element needs: its work key, what the ledger says of a resumed run, earlier equal work.

Earlier work is read for many elements at once, no further ahead than may be submitted now: what waits longer may have been done
by another run when its turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from detent.jobs.dedupe import ExecutionKey
from detent.owner.backend import Submission
from detent.reuse.work_keys import Found, Miss, WorkKey, WorkKeys
from detent.runs.record.resumed import Past
from detent.runs.record.step_run import Element
from detent.runs.steps.next_work import Candidate
from detent.runs.steps.orders import Orders

if TYPE_CHECKING:
    from detent.reuse.work_keys import Options


class Candidates:
    """The elements of one run on their way to a decision."""

    def __init__(self, orders: Orders, work_keys: WorkKeys, past: Past, options: Options) -> None:
        self._orders = orders
        self._work_keys = work_keys
        self._past = past
        self._options = options
        self._ahead: dict[str, Candidate] = {}
        """Elements whose turn is about to come."""
        self._returned: dict[str, Candidate] = {}
        """Elements that the queue had no room for, with their jobs."""

    def of(self, element: Element, following: Iterable[Element], *, since_ms: int) -> Candidate:
        """What is known about an element; about those that follow it, it is read in the same go."""
        returned = self._returned.pop(element.job_id, None)
        if returned is not None:
            return returned  # The queue had no room for it; nothing else has changed.
        if element.job_id not in self._ahead:
            self._read([element, *(one for one in following if one.job_id not in self._returned)], since_ms)
        return self._ahead.pop(element.job_id)

    def begun(self, element: Element) -> Candidate:
        """What an earlier process of the run did of an element."""
        work_key = self._orders.work_key(element)
        return Candidate(element, work_key, self._past.recorded(element, work_key))

    def keep(self, candidate: Candidate, prepared: Submission) -> None:
        """Keep the job of an element for which the queue had no room; its turn comes again."""
        self._returned[candidate.element.job_id] = Candidate(candidate.element, candidate.work_key, prepared=prepared)

    def forget(self) -> None:
        """Forget what was read ahead: from now on it may be otherwise."""
        self._ahead.clear()
        self._work_keys.look_away()

    def _read(self, elements: Iterable[Element], since_ms: int) -> None:
        work_keys = [(element, self._orders.work_key(element)) for element in elements]
        read = [(element, key, self._past.recorded(element, key)) for element, key in work_keys]
        self._work_keys.look(key for _, key, recorded in read if recorded is None)
        known: dict[ExecutionKey, tuple[WorkKey, Found | Miss]] = {}
        self._ahead = {}
        for element, work_key, recorded in read:
            found = Miss() if recorded is not None else self._found(work_key, known, since_ms)
            self._ahead[element.job_id] = Candidate(element, work_key, recorded, found)

    def _found(
        self, work_key: WorkKey, known: dict[ExecutionKey, tuple[WorkKey, Found | Miss]], since_ms: int
    ) -> Found | Miss:
        """What was done of some work before; equal work of one look has one answer."""
        if work_key.key is None:
            return Miss()
        same, found = known.get(work_key.key, (None, None))
        if same is None or found is None or same.limits != work_key.limits:
            found = self._work_keys.find(work_key, self._options, since_ms=since_ms)
            known[work_key.key] = work_key, found
        return found
