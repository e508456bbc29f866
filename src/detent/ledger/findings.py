"""What a verification can find, as one literal table, and the report it gives.

A code says what does not hold and where; the table says what that usually means. Codes are never reused for another
meaning. They are apart from the registry of errors: nothing here is raised, a finding is an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from detent.canon import digest_text
from detent.canon.late import NamedTuple, dataclass
from detent.errors import InvariantBroken

FINDINGS_MAX: Final = 1_000
"""Findings a report keeps; further ones are counted. A ledger of a stranger must not fill the memory."""


class Kind(NamedTuple):
    """What a code means, and what usually lies behind it."""

    meaning: str
    usually: str


_CHANGED: Final = "bytes were changed after they were signed"
_KEY_HOLDER: Final = "a holder of the owner's key wrote something the kernel would not have written"
_CUT: Final = "the file was cut off or changed on its way"

FINDINGS: Final[Mapping[str, Kind]] = {
    # The file.
    "NOT_A_BUNDLE": Kind(
        "the file is not one that `detent export` wrote",
        "another file was meant: name a bundle, or no file at all to check the ledger of this home",
    ),
    "BUNDLE_MALFORMED": Kind("the file is not a bundle, or an item in it cannot be read", _CUT),
    "BUNDLE_TRUNCATED": Kind("the file ends before its end item", _CUT),
    "BUNDLE_TRAILING_BYTES": Kind("bytes follow the end item", "something was appended to the file"),
    "BUNDLE_DIGEST_WRONG": Kind("the end item does not fit the items before it", _CUT),
    "BUNDLE_VERSION_UNKNOWN": Kind("the bundle's format is not known here", "it was made by a newer version"),
    "ITEM_TOO_LARGE": Kind("an item is larger than any writer makes it", _CUT),
    "ITEM_NOT_CANONICAL": Kind("an item's bytes are not the one encoding of what they say", "the file was edited"),
    "ITEM_UNKNOWN": Kind("an item of an unknown kind", "it was made by a newer version, or edited"),
    "ITEM_OUT_OF_ORDER": Kind("an item stands where its kind may not stand", "the file was put together by hand"),
    # Trust.
    "TRUST_UNPINNED": Kind(
        "no root was given to believe in", "the ledger's owner was not asked for the root digest; pass --root"
    ),
    "TRUST_ROOT_MISMATCH": Kind(
        "the ledger starts from another trust root than the pinned one", "another ledger, or a forgery"
    ),
    "TRUST_MISSING": Kind("the first batch announces no trust configuration", "the beginning of the ledger is missing"),
    "TRUST_INVALID": Kind("a trust configuration does not hold", "a forged or rolled back trust configuration"),
    "TRUST_FORKED": Kind("two partitions announce different versions", "a root key signed twice"),
    "KEY_UNKNOWN": Kind("signed by a key that the trust configuration does not have", "re-signed by a stranger"),
    "KEY_WRONG_ROLE": Kind("signed by a key of another role", "a key was used for what it may not sign"),
    "KEY_OUT_OF_RANGE": Kind("signed by a key before or after its time", "a revoked key was used"),
    "KEY_OUT_OF_SCOPE": Kind("signed by a key for a tenant or partition that is not its own", "a key was misused"),
    # Batches.
    "BATCH_MALFORMED": Kind("a batch record cannot be read", _CHANGED),
    "BATCH_SIGNATURE_INVALID": Kind("a batch record's signature does not verify", _CHANGED),
    "BATCH_ORIGIN_WRONG": Kind("a batch of another ledger", "a batch was spliced in"),
    "BATCH_PARTITION_WRONG": Kind("a batch of another partition", "a batch was spliced in"),
    "BATCH_NUMBER_WRONG": Kind("a batch is missing, repeated or out of order", "batches were removed or moved"),
    "BATCH_CHAIN_BROKEN": Kind("a batch does not name the batch before it", "a batch was replaced or removed"),
    "BATCH_NOT_INCLUDED": Kind("a batch is not shown to be in the signed tree", "the batch was not part of the ledger"),
    "EPOCH_WRONG": Kind("a batch or owner under the wrong epoch", "a deposed owner went on writing"),
    "COMMANDS_DIGEST_WRONG": Kind("the commands are not those the batch record binds", _CHANGED),
    "COMMANDS_MALFORMED": Kind("the recorded commands cannot be read", _KEY_HOLDER),
    "RECORDS_ROOT_WRONG": Kind("the records are not those the batch record binds", _CHANGED),
    "RECORD_COUNT_WRONG": Kind("more or fewer records than the batch record binds", "records were removed or added"),
    "RECORD_NOT_INCLUDED": Kind("a record is not shown to be in its batch", _CHANGED),
    "POSITION_WRONG": Kind("positions do not continue", "records were removed or added"),
    "TICK_BACKWARDS": Kind("time runs backwards", "a clock was set back, or records were moved"),
    "TICK_OUT_OF_BATCH": Kind("a tick outside its batch, or not that of any command", _CHANGED),
    # The tree and its heads.
    "HEAD_INVALID": Kind("a tree head cannot be read or no trusted log key signed it", "a forged or foreign tree head"),
    "HEAD_ROOT_MISMATCH": Kind("a tree head has another root than the batches", "the history was rewritten"),
    "HEAD_BEYOND_LEDGER": Kind("a tree head covers batches that are not there", "the end of the ledger was cut off"),
    "HEAD_MISSING": Kind("there is no tree head to prove inclusion against", "the export is incomplete"),
    "HEAD_NOT_WITNESSED": Kind(
        "too few witnesses cosigned the newest tree head", "a witness refused, or was not asked"
    ),
    "HEAD_STALE": Kind(
        "no witness saw the newest tree head recently enough", "an old state is shown as the present one"
    ),
    "COSIGNATURE_INVALID": Kind("a known witness's cosignature does not verify", "a forged cosignature"),
    "LEDGER_ROLLED_BACK": Kind("the ledger is shorter than a tree head kept elsewhere", "an old copy was restored"),
    "LEDGER_FORKED": Kind("a tree head kept elsewhere has another root", "the history was rewritten; keep both heads"),
    "STORED_TREE_DIFFERS": Kind("stored tree nodes are not those of the batches", "the database was edited"),
    "STORED_COLUMN_DIFFERS": Kind("a column is not what the signed record says", "the database was edited"),
    # Records.
    "RECORD_NOT_CANONICAL": Kind("a record is not the one encoding of what it says", _CHANGED),
    "RECORD_FIELDS_WRONG": Kind("a record has missing, extra or wrongly typed fields", _CHANGED),
    "RECORD_TOO_LARGE": Kind("a record is larger than any record may be", _KEY_HOLDER),
    "RECORD_PARTITION_WRONG": Kind("a record names another partition", "a record was spliced in"),
    "RECORD_SIGNER_WRONG": Kind("a record names another signer than the owner", "a record was spliced in"),
    "EVIDENCE_MISSING": Kind("a record without the evidence it names", "evidence was removed"),
    "EVIDENCE_DIGEST_WRONG": Kind("evidence is not what its record names", "evidence was changed"),
    "EVIDENCE_INVALID": Kind("evidence that cannot justify its record", _KEY_HOLDER),
    "EVIDENCE_UNEXPECTED": Kind("evidence beside a record that names none", "something was added beside the record"),
    "MANIFEST_SIGNATURE_INVALID": Kind("a manifest's signature does not verify", "the manifest was changed"),
    "MANIFEST_HASH_WRONG": Kind("a manifest is not the one its record names", "the manifest was swapped"),
    "MANIFEST_INVALID": Kind("a manifest does not fit its schema", _KEY_HOLDER),
    "MANIFEST_ORIGIN_MISSING": Kind(
        "a manifest names no ledger, under rules by which each must",
        "a holder of the owner's key planted a job that its submitter signed long ago, perhaps for another deployment",
    ),
    "MANIFEST_ORIGIN_WRONG": Kind(
        "a manifest was signed for another ledger",
        "a holder of the owner's key planted a job that its submitter signed for another deployment",
    ),
    "MANIFEST_POLICY_UNKNOWN": Kind("a manifest names a policy that the configuration lacks", _KEY_HOLDER),
    "RESULT_SIGNATURE_INVALID": Kind(
        "an executor's signature of a result does not verify",
        "the report was changed after it was signed, or another key than the executor's signed it",
    ),
    "RESULT_MISMATCH": Kind(
        "a signed report is not about the attempt that its record ends, or says another outcome",
        "the report of another job or attempt was put in its place",
    ),
    "RESULT_MISSING": Kind(
        "a signed report that a record names is neither here nor erased on the ledger",
        "content was deleted without `detent erase`, or taken out of the file",
    ),
    # Jobs.
    "JOB_UNKNOWN": Kind("a transition of a job that was never submitted", "the job's first record is missing"),
    "JOB_REPEATED": Kind("a job is submitted twice", "a record was repeated"),
    "JOB_PARTITION_WRONG": Kind("a job in a partition that does not own it", _KEY_HOLDER),
    "JOB_MIXED": Kind("a record names another tenant or policy than the job has", "a record was spliced in"),
    "CHAIN_BROKEN": Kind("a record does not name the job's record before it", "a record was removed, moved or changed"),
    "SEQ_WRONG": Kind("a job's sequence has a gap or a repeat", "a record was removed, moved or repeated"),
    "ATTEMPT_WRONG": Kind("an attempt number that does not follow", _KEY_HOLDER),
    "STATE_WRONG": Kind("a transition starts from a state the job is not in", "a record was removed or moved"),
    "TRANSITION_ILLEGAL": Kind("a transition that the table of states does not have", _KEY_HOLDER),
    "TRANSITION_KEY_WRONG": Kind("an idempotency key that is not its formula's", _CHANGED),
    "REQUEST_DIGEST_WRONG": Kind("a request digest that is not its formula's", _CHANGED),
    "LEASE_WRONG": Kind("a lease that is not the job's", _KEY_HOLDER),
    "DISPATCH_WRONG": Kind("dispatched where nothing may be, or not where it must", _KEY_HOLDER),
    "CANCEL_BATCH_BROKEN": Kind("a cancel batch that is torn or takes another way", _KEY_HOLDER),
    "RETRY_NOT_ALLOWED": Kind("a retry, or its refusal, against the retry rules", _KEY_HOLDER),
    "LEASE_TIME_WRONG": Kind("a lease or a wait that ended before its time", _KEY_HOLDER),
    "QUOTA_WRONG": Kind("a quota verdict that does not fit its transition", _KEY_HOLDER),
    # Runs, owners, erasures.
    "RUN_UNKNOWN": Kind("a record of a run that is not open", "the run's first record is missing"),
    "RUN_PARTITION_WRONG": Kind("a run in a partition that does not own it", _KEY_HOLDER),
    "RUN_REPEATED": Kind("a run is started twice", "a record was repeated"),
    "RUN_NOT_ENDED": Kind(
        "the run has no end on the ledger, so it cannot be shown to be complete", "exported too early"
    ),
    "RUN_MISSING": Kind("the bundle of a run without the run", "the export is incomplete"),
    "RUN_JOBS_WRONG": Kind("a run's end does not fit its jobs", "a job of the run was left out or changed"),
    "REUSE_WRONG": Kind("a step or a run reuses a result that it cannot reuse", _KEY_HOLDER),
    "CONFIG_WRONG": Kind("a configuration is not the one its record names", "a policy was swapped"),
    "STEP_REPEATED": Kind("a step of a run is reused twice", _KEY_HOLDER),
    "OPERATED_WRONG": Kind("an operator's action that cannot follow on those before it", _KEY_HOLDER),
    "OPERATOR_SIGNATURE_INVALID": Kind(
        "an operator's own signature of a request does not hold",
        "the server recorded another request than the operator signed, or under another credential",
    ),
    "WORKER_WRONG": Kind("a worker is enrolled twice, or retired without being enrolled", _KEY_HOLDER),
    "CERTIFICATE_INVALID": Kind(
        "a worker's certificate, or the proof that it holds its key, does not hold", _KEY_HOLDER
    ),
    "ERASED_WRONG": Kind("an erasure out of order, or in a partition that records none", _KEY_HOLDER),
    # Beside the ledger.
    "SCHEMA_CHANGED": Kind(
        "the database has a table, index, trigger or view that is not of its schema, or lacks or changed one",
        "the database was edited; a trigger that was planted acts whenever something is written",
    ),
    "DECISIONS_WRONG": Kind(
        "the decisions kept with a batch cannot be read, or one of them is none that a record of the batch names",
        "the database was edited",
    ),
    "CONTENT_MISSING": Kind(
        "content that a record names is neither here nor erased on the ledger",
        "content was deleted without `detent erase`",
    ),
    "WORK_INDEX_WRONG": Kind(
        "a row of the index of equal work is not what the job's signed payload leads to", "the database was edited"
    ),
    "LABEL_WRONG": Kind(
        "a job is listed under another label or pool than its signed payload names, or after that was erased",
        "the database was edited",
    ),
    "REUSE_MISMATCH": Kind(
        "a step took the result of a job that was asked to do something else",
        "rows of the database were edited before that run, or a holder of the owner's key wrote it",
    ),
    "ANSWER_WRONG": Kind(
        "an answer kept for an idempotency key does not fit the job it names", "the database was edited"
    ),
    "FOLD_DIFFERS": Kind("a stored row says something else than the records", "the database was edited"),
    "FOLD_ROW_MISSING": Kind("a job or run of the records has no row", "the database was edited"),
    "FOLD_ROW_UNKNOWN": Kind("a row of a job or run that no record knows", "the database was edited"),
    "CHECKPOINT_WRONG": Kind("a checkpoint is not the state that the commands lead to", "the database was edited"),
    "STORE_DAMAGED": Kind(
        "the database cannot be read, or contradicts itself", "a disk failed, or the file was edited"
    ),
    "CONTENT_DIGEST_WRONG": Kind("content is not what its digest names", "content was swapped"),
    "CONTENT_NOT_ERASED": Kind("content that the ledger says is erased is still there", "an erasure was undone"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not hold, and where."""

    code: str
    message: str
    partition: int | None = None
    batch_no: int | None = None
    position: int | None = None
    job_id: str | None = None
    transition_seq: int | None = None

    def __post_init__(self) -> None:
        if self.code not in FINDINGS:
            raise InvariantBroken(f"finding {self.code!r} is not in the table")

    @property
    def place(self) -> str:
        """Where it is, in words; empty when it is the whole file."""
        parts = [
            f"{name} {value}"
            for name, value in (("partition", self.partition), ("batch", self.batch_no), ("record", self.position))
            if value is not None
        ]
        if self.job_id is not None:
            parts.append(f"job {self.job_id}")
        if self.transition_seq is not None:
            parts.append(f"transition {self.transition_seq}")
        return ", ".join(parts)

    def __str__(self) -> str:
        return f"{self.code} ({self.place}): {self.message}" if self.place else f"{self.code}: {self.message}"

    def to_map(self) -> dict[str, object]:
        """The finding for JSON, with what it usually means."""
        kind = FINDINGS[self.code]
        return {
            "code": self.code,
            "message": self.message,
            "partition": self.partition,
            "batch_no": self.batch_no,
            "position": self.position,
            "job_id": self.job_id,
            "transition_seq": self.transition_seq,
            "meaning": kind.meaning,
            "usually": kind.usually,
        }


class Findings:
    """Findings being gathered: the first ones whole, all of them counted."""

    __slots__ = ("_kept", "_kept_max", "codes")

    def __init__(self, kept_max: int = FINDINGS_MAX) -> None:
        self._kept: list[Finding] = []
        self._kept_max = kept_max
        self.codes: Counter[str] = Counter()

    def add(self, finding: Finding) -> None:
        """Take one more."""
        self.codes[finding.code] += 1
        if len(self._kept) < self._kept_max:
            self._kept.append(finding)

    @property
    def total(self) -> int:
        """How many there were, kept or not."""
        return self.codes.total()

    def sorted(self) -> tuple[Finding, ...]:
        """The kept ones by place: what concerns everything first, then along the ledger."""
        return tuple(sorted(self._kept, key=_along_the_ledger))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._kept)


@dataclass(frozen=True, slots=True)
class TreeState:
    """Where one partition's tree stands after everything that was read."""

    partition: int
    size: int
    root: bytes
    head_size: int | None
    """Size of the newest tree head that was believed; None when there was none."""


@dataclass(frozen=True, slots=True)
class CopyState:
    """That a ledger is a copy of another one: what it shares with it, and its own name since."""

    copy_of: str
    batches: int
    """Batches of its first partition before it took a name of its own."""
    origin: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a verification says. ``ok`` only if nothing was found and all that must be proved was."""

    ok: bool
    findings: tuple[Finding, ...]
    findings_total: int
    proved: tuple[str, ...]
    not_proved: tuple[str, ...]
    counts: Mapping[str, int]
    scope: str | None = None
    origin: str | None = None
    run_id: str | None = None
    root: str | None = None
    """The trust root the ledger starts from, as it is pinned."""
    root_pinned: bool = False
    transition_log_hash: bytes | None = None
    trees: tuple[TreeState, ...] = ()
    codes: Mapping[str, int] = field(default_factory=dict)
    """How often each code was found, also beyond the findings kept."""
    executors: Mapping[str, int] = field(default_factory=dict)
    """How many results each executor's key signed, by the key's id; only signatures that verify count."""
    workers: Mapping[str, str] = field(default_factory=dict)
    """The id of the enrolled worker, of each of these keys that is one's."""
    copies: tuple[CopyState, ...] = ()
    """Of a copy, whose it is, oldest first; the last one has its present name."""

    def to_map(self) -> dict[str, Any]:
        """The report for JSON."""
        return {
            "ok": self.ok,
            "findings": [finding.to_map() for finding in self.findings],
            "findings_total": self.findings_total,
            "codes": dict(self.codes),
            "proved": list(self.proved),
            "not_proved": list(self.not_proved),
            "counts": dict(self.counts),
            "executors": dict(self.executors),
            "workers": dict(self.workers),
            "scope": self.scope,
            "origin": self.origin,
            "copies": [
                {"copy_of": copy.copy_of, "batches": copy.batches, "origin": copy.origin} for copy in self.copies
            ],
            "run_id": self.run_id,
            "root": self.root,
            "root_pinned": self.root_pinned,
            "transition_log_hash": _text(self.transition_log_hash),
            "trees": [
                {
                    "partition": tree.partition,
                    "size": tree.size,
                    "root": _text(tree.root),
                    "head_size": tree.head_size,
                }
                for tree in self.trees
            ],
        }


def _text(digest: bytes | None) -> str | None:
    return None if digest is None else digest_text(digest)


def _along_the_ledger(finding: Finding) -> tuple[int, int, int]:
    places = (finding.partition, finding.batch_no, finding.position)
    return tuple(-1 if place is None else place for place in places)  # type: ignore[return-value]
