"""Which steps go round in circles: one whole cycle for each knot of steps, as short as the knot allows.

Only asked for once a search has found that there is a cycle, so nothing here is in the way of a valid workflow.
"""

from __future__ import annotations

from collections import deque

from detent.workflow.ordering import Edges


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
