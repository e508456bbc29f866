"""`detent plan`: what a contract would run, in which order, after what and within which limits.

A plan for people: wave by wave, and readable however many steps there are.

A contract with the planner's answer to it, gathered for `detent plan`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from detent.cli.contract_file import (
    STANDARD_INPUT,
    STANDARD_INPUT_NAME,
    is_flow_name,
    load_models,
    read_contract,
    refuse_policies,
    refused,
)
from detent.cli.page import Page
from detent.cli.shell import JSON, Shell, teaching, with_shell
from detent.pages.contract_text import Coming, coming_of, limits_text, runs_text, value_text
from detent.pages.sheet import Cell, Cellish
from detent.pages.text import BAD, FAINT, GOOD, NOTE, STRONG, WARN, safe, width
from detent.words.quantities import count_text
from detent.words.states import REUSED, SKIPPED

if TYPE_CHECKING:
    from detent.contract import Contract
    from detent.inspect.plan_preview import PlanPreview
    from detent.workflow.models import ModelAction, ModelWorkflowStep

SHOWN_MAX = 60
"""Steps that a page shows unless told otherwise; JSON has them all."""
SHOWN_IN_WAVE_MAX = 12
"""Steps of one wave, once there are more than a page shows: what comes after a wide wave stays visible."""
NEEDS_SHOWN_MAX = 8
KEY_WIDTH_MAX = 24
_MARGIN = 6
_VERDICTS = {
    "run": ("would run", NOTE),
    "reuse": (REUSED, GOOD),
    "join": ("under way", NOTE),
    "depends": ("", FAINT),
    "unknown": ("unknown", WARN),
}
"""How what is foreseen of a step is said."""


def draw_plan(
    page: Page,
    plan: Planned,
    file: str,
    coming: Coming | None = None,
    *,
    foresight: PlanPreview | None = None,
    show_all: bool,
) -> None:
    """What it is, then its steps in waves, then what is skipped."""
    total = sum(len(wave) for wave in plan.waves)
    _draw_head(page, plan, file, coming, total, foresight)
    _Waves(page, plan, total, foresight, show_all=show_all).draw()
    if not plan.skipped:
        return
    shown = plan.skipped if show_all else plan.skipped[:SHOWN_IN_WAVE_MAX]
    page.line()
    page.line(
        Cell(SKIPPED, STRONG), Cell(f"  {count_text(len(plan.skipped), 'disabled step')}, without an action", FAINT)
    )
    for step in shown:
        page.line(" " * _MARGIN, plan.contract.keys[step.step_id])
    if len(shown) < len(plan.skipped):
        _draw_more(page, " " * _MARGIN, f"... and {len(plan.skipped) - len(shown):,} more")


def _draw_head(
    page: Page, plan: Planned, file: str, coming: Coming | None, total: int, foresight: PlanPreview | None
) -> None:
    from detent.contract.words import format_duration  # noqa: PLC0415 - keeps `--help` fast

    metadata = plan.contract.definition.workflow_metadata
    size = f"{count_text(total, 'step')} in {count_text(len(plan.waves), 'wave')}" if total else "no steps"
    page.line(Cell(metadata.workflow_name, STRONG), f"  {size}, {metadata.execution_mode}")
    fields: list[tuple[str, Cellish]] = [("file", file)]
    if metadata.description:
        fields.append(("about", metadata.description))
    if "timeout_ms" in metadata.model_fields_set:
        fields.append(("timeout", format_duration(metadata.timeout_ms)))
    if coming is not None:
        fields += [("schedule", coming.text), ("next", coming.next_text)]
    fields += [("param", _param_cell(plan, name)) for name in plan.contract.params]
    if plan.contract.result is not None:
        fields.append(("result", value_text(plan.contract.result, plan.values)))
    if foresight is not None:
        fields.append(("now", _now_text(foresight)))
        fields += [("warning", Cell(text, WARN)) for text in foresight.warnings]
    page.fields(fields, indent="  ")


def _now_text(foresight: PlanPreview) -> str:
    """What a run would do in all."""
    words = (
        ("run", "would run"),
        ("reuse", REUSED),
        ("join", "under way"),
        ("depends", "open"),
        ("unknown", "unknown"),
    )
    said = ", ".join(f"{number:,} {word}" for verdict, word in words if (number := foresight.count(verdict)))
    if foresight.resumes is not None:
        said += f"; `detent run` resumes run {foresight.resumes}"
    return said or "nothing to do"


def _param_cell(plan: Planned, name: str) -> Cell:
    about = plan.contract.params[name].description
    about = f"  ({about})" if about else ""
    if name in plan.missing:
        return Cell(f"{name} needs a value: -p {name}=...{about}", BAD)
    how = "" if name in plan.given else ", the default"
    return Cell(f"{name} = {value_text({'$param': name}, plan.values)}{how}{about}")


class _Waves:
    """The waves on a page, cut where a reader would have stopped reading."""

    def __init__(self, page: Page, plan: Planned, total: int, foresight: PlanPreview | None, *, show_all: bool) -> None:
        self.page = page
        self.plan = plan
        self.foreseen = {} if foresight is None else foresight.steps
        self.total = total
        self.disabled = {step.step_id for step in plan.skipped}
        bounded = not show_all and total > SHOWN_MAX
        self.parts = list(_cut(plan.waves)) if bounded else list(plan.waves)
        """Of each wave that is shown, the steps that are."""
        shown = [step for part in self.parts for step in part]
        keys = (width(safe(plan.contract.keys[step.step_id])) for step in shown)
        self.key_width = max(min(max(keys, default=0), KEY_WIDTH_MAX), len("STEP"))
        self.node_width = max((len(plan.actions[step.step_id].target_node_type) for step in shown), default=0)

    def draw(self) -> None:
        if not self.total:
            return
        self.page.line()
        header = f"{'WAVE':<{_MARGIN}}{'STEP':<{self.key_width}}  {'TARGET':<{self.node_width}}  RUNS"
        self.page.line(Cell(header, STRONG))
        for place, part in enumerate(self.parts):
            wave = self.plan.waves[place]
            # A chain stays compact; steps that may run at once stand apart from what comes before and after.
            if place and max(len(wave), len(self.plan.waves[place - 1])) > 1:
                self.page.line()
            for offset, step in enumerate(part):
                self._draw_step(step, "" if offset else str(place + 1))
            if len(part) < len(wave):
                _draw_more(self.page, " " * _MARGIN, f"... and {len(wave) - len(part):,} more in wave {place + 1}")
        left = sum(len(wave) for wave in self.plan.waves[len(self.parts) :])
        if left:
            waves = count_text(len(self.plan.waves) - len(self.parts), "wave")
            self.page.line()
            _draw_more(self.page, " " * _MARGIN, f"... and {count_text(left, 'more step')} in {waves}")

    def _draw_step(self, step: ModelWorkflowStep, wave: str) -> None:
        contract = self.plan.contract
        key = safe(contract.keys[step.step_id])
        binding = contract.bindings.get(step.step_id)
        node = self.plan.actions[step.step_id].target_node_type
        lead: list[Cellish] = [
            Cell(f"{wave:>{_MARGIN - 2}}  ", NOTE),
            Cell(key + " " * max(0, self.key_width - width(key)), STRONG),
            f"  {node:<{self.node_width}}  ",
        ]
        self.page.hanging(lead, "nothing is bound to it" if binding is None else runs_text(binding, self.plan.values))
        beside = "; ".join(text for text in (self._needs(step), limits_text(step, binding)) if text)
        if beside:
            self.page.hanging([" " * (_MARGIN + self.key_width + 2)], Cell(beside, FAINT))
        foreseen = self.foreseen.get(contract.keys[step.step_id])
        if foreseen is not None:
            word, style = _VERDICTS[foreseen.verdict]
            indent = " " * (_MARGIN + self.key_width + 2)
            self.page.hanging([indent, Cell(word, style), ": " if word else ""], Cell(foreseen.why, style))

    def _needs(self, step: ModelWorkflowStep) -> str:
        keys = self.plan.contract.keys
        names = [
            keys[need] + (" (disabled)" if need in self.disabled else "") for need in step.depends_on[:NEEDS_SHOWN_MAX]
        ]
        more = len(step.depends_on) - len(names)
        return f"after {', '.join(names)}" + (f" and {more:,} more" if more else "") if names else ""


def _cut(waves: Sequence[tuple[ModelWorkflowStep, ...]]) -> Iterator[tuple[ModelWorkflowStep, ...]]:
    """As much of the first waves as a page shows, and no more than a few steps of each."""
    room = SHOWN_MAX
    for wave in waves:
        if not room:
            return
        yield wave[: min(SHOWN_IN_WAVE_MAX, room)]
        room -= min(len(wave), SHOWN_IN_WAVE_MAX, room)


def _draw_more(page: Page, indent: str, text: str) -> None:
    page.line(indent, Cell(text, WARN), Cell("; --all shows them", FAINT))


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

    try:
        if is_flow_name(file):
            from detent.sdk.flow_file import load_flow, recorded  # noqa: PLC0415

            contract, assignments = recorded(load_flow(file), assignments)[1], ()
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


PLAN_LABEL = b"detent/plan/v1\0"


@dataclass(frozen=True, slots=True)
class Planned:
    """What a contract would run."""

    contract: Contract
    values: Mapping[str, Any]
    """The parameters that have a value."""
    given: frozenset[str]
    """Those of them that were given one; the others have their default."""
    missing: tuple[str, ...]
    """Those that a run must be given."""
    actions: Mapping[UUID, ModelAction]
    """By step, in canonical order; a skipped step has none."""
    waves: tuple[tuple[ModelWorkflowStep, ...], ...]
    """The enabled steps in canonical order. For the page alone: no output of the planner names waves (WF-105)."""
    skipped: tuple[ModelWorkflowStep, ...]
    """Disabled steps, as declared."""


def planned(contract: Contract, assignments: Sequence[str]) -> Planned:
    """Plan a contract with parameters as they were typed; raises `InvalidInput` for those that do not fit.

    A plan is for looking: a parameter without a value leaves a gap in it, and only a run must refuse.
    """
    load_models()
    from detent.contract import bindings_digest, contract_digest  # noqa: PLC0415 - keeps `--help` fast
    from detent.contract.params import parse_assignment, refuse_misfits  # noqa: PLC0415
    from detent.workflow.executor import plan_workflow  # noqa: PLC0415
    from detent.workflow.identity import uuid8  # noqa: PLC0415

    given = dict(parse_assignment(text, contract) for text in assignments)
    defaults = {name: param.default for name, param in contract.params.items() if not param.required}
    refuse_misfits(contract, defaults | given)
    # The same contract gives the same plan, ids included; every run draws its own.
    both = f"{contract_digest(contract)} {bindings_digest(contract)}"
    workflow_id = uuid8(hashlib.sha256(PLAN_LABEL + both.encode()).digest())
    # A step that says no priority has 100 to the planner and 5 to the queue; a plan shows what its jobs will have.
    steps = [step.model_copy(update={"priority": _priority(contract, step)}) for step in contract.steps]
    result = plan_workflow(contract.definition, steps, workflow_id)
    return Planned(
        contract,
        defaults | given,
        frozenset(given),
        tuple(name for name in contract.params if name not in defaults and name not in given),
        {UUID(action.payload["step_id"]): action for action in result.actions_emitted},
        _waves(contract),
        tuple(step for step in contract.steps if not step.enabled),
    )


def plan_map(
    plan: Planned, file: str, coming: Coming | None = None, foresight: PlanPreview | None = None
) -> dict[str, Any]:
    """The plan as JSON: the contract in its long form, the actions, and the steps in order as people call them."""
    from detent.contract import bindings_digest, contract_digest, long_form  # noqa: PLC0415

    contract = plan.contract
    steps = [step for wave in plan.waves for step in wave]
    return {
        "ok": True,
        "file": file,
        "name": contract.definition.workflow_metadata.workflow_name,
        "contract_digest": contract_digest(contract),
        "bindings_digest": bindings_digest(contract),
        "schedule": None if coming is None else coming.map(),
        "params": dict(plan.values),
        "params_missing": list(plan.missing),
        "home": None if foresight is None else foresight.home,
        "resumes": None if foresight is None else foresight.resumes,
        "warnings": [] if foresight is None else list(foresight.warnings),
        "steps": [_step_map(plan, step, foresight) for step in (*steps, *plan.skipped)],
        "actions": [action.model_dump(mode="json") for action in plan.actions.values()],
        "contract": long_form(contract),
    }


def _step_map(plan: Planned, step: ModelWorkflowStep, foresight: PlanPreview | None) -> dict[str, Any]:
    from detent.contract.model import retries_of, timeout_ms_of  # noqa: PLC0415

    contract = plan.contract
    binding = contract.bindings.get(step.step_id)
    action = plan.actions.get(step.step_id)
    retries = retries_of(step, binding)
    place = contract.places.get(step.step_id)
    foreseen = None if foresight is None else foresight.steps.get(contract.keys[step.step_id])
    return {
        "key": contract.keys[step.step_id],
        "step_id": str(step.step_id),
        "action_id": None if action is None else str(action.action_id),
        "enabled": step.enabled,
        "needs": [contract.keys[need] for need in step.depends_on],
        "target": None if action is None else action.target_node_type,
        "runs": None if binding is None else runs_text(binding, plan.values),
        "priority": _priority(contract, step),
        "timeout_ms": timeout_ms_of(step, binding),
        "retry": None if retries is None else {"max": retries[0], "on": list(retries[1])},
        "line": None if place is None else place.line,
        "foreseen": None if foreseen is None else foreseen.to_map(),
    }


def _priority(contract: Contract, step: ModelWorkflowStep) -> int:
    """The class of a step's jobs; of a step without `run:`, which has none, that of its action."""
    from detent.contract.model import priority_of  # noqa: PLC0415
    from detent.workflow.identity import priority_of as action_priority_of  # noqa: PLC0415

    binding = contract.bindings.get(step.step_id)
    return action_priority_of(step) if binding is None else priority_of(step, binding)


def _waves(contract: Contract) -> tuple[tuple[ModelWorkflowStep, ...], ...]:
    """The enabled steps, grouped by the longest chain of enabled steps before them."""
    from detent.workflow.ordering import get_execution_order  # noqa: PLC0415

    steps = {step.step_id: step for step in contract.steps}
    wave_of: dict[UUID, int] = {}
    waves: list[list[ModelWorkflowStep]] = []
    for step_id in get_execution_order(list(contract.steps)):
        step = steps[step_id]
        if not step.enabled:
            continue
        wave = max((wave_of[need] + 1 for need in step.depends_on if need in wave_of), default=0)
        wave_of[step_id] = wave
        if wave == len(waves):
            waves.append([])
        waves[wave].append(step)
    return tuple(tuple(wave) for wave in waves)
