"""Progress for pipes, logs and plain terminals: a line when something happened, and never a flood of them.

A fan-out of 10,000 elements says how far it is at every tenth or now and then, not 10,000 times; many short steps that end
at once are summed up in one line. Failures are always shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from time import localtime, strftime
from typing import Final

from detent.canon.late import dataclass
from detent.cli.progress_frame import WAITED_SHOWN_MS, fold_text
from detent.cli.terminal import safe
from detent.runs.record.view import RunView, StepView, step_time_ms, step_waited_ms
from detent.words.quantities import count_text, short_duration
from detent.words.states import BLOCKED, CANCELLED, FAILED, OVER, READY, REUSED, RUNNING, SKIPPED

BURST_LINES: Final = 20
"""Lines that may be written at once before ends are summed up."""
LINE_EVERY_MS: Final = 500
"""After a burst, one more line may be written each time this much has passed."""
ELEMENTS_EVERY_MS: Final = 1_000
"""A mapped step that gets on says so at most this often, and only at every tenth,"""
ELEMENTS_SLOW_MS: Final = 30_000
"""or after this long, wherever it is."""


@dataclass(slots=True)
class _Seen:
    """What was last said about a step."""

    state: str
    done: int = 0
    failed: int = 0
    retries: int = 0
    said_ms: int = 0


def clock_text(now_ms: int) -> str:
    """The time of day where the reader sits."""
    return strftime("%H:%M:%S", localtime(now_ms / 1000))


@dataclass(slots=True)
class PlainLines:
    """Turns one view after the other into the lines that are new."""

    clock: Callable[[int], str] = clock_text
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _ended: list[StepView] = field(default_factory=list)
    """Steps that ended and wait to be told together."""
    _room: float = BURST_LINES
    _last_ms: int | None = None
    _note: str = ""
    _warned: int = 0

    def lines(self, view: RunView, *, last: bool = False) -> list[str]:
        """What there is to say since the view before; the last view says everything that is left."""
        told: list[str] = []
        if self._last_ms is None:
            self._last_ms = view.now_ms
            how = "goes on" if view.resumed else "started"
            told.append(
                f"{safe(view.name)} {how}: run {safe(view.run_id)}, {count_text(len(view.steps), 'step')},"
                f" {count_text(view.workers, 'worker')}"
            )
        self._room = min(BURST_LINES, self._room + max(0, view.now_ms - self._last_ms) / LINE_EVERY_MS)
        self._last_ms = view.now_ms
        if view.note != self._note:
            self._note = view.note
            told += [safe(view.note)] if view.note else []
        told += [f"warning: {safe(text)}" for text in view.warnings[self._warned :]]
        self._warned = len(view.warnings)
        changed = [step for step in view.steps if self._has_changed(step, view.now_ms)]
        # What has ended comes first: who only gets on may wait for room.
        told += [_failure(step) for step in changed if step.state == FAILED]
        self._ended += [step for step in changed if step.state in OVER and step.state != FAILED]
        told += self._ends(view.now_ms, last=last)
        for step in view.steps:
            if step.state in {RUNNING, READY} and step.started_ms is not None:
                told += self._getting_on(step, view.now_ms)
        stamp = self.clock(view.now_ms)
        return [f"{stamp} {line}" for line in told]

    def _has_changed(self, step: StepView, now_ms: int) -> bool:
        seen = self._seen.get(step.key)
        if seen is None:
            self._seen[step.key] = _Seen(step.state, said_ms=now_ms)
            return True
        before, seen.state = seen.state, step.state
        return before != step.state

    def _getting_on(self, step: StepView, now_ms: int) -> Iterable[str]:
        seen = self._seen[step.key]
        if step.again and step.retries > seen.retries and self._take():
            more = f" ({step.retrying - 1:,} more waiting for another attempt)" if step.retrying > 1 else ""
            yield f"{safe(step.key)}{'' if step.again.startswith('[') else ' '}{safe(step.again)}{more}"
        seen.retries = step.retries
        if step.total != 1 and self._is_worth_a_line(step, seen, now_ms) and self._take():
            seen.done, seen.failed, seen.said_ms = step.done, step.failed, now_ms
            yield _elements(step)

    def _is_worth_a_line(self, step: StepView, seen: _Seen, now_ms: int) -> bool:
        if not step.total or (step.done, step.failed) == (seen.done, seen.failed):
            return False
        waited_ms = now_ms - seen.said_ms
        if step.failed and not seen.failed:
            return True
        if waited_ms < ELEMENTS_EVERY_MS:
            return False
        over, before = step.done + step.failed, seen.done + seen.failed
        return over * 10 // step.total > before * 10 // step.total or waited_ms >= ELEMENTS_SLOW_MS

    def _ends(self, now_ms: int, *, last: bool) -> list[str]:
        ended = self._ended
        if not ended or (not last and self._room < 1):
            return []
        self._ended = []
        if len(ended) <= self._room:
            self._room -= len(ended)
            return [_end(step, now_ms) for step in ended]
        self._room = max(0.0, self._room - 1)
        return [fold_text(ended)]

    def _take(self) -> bool:
        if self._room < 1:
            return False
        self._room -= 1
        return True


def _failure(step: StepView) -> str:
    return f"{safe(step.key)} failed" + (f": {safe(step.message)}" if step.message else "")


def _elements(step: StepView) -> str:
    text = f"{safe(step.key)} {step.done:,}/{step.total:,} done"
    if step.cached:
        text += f", {step.cached:,} reused"
    return text + (f", {step.failed:,} failed" if step.failed else "")


def _end(step: StepView, now_ms: int) -> str:
    key = safe(step.key)
    if step.state in {SKIPPED, BLOCKED, CANCELLED}:
        what = "not run" if step.state == BLOCKED else step.state
        return f"{key} {what}" + (f": {safe(step.message)}" if step.message else "")
    spent, waited = step_time_ms(step, now_ms), step_waited_ms(step, now_ms)
    took = "" if spent is None or step.state == REUSED else f" in {short_duration(spent)}"
    if took and waited is not None and waited >= WAITED_SHOWN_MS:
        took += f" (waited {short_duration(waited)})"
    if step.total == 1:
        return f"{key} {REUSED if step.state == REUSED else 'done'}{took}"
    return _elements(step) + took
