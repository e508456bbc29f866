"""`detent show RUN --snapshot`: where an ordered run stands and what it waits for, as its driver last wrote it down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.cli.page import Cell, Cellish, Page
from detent.cli.terminal import FAINT, STRONG, WARN, safe
from detent.words.quantities import count_text, short_duration, size_text
from detent.words.states import CANCELLED, word_of

if TYPE_CHECKING:
    from detent.cli.shell import Shell
    from detent.owner.home import Home
    from detent.owner.views import RunView


def show_snapshot(shell: Shell, home: Home, identifier: str, view: RunView | None) -> int:
    """Answer with the snapshot of a run; `InvalidInput` says why there is none."""
    from detent.errors import InvalidInput  # noqa: PLC0415
    from detent.kernel.run import RUNNING  # noqa: PLC0415
    from detent.owner.ticks import SystemClock  # noqa: PLC0415 - keeps `--help` fast
    from detent.runs.ordered.snapshot_file import read_snapshot  # noqa: PLC0415
    from detent.runs.record.identity import is_driven  # noqa: PLC0415

    if view is None:
        raise InvalidInput(f"there is no run {identifier!r} here", hint="`detent list` shows the runs")
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
    return shell.answer(document, lambda page: draw_snapshot(page, document))


def draw_snapshot(page: Page, document: dict[str, Any]) -> None:
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
