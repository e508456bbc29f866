"""Who holds a lease on this machine, and whether that process is provably gone (X-163).

A supervisor of workers gets a new name at each start: a name used twice would hide that a worker died. When the process that a name
stands for is provably gone, its leases can end at once; otherwise they end by their own expiry.
"""

from __future__ import annotations

from typing import Final

from detent.canon.late import NamedTuple
from detent.store.content import ProcessMark

PREFIX: Final = "local"


class WorkerIdentity(NamedTuple):
    """A supervisor of one process."""

    mark: ProcessMark
    suffix: str

    def __str__(self) -> str:
        return "/".join((PREFIX, *self.mark.parts(), self.suffix))

    @classmethod
    def parse(cls, text: str) -> WorkerIdentity | None:
        """The identity in a lease holder's name; None for a name of another form."""
        prefix, *parts = text.split("/")
        mark = ProcessMark.parse(parts[:4])
        return cls(mark, parts[4]) if prefix == PREFIX and len(parts) == 5 and mark is not None else None


def worker_identity(suffix: str) -> WorkerIdentity:
    """The name of this process as a worker. ``suffix`` is random: a process may start several supervisors, one after another."""
    return WorkerIdentity(ProcessMark.own(), suffix)


def is_gone(holder: str) -> bool:
    """Whether the process that a lease holder's name stands for has provably ended."""
    identity = WorkerIdentity.parse(holder)
    return identity is not None and identity.mark.is_gone
