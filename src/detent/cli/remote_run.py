"""`detent run --connect`: a run at a server, with progress here."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.cli.contract_file import is_flow_name, read_contract
from detent.cli.shell import JSON, Shell, interrupts
from detent.cli.terminal import run_exit_code
from detent.words.states import RUNNING

if TYPE_CHECKING:
    from detent.remote.home import RemoteHome
    from detent.remote.runs import RemoteRun
    from detent.remote.trees import Tree


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
    from detent.owner.state_directory import state_directory  # noqa: PLC0415 - keeps `--help` fast
    from detent.remote.runs import start_run  # noqa: PLC0415
    from detent.remote.trees import send_tree  # noqa: PLC0415

    tree, params = _flow(server, file, assignments) if is_flow_name(file) else _contract(file, assignments)
    if not quiet and (left_out := tree.left_out_text()) is not None:
        shell.note(f"note: {left_out}")
    given = {name: value for name, value in options.items() if value}
    asked = {"contract": send_tree(server.http, tree), "params": params, "options": given}
    run = start_run(server.http, asked, state_directory(os.environ).parent / "runs", new=new)
    return watch(shell, run, quiet=quiet)


def _contract(file: str, assignments: Sequence[str]) -> tuple[Tree, dict[str, Any]]:
    """A contract file with its code, and its parameters."""
    from detent.contract.params import bind, parse_assignment  # noqa: PLC0415
    from detent.remote.trees import tree_of  # noqa: PLC0415

    contract, path = read_contract(file), Path(file).resolve()
    params = bind(contract, dict(parse_assignment(text, contract) for text in assignments))
    return tree_of(path.parent, path.name, path.read_bytes(), contract, params), params


def _flow(server: RemoteHome, file: str, assignments: Sequence[str]) -> tuple[Tree, dict[str, Any]]:
    """A flow, recorded here, with its code; the files that it was recorded with are sent."""
    from detent.sdk.flow_file import load_flow, recorded  # noqa: PLC0415
    from detent.sdk.flow_tree import tree_of_flow  # noqa: PLC0415
    from detent.sdk.remote_values import RemoteValues  # noqa: PLC0415

    recording, _ = recorded(load_flow(file), assignments)
    tree, contract = tree_of_flow(recording)
    if contract.files:
        values = RemoteValues(server.http)
        try:
            values.send_files(contract.files)
        finally:
            values.close()
    return tree, {}


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
