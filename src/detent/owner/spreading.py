"""Which partitions of a shared ledger a server should own: one pure rule, which every server applies to what it sees.

The server that owns the first partition leads: it answers requests and passes commands on to the owners of the others. A server takes part
while the leader is connected to it, so a machine that the leader cannot reach owns nothing. The rule moves one partition at a time
and stops when no two servers differ by more than one. It need not be applied at the same moment everywhere, and nothing
breaks if two servers want the same partition: the lock of the database gives it to one, and the epoch decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

LEADING: Final = 0
"""The partition whose owner leads; it is never given up for the sake of balance."""


def partition_to_give_up(server: str, owners: Mapping[int, str | None], members: Iterable[str]) -> int | None:
    """The partition that a server should leave to another, if it has the most and another has at least two fewer.

    ``owners`` says for each partition which server owns it, None for one that nobody does; ``members`` take part.
    """
    counts = _counts(owners, members)
    if server not in counts:
        return None
    most = max(counts, key=lambda one: (counts[one], one))
    own = [partition for partition, owner in owners.items() if owner == server and partition != LEADING]
    if most != server or counts[server] - min(counts.values()) < 2 or not own:
        return None
    return max(own)


def partition_to_take(server: str, owners: Mapping[int, str | None], members: Iterable[str]) -> int | None:
    """The partition that a server should take: the first that nobody owns, if no other member has fewer."""
    counts = _counts(owners, members)
    free = [partition for partition, owner in owners.items() if owner is None and partition != LEADING]
    if not free or server not in counts or min(counts, key=lambda one: (counts[one], one)) != server:
        return None
    return min(free)


def _counts(owners: Mapping[int, str | None], members: Iterable[str]) -> Counter[str]:
    counts = Counter(dict.fromkeys(members, 0))
    for owner in owners.values():
        if owner is not None and owner in counts:
            counts[owner] += 1
    return counts
