"""Which elements of a run are submitted next: those whose turn it is, that need a job, and for which there is room.

What was done of them before is read for many at once, no further ahead than may be submitted now: what waits longer may
have been done by another run when its turn comes.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from detent.owner.backend import Submission
from detent.reuse.work_keys import WorkKey
from detent.runs.record.step_run import Element
from detent.runs.steps.reusing import Reusing
from detent.runs.steps.state import RunState
from detent.words.states import OVER

OFFER_MAX: Final = 200
"""Jobs submitted in one commit; below what one class of the queue holds by default."""
WAITING_MAX: Final = 4_000
"""Jobs of one run that may wait in the queue at once: room is for others, too."""


class Choosing:
    """Takes elements from the offers of one run, and makes jobs of those that need one."""

    def __init__(self, state: RunState, reusing: Reusing) -> None:
        self._state = state
        self._reusing = reusing
        self._graph, self._awaited = state.graph, state.awaited
        self._most = WAITING_MAX if state.options.max_parallel is None else state.options.max_parallel
        self._made: dict[str, WorkKey] = {}
        """Work keys of elements whose turn is about to come."""
        self._kept: dict[str, tuple[WorkKey, Submission]] = {}
        """What the queue had no room for, made ready once."""

    def room(self) -> int:
        """How many jobs of the run may be submitted now; one by one, the next waits also for jobs that were joined (X-194)."""
        if self._graph.one_by_one:
            return max(0, 1 - self._awaited.live)
        return max(0, self._most - (self._awaited.live - self._awaited.joined))

    def next(self) -> list[tuple[Element, WorkKey]]:
        """The next elements that need a job, and what their work is made of; they are waited for from now on."""
        chosen: list[tuple[Element, WorkKey]] = []
        offers = self._graph.offers
        while offers and len(chosen) < (most := min(OFFER_MAX, self.room())):
            element = offers.popleft()
            if element.step.state in OVER and not self._state.past.is_open(element.job_id):
                self._graph.drop(element)
                self._reusing.give_back(element.job_id)
                continue
            work_key = self._needed(element, most - len(chosen))
            if work_key is not None:
                # Before it is submitted: equal work in the same batch joins it.
                self._awaited.add(element, element.job_id, work_key, live=False)
                chosen.append((element, work_key))
        return chosen

    def take_past(self) -> None:
        """Put all that an earlier process began of this run where the ledger says it is; begin nothing else."""
        graph, unbegun = self._graph, []
        while graph.has_more:
            graph.close_empty()
            if graph.offers:
                element = graph.offers.popleft()
                if not self._reusing.taken_up(element, self._state.orders.work_key(element)):
                    unbegun.append(element)
        graph.offers.extend(unbegun)

    def prepared(self, chosen: list[tuple[Element, WorkKey]]) -> list[tuple[Element, Submission]]:
        """Chosen elements as jobs; those made ready before are as they were."""
        fresh = iter(self._state.orders.submissions([one for one in chosen if one[0].job_id not in self._kept]))
        return [
            (element, next(fresh) if (kept := self._kept.pop(element.job_id, None)) is None else kept[1])
            for element, _ in chosen
        ]

    def keep(self, element: Element, submission: Submission) -> None:
        """Keep the job of an element for which the queue had no room; its turn comes again."""
        if (work_key := self._awaited.work_key(element)) is not None:
            self._kept[element.job_id] = (work_key, submission)

    def look_away(self) -> None:
        """Forget what was read ahead: from now on it may be otherwise."""
        self._made.clear()
        self._state.work_keys.look_away()

    def _needed(self, element: Element, count: int) -> WorkKey | None:
        """What the job of an element is made of; None when it needs none, because another one's is or becomes its result."""
        kept = self._kept.get(element.job_id)
        if kept is not None:
            if not self._reusing.joins(element, kept[0]):
                return kept[0]  # The queue had no room for it; nothing else has changed.
            del self._kept[element.job_id]
            return None
        if element.job_id not in self._made:
            self._look_ahead(element, count)
        work_key = self._made.pop(element.job_id)
        return None if self._reusing.settled(element, work_key) else work_key

    def _look_ahead(self, element: Element, count: int) -> None:
        """Make the work keys of an element and of those that come next, and read at once what was done of them before."""
        following = (one for one in islice(self._graph.offers, count - 1) if one.job_id not in self._kept)
        self._made = {one.job_id: self._state.orders.work_key(one) for one in (element, *following)}
        self._state.work_keys.look(self._made.values())
