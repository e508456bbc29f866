"""`detent erase`: erase content for good."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from detent.cli.page import Page
from detent.cli.shell import JSON, Shell, teaching, with_shell
from detent.errors import EXIT_FAILED
from detent.pages.sheet import Cell
from detent.pages.text import FAINT, GOOD, NOTE, WARN
from detent.words.quantities import count_text, size_text

if TYPE_CHECKING:
    from detent.owner.home import Home
    from detent.runs.erase import Erased

LISTED_MAX = 20
"""Digests of one kind that a page lists; `-o json` has all."""


@click.command(
    "erase",
    help=teaching(
        """Erase content permanently: everything that a job or a run refers to (payloads, results, logs, files, items), or single
pieces by digest. When the command returns, no file of the home holds the bytes. Content that another job or run also refers
to is kept and listed. The ledger holds only digests, so its history still verifies, and it records the erasure.

This cannot be undone. Backups, exported bundles, and files that a step wrote outside the home keep their own copies.""",
        """  detent erase --job JOB
  detent erase --run RUN --dry-run
  detent erase --run RUN --yes --reason GDPR_REQUEST
  detent erase --expired --yes            platform jobs past the retention of the settings
  detent erase sha256:...
""",
    ),
)
@click.argument("digests", metavar="[DIGEST]...", nargs=-1)
@click.option("--job", "job_id", metavar="JOB", help="Erase what this job and its results refer to.")
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    help="Erase what this run and its jobs refer to. The name of a workflow that ran only once works too.",
)
@click.option(
    "--expired", is_flag=True, help="Erase what platform jobs refer to that ended longer ago than jobs.retention_ms."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be erased and what would stay.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--reason",
    metavar="CODE",
    help="Reason recorded with the erasure.  [default: ERASED_BY_USER, or RETENTION_EXPIRED with --expired]",
)
@with_shell
def command(  # noqa: PLR0913 - a command's options
    shell: Shell,
    digests: tuple[str, ...],
    *,
    job_id: str | None,
    run_id: str | None,
    expired: bool,
    dry_run: bool,
    yes: bool,
    reason: str | None,
) -> int:
    """Erase content."""
    from detent.cli.digest import parse_root  # noqa: PLC0415 - keeps `--help` fast
    from detent.errors import InvalidInput  # noqa: PLC0415
    from detent.runs.erase import EXPIRED, REASON, erase, erase_expired, erase_job, erase_run  # noqa: PLC0415

    if [bool(digests), job_id is not None, run_id is not None, expired].count(True) != 1:
        raise InvalidInput(
            "name digests, or a job with --job, or a run with --run, or --expired", hint="`detent erase --help`"
        )
    reason = reason or (EXPIRED if expired else REASON)
    home = shell.home(writes=not dry_run)
    said: dict[str, Any] = {"environment": os.environ, "reason_code": reason}
    carry_out: Callable[..., Erased]
    if expired:
        carry_out = partial(erase_expired, home, **said)
    elif job_id is not None:
        carry_out = partial(erase_job, home, _meant(home, job_id, "job"), **said)
    elif run_id is not None:
        carry_out = partial(erase_run, home, _meant(home, run_id, "run"), **said)
    else:
        carry_out = partial(erase, home, [parse_root(text) for text in digests], **said)
    if dry_run or _asks(shell, yes=yes):
        planned = carry_out(dry_run=True)
        if dry_run or not planned.erased:
            return _answer(shell, planned, reason, dry_run=True)
        _draw(Page(), planned, dry_run=True)
        if not click.confirm("Erase this for good?", err=True):
            shell.note("nothing was erased")
            return EXIT_FAILED
    return _answer(shell, carry_out(), reason, dry_run=False)


def _asks(shell: Shell, *, yes: bool) -> bool:
    """Whether a person can answer a prompt."""
    return not yes and shell.format != JSON and sys.stdin.isatty() and sys.stderr.isatty()


def _meant(home: Home, identifier: str, kind: str) -> str:
    """The job or run that is meant: by its whole id, by how an id begins, or by the name of a workflow with one run."""
    from detent.errors import InvalidInput  # noqa: PLC0415
    from detent.owner.content import Content  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.wiring import Parts  # noqa: PLC0415
    from detent.runs.find_jobs import ONLY, find_jobs, insist_on_whole  # noqa: PLC0415

    with Parts().open_reader(home.ledger) as reader:
        if (reader.job(identifier) if kind == "job" else reader.run(identifier)) is not None:
            return identifier
        try:
            found = find_jobs(reader, Content(reader, home.content_files()), identifier, named=ONLY)
        except InvalidInput as exc:
            if exc.code != "UNKNOWN_JOB":
                raise
            return identifier  # The erasure says that there is none.
    insist_on_whole(found, "erased")
    if kind == "run" and found.kind == "run" and found.run_id is not None:
        return found.run_id
    return found.jobs[0].job_id if kind == "job" and found.kind == "job" else identifier


def _answer(shell: Shell, done: Erased, reason: str, *, dry_run: bool) -> int:
    from detent.canon import digest_text  # noqa: PLC0415 - keeps `--help` fast

    document = {
        "dry_run": dry_run,
        "erased": [digest_text(digest) for digest in done.erased],
        "already_erased": [digest_text(digest) for digest in done.already],
        "shared": [digest_text(digest) for digest in done.shared],
        "stays": [
            {"digest": digest_text(digest), "what": done.what.get(digest), "named_by": holder}
            for digest, holder in done.stays.items()
        ],
        "used_by": list(done.used_by),
        "jobs": done.jobs,
        "size_bytes": done.size_bytes,
        "in_log": done.in_log,
        "reason_code": reason,
    }
    return shell.answer(document, lambda page: _draw(page, done, dry_run=dry_run))


def _draw(page: Page, done: Erased, *, dry_run: bool) -> None:
    from detent.canon import digest_text  # noqa: PLC0415

    if done.erased:
        of = f" of {count_text(done.jobs, 'job')}" if done.jobs else ""
        what = f" {count_text(len(done.erased), 'piece')} of content{of}, {size_text(done.size_bytes)}"
        page.line(Cell("would erase" if dry_run else "erased", NOTE if dry_run else GOOD), what)
    else:
        page.line("nothing to erase")
    kind = {digest: f"  {what}" for digest, what in done.what.items()}
    _list(page, [(digest_text(digest) + kind.get(digest, ""), "") for digest in done.erased])
    _list(page, [(f"erased before: {digest_text(digest)}", FAINT) for digest in done.already])
    _list(
        page,
        [
            (f"kept, because {holder} refers to it too: {digest_text(digest)}{kind.get(digest, '')}", WARN)
            for digest, holder in done.stays.items()
        ],
    )
    if done.used_by:
        shown = ", ".join(done.used_by[:3]) + (f" and {len(done.used_by) - 3} more" if len(done.used_by) > 3 else "")
        page.hanging([], Cell(f"given to {shown}: the results of those jobs are kept", WARN))
    if done.in_log:
        page.hanging([], Cell("another reader of the ledger keeps old bytes in ledger.db-wal until it ends", WARN))


def _list(page: Page, lines: list[tuple[str, str]]) -> None:
    for text, style in lines[:LISTED_MAX]:
        page.line("  ", Cell(text, style))
    if len(lines) > LISTED_MAX:
        page.line("  ", Cell(f"... and {len(lines) - LISTED_MAX:,} more; -o json has all", FAINT))
