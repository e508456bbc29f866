"""A plan for people: wave by wave, and readable however many steps there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from detent.cli.binding_text import limits_text, runs_text, value_text
from detent.cli.coming import Coming
from detent.cli.page import Cell, Cellish, Page
from detent.cli.planned import Planned
from detent.cli.terminal import BAD, FAINT, GOOD, NOTE, STRONG, WARN, safe, width
from detent.words.quantities import count_text
from detent.words.states import REUSED, SKIPPED

if TYPE_CHECKING:
    from detent.inspect.plan_preview import PlanPreview
    from detent.workflow.models import ModelWorkflowStep

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
    from detent.contract.durations import format_duration  # noqa: PLC0415 - keeps `--help` fast

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
