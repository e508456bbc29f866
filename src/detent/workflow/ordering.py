"""One canonical order for every mode: wave by wave, and inside a wave as declared (X-097, X-098).

A wave is every step whose remaining dependencies are done; a dependency on a disabled step is done from the start, and
references to unknown steps are left out here (validation names them). Everything works on positions in the list:
UUIDs are slow to hash and compare, small integers are not, and nothing recurses, so a chain of any length will do.

Which steps go round in circles: one whole cycle for each knot of steps, as short as the knot allows.

Only asked for once a search has found that there is a cycle, so nothing here is in the way of a valid workflow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from detent.canon.late import dataclass
from detent.workflow.vocabulary import ModelOnexError

if TYPE_CHECKING:
    from detent.workflow.models import ModelWorkflowStep
    from detent.workflow.plain import PlainStep

Edges: TypeAlias = list[tuple[int, ...]]
"""For each step the positions of its known dependencies, as written. Tuples of integers cost the collector nothing."""

_UNKNOWN = _NONE = -1
_NEW, _OPEN, _DONE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Order:
    """Positions in canonical order, and for each place in it whether a new wave begins there."""

    positions: list[int]
    wave_starts: list[int]
    """Index into ``positions`` of the first step of each wave."""


def get_execution_order(workflow_steps: Sequence[ModelWorkflowStep | PlainStep]) -> list[UUID]:
    """The ids of all steps, disabled ones included, in canonical order. Raises if there is a cycle anywhere."""
    order = execution_order(workflow_steps, dependency_edges(workflow_steps))
    return [workflow_steps[position].step_id for position in order.positions]


def _has_dependency_cycles(workflow_steps: Sequence[ModelWorkflowStep]) -> bool:
    """Whether the steps, taken all as enabled, depend on one another in a circle."""
    return has_cycle(dependency_edges(workflow_steps))


def positions_by_id(steps: Sequence[ModelWorkflowStep | PlainStep]) -> dict[int, int]:
    """Where each id is declared, by the id's integer. Where ids are not unique, the first step with an id has it."""
    position_of = {step.step_id.int: position for position, step in enumerate(steps)}
    if len(position_of) != len(steps):
        for position in range(len(steps) - 1, -1, -1):
            position_of[steps[position].step_id.int] = position
    return position_of


def dependency_edges(
    steps: Sequence[ModelWorkflowStep | PlainStep], position_of: dict[int, int] | None = None
) -> Edges:
    """Positions that each step depends on; references to unknown steps are left out."""
    known = (positions_by_id(steps) if position_of is None else position_of).get
    edges: Edges = []
    for step in steps:
        found = [known(dependency.int, _UNKNOWN) for dependency in step.depends_on]
        if _UNKNOWN in found:
            found = [position for position in found if position != _UNKNOWN]
        edges.append(tuple(found))
    return edges


def execution_order(steps: Sequence[ModelWorkflowStep | PlainStep], edges: Edges) -> Order:
    """Kahn's algorithm by levels. Raises the cycle error if some step could never come."""
    enabled = [step.enabled for step in steps]
    order = _levels(edges, enabled)
    # A disabled step must not hide a cycle that enabling it would show (WF-086).
    complete = len(order.positions) == len(steps)
    if not complete or (not all(enabled) and has_cycle(edges)):
        raise ModelOnexError("Cannot compute execution order: workflow contains cycles", context={})
    return order


def has_cycle(edges: Edges) -> bool:
    """Depth-first search along dependencies with a stack of its own."""
    state = bytearray(len(edges))
    for root in range(len(edges)):
        if state[root]:
            continue
        state[root] = _OPEN
        path = [root]
        rests = [iter(edges[root])]
        while path:
            for target in rests[-1]:
                if state[target] == _OPEN:
                    return True
                if state[target] == _NEW:
                    state[target] = _OPEN
                    path.append(target)
                    rests.append(iter(edges[target]))
                    break
            else:
                state[path.pop()] = _DONE
                rests.pop()
    return False


def _levels(edges: Edges, enabled: list[bool]) -> Order:
    waiting = [0] * len(edges)
    # Who waits for a step: chains of entries in two flat lists, because a list for every step would be one more object
    # that the collector goes through again and again while a large plan grows.
    newest = [_NONE] * len(edges)
    older: list[int] = []
    dependents: list[int] = []
    for position, targets in enumerate(edges):
        for target in targets:
            if enabled[target]:
                waiting[position] += 1
                older.append(newest[target])
                newest[target] = len(dependents)
                dependents.append(position)
    wave = [position for position, count in enumerate(waiting) if not count]
    positions: list[int] = []
    wave_starts: list[int] = []
    while wave:
        wave_starts.append(len(positions))
        positions += wave
        following: list[int] = []
        for position in wave:
            entry = newest[position]
            while entry != _NONE:
                dependent = dependents[entry]
                waiting[dependent] -= 1
                if not waiting[dependent]:
                    following.append(dependent)
                entry = older[entry]
        following.sort()
        wave = following
    return Order(positions, wave_starts)


def find_cycles(edges: Edges) -> list[tuple[int, ...]]:
    """One cycle per strongly connected component: positions, each depending on the next and the last on the first.

    It starts at the component's first declared step; the cycles come in the order of those.
    """
    component_of = _components(edges)
    first_of: dict[int, int] = {}
    for position, component in enumerate(component_of):
        first_of.setdefault(component, position)
    found = [_shortest_round(first, edges, component_of) for first in first_of.values()]
    return [cycle for cycle in found if cycle]


def _shortest_round(start: int, edges: Edges, component_of: list[int]) -> tuple[int, ...]:
    """Breadth-first from a step back to itself without leaving its component; empty if there is no way."""
    came_from = {start: start}
    queue = deque([start])
    while queue:
        position = queue.popleft()
        for target in edges[position]:
            if target == start:
                way = [position]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return tuple(reversed(way))
            if component_of[target] == component_of[start] and target not in came_from:
                came_from[target] = position
                queue.append(target)
    return ()


def _components(edges: Edges) -> list[int]:
    """Tarjan's strongly connected components, with a stack of its own: for each position the number of its component."""
    count = len(edges)
    order = [0] * count  # when a position was first seen, counted from 1; 0: not yet
    low = [0] * count
    component_of = [-1] * count
    pending: list[int] = []
    seen = components = 0
    for root in range(count):
        if order[root]:
            continue
        seen += 1
        order[root] = low[root] = seen
        pending.append(root)
        work = [(root, iter(edges[root]))]
        while work:
            position, rest = work[-1]
            for target in rest:
                if not order[target]:
                    seen += 1
                    order[target] = low[target] = seen
                    pending.append(target)
                    work.append((target, iter(edges[target])))
                    break
                if component_of[target] < 0:
                    low[position] = min(low[position], order[target])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[position])
                if low[position] == order[position]:
                    while component_of[position] < 0:
                        component_of[pending.pop()] = components
                    components += 1
    return component_of
