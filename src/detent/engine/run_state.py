"""What the parts of a driver know of one run together: its steps, who waits for which job, and what was done of it before."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from detent.engine.awaited import Awaited
from detent.engine.desk import Desk
from detent.engine.recipes import Recipes
from detent.engine.run_graph import RunGraph
from detent.engine.run_inputs import RunIdentity, RunInputs
from detent.engine.run_orders import Orders
from detent.engine.run_past import Past
from detent.engine.run_plan import steps_of

if TYPE_CHECKING:
    from detent.engine.recipes import Options


class RunState:
    """One run while it is driven. It belongs to the thread that drives it."""

    def __init__(
        self, desk: Desk, inputs: RunInputs, identity: RunIdentity, recipes: Recipes, options: Options
    ) -> None:
        self.desk = desk
        self.run_id = identity.run_id
        self.options = options
        self.recipes = recipes
        self.steps = steps_of(inputs, identity)
        self.orders = Orders(desk, inputs, identity.run_id, recipes, self.steps, options.salt)
        self.graph = RunGraph(inputs, identity, self.steps, self.orders.items, desk.now_ms)
        self.past = Past(desk, recipes)
        self.graph.begun = partial(self.past.begun, self.steps)
        self.awaited = Awaited()
        self.started_ms = desk.now_ms()
