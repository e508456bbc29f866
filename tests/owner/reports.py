"""Reports as workers make them: bound to a grant, and signed by whichever key a test likes."""

from __future__ import annotations

from typing import Any

from detent.canon import SigningKey, json_digest, sha256
from detent.jobs.report import PlatformReport
from detent.jobs.result import encode_result
from detent.jobs.work import Failure, WorkReport
from detent.kernel import Grant
from detent.ledger import sign_result
from detent.owner.acceptance import VerifiedReport
from tests.flat_reports import flat_report
from tests.jobs.envelopes import result

NONCE = bytes(16)
BROKE = Failure("INTERNAL_ERROR", "WORKER_CRASHED", "the worker crashed")


def work_report(grant: Grant, status: str = "SUCCEEDED", **changes: Any) -> WorkReport:
    """What came of an attempt; a success has a value, everything else but a cancellation an error."""
    fields: dict[str, Any] = {
        "job_id": grant.job_id,
        "attempt_id": grant.attempt_id,
        "lease_id": grant.lease_id,
        "manifest_hash": grant.job_manifest_hash,
        "status": status,
        "nonce": NONCE,
    }
    if status == "SUCCEEDED":
        fields |= {"value": b"42", "value_digest": json_digest(b"42")}
    elif status != "CANCELLED":
        fields["error"] = BROKE
    return flat_report(**{**fields, **changes})


def platform_report(grant: Grant, **changes: Any) -> PlatformReport:
    """The same for a platform job, with the contract's envelope inside."""
    answer = result(**{"job_id": grant.job_id, **changes})
    return PlatformReport(
        job_id=grant.job_id,
        attempt_id=grant.attempt_id,
        lease_id=grant.lease_id,
        manifest_hash=grant.job_manifest_hash,
        result=encode_result(answer),
    )


def signed(report: WorkReport | PlatformReport, key: SigningKey) -> VerifiedReport:
    """The report as its executor hands it in."""
    made = sign_result(report.body(), key)
    return VerifiedReport(report, made.envelope(), sha256(made.envelope()), key.key_id)
