"""Whether an element of a run needs a job of its own: its work may have been done before, or be under way.

For each element whose turn it is, in this order:

1. A run that is taken up again knows the element already: it is put where the ledger says it is. When what that was made of
   has changed since, the whole run is superseded.
2. A job of this run does the same work: the element waits for it.
3. An earlier job did the same work, or another run's does it: its result is taken, or waited for (`work keys` finds it).
4. Otherwise the element needs a job, and the driver submits one.

What was taken is recorded (`step_reused`) many at a time, at the latest before the driver waits for news.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from detent.errors import error_of
from detent.jobs.work import WorkReport
from detent.kernel import ReuseStep
from detent.kernel.table import TERMINAL, State
from detent.owner.backend import Inline, joined
from detent.reuse.work_keys import Found, Miss, WorkKey
from detent.runs.record.requests import ENDED_ELSEWHERE, Requests
from detent.runs.record.resumed import GONE
from detent.runs.record.step_run import Element
from detent.runs.steps.state import RunState
from detent.words.states import FAILED, OVER, REUSED, RUNNING, WAITING
from detent.workers.next_attempt import why_failed
from detent.workers.supervisor import Attempted

REUSES_MAX: Final = 1_000
REUSE_BYTES_MAX: Final = 1024 * 1024
"""Reuses recorded in one commit, and how much their ingredients may take."""


class Reusing:
    """Decides for one run what is done anew.

    ``cancel`` ends the run; ``ended`` has a job settled that ended before; ``tell`` has one settled among the next news.
    """

    def __init__(
        self,
        state: RunState,
        requests: Requests,
        *,
        cancel: Callable[[str], None],
        ended: Callable[[str, str], None],
        tell: Callable[[Sequence[Attempted]], None],
    ) -> None:
        self._state = state
        self._requests = requests
        self._cancel = cancel
        self._ended = ended
        self._tell = tell
        self._taken: list[tuple[ReuseStep, Inline]] = []
        self._taken_bytes = 0
        self.reasons: dict[str, str] = {}
        """Why an element ran although its label had run before, by job id."""
        self.superseded: str | None = None
        """Why a run that was to be taken up cannot be: its code or its inputs have changed since."""

    def settled(self, element: Element, work_key: WorkKey) -> bool:
        """Whether an element needs no job of its own: then it has, or waits for, the result of another one."""
        return self.taken_up(element, work_key) or (work_key.key is not None and self._answered(element, work_key))

    def joins(self, element: Element, work_key: WorkKey) -> bool:
        """Whether an open job of this run does the same work; then the element waits for that one."""
        same = self._state.awaited.same_work(element, work_key)
        if same is not None:
            self._join(element, same, work_key)
        return same is not None

    def settle_joined(
        self, element: Element, job_id: str, state: str, digest: bytes | None, report: WorkReport | None
    ) -> None:
        """The job that an element had joined has ended: take its result, or do the work after all."""
        graph, work_key = self._state.graph, self._state.awaited.work_key(element)
        if state == State.SUCCEEDED and work_key is not None and report is not None:
            self._take(element, job_id, digest, report, work_key)
        elif not graph.ending and element.step.state not in OVER:
            self._offer_again(element)  # The other did not get there: do it ourselves.
        else:
            graph.drop(element)

    def give_back(self, job_id: str) -> None:
        """Offer those again that joined a job which will not be submitted after all."""
        for element in self._state.awaited.pop(job_id):
            self._offer_again(element)

    def record(self) -> None:
        """Record what was taken since the last time, in one commit."""
        taken, self._taken, self._taken_bytes = self._taken, [], 0
        if not taken:
            return None
        answers = self._requests.ask([command for command, _ in taken], joined(inline for _, inline in taken))
        for answer in answers:
            if answer.refusal is not None and answer.refusal.code == "UNKNOWN_RUN":
                return self._cancel(ENDED_ELSEWHERE)
            if answer.refusal is not None:
                raise error_of(answer.refusal)
        return None

    # -- a run that is taken up ----------------------------------------------------------------------------------------

    def taken_up(self, element: Element, work_key: WorkKey) -> bool:
        """Put an element of a run that is taken up where the ledger says it is; False when the ledger does not know it."""
        run, past, backend = self._state, self._state.past, self._state.backend
        source = past.source(element)
        row = past.jobs.get(element.job_id) if source is None else backend.reader.job(source)
        if source is None and row is None:
            return False
        found = None if source is None else backend.report_of(source)
        change = GONE if row is None else past.changed_since(row, work_key)
        if change or row is None or (source is not None and found is None):
            self._supersede(element, change or GONE)
        elif source is not None and found is not None:
            self._give(element, source, *found)
        else:
            element.state = RUNNING
            run.graph.begin(element)
            run.awaited.add(element, element.job_id, work_key)
            if row.state in TERMINAL:
                self._ended(element.job_id, row.state)
        return True

    def _supersede(self, element: Element, change: str) -> None:
        """What this run did so far was done with something else: it ends, and a new one begins from what still holds."""
        self.superseded = f"{element.step.key}: {change}"
        self._state.graph.drop(element)
        self._cancel(f"changed since it began: {self.superseded}")

    # -- work that is done, or under way -------------------------------------------------------------------------------

    def _answered(self, element: Element, work_key: WorkKey) -> bool:
        """Whether an earlier or a running job does the same work; then the element takes, or waits for, its result."""
        if self.joins(element, work_key):
            return True
        run = self._state
        found = run.work_keys.find(work_key, run.options, since_ms=run.started_ms)
        if isinstance(found, Miss):
            why = found.why
            element.again = why or None
            if not why and element.index is None:
                why = run.work_keys.because(run.orders.label(element.step), work_key, run.started_ms)
            if why:
                self.reasons[element.job_id] = why
            return False
        if found.running:
            self._join(element, found.job_id, work_key)
        elif found.state == State.SUCCEEDED:
            self._take(element, found.job_id, found.digest, found.report, work_key)
        else:
            self._fail_like(element, found)
        return True

    def _fail_like(self, element: Element, found: Found) -> None:
        """Take an earlier failure of the same work for the answer, as the user asked for (JOB-027)."""
        element.state, element.source, element.digest = FAILED, found.job_id, found.digest
        element.message = why_failed(found.report)
        self._state.graph.begin(element)
        self._state.graph.end(element)

    def _join(self, element: Element, job_id: str, work_key: WorkKey) -> None:
        run = self._state
        element.state, element.source = RUNNING, job_id
        run.awaited.add(element, job_id, work_key)
        run.graph.begin(element)
        row = run.backend.reader.job(job_id)
        if row is not None and row.state in TERMINAL:  # It ended before anybody listened.
            self._tell([Attempted(job_id, row.state, None, None)])

    def _take(
        self, element: Element, job_id: str, digest: bytes | None, report: WorkReport | None, work_key: WorkKey
    ) -> None:
        """Take an earlier result; `record` tells the ledger."""
        named, inline = self._state.orders.about_reuse(element, work_key)
        element_id = element.step.element_id(element.index)
        self._taken.append((ReuseStep(0, self._state.run_id, element_id, job_id, named), inline))
        self._taken_bytes += sum(len(data) for _, data in inline)
        self._give(element, job_id, digest, report)
        if len(self._taken) >= REUSES_MAX or self._taken_bytes >= REUSE_BYTES_MAX:
            self.record()

    def _give(self, element: Element, job_id: str, digest: bytes | None, report: WorkReport | None) -> None:
        """An element has the result of another one's job."""
        run = self._state
        element.state, element.source, element.digest = REUSED, job_id, digest
        run.graph.begin(element)
        run.orders.learn(element, report)
        run.graph.end(element)

    def _offer_again(self, element: Element) -> None:
        element.state, element.source = WAITING, None
        self._state.graph.offer([element])
