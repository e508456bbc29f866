"""`detent replay`: decide the recorded commands again and compare every byte."""

from __future__ import annotations

from pathlib import Path

import click

from detent.cli.page import Cell, Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.cli.terminal import BAD, FAINT, GOOD, STRONG, WARN
from detent.errors import EXIT_FAILED
from detent.words.quantities import count_text

DIFFERENCES_SHOWN_MAX = 50


@click.command(
    "replay",
    help=teaching(
        """Feed the recorded commands to a fresh kernel and compare every record it makes with the recorded one, byte for byte. This
shows that every decision followed the rules, which a signature cannot show. Replay does not check signatures; `detent
verify` does.

FILE is the bundle of a whole ledger; the bundle of one run holds no commands. Without FILE, the ledger of this home is
replayed, and its stored rows and checkpoints are compared as well. Any difference makes the exit code 1.

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
@with_shell
def command(shell: Shell, file: Path | None, policy_path: Path | None) -> int:
    """Replay a bundle or this home, by the policy that was in force or by another one."""
    if policy_path is not None:
        return _what_if(shell, file, policy_path)
    from detent.inspect.replay import replay_file, replay_home  # noqa: PLC0415 - keeps `--help` fast

    if file is not None:
        report, what = replay_file(file), str(file)
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


def _what_if(shell: Shell, file: Path | None, policy_path: Path) -> int:
    from detent.cli.what_if_page import draw_comparison  # noqa: PLC0415 - keeps `--help` fast
    from detent.inspect.what_if import what_if_file, what_if_home  # noqa: PLC0415
    from detent.owner.settings import read_policy  # noqa: PLC0415

    policy = read_policy(policy_path)
    if file is not None:
        comparison, what = what_if_file(file, policy), str(file)
    else:
        home = shell.home()
        comparison, what = what_if_home(home, policy), str(home.ledger)
    document = {"file": what, "policy": str(policy_path), **comparison.to_map()}
    return shell.answer(document, lambda page: draw_comparison(page, comparison, what, str(policy_path)))
