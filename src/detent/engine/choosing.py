"""Which elements of a run are submitted next: those whose turn it is, that need a job, and for which there is room.

What was done of them before is read for many at once, no further ahead than may be submitted now: whatever waits longer may
have been done by somebody else when its turn comes.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from detent.engine.desk import Submission
from detent.engine.recipes import Recipe
from detent.engine.reusing import Reusing
from detent.engine.run_state import RunState
from detent.engine.step_run import Element
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
        self._made: dict[str, Recipe] = {}
        """Recipes of elements whose turn is about to come."""
        self._kept: dict[str, tuple[Recipe, Submission]] = {}
        """What the queue had no room for, made ready once."""

    def room(self) -> int:
        """How many jobs of the run may be submitted now; one by one, the next waits also for jobs that were joined (X-194)."""
        if self._graph.one_by_one:
            return max(0, 1 - self._awaited.live)
        return max(0, self._most - (self._awaited.live - self._awaited.joined))

    def next(self) -> list[tuple[Element, Recipe]]:
        """The next elements that need a job, and what their work is made of; they are waited for from now on."""
        chosen: list[tuple[Element, Recipe]] = []
        offers = self._graph.offers
        while offers and len(chosen) < (most := min(OFFER_MAX, self.room())):
            element = offers.popleft()
            if element.step.state in OVER and not self._state.past.is_open(element.job_id):
                self._graph.drop(element)
                self._reusing.give_back(element.job_id)
                continue
            recipe = self._needed(element, most - len(chosen))
            if recipe is not None:
                # Before it is submitted: equal work in the same batch joins it.
                self._awaited.add(element, element.job_id, recipe, live=False)
                chosen.append((element, recipe))
        return chosen

    def take_past(self) -> None:
        """Put all that an earlier process began of this run where the ledger says it is; begin nothing else."""
        graph, unbegun = self._graph, []
        while graph.has_more:
            graph.close_empty()
            if graph.offers:
                element = graph.offers.popleft()
                if not self._reusing.taken_up(element, self._state.orders.recipe(element)):
                    unbegun.append(element)
        graph.offers.extend(unbegun)

    def prepared(self, chosen: list[tuple[Element, Recipe]]) -> list[tuple[Element, Submission]]:
        """Chosen elements as jobs; those made ready before are as they were."""
        fresh = iter(self._state.orders.submissions([one for one in chosen if one[0].job_id not in self._kept]))
        return [
            (element, next(fresh) if (kept := self._kept.pop(element.job_id, None)) is None else kept[1])
            for element, _ in chosen
        ]

    def keep(self, element: Element, submission: Submission) -> None:
        """Keep the job of an element for which the queue had no room; its turn comes again."""
        if (recipe := self._awaited.recipe(element)) is not None:
            self._kept[element.job_id] = (recipe, submission)

    def look_away(self) -> None:
        """Forget what was read ahead: from now on it may be otherwise."""
        self._made.clear()
        self._state.recipes.look_away()

    def _needed(self, element: Element, count: int) -> Recipe | None:
        """What the job of an element is made of; None when it needs none, because another one's is or becomes its result."""
        kept = self._kept.get(element.job_id)
        if kept is not None:
            if not self._reusing.joins(element, kept[0]):
                return kept[0]  # The queue had no room for it; nothing else has changed.
            del self._kept[element.job_id]
            return None
        if element.job_id not in self._made:
            self._look_ahead(element, count)
        recipe = self._made.pop(element.job_id)
        return None if self._reusing.settled(element, recipe) else recipe

    def _look_ahead(self, element: Element, count: int) -> None:
        """Make the recipes of an element and of those that come next, and read at once what was done of them before."""
        following = (one for one in islice(self._graph.offers, count - 1) if one.job_id not in self._kept)
        self._made = {one.job_id: self._state.orders.recipe(one) for one in (element, *following)}
        self._state.recipes.look(self._made.values())
