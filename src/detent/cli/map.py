"""`detent map`: a function over files or rows, on all cores, committed strictly in order and exactly once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detent.cli.shell import JSON, Shell, duration_ms, interrupts, teaching, with_shell
from detent.cli.terminal import run_exit_code
from detent.errors import DetentError, InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from detent.runs.ordered.resume import Beginning
    from detent.runs.ordered.spec import Items, OrderedSpec
    from detent.runs.runtime import Runtime


@click.command(
    "map",
    help=teaching(
        """Call a function on every file or row, on all cores, and commit the results strictly in order, each exactly once.

Files are processed in byte order of their names, rows in the order of their lines. If the process is killed, the same
command resumes at the first item that is not committed. If the run has finished, the same command reports that and leaves
the destination alone; --force starts over and replaces the output of earlier runs of the same map. A destination that holds
anything else is refused, unless --append is given. Ctrl-C cancels after the items being computed; pressed twice, it stops at
once and the run can be resumed. A file that changes or disappears after it was listed fails.

Destinations: append:FILE, jsonl:FILE, jsonl+seq:FILE, sqlite:FILE#TABLE, module:function.""",
        """  detent map --files 'corpus/**/*.txt' --compute words:tokenize --commit jsonl:tokens.jsonl
  detent map --items rows.jsonl --compute rows.py:clean --commit sqlite:clean.db#rows --on-error continue
  detent map --items rows.jsonl --compute rows.py:clean --filter rows.py:is_german --commit append:out.txt
""",
    ),
)
@click.option(
    "--files", "patterns", metavar="PATTERN", multiple=True, help="Files to process, as a glob; may be repeated."
)
@click.option(
    "--items",
    "rows",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True),
    help="Rows to process: one JSON value per line.",
)
@click.option(
    "--compute",
    metavar="NAME",
    required=True,
    help="Function to call on each item: module:function or file.py:function.",
)
@click.option("--commit", metavar="TARGET", required=True, help="Where the results go.")
@click.option(
    "--filter",
    "keep",
    metavar="NAME",
    help="Function that decides whether to compute an item; other items are skipped.",
)
@click.option(
    "--window",
    type=click.IntRange(1, 1_000_000),
    help="Window size; up to two windows are computed ahead of the slowest item.  [2048]",
)
@click.option("--chunk", type=click.IntRange(1, 256), help="Items per job.  [default: depends on the number of items]")
@click.option(
    "--on-error",
    type=click.Choice(["stop", "continue"]),
    default="stop",
    show_default=True,
    help="What to do after a failed item.",
)
@click.option("--retries", type=click.IntRange(0, 10), default=0, help="How often to retry a failed item.")
@click.option("--item-timeout", metavar="DURATION", help="Time limit for one item, such as 90s.  [default: no limit]")
@click.option(
    "--commit-timeout", metavar="DURATION", help="Time limit for one commit to the destination.  [default: 1h]"
)
@click.option(
    "-w", "--workers", type=click.IntRange(1, 1024), help="Number of worker processes.  [default: one per core]"
)
@click.option("--name", metavar="TEXT", help="Name of the run.  [default: the function's name]")
@click.option("--new", is_flag=True, help="Start a new run even if one of the same command is unfinished or done.")
@click.option("--force", is_flag=True, help="Start over and replace the output of earlier runs of the same map.")
@click.option("--append", is_flag=True, help="Append to a destination that already holds something.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress, only the summary.")
@with_shell
def command(  # noqa: PLR0913 - a command's options
    shell: Shell,
    *,
    patterns: tuple[str, ...],
    rows: Path | None,
    compute: str,
    commit: str,
    keep: str | None,
    window: int | None,
    chunk: int | None,
    on_error: str,
    retries: int,
    item_timeout: str | None,
    commit_timeout: str | None,
    workers: int | None,
    name: str | None,
    new: bool,
    force: bool,
    append: bool,
    quiet: bool,
) -> int:
    """Map a function over items."""
    shell.insist_on_local()
    from detent.runs.ahead import host_ahead  # noqa: PLC0415 - keeps `--help` fast

    host = host_ahead(shell.home_option, reuses=False)  # Before all else is loaded.
    from detent.contract.words import python_target_fault  # noqa: PLC0415
    from detent.jobs.order import Retries  # noqa: PLC0415
    from detent.runs.ordered.resume import Beginning  # noqa: PLC0415
    from detent.runs.ordered.spec import WINDOW, OrderedSpec  # noqa: PLC0415
    from detent.runs.runtime import Runtime, home_at  # noqa: PLC0415

    if bool(patterns) == (rows is not None):
        raise click.UsageError("give either --files or --items")
    for option, target in (("--compute", compute), ("--filter", keep)):
        if target is not None and (fault := python_target_fault(target)) is not None:
            raise click.UsageError(f"{option} {target!r:.80} {fault}: write module:function or path/file.py:function")
    base = Path.cwd()
    spec = OrderedSpec(
        compute=compute,
        base=str(base),
        filter=keep,
        commit=commit,
        files=bool(patterns),
        name=name or compute.rpartition(":")[2] or compute,
        on_error=on_error,
        window=WINDOW if window is None else window,
        chunk=chunk,
        retries=Retries(retries, ("USER_CODE_ERROR",)) if retries else Retries(0, ()),
        item_ms=None if item_timeout is None else duration_ms("--item-timeout", item_timeout),
    )
    commit_ms = None if commit_timeout is None else duration_ms("--commit-timeout", commit_timeout)
    with Runtime(home_at(shell.home_option), workers=workers, host=host) as work:
        items = _files(work, patterns, base) if rows is None else _rows(work, rows)
        beginning = Beginning(force=force, append=append)
        return drive(shell, work, spec, items, beginning, new=new, quiet=quiet, commit_ms=commit_ms)


def drive(  # noqa: PLR0913 - what it works with
    shell: Shell,
    work: Runtime,
    spec: OrderedSpec,
    items: Items,
    beginning: Beginning,
    *,
    new: bool = False,
    quiet: bool,
    commit_ms: int | None = None,
    seqs: Sequence[int] | None = None,
) -> int:
    """Run with progress on standard error, then answer with the summary; ``seqs`` are those that a retry's items had before."""
    from detent.cli.map_page import broken_data, draw_summary, summary_data  # noqa: PLC0415
    from detent.cli.map_progress import MapProgress  # noqa: PLC0415
    from detent.cli.progress import Console  # noqa: PLC0415
    from detent.runs.ordered.handle import OrderedHandle  # noqa: PLC0415
    from detent.runs.ordered.spec import insist_on_function  # noqa: PLC0415
    from detent.targets import parse_target  # noqa: PLC0415

    for function in (spec.compute, spec.filter):
        if function is not None:
            insist_on_function(function, spec.base)
    base = None if spec.base is None else Path(spec.base)
    anew = beginning.anew(work.backend, spec)
    target = parse_target(spec.commit or "", base=base, content=work.backend.files, anew=anew, seqs=seqs)
    target.check()
    handle = OrderedHandle(work, spec, items, target, new=new, commit_ms=commit_ms, beginning=beginning)
    handle.open()
    try:
        with interrupts(handle):
            if quiet or shell.format == JSON or handle.is_done:
                ended = handle.run()
            else:
                with MapProgress(handle, Console.of(sys.stderr, os.environ)):
                    ended = handle.run()
    except (DetentError, InvariantBroken) as exc:
        if shell.format == JSON and "snapshot" in exc.details:
            shell.answer(broken_data(handle, spec, exc), lambda _: None)
        raise
    document = summary_data(ended, spec, handle.snapshot()) if shell.format == JSON else None
    code = run_exit_code(ended.status)
    return shell.answer(document, lambda page: draw_summary(page, ended, spec, handle.item_text), code=code)


def _files(work: Runtime, patterns: tuple[str, ...], base: Path) -> Items:
    from detent.runs.ordered.spec import file_lines, matched_files, spool  # noqa: PLC0415

    return spool(work.backend.files, file_lines(matched_files(patterns, base), base))


def _rows(work: Runtime, rows: Path) -> Items:
    from detent.runs.ordered.spec import row_lines, spool  # noqa: PLC0415

    with click.open_file(str(rows), "rb") as stream:
        return spool(work.backend.files, row_lines(stream, str(rows)))
