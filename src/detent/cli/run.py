"""`detent run`: a pipeline to its end, with what people want to see meanwhile and afterwards.

`detent run --watch`: a contract whenever its schedule says, until Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from detent.cli.contract_file import is_flow_name, read_contract, refused
from detent.cli.shell import JSON, Shell, connectable, interrupts, teaching
from detent.cli.terminal import run_exit_code
from detent.errors import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from detent.contract import Contract
    from detent.reuse.work_keys import Options
    from detent.runs.handle import RunHandle
    from detent.runs.record.inputs import RunInputs
    from detent.runs.runtime import Runtime
    from detent.runs.schedules.runner import Taken


@click.command(
    "run",
    help=teaching(
        """Run a pipeline: a contract file, or a flow in a Python file. Creates a home here if there is none.

Results computed before with the same code, inputs, parameters and environment are reused. If the process is killed, the
same command resumes the run where it stopped. Ctrl-C cancels the run; pressed twice, it stops at once and the run can be
resumed.""",
        """  detent run pipeline.yaml
  detent run pipeline.yaml -p rows=1000 --workers 8
  detent run pipeline.py:nightly -p day=2026-01-31
  detent run pipeline.yaml --force          run every step again
  detent run pipeline.yaml --watch          run it on its schedule
""",
    ),
)
@click.argument("file", metavar="FILE")
@click.option("-p", "assignments", metavar="NAME=VALUE", multiple=True, help="Set a parameter; may be repeated.")
@click.option(
    "-w", "--workers", type=click.IntRange(1, 1024), help="Number of worker processes.  [default: one per core]"
)
@click.option("--new", is_flag=True, help="Start a new run even if an earlier one of the same pipeline is unfinished.")
@click.option("--force", is_flag=True, help="Run every step again, without reuse.")
@click.option(
    "--reuse-failed", is_flag=True, help="Also reuse failures: work that failed before fails without running again."
)
@click.option("--salt", metavar="TEXT", help="Part of every reuse key: a new salt makes all earlier results unusable.")
@click.option(
    "--max-parallel",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many jobs of this run may be under way at once.",
)
@click.option("--watch", is_flag=True, help="Run it on the contract's `schedule:` until Ctrl-C.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress, only the summary.")
@connectable
def command(  # noqa: PLR0913 - a command's options
    shell: Shell,
    file: str,
    assignments: tuple[str, ...],
    *,
    workers: int | None,
    new: bool,
    force: bool,
    reuse_failed: bool,
    salt: str | None,
    max_parallel: int | None,
    watch: bool,
    quiet: bool,
) -> int:
    """Run a pipeline."""
    if (server := shell.server()) is not None:
        from detent.cli.remote_run import run_there  # noqa: PLC0415 - keeps `--help` fast

        if watch or workers is not None:
            raise click.UsageError("--watch and --workers are for a home on this machine")
        options_there = {"force": force, "reuse_failed": reuse_failed, "max_parallel": max_parallel, "salt": salt}
        with server:
            return run_there(shell, server, file, assignments, options_there, new=new, quiet=quiet)
    from detent.runs.ahead import host_ahead  # noqa: PLC0415

    # Before all else is loaded, and in vain if the contract is wrong: then it ends with this process.
    host = None if watch else host_ahead(shell.home_option, reuses=not force)
    from detent.contract import ContractInvalid  # noqa: PLC0415
    from detent.reuse.work_keys import Options  # noqa: PLC0415
    from detent.runs.handle import RunHandle  # noqa: PLC0415
    from detent.runs.record.inputs import RunInputs  # noqa: PLC0415
    from detent.runs.runtime import Runtime, home_at  # noqa: PLC0415

    try:
        contract, params = pipeline(file, assignments)
    except ContractInvalid as exc:
        return refused(shell, exc)
    options = Options(force=force, reuse_failed=reuse_failed, salt=salt, max_parallel=max_parallel)
    if watch:
        if new:
            raise click.UsageError("--new has no effect with --watch: each occurrence starts its own run")
        return watch_runs(shell, RunInputs(contract, params), options, workers=workers, quiet=quiet, drive=drive)
    home = home_at(shell.home_option)
    with Runtime(home, workers=workers, late=True, host=host) as work:
        handle = RunHandle(work, RunInputs(contract, params), options=options, new=new)
        return drive(shell, work, handle, quiet=quiet)


def pipeline(file: str, assignments: Sequence[str]) -> tuple[Contract, dict[str, Any]]:
    """The contract that a command line means, with its parameters bound."""
    if is_flow_name(file):
        from detent.sdk.flow_file import load_flow, recorded  # noqa: PLC0415

        return recorded(load_flow(file), assignments)[1], {}
    from detent.contract.params import bind, parse_assignment  # noqa: PLC0415

    contract = read_contract(file)
    return contract, bind(contract, dict(parse_assignment(text, contract) for text in assignments))


def drive(
    shell: Shell,
    work: Runtime,
    handle: RunHandle,
    *,
    quiet: bool,
    catching: Callable[[RunHandle], AbstractContextManager[None]] | None = None,
) -> int:
    """Run with progress on standard error, then answer with the summary; ``catching`` minds Ctrl-C meanwhile."""
    from detent.cli.summary import NO_RESULT, draw_summary, summary_data  # noqa: PLC0415
    from detent.owner.backend import TENANT  # noqa: PLC0415
    from detent.owner.server_address import running  # noqa: PLC0415

    handle.open()
    with (catching or interrupts)(handle):
        if quiet or shell.format == JSON:
            work.tell = shell.note
            ended = handle.run()
        else:
            from detent.cli.progress import Console, Progress  # noqa: PLC0415

            with Progress(handle.view, Console.of(sys.stderr, os.environ)) as progress:
                work.tell = progress.say
                ended = handle.run()
    said: dict[str, Any] = {"result": ended.value if ended.ok and ended.gives_result else NO_RESULT}
    if ended.made or ended.failed:
        from detent.owner.content import Content  # noqa: PLC0415
        from detent.runs.record.outcome import artifacts_of, failures_of  # noqa: PLC0415

        reader, content = work.backend.reader, Content(work.backend.reader, work.backend.files)
        said["artifacts"] = list(artifacts_of(reader, content, work.backend.files, ended.made))
        said["failures"] = list(failures_of(reader, content, ended.failed))
    document = summary_data(ended.view, **said) if shell.format == JSON else None
    code = run_exit_code(ended.status)
    shell.answer(document, lambda page: draw_summary(page, ended.view, **said), code=code)
    if not quiet:
        shell.say_page(running(work.home.path), TENANT, "runs", ended.view.run_id)
    return code


class Interrupts:
    """Ctrl-C ends the watch after the run that is going; once more, or a request to terminate, at once.

    A run that is left in its middle is taken up again by the next watch.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._handle: RunHandle | None = None
        self._woken = threading.Event()

    def ending(self) -> bool:
        """Whether it has been asked for the end."""
        return self.asked > 0

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it is asked for the end."""
        self._woken.wait(seconds)

    def interrupted(self, number: int, _frame: FrameType | None = None) -> None:
        """A signal."""
        self.asked += 1
        handle = self._handle
        if handle is not None:
            if number == signal.SIGINT and self.asked == 1:
                handle.tell("the watch ends after this run; Ctrl-C again stops at once")
            else:
                handle.stop()
        self._woken.set()

    @contextmanager
    def minding(self, handle: RunHandle) -> Iterator[None]:
        """Know the run that is going."""
        self._handle = handle
        try:
            yield
        finally:
            self._handle = None

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals for as long as the block lasts."""
        before = {number: signal.signal(number, self.interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def watch_runs(
    shell: Shell, inputs: RunInputs, options: Options, *, workers: int | None, quiet: bool, drive: Callable[..., int]
) -> int:
    """Watch until the end is asked for. Every run answers with its own summary, or its own JSON document."""
    from detent.owner.ticks import SystemClock  # noqa: PLC0415
    from detent.runs.handle import RunHandle  # noqa: PLC0415
    from detent.runs.runtime import Runtime, home_at  # noqa: PLC0415
    from detent.runs.schedules.runner import Hands, Watching, schedule_of  # noqa: PLC0415

    schedule_of(inputs)  # No home is made for a contract that cannot be watched.
    home, interrupts = home_at(shell.home_option), Interrupts()

    def drive_one(run_inputs: RunInputs, taken: Taken) -> None:
        with Runtime(home, workers=workers, late=True) as work:
            handle = RunHandle(work, run_inputs, options=options, taken=taken)
            drive(shell, work, handle, quiet=quiet, catching=interrupts.minding)

    def say(text: str) -> None:
        shell.note(f"{time.strftime('%H:%M:%S')} {text}")

    hands = Hands(SystemClock(), interrupts.wait, drive_one, say, interrupts.ending)
    with interrupts.caught():
        Watching(home, inputs, hands).run()
    return EXIT_INTERRUPTED if interrupts.asked else 0
