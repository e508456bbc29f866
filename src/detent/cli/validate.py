"""`detent validate`: is this a contract that can be planned, and if not, what is wrong with it and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from detent.cli.contract_file import (
    STANDARD_INPUT,
    draw_findings,
    finding_map,
    findings_map,
    read_contract,
    refuse_policies,
    without_home,
)
from detent.cli.page import Page
from detent.cli.shell import Shell, teaching
from detent.errors import EXIT_INVALID
from detent.pages.contract_text import coming_of
from detent.pages.sheet import Cell
from detent.pages.text import BAD, FAINT, GOOD, STRONG, WARN
from detent.words.quantities import count_text

if TYPE_CHECKING:
    from detent.contract import Contract, ContractInvalid, Finding


@click.command(
    "validate",
    help=teaching(
        """Check contract files: syntax, structure, names, references, dependencies, cycles. Every finding comes with its file,
line and column, what is wrong and how to fix it; all files are checked before the command ends. None of your code is
imported or run: a valid contract may still name a function that does not exist.""",
        """  detent validate pipeline.yaml
  detent validate contracts/*.yaml -o json
  cat pipeline.yaml | detent validate -
""",
    ),
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@without_home
def command(shell: Shell, files: tuple[str, ...]) -> int:
    """Check contract files."""
    from detent.contract import ContractInvalid  # noqa: PLC0415 - keeps `--help` fast
    from detent.errors import InvalidInput  # noqa: PLC0415

    if files.count(STANDARD_INPUT) > 1:
        raise InvalidInput("standard input can be read once", hint="name `-` once")
    checked: list[tuple[str, Contract | ContractInvalid]] = []
    for file in files:
        try:
            contract = read_contract(file)
            refuse_policies(contract)
            checked.append((file, contract))
        except ContractInvalid as exc:
            checked.append((file, exc))
    invalid = [outcome for _, outcome in checked if isinstance(outcome, ContractInvalid)]
    document = {"ok": not invalid, "files": [_file_map(file, outcome) for file, outcome in checked]}

    def draw(page: Page) -> None:
        for file, outcome in checked:
            if isinstance(outcome, ContractInvalid):
                draw_findings(page, outcome)
            else:
                page.line(Cell("valid", GOOD), f"  {file}: {_summary(outcome)}")
                _draw_warnings(page, warnings_of(outcome))
                if (coming := coming_of(outcome)) is not None:
                    page.line(Cell(f"       {coming.text}; next: {coming.next_text}", FAINT))
        if invalid:
            total = sum(len(outcome.findings) + outcome.more for outcome in invalid)
            where = "" if len(files) == 1 else f" in {len(invalid)} of {count_text(len(files), 'file')}"
            page.line(Cell("NOT VALID", BAD), f"  {count_text(total, 'finding')}{where}")

    return shell.answer(document, draw, code=EXIT_INVALID if invalid else 0)


def _summary(contract: Contract) -> str:
    return f"{contract.outline.name}, {count_text(len(contract.plain_steps), 'step')}"


def _file_map(file: str, outcome: Contract | ContractInvalid) -> dict[str, Any]:
    from detent.contract import ContractInvalid  # noqa: PLC0415

    if isinstance(outcome, ContractInvalid):
        return {"file": file, "ok": False, **findings_map(outcome)}
    coming = coming_of(outcome)
    return {
        "file": file,
        "ok": True,
        "name": outcome.outline.name,
        "steps": len(outcome.plain_steps),
        "schedule": None if coming is None else coming.map(),
        "findings": [],
        "findings_total": 0,
        "warnings": [finding_map(warning) for warning in warnings_of(outcome)],
    }


def warnings_of(contract: Contract) -> list[Finding]:
    """What a valid contract says without any effect, and what of it may go wrong unseen on this machine."""
    return [*_without_effect(contract), *_blind_pipes(contract)]


def _without_effect(contract: Contract) -> list[Finding]:
    """Fields that are kept and change nothing when the contract is run (X-120, X-194)."""
    from detent.contract import Finding  # noqa: PLC0415 - keeps `--help` fast
    from detent.contract.definition import IN_DEFINITION, IN_STEPS, definition_fields, step_fields  # noqa: PLC0415
    from detent.contract.findings import Place  # noqa: PLC0415

    found = [
        Finding(contract.name, 0, 0, f"{name} changes nothing: {why}", "remove it, or keep it as a note")
        for name, why in IN_DEFINITION.items()
        if name in definition_fields(contract.outline.document)
    ]
    for step in contract.plain_steps:
        place = contract.places.get(step.step_id, Place(0, 0))
        found += [
            Finding(
                contract.name,
                place.line,
                place.column,
                f"step {contract.keys[step.step_id]!r}: {name} changes nothing: {IN_STEPS[name]}",
                "remove it, or keep it as a note",
            )
            for name in step_fields(step)
        ]
    return found


def _blind_pipes(contract: Contract) -> list[Finding]:
    """Pipes in a shell that sees only a failure of their last command (X-189)."""
    from detent.contract import Finding  # noqa: PLC0415 - keeps `--help` fast
    from detent.contract.findings import Place  # noqa: PLC0415
    from detent.contract.model import Kind  # noqa: PLC0415
    from detent.contract.shapes import SH, has_pipe  # noqa: PLC0415

    piped = [
        step_id
        for step_id, binding in contract.bindings.items()
        if binding.kind is Kind.SHELL and not binding.shell and has_pipe(binding.target)
    ]
    if not piped:
        return []
    from detent.reuse.ingredients import default_shell  # noqa: PLC0415 - the engine, for contracts with a pipe alone

    if default_shell() != SH:
        return []
    hint = "install bash, or choose a shell with pipefail: `shell: zsh -euo pipefail`"
    warnings = []
    for step_id in piped:
        place = contract.places.get(step_id, Place(0, 0))
        message = f"step {contract.keys[step_id]!r}: without bash, only the last command of its pipe can fail the step"
        warnings.append(Finding(contract.name, place.line, place.column, message, hint))
    return warnings


def _draw_warnings(page: Page, warnings: list[Finding]) -> None:
    for warning in warnings:
        where = f"{warning.line}:{warning.column}:" if warning.line else ""
        page.line(Cell(f"{warning.file}:{where} ", STRONG), Cell("warning: ", WARN), warning.message)
        page.hanging([Cell("  hint: ", FAINT)], warning.hint)
