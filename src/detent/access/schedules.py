"""Schedules of a server: contracts that it runs by their ``schedule:``, as a fold of `operated` records, as keys are (`state`).

A granted ``schedule.create`` makes one, ``schedule.pause`` and ``schedule.resume`` halt it and let it go on, ``schedule.delete`` ends
it. ``schedule.failed`` is the server's own: an occurrence that it could not start a run for. What is run is content that the record of
the creation names by its digest, so it can be erased; which occurrences were started is on the ledger as runs, whose ids name the schedule and
the occurrence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from detent.access.state import OK

SCHEDULES_MAX: Final = 200
"""Schedules of one workspace."""
CREATE: Final = "schedule.create"
PAUSE: Final = "schedule.pause"
RESUME: Final = "schedule.resume"
DELETE: Final = "schedule.delete"
FAILED: Final = "schedule.failed"
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Failure:
    """An occurrence that no run could be started for."""

    code: str
    reason: str
    at_ms: int
    tick_ms: int
    """The occurrence."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A contract that a server runs by its schedule."""

    schedule_id: str
    workspace: str
    name: str
    """The contract's."""
    rule: Mapping[str, Any]
    """When, as a contract says it under ``schedule:``."""
    inputs: bytes
    """The digest of the contract with its parameters."""
    options: Mapping[str, Any]
    made_by: str
    """The principal that its runs are asked for by."""
    created_ms: int
    since_ms: int
    """Occurrences behind this moment count: its creation, or when it was last resumed."""
    paused_ms: int | None = None
    """Since when it is paused; None while it is not."""
    failure: Failure | None = None
    """The first failure in a row, until a run is started."""
    traceparent: str | None = None
    """The trace of the request that made it (W3C Trace Context), which its runs belong to."""


class Schedules:
    """Every schedule that the records say there is. Changed by one thread; others may look meanwhile."""

    def __init__(self) -> None:
        self._known: dict[str, Scheduled] = {}

    def __iter__(self) -> Iterator[Scheduled]:
        return iter(self._known.values())

    def of(self, workspace: str) -> list[Scheduled]:
        """The schedules of a workspace, by their ids."""
        found = (one for one in self._known.values() if one.workspace == workspace)
        return sorted(found, key=lambda one: one.schedule_id)

    def schedule(self, workspace: str, schedule_id: str) -> Scheduled | None:
        """One schedule of a workspace."""
        found = self._known.get(schedule_id)
        return found if found is not None and found.workspace == workspace else None

    def apply(self, record: Mapping[str, Any], evidence: Mapping[str, Any], *, at_ms: int) -> bool:
        """Take in an `operated` record with its evidence; whether it changed anything about schedules."""
        change = _CHANGES.get(record.get("action", ""))
        known = self._known.get(record.get("object_id", ""))
        if change is None or (record["outcome_code"] != OK and record["action"] != FAILED):
            return False
        if known is not None and known.workspace != record["tenant_id"]:
            return False
        said = evidence.get("parameters")
        after = change(known, record, evidence, said if isinstance(said, Mapping) else {}, at_ms)
        if after is known:
            return False
        # Never changed in place: another thread may be looking at it.
        others = {name: one for name, one in self._known.items() if name != record["object_id"]}
        self._known = others if after is None else {**others, after.schedule_id: after}
        return True


def inputs_named(record: Mapping[str, Any], evidence: Mapping[str, Any]) -> bytes | None:
    """The digest of what a schedule runs, in the record that made it; None in any other."""
    said = evidence.get("parameters")
    if record.get("action") != CREATE or record.get("outcome_code") != OK or not isinstance(said, Mapping):
        return None
    digest = said.get("inputs")
    return digest if isinstance(digest, bytes) and len(digest) == _DIGEST_BYTES else None


def _created(
    known: Scheduled | None, record: Mapping[str, Any], evidence: Mapping[str, Any], said: Mapping[str, Any], at_ms: int
) -> Scheduled | None:
    name, rule, options = said.get("name"), said.get("schedule"), said.get("options")
    inputs, since = inputs_named(record, evidence), said.get("since_ms")
    if known is not None or inputs is None or not isinstance(name, str) or record["tenant_id"] is None:
        return known
    if not isinstance(rule, Mapping) or not isinstance(options, Mapping) or type(since) is not int:
        return known
    own, trace = (record["object_id"], record["tenant_id"]), said.get("traceparent")
    made = Scheduled(*own, name, rule, inputs, options, record["principal_id"], at_ms, since)
    return replace(made, traceparent=trace) if isinstance(trace, str) else made


def _paused(
    known: Scheduled | None,
    _record: Mapping[str, Any],
    _evidence: Mapping[str, Any],
    _said: Mapping[str, Any],
    at_ms: int,
) -> Scheduled | None:
    return known if known is None or known.paused_ms is not None else replace(known, paused_ms=at_ms)


def _resumed(
    known: Scheduled | None,
    _record: Mapping[str, Any],
    _evidence: Mapping[str, Any],
    said: Mapping[str, Any],
    _at_ms: int,
) -> Scheduled | None:
    since = said.get("since_ms")
    if known is None or known.paused_ms is None or type(since) is not int:
        return known
    return replace(known, paused_ms=None, since_ms=since, failure=None)


def _deleted(*_: Any) -> Scheduled | None:
    return None


def _failed(
    known: Scheduled | None, record: Mapping[str, Any], evidence: Mapping[str, Any], said: Mapping[str, Any], at_ms: int
) -> Scheduled | None:
    tick = said.get("tick_ms")
    if known is None or type(tick) is not int:
        return known
    reason = str(evidence.get("reason") or record["outcome_code"])
    return replace(known, failure=Failure(record["outcome_code"], reason, at_ms, tick))


_CHANGES: Final = {CREATE: _created, PAUSE: _paused, RESUME: _resumed, DELETE: _deleted, FAILED: _failed}
