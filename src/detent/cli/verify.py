"""`detent verify`: check that a history is complete and untouched."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, connectable, teaching
from detent.errors import EXIT_FAILED
from detent.pages.sheet import Cell
from detent.pages.text import BAD, FAINT, GOOD, STRONG, WARN
from detent.words.quantities import count_text

if TYPE_CHECKING:
    from detent.ledger.findings import Finding, Report
    from detent.owner.home import Home
    from detent.remote.home import RemoteHome

FINDINGS_OF_CODE_SHOWN = 3
"""Findings of one code that are shown where there are more: one damaged page has many consequences that are alike."""


@click.command(
    "verify",
    help=teaching(
        """Check that a history is complete and untouched: signatures, chains, trees, legal transitions, evidence, content. The
report says what was proved, what was not, and where each finding is. Any finding makes the exit code 1.

With a FILE written by `detent export`, you need the root digest from the ledger's owner, by another channel than the file:
without --root the check never passes. Without FILE, the ledger of this home is checked against the home's own root, together
with everything stored beside it; --run checks one run.

With --connect, the bundle of the server's ledger, or of one run, is fetched and checked on this machine. A server cannot vouch
for itself, so give the root that you have by another channel; it is remembered once the check has passed. The ledger must also
continue every tree head that this machine has seen of it.""",
        """  detent verify
  detent verify --run RUN
  detent verify run.detent --root sha256:...
  detent verify run.detent --root sha256:... --head kept.note -o json
  detent verify --run RUN --connect https://jobs.example.org --root sha256:...
""",
    ),
)
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--root", metavar="DIGEST", help="The trust root to check against, as given by the ledger's owner.")
@click.option("--run", "run_id", metavar="RUN", help="Check only this run of the home, or of the server.")
@click.option(
    "--head",
    "head_files",
    metavar="NOTE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A file with a tree head from an earlier check: the ledger must continue it.",
)
@click.option("--by-server", is_flag=True, help="With --connect: have the server check itself, and print what it says.")
@connectable
def command(
    shell: Shell,
    file: Path | None,
    root: str | None,
    head_files: tuple[Path, ...],
    *,
    run_id: str | None,
    by_server: bool,
) -> int:
    """Verify a bundle, this home or the ledger of a server."""
    from detent.cli.digest import parse_root  # noqa: PLC0415 - keeps `--help` fast

    pinned = None if root is None else parse_root(root)
    if file is not None and run_id is not None:
        raise click.UsageError("a FILE holds what it holds: --run is for a home or a server")
    if file is not None and shell.server_option is not None:
        raise click.UsageError(
            f"a FILE is checked on this machine: leave --connect out, or name a run with --run {file}"
        )
    for path in (*head_files, *([] if file is None else [file])):
        _refuse_pipe(path)
    kept = [_note(path) for path in head_files]
    server = shell.server() if file is None else None
    if by_server and (server is None or pinned is not None or kept):
        raise click.UsageError(
            "--by-server is for --connect, without --root and --head: the server checks its own ledger"
        )
    if server is not None:
        with server:
            checked = _there(server, run_id, pinned, kept, by_server=by_server)
    elif file is not None:
        from detent.sdk.verify import verify  # noqa: PLC0415

        checked = Checked(verify(file, pinned, kept_heads=kept), str(file), "pinned by you")
    else:
        checked = _here(shell.home(), run_id, pinned, kept)
    document = {"file": checked.what, **checked.report.to_map()}
    code = 0 if checked.report.ok else EXIT_FAILED
    return shell.answer(document, lambda page: _draw(page, checked), code=code)


@dataclass(frozen=True, slots=True)
class Checked:
    """What was checked, and whose root it was checked against."""

    report: Report
    what: str
    whose_root: str
    own_root: bool = False
    """Whether the root is the ledger's own, which proves less."""


def _here(home: Home, run_id: str | None, pinned: bytes | None, kept: list[str]) -> Checked:
    from detent.cli.export import run_here  # noqa: PLC0415
    from detent.inspect.audit import verify_home  # noqa: PLC0415
    from detent.inspect.verify_run import verify_run  # noqa: PLC0415

    own = pinned is None
    whose = "this home's own" if own else "pinned by you"
    if run_id is not None:
        report = verify_run(home, run_here(home, run_id), environment=os.environ, root=pinned, kept_heads=kept)
    else:
        report = verify_home(home, environment=os.environ, root=pinned, kept_heads=kept)
    return Checked(report, str(home.ledger), whose, own)


def _there(
    server: RemoteHome, identifier: str | None, pinned: bytes | None, kept: list[str], *, by_server: bool
) -> Checked:
    from detent.cli.export import run_meant  # noqa: PLC0415
    from detent.remote.bundles import verify_by_server, verify_there  # noqa: PLC0415

    url = server.http.address.url
    run_id = None if identifier is None else run_meant(server.find, identifier)
    if by_server:
        return Checked(verify_by_server(server.http, run_id), url, "the server's own, by its own word", own_root=True)
    done = verify_there(server.http, run_id, pinned, kept)
    return Checked(done.report, url, "pinned by you before" if done.pinned_before else "pinned by you")


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


def _draw(page: Page, checked: Checked) -> None:
    report = checked.report
    verdict = Cell("verified", GOOD) if report.ok else Cell("NOT VERIFIED", BAD)
    page.line(verdict, f"  {checked.what}")
    if report.scope is not None:
        scope = f"run {report.run_id}" if report.run_id else "whole ledger"
        page.fields(
            [
                ("ledger", report.origin or "-"),
                ("scope", f"{scope}: {_counted(report.counts)}"),
                ("root", _root_cell(checked)),
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


def _root_cell(checked: Checked) -> Cell:
    root = checked.report.root
    if root is None:
        return Cell("none found", BAD)
    if not checked.report.root_pinned and not checked.own_root:
        return Cell(f"{root} (not pinned: believe nothing of this)", BAD)
    return Cell(f"{root} ({checked.whose_root})", WARN if checked.own_root else "")


def _counted(counts: object) -> str:
    numbers = counts if isinstance(counts, dict) else {}
    names = (("batches", "batch", "batches"), ("records", "record", None), ("jobs", "job", None), ("runs", "run", None))
    return ", ".join(count_text(numbers.get(name, 0), noun, plural) for name, noun, plural in names)
