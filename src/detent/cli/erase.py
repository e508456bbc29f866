"""`detent erase`: erase content for good."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from detent.cli.page import FAINT, GOOD, WARN, Cell, Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.cli.text import count_text, size_text

if TYPE_CHECKING:
    from detent.engine.erase import Erased


@click.command(
    "erase",
    help=teaching(
        """Erase payloads and results for good, by digest or all of one job. The ledger holds digests only, so its history still
verifies afterwards, and says that the content was erased. This cannot be undone; backups and exported bundles keep their own
copies.""",
        """  detent erase --job JOB
  detent erase sha256:...
""",
    ),
)
@click.argument("digests", metavar="[DIGEST]...", nargs=-1)
@click.option("--job", "job_id", metavar="JOB", help="Erase what this job and its results named.")
@click.option("--reason", default="ERASED_BY_USER", show_default=True, metavar="CODE", help="Recorded with it.")
@with_shell
def command(shell: Shell, digests: tuple[str, ...], job_id: str | None, reason: str) -> int:
    """Erase content."""
    from detent.canon import digest_text  # noqa: PLC0415 - keeps `--help` fast
    from detent.cli.digest import parse_root  # noqa: PLC0415
    from detent.engine.erase import erase, erase_job  # noqa: PLC0415
    from detent.errors import InvalidInput  # noqa: PLC0415

    if bool(digests) == (job_id is not None):
        raise InvalidInput("name digests, or a job with --job", hint="`detent erase --help` has examples")
    home = shell.home(writes=True)
    done: Erased
    if job_id is not None:
        done = erase_job(home, job_id, environment=os.environ, reason_code=reason)
    else:
        done = erase(home, [parse_root(text) for text in digests], environment=os.environ, reason_code=reason)
    document = {
        "erased": [digest_text(digest) for digest in done.erased],
        "already_erased": [digest_text(digest) for digest in done.already],
        "shared": [digest_text(digest) for digest in done.shared],
        "size_bytes": done.size_bytes,
        "reason_code": reason,
    }

    def draw(page: Page) -> None:
        if done.erased:
            page.line(
                Cell("erased", GOOD),
                f" {count_text(len(done.erased), 'piece')} of content, {size_text(done.size_bytes)}",
            )
        else:
            page.line("nothing to erase")
        for style, word, found in (("", "", done.erased), (FAINT, "erased before: ", done.already)):
            for digest in found:
                page.line("  ", Cell(f"{word}{digest_text(digest)}", style))
        for digest in done.shared:
            page.line("  ", Cell(f"left, because another job names it too: {digest_text(digest)}", WARN))

    return shell.answer(document, draw)
