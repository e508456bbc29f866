"""Parts of a contract in few words: what a step runs, its limits, and when a schedule is next due.

What a step runs and how it is limited, in few words.

A contract's schedule and its next occurrences, for those who look at contracts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.words.quantities import count_text

if TYPE_CHECKING:
    from detent.contract import Contract
    from detent.contract.model import Binding
    from detent.workflow.models import ModelWorkflowStep

VALUE_LENGTH_MAX = 60
"""Characters of one argument that are shown."""
TEXT_LENGTH_MAX = 400
"""Characters of a whole description: a plan shows what runs, the file has it to the letter."""
_SAID = frozenset({"compute", "files", "items", "commit"})
"""Settings of a map that are described in words."""


def runs_text(binding: Binding, params: Mapping[str, Any]) -> str:
    """What a binding runs, as a call: ``etl:extract(source="a", rows=<clean>)``; ``<clean>`` is that step's result."""
    what = _what(binding, params)
    if binding.map is not None:
        name, items = binding.map
        over = count_text(len(items), "item") if isinstance(items, list) else value_text(items, params)
        what += f" for each {name} in {over}"
    return what if len(what) <= TEXT_LENGTH_MAX else what[: TEXT_LENGTH_MAX - 1] + "…"


def limits_text(step: ModelWorkflowStep, binding: Binding | None) -> str:
    """How a step is limited, retried and left; empty where it says nothing about any of it (X-162, X-164)."""
    from detent.contract.model import retries_of, timeout_ms_of  # noqa: PLC0415
    from detent.contract.words import format_duration  # noqa: PLC0415 - keeps `--help` fast
    from detent.jobs.order import JobLimits  # noqa: PLC0415 - loads the kernel, which a help text does not need
    from detent.jobs.placing import wanted_words  # noqa: PLC0415

    timeout_ms = timeout_ms_of(step, binding)
    words = [] if timeout_ms is None else [f"timeout {format_duration(timeout_ms)}"]
    retries = retries_of(step, binding)
    if retries is not None:
        words.append(f"{count_text(retries[0], 'retry', 'retries')} on {', '.join(retries[1])}")
    if binding is not None and not binding.cache:
        words.append("never reused")
    if "error_action" in step.model_fields_set and step.error_action != "stop":
        words.append("its failure stops nothing")
    if step.skip_on_failure:
        words.append("skipped after a failure")
    if "priority" in step.model_fields_set:
        words.append(f"priority {step.priority}")
    if binding is not None and binding.resources:
        words.append("takes " + " and ".join(f"{amount:,} {name}" for name, amount in binding.resources.items()))
    if binding is not None and (binding.pool or binding.labels):
        words.append(f"needs a worker with {wanted_words(JobLimits(pool=binding.pool, labels=binding.labels).wanted)}")
    if binding is not None:
        words += [f"{kind} {name}" for kind, name in binding.policies.items()]
    return ", ".join(words)


def value_text(value: Any, params: Mapping[str, Any]) -> str:
    """A value as JSON, cut short, with its references in angle brackets."""
    text = _written(value, params)
    return text if len(text) <= VALUE_LENGTH_MAX else text[: VALUE_LENGTH_MAX - 1] + "…"


def map_text(said: Mapping[str, Any], source: str, params: Mapping[str, Any]) -> str:
    """What a map calls on what, what it fills, and its other settings; parameters by their values."""
    text = f"map {said['compute']} over {source} to {_setting(said['commit'], params)}"
    more = [f"{name}={_setting(value, params)}" for name, value in said.items() if name not in _SAID]
    return f"{text} with {', '.join(more)}" if more else text


def _setting(value: Any, params: Mapping[str, Any]) -> str:
    """A setting as it is written in a contract: texts without quotes, several side by side."""
    if isinstance(value, dict) and value.get("$param") in params:
        value = params[value["$param"]]
    if isinstance(value, list):
        return ", ".join(_setting(item, params) for item in value)
    return value if isinstance(value, str) else value_text(value, params)


def _what(binding: Binding, params: Mapping[str, Any]) -> str:
    kind = binding.kind.value
    if kind == "shell":
        first, *rest = str(binding.target).strip().splitlines()
        return f"shell {first}" + (f" (and {count_text(len(rest), 'more line')})" if rest else "")
    if kind == "job":
        return f"job {binding.target.get('job_type', '?')}"
    if kind == "map":
        said = binding.target
        source = _setting(said["files"], params) if "files" in said else value_text(said["items"], params)
        return map_text(said, source, params)
    arguments = [value_text(item, params) for item in binding.arguments]
    arguments += [f"{name}={value_text(item, params)}" for name, item in binding.keywords.items()]
    if kind == "code":
        lines = count_text(len(str(binding.target).splitlines()), "line")
        return f"code {binding.entrypoint}({', '.join(arguments)}), {lines}"
    return f"python {binding.target}({', '.join(arguments)})"


def _written(value: Any, params: Mapping[str, Any]) -> str:
    """A value as JSON with its references in angle brackets. Loaded contracts bound the depth."""
    if isinstance(value, dict):
        if len(value) == 1:
            ((word, name),) = value.items()
            if word == "$from":
                return f"<{name}>"
            if word == "$param":
                return json.dumps(params[name], ensure_ascii=False) if name in params else f"<-p {name}>"
        if "$file" in value:
            return f"<file {value.get('name')}>"
        items = (
            f"{json.dumps(key[1:] if key.startswith('$$') else key, ensure_ascii=False)}: {_written(item, params)}"
            for key, item in value.items()
        )
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list | tuple):
        # A list of a million numbers is cut anyway: what cannot be seen is not written.
        shown = [_written(item, params) for item in value[:VALUE_LENGTH_MAX]]
        return "[" + ", ".join(shown) + "]"
    return json.dumps(value, ensure_ascii=False)


SHOWN = 3
"""Occurrences that are shown: enough to see what the schedule means."""


@dataclass(frozen=True, slots=True)
class Coming:
    """A schedule as text and as data, and its next occurrences with the offset of its zone."""

    text: str
    document: dict[str, Any]
    moments: tuple[str, ...]
    fault: str = ""
    """Why the occurrences cannot be told on this machine; empty: they can."""

    @property
    def next_text(self) -> str:
        """The next occurrences in one line."""
        return self.fault or ", ".join(moment.replace("T", " ") for moment in self.moments) or "never again"

    def map(self) -> dict[str, Any]:
        """As JSON."""
        return {**self.document, "next": list(self.moments)}


def coming_of(contract: Contract) -> Coming | None:
    """What comes next by a contract's schedule; None: it has none."""
    schedule = contract.schedule
    if schedule is None:
        return None
    from detent.contract.schedule import schedule_document, schedule_text  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.ticks import SystemClock  # noqa: PLC0415
    from detent.runs.schedules.times import MOMENT_MS_MAX, NoTimeZones, moment_text, occurrences  # noqa: PLC0415

    moments: tuple[str, ...] = ()
    fault = ""
    try:
        ticks = occurrences(schedule, SystemClock().wall_ms(), MOMENT_MS_MAX, SHOWN)
        moments = tuple(moment_text(tick, schedule.timezone) for tick in ticks)
    except NoTimeZones as exc:
        fault = str(exc)
    return Coming(schedule_text(schedule), schedule_document(schedule), moments, fault)


def refuse_unknown_zone(contract: Contract) -> None:
    """Raise `ContractInvalid` if the schedule's time zone is not in this machine's database.

    A machine without any database says nothing: the contract may well be right, and run elsewhere.
    """
    if contract.schedule is None:
        return
    from detent.contract import ContractInvalid, Finding  # noqa: PLC0415
    from detent.runs.schedules.times import NoTimeZones, TimeZoneUnknown, find_zone  # noqa: PLC0415

    try:
        find_zone(contract.schedule.timezone)
    except NoTimeZones:
        return
    except TimeZoneUnknown as exc:
        place = contract.schedule_place
        line, column = (place.line, place.column) if place is not None else (0, 0)
        finding = Finding(contract.name, line, column, str(exc), exc.hint or "", path="schedule.timezone")
        raise ContractInvalid([finding]) from exc
