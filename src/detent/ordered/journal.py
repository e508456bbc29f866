"""The journal of an ordered run: every event as a plain value, and the run built again from them (ORD-052).

Because a run is a function of its events, their list is its whole audit: every attempt with its owner, every failure and
its code, every cancellation with the boundary that was asked for. The runtime keeps as much of it as it wants to show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from detent.canon.show import show
from detent.errors import InvalidInput
from detent.ordered.actions import Action, Envelope
from detent.ordered.config import OrderedConfig
from detent.ordered.run import OrderedRun
from detent.ordered.states import SeqState

EVENTS: Final = frozenset(
    "begin dispatched started heartbeat finished finished_many failed lapsed interrupted skipped canceled committed "
    "write_failed cancel tick idle".split()
)


class MemoryJournal:
    """A journal in a list. Each entry is ``[event, arguments, named arguments]`` of canonical CBOR's types."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[list[object]] = []

    def __call__(self, event: str, arguments: Sequence[object], named: Mapping[str, object]) -> None:
        plain = [_plain(value) for value in arguments]
        self.entries.append([event, plain, {name: _plain(value) for name, value in named.items()}])


def replay(config: OrderedConfig, entries: Iterable[Sequence[object]]) -> tuple[OrderedRun, list[list[Action]]]:
    """The run that these events lead to, with the actions that followed from each."""
    run = OrderedRun(config)
    return run, [apply_entry(run, entry) for entry in entries]


def apply_entry(run: OrderedRun, entry: Sequence[object]) -> list[Action]:
    """Let one recorded event happen. Refuses anything that is not an event of a run."""
    event, arguments, named = entry
    if event not in EVENTS or not isinstance(arguments, list) or not isinstance(named, dict):
        raise InvalidInput(f"{show(event)} is not an event of an ordered run")
    method = getattr(run, str(event))
    actions: list[Action] = method(
        *(_typed(value) for value in arguments), **{name: _typed(value) for name, value in named.items()}
    )
    return actions


def _plain(value: object) -> object:
    if isinstance(value, Envelope):
        return {"envelope": [int(value.outcome), *value[1:]]}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _typed(value: object) -> object:
    if isinstance(value, dict):
        outcome, *rest = value["envelope"]
        return Envelope(SeqState(outcome), *rest)
    if isinstance(value, list):
        return [_typed(item) for item in value]
    return value
