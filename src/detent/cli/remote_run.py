"""`detent run --connect`: a run at a server, with progress here."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detent.cli.contract_file import is_flow_name, read_contract
from detent.cli.shell import JSON, Shell, interrupts
from detent.cli.terminal import run_exit_code
from detent.words.states import RUNNING

if TYPE_CHECKING:
    from detent.remote.home import RemoteHome
    from detent.remote.runs import RemoteRun


def run_there(
    shell: Shell,
    server: RemoteHome,
    file: str,
    assignments: Sequence[str],
    options: Mapping[str, Any],
    *,
    new: bool,
    quiet: bool,
) -> int:
    """Send a contract with its code to a server, and watch the run."""
    from detent.contract.params import bind, parse_assignment  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.state_directory import state_directory  # noqa: PLC0415
    from detent.remote.runs import start_run  # noqa: PLC0415
    from detent.remote.trees import send_tree  # noqa: PLC0415

    if is_flow_name(file):
        raise click.UsageError("--connect takes contract files; a flow in a Python file runs on this machine alone")
    contract = read_contract(file)
    params = bind(contract, dict(parse_assignment(text, contract) for text in assignments))
    given = {name: value for name, value in options.items() if value}
    asked = {"contract": send_tree(server.http, Path(file).resolve()), "params": params, "options": given}
    run = start_run(server.http, asked, state_directory(os.environ).parent / "runs", new=new)
    return watch(shell, run, quiet=quiet)


def watch(shell: Shell, run: RemoteRun, *, quiet: bool) -> int:
    """Watch a run at a server to its end, then answer with the summary of a run.

    Ctrl-C cancels the run; once more, or a request to terminate, looks away: the run goes on, and the same command finds it again.
    """
    from detent.cli.summary import NO_RESULT, draw_summary, summary_data  # noqa: PLC0415

    run.look()
    with interrupts(run):
        if quiet or shell.format == JSON:
            ended = run.watch()
        else:
            from detent.cli.progress import Console, Progress  # noqa: PLC0415

            with Progress(run.view, Console.of(sys.stderr, os.environ)):
                ended = run.watch()
    left = run.outcome()
    said: dict[str, Any] = {
        "result": left.result if left.gives_result and not left.result_left_out else NO_RESULT,
        "artifacts": left.artifacts,
        "failures": left.failures,
    }
    document = summary_data(ended, **said) if shell.format == JSON else None
    code = shell.answer(document, lambda page: draw_summary(page, ended, **said), code=run_exit_code(ended.status))
    if ended.status == RUNNING:
        shell.note(f"run {run.run_id} goes on at the server; the same command finds it again")
    if left.result_left_out:
        shell.note("note: the result is too large to be sent; `detent show` tells what each step returned")
    return code
