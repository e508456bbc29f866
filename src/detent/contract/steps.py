"""From a step's mapping, in either form, to a draft: what the planner will be told, and what the step runs.

A draft holds everything that could be understood, so that one bad field hides neither the next one nor a wrong dependency.

Who needs whom: keys and ids become positions, and what leads nowhere or in a circle is named.

Works on positions in the list of steps; ids are made only once everything holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final, get_args
from uuid import UUID

from detent.canon.grammar import PRIORITY_HINT, PRIORITY_MAX, SANDBOX_MEMORY_MB_MIN, priority_class
from detent.canon.late import dataclass
from detent.contract.bindings import BINDING_KEYS, make_binding
from detent.contract.findings import ELSEWHERE, Path, Report, Spot, Stage
from detent.contract.model import Binding, Kind, Param
from detent.contract.references import FROM, Reference, scan
from detent.contract.shapes import BAD, Check, check_keys, choice, keep, key, refuse_short_timeout, text
from detent.contract.words import STEPS_MAX, UUID_TEXT, shown
from detent.workflow.ordering import Edges, find_cycles, has_cycle
from detent.workflow.plain import STEP_FIELDS
from detent.workflow.vocabulary import STEP_TYPES, StepType

_EFFECTS: Final = frozenset({Kind.SHELL, Kind.MAP})
"""Kinds whose steps are taken for effects where nothing else is said."""
_TYPES: Final[tuple[str, ...]] = get_args(StepType)


@dataclass(slots=True)
class Draft:
    """One step as far as it was understood."""

    index: int
    spot: Spot
    written: Any = None
    """The step as the document has it."""
    key: str | None = None
    """The key that the file gives the step."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the step's model that the file sets, but for ``depends_on``."""
    needs: list[tuple[str, Path]] | None = None
    """Dependencies as written, each with its place; None: not written."""
    references: list[Reference] = field(default_factory=list)
    binding: Binding | None = None

    def place(self, field_path: Path) -> Path:
        """Where the step's mapping writes a field of the model: under its own name, or under the short form's."""
        if field_path and field_path[0] not in self.written:
            short = next((name for name, field in _SHORT_NAMES.items() if field == field_path[0]), None)
            if short is not None and short in self.written:
                return (short, *field_path[1:])
        return field_path

    @property
    def label(self) -> str:
        """What messages call the step."""
        name = self.key or self.fields.get("step_name")
        return repr(name[:80]) if type(name) is str else f"number {self.index + 1}"


def read_steps(value: Any, spot: Spot, *, short: bool) -> list[Draft]:
    """The drafts of a list of steps, in the order they are written."""
    if type(value) is not list:
        hint = "begin each step with `- id:`" if short else "begin each step with `- step_name:`"
        spot.fault(f"steps must be a list, not {shown(value)}", hint)
        return []
    if len(value) > STEPS_MAX:
        spot.fault(f"{len(value):,} steps, {STEPS_MAX:,} are allowed", "use `map:`, or split the contract")
        return []
    read = _short_step if short else _long_step
    return [read(item, Draft(index, spot.at(index), item)) for index, item in enumerate(value)]


def _short_step(value: Any, draft: Draft) -> Draft:
    spot = draft.spot
    if not _is_step(value, spot):
        return draft
    checked = check_keys(value, SHORT_STEP_KEYS, spot, _what(value, "id"))
    draft.key = checked.get("id")
    for missing in ("id", "run"):
        if missing not in value:
            is_command = missing == "run" and "shell" in value
            hint = _COMMAND_HINT if is_command else _MISSING[missing]
            spot.fault(f"{_what(value, 'id')} has no {missing}", hint)
    if "on_error" in value and "error_action" in value:
        spot.at("on_error").fault("on_error and error_action say the same thing", "keep one of them", at_key=True)
    _bind(checked, draft)
    draft.needs = checked.get("needs")
    fields = {_SHORT_NAMES.get(name, name): checked[name] for name in _SHORT_FIELDS if name in checked}
    fields.setdefault("step_name", draft.key or "step")
    if "step_type" not in fields:
        fields["step_type"] = (
            "compute" if draft.binding is None else "effect" if draft.binding.kind in _EFFECTS else "compute"
        )
    if "retry" in checked:
        fields["retry_count"] = checked["retry"].max
    draft.fields = fields
    return draft


def _long_step(value: Any, draft: Draft) -> Draft:
    spot = draft.spot
    if not _is_step(value, spot):
        return draft
    checked = check_keys(value, LONG_STEP_KEYS, spot, _what(value, "step_name"))
    draft.key = checked.get("id")
    draft.needs = checked.get("depends_on")
    draft.fields = {name: checked[name] for name in STEP_FIELDS if name in checked}
    draft.fields.pop("depends_on", None)
    if "step_type" in value:  # what is wrong with it has been said; that it is missing would be wrong
        draft.fields.setdefault("step_type", "custom")
    _bind(checked, draft)
    if "run" not in value:
        for name in BINDING_KEYS.keys() & value.keys():
            spot.at(name).fault(f"{name} means nothing without run", "add `run:`, or remove it", at_key=True)
    elif "retry" in checked:
        count = draft.fields.setdefault("retry_count", checked["retry"].max)
        if count != checked["retry"].max:
            spot.at("retry").fault(f"retry says {checked['retry'].max}, retry_count {shown(count)}", "keep one of them")
    return draft


def refuse_unenforced(draft: Draft) -> None:
    """Refuse limits of a step that nothing would hold: a limit that changes nothing is worse than none (X-194)."""
    if draft.binding is None:
        return
    priority = draft.fields.get("priority")
    if type(priority) is int and priority > PRIORITY_MAX:
        draft.spot.at("priority").fault(
            f"priority {priority} would change nothing: above {PRIORITY_MAX} all is alike", f"write {PRIORITY_HINT}"
        )
    if draft.fields.get("max_cpu_percent") is not None:
        draft.spot.at("max_cpu_percent").fault(
            "max_cpu_percent cannot be enforced: nothing here holds a process to a share of a processor",
            "remove it; `resources: {cpu: 2}` says how many workers the step takes",
            at_key=True,
        )
    if draft.fields.get("max_memory_mb") is not None and draft.binding.kind is Kind.MAP:
        draft.spot.at("max_memory_mb").fault(
            "max_memory_mb cannot be enforced for an ordered run: its items are computed by the workers of all runs",
            "remove it, or use a step with `map:` and `run: {python: ...}`, which limits each element",
            at_key=True,
        )


def refuse_outputs_of_sandbox(draft: Draft) -> None:
    """Refuse paths that nothing would collect: a sandboxed step has no files of the project, and keeps what it leaves in one place."""
    binding = draft.binding
    if binding is not None and binding.kind in (Kind.CODE, Kind.JOB) and binding.outputs:
        draft.spot.at("outputs").fault(
            f"outputs cannot be used with run {binding.kind.value}: it runs in the sandbox, which has no files of the project",
            "remove it: every file that the step leaves in /job/out is kept",
            at_key=True,
        )


def refuse_too_small(draft: Draft) -> None:
    """Refuse memory in which a jail cannot be built: that would be a failure of the sandbox, not of the step."""
    if draft.binding is None or draft.binding.kind not in (Kind.CODE, Kind.JOB):
        return
    payload = draft.binding.target if type(draft.binding.target) is dict else {}
    limits = payload.get("limits")
    asked = {
        ("max_memory_mb",): draft.fields.get("max_memory_mb"),
        ("run", "job", "limits", "memory_mb"): limits.get("memory_mb") if type(limits) is dict else None,
    }
    for path, amount in asked.items():
        if type(amount) is int and 0 < amount < SANDBOX_MEMORY_MB_MIN:
            draft.spot.at(*path).fault(
                f"{path[-1]} is {amount}, and a step in the sandbox needs at least {SANDBOX_MEMORY_MB_MIN}",
                f"write {SANDBOX_MEMORY_MB_MIN} or more",
                at_key=True,
            )


def _bind(checked: Mapping[str, Any], draft: Draft) -> None:
    draft.binding = make_binding(checked, draft.spot, draft.references)


def _is_step(value: Any, spot: Spot) -> bool:
    if type(value) is dict:
        return True
    spot.fault(
        f"a step must be a mapping (key: value), not {shown(value)}", "write `- id: name` and its other keys below"
    )
    return False


def _what(value: Mapping[str, Any], name: str) -> str:
    return f"step {value[name]!r:.80}" if type(value.get(name)) is str else "a step"


def _needs(value: Any, spot: Spot) -> Any:
    """One key or a list of keys, each with its place."""
    if type(value) is str:
        return [(value, spot.path)] if text(value, spot) is not BAD else BAD
    if type(value) is not list:
        spot.fault(f"{spot.path[-1]} must be a list of steps, not {shown(value)}", "write `needs: [first, second]`")
        return BAD
    return [(item, (*spot.path, index)) for index, item in enumerate(value) if text(item, spot.at(index)) is not BAD]


def _step_type(value: Any, spot: Spot) -> Any:
    known = choice(value, spot, _TYPES, "step type")
    if known is not BAD and known not in STEP_TYPES:
        plannable = ", ".join(name for name in _TYPES if name in STEP_TYPES)
        spot.fault(f"step type {value!r} is reserved for a later version", f"one of {plannable}")
        return BAD
    return known


def _timeout_ms(value: Any, spot: Spot) -> Any:
    return BAD if refuse_short_timeout(value, spot) else value


def _priority(value: Any, spot: Spot) -> Any:
    known = priority_class(value)
    if known is None:
        spot.fault(f"priority cannot be {shown(value)}", f"write {PRIORITY_HINT}")
        return BAD
    return known


_MISSING: Final = {
    "id": "name the step: `- id: load`",
    "run": "say what it does: `run: {python: module:function}` or `run: {shell: make}`",
}
_COMMAND_HINT: Final = "write a command as `run: {shell: ...}`; `shell:` beside it says which shell runs it"
_SHORT_NAMES: Final = {"name": "step_name", "type": "step_type", "on_error": "error_action"}
_SHORT_FIELDS: Final = ("name", "type", "enabled", "priority", "on_error", "error_action", "skip_on_failure")
SHORT_STEP_KEYS: Final[Mapping[str, Check]] = {
    "id": key,
    "name": text,
    "type": _step_type,
    "needs": _needs,
    **BINDING_KEYS,
    "enabled": keep,
    "priority": _priority,
    "on_error": partial(choice, known=("stop", "continue"), what="on_error"),
    "error_action": keep,
    "skip_on_failure": keep,
}
LONG_STEP_KEYS: Final[Mapping[str, Check]] = {
    **dict.fromkeys(STEP_FIELDS, keep),
    "step_type": _step_type,
    "timeout_ms": _timeout_ms,
    "depends_on": _needs,
    "id": key,
    **BINDING_KEYS,
}


CYCLE_STEPS_MAX: Final = 200
"""Steps of one cycle that a message names; a longer cycle is shown by its beginning and its end."""


@dataclass(frozen=True, slots=True)
class Names:
    """How the steps of a file can be called, each by its position."""

    by_key: Mapping[str, int]
    by_id: Mapping[int, int]
    """Keyed by the integer of a written ``step_id``."""
    keys: Sequence[str | None]
    """The key of each step; None: it will be the text of an id that is not made yet."""


def name_steps(drafts: Sequence[Draft]) -> Names:
    """Give every step its key: the one written, else a name that nothing else has, else its id."""
    by_id = _ids(drafts)
    by_key: dict[str, int] = {}
    for draft in drafts:
        if draft.key is None:
            continue
        first = by_key.setdefault(draft.key, draft.index)
        if first != draft.index:
            message = f"id {draft.key!r} is used twice, first on {ELSEWHERE}"
            other = (*drafts[first].spot.path, "id")
            draft.spot.at("id").fault(message, "give each step an id of its own", related=(other,))
        elif UUID_TEXT.fullmatch(draft.key) and UUID(draft.key) != _written_id(draft):
            draft.spot.at("id").fault(f"id {draft.key!r} looks like the step_id of another step", "use a name")
    names = Counter(name for draft in drafts if type(name := draft.fields.get("step_name")) is str)
    keys: list[str | None] = []
    for draft in drafts:
        key = draft.key
        if key is None:
            name = draft.fields.get("step_name")
            written = _written_id(draft)
            if type(name) is str and names[name] == 1 and name not in by_key:
                key = name
            elif written is not None:
                key = str(written)
        keys.append(key)
    for index, key in enumerate(keys):
        if key is not None:
            by_key.setdefault(key, index)
    return Names(by_key, by_id, keys)


def resolve_needs(drafts: Sequence[Draft], names: Names, params: Mapping[str, Param], report: Report) -> Edges:
    """The positions that each step needs: those written, in their order, then those that references add."""
    edges: Edges = []
    for draft in drafts:
        needed: list[int] = []
        for word, path in draft.needs or ():
            position = _usable(word, _position(word, names), draft, path, names)
            if position is not None:
                needed.append(position)
        known = set(needed)
        for reference in draft.references:
            if reference.word != FROM:
                _check_param(reference.name, reference.path, params, report)
                continue
            position = _usable(reference.name, names.by_key.get(reference.name), draft, reference.path, names)
            if position is not None and position not in known:
                known.add(position)
                needed.append(position)
        edges.append(tuple(needed))
    return edges


def check_result(result: Any, spot: Spot, names: Names, params: Mapping[str, Param]) -> None:
    """Check the references in what a run gives back. It is read at the end of the run, so it makes no step wait for another."""
    found: list[Reference] = []
    scan(result, spot, found)
    for reference in found:
        if reference.word != FROM:
            _check_param(reference.name, reference.path, params, spot.report)
        elif reference.name not in names.by_key:
            hint = spot.report.nearest(reference.name, names.by_key) or "name the id of a step in this contract"
            fault = f"the result names {reference.name!r:.80}, which is not a step"
            Spot(spot.report, reference.path).fault(fault, hint, stage=Stage.REFERENCES)


def report_cycles(drafts: Sequence[Draft], names: Names, edges: Edges) -> None:
    """Report one whole cycle for each knot of steps that need one another."""
    if not has_cycle(edges):
        return
    for cycle in find_cycles(edges):
        rounded = [*cycle, cycle[0]]
        shown = [f"{names.keys[position] or drafts[position].label} ({ELSEWHERE})" for position in rounded]
        paths = [drafts[position].spot.path for position in rounded]
        if len(shown) > CYCLE_STEPS_MAX:
            half = CYCLE_STEPS_MAX // 2
            shown[half:-half] = [f"({len(shown) - CYCLE_STEPS_MAX} more steps)"]
            paths[half:-half] = []
        drafts[cycle[0]].spot.fault(
            f"steps need one another in a circle: {' -> '.join(shown)}",
            "each needs the one after the arrow; remove one of these dependencies",
            stage=Stage.CYCLES,
            related=tuple(paths),
        )


def _ids(drafts: Sequence[Draft]) -> dict[int, int]:
    by_id: dict[int, int] = {}
    for draft in drafts:
        written = _written_id(draft)
        if written is None:
            continue
        first = by_id.setdefault(written.int, draft.index)
        if first != draft.index:
            other = (*drafts[first].spot.path, "step_id")
            message = f"step_id {written} is used twice, first on {ELSEWHERE}"
            draft.spot.at("step_id").fault(message, "leave it out to have one made", related=(other,))
    return by_id


def _written_id(draft: Draft) -> UUID | None:
    written = draft.fields.get("step_id")
    return _uuid(written) if type(written) is str else None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _position(word: str, names: Names) -> int | None:
    position = names.by_key.get(word)
    if position is None and names.by_id:
        written = _uuid(word)
        position = None if written is None else names.by_id.get(written.int)
    return position


def _usable(word: str, position: int | None, draft: Draft, path: Path, names: Names) -> int | None:
    """The position itself, if it is another step's; else None, reported."""
    spot = Spot(draft.spot.report, path)
    if position is None:
        hint = spot.report.nearest(word, names.by_key) or "name the id of a step in this contract"
        spot.fault(f"step {draft.label} needs {word!r:.80}, which is not a step", hint, stage=Stage.REFERENCES)
        return None
    if position == draft.index:
        spot.fault(f"step {draft.label} needs itself", "remove this dependency", stage=Stage.REFERENCES)
        return None
    return position


def _check_param(name: str, path: Path, params: Mapping[str, Param], report: Report) -> None:
    if name not in params:
        hint = report.nearest(name, params) or f"declare it: `params: {{{name[:40]}: default}}`"
        Spot(report, path).fault(f"there is no parameter {name!r:.80}", hint, stage=Stage.REFERENCES)
