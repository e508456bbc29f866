"""`detent replay`: decide the recorded commands again and compare every byte.

A comparison of two policies for people: what was changed, the figures side by side, and who noticed most.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, connectable, teaching
from detent.errors import EXIT_FAILED
from detent.pages.sheet import Cell, Cellish
from detent.pages.text import BAD, FAINT, GOOD, STRONG, WARN
from detent.words.quantities import count_text

if TYPE_CHECKING:
    from detent.remote.home import RemoteHome
    from detent.scheduling.what_if_figures import Comparison, Figures, Waits

DIFFERENCES_SHOWN_MAX = 50


@click.command(
    "replay",
    help=teaching(
        """Feed the recorded commands to a fresh kernel and compare every record it makes with the recorded one, byte for byte. This
shows that every decision followed the rules, which a signature cannot show. Replay does not check signatures; `detent
verify` does.

FILE is the bundle of a whole ledger; the bundle of one run holds no commands. Without FILE, the ledger of this home is
replayed, and its stored rows and checkpoints are compared as well. With --connect, the whole ledger of a server is fetched
and replayed here, for which the key needs server:audit. Any difference makes the exit code 1.

With --policy, nothing is compared byte for byte. Instead the recorded arrivals are run through another scheduling policy in
virtual time, and the differences are shown: waits, evictions, refusals, placements. The file has the sections [queue] and
[scheduling] of a home's config.toml; missing settings have their defaults. The exit code is 0 even if there are differences.""",
        """  detent replay
  detent replay ledger.detent -o json
  detent replay --policy new-policy.toml
""",
    ),
)
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "policy_path",
    metavar="TOML",
    type=click.Path(path_type=Path),
    help="Show what another scheduling policy would have changed.",
)
@connectable
def command(shell: Shell, file: Path | None, policy_path: Path | None) -> int:
    """Replay a bundle or this home, by the policy that was in force or by another one."""
    if file is not None and shell.server_option is not None:
        raise click.UsageError("a FILE is replayed on this machine: leave --connect out")
    if file is None and (server := shell.server()) is not None:
        with server, _ledger_of(server) as fetched:
            return _replayed(shell, fetched, policy_path, server.http.address.url)
    return _replayed(shell, file, policy_path, str(file))


@contextmanager
def _ledger_of(server: RemoteHome) -> Iterator[Path]:
    """The whole ledger of a server in a file, for as long as it is needed."""
    from detent.remote.bundles import fetch_bundle  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="detent-replay-") as directory:
        path = Path(directory, "ledger.detent")
        with path.open("xb") as file:
            fetch_bundle(server.http, file, None)
        yield path


def _replayed(shell: Shell, file: Path | None, policy_path: Path | None, what: str) -> int:
    if policy_path is not None:
        return _what_if(shell, file, policy_path, what)
    from detent.inspect.replay import replay_file, replay_home  # noqa: PLC0415 - keeps `--help` fast

    if file is not None:
        report = replay_file(file)
    else:
        home = shell.home()
        report, what = replay_home(home), str(home.ledger)
    document = {"file": what, **report.to_map()}

    def draw(page: Page) -> None:
        nothing = bool(report.notes) and not report.batches
        refused = report.ambiguous_transitions
        bad = "NOT REPLAYED" if nothing else "NOT THE SAME"
        page.line(Cell("replayed", GOOD) if report.ok else Cell(bad, BAD), f"  {what}")
        counts = [
            count_text(report.batches, "batch", "batches"),
            count_text(report.commands, "command"),
            count_text(report.records, "record"),
        ]
        if not nothing:
            page.fields(
                [
                    ("decided", ", ".join(counts) + (": every byte the same" if report.ok else "")),
                    ("hash", str(document["transition_log_hash"] or "-")),
                    *([("refused", f"{count_text(refused, 'request')} to move a job")] if refused else []),
                ],
            )
        for note in report.notes:
            page.hanging([Cell("  - ", WARN)], note)
        if report.differences:
            page.line()
            page.line(Cell(f"{count_text(report.differences_total, 'difference')}:", STRONG))
        for difference in report.differences[:DIFFERENCES_SHOWN_MAX]:
            place = f"partition {difference.partition}, batch {difference.batch_no}"
            if difference.position is not None:
                place += f", record {difference.position}"
            page.hanging([Cell("  ! ", BAD), f"{place}: "], difference.problem)
        hidden = report.differences_total - min(len(report.differences), DIFFERENCES_SHOWN_MAX)
        if hidden:
            page.line(Cell(f"  ... and {hidden:,} more", FAINT))

    return shell.answer(document, draw, code=0 if report.ok else EXIT_FAILED)


def _what_if(shell: Shell, file: Path | None, policy_path: Path, what: str) -> int:
    from detent.inspect.what_if import what_if_file, what_if_home  # noqa: PLC0415
    from detent.owner.settings import read_policy  # noqa: PLC0415

    policy = read_policy(policy_path)
    if file is not None:
        comparison = what_if_file(file, policy)
    else:
        home = shell.home()
        comparison, what = what_if_home(home, policy), str(home.ledger)
    document = {"file": what, "policy": str(policy_path), **comparison.to_map()}
    return shell.answer(document, lambda page: draw_comparison(page, comparison, what, str(policy_path)))


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
