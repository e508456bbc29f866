"""Two simulations of the same traffic side by side: the figures of each, and what changed between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from detent.canon.late import NamedTuple, dataclass
from detent.scheduling.policy import SchedulingPolicy
from detent.scheduling.what_if import EVICTED, REFUSED, STOPPED, Fate
from detent.words.states import CANCELLED, FAILED, SUCCEEDED

WAIT_CHANGES_MAX: Final = 100
"""Jobs that a comparison names, those with the largest change of wait; all of them are counted."""


class Waits(NamedTuple):
    """How long jobs waited for their first attempt, in milliseconds; all None when none began."""

    jobs: int
    mean_ms: int | None
    p50_ms: int | None
    p95_ms: int | None
    max_ms: int | None

    @classmethod
    def of(cls, waits_ms: Iterable[int]) -> Waits:
        """Of these waits. Percentiles are waits that occurred (nearest rank); the mean is rounded to a whole one."""
        ordered = sorted(waits_ms)
        count = len(ordered)
        if not count:
            return cls(0, None, None, None, None)
        mean = (2 * sum(ordered) + count) // (2 * count)
        return cls(count, mean, _rank(ordered, 50), _rank(ordered, 95), ordered[-1])


@dataclass(frozen=True, slots=True)
class Figures:
    """How all jobs ended, in numbers."""

    states: Mapping[str, int]
    """Jobs by outcome; every one of `ENDS` is there."""
    jobs: int
    waits: Waits
    waits_by_class: Mapping[int, Waits]
    """By class from the top; only classes in which a job began."""
    placements: Mapping[str, int]
    """Attempts that began on each replica, by replica id."""

    @classmethod
    def of(cls, fates: Iterable[Fate], tick_ms: int) -> Figures:
        """Count."""
        states: Counter[str] = Counter()
        placements: Counter[str] = Counter()
        waits: dict[int, list[int]] = {}
        jobs = 0
        for fate in fates:
            jobs += 1
            states[fate.state if fate.state in ENDS else UNFINISHED] += 1
            placements.update(fate.replicas)
            if fate.wait_ticks is not None:
                waits.setdefault(fate.priority, []).append(fate.wait_ticks * tick_ms)
        return cls(
            {state: states[state] for state in ENDS},
            jobs,
            Waits.of(wait for own in waits.values() for wait in own),
            {priority: Waits.of(waits[priority]) for priority in sorted(waits, reverse=True)},
            {replica_id: placements[replica_id] for replica_id in sorted(placements)},
        )

    def to_map(self) -> dict[str, object]:
        """For JSON."""
        return {
            "jobs": self.jobs,
            **self.states,
            "waits": self.waits._asdict(),
            "waits_by_class": {str(priority): waits._asdict() for priority, waits in self.waits_by_class.items()},
            "placements": dict(self.placements),
        }


UNFINISHED: Final = "unfinished"
ENDS: Final = (SUCCEEDED, FAILED, REFUSED, EVICTED, STOPPED, CANCELLED, UNFINISHED)


class PlacementChange(NamedTuple):
    """A replica on which another number of attempts began."""

    replica_id: str
    before: int
    after: int


class WaitChange(NamedTuple):
    """A job that began under both policies, and not at the same time."""

    job_id: str
    priority: int
    before_ms: int
    after_ms: int

    @property
    def change_ms(self) -> int:
        """How much longer it waited."""
        return self.after_ms - self.before_ms


class SettingChange(NamedTuple):
    """A setting in which the policies differ."""

    name: str
    before: object
    after: object


@dataclass(frozen=True, slots=True)
class Comparison:
    """What another policy would have changed.

    ``recorded`` is the history as it was, ``before`` the simulation under the policies that were in force, ``after`` the
    one under the other policy. The first two differ by what a simulation does not know; the last two by the policy.
    """

    settings: tuple[SettingChange, ...]
    recorded: Figures
    before: Figures
    after: Figures
    placements: tuple[PlacementChange, ...]
    """By the size of the change."""
    moved: int
    """Jobs that began under both policies and not on the same replicas."""
    turned: tuple[tuple[str, str, int], ...]
    """How many jobs ended otherwise than before, by both outcomes."""
    wait_changes: tuple[WaitChange, ...]
    """By the size of the change, at most `WAIT_CHANGES_MAX`."""
    wait_changes_total: int
    notes: tuple[str, ...] = ()
    """What the simulation could not know, and what it took instead."""

    @property
    def same(self) -> bool:
        """Whether the other policy would have changed nothing that is looked at here."""
        return not (self.placements or self.moved or self.turned or self.wait_changes_total)

    def to_map(self) -> dict[str, object]:
        """For JSON."""
        return {
            "same": self.same,
            "settings": [change._asdict() for change in self.settings],
            "recorded": self.recorded.to_map(),
            "before": self.before.to_map(),
            "after": self.after.to_map(),
            "placements_changed": [change._asdict() for change in self.placements],
            "jobs_moved": self.moved,
            "jobs_turned": [{"before": old, "after": new, "jobs": count} for old, new, count in self.turned],
            "wait_changes": [{**change._asdict(), "change_ms": change.change_ms} for change in self.wait_changes],
            "wait_changes_total": self.wait_changes_total,
            "notes": list(self.notes),
        }


def compare(
    recorded: Mapping[str, Fate],
    before: Mapping[str, Fate],
    after: Mapping[str, Fate],
    *,
    policies: tuple[SchedulingPolicy, SchedulingPolicy],
    tick_ms: int,
    notes: tuple[str, ...] = (),
) -> Comparison:
    """Set two simulations of the same jobs beside each other, and the history beside both."""
    figures = [Figures.of(fates.values(), tick_ms) for fates in (recorded, before, after)]
    changes: list[WaitChange] = []
    turned: Counter[tuple[str, str]] = Counter()
    moved = 0
    for job_id in sorted(before.keys() | after.keys()):
        old, new = before[job_id], after[job_id]
        if old.state != new.state:
            turned[old.state, new.state] += 1
        if old.wait_ticks is None or new.wait_ticks is None:
            continue
        moved += old.replicas != new.replicas
        if old.wait_ticks != new.wait_ticks:
            changes.append(WaitChange(job_id, old.priority, old.wait_ticks * tick_ms, new.wait_ticks * tick_ms))
    changes.sort(key=lambda change: (-abs(change.change_ms), change.job_id))
    return Comparison(
        settings=_setting_changes(*policies),
        recorded=figures[0],
        before=figures[1],
        after=figures[2],
        placements=_placement_changes(figures[1].placements, figures[2].placements),
        moved=moved,
        turned=tuple((*states, turned[states]) for states in sorted(turned)),
        wait_changes=tuple(changes[:WAIT_CHANGES_MAX]),
        wait_changes_total=len(changes),
        notes=notes,
    )


def _setting_changes(before: SchedulingPolicy, after: SchedulingPolicy) -> tuple[SettingChange, ...]:
    old, new = before.to_map(), after.to_map()
    return tuple(SettingChange(name, old[name], new[name]) for name in old if old[name] != new[name])


def _placement_changes(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[PlacementChange, ...]:
    changes = [
        PlacementChange(replica_id, before.get(replica_id, 0), after.get(replica_id, 0))
        for replica_id in before.keys() | after.keys()
    ]
    changes.sort(key=lambda change: (-abs(change.after - change.before), change.replica_id))
    return tuple(change for change in changes if change.after != change.before)


def _rank(ordered: list[int], percent: int) -> int:
    """The smallest value that at least this many percent do not exceed."""
    return ordered[-(-len(ordered) * percent // 100) - 1]
