"""``object_render``: a picture of an object that need not be executed. Formulas in LaTeX, as SVG and PNG."""

from __future__ import annotations

from detent.executor.runners.model import Outcome, Prepared, RunnerFailure, unsupported
from detent.executor.runners.toolwork import judge_tool, pixels_max, prepare_tool
from detent.executor.sandbox import Execution
from detent.jobs.payload import ObjectRender


class Render:
    """Draws equations."""

    def prepare(self, payload: ObjectRender) -> Prepared | RunnerFailure:
        """The formula as data for the tool. Refuses other objects and forms."""
        given, content = payload.inputs.object, payload.inputs.object.content
        if given.type != "equation":
            return unsupported("inputs.object.type", f"{given.type!r} cannot be rendered here, only 'equation'")
        if content.format != "latex":
            return unsupported(
                "inputs.object.content.format", f"{content.format!r} is not supported here, only 'latex'"
            )
        if not isinstance(content.value, str):
            return unsupported("inputs.object.content.value", "must be a text")
        parameters = {
            "latex": content.value,
            "formats": sorted(payload.output_spec.formats),
            "pixels_max": pixels_max(payload.limits),
        }
        return prepare_tool(payload.job_type, "formula", parameters)

    def judge(self, payload: ObjectRender, execution: Execution) -> Outcome:
        """The pictures that were asked for, or why there are none."""
        return judge_tool(execution, {f"formula.{name}": name for name in payload.output_spec.formats}, "rendering")
