"""`detent verify`: check that a history is complete and untouched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.errors import EXIT_FAILED
from detent.pages.sheet import Cell
from detent.pages.text import BAD, FAINT, GOOD, STRONG, WARN
from detent.words.quantities import count_text

if TYPE_CHECKING:
    from detent.ledger.findings import Finding, Report

FINDINGS_OF_CODE_SHOWN = 3
"""Findings of one code that are shown where there are more: one damaged page has many consequences that are alike."""


@click.command(
    "verify",
    help=teaching(
        """Check that a history is complete and untouched: signatures, chains, trees, legal transitions, evidence, content. The
report says what was proved, what was not, and where each finding is. Any finding makes the exit code 1.

With a FILE written by `detent export`, you need the root digest from the ledger's owner, by another channel than the file:
without --root the check never passes. Without FILE, the ledger of this home is checked against the home's own root, together
with everything stored beside it.""",
        """  detent verify
  detent verify run.detent --root sha256:...
  detent verify run.detent --root sha256:... --head kept.note -o json
""",
    ),
)
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--root", metavar="DIGEST", help="The trust root to check against, as given by the ledger's owner.")
@click.option(
    "--head",
    "head_files",
    metavar="NOTE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A file with a tree head from an earlier check: the ledger must continue it.",
)
@with_shell
def command(shell: Shell, file: Path | None, root: str | None, head_files: tuple[Path, ...]) -> int:
    """Verify a bundle or this home."""
    from detent.cli.digest import parse_root  # noqa: PLC0415 - keeps `--help` fast

    pinned = None if root is None else parse_root(root)
    for path in (*head_files, *([] if file is None else [file])):
        _refuse_pipe(path)
    kept = [_note(path) for path in head_files]
    if file is not None:
        from detent.sdk.verify import verify  # noqa: PLC0415

        report, what = verify(file, pinned, kept_heads=kept), str(file)
    else:
        from detent.inspect.audit import verify_home  # noqa: PLC0415

        home = shell.home()
        report, what = verify_home(home, environment=os.environ, root=pinned, kept_heads=kept), str(home.ledger)
    document = {"file": what, **report.to_map()}
    own_root = file is None and root is None
    return shell.answer(
        document, lambda page: _draw(page, report, what, own_root=own_root), code=0 if report.ok else EXIT_FAILED
    )


def _refuse_pipe(path: Path) -> None:
    """A pipe or a device may never end, and a bundle is read more than once."""
    from detent.errors import InvalidInput  # noqa: PLC0415

    if path.exists() and not path.is_file() and not path.is_dir():
        raise InvalidInput(f"{path} is not a plain file", hint="write it to a file first, and verify that")


def _note(path: Path) -> str:
    from detent.errors import InvalidInput  # noqa: PLC0415

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidInput(f"{path} cannot be read: {exc}", hint="give a file with a signed tree head") from exc


def _draw(page: Page, report: Report, what: str, *, own_root: bool) -> None:
    verdict = Cell("verified", GOOD) if report.ok else Cell("NOT VERIFIED", BAD)
    page.line(verdict, f"  {what}")
    if report.scope is not None:
        scope = f"run {report.run_id}" if report.run_id else "whole ledger"
        page.fields(
            [
                ("ledger", report.origin or "-"),
                ("scope", f"{scope}: {_counted(report.counts)}"),
                ("root", _root_cell(report, own_root=own_root)),
            ],
        )
    if report.findings:
        page.line()
        page.line(Cell(f"{count_text(report.findings_total, 'finding')}:", STRONG))
        _draw_findings(page, report)
    for title, sentences, mark, style in (
        ("proved:", report.proved, "+", GOOD),
        ("not proved:", report.not_proved, "-", FAINT),
    ):
        if sentences:
            page.line()
            page.line(Cell(title, STRONG))
        for sentence in sentences:
            page.hanging([Cell(f"  {mark} ", style)], sentence)


def _draw_findings(page: Page, report: Report) -> None:
    """The findings by code, in the order in which the codes first came up: one whole, of many the first few."""
    from detent.ledger.findings import FINDINGS  # noqa: PLC0415 - keeps `--help` fast

    alike: dict[str, list[Finding]] = {}
    for finding in report.findings:
        alike.setdefault(finding.code, []).append(finding)
    whole = len(report.findings) == report.findings_total
    everything = "lists all" if whole else f"lists {len(report.findings):,} of all findings"
    for code in [*alike, *(code for code in report.codes if code not in alike)]:
        kind, total, kept = FINDINGS[code], report.codes[code], alike.get(code, [])
        if total == 1 and kept:
            (finding,) = kept
            page.line(Cell("  ! ", BAD), Cell(code, BAD), f"  {finding.place}" if finding.place else "")
            page.hanging(["    "], finding.message)
        else:
            page.line(Cell("  ! ", BAD), Cell(code, BAD), f"  {count_text(total, 'finding')}")
            for finding in kept[:FINDINGS_OF_CODE_SHOWN]:
                page.hanging(["    - "], f"{finding.place}: {finding.message}" if finding.place else finding.message)
            if (more := total - min(len(kept), FINDINGS_OF_CODE_SHOWN)) > 0:
                page.line(Cell(f"    ... and {more:,} more: `-o json` {everything}", FAINT))
        if not any(finding.message == kind.meaning for finding in kept):
            page.hanging(["    "], Cell(f"means: {kind.meaning}", FAINT))
        page.hanging(["    "], Cell(f"likely: {kind.usually}", FAINT))


def _root_cell(report: Report, *, own_root: bool) -> Cell:
    if report.root is None:
        return Cell("none found", BAD)
    if not report.root_pinned:
        return Cell(f"{report.root} (not pinned: believe nothing of this)", BAD)
    return Cell(f"{report.root} (this home's own)", WARN) if own_root else Cell(f"{report.root} (pinned by you)")


def _counted(counts: object) -> str:
    numbers = counts if isinstance(counts, dict) else {}
    names = (("batches", "batch", "batches"), ("records", "record", None), ("jobs", "job", None), ("runs", "run", None))
    return ", ".join(count_text(numbers.get(name, 0), noun, plural) for name, noun, plural in names)
