"""`detent trace`: write the decisions of a run, or of everything, line by line."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from detent.cli.page import Page
from detent.cli.shell import JSON, STANDARD_OUTPUT, ReaderGone, Shell, teaching, with_shell
from detent.pages.sheet import Cell
from detent.pages.text import FAINT, GOOD
from detent.words.quantities import count_text, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from detent.inspect.trace import Traced
    from detent.owner.home import Home

NDJSON, CBOR = "ndjson", "cbor"


@click.command(
    "trace",
    help=teaching(
        """Write the trace of a RUN, or of the whole ledger with --all: a `run_header` with everything a replay needs, one `iter` line for
each request to move a job (also refused ones), a `run_commit` line for a run that has ended, and a `run_end` with the hash
over all transitions.

The recorded commands are replayed to write it, so a ledger that was changed has no trace. Without --output, the lines go to
standard output. `detent compare` compares a trace with another one, with a bundle or with a home.

A prefix of RUN's id is enough. The name of a workflow stands for its newest run.""",
        """  detent trace RUN
  detent trace --all --output ledger.ndjson
  detent trace RUN --output run.cbor --format cbor
  detent trace RUN | jq 'select(.status != "COMMITTED")'
""",
    ),
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--all", "everything", is_flag=True, help="Trace the whole ledger.")
@click.option(
    "--output",
    "target",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The file to write.  [default: standard output]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice([NDJSON, CBOR]),
    default=NDJSON,
    show_default=True,
    help="ndjson: one JSON object for each line; cbor: a sequence of canonical CBOR maps.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@with_shell
def command(shell: Shell, run_id: str | None, *, everything: bool, target: Path | None, form: str, force: bool) -> int:
    """Write a trace."""
    if (run_id is None) != everything:
        raise click.UsageError("give either a RUN or --all")
    if target is None and shell.format == JSON:
        raise click.UsageError("-o json describes the file that was written: give it with --output")
    from detent.inspect.trace import trace_home  # noqa: PLC0415 - keeps `--help` fast
    from detent.inspect.trace_lines import json_line  # noqa: PLC0415

    home = shell.home()
    with _standard_output(shell) if target is None else _file(home, target.absolute(), force=force) as file:
        traced = trace_home(home, run_id, lambda line, data: _put(file, json_line(line) if form == NDJSON else data))
    return 0 if target is None else _answer(shell, traced, target.absolute(), form)


def _put(file: BinaryIO, data: bytes) -> None:
    file.write(data)


@contextmanager
def _standard_output(shell: Shell) -> Iterator[BinaryIO]:
    """Standard output for bytes; a reader that has seen enough ends the command."""
    sys.stdout.flush()
    shell.ending.answered = True
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError as exc:
        raise ReaderGone from exc
    except OSError as exc:
        exc.filename = exc.filename or STANDARD_OUTPUT
        raise


@contextmanager
def _file(home: Home, target: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A new file that appears whole; one that exists is replaced only by force."""
    from detent.errors import InvalidInput  # noqa: PLC0415 - keeps `--help` fast
    from detent.inspect.export import new_file, refuse_inside  # noqa: PLC0415

    refuse_inside(home, target)
    if target.exists() and not force:
        raise InvalidInput(f"{target} exists", hint="choose another name, or replace it with --force")
    with new_file(target) as file:
        yield file


def _answer(shell: Shell, traced: Traced, target: Path, form: str) -> int:
    from detent.canon import digest_text  # noqa: PLC0415 - keeps `--help` fast

    size_bytes = target.stat().st_size
    commit = traced.run_commit_record_hash
    document = {
        "file": str(target),
        "format": form,
        "ledger": traced.ledger,
        "run_id": traced.run_id,
        "jobs": traced.jobs,
        "events": traced.events,
        "committed": traced.committed,
        "lines": traced.lines,
        "size_bytes": size_bytes,
        "transition_log_hash": digest_text(traced.transition_log_hash),
        "run_commit_record_hash": None if commit is None else digest_text(commit),
    }

    def draw(page: Page) -> None:
        others = traced.events - traced.committed
        page.line(Cell("traced", GOOD), f"  {target}")
        held = [count_text(traced.jobs, "job"), count_text(traced.committed, "transition")]
        held.append(f"{count_text(others, 'request')} without effect")
        page.fields(
            [
                ("ledger", traced.ledger),
                ("scope", f"run {traced.run_id}" if traced.run_id is not None else "whole ledger"),
                ("holds", f"{', '.join(held)}; {size_text(size_bytes)}"),
                ("hash", digest_text(traced.transition_log_hash)),
            ],
        )
        page.line(Cell(f"Compare it with this home: detent compare {target.name}", FAINT))

    return shell.answer(document, draw)
