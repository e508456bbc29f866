"""How a run ended: for people as a page, for programs as data, both from the same values.

The page answers, in this order: did it work, what was run and what was reused, where are the results, what went wrong and
on which line of yours, and what to type next.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detent.cli.page import Page
from detent.errors import DetentError
from detent.owner.home import find_home
from detent.pages.sheet import Cell, Cellish, artifact_fields, state_cell
from detent.pages.text import BAD, FAINT, NOTE, STRONG, WARN, beginning, safe, shortened
from detent.runs.record.view import Counts, RunView, counts, elapsed_ms, step_elapsed_ms, step_waited_ms
from detent.words.quantities import count_text, short_duration
from detent.words.states import CANCELLED, FAILED, RUNNING, SKIPPED, STOPPED, SUCCEEDED, word_of

if TYPE_CHECKING:
    from detent.runs.record.outcome import Artifact, StepFailure

RESULT_SHOWN_MAX: Final = 400
"""Columns of a result on the page; `-o json` has it whole."""
FAILURES_SHOWN_MAX: Final = 10
MESSAGE_LINES_MAX: Final = 8
NO_RESULT: Final = object()
"""Stands for a run that gives nothing back; None is a result like any other."""


def summary_data(
    view: RunView, *, result: Any = NO_RESULT, artifacts: Sequence[Artifact] = (), failures: Sequence[StepFailure] = ()
) -> dict[str, Any]:
    """The one JSON document of `detent run -o json`; it has ``result`` only if the run returns one."""
    said = counts(view.steps)
    document: dict[str, Any] = {
        "run_id": view.run_id,
        "name": view.name,
        "status": word_of(view.status),
        "resumed": view.resumed,
        "home": view.home,
        "started_ms": view.started_ms,
        "ended_ms": view.ended_ms,
        "elapsed_ms": elapsed_ms(view),
        "steps": {
            "total": said.steps,
            "run": said.succeeded,
            "reused": said.cached,
            "failed": said.failed,
            "skipped": said.skipped,
            "cancelled": said.cancelled,
            "open": said.running + said.waiting,
        },
        "jobs": {"total": said.jobs, "done": said.jobs_done, "reused": said.jobs_cached, "failed": said.jobs_failed},
        "step_list": [
            {
                "step": step.key,
                "name": step.name,
                "state": step.state,
                "total": step.total,
                "done": step.done,
                "reused": step.cached,
                "failed": step.failed,
                "elapsed_ms": step_elapsed_ms(step, view.now_ms),
                "waited_ms": step_waited_ms(step, view.now_ms),
                "ran_ms": step.ran_ms,
                "message": step.message or None,
            }
            for step in view.steps
        ],
        "artifacts": [asdict(artifact) for artifact in artifacts],
        "failures": [asdict(failure) for failure in failures],
        "warnings": list(view.warnings),
        "next": [line for line, _ in next_commands(view, failures)],
    }
    if result is not NO_RESULT:
        document["result"] = result
    return document


def next_commands(
    view: RunView, failures: Sequence[StepFailure] = (), *, whole_ids: bool = True
) -> list[tuple[str, str]]:
    """What to type next, and what that gives: for a failure its story, its output and another try; else the proof.

    The commands work where the run was started: a home or a server that would not be found from there is named.
    """
    commands: list[tuple[str, str]] = []
    told = next((failure for failure in failures if failure.job_id is not None), None)
    if told is not None and told.job_id is not None:
        job_id = told.job_id if whole_ids else beginning(told.job_id)
        commands += [
            (f"detent explain {job_id}", "why it ran and how it ended"),
            (f"detent logs {job_id}", "what it printed"),
        ]
        if told.where is not None:
            commands.append((f"detent show {job_id}", "its traceback, arguments and records"))
    if view.status == RUNNING:
        commands += [
            (f"detent show {view.run_id}", "what is done so far"),
            (f"detent logs {view.run_id} -f", "follow what its jobs print"),
            (f"detent cancel {view.run_id}", "cancel it"),
        ]
    elif view.status == STOPPED:
        commands.append((f"detent show {view.run_id}", "what is done; run the same command again to resume"))
    elif word_of(view.status) == SUCCEEDED:
        commands.append((f"detent show {view.run_id}", "every step and record"))
    else:
        commands.append((f"detent retry {view.run_id}", "run what is missing; finished work is kept"))
    if view.workers is None:
        return _at_server(view.home, commands)
    commands.append(("detent verify", "check that the history is complete and untouched"))
    found = None
    with suppress(DetentError):  # One above that this user may not use: the one that was used is named, then.
        found = find_home(Path.cwd(), os.environ)
    home, here = Path(view.home), Path.cwd()
    if found is not None and found.path == home:
        return commands
    named = shlex.quote(str(home.relative_to(here) if home.is_relative_to(here) else home))
    return [(f"{line} --home {named}", what) for line, what in commands]


def _at_server(url: str, commands: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The commands with the server that they need, unless the environment names it. `verify` is for the home itself."""
    from detent.remote.address import URL_VARIABLE  # noqa: PLC0415 - a run on this machine needs none of it

    if os.environ.get(URL_VARIABLE, "").rstrip("/") == url:
        return commands
    return [(f"{line} --connect {shlex.quote(url)}", what) for line, what in commands]


def draw_summary(
    page: Page,
    view: RunView,
    *,
    result: Any = NO_RESULT,
    artifacts: Sequence[Artifact] = (),
    failures: Sequence[StepFailure] = (),
) -> None:
    """The page at the end of a run."""
    page.line(
        Cell(safe(view.name), STRONG),
        " ",
        state_cell(view.status),
        f" in {short_duration(elapsed_ms(view))}",
        Cell(f"  run {view.run_id}", FAINT),
    )
    page.fields(_fields(view, result, artifacts), indent="  ")
    alike = _alike(failures)
    for failure, times in list(alike.items())[:FAILURES_SHOWN_MAX]:
        _draw_failure(page, failure, times)
    more = sum(list(alike.values())[FAILURES_SHOWN_MAX:])
    if more > 0:
        page.line()
        page.line(Cell(f"... and {count_text(more, 'more failure')}: `detent list --run {view.run_id}`", FAINT))
    page.line()
    commands = next_commands(view, failures, whole_ids=False)
    longest = max(len(line) for line, _ in commands)
    for line, what in commands:
        page.hanging(["  ", Cell(line.ljust(longest), NOTE), "  "], Cell(what, FAINT))


def _fields(view: RunView, result: Any, artifacts: Sequence[Artifact]) -> list[tuple[str, Cellish]]:
    said = counts(view.steps)
    fields: list[tuple[str, Cellish]] = [("steps", _steps_text(said))]
    if said.jobs != said.steps:
        reused = f", {said.jobs_cached:,} reused" if said.jobs_cached else ""
        fields.append(("jobs", f"{said.jobs_done:,} of {said.jobs:,} done{reused}"))
    if view.resumed:
        fields.append(("resumed", "an earlier process began this run; what it had done was kept"))
    if result is not NO_RESULT:
        text = json.dumps(result, ensure_ascii=False)
        fields.append(("result", shortened(safe(text), RESULT_SHOWN_MAX)))
    fields += artifact_fields("artifact", artifacts)
    if view.note:
        fields.append(("note", view.note))
    fields += [("warning", Cell(text, WARN)) for text in view.warnings]
    return fields


def _steps_text(said: Counts) -> str:
    words = [f"{said.succeeded:,} run", f"{said.cached:,} reused"]
    for number, what in (
        (said.failed, FAILED),
        (said.skipped, SKIPPED),
        (said.cancelled, CANCELLED),
        (said.running + said.waiting, "left open"),
    ):
        if number:
            words.append(f"{number:,} {what}")
    return ", ".join(words)


def _alike(failures: Sequence[StepFailure]) -> dict[StepFailure, int]:
    """Failures of one step that tell the same story, each once and counted: a fan-out often fails for one reason."""
    first: dict[StepFailure, StepFailure] = {}
    times: dict[StepFailure, int] = {}
    for failure in failures:
        story = replace(failure, job_id=None, attempts=0, index=None)
        first.setdefault(story, failure)
        times[story] = times.get(story, 0) + 1
    return {failure: times[story] for story, failure in first.items()}


def _draw_failure(page: Page, failure: StepFailure, times: int) -> None:
    page.line()
    often = f"  after {count_text(failure.attempts, 'attempt')}" if failure.attempts > 1 else ""
    often += f"  {times:,} jobs alike" if times > 1 else ""
    page.line(
        Cell(failure.label, STRONG), Cell(" failed", BAD), f"  {failure.category} {failure.code}", Cell(often, FAINT)
    )
    lines = failure.message.splitlines()
    for line in lines[:MESSAGE_LINES_MAX]:
        page.hanging(["  "], line)
    if len(lines) > MESSAGE_LINES_MAX:
        page.line("  ", Cell(f"... {count_text(len(lines) - MESSAGE_LINES_MAX, 'more line')}", FAINT))
    if failure.where is not None:
        page.hanging([Cell("  at ", FAINT)], failure.where)
