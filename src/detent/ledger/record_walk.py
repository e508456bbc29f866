"""One record after the other: the checks that jobs' records must pass, in the order in which they were appended.

The hot loop of a verification. A record of an honest owner takes the short way (build what it must be, compare bytes,
apply the rules); a record that differs takes the long way, which finds out what and then goes on from what it claims,
so that one fault does not look like a hundred.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from detent.canon import UINT64_MAX
from detent.canon.show import a_or_an
from detent.ledger.book import WalkState
from detent.ledger.fold import CancelBatch, advance, differences, expected_transition, rule_faults
from detent.ledger.items import RecordColumns
from detent.ledger.loose import loose
from detent.ledger.record_checks import PLAIN_KINDS, submitted
from detent.ledger.schema import Grounds, read_evidence, read_record
from detent.ledger.signing import NamedResult
from detent.ledger.tables import ENDED_STATES, JobFold
from detent.ledger.trust_config import TrustFault

RESYNC_MAX: Final = 2**63
"""Numbers a broken record claims are followed up to here, so that counting on from them cannot leave 64 bits."""


class RecordWalk(WalkState):
    """The records of one partition. `begin` says which batch they are in; `record` takes the next."""

    def finish(self) -> None:
        """The batch ends: no cancel batch may go on beyond it."""
        batch = self.partition.cancel_batch
        if batch is not None:
            message = f"the cancel batch stops after {batch.next_index} of {batch.length} records"
            self.note("CANCEL_BATCH_BROKEN", message, batch.next_position - 1, batch.job_id)
            self.partition.cancel_batch = None

    def record(self, body: bytes, evidence: bytes | None, position: int, columns: RecordColumns | None = None) -> None:
        """Check the next record and fold it in."""
        fields = loose(body)
        kind = fields.get("kind") if type(fields) is dict else None
        if self.book.erased.count and kind != "erased":
            erased = self.book.erased
            take_note = erased.named_elsewhere if self.partition.number else erased.named_again
            take_note(body)
            take_note(evidence or b"")
        if kind == "transition":
            self._transition(fields, body, evidence, position)
        elif kind == "submitted":
            submitted(self, fields, body, evidence, position)
        else:
            self._plain(body, evidence, position)
        if columns is not None:
            self._columns(fields if type(fields) is dict else {}, position, columns)

    # -- transitions -----------------------------------------------------------------------------------------------------

    def _transition(self, fields: dict[str, Any], body: bytes, evidence: bytes | None, position: int) -> None:
        partition = self.partition
        job_id = fields.get("job_id")
        fold = self.book.jobs.get(job_id) if type(job_id) is str else None
        if fold is None or evidence is None:
            return self._transition_slowly(body, evidence, position)
        grounds = read_evidence(evidence)
        if type(grounds) is not Grounds:
            return self._transition_slowly(body, evidence, position)
        batch = partition.cancel_batch
        evidence_hex = sha256(evidence).hexdigest()
        expected = expected_transition(fold, fields, evidence_hex, grounds.reason_code, batch, partition.owner)
        if expected is None or expected[0] != body or (batch is not None and not _goes_on(batch, fields, position)):
            return self._transition_slowly(body, evidence, position)
        if faults := rule_faults(fold, fields, grounds, partition.config, partition.number):
            self.note_all(faults, position, job_id, fold.transition_seq)
        tick = fields["tick"]
        if not self.in_time(tick):
            self.tick(tick, position, job_id, fold.transition_seq)
        if grounds.names_report:
            self._name_report(fold, fields, grounds.detail_digest, position)
        advance(fold, fields, expected[1], grounds, sha256(body).digest(), partition.config)
        self._moved(fold, fields, position)
        return None

    def _name_report(self, fold: JobFold, fields: dict[str, Any], digest: bytes | None, position: int) -> None:
        """A result names the executor's signed report, which comes with the content; no two results name the same one."""
        results, job_id = self.book.results, fields["job_id"]
        if digest is None:
            results.unnamed += 1
            return
        succeeded = fields["to_state"] == "SUCCEEDED"
        named = (succeeded, job_id, fold.attempt_id, fold.lease_id, fold.manifest_hash, fold.holder)
        if not results.name(
            digest, NamedResult(self.partition.number, self.batch_no, position, fold.tenant_id, *named)
        ):
            message = "the record names a report that another record has named before"
            self.note("RESULT_MISMATCH", message, position, job_id, fold.transition_seq)

    def _moved(self, fold: JobFold, fields: dict[str, Any], position: int) -> None:
        """A record has been folded into its job: its run, and a cancel batch that begins, goes on or ends."""
        self.transitions += 1
        fold.tick = self._tick_max
        if fields["batch_len"] != 1:
            self._cancel_batch(fields, position)
        if fold.state in ENDED_STATES:
            job_id = fields["job_id"]
            self.book.jobs.moved(job_id, fold)
            if fold.run_id is not None:
                self.book.runs.end_job(self.partition.number, fold.run_id, job_id, fold)

    def _cancel_batch(self, fields: dict[str, Any], position: int) -> None:
        batch, length, index = self.partition.cancel_batch, fields["batch_len"], fields["batch_index"] + 1
        if index >= length:
            self.partition.cancel_batch = None
        elif batch is None:
            self.partition.cancel_batch = CancelBatch(
                fields["job_id"], fields["batch_id"], length, index, position + 1, fields["evidence_ref"]
            )
        else:
            batch.next_index, batch.next_position = index, position + 1

    def _transition_slowly(self, body: bytes, evidence: bytes | None, position: int) -> None:
        """Find out what is wrong with a transition record, then go on from what it claims."""
        fields = read_record(body)
        if isinstance(fields, TrustFault):
            return self.note_all([fields], position)
        partition, jobs = self.partition, self.book.jobs
        job_id, seq = fields["job_id"], fields["transition_seq"]
        faults: list[TrustFault] = []
        fold = jobs.get(job_id)
        if fold is None:
            faults.append(TrustFault("JOB_UNKNOWN", f"job {job_id!r} was never submitted"))
            fold = _claimed(fields)
            jobs.add(job_id, fold)
        grounds, reference = self._grounds(fields, evidence, faults)
        batch = partition.cancel_batch
        if batch is not None and not _goes_on(batch, fields, position):
            message = f"the cancel batch of job {batch.job_id!r} does not go on here"
            faults.append(TrustFault("CANCEL_BATCH_BROKEN", message))
            batch = partition.cancel_batch = None
        faults += differences(fold, fields, reference, batch, (partition.number, partition.signer))
        was_ended = fold.ended
        _follow(fold, fields)
        if grounds is not None:
            faults += rule_faults(fold, fields, grounds, partition.config, partition.number)
        if not faults:
            faults.append(TrustFault("RECORD_FIELDS_WRONG", "the record is not the one its job's history leads to"))
        self.note_all(faults, position, job_id, seq)
        self.tick(fields["tick"], position, job_id, seq)
        if grounds is not None and grounds.names_report:
            self._name_report(fold, fields, grounds.detail_digest, position)
        advance(fold, fields, fields["idempotency_key"], grounds, sha256(body).digest(), partition.config)
        self._moved(fold, fields, position)
        if was_ended or fold.ended:
            jobs.moved(job_id, fold)
        return None

    def _grounds(
        self, fields: dict[str, Any], evidence: bytes | None, faults: list[TrustFault]
    ) -> tuple[Grounds | None, str | None]:
        """A record's evidence and its reference, as far as there is any; what is wrong goes to ``faults``."""
        if evidence is None:
            faults.append(TrustFault("EVIDENCE_MISSING", "the transition has no evidence beside it"))
            return None, None
        reference = "sha256:" + sha256(evidence).hexdigest()
        grounds = read_evidence(evidence)
        if isinstance(grounds, TrustFault):
            faults.append(grounds)
            return None, reference
        if grounds.reason_code != fields["reason_code"]:
            message = f"the record gives the reason {fields['reason_code']}, its evidence {grounds.reason_code}"
            faults.append(TrustFault("EVIDENCE_INVALID", message))
        return grounds, reference

    # -- everything else -------------------------------------------------------------------------------------------------

    def _plain(self, body: bytes, evidence: bytes | None, position: int) -> None:
        """Records that belong to no job's chain: runs, reuse, owners, trust, erasures, operators, workers."""
        fields = read_record(body)
        if isinstance(fields, TrustFault):
            return self.note_all([fields], position)
        partition = self.partition
        faults: list[TrustFault] = []
        if fields["partition_id"] != partition.number:
            faults.append(TrustFault("RECORD_PARTITION_WRONG", f"a record of partition {fields['partition_id']}"))
        self.tick(fields["tick"], position)
        self.position = position
        handler, has_evidence = PLAIN_KINDS[fields["kind"]]
        if evidence is None and has_evidence:
            faults.append(TrustFault("EVIDENCE_MISSING", f"the {fields['kind']} record has no evidence beside it"))
        elif evidence is not None and has_evidence is False:
            faults.append(TrustFault("EVIDENCE_UNEXPECTED", f"{a_or_an(fields['kind'])} record has no evidence"))
        else:
            faults += handler(self, fields, evidence or b"")
        if fields["signer_key_id"] != partition.signer:
            faults.append(TrustFault("RECORD_SIGNER_WRONG", "the record names another signer than the owner"))
        self.note_all(faults, position)
        self.book.counts[fields["kind"]] += 1
        return None

    def _columns(self, fields: dict[str, Any], position: int, columns: RecordColumns) -> None:
        """Hold a stored record's columns against the record."""
        kind = fields.get("kind")
        job_id = fields.get("job_id") if kind in {"transition", "submitted"} else None
        said = (position, self.batch_no, kind, fields.get("transition_seq"))
        stored = (columns.position, columns.batch_no, columns.kind, columns.transition_seq)
        run_id = fields.get("run_id")
        if kind == "transition":
            # Only the job's first record names the run; the column repeats it for every one.
            fold = self.book.jobs.get(job_id) if type(job_id) is str else None
            run_id = columns.run_id if fold is None else fold.run_id
        if said != stored or columns.job_id != job_id or columns.run_id != run_id:
            message = f"the row says {stored}, job {columns.job_id!r}, run {columns.run_id!r}"
            self.note("STORED_COLUMN_DIFFERS", message, position, job_id if type(job_id) is str else None)


def _goes_on(batch: CancelBatch, fields: dict[str, Any], position: int) -> bool:
    """Whether a record is the next of a cancel batch that has begun."""
    return (
        batch.job_id == fields["job_id"]
        and batch.next_position == position
        and batch.length == fields["batch_len"]
        and batch.evidence_ref == fields["evidence_ref"]
    )


def _claimed(fields: dict[str, Any]) -> JobFold:
    """A fold for a job whose beginning is missing: what its first known record claims of it."""
    fold = JobFold(
        fields["tenant_id"],
        None,
        fields["from_state"],
        fields["transition_seq"],
        fields["attempt_id"],
        fields["prev_chain_hash"],
        fields["job_manifest_hash"],
        fields["quota_policy_hash"],
        UINT64_MAX,
        UINT64_MAX,
    )
    fold.lease_id = fields["lease_id"]
    return fold


def _follow(fold: JobFold, fields: dict[str, Any]) -> None:
    """Make the fold what a record claims it was before it."""
    if not fold.manifest_hash:
        # The job had ended, so all but its place had been forgotten.
        fold.manifest_hash, fold.quota_policy_hash = fields["job_manifest_hash"], fields["quota_policy_hash"]
    fold.state = fields["from_state"]
    fold.transition_seq = min(fields["transition_seq"], RESYNC_MAX)
    fold.attempt_id = min(fields["attempt_id"], RESYNC_MAX)
