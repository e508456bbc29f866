"""The one form in which executors report: the outcome of one attempt, bound to that attempt (JOB-083).

A report's body is a canonical map that names the job, the attempt, the lease and the manifest it answers; the executor
signs these bytes, so a result fits nowhere else. Work without a document says the rest in the map itself (`WorkReport`); a
platform job has the contract's result envelope in it, as the JSON that clients see and under one key, ``result``
(`PlatformReport`). A body is one or the other: neither form has the keys of the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from detent.canon import UINT64_MAX, NotCanonical, decode, encode
from detent.canon.late import dataclass
from detent.errors import InvalidInput
from detent.jobs.work import REPORT_BYTES_MAX, REPORT_VERSION, WorkReport
from detent.kernel.manifest import digest_fault, id_fault

if TYPE_CHECKING:
    from detent.jobs.result import JobResult

_FIELDS: Final = frozenset({"version", "job_id", "attempt_id", "lease_id", "manifest_hash", "result"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformReport:
    """A platform job's result with what binds it to one attempt."""

    job_id: str
    attempt_id: int
    lease_id: bytes
    manifest_hash: bytes
    result: bytes
    """The result envelope as `encode_result` makes it."""

    def body(self) -> bytes:
        """Canonical bytes: what the executor signs."""
        return encode(
            {
                "version": REPORT_VERSION,
                "job_id": self.job_id,
                "attempt_id": self.attempt_id,
                "lease_id": self.lease_id,
                "manifest_hash": self.manifest_hash,
                "result": self.result,
            }
        )

    def outcome(self) -> JobResult:
        """The result envelope, read; raises `InvalidInput` by field for what is none."""
        from detent.jobs.result import read_result  # noqa: PLC0415 - loads Pydantic, which a report of work never needs

        return read_result(self.result)

    def fault(self) -> str | None:
        """Say which field is not what it must be, or nothing."""
        fault = (
            id_fault("job_id", self.job_id)
            or digest_fault("lease_id", self.lease_id)
            or digest_fault("manifest_hash", self.manifest_hash)
        )
        if fault:
            return fault
        if type(self.attempt_id) is not int or not 0 <= self.attempt_id <= UINT64_MAX:
            return "attempt_id must be an integer from 0 to 2^64-1"
        if type(self.result) is not bytes:
            return "result must be the bytes of a result envelope"
        outcome = self.outcome()
        if outcome.job_id != self.job_id:
            return f"result is about job {outcome.job_id!r:.80}"
        return None if outcome.nonce is not None else "result has no nonce"


Report: TypeAlias = WorkReport | PlatformReport


def read_report(body: bytes) -> Report:
    """Read a report's body; raises `InvalidInput` for what is none, or not canonical."""
    if len(body) > REPORT_BYTES_MAX:
        raise InvalidInput(f"a report has at most {REPORT_BYTES_MAX} bytes, not {len(body)}")
    try:
        said = decode(body)
    except NotCanonical as exc:
        raise InvalidInput(f"the report is not canonical CBOR: {exc}", code="NOT_CANONICAL") from exc
    if not isinstance(said, dict) or "result" not in said:
        return WorkReport.parse(body)
    if said.keys() != _FIELDS or said.pop("version") != REPORT_VERSION:
        raise InvalidInput(f"a platform report is a map of version {REPORT_VERSION} with exactly its six keys")
    report = PlatformReport(**said)
    if fault := report.fault():
        raise InvalidInput(f"the report's {fault}")
    return report
