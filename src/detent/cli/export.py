"""`detent export`: write a bundle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.pages.sheet import Cell
from detent.pages.text import FAINT, GOOD, WARN
from detent.words.quantities import count_text, size_text

if TYPE_CHECKING:
    from detent.owner.home import Home

_LEFT_OUT = {
    "content_too_large": "too large for a bundle",
    "content_damaged": "damaged",
    "content_absent": "not stored here",
    "content_erased": "erased",
}


@click.command(
    "export",
    help=teaching(
        """Export the whole ledger, or one RUN of it, to a file that anyone can verify offline. The bundle of a run shows only that
run, and proves that it is complete and part of the ledger; a whole ledger can also be replayed. The reports that executors
signed are included, and with them small results (up to 8 KiB) and the beginning of each output.

A prefix of RUN's id is enough. The name of a workflow stands for its newest run. Send the file and the root digest by
different channels: the receiver pins the root.""",
        """  detent export --output ledger.detent
  detent export RUN --output run.detent --content -o json
  detent verify run.detent --root sha256:...      what the receiver does
""",
    ),
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option(
    "--output", "target", metavar="FILE", required=True, type=click.Path(path_type=Path), help="The file to write."
)
@click.option(
    "--content",
    "with_content",
    is_flag=True,
    help="Include payloads, results and all other content that records refer to.",
)
@click.option(
    "--no-reports",
    is_flag=True,
    help="Leave out the executors' signed reports: the file then has no results and no output, and executor signatures cannot be checked.",
)
@with_shell
def command(shell: Shell, run_id: str | None, *, target: Path, with_content: bool, no_reports: bool) -> int:
    """Write a bundle."""
    from detent.canon import digest_text  # noqa: PLC0415 - keeps `--help` fast
    from detent.inspect.export import export  # noqa: PLC0415

    if with_content and no_reports:
        raise click.UsageError("--content includes the reports: give either --content or --no-reports")
    home = shell.home()
    if run_id is not None:
        run_id = _run_meant(home, run_id)
    done = export(
        home,
        target.absolute(),
        run_id=run_id,
        with_content=with_content,
        with_reports=not no_reports,
        environment=os.environ,
    )
    root = digest_text(done.root)
    document = {
        "file": str(done.path),
        "root": root,
        "origin": done.origin,
        "scope": done.scope,
        "run_id": done.run_id,
        "size_bytes": done.size_bytes,
        "counts": done.counts,
        "tree_heads": [
            {"partition": partition, "size": head.size, "note": head.note} for partition, head in done.heads.items()
        ],
    }

    def draw(page: Page) -> None:
        counts = done.counts
        held = [
            count_text(counts.get("batches", 0), "batch", "batches"),
            count_text(counts.get("records", 0), "record"),
            count_text(counts["reports"], "report")
            if "reports" in counts
            else count_text(counts.get("content", 0), "piece") + " of content",
        ]
        page.line(Cell("exported", GOOD), f"  {done.path}")
        page.fields(
            [
                ("ledger", done.origin),
                ("scope", f"run {done.run_id}" if done.run_id is not None else "whole ledger"),
                ("holds", f"{', '.join(held)}; {size_text(done.size_bytes)}"),
                ("root", root),
            ],
        )
        for name, why in _LEFT_OUT.items():
            if counts.get(name):
                page.line("  ", Cell(f"left out: {count_text(counts[name], 'piece')} of content, {why}", WARN))
        page.line(Cell(f"The receiver runs: detent verify {target.name} --root {root}", FAINT))

    return shell.answer(document, draw)


def _run_meant(home: Home, identifier: str) -> str:
    """The run that is meant, as the other commands understand it; a bundle holds no less than a run."""
    from detent.errors import InvalidInput  # noqa: PLC0415
    from detent.owner.content import Content  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.runs.find_jobs import RUN, find_jobs  # noqa: PLC0415

    with Parts().open_reader(home.ledger) as reader:
        if reader.run(identifier) is not None:
            return identifier
        try:
            found = find_jobs(reader, Content(reader, home.content_files()), identifier)
        except InvalidInput as exc:
            if exc.code != "UNKNOWN_JOB":
                raise
            return identifier  # An unknown id is reported as an unknown run.
    if found.kind == RUN and found.run_id is not None:
        return found.run_id
    hint = "`detent list` shows the runs" if found.run_id is None else f"it belongs to run {found.run_id}"
    raise InvalidInput(f"{identifier!r} is not a run; a bundle holds one run or the whole ledger", hint=hint)
