"""Pages about ordered runs: how one ended, and where one is right now.

How an ordered run ended: for people as a page, for programs as data, both from the same values.

`detent show RUN --snapshot`: where an ordered run stands and what it waits for, as its driver last wrote it down.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any, Final

from detent.cli.page import Page
from detent.cli.shell import CommandFailure
from detent.errors import DetentError, InvariantBroken
from detent.pages.sheet import Cell, Cellish, state_cell
from detent.pages.text import BAD, FAINT, STRONG, safe
from detent.words.quantities import count_text, short_duration
from detent.words.states import CANCELLED, FAILED, SKIPPED, STOPPED, word_of

if TYPE_CHECKING:
    from detent.runs.ordered.handle import OrderedHandle, OrderedResult
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
