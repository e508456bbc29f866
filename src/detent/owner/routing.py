"""Where commands go: every partition decides only what belongs to it, and this module knows what that is.

A job, a run and a session belong to the partition that their id hashes to (PIPE-061, X-030). Erasures belong to the first one. What an
operator asked for is recorded beside what it caused, in each partition, or else in the first one. A claim names no job: it goes round all partitions,
beginning behind the one that was served last, so that none is passed over while another has work.

A request whose commands belong to several partitions is decided in parts, one commit for each, and answered as a whole. Nothing binds
the parts together, so what has to be decided in one commit gets ids of one partition (`kernel.identity.same_partition`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeAlias

from detent.canon import NotCanonical, decode
from detent.errors import InvalidInput
from detent.kernel import (
    Cancel,
    Claim,
    Command,
    EndRun,
    Erase,
    Finish,
    Grant,
    Heartbeat,
    Operate,
    Order,
    ReportUsage,
    ReuseRun,
    ReuseStep,
    StartRun,
    Submit,
    Transition,
    partition_of,
)
from detent.kernel.outcome import COMMITTED
from detent.owner.socket_messages import Answer
from detent.owner.turn import Carried

FIRST: Final = 0
"""The partition of what belongs to the whole ledger: erasures, and access to the server."""
_OF_JOBS: Final = (Heartbeat, Finish, Cancel, Transition, ReportUsage)
_OF_RUNS: Final = (StartRun, ReuseStep, ReuseRun, EndRun)

Pieces: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Content, by digest."""


def partition_of_command(command: Command, partitions: int) -> int | None:
    """The partition that a command belongs to; None for one that goes wherever it is sent."""
    if isinstance(command, Submit):
        named = command.manifest.job_id
    elif isinstance(command, _OF_JOBS):
        named = command.job_id
    elif isinstance(command, _OF_RUNS):
        named = command.run_id
    elif isinstance(command, Order):
        named = _session_of(command)
    else:
        return FIRST if isinstance(command, Erase) else None
    return partition_of(named, partitions) if type(named) is str else FIRST  # Any kernel refuses what is no id.


def _session_of(order: Order) -> str | None:
    try:
        said = decode(order.data)
    except NotCanonical:
        return None
    return said.get("session_id") if isinstance(said, dict) and order.name.startswith("session_") else None


def only_partition(commands: Sequence[Command], partitions: int) -> int | None:
    """The partition that all commands belong to, the first where none names one; None where there are several, or a claim."""
    if partitions == 1:
        return FIRST
    if any(isinstance(command, Claim) and type(command.limit) is int for command in commands):
        return None  # One that cannot be counted is refused by any kernel.
    found = {partition_of_command(command, partitions) for command in commands} - {None}
    return None if len(found) > 1 else next(iter(found), FIRST)


def whole(carried: Carried, content_of: Sequence[Pieces] | None) -> Carried:
    """What a request carries that goes to one partition, with the content of its commands, each piece once."""
    if content_of is None:
        return carried
    content = dict(carried.get("content", ()))
    for pieces in content_of:
        content.update(pieces)
    return {**carried, "content": list(content.items())}


@dataclass(slots=True)
class _Part:
    """What one partition decides of a request."""

    commands: list[Command] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """Where each command is in the request."""
    content: dict[bytes, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Routed:
    """A request on its way round the partitions: ask for each `part`, `take` what was answered, then read the `answers`."""

    claim: Claim | None
    _claim_place: int
    _parts: dict[int, _Part]
    _carried: Carried
    _open: set[int]
    """Partitions with commands of their own that have not answered."""
    _left: int
    """Jobs that are still to be claimed."""
    _asked_for: int = 0
    """Jobs that the part on its way claims."""
    _grants: list[Grant] = field(default_factory=list)
    _answers: dict[int, Answer] = field(default_factory=dict)
    _refused: Answer | None = None
    """A refusal of the claim."""

    @classmethod
    def of(
        cls,
        commands: Sequence[Command],
        partitions: int,
        content_of: Sequence[Pieces] | None,
        carried: Carried,
    ) -> Self:
        """A request by its parts. ``content_of`` has the content of each command, ``carried`` that of all of them."""
        claims = [place for place, command in enumerate(commands) if isinstance(command, Claim)]
        if len(claims) > 1:
            raise InvalidInput(
                "a request claims once", hint="ask several times, or say which partition each claim is for"
            )
        parts: dict[int, _Part] = {}
        loose: list[int] = []
        for place, command in enumerate(commands):
            partition = partition_of_command(command, partitions)
            if partition is None:
                loose.append(place)
                continue
            part = parts.setdefault(partition, _Part())
            part.commands.append(command)
            part.places.append(place)
            part.content.update(carried.get("content", ()) if content_of is None else content_of[place])
        for place in loose:
            if place not in claims:
                _add_beside(parts, commands[place], place)
        claim = commands[claims[0]] if claims else None
        assert claim is None or isinstance(claim, Claim)
        return cls(claim, claims[0] if claims else -1, parts, carried, set(parts), 0 if claim is None else claim.limit)

    @property
    def partitions(self) -> Iterator[int]:
        """The partitions whose own commands are in it."""
        return iter(self._parts)

    def part(self, partition: int, *, claims: bool = False) -> tuple[list[Command], Carried]:
        """What a partition is asked, and what goes with it; nothing where it has no part in the request.

        With ``claims`` it is asked for work, too, if there is any left to claim; a partition with commands is asked in any case.
        """
        part = self._parts.get(partition)
        asks = self.claim is not None and self._left > 0 and (claims or part is not None)
        self._asked_for = self._left if asks else 0
        claim = [replace(self.claim, limit=self._left)] if asks and self.claim is not None else []
        if part is None:
            return [*claim], {}
        carried = Carried(content=list(part.content.items()))
        if "work" in self._carried:
            carried["work"] = self._carried["work"]  # Each row is kept by the part that submits its job.
        if (
            self._open == {partition}
            and "answers" in self._carried
            and all(one.refusal is None for one in self._answers.values())
        ):
            carried["answers"] = self._carried["answers"]
        return [*part.commands, *claim], carried

    def take(self, partition: int, answers: Sequence[Answer]) -> bool:
        """Take in the answers of a partition; whether it gave work."""
        part = self._parts.get(partition)
        self._open.discard(partition)
        if part is not None:
            self._answers.update(zip(part.places, answers, strict=False))
        if not self._asked_for:
            return False
        last = answers[-1]
        self._left -= len(last.grants)
        self._grants += last.grants
        if last.refusal is not None:
            self._refused, self._left = last, 0  # Every partition would refuse it.
        return bool(last.grants)

    def answers(self) -> list[Answer]:
        """The answers to all commands, in order."""
        if self.claim is not None:
            granted = self._refused if self._refused is not None and not self._grants else None
            self._answers[self._claim_place] = granted or Answer(COMMITTED, None, None, None, tuple(self._grants), None)
        return [self._answers[place] for place in sorted(self._answers)]


def _add_beside(parts: dict[int, _Part], command: Command, place: int) -> None:
    """Put an operator's action into every part with an effect of it, so that each commit says who asked for it."""
    if not isinstance(command, Operate):
        raise InvalidInput(f"{type(command).__name__} names nothing that a partition owns", hint="say which partition")
    for part in parts.values() if parts else (parts.setdefault(FIRST, _Part()),):
        part.commands.append(command)
        part.places.append(place)


class Rounds:
    """In which order partitions are asked: each time beginning behind the one that gave work last."""

    def __init__(self) -> None:
        self._next = 0

    def order(self, partitions: int) -> Iterator[int]:
        """All partitions, once."""
        first = self._next
        return ((first + step) % partitions for step in range(partitions))

    def served(self, partition: int) -> None:
        """A partition has given work."""
        self._next = partition + 1
