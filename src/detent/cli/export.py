"""`detent export`: write a bundle."""

from __future__ import annotations

import os
from pathlib import Path

import click

from detent.cli.page import FAINT, GOOD, WARN, Cell, Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.cli.text import count_text, size_text

_LEFT_OUT = {
    "content_too_large": "too large for a bundle",
    "content_damaged": "damaged",
    "content_absent": "not stored here",
    "content_erased": "erased",
}


@click.command(
    "export",
    help=teaching(
        """Write the whole ledger, or one RUN of it, into a file that anybody can verify offline. A run's bundle shows that run
and nothing of the others, and proves that it is complete and part of the ledger; the whole ledger can also be replayed.

Pass the file on one way and the root digest another: the root is what the receiver pins.""",
        """  detent export --output ledger.detent
  detent export RUN --output run.detent --content -o json
  detent verify run.detent --root sha256:...      what the receiver does
""",
    ),
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option(
    "--output", "target", metavar="FILE", required=True, type=click.Path(path_type=Path), help="Where to write it."
)
@click.option("--content", "with_content", is_flag=True, help="Also pack payloads and results.")
@with_shell
def command(shell: Shell, run_id: str | None, *, target: Path, with_content: bool) -> int:
    """Write a bundle."""
    from detent.canon import digest_text  # noqa: PLC0415 - keeps `--help` fast
    from detent.engine.export import export  # noqa: PLC0415

    done = export(shell.home(), target.absolute(), run_id=run_id, with_content=with_content, environment=os.environ)
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
            count_text(counts.get("content", 0), "piece") + " of content",
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
