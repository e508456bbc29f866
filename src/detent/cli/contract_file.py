"""What `validate` and `plan` share: reading a contract file, within bounds, and showing what is wrong with one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detent.cli.page import Page
from detent.cli.shell import JSON, Ending, Shell, format_option
from detent.errors import EXIT_INVALID
from detent.pages.contract_text import refuse_unknown_zone
from detent.pages.sheet import Cell
from detent.pages.text import BAD, FAINT, STRONG
from detent.words.quantities import count_text

if TYPE_CHECKING:
    from detent.contract import Contract, ContractInvalid, Finding
    from detent.contract.model import JobFault

STANDARD_INPUT = "-"
STANDARD_INPUT_NAME = "<stdin>"
CLOSE = 0.8
"""How alike two names of files must be for one to be a slip of the other; their suffix makes all of them alike."""
PLUGINS_VARIABLE = "PYDANTIC_DISABLE_PLUGINS"


def is_flow_name(text: str) -> bool:
    """Whether a command line means a flow in Python rather than a contract file."""
    name = text.partition(":")[0]
    return name.endswith(".py") or (":" in text and not Path(text).exists())


def without_home(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command its `Shell`; it looks at files alone and has no use for a home."""

    @format_option
    @click.pass_context
    @wraps(command)
    def invoke(context: click.Context, /, *args: Any, output_format: str, **options: Any) -> int:
        ending = context.obj if isinstance(context.obj, Ending) else Ending()
        return command(Shell(None, output_format, ending), *args, **options)

    return invoke


def load_models() -> None:
    """Load the models of contracts without a search for plugins of Pydantic.

    Pydantic reads the metadata of everything that is installed when the first model is built. What a user's own module
    builds afterwards finds its plugins as ever.
    """
    asked = os.environ.get(PLUGINS_VARIABLE)
    os.environ[PLUGINS_VARIABLE] = "__all__"
    try:
        from detent.workflow import models  # noqa: PLC0415

        built = (models.ModelSemVer, models.ModelCoordinationRules, models.ModelWorkflowDefinition)
        for model in (*built, models.ModelWorkflowStep, models.ModelAction):
            model.model_rebuild()
    finally:
        if asked is None:
            del os.environ[PLUGINS_VARIABLE]
        else:
            os.environ[PLUGINS_VARIABLE] = asked


def read_contract(file: str) -> Contract:
    """Load a contract file; ``-`` is standard input, which lies where you are. Raises `ContractInvalid` with all that is wrong.

    Never more is read than a contract may have, so that a device or a file of any size does no harm.
    """
    from detent.contract import ContractInvalid, Finding, load  # noqa: PLC0415 - keeps `--help` fast
    from detent.contract.words import BYTES_MAX  # noqa: PLC0415

    if file == STANDARD_INPUT:
        data = sys.stdin.buffer.read(BYTES_MAX + 1)
        return _checked(load(data, name=STANDARD_INPUT_NAME, base=str(Path.cwd()), check_job=check_job))
    path = Path(file)
    try:
        with path.open("rb") as stream:
            data = stream.read(BYTES_MAX + 1)
    except IsADirectoryError as exc:
        raise ContractInvalid([Finding(file, 0, 0, "is a directory", f"name the files: {_inside(path)}")]) from exc
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or str(exc)
        raise ContractInvalid([Finding(file, 0, 0, f"cannot be read: {why}", _meant(path))]) from exc
    try:
        return _checked(load(data, name=file, base=str(path.absolute().parent), check_job=check_job))
    except ContractInvalid as exc:
        if path.suffix != ".py":
            raise
        hint = f"of a flow in Python, `detent plan {file}` shows the steps; `validate` reads contract files"
        raise ContractInvalid([Finding(file, 0, 0, "is a Python file, not a contract", hint)]) from exc


def check_job(target: Mapping[str, Any], values: Mapping[str, Any]) -> Sequence[JobFault]:
    """What is wrong with a ``job:`` payload. The runners are loaded for contracts that have one."""
    from detent.runs.record.job_check import job_faults  # noqa: PLC0415

    return job_faults(target, values)


def finding_map(finding: Finding) -> dict[str, Any]:
    """One finding as JSON; a place that is not known is null."""
    return {
        "file": finding.file,
        "line": finding.line or None,
        "column": finding.column or None,
        "path": finding.path,
        "message": finding.message,
        "hint": finding.hint,
        "code": finding.code,
    }


def findings_map(error: ContractInvalid) -> dict[str, Any]:
    """All findings of one file as JSON; more may have been found than are listed."""
    findings = [finding_map(finding) for finding in error.findings]
    return {"findings": findings, "findings_total": len(findings) + error.more}


def draw_findings(page: Page, error: ContractInvalid) -> None:
    """Every finding on a line that editors understand, with what to do about it on the next one."""
    for finding in error.findings:
        # Not wrapped: a place and its message on one line is what editors and CI logs turn into links.
        where = f"{finding.line}:{finding.column}:" if finding.line else f" {finding.path}:" if finding.path else ""
        page.line(Cell(f"{finding.file}:{where} ", STRONG), Cell(finding.message, BAD))
        if finding.hint:
            page.hanging([Cell("  hint: ", FAINT)], finding.hint)
    if error.more:
        page.line(Cell(f"... and {count_text(error.more, 'more finding')}", FAINT))


def refused(shell: Shell, error: ContractInvalid) -> int:
    """End a command that cannot go on without a valid contract: the findings are messages, not its answer."""
    if shell.format == JSON:
        return shell.answer({"ok": False, **findings_map(error)}, lambda _: None, code=EXIT_INVALID)
    for finding in error.findings:
        shell.note(f"error: {finding}")
        if finding.hint:
            shell.note(f"hint:  {finding.hint}")
    if error.more:
        shell.note(f"... and {count_text(error.more, 'more finding')}")
    return EXIT_INVALID


def _checked(contract: Contract) -> Contract:
    from detent.executor.annotations import refuse_returns  # noqa: PLC0415 - reads the functions that it names

    refuse_unknown_zone(contract)
    refuse_returns(contract)
    return contract


def refuse_policies(contract: Contract, home_option: Path | None = None) -> None:
    """Refuse names of policies that the home does not define; without a home there is nothing to compare them with."""
    from detent.contract.model import names_policies, refuse_unknown_policies  # noqa: PLC0415

    if not names_policies(contract):
        return
    from detent.owner.home import find_home  # noqa: PLC0415 - for contracts that name policies alone

    home = find_home(Path.cwd(), os.environ, home_option)
    if home is not None:
        refuse_unknown_policies(contract, home.settings().policies().known)


def _meant(path: Path) -> str:
    """A file beside the one that cannot be read, whose name is nearly or all but its suffix the same, for a hint."""
    from difflib import get_close_matches  # noqa: PLC0415 - for mistakes alone

    try:
        beside = [one.name for one in path.parent.iterdir() if one.suffix in {".yaml", ".yml", ".json", ".py"}]
    except OSError:
        return f"there is no directory {path.parent}"
    near = [name for name in sorted(beside) if Path(name).stem == path.name]
    near += get_close_matches(path.name, beside, 1, CLOSE)
    return f"did you mean {path.parent / near[0]}?" if near else "check the path"


def _inside(directory: Path) -> str:
    """The contract files of a directory, a few of them, for a hint."""
    try:
        found = sorted(str(path) for path in directory.iterdir() if path.suffix in {".yaml", ".yml", ".json"})
    except OSError:
        found = []
    return " ".join(found[:3]) or f"{directory / '*.yaml'}"
