"""`detent gc`: take away content that no record names."""

from __future__ import annotations

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, duration_ms, teaching, with_shell
from detent.pages.sheet import Cell
from detent.pages.text import FAINT, GOOD
from detent.words.quantities import count_text, size_text


@click.command(
    "gc",
    help=teaching(
        """Remove content that no record refers to: leftovers of refused requests and interrupted writes. Files younger than the
grace period stay, because their record may still be coming. The ledger does not change. Stop every process that works on
this home first.""",
        """  detent gc --dry-run
  detent gc --grace 1d -o json
""",
    ),
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option(
    "--grace",
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="Keep files younger than this: 90s, 2h, 1d, or a number of seconds.",
)
@with_shell
def command(shell: Shell, *, dry_run: bool, grace: str) -> int:
    """Collect garbage."""
    from detent.canon import digest_text  # noqa: PLC0415 - keeps `--help` fast
    from detent.runs.erase import collect  # noqa: PLC0415

    grace_ms = duration_ms("--grace", grace, least_ms=0)
    done = collect(shell.home(writes=True), grace_ms=grace_ms, dry_run=dry_run)
    document = {
        "dry_run": dry_run,
        "garbage": [{"digest": digest_text(digest), "place": place} for digest, place in done.garbage],
        "size_bytes": done.size_bytes,
        "unfinished_files": done.unfinished,
        "source_trees": list(done.trees),
    }

    def draw(page: Page) -> None:
        verb = "would remove" if dry_run else "removed"
        what = count_text(len(done.garbage), "piece")
        page.line(Cell(verb, GOOD), f" {what} of content that no record refers to, {size_text(done.size_bytes)}")
        for digest, place in done.garbage:
            page.line("  ", digest_text(digest), Cell(f"  {place}", FAINT))
        if done.trees:
            page.line(f"  and {count_text(len(done.trees), 'source tree')} that no run names")
        if done.unfinished:
            page.line(f"  and {count_text(done.unfinished, 'unfinished file')}")

    return shell.answer(document, draw)
