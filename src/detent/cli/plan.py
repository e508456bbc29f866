"""`detent plan`: what a contract would run, in which order, after what and within which limits."""

from __future__ import annotations

import click

from detent.cli.contract_file import STANDARD_INPUT, STANDARD_INPUT_NAME, read_contract, refused, without_home
from detent.cli.plan_page import SHOWN_MAX, draw_plan
from detent.cli.planned import plan_map, planned
from detent.cli.shell import JSON, Shell, teaching


@click.command(
    "plan",
    help=teaching(
        """Show what a contract would run: its steps in their order, wave by wave, each with where it goes, what it runs, what it
comes after and how it is limited. Steps of one wave may run at once. `<extract>` stands for the result of the step
`extract`. Nothing is run, imported or written.

With -o json the contract is printed in its long form, together with the actions that the planner makes of it.""",
        """  detent plan pipeline.yaml
  detent plan pipeline.yaml -p rows=1000 -p region=eu
  detent plan pipeline.yaml -o json | jq '.actions | length'
""",
    ),
)
@click.argument("file", metavar="FILE")
@click.option("-p", "assignments", metavar="NAME=VALUE", multiple=True, help="A parameter's value; may be repeated.")
@click.option("--all", "show_all", is_flag=True, help=f"Show every step of a plan that has more than {SHOWN_MAX}.")
@without_home
def command(shell: Shell, file: str, assignments: tuple[str, ...], *, show_all: bool) -> int:
    """Plan a contract."""
    from detent.contract import ContractInvalid  # noqa: PLC0415 - keeps `--help` fast

    try:
        contract = read_contract(file)
    except ContractInvalid as exc:
        return refused(shell, exc)
    plan = planned(contract, assignments)
    shown = STANDARD_INPUT_NAME if file == STANDARD_INPUT else file
    document = plan_map(plan, shown) if shell.format == JSON else None
    return shell.answer(document, lambda page: draw_plan(page, plan, shown, show_all=show_all))
