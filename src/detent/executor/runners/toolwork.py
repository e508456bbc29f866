"""What the job types that drive a tool of ours share: how a tool is started in its jail, and how its word is taken.

The tool reads untrusted input, so it may have been taken over: it says which files it made or why it made none, and this
is checked against what was asked and against the files themselves. Any fault in it is the job's failure, never ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from detent.artifacts.file_type import Sniffed, examine
from detent.canon import json_decode
from detent.executor.runners import tools
from detent.executor.runners.execute import failure_of
from detent.executor.runners.model import Made, Need, Outcome, Prepared, RunnerFailure
from detent.executor.sandbox import Execution
from detent.jobs.category import ErrorCategory
from detent.jobs.limits import Limits

INSIDE: Final = Path(__file__).with_name("inside")
PIXELS_MAX: Final = 50_000_000
"""Most pixels a picture may have, however much memory there is."""
BYTES_PER_PIXEL: Final = 16
"""Four channels, four times: read, turned, scaled, written."""

HTML_TYPE: Final = "text/html; charset=utf-8"
"""Of HTML that typst made and in which nothing can act; any other is text."""
OUTPUT_INVALID: Final = "OUTPUT_INVALID"
_KINDS: Final[Mapping[str, tuple[ErrorCategory, str]]] = {
    "invalid": (ErrorCategory.USER_CODE_ERROR, "INPUT_INVALID"),
    "too large": (ErrorCategory.RESOURCE_LIMIT, "LIMIT_MEMORY"),
    "unsupported": (ErrorCategory.VALIDATION_ERROR, "VALIDATION_ERROR"),
}

# In the jail there is no package `detent`: its rooms are entered without their files, all but the one that was mounted.
_SOURCE: Final = """
import os, sys, types

def main(**parameters):
    inputs = os.environ["DETENT_INPUTS"]
    sys.path.insert(0, inputs)
    name = ""
    for part in ("detent", "executor", "runners", "inside"):
        name = f"{name}.{part}".lstrip(".")
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [f"{inputs}/inside"] if part == "inside" else []
    from detent.executor.runners.inside.MODULE import main as draw
    return draw(**parameters)
"""


def prepare_tool(job_type: str, module: str, parameters: Mapping[str, Any], needs: tuple[Need, ...] = ()) -> Prepared:
    """A job that runs one of the modules in `inside` with its tools, the needs beside them."""
    return Prepared(
        _SOURCE.replace("MODULE", module),
        "main",
        parameters,
        filename="tool.py",
        runner=tools.NAMES[job_type],
        needs=needs,
        libraries={**tools.libraries(job_type), "inside": INSIDE},
    )


def pixels_max(limits: Limits) -> int:
    """How many pixels a picture may have in a job with these limits."""
    return min(PIXELS_MAX, limits.memory_bytes // BYTES_PER_PIXEL)


def judge_tool(execution: Execution, expected: Mapping[str, str], kind: str) -> Outcome:
    """The outcome of a tool's execution; ``expected`` gives the format that each of its files must turn out to have."""
    failure = failure_of(execution)
    if failure is not None:
        return Outcome(_of_tool(failure, execution))
    told = json_decode(execution.result or b"null", name="result")
    fault = told.get("fault") if isinstance(told, dict) else None
    if fault is not None:
        return Outcome(_told(fault))
    said = told.get("made") if isinstance(told, dict) else None
    found = {file.name: file for file in execution.files}
    if not isinstance(said, dict) or not set(said) == set(found) == set(expected):
        return Outcome(_invalid(f"the tool made {sorted(found)}, not {sorted(expected)}"))
    made = []
    for name in sorted(found):
        sniffed = examine(found[name].path)
        fits = _fits(sniffed, expected[name])
        if fits is None:
            return Outcome(_invalid(f"the tool's file {name!r} is {sniffed.format}, not {expected[name]}"))
        metadata = {key: value for key, value in _object(said[name]).items() if isinstance(value, int | float)}
        made.append(Made(found[name], kind, fits, metadata))
    return Outcome(made=tuple(made))


def _fits(sniffed: Sniffed, expected: str) -> Sniffed | None:
    if sniffed.format != expected or (sniffed.active and expected == "svg"):
        return None
    if expected == "html" and not sniffed.active:
        return Sniffed("html", HTML_TYPE)
    return sniffed


def _of_tool(failure: RunnerFailure, execution: Execution) -> RunnerFailure:
    """A failure of the tool itself: the user's input did it, and a traceback of ours would tell the user nothing."""
    if failure.category is not ErrorCategory.USER_CODE_ERROR:
        return RunnerFailure(failure.category, failure.code, failure.message)
    raised = None if execution.raised is None else execution.raised.type
    if raised == "MemoryError":
        return RunnerFailure(*_KINDS["too large"], "drawing this needs more memory than the job has")
    if raised in {"ImportError", "ModuleNotFoundError"}:
        return RunnerFailure(*_KINDS["unsupported"], f"the tools cannot be loaded here: {failure.message}")
    return RunnerFailure(failure.category, "TOOL_FAILED", f"the input cannot be drawn: {failure.message}")


def _told(fault: Any) -> RunnerFailure:
    kind = fault.get("kind") if isinstance(fault, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS or not isinstance(fault.get("message"), str):
        return _invalid("the tool's answer is not one that it gives")
    details = {
        name: fault[name] for name in ("line", "column") if type(fault.get(name)) is int and 0 < fault[name] <= 2**31
    }
    return RunnerFailure(*_KINDS[kind], fault["message"], details)


def _invalid(message: str) -> RunnerFailure:
    return RunnerFailure(ErrorCategory.VALIDATION_ERROR, OUTPUT_INVALID, message)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
