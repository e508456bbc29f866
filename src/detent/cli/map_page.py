"""Pages about ordered runs: how one ended, and where one is right now.

How an ordered run ended: for people as a page, for programs as data, both from the same values.

`detent show RUN --snapshot`: where an ordered run stands and what it waits for, as its driver last wrote it down.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any, Final

from detent.cli.page import Cell, Cellish, Page, state_cell
from detent.cli.shell import CommandFailure
from detent.cli.terminal import BAD, FAINT, STRONG, WARN, safe
from detent.errors import DetentError, InvalidInput, InvariantBroken
from detent.kernel.run import RUNNING
from detent.owner.ticks import SystemClock
from detent.runs.ordered.notes import note_name
from detent.runs.ordered.recorded import read_snapshot
from detent.runs.record.identity import is_driven
from detent.words.quantities import count_text, short_duration, size_text
from detent.words.states import CANCELLED, FAILED, SKIPPED, STOPPED, SUCCEEDED, word_of

if TYPE_CHECKING:
    from detent.cli.shell import Shell
    from detent.owner.home import Home
    from detent.owner.views import JobView, RunView
    from detent.runs.ordered.handle import OrderedHandle, OrderedResult
    from detent.runs.ordered.recorded import RecordedOrdered
    from detent.runs.ordered.recovery import FailedItem
    from detent.runs.ordered.spec import OrderedSpec

FAILURES_SHOWN_MAX: Final = 10
MESSAGE_CHARS_MAX: Final = 200


def broken_data(handle: OrderedHandle, spec: OrderedSpec, exc: DetentError | InvariantBroken) -> dict[str, Any]:
    """The one JSON document of `detent map -o json` when the run broke off: what was wrong, and the run as it stood."""
    view = handle.view()
    details = {name: value for name, value in exc.details.items() if name != "snapshot"}
    hint, retryable = (exc.hint, exc.retryable) if isinstance(exc, DetentError) else (None, None)
    return {
        **CommandFailure(exc.code, str(exc), hint, retryable, details).document(),
        "run_id": handle.run_id,
        "name": spec.name,
        "status": STOPPED,
        "home": view.home,
        "destination": spec.commit,
        "items": {"total": view.total, "committed": view.committed},
        "snapshot": exc.details["snapshot"],
        "snapshot_file": str(handle.snapshot_path),
    }


def summary_data(
    ended: OrderedResult, spec: OrderedSpec, snapshot: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """The one JSON document of `detent map -o json`; ``snapshot`` is the run as it stood at its end."""
    summary, view = ended.summary, ended.view
    return {
        "run_id": ended.run_id,
        "name": ended.name,
        "status": word_of(ended.status),
        "resumed": view.resumed,
        "resumed_at": ended.resumed_at,
        "done_before": ended.done_before,
        "home": view.home,
        "destination": spec.commit,
        "elapsed_ms": view.now_ms - view.started_ms,
        "items": {
            "total": view.total,
            "committed": summary.total - summary.cancel,
            "succeeded": summary.success,
            "skipped": summary.skip,
            "failed": summary.fail,
            "cancelled": summary.cancel,
        },
        "digest": f"sha256:{summary.digest().hex()}",
        "failure_codes": summary.failures,
        "failures": [
            {"seq": one.seq, "code": one.code, "type": one.type, "message": one.message, "job_id": one.job_id}
            for one in ended.failures
        ],
        "message": ended.message or None,
        "snapshot": snapshot,
    }


def draw_summary(page: Page, ended: OrderedResult, spec: OrderedSpec, item_text: Callable[[int], str]) -> None:
    """Did it work, how many, where are they, what went wrong, and what to type next."""
    summary, view = ended.summary, ended.view
    spent = f" in {short_duration(view.now_ms - view.started_ms)}"
    if ended.done_before:
        page.line(Cell(ended.name, STRONG), " done already", Cell(f"  run {ended.run_id}", FAINT))
    else:
        page.line(Cell(ended.name, STRONG), " ", state_cell(ended.status), spent, Cell(f"  run {ended.run_id}", FAINT))
    words = [(summary.success, "committed"), (summary.skip, SKIPPED), (summary.fail, FAILED)]
    words += [(summary.cancel, CANCELLED)]
    said = ", ".join(f"{number:,} {word}" for number, word in words if number) or "none"
    fields: list[tuple[str, Any]] = [("items", f"{said}, of {view.total:,}")]
    if view.resumed:
        fields.append(("resumed", f"at item {ended.resumed_at:,}"))
    if spec.commit is not None:
        fields.append(("to", spec.commit))
    if ended.done_before:
        fields.append(("ended", strftime("%Y-%m-%d %H:%M:%S UTC", gmtime(view.now_ms / 1000))))
    fields.append(("digest", f"sha256:{summary.digest().hex()}"))
    page.fields(fields, indent="  ")
    if ended.failures:
        page.line()
        alike = _alike(ended.failures)
        shown = list(alike.items())[:FAILURES_SHOWN_MAX]
        for said, seqs in shown:
            others = f" and {len(seqs) - 1:,} more" if len(seqs) > 1 else ""
            lead: list[Cellish] = [Cell(f"  item {seqs[0]:,}", BAD), f" {safe(item_text(seqs[0]))}{others}  "]
            page.hanging(lead, said)
        if (left := summary.fail - sum(len(seqs) for _, seqs in shown)) > 0:
            page.line(Cell(f"  ... and {count_text(left, 'more failed item')}: `-o json` has them", FAINT))
    page.line()
    page.line("  ", Cell(_next(ended, spec), FAINT))


def _alike(failures: Sequence[FailedItem]) -> dict[str, list[int]]:
    """What failed items tell, with the seqs of those that tell the same: a function often fails for one reason."""
    alike: dict[str, list[int]] = {}
    for one in failures:
        name = one.type or one.code
        message = one.message.strip().partition("\n")[0][:MESSAGE_CHARS_MAX]
        alike.setdefault(f"{name}: {message}" if message else name, []).append(one.seq)
    return alike


def ordered_fields(recorded: RecordedOrdered) -> list[tuple[str, Cellish]]:
    """What the head of `detent show` says of an ordered run."""
    spec, config, summary = recorded.inputs.spec, recorded.inputs.config, recorded.summary
    fields: list[tuple[str, Cellish]] = [("function", spec.compute), ("to", spec.commit or "a loop")]
    if spec.origin:
        fields.append(("retry of", f"run {spec.origin.get('run_id')}"))
    fields.append(("cut", f"windows of {config.window_size:,}, chunks of {config.chunk_size}"))
    if spec.item_ms is not None:
        from detent.contract.words import format_duration  # noqa: PLC0415 - keeps `--help` fast

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


def _next(ended: OrderedResult, spec: OrderedSpec) -> str:
    run = shlex.quote(ended.run_id)
    if ended.status == STOPPED:
        return "interrupted; run the same command again to resume"
    if ended.done_before and spec.origin:
        return f"this run completed run {spec.origin.get('run_id')}; the destination was left alone"
    if ended.done_before:
        return "the destination was left alone; --force starts over and replaces the output of that run"
    if ended.ok:
        return f"detent show {run}"
    return f"detent retry {run}  run the missing items in order; committed items stay"


def show_snapshot(shell: Shell, home: Home, identifier: str, view: RunView | None) -> int:
    """Answer with the snapshot of a run; `InvalidInput` says why there is none."""
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
