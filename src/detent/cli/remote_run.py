"""`detent run --connect`: a run at a server, with progress here."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from detent.cli.contract_file import is_flow_name, read_contract
from detent.cli.shell import JSON, Shell
from detent.cli.terminal import run_exit_code
from detent.errors import DetentError
from detent.remote.problems import ServerUnreachable
from detent.words.states import RUNNING

if TYPE_CHECKING:
    from detent.remote.home import RemoteHome
    from detent.remote.runs import RemoteRun
    from detent.remote.trees import Tree
    from detent.runs.record.view import RunView


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

    tree, params = _flow(server, file, assignments) if is_flow_name(file) else contract_tree(file, assignments)
    if not quiet and (left_out := tree.left_out_text()) is not None:
        shell.note(f"note: {left_out}")
    given = {name: value for name, value in options.items() if value}
    asked = {"contract": send_tree(server.http, tree), "params": params, "options": given}
    run = start_run(server.http, asked, state_directory(os.environ).parent / "runs", new=new)
    return watch(shell, run, quiet=quiet)


def contract_tree(file: str, assignments: Sequence[str]) -> tuple[Tree, dict[str, Any]]:
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

    Ctrl-C, or a request to terminate, looks away: the run goes on, and the same command finds it again.
    """
    from detent.cli.summary import NO_RESULT, draw_summary, summary_data  # noqa: PLC0415

    said: dict[str, Any] = {}
    try:
        with leaving():
            ended = _watched(shell, run, quiet=quiet)
            left = run.outcome()
    except KeyboardInterrupt:
        ended = run.view()
    except ServerUnreachable as exc:
        exc.hint = f"run {run.run_id} goes on without this command; the same command finds it again"
        raise
    else:
        said = {
            "result": left.result if left.gives_result and not left.result_left_out else NO_RESULT,
            "artifacts": left.artifacts,
            "failures": left.failures,
        }
        if left.result_left_out:
            shell.note("note: the result is too large to be sent; `detent show` tells what each step returned")
    document = summary_data(ended, **said) if shell.format == JSON else None
    if ended.status == RUNNING:
        shell.note(f"run {run.run_id} goes on at the server; the same command watches it again")
    code = shell.answer(document, lambda page: draw_summary(page, ended, **said), code=run_exit_code(ended.status))
    with suppress(DetentError):  # The answer was given.
        if not quiet:
            shell.say_page(run.http.address.url, run.http.get("/v1/me")["workspace"], "runs", run.run_id)
    return code


def _watched(shell: Shell, run: RemoteRun, *, quiet: bool) -> RunView:
    if quiet or shell.format == JSON:
        return run.wait()
    from detent.cli.progress import Console, Progress  # noqa: PLC0415

    run.look()
    with Progress(run.view, Console.of(sys.stderr, os.environ)):
        return run.watch()


@contextmanager
def leaving() -> Iterator[None]:
    """Have Ctrl-C and a request to terminate end the block at once: whatever is asked for, the server has it."""

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
