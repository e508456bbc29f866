"""`detent compare`: whether two histories are the same, and where they first differ; or which of several runs went best."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.errors import EXIT_FAILED
from detent.pages.sheet import Cell
from detent.pages.text import BAD, FAINT, GOOD
from detent.words.quantities import count_text

if TYPE_CHECKING:
    from detent.inspect.compare import Compared, History, Source
    from detent.inspect.rank import Ranked


@click.command(
    "compare",
    help=teaching(
        """Compare two histories, A and B, and name the first record that differs, the field, and both values. Each is a home, a bundle
written by `detent export`, or a trace written by `detent trace`, in any mixture; without B, A is compared with this home. A
bundle or trace of one run is compared with that run.

The verdict is the contract's: E0 means exact identity, of the transition decisions and of the transition log. Histories of
different ledgers, policies, jobs, orders of arrival or manifests cannot be compared (exit code 2). Any difference makes the
exit code 1.

With --rank, rank runs instead: each argument is a run of this home or the trace of a run. Smaller values are better. The
first metric decides, the next ones break ties; values in the same interval of width 1e-10 tie, and values that are not finite
rank last.""",
        """  detent compare yesterday.ndjson
  detent compare run.detent run.cbor -o json
  detent compare /backup/.detent . --run RUN
  detent compare --rank RUN-1 RUN-2 --by ambiguous_transitions,duration_ms
  detent compare --rank RUN-1 RUN-2 --by result:train.loss
""",
    ),
)
@click.argument("names", metavar="A [B]", nargs=-1, required=True)
@click.option("--run", "run_id", metavar="RUN", help="Compare only this run of two whole histories.")
@click.option("--rank", "ranks", is_flag=True, help="Rank runs by metrics instead of comparing two histories.")
@click.option(
    "--by",
    metavar="METRIC,...",
    help="The metrics of --rank: ambiguous_transitions, job_failure_rate, retries, duration_ms, or result:STEP.KEY for a number that a step returned.  [default: ambiguous_transitions]",
)
@with_shell
def command(shell: Shell, names: tuple[str, ...], *, run_id: str | None, ranks: bool, by: str | None) -> int:
    """Compare two histories, or rank runs."""
    if ranks:
        if run_id is not None:
            raise click.UsageError("--run belongs to a comparison of two histories: name the runs to rank as arguments")
        return _rank(shell, names, by)
    if by is not None:
        raise click.UsageError("--by needs --rank")
    if len(names) > 2:
        raise click.UsageError("give one or two histories, or rank several runs with --rank")
    from detent.inspect.compare import compare, find_source  # noqa: PLC0415 - keeps `--help` fast

    sources = [_source(name) for name in names]
    if len(sources) == 1:
        sources.append(find_source(shell.home()))
    code = 0

    def judge(verdict: Compared) -> None:
        nonlocal code
        same = verdict.decisions == verdict.log == "E0"
        code = shell.answer(
            _document(verdict, same=same), lambda page: _draw(page, verdict, same=same), code=0 if same else EXIT_FAILED
        )

    compare(sources[0], sources[1], run_id, judge)
    return code


def _source(name: str) -> Source:
    """A home by its directory, by the project around it or by its ledger; a file otherwise."""
    from detent.inspect.compare import find_source  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.home import find_home  # noqa: PLC0415
    from detent.owner.place import DIRECTORY  # noqa: PLC0415

    path = Path(name)
    for candidate in (path, path / DIRECTORY, *([path.parent] if path.name == "ledger.db" else [])):
        home = find_home(Path.cwd(), os.environ, candidate)
        if home is not None:
            return find_source(home)
    return find_source(path)


def _document(verdict: Compared, *, same: bool) -> dict[str, Any]:
    return {
        "same": same,
        "decisions": verdict.decisions,
        "log": verdict.log,
        "difference": _difference(verdict),
        "left": _side(verdict.left),
        "right": _side(verdict.right),
    }


def _side(history: History) -> dict[str, Any]:
    return {
        "source": history.source.what,
        "form": history.source.form,
        "ledger": history.origin.ledger,
        "run_id": history.origin.run_id,
        "jobs": history.origin.jobs,
        "transitions": history.transitions,
        "transition_log_hash": _plain(history.log_hash),
    }


def _difference(verdict: Compared) -> dict[str, Any] | None:
    found = verdict.difference
    if found is not None:
        return found._asdict() | {"left": _plain(found.left), "right": _plain(found.right)}
    if verdict.log == "E0":
        return None
    return {
        "job_id": None,
        "transition_seq": None,
        "field": "transition_log_hash",
        "left": _plain(verdict.left.log_hash),
        "right": _plain(verdict.right.log_hash),
        "missing": None,
    }


def _plain(value: object) -> object:
    """A value for JSON: bytes as digests are written, or in hex."""
    if not isinstance(value, bytes):
        return value
    return f"sha256:{value.hex()}" if len(value) == 32 else value.hex()


def _draw(page: Page, verdict: Compared, *, same: bool) -> None:
    sides = (("A", verdict.left), ("B", verdict.right))
    page.line(Cell("the same", GOOD) if same else Cell("DIFFERENT", BAD))
    page.fields(
        [
            *((name, f"{history.source.form} {history.source.what}") for name, history in sides),
            ("scope", "whole ledger" if verdict.left.origin.run_id is None else f"run {verdict.left.origin.run_id}"),
            ("decisions", _level(verdict.decisions, count_text(verdict.left.transitions, "transition"))),
            ("log", _level(verdict.log, str(_plain(verdict.left.log_hash)))),
        ]
    )
    found = _difference(verdict)
    if found is None:
        return
    page.line()
    if found["job_id"] is None:
        page.line("every decision is the same, but the records are not: the hash over all of them differs")
    elif found["missing"] is not None:
        lacking = "A" if found["missing"] == "left" else "B"
        page.line(
            f"first difference: job {found['job_id']}, transition {found['transition_seq']} is missing in {lacking}"
        )
        return
    else:
        page.line(
            f"first difference: job {found['job_id']}, transition {found['transition_seq']}, field {found['field']}"
        )
    page.fields([("A", str(found["left"])), ("B", str(found["right"]))], indent="  ")


def _level(level: str, what: str) -> Cell:
    return Cell(f"E0, identical: {what}", GOOD) if level == "E0" else Cell("different", BAD)


def _rank(shell: Shell, names: tuple[str, ...], by: str | None) -> int:
    from detent.canon.numbers import OBJECTIVE_TYPE, SENSE  # noqa: PLC0415 - keeps `--help` fast
    from detent.inspect.rank import DEFAULT_METRICS, check_metrics, rank, tally_all  # noqa: PLC0415

    metrics = DEFAULT_METRICS if by is None else tuple(name.strip() for name in by.split(","))
    check_metrics(metrics)
    ranked = rank(tally_all(names, metrics, shell.home), metrics)
    document = {
        "sense": SENSE,
        "objective_type": OBJECTIVE_TYPE,
        "metrics": list(metrics),
        "ranking": [
            {
                "rank": row.rank,
                "run_id": row.tally.run_id,
                "source": row.tally.what,
                "values": [value if math.isfinite(value) else _not_finite(value) for value in row.values],
                "close_to_previous": row.close_to_previous,
            }
            for row in ranked
        ],
    }
    return shell.answer(document, lambda page: _draw_ranking(page, ranked, metrics))


def _draw_ranking(page: Page, ranked: list[Ranked], metrics: tuple[str, ...]) -> None:
    page.table(
        ["RANK", "RUN", *(name.upper() for name in metrics)],
        [
            [
                str(row.rank),
                row.tally.run_id or row.tally.what,
                *(f"{value:,}" if math.isfinite(value) else _not_finite(value) for value in row.values),
            ]
            for row in ranked
        ],
    )
    for row in ranked:
        if row.close_to_previous:
            page.line(
                Cell(f"{row.tally.run_id} is within 1e-10 of the run before it, across the edge of a bucket", FAINT)
            )


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
