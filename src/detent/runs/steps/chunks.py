"""Elements of mapped steps that need a job and may share one with others of their step.

They wait here until a job is made of them: of one alone, or of several as an array. How many share a job follows from how long the
elements of the step took so far (`chunk_sizes`), so only a few jobs of a step are under way while that is still being learned. What waits here
has been decided and nothing else: another process that drives the run decides it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from detent.jobs.order import unchunked
from detent.jobs.work import WorkReport
from detent.reuse.work_keys import WorkKey
from detent.runs.record.step_run import Element, StepRun
from detent.runs.steps.next_work import Submit
from detent.runs.submit.chunk_sizes import ChunkSizes

WAITING_MAX: Final = 4_000
"""Elements of a run that may wait for a job at once: what waits longer may have been done by another run meanwhile."""
JOBS_AHEAD: Final = 4
"""Jobs of a step under way for each worker, while their size depends on what is measured."""
JOBS_AHEAD_MIN: Final = 8

Chunk = Sequence[Submit]


class Chunks:
    """What waits for a job in one run. For the thread that drives it."""

    def __init__(self, workers: int) -> None:
        self._workers = max(1, workers)
        self._steps: dict[str, _Step] = {}
        self._jobs: dict[str, _Step] = {}
        """Jobs under way of steps whose elements may share one."""

    def __len__(self) -> int:
        """How many elements wait."""
        return sum(len(step.waiting) for step in self._steps.values())

    def add(self, decision: Submit) -> None:
        """Have an element wait for a job."""
        step = decision.candidate.element.step
        known = self._steps.get(step.key)
        if known is None:
            known = self._steps[step.key] = _Step(step)
        known.waiting.append(decision)

    def next(self, most: int) -> list[Chunk]:
        """Take the elements of the next jobs, at most so many of these."""
        chunks: list[Chunk] = []
        for step in self._steps.values():
            while len(chunks) < most and (chunk := step.next(self._workers)):
                chunks.append(chunk)
        return chunks

    def begin(self, chunk: Chunk, job_id: str) -> None:
        """A job is about to be submitted for some elements."""
        step = self._steps.get(chunk[0].candidate.element.step.key)
        if step is not None:
            self._jobs[job_id] = step

    def put_back(self, chunk: Chunk, job_id: str) -> bool:
        """A job was not taken: its elements wait on, before all others. False: they were not waiting here."""
        step = self._jobs.pop(job_id, None)
        if step is None:
            return False
        step.under_way -= 1
        step.waiting.extendleft(reversed(chunk))
        return True

    def ended(self, job_id: str, report: WorkReport | None) -> None:
        """A job has ended; how long its elements took decides about the next ones."""
        step = self._jobs.pop(job_id, None)
        if step is None:
            return
        step.under_way -= 1
        if report is not None:
            step.sizes.learn(step.key, durations_us(report))

    def clear(self) -> None:
        """No job is made any more of what waits."""
        for step in self._steps.values():
            step.waiting.clear()


class _Step:
    """What waits of one step."""

    def __init__(self, step: StepRun) -> None:
        self.key = step.key
        self.mapped = f"argument:{step.mapped_name}"
        self.sizes = ChunkSizes(step.binding.chunk)
        self.fixed = step.binding.chunk
        self.waiting: deque[Submit] = deque()
        self.under_way = 0

    def next(self, workers: int) -> Chunk:
        if not self.waiting:
            return ()
        size = self.sizes.next(self.key, len(self.waiting), workers)
        is_settled = self.fixed is not None or (size == 1 and self.sizes.is_known(self.key))
        if not is_settled and self.under_way >= max(JOBS_AHEAD_MIN, JOBS_AHEAD * workers):
            return ()
        self.under_way += 1
        chunk = [self.waiting.popleft()]
        first = chunk[0].candidate.work_key
        while self.waiting and len(chunk) < size and self._fits(first, self.waiting[0].candidate.work_key):
            chunk.append(self.waiting.popleft())
        return chunk

    def _fits(self, first: WorkKey, other: WorkKey) -> bool:
        """Whether all but their items is the same, also the code, which may have been read a moment later."""
        ours, theirs = first.ingredients, other.ingredients
        return len(ours) == len(theirs) and all(
            theirs.get(name) == said for name, said in ours.items() if name != self.mapped
        )


def may_share(element: Element, work_key: WorkKey, *, one_by_one: bool) -> bool:
    """Whether an element of a step may share a job with others: nothing is limited, measured or ordered for it alone."""
    step = element.step
    if not step.mapped or one_by_one or step.at_once is not None or step.binding.chunk == 1:
        return False
    return work_key.limits is not None and not unchunked(work_key.call, work_key.limits)


def durations_us(report: WorkReport) -> Sequence[int]:
    """How long each element of a job took; of a job that is one, how long that did."""
    elements = report.result.elements
    if elements is not None:
        return [took for place, took in enumerate(elements.wall_us) if elements.codes[place]]
    return [max(0, report.result.finished_ms - report.result.started_ms) * 1000]
