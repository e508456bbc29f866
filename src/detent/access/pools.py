"""How many hosts operators want in the pools of a server: a fold of the ledger's `operated` records, as keys and tokens are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from detent.access.changes import Change

SCALE: Final = "pool.scale"
OK: Final = "OK"
HOSTS: Final = "hosts"
KEPT_MAX: Final = 10_000


def scale(pool: str, hosts: int | None) -> Change:
    """Set the number of hosts of a pool; None: as its settings say."""
    return Change(SCALE, "pool", pool, None, {HOSTS: hosts})


class PoolScales:
    """What the records say so far."""

    def __init__(self) -> None:
        self._hosts: dict[str, int] = {}

    def get(self, pool: str) -> int | None:
        """How many hosts an operator wants; None where the settings count."""
        return self._hosts.get(pool)

    def take_in(self, fields: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        """Apply an `operated` record; others, and those that cannot be read, change nothing."""
        if fields.get("action") != SCALE or fields.get("outcome_code") != OK:
            return
        hosts = parameters.get(HOSTS)
        if hosts is None or type(hosts) is int:
            self.set(str(fields.get("object_id")), hosts)

    def set(self, pool: str, hosts: int | None) -> None:
        """Take in what was just recorded."""
        if hosts is None:
            self._hosts.pop(pool, None)
        elif pool in self._hosts or len(self._hosts) < KEPT_MAX:
            self._hosts[pool] = hosts
