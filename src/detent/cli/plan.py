"""`detent plan`: what a contract would run, in which order, after what and within which limits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detent.cli.coming import coming_of
from detent.cli.contract_file import STANDARD_INPUT, STANDARD_INPUT_NAME, read_contract, refuse_policies, refused
from detent.cli.plan_page import SHOWN_MAX, draw_plan
from detent.cli.planned import Planned, plan_map, planned
from detent.cli.shell import JSON, Shell, teaching, with_shell

if TYPE_CHECKING:
    from detent.inspect.plan_preview import PlanPreview


@click.command(
    "plan",
    help=teaching(
        """Show what a contract would run: its steps in order, wave by wave, each with its target, what it runs, the steps it needs
and its limits. Steps of one wave may run in parallel. `<extract>` stands for the result of the step `extract`. If there is
a home, each step also shows whether it would run or reuse an earlier result, and why. No step is run and nothing is
written; for a flow in a Python file, the file is imported and the flow recorded.

With -o json the contract is printed in its long form, together with the actions that the planner creates from it.""",
        """  detent plan pipeline.yaml
  detent plan pipeline.yaml -p rows=1000 -p region=eu
  detent plan pipeline.py:nightly -p day=2026-01-31
  detent plan pipeline.yaml -o json | jq '.actions | length'
""",
    ),
)
@click.argument("file", metavar="FILE")
@click.option("-p", "assignments", metavar="NAME=VALUE", multiple=True, help="Set a parameter; may be repeated.")
@click.option("--all", "show_all", is_flag=True, help=f"Show every step of a plan that has more than {SHOWN_MAX}.")
@with_shell
def command(shell: Shell, file: str, assignments: tuple[str, ...], *, show_all: bool) -> int:
    """Plan a contract."""
    from detent.contract import ContractInvalid  # noqa: PLC0415 - keeps `--help` fast
    from detent.executor.annotations import refuse_returns  # noqa: PLC0415
    from detent.sdk.flow_file import is_flow_name, load_flow, recorded  # noqa: PLC0415

    try:
        if is_flow_name(file):
            contract, assignments = recorded(load_flow(file), assignments), ()
            refuse_returns(contract)
        else:
            contract = read_contract(file)
        refuse_policies(contract, shell.home_option)
    except ContractInvalid as exc:
        return refused(shell, exc)
    plan = planned(contract, assignments)
    shown = STANDARD_INPUT_NAME if file == STANDARD_INPUT else file
    coming, foresight = coming_of(contract), _foresight(shell, plan)
    document = plan_map(plan, shown, coming, foresight) if shell.format == JSON else None
    return shell.answer(
        document, lambda page: draw_plan(page, plan, shown, coming, foresight=foresight, show_all=show_all)
    )


def _foresight(shell: Shell, plan: Planned) -> PlanPreview | None:
    """What a run would do, where there is a home to tell it from; an unreadable home does not prevent planning."""
    from detent.errors import DetentError  # noqa: PLC0415
    from detent.owner.home import find_home  # noqa: PLC0415

    home = shell.home() if shell.home_option is not None else None
    try:
        home = home or find_home(Path.cwd(), os.environ)
        if home is None:
            return None
        from detent.inspect.plan_preview import preview_plan  # noqa: PLC0415

        return preview_plan(home, plan.contract, plan.values, plan.missing)
    except (DetentError, OSError) as exc:
        shell.note(f"cannot tell what would be reused: {exc}")
        return None
