"""Who needs whom: keys and ids become positions, and what leads nowhere or in a circle is named.

Works on positions in the list of steps; ids are made only once everything holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from detent.canon.late import dataclass
from detent.contract.findings import ELSEWHERE, Path, Report, Spot, Stage
from detent.contract.model import Param
from detent.contract.references import FROM, Reference, scan
from detent.contract.steps import Draft
from detent.contract.words import UUID_TEXT
from detent.workflow.cycles import find_cycles
from detent.workflow.ordering import Edges, has_cycle

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
