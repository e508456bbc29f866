"""Ordered runs: what `detent show` says of one, and where one stands right now, as its driver last wrote it down."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from detent.contract.words import format_duration
from detent.errors import InvalidInput
from detent.kernel.run import RUNNING
from detent.owner.ticks import SystemClock
from detent.pages.sheet import Cell, Cellish, Sheet, Told, told
from detent.pages.text import FAINT, STRONG, WARN, safe
from detent.runs.ordered.notes import note_name
from detent.runs.ordered.recorded import read_snapshot
from detent.runs.record.identity import is_driven
from detent.words.quantities import count_text, short_duration, size_text
from detent.words.states import CANCELLED, FAILED, SKIPPED, SUCCEEDED, word_of

if TYPE_CHECKING:
    from detent.owner.home import Home
    from detent.owner.views import JobView, RunView
    from detent.runs.ordered.recorded import RecordedOrdered


def ordered_fields(recorded: RecordedOrdered) -> list[tuple[str, Cellish]]:
    """What the head of `detent show` says of an ordered run."""
    spec, config, summary = recorded.inputs.spec, recorded.inputs.config, recorded.summary
    fields: list[tuple[str, Cellish]] = [("function", spec.compute), ("to", spec.commit or "a loop")]
    if spec.origin:
        fields.append(("retry of", f"run {spec.origin.get('run_id')}"))
    fields.append(("cut", f"windows of {config.window_size:,}, chunks of {config.chunk_size}"))
    if spec.item_ms is not None:
        fields.append(("limit", f"an item may take {format_duration(spec.item_ms)}"))
    fields.append(("items", _items_text(recorded)))
    if recorded.boundary is not None:
        fields.append((CANCELLED, f"from item {recorded.boundary:,} on"))
    if summary is not None:
        fields.append(("digest", f"sha256:{summary['digest']}"))
    return fields


def _items_text(recorded: RecordedOrdered) -> str:
    """``24 of 60 committed (23 succeeded, 1 failed), 36 cancelled``."""
    told = f"{recorded.committed:,} of {recorded.inputs.config.total:,} committed"
    summary = recorded.summary
    if summary is None:
        return told
    words = [(summary["success"], SUCCEEDED), (summary["skip"], SKIPPED), (summary["fail"], FAILED)]
    if said := ", ".join(f"{count:,} {word}" for count, word in words if count):
        told += f" ({said})"
    return told + (f", {summary['cancel']:,} cancelled" if summary["cancel"] else "")


class OrderedJobs:
    """The jobs of an ordered run, told apart: chunks, which compute, and the run's notes about itself."""

    def __init__(self, run_id: str, jobs: Iterable[JobView]) -> None:

        self.notes: dict[str, str] = {}
        """What each note is about, by job."""
        self.chunks: list[JobView] = []
        """In the order of their items."""
        for job in jobs:
            named = note_name(run_id, job.row.job_id)
            if named is None:
                self.chunks.append(job)
            else:
                self.notes[job.row.job_id] = named.kind
        self.chunks.sort(key=lambda job: [int(part) for part in re.findall(r"\d+", job.row.job_id[len(run_id) :])])

    def states_text(self) -> str:
        """How the chunks stand, and how many notes there are besides."""
        states = Counter(word_of(job.row.state) for job in self.chunks)
        said = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
        return f"{said}, and {self.notes_text()}" if self.notes else said

    def notes_text(self) -> str:
        """How many notes of each kind."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(self.notes.values()).items()))
        return f"{count_text(len(self.notes), 'note')} of the run about itself ({kinds})"


def show_snapshot(home: Home, identifier: str, view: RunView | None) -> Told:
    """Answer with the snapshot of a run; `InvalidInput` says why there is none."""
    if view is None:
        raise InvalidInput(
            f"there is no run {identifier!r} here", code="UNKNOWN_RUN", hint="`detent list` shows the runs"
        )
    run_id = view.row.run_id
    if view.row.status != RUNNING:
        raise InvalidInput(
            f"run {run_id!r} has ended ({word_of(view.row.status)}); only unfinished runs have a snapshot",
            hint=f"`detent show {run_id}` shows how it ended",
        )
    said = read_snapshot(home.path, run_id)
    if said is None:
        raise InvalidInput(
            f"run {run_id!r} has no snapshot",
            hint="a run of `detent map` writes one every second; try again, or see `detent show` for other runs",
        )
    driven = is_driven(home.path, run_id)
    age_ms = max(0, SystemClock().wall_ms() - said["written_ms"])
    document = {**said, "driven": driven, "age_ms": age_ms}
    return told(document, lambda page: draw_snapshot(page, document))


def draw_snapshot(page: Sheet, document: dict[str, Any]) -> None:
    """The snapshot for people."""
    said = document["snapshot"]
    old = f"  {short_duration(document['age_ms'])} ago, by process {document.get('pid')}"
    page.line(Cell(f"snapshot of run {document['run_id']}", STRONG), Cell(old, FAINT))
    if not document["driven"]:
        page.line("  ", Cell("interrupted: no process is working on it; this is its last state", WARN))
    total, committed = said.get("total"), said.get("committed_count")
    fields: list[tuple[str, Cellish]] = [
        ("committed", f"{committed:,} of {total:,}, {said.get('commit_lag'):,} computed and waiting"),
        ("under way", f"{said.get('in_flight_count'):,} at workers, {said.get('dispatched_count'):,} queued"),
        ("buffered", f"{count_text(said.get('buffered_count'), 'item')}, {size_text(said.get('buffered_bytes'))}"),
    ]
    if (blocked := said.get("oldest_blocked")) is not None:
        owner = f", at {blocked['owner']}" if blocked.get("owner") else ""
        why = f", last failure {blocked['failure']}" if blocked.get("failure") else ""
        told = f"item {blocked['seq']:,}: {blocked['state']} for {short_duration(blocked['age_ms'])}{owner}{why}"
        fields.append(("waits for", told))
    for window in said.get("active_windows", ()):
        states = ", ".join(f"{count:,} {state}" for state, count in window["occupancy"].items())
        fields.append((window["lane"], f"items {window['start_seq']:,} to {window['end_seq']:,}: {states}"))
    if said.get("write_failures"):
        fields.append(("destination", f"failed {count_text(said['write_failures'], 'time')} in a row"))
    if said.get("cancel_boundary") != total:
        fields.append((CANCELLED, f"from item {said.get('cancel_boundary'):,} on"))
    if document.get("message"):
        fields.append(("says", safe(document["message"])))
    page.fields(fields, indent="  ")
