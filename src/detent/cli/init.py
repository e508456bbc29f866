"""`detent init`: make a home, and in an empty directory a first project beside it.

The project that `detent init` leaves in an empty directory: small, quick, and different when it is run again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from detent.cli.page import Page
from detent.cli.shell import Shell, teaching, with_shell
from detent.pages.sheet import Cell
from detent.pages.text import FAINT, GOOD, NOTE

if TYPE_CHECKING:
    from detent.store.postgres.address import PostgresAddress


@click.command(
    "init",
    help=teaching(
        "Create a home: a directory with an empty ledger, new keys and settings. It is `.detent` in this directory, or the"
        " directory that --home or DETENT_HOME names, which may exist if it is empty. An existing home is left unchanged. In"
        " an empty directory it also writes an example project to run and edit: pipeline.yaml and tasks.py. The number of partitions"
        " cannot be changed later: one is right for a home on one machine.",
        """  detent init
  detent init --store postgresql://detent@db.example/detent   keep the ledger in PostgreSQL; the password comes from PGPASSWORD
  mkdir words && cd words && detent init && detent run pipeline.yaml
  detent init --home /srv/detent -o json
  detent init --home /srv/detent --partitions 4
  detent init --store postgresql://detent@db.example/detent --join sha256:5cb9...   a second machine for the same ledger
""",
    ),
)
@click.option(
    "--store",
    metavar="URL",
    help="Keep the ledger in PostgreSQL: postgresql://USER@HOST/DATABASE, with ?schema=NAME for a schema other than detent. Without"
    " this option, DETENT_STORE says so.",
)
@click.option(
    "--partitions",
    type=int,
    metavar="N",
    help="Logs that the ledger is split into, each with an owner of its own; DETENT_PARTITIONS or 1 unless given.",
)
@click.option(
    "--join",
    metavar="ROOT",
    help="Make a home for the ledger that is in the store already, with this root digest (`detent keys` on its first home prints it).",
)
@with_shell
def command(shell: Shell, *, store: str | None, partitions: int | None, join: str | None) -> int:
    """Create a home."""
    from detent.canon import digest_text  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.home import make_home, new_home_path  # noqa: PLC0415
    from detent.owner.ledgers import STORE_VARIABLE, parse_store  # noqa: PLC0415
    from detent.owner.wiring import begin_ledger  # noqa: PLC0415

    here = Path.cwd()
    said = store or os.environ.get(STORE_VARIABLE)
    address = None if said is None else parse_store(said, "--store" if store else STORE_VARIABLE, password=not store)
    if join is not None:
        if address is None or partitions is not None:
            raise click.UsageError("--join needs --store or DETENT_STORE, and the ledger has its partitions already")
        return _join(shell, new_home_path(here, os.environ, shell.home_option), address, join)
    home = make_home(
        new_home_path(here, os.environ, shell.home_option), begin_ledger, partitions=partitions, store=address
    )
    files = write_first_project(here) if home.path.parent == here else []
    settings = home.settings()
    document = {
        "home": str(home.path),
        "origin": settings.origin,
        "root": digest_text(settings.root),
        "store": None if address is None else str(address),
        "files": files,
        "next": f"detent run {PIPELINE}" if files else None,
    }

    def draw(page: Page) -> None:
        page.line(Cell("made", GOOD), " ", str(home.path))
        page.fields(
            [
                ("ledger", settings.origin),
                ("root", digest_text(settings.root)),
                *([] if address is None else [("store", str(address))]),
            ],
        )
        page.line(Cell("Others pin this root to check what you export: `detent verify FILE --root ROOT`.", FAINT))
        if files:
            page.line()
            page.line(Cell("wrote", GOOD), f" {' and '.join(files)}: an example project to run and edit")
            page.line("  ", Cell(f"detent run {PIPELINE}", NOTE))

    return shell.answer(document, draw)


def _join(shell: Shell, path: Path, address: PostgresAddress, root: str) -> int:
    from detent.cli.digest import parse_root  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.joining import join_ledger  # noqa: PLC0415

    home, request = join_ledger(path, address, parse_root(root))
    file = home.join_request
    document = {
        "home": str(home.path),
        "origin": request.origin,
        "root": root,
        "store": str(address),
        "join": str(file),
    }

    def draw(page: Page) -> None:
        page.line(Cell("made", GOOD), " ", str(home.path))
        page.fields([("ledger", request.origin), ("root", root), ("store", str(address))])
        page.line()
        page.line(
            f"Its keys are not trusted yet. Copy {file} to the home that has the root key, stop its server, and run:"
        )
        page.line("  ", Cell(f"detent keys admit {file.name}", NOTE))

    return shell.answer(document, draw)


PIPELINE: Final = "pipeline.yaml"
TASKS: Final = "tasks.py"

_PIPELINE_TEXT: Final = """\
# Your first pipeline. What it would do:   detent plan pipeline.yaml
#                       Do it:              detent run pipeline.yaml
# Run it twice: the second time nothing is left to do. Then change a function in tasks.py, or type
#   detent run pipeline.yaml -p longest=2
# and only what is affected runs again; `detent explain RUN` says why.

name: words

params:
  longest: {type: integer, default: 3, description: how many of the longest words are kept}

steps:
  - id: lines
    run: {python: "tasks:lines"}

  - id: count                # one job for each line, in parallel
    map: {line: {$from: lines}}
    run: {python: "tasks:count"}

  - id: report               # $from is the result of another step, $param a parameter
    run:
      python: tasks:report
      with: {counts: {$from: count}, longest: {$param: longest}, path: report.txt}
    outputs: {report: report.txt}

result: {$from: report}
"""

_TASKS_TEXT: Final = '''\
"""What pipeline.yaml runs: plain functions. Arguments and results are JSON values; print goes to `detent logs`."""

from pathlib import Path

TEXT = """\\
a detent holds a mechanism in place
until something moves it on
and then it holds again
"""


def lines():
    return TEXT.splitlines()


def count(line):
    words = line.split()
    print(f"{len(words)} words in {line!r}")
    return {"words": len(words), "longest": max(words, key=len)}


def report(counts, longest, path):
    words = sum(each["words"] for each in counts)
    kept = sorted((each["longest"] for each in counts), key=len, reverse=True)[:longest]
    Path(path).write_text(f"{words} words; the longest: {', '.join(kept)}\\n")
    return {"words": words, "longest": kept}
'''


def write_first_project(directory: Path) -> list[str]:
    """Write the project, and say which files; nothing where there is anything that could be the user's own work.

    Files whose names begin with a dot (.git, .venv) do not count, nor does what a new repository has beside them.
    """
    for path in directory.iterdir():
        if not path.name.startswith(".") and not path.name.upper().startswith(("README", "LICENSE", "LICENCE")):
            return []
    for name, text in ((PIPELINE, _PIPELINE_TEXT), (TASKS, _TASKS_TEXT)):
        with (directory / name).open("x") as file:
            file.write(text)
    return [PIPELINE, TASKS]
