"""`detent export`: write a bundle."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, connectable, teaching
from detent.pages.sheet import Cell
from detent.pages.text import FAINT, GOOD, WARN
from detent.words.quantities import count_text, size_text

if TYPE_CHECKING:
    from detent.inspect.export import Exported
    from detent.owner.home import Home
    from detent.remote.home import RemoteHome
    from detent.runs.find_jobs import Found

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
  detent export RUN --output run.detent --connect https://jobs.example.org
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
@connectable
def command(shell: Shell, run_id: str | None, *, target: Path, with_content: bool, no_reports: bool) -> int:
    """Write a bundle."""
    if with_content and no_reports:
        raise click.UsageError("--content includes the reports: give either --content or --no-reports")
    target = target.absolute()
    if (server := shell.server()) is not None:
        if with_content and run_id is None:
            raise click.UsageError(
                "over a server, --content is for one RUN; the whole ledger has content of all workspaces"
            )
        with server:
            done = _fetched(server, run_id, target, with_content=with_content, with_reports=not no_reports)
    else:
        from detent.inspect.export import export  # noqa: PLC0415 - keeps `--help` fast

        home = shell.home()
        done = export(
            home,
            target,
            run_id=None if run_id is None else run_here(home, run_id),
            with_content=with_content,
            with_reports=not no_reports,
            environment=os.environ,
        )
    return _answer(shell, done)


def _answer(shell: Shell, done: Exported) -> int:
    from detent.canon import digest_text  # noqa: PLC0415

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
        page.line(Cell(f"The receiver runs: detent verify {done.path.name} --root {root}", FAINT))

    return shell.answer(document, draw)


def _fetched(
    server: RemoteHome, identifier: str | None, target: Path, *, with_content: bool, with_reports: bool
) -> Exported:
    """A bundle that the server writes, in its file here."""
    from detent.canon import parse_digest  # noqa: PLC0415
    from detent.inspect.export import Exported, Head, new_file  # noqa: PLC0415
    from detent.ledger.note import parse_head, parse_note  # noqa: PLC0415
    from detent.remote.bundles import fetch_bundle  # noqa: PLC0415

    run_id = None if identifier is None else run_meant(server.find, identifier)
    with new_file(target) as file:
        come = fetch_bundle(server.http, file, run_id, content=with_content, reports=with_reports)
    parsed = {partition: parse_head(parse_note(note).text) for partition, note in come.notes.items()}
    heads = {partition: Head(head.size, come.notes[partition]) for partition, head in parsed.items()}
    # A ledger that was copied goes by another name since, and its tree heads have that one.
    origin = next((head.origin.rpartition("/p")[0] for head in parsed.values()), come.header.origin)
    size_bytes, root = target.stat().st_size, parse_digest(come.root)
    return Exported(target, come.header.scope, run_id, origin, root, size_bytes, come.counts, heads)


def run_here(home: Home, identifier: str) -> str:
    """The run of a home that is meant."""
    from detent.owner.content import Content  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.runs.find_jobs import find_jobs  # noqa: PLC0415

    with Parts().open_reader(home.ledger) as reader:
        if reader.run(identifier) is not None:
            return identifier
        return run_meant(lambda name: find_jobs(reader, Content(reader, home.content_files()), name), identifier)


def run_meant(find: Callable[[str], Found], identifier: str) -> str:
    """The run that is meant, as the other commands understand it; a bundle holds no less than a run."""
    from detent.errors import InvalidInput  # noqa: PLC0415
    from detent.runs.find_jobs import RUN  # noqa: PLC0415

    try:
        found = find(identifier)
    except InvalidInput as exc:
        if exc.code != "UNKNOWN_JOB":
            raise
        return identifier  # An unknown id is reported as an unknown run.
    if found.kind == RUN and found.run_id is not None:
        return found.run_id
    hint = "`detent list` shows the runs" if found.run_id is None else f"it belongs to run {found.run_id}"
    raise InvalidInput(f"{identifier!r} is not a run; a bundle holds one run or the whole ledger", hint=hint)
