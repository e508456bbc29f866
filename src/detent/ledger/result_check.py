"""The comparison of signed reports, as a bundle brings them, with the records that name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from detent.canon import digest_text, json_decode
from detent.errors import InvalidInput
from detent.jobs.status import JobStatus
from detent.ledger.book import Book
from detent.ledger.findings import Finding
from detent.ledger.items import ContentItem
from detent.ledger.loose import loose
from detent.ledger.results import NamedResult
from detent.ledger.signing import SignedResult, result_signature
from detent.ledger.trust import Trust
from detent.ledger.trust_config import TrustFault

_BOUND: Final = ("job_id", "attempt_id", "lease_id", "manifest_hash")
"""The fields of a report that bind it to one attempt (JOB-083)."""


class Reports:
    """The comparison of reports, as they come, with the records that name them."""

    def __init__(self, book: Book, trust_of: Callable[[int], Trust | None]) -> None:
        self._book = book
        self._trust_of = trust_of
        self.checked = 0
        self.erased = 0
        self.missing = 0

    def content(self, item: ContentItem) -> None:
        """Check content that a record names as a report; any other is none of this."""
        named = self._book.results.take(item.digest)
        if named is None:
            return
        self.checked += 1
        try:
            signed = SignedResult.parse(item.data)
        except InvalidInput as exc:
            self._note("RESULT_SIGNATURE_INVALID", f"what the record names as the signed report is none: {exc}", named)
            return
        if fault := _mismatch(signed.body, named):
            self._note("RESULT_MISMATCH", fault, named)
        self._check_signature(signed, named)

    def finish(self, *, expected: bool) -> None:
        """All content has come. ``expected``: it had to be there, unless it was erased."""
        lost = expected or self.checked > 0
        for digest, named in self._book.results.left():
            if digest in self._book.erased:
                self.erased += 1
                continue
            self.missing += 1
            if lost:
                message = f"the signed report {digest_text(digest)} is neither here nor erased on the ledger"
                self._note("RESULT_MISSING", message, named)

    def counts(self) -> dict[str, int]:
        """How many results there were, and what was seen of their reports."""
        results = self._book.results
        return {
            "results": results.named + results.unnamed,
            "results_signed": self._book.executors.total(),
            "results_without_report": results.unnamed,
            "reports_erased": self.erased,
            "reports_missing": self.missing,
        }

    def _check_signature(self, signed: SignedResult, named: NamedResult) -> None:
        trust = self._trust_of(named.partition)
        if trust is None:
            return  # That there is nothing to trust has been found already.
        check = result_signature(trust, signed, named.batch_no, tenant=named.tenant_id, partition=named.partition)
        if isinstance(check, TrustFault):
            self._note(check.code, f"the report's signature: {check.message}", named)
            return
        message = "the executor's signature of the report does not verify"
        place = (named.partition, named.batch_no, named.position, named.job_id)
        otherwise = ("RESULT_SIGNATURE_INVALID", message, *place, signed.key_id)
        self._book.executors[signed.key_id] += 1
        self._book.signature(check, otherwise)

    def _note(self, code: str, message: str, named: NamedResult) -> None:
        place = (named.partition, named.batch_no, named.position, named.job_id)
        self._book.findings.add(Finding(code, message, *place))


def _mismatch(body: bytes, named: NamedResult) -> str | None:
    """Say in what a report differs from the record that names it, or nothing."""
    said = loose(body)
    if type(said) is not dict:
        return "the report cannot be read"
    wrong = [name for name in _BOUND if said.get(name) != getattr(named, name)]
    if wrong:
        return f"the report is of another attempt than the record: {', '.join(wrong)}"
    status = _status(said)
    if (status == JobStatus.SUCCEEDED.value) != named.succeeded:
        ended = "a success" if named.succeeded else "a failure"
        return f"the report says {str(status)[:40]}, the record calls it {ended}"
    return None


def _status(said: Mapping[str, Any]) -> object:
    """How a report says that its attempt ended: in a field of its own, or in the result document of a platform job."""
    if type(document := said.get("result")) is not bytes:
        return said.get("status")
    try:
        result = json_decode(document)
    except InvalidInput:
        return None
    return result.get("status") if isinstance(result, dict) else None
