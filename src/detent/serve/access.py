"""Access to one server: who is known, what each may do, what is open for them, and what operators did.

Keys, members and workspaces are a fold of the ledger's records, read when the server starts and followed from then on
(decision 0031): a key that a command revoked counts for nothing as soon as the commit is seen, and streams that it had open end.

For the HTTP loop alone.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Final, Unpack

from detent.access.forwarded import Networks
from detent.access.schedules import Schedules
from detent.access.state import AccessState
from detent.access.tokens import Token
from detent.access.webhooks import Hooks
from detent.jobs.plans import Plan, Plans, read_plans
from detent.kernel import Operate
from detent.kernel.records import OPERATED
from detent.owner.names import DIRECTORY, NAMES_FILE, read_names
from detent.owner.operating import commit, opened, take_in
from detent.owner.session import Session
from detent.owner.turn import Carried
from detent.owner.views import Times
from detent.serve.authenticate import Authenticator
from detent.serve.browser_sessions import BrowserSessions
from detent.serve.events import Hub
from detent.serve.gate import Gate
from detent.serve.lifecycle import LastStart
from detent.serve.limits import Limits, Rates
from detent.serve.open_streams import OpenStreams
from detent.serve.readers import Readers
from detent.serve.refused_attempts import RefusedAttempts
from detent.store.api import RecordRow

Place = tuple[int, int, int]
"""Where an action is on the ledger: tick, partition, position."""
ACCESS_PARTITION: Final = 0
"""The partition that changes of access belong to; actions beside other commands are where those are."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """How callers reach a server."""

    origins: frozenset[str] = frozenset()
    """The origins of its own pages."""
    behind_proxy: str | None = None
    proxy_header: str | None = None
    """The header in which a trusted proxy names the user."""
    reads_only: bool = False
    """Whether no credential may change anything here."""


class Access:
    """Access to one server."""

    def __init__(
        self,
        home: Path,
        session: Session,
        token: Token,
        rates: Rates,
        surroundings: Surroundings,
        plans: Plans,
        now_ms: Callable[[], int],
    ) -> None:
        self._session, self._home, self._plans = session, home, plans
        self._names: tuple[tuple[int, int] | None, dict[str, str]] = (None, {})
        self._places: dict[str | None, list[Place]] = {}
        self._times = Times()
        self._changing = asyncio.Lock()
        self.hooks = Hooks()
        """The webhooks of all workspaces."""
        self.schedules = Schedules()
        """The schedules of all workspaces."""
        self.last_start = LastStart()
        self.now_ms = now_ms
        self.rates = rates
        self.proxies: Networks = [] if surroundings.behind_proxy is None else [ip_network(surroundings.behind_proxy)]
        self.authenticator = Authenticator(token, BrowserSessions(home), now_ms, self.principal_named)
        self.limits = Limits()
        header = None if surroundings.proxy_header is None else surroundings.proxy_header.lower().encode("latin-1")
        self.gate = Gate(
            self.authenticator, self.limits, rates, surroundings.origins, header, reads_only=surroundings.reads_only
        )
        self.open = OpenStreams(self.authenticator)
        self.refused = RefusedAttempts(session)

    @property
    def state(self) -> AccessState:
        """What the records say."""
        return self.authenticator.state

    async def stop(self) -> None:
        """Record and write down what is only in memory."""
        await self.refused.stop()
        self.authenticator.sessions.save(self.now_ms())

    # -- following the ledger ------------------------------------------------------------------------------------------

    async def load(self, readers: Readers, positions: Sequence[int]) -> None:
        """Read what happened before these positions."""
        self._times, rows = await readers.read(lambda reader: reader.operated(positions))
        found: list[tuple[Place, RecordRow]] = []
        for row in rows:
            body, _ = opened(row)
            if body:
                found.append(((body["tick"], row.partition, row.position), row))
        for _, row in sorted(found, key=lambda one: one[0]):
            self.take(row)

    def take(self, row: RecordRow) -> None:
        """Take in a record as it is committed."""
        if row.kind != OPERATED:
            return
        body, evidence = opened(row)
        if not body:
            return  # For `verify` to report.
        if row.partition == ACCESS_PARTITION:
            at_ms = self.at_ms(body["tick"])
            self.hooks.apply(body, evidence, at_ms=at_ms, position=row.position)
            self.schedules.apply(body, evidence, at_ms=at_ms)
            self.last_start.apply(body, evidence)
        insort(self._places.setdefault(body["tenant_id"], []), (body["tick"], row.partition, row.position))
        if row.partition == ACCESS_PARTITION and take_in(self.state, row, self._times):
            self.open.judge()

    def at_ms(self, tick: int) -> int:
        """The moment of a tick."""
        return self._times.ms(tick)

    def places(self, workspace: str | None, before: Place | None, limit: int) -> list[Place]:
        """Where the actions in a workspace are, newest first; those of the whole server for None."""
        known = self._places.get(workspace, [])
        stop = len(known) if before is None else bisect_left(known, before)
        return known[max(0, stop - limit) : stop][::-1]

    async def commit(self, hub: Hub, command: Operate, **carried: Unpack[Carried]) -> None:
        """Have a change recorded with what its commit carries, and return when this server acts by it."""
        await asyncio.to_thread(commit, self._session, [command], **carried)
        await hub.caught_up()

    @property
    def changing(self) -> asyncio.Lock:
        """Held while a change is decided and committed: two that are decided at once would not see each other."""
        return self._changing

    def plan_of(self, workspace: str) -> tuple[str, Plan]:
        """The plan that a workspace was given, with its name; else the one of the settings."""
        known = self.state.workspace(workspace)
        if known is None or known.plan is None:
            return self._plans.of(workspace)
        return workspace, read_plans({workspace: known.plan}).by_name[workspace]

    def quota(self, workspace: str, name: str) -> int | None:
        """A number that a workspace has for itself; None: as the settings say."""
        known = self.state.workspace(workspace)
        return None if known is None or known.quotas is None else known.quotas.get(name)

    def streams_max(self, workspace: str) -> int:
        """How many streams a credential of a workspace may have open."""
        own = self.quota(workspace, "streams")
        return self.rates.streams if own is None else own

    # -- names ---------------------------------------------------------------------------------------------------------

    def names(self) -> dict[str, str]:
        """What principals and keys are called; read again when the file has changed."""
        try:
            known = (self._home / DIRECTORY / NAMES_FILE).stat()
            stamp: tuple[int, int] | None = (known.st_mtime_ns, known.st_ino)
        except OSError:
            return {}
        if stamp != self._names[0]:
            self._names = (stamp, read_names(self._home))
        return self._names[1]

    def principal_named(self, name: str) -> str | None:
        """The one principal of a name; None where there is none, or several."""
        found = [known for known, called in self.names().items() if called == name and known.startswith("p_")]
        return found[0] if len(found) == 1 else None
