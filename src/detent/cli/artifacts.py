"""`detent artifacts`: the files that a platform job made, listed or copied into a directory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, connectable, teaching
from detent.pages.sheet import Cell, Cellish
from detent.pages.text import FAINT, GOOD, short
from detent.words.quantities import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from detent.inspect.fetch_artifacts import Fetched, Streams


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
    from detent.inspect.fetch_artifacts import chosen  # noqa: PLC0415 - keeps `--help` fast
    from detent.inspect.job_results import job_result  # noqa: PLC0415
    from detent.owner.content import Content  # noqa: PLC0415
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.pages.result import job_meant  # noqa: PLC0415

    if force and directory is None:
        raise click.UsageError("--force is for --output")
    if (server := shell.server()) is not None:
        from detent.remote.files import RemoteFiles  # noqa: PLC0415

        with server:
            job_id = server.one_job(identifier)
            result = server.page("result", id=job_id).document["result"] or {}
            copy = partial(_copy, lambda: RemoteFiles(server.http, job_id), directory, force=force)
            return _answer(shell, job_id, chosen(result.get("artifacts", []), wanted), copy)
    home = shell.home()
    with Parts().open_snapshot(home.ledger) as reader:
        content = Content(reader, home.content_files())
        view = job_result(home, content, job_meant(content, identifier))
    copy = partial(_copy, home.content_files, directory, force=force)
    return _answer(shell, view.job_id, chosen(view.artifacts, wanted), copy)


def _copy(
    files: Callable[[], Streams], directory: Path | None, artifacts: list[Mapping[str, Any]], *, force: bool
) -> list[Fetched] | None:
    """Copy artifacts into a directory; None where none was named."""
    from detent.inspect.fetch_artifacts import fetch_artifacts  # noqa: PLC0415

    return None if directory is None else fetch_artifacts(files(), artifacts, directory, force=force)


def _answer(
    shell: Shell,
    job_id: str,
    artifacts: list[Mapping[str, Any]],
    copy: Callable[[list[Mapping[str, Any]]], list[Fetched] | None],
) -> int:
    document: dict[str, Any] = {"job_id": job_id, "artifacts": [dict(one) for one in artifacts]}
    fetched = copy(artifacts)
    if fetched is None:
        return shell.answer(document, lambda page: _draw_list(page, artifacts))
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
