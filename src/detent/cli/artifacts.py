"""`detent artifacts`: the files that a platform job made, listed or copied into a directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, connectable, teaching
from detent.pages.sheet import Cell, Cellish
from detent.pages.text import FAINT, GOOD, short
from detent.words.quantities import size_text

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command(
    "artifacts",
    help=teaching(
        """List the artifacts of a platform job: id, kind, format, size, digest and metadata. With --output, copy them into a
directory: all, or those named by ID, by number, or by file name. The bytes are checked against the digest of the signed
result, and no file appears before it is whole.

An existing file with other content is kept and reported, unless --force is given.""",
        """  detent artifacts JOB
  detent artifacts JOB --output pictures
  detent artifacts JOB formula.png --output . --force
""",
    ),
)
@click.argument("identifier", metavar="JOB")
@click.argument("wanted", metavar="[ID]...", nargs=-1)
@click.option("--output", "directory", metavar="DIR", type=click.Path(path_type=Path), help="Copy the files there.")
@click.option("--force", is_flag=True, help="Overwrite files that are in the way.")
@connectable
def command(shell: Shell, identifier: str, wanted: tuple[str, ...], *, directory: Path | None, force: bool) -> int:
    """List or copy artifacts."""
    from detent.inspect.fetch_artifacts import chosen, fetch_artifacts  # noqa: PLC0415 - keeps `--help` fast
    from detent.inspect.job_results import job_result  # noqa: PLC0415
    from detent.owner.content import Content  # noqa: PLC0415
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.pages.result import job_meant  # noqa: PLC0415

    if force and directory is None:
        raise click.UsageError("--force is for --output")
    home = shell.home()
    with Parts().open_snapshot(home.ledger) as reader:
        content = Content(reader, home.content_files())
        view = job_result(home, content, job_meant(content, identifier))
    artifacts = chosen(view.artifacts, wanted)
    document: dict[str, Any] = {"job_id": view.job_id, "artifacts": [dict(one) for one in artifacts]}
    if directory is None:
        return shell.answer(document, lambda page: _draw_list(page, artifacts))
    fetched = fetch_artifacts(home.content_files(), artifacts, directory, force=force)
    document["fetched"] = [one.to_map() for one in fetched]

    def draw(page: Page) -> None:
        for one in fetched:
            page.line(Cell("fetched", GOOD), f"  {one.path}  {size_text(one.size_bytes)}, {short(one.digest)}")
        if not fetched:
            page.line(Cell("the job made no artifacts", FAINT))

    return shell.answer(document, draw)


def _draw_list(page: Page, artifacts: list[Mapping[str, Any]]) -> None:
    if not artifacts:
        page.line(Cell("the job made no artifacts", FAINT))
        return
    rows: list[list[Cellish]] = [
        [
            str(one["artifact_id"]),
            str(one["kind"]),
            str(one["format"]),
            size_text(one["size_bytes"]),
            short(str(one["digest"])),
            ", ".join(f"{name} {value}" for name, value in one["metadata"].items()),
        ]
        for one in artifacts
    ]
    page.table(("ID", "KIND", "FORMAT", "SIZE", "DIGEST", "METADATA"), rows)
