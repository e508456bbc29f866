"""What workers elsewhere offer, as a server last heard it: for all processes of its home, and for the server that comes next.

A run is placed by the process that drives it, which is not the one that workers talk to. The file is no record: a server that finds none
knows what the certificates say, and hears the rest with the first turns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from detent.errors import HomeError
from detent.jobs.placing import Offer
from detent.owner.names import DIRECTORY
from detent.owner.server_address import running
from detent.store.files import read_no_follow, replace_no_follow

OFFERS_FILE: Final = "offers.json"


class Offered(NamedTuple):
    """What a worker offers, and to which workspaces."""

    offer: Offer
    tenants: tuple[str, ...] | None
    """None: all of them."""

    def covers(self, tenant: str) -> bool:
        """Whether jobs of a workspace may go there."""
        return self.tenants is None or tenant in self.tenants


def write_offers(home: Path, offered: Mapping[str, Offered]) -> None:
    """Write down what each worker offers."""
    said = {
        name: [
            one.tenants,
            sorted(one.offer.labels),
            None if one.offer.resources is None else dict(one.offer.resources),
            one.offer.fault,
        ]
        for name, one in offered.items()
    }
    replace_no_follow(home / DIRECTORY / OFFERS_FILE, json.dumps(said).encode())


def read_offers(home: Path) -> dict[str, Offered]:
    """What a server wrote down; empty where none did. Raises `HomeError` for a file that no server wrote."""
    path = home / DIRECTORY / OFFERS_FILE
    try:
        said = json.loads(read_no_follow(path))
        return {
            name: Offered(Offer(frozenset(labels), *more), None if tenants is None else tuple(tenants))
            for name, (tenants, labels, *more) in said.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as exc:
        raise HomeError(f"{path} cannot be read: {exc}", hint="remove it: workers say again what they offer") from exc


def offers_here(home: Path, tenant: str) -> Sequence[Offer]:
    """What is offered to a workspace now; nothing while no server runs on the home, since workers talk to one."""
    if running(home) is None:
        return ()
    return [one.offer for one in read_offers(home).values() if one.covers(tenant)]
