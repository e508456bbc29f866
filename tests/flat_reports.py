"""Reports of work by the names of their stored form, which is one flat map."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from detent.jobs.work import Result, Usage, WorkReport

_OF_USAGE = {each.name for each in fields(Usage)}
_OF_RESULT = {each.name for each in fields(Result)} - {"env_version", "envelope"}


def flat_report(**said: Any) -> WorkReport:
    """A report with these fields."""
    own, result, usage = _parted(said)
    return WorkReport(result=Result(usage=Usage(**usage), **result), **own)


def changed_report(report: WorkReport, **said: Any) -> WorkReport:
    """A report with other values in these fields."""
    own, result, usage = _parted(said)
    return replace(report, result=replace(report.result, usage=replace(report.result.usage, **usage), **result), **own)


def _parted(said: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What belongs to the report itself, to its result, and to what that used."""
    named = {"failure" if name == "error" else name: value for name, value in said.items()}
    usage = {name: value for name, value in named.items() if name in _OF_USAGE}
    result = {name: value for name, value in named.items() if name in _OF_RESULT}
    return {name: value for name, value in named.items() if name not in usage | result}, result, usage
