"""`detent worker`: workers as a process of their own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from detent.cli.shell import Shell, resources_of, teaching, with_shell
from detent.errors import EXIT_INTERRUPTED, InvalidInput

if TYPE_CHECKING:
    from detent.remote.address import Address
    from detent.remote.worker_state import Enrolled, WorkerState
    from detent.runs.ending import Ending

ENROL_VARIABLE: Final = "DETENT_ENROL"
TOKEN_BYTES_MAX: Final = 1_000


@click.command(
    "worker",
    help=teaching(
        """Run jobs: of a home on this machine, or of a server elsewhere.

With --connect and an enrolment token, this machine becomes a worker of a server: it creates a key, which the server certifies,
and takes jobs by signed requests. From then on `detent worker` is enough. Jobs run the code in --project; the worker compares it
with the code that each job names before it runs it.

Without a server it runs jobs of a home on this machine that another process owns; `detent serve` starts such workers by
itself. They wait up to a minute for an owner, and again whenever it has ended.

On SIGTERM or Ctrl-C workers take no more jobs and finish running ones; jobs that take longer than --drain-timeout go to
other workers.""",
        """  detent worker --connect https://jobs.example.org --enrol-file token --slots 4 --project ~/models
  detent worker
  detent worker --home /srv/jobs/.detent --workers 8
""",
    ),
)
@click.option("--connect", metavar="URL", help="Work for the server at this address.")
@click.option(
    "--enrol",
    metavar="TOKEN",
    help="Enrol this machine with a token: `detent keys enrol` on the server makes one. Other users of the machine can see it "
    f"in the list of processes; --enrol-file and {ENROL_VARIABLE} keep it from them.",
)
@click.option(
    "--enrol-file",
    metavar="FILE",
    type=click.Path(allow_dash=True, dir_okay=False),
    help=f"Read the token from a file, or from standard input: -.  [also: the variable {ENROL_VARIABLE}]",
)
@click.option("--pin", metavar="SHA256", help="Insist on the server's public key: sha256: and 64 hex digits.")
@click.option("--pool", metavar="POOL", help="Work in this pool: take jobs that name it, and those that name none.")
@click.option("--label", "labels", metavar="LABEL", multiple=True, help="Say what this machine is; may be repeated.")
@click.option(
    "--resource", "resources", metavar="NAME=N", multiple=True, help="Say what it has: gpu=2; may be repeated."
)
@click.option(
    "--state",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where key and certificate are kept.  [default: detent/worker below the user's state directory]",
)
@click.option(
    *("-w", "--workers", "--slots"),
    type=click.IntRange(1, 1024),
    help="Number of worker processes.  [default: one per core]",
)
@click.option(
    "--project",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where to find functions.  [default: this directory]",
)
@click.option(
    "--drain-timeout",
    type=click.FloatRange(0, 86_400),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long running jobs may take to finish when the workers stop.",
)
@click.option("--lifeline", type=click.IntRange(min=0), hidden=True, help="A pipe that ends with the server.")
@with_shell
def command(shell: Shell, *, workers: int | None, project: Path | None, drain_timeout: float, **options: Any) -> int:
    """Run jobs until the end is asked for."""
    from detent.runs.ending import Ending  # noqa: PLC0415 - keeps `--help` fast

    lifeline: int | None = options["lifeline"]
    ending = Ending(lifeline)
    elsewhere = _elsewhere(shell, options)
    if elsewhere is not None:
        return _work_elsewhere(shell, elsewhere, ending, workers, project or Path.cwd(), drain_timeout, options)
    from detent.runs.local_workers import work_until  # noqa: PLC0415

    home = shell.home(writes=True)
    if project is not None:
        os.chdir(project)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as the interpreter itself writes it
    work_until(home, ending, workers=workers, drain_seconds=drain_timeout)
    if lifeline is None:
        shell.note("stopped")
    return EXIT_INTERRUPTED if ending.signal == signal.SIGINT else 0


def _elsewhere(shell: Shell, options: Mapping[str, Any]) -> tuple[WorkerState, Enrolled] | None:
    """The server to work for; None where a home on this machine is meant.

    A home that is named, or that a server started this process for, comes before what was enrolled earlier.
    """
    from detent.owner.place import HOME_VARIABLE  # noqa: PLC0415
    from detent.remote.worker_state import WorkerState, worker_directory  # noqa: PLC0415

    token = _token(options)
    if options["connect"] is None and token is None:
        if options["lifeline"] is not None or shell.home_option is not None or os.environ.get(HOME_VARIABLE):
            return None
        directory = options["state"] or worker_directory(os.environ)
        if not directory.is_dir():
            return None
        state = WorkerState(directory)
        enrolled = state.enrolled()
        return None if enrolled is None else (state, enrolled)
    state = WorkerState(options["state"] or worker_directory(os.environ))
    if token is None:
        enrolled = state.enrolled()
        if enrolled is None:
            raise InvalidInput(
                "this machine is not enrolled yet",
                hint="add --enrol-file FILE with a token; `detent keys enrol` on the server makes one",
            )
        return state, replace(enrolled, url=_address(options).url, pin=options["pin"] or enrolled.pin)
    from detent.remote.enrol import enrol  # noqa: PLC0415

    if options["connect"] is None:
        raise InvalidInput("an enrolment needs the address of the server", hint="add --connect URL")
    enrolled = enrol(state, _address(options), token, pin=options["pin"], labels=options["labels"])
    shell.note(f"enrolled as {enrolled.worker_id}; from now on `detent worker` is enough")
    return state, enrolled


def _token(options: Mapping[str, Any]) -> str | None:
    """The enrolment token, wherever it was given. From the environment it counts with --connect only, and where no worker is enrolled yet."""
    from detent.remote.worker_state import STATE_FILE, worker_directory  # noqa: PLC0415

    given, file = options["enrol"], options["enrol_file"]
    if given is not None and file is not None:
        raise InvalidInput("--enrol and --enrol-file both give a token", hint="give one of them")
    if given is not None:
        return str(given)
    if file is None:
        token = os.environ.pop(ENROL_VARIABLE, None)  # Jobs do not see it.
        directory: Path = options["state"] or worker_directory(os.environ)
        return token if token and options["connect"] is not None and not (directory / STATE_FILE).exists() else None
    try:
        with click.open_file(file, "rb") as stream:
            data: bytes = stream.read(TOKEN_BYTES_MAX + 1)
        return data.decode("ascii").strip()
    except (OSError, ValueError) as exc:
        raise InvalidInput(f"the enrolment token cannot be read from {file}: {exc}") from exc


def _address(options: Mapping[str, Any]) -> Address:
    from detent.remote.address import parse_address  # noqa: PLC0415

    return parse_address(options["connect"], pin=options["pin"])


def _work_elsewhere(
    shell: Shell,
    elsewhere: tuple[WorkerState, Enrolled],
    ending: Ending,
    workers: int | None,
    project: Path,
    drain_timeout: float,
    options: Mapping[str, Any],
) -> int:
    from detent.remote.worker import WorkerSettings, work_for  # noqa: PLC0415
    from detent.runs.runtime import worker_count  # noqa: PLC0415

    state, enrolled = elsewhere
    directory = project.resolve()
    os.chdir(directory)
    sys.path.insert(0, str(directory))
    settings = WorkerSettings(
        worker_count(workers),
        directory,
        drain_timeout,
        resources_of(options["resources"]),
        options["pool"],
        tuple(options["labels"]),
    )
    work_for(state, enrolled, settings, ending, shell.note)
    shell.note("stopped")
    return EXIT_INTERRUPTED if ending.signal == signal.SIGINT else 0
