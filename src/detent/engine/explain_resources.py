"""What a job takes of its home, and whether it had to wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from detent.canon.late import dataclass
from detent.engine.content import Content, order_of
from detent.engine.inspect import JobView, timeline_of_job
from detent.engine.live_output import live_jobs
from detent.engine.recorded_run import report_of
from detent.kernel.table import State
from detent.store.api import StoreReader
from detent.words.quantities import duration_text

WAITED_MS_MIN: Final = 100
"""A shorter time between claim and beginning is nobody's wait: it is how long work takes to be handed on."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one attempt of a job takes, with what there is to say about it."""

    resources: Mapping[str, int]
    waiting: bool
    """It was claimed, and no worker has begun it."""
    lines: tuple[str, ...]

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {"takes": dict(self.resources), "waiting": self.waiting}


def taken_by(reader: StoreReader, content: Content, view: JobView, home: Path) -> Taken | None:
    """What a job takes; None when it declares nothing, or when its order is gone."""
    order = order_of(content, view.row) if view.job.job_kind in {"action", "task"} else None
    if order is None or not order.resources:
        return None
    said = takes_text(order.resources)
    if view.job.state == State.RUNNING and view.row.job_id not in live_jobs(home):
        return Taken(
            order.resources, True, (said, "It was claimed and waits until so much is free: no worker has begun it yet.")
        )
    waited = _waited_ms(reader, content, view)
    lines = (said,) if waited < WAITED_MS_MIN else (said, f"Its last attempt waited {duration_text(waited)} for that.")
    return Taken(order.resources, False, lines)


def takes_text(resources: Mapping[str, int]) -> str:
    """What work takes, as a sentence."""
    said = [f"{amount:,} {name}" for name, amount in resources.items()]
    amounts = " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)
    return f"Each attempt takes {amounts} of what there is."


def _waited_ms(reader: StoreReader, content: Content, view: JobView) -> int:
    """From the claim of the last attempt to its beginning, as far as its report tells."""
    report = report_of(reader, content, view.row) if view.job.terminal else None
    if report is None:
        return 0
    claims = [record.tick for record in timeline_of_job(reader, content, view) if record.fields.get("dispatch") is True]
    if not claims or claims[-1] is None:
        return 0
    return report.started_ms - (view.times.epoch_base_ms + claims[-1] * view.times.tick_ms)
