"""The environment that decisions were recorded under, and which lock files its hash covers (PIPE-032).

Every owner begins its epoch with a configuration on the ledger; its environment names the digest of the versions that Detent
itself depends on, and of each lock file that the project had then. What the owner read stays recorded, also when the
file changes later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.canon import digest_text
from detent.canon.late import dataclass
from detent.errors import DetentError
from detent.kernel import KernelConfig
from detent.kernel.records import OWNER_EPOCH
from detent.owner.home import DEPENDENCIES, LOCK, Home, environment_policy
from detent.store.api import StoreReader


@dataclass(frozen=True, slots=True)
class EnvironmentView:
    """An environment policy: its hash, and what the hash covers."""

    hash: str
    covers: Mapping[str, str]

    @property
    def locks(self) -> dict[str, str]:
        """The lock files that are covered, each with its digest."""
        return {name.removeprefix(LOCK): value for name, value in self.covers.items() if name.startswith(LOCK)}

    @property
    def text(self) -> str:
        """What people read."""
        own = f"{', '.join(DEPENDENCIES[:-1])} and {DEPENDENCIES[-1]}"
        if not self.locks:
            return f"{self.hash}: the versions of {own}; the project has no lock file"
        listed = ", ".join(f"{name} ({digest})" for name, digest in self.locks.items())
        return f"{self.hash}: the versions of {own}, and {listed}"

    def to_map(self) -> dict[str, Any]:
        """The view for JSON."""
        return {"hash": self.hash, "covers": dict(self.covers), "locks": self.locks}


def environment_now(home: Home) -> EnvironmentView:
    """The environment that an owner would begin under at this moment."""
    return _view(home.settings().kernel_config(partitions=1, partition_id=0, environment=environment_policy(home)))


def environment_of_job(reader: StoreReader, job_id: str, partition: int) -> EnvironmentView | None:
    """The environment under which a job was last decided about; None where none is recorded."""
    batch_no = max((row.batch_no for row in reader.records_of_job(job_id)), default=None)
    recorded = None
    for row in reader.records_of_kind(partition, OWNER_EPOCH):
        if batch_no is not None and row.batch_no > batch_no:
            break
        recorded = row
    try:
        return None if recorded is None else _view(KernelConfig.decode(recorded.evidence or b""))
    except DetentError:
        return None  # A damaged record is for `detent verify` to report.


def _view(config: KernelConfig) -> EnvironmentView:
    return EnvironmentView(digest_text(config.environment_policy_hash), dict(config.environment))
