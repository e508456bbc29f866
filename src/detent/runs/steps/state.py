"""What the parts of a driver know of one run together: its steps, who waits for which job, and what was done of it before."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from detent.owner.backend import Backend
from detent.reuse.work_keys import WorkKeys
from detent.runs.record.inputs import RunIdentity, RunInputs
from detent.runs.record.resumed import Past
from detent.runs.steps.graph import RunGraph
from detent.runs.steps.job_waiters import JobWaiters
from detent.runs.steps.orders import Orders
from detent.runs.steps.plan import steps_of

if TYPE_CHECKING:
    from detent.reuse.work_keys import Options


class RunState:
    """One run while it is driven. It belongs to the thread that drives it."""

    def __init__(
        self, backend: Backend, inputs: RunInputs, identity: RunIdentity, work_keys: WorkKeys, options: Options
    ) -> None:
        self.backend = backend
        self.run_id = identity.run_id
        self.options = options
        self.work_keys = work_keys
        self.steps = steps_of(inputs, identity)
        self.orders = Orders(backend, inputs, identity.run_id, work_keys, self.steps, options.salt)
        self.graph = RunGraph(inputs, identity, self.steps, self.orders.items, backend.now_ms)
        self.past = Past(backend, work_keys)
        self.graph.begun = partial(self.past.begun, self.steps)
        self.awaited = JobWaiters()
        self.started_ms = backend.now_ms()
