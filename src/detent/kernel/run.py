"""A run as the kernel holds it: which contract, how many of its jobs are alive."""

from __future__ import annotations

from dataclasses import field, fields

from detent.canon import decode, encode_trusted
from detent.canon.late import dataclass
from detent.errors import InvariantBroken

COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
RUN_STATUSES = frozenset({COMPLETED, FAILED, CANCELLED})
"""How a run can end, in the words of the workflow contract."""

RUNNING = "running"

CANCELLED_WITH_RUN = "WORKFLOW_CANCELLED"
"""Why a job was cancelled that its run no longer needs."""


@dataclass(slots=True)
class Run:
    """One run. Its jobs are found by their ``run_id``."""

    run_id: str
    tenant_id: str
    name: str
    contract_digest: bytes
    bindings_digest: bytes
    inputs_digest: bytes
    operation_id: str
    started_tick: int
    status: str = RUNNING
    ended_tick: int | None = None
    jobs: int = 0
    live_jobs: int = 0
    steps_reused: int = 0
    reason_code: str | None = None
    """Why it ended as it did, where its jobs do not say it. Left out of the bytes when there is none."""
    reused: set[str] = field(default_factory=set)
    """Ids of the steps that were reused one by one. Grows with them, so it is in checkpoints and not in the run's row."""
    reused_run: int = 0
    """How many results it took with an earlier run; in checkpoints, like the steps."""

    def to_list(self) -> list[object]:
        """The fields in order, as plain values."""
        values = [getattr(self, name) for name in _NAMES]
        return values if self.reason_code is None else [*values, self.reason_code]

    def encode(self) -> bytes:
        """Canonical bytes of the run."""
        return encode_trusted(self.to_list())

    @classmethod
    def from_list(cls, values: list[object]) -> Run:
        """Rebuild a run from `to_list`."""
        with_reason = len(values) == len(_NAMES) + 1 and type(values[-1]) is str
        if len(values) != len(_NAMES) and not with_reason:
            raise InvariantBroken(f"a stored run has {len(values)} fields, not {len(_NAMES)}")
        return cls(*values)  # type: ignore[arg-type]

    @classmethod
    def decode(cls, data: bytes) -> Run:
        """Rebuild a run from `encode`."""
        values = decode(data)
        if not isinstance(values, list):
            raise InvariantBroken("a stored run is a list")
        return cls.from_list(values)


_NAMES = tuple(entry.name for entry in fields(Run) if entry.name not in {"reason_code", "reused", "reused_run"})


def has_result(state: str, element: int | None) -> bool:
    """Whether a job that ended so has a result that a step may take: an array whose other elements failed has some."""
    return state == "SUCCEEDED" or (element is not None and state == "FAILED")
