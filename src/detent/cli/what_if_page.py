"""A comparison of two policies for people: what was changed, the figures side by side, and who noticed most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from detent.cli.page import Cell, Cellish, Page
from detent.cli.terminal import FAINT, GOOD, STRONG, WARN
from detent.words.quantities import count_text

if TYPE_CHECKING:
    from detent.scheduling.what_if_figures import Comparison, Figures, Waits

SHOWN_MAX = 10
"""Replicas and jobs that a page names, those that changed most; JSON has more."""
Row: TypeAlias = tuple[str, Sequence[int | None]]
_LABELS = {"stopped": "stopped by a limit", "unfinished": "not ended"}


def draw_comparison(page: Page, comparison: Comparison, what: str, policy: str) -> None:
    """What differs, first in one line, then in figures, then by replica and by job."""
    verdict = Cell("no difference", GOOD) if comparison.same else Cell("different", WARN)
    page.line(verdict, f"  {what} under {policy}")
    changed = [(one.name, f"{_value(one.before)} -> {_value(one.after)}") for one in comparison.settings]
    page.fields(changed, indent="  ")
    if not comparison.settings:
        page.line("  the policy is the one the ledger ended with")
    for note in comparison.notes:
        page.hanging([Cell("  - ", FAINT)], note)
    page.line()
    page.table(
        ["", "history", "recorded policy", "other policy", "change"],
        [[name, *map(_number, values), _change(values[1], values[2])] for name, values in _rows(comparison)],
    )
    _draw_turned(page, comparison)
    _draw_placements(page, comparison)
    _draw_jobs(page, comparison)


def _rows(comparison: Comparison) -> Iterator[Row]:
    sides = (comparison.recorded, comparison.before, comparison.after)
    yield "jobs", [side.jobs for side in sides]
    for state in comparison.before.states:
        yield _LABELS.get(state, state), [side.states[state] for side in sides]
    yield "began", [side.waits.jobs for side in sides]
    yield from _wait_rows("wait", [side.waits for side in sides])
    classes = sorted({priority for side in sides for priority in side.waits_by_class}, reverse=True)
    for priority in classes if len(classes) > 1 else ():
        yield from _wait_rows(f"class {priority} wait", [_waits_of(side, priority) for side in sides])


def _wait_rows(name: str, sides: Sequence[Waits]) -> Iterator[Row]:
    for measure in ("mean_ms", "p50_ms", "p95_ms", "max_ms"):
        yield f"{name} {measure.replace('_', ' ')}", [getattr(waits, measure) for waits in sides]


def _waits_of(figures: Figures, priority: int) -> Waits:
    from detent.scheduling.what_if_figures import Waits  # noqa: PLC0415 - keeps `--help` fast

    return figures.waits_by_class.get(priority, Waits.of(()))


def _draw_turned(page: Page, comparison: Comparison) -> None:
    if comparison.turned:
        page.line()
        page.line(Cell("other ends", STRONG))
        page.table(["recorded policy", "other policy", "jobs"], [[a, b, f"{n:,}"] for a, b, n in comparison.turned])


def _draw_placements(page: Page, comparison: Comparison) -> None:
    page.line()
    page.line(Cell("placements", STRONG), f"  {count_text(comparison.moved, 'job')} ran elsewhere")
    rows: list[list[Cellish]] = [
        [change.replica_id, f"{change.before:,}", f"{change.after:,}", _change(change.before, change.after)]
        for change in comparison.placements[:SHOWN_MAX]
    ]
    if rows:
        page.table(["replica", "recorded policy", "other policy", "change"], rows)
        _draw_more(page, len(comparison.placements))


def _draw_jobs(page: Page, comparison: Comparison) -> None:
    page.line()
    page.line(Cell("waits", STRONG), f"  {count_text(comparison.wait_changes_total, 'job')} began at another time")
    rows: list[list[Cellish]] = [
        [
            change.job_id,
            str(change.priority),
            f"{change.before_ms:,}",
            f"{change.after_ms:,}",
            _change(change.before_ms, change.after_ms),
        ]
        for change in comparison.wait_changes[:SHOWN_MAX]
    ]
    if rows:
        page.table(["job", "class", "recorded policy ms", "other policy ms", "change"], rows)
        _draw_more(page, comparison.wait_changes_total)


def _draw_more(page: Page, total: int) -> None:
    if total > SHOWN_MAX:
        page.line(Cell(f"... and {total - SHOWN_MAX:,} more", FAINT))


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _change(before: int | None, after: int | None) -> Cell:
    if before is None or after is None:
        return Cell("-", FAINT)
    return Cell("=", FAINT) if before == after else Cell(f"{after - before:+,}", STRONG)


def _value(value: object) -> str:
    if isinstance(value, list) and len(set(value)) == 1:
        return f"{value[0]} each"
    return "none" if value is None else str(value)
