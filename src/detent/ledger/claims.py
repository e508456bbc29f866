"""What a report says was proved, and what was not, in plain sentences (X-178).

A sentence is only said when nothing was found that would make it untrue. What no log can prove is said every time, with
what would close the gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from detent.canon import digest_text
from detent.ledger.book import Book, Partition
from detent.ledger.findings import FINDINGS
from detent.ledger.items import SCOPE_RUN
from detent.ledger.trust_config import short_id

SIGNERS_NAMED_MAX: Final = 5
"""Executor keys that are named in the text; the report's JSON has all of them."""
_TRUST: Final = frozenset(code for code in FINDINGS if code.startswith(("TRUST_", "KEY_")))
_FILE: Final = frozenset(code for code in FINDINGS if code.startswith(("BUNDLE_", "ITEM_")))
_BATCHES: Final = frozenset(code for code in FINDINGS if code.startswith(("BATCH_", "EPOCH_", "POSITION_", "TICK_")))
_TREE: Final = frozenset(code for code in FINDINGS if code.startswith(("HEAD_", "LEDGER_", "COSIGNATURE_", "STORED_")))
_BESIDE: Final = frozenset(
    code
    for code in FINDINGS
    if code.startswith(("FOLD_", "CONTENT_", "CHECKPOINT_", "SCHEMA_", "WORK_INDEX_", "ANSWER_"))
)
_RESULTS: Final = frozenset(code for code in FINDINGS if code.startswith("RESULT_"))
_RECORDS: Final = frozenset(FINDINGS) - _TRUST - _FILE - _BATCHES - _TREE - _BESIDE - _RESULTS

OMISSION: Final = (
    "That nothing was left out before it was written: what never reached the ledger leaves no trace in it. "
    "A submitter who keeps the signed batch of their job can show that it was accepted."
)
EXECUTOR: Final = (
    "That results and usage are true: an executor can lie. Running a sample again, or on two executors, would show it."
)
TIME: Final = (
    "That ticks are the true time: a holder of the owner's key can write any tick that does not go backwards. "
    "Witnesses' cosignatures bound it."
)
KEY_HOLDER: Final = "That no holder of the ledger's keys rewrote it before the first tree head that is kept elsewhere."
HOME: Final = (
    "That this home was not rewritten as a whole: its keys lie beside it and the root pinned here is its own. "
    "A root digest and a tree head kept elsewhere would show it."
)
NO_KEPT_HEAD: Final = (
    "That this is the whole ledger and the only one: no tree head kept elsewhere was given, so a cut end, "
    "an older copy or a fork would not be noticed."
)
NO_WITNESS: Final = "That everybody is shown the same ledger: no witness cosigned the newest tree head, so a split view would not be noticed."
CONTENT: Final = "That content which is not in the file is what its digest names, or still exists."
HEADER: Final = "When the file was exported: its header is not signed, so the tick in it is not to be trusted."
RUN_ONLY: Final = (
    "Anything about the rest of the ledger: this is one run, proved to be part of a signed tree. "
    "Commands are not in it, so it cannot be replayed; that no later trust version revoked a key used here is not shown, nor that "
    "its worker was not retired before."
)
ASSERTED: Final = (
    "That operators asked for what the server says they did: it alone vouches for actions that they did not sign themselves, "
    "and for actions that it left out."
)
MANY_PARTITIONS: Final = "That the run has no jobs in partitions that are not in the file."


def proved(book: Book, partitions: list[Partition], counts: Mapping[str, int]) -> Iterator[str]:
    """The sentences that hold after everything that was read."""
    codes: AbstractSet[str] = book.findings.codes.keys()
    header, rows = book.header, counts["rows"]
    if header is None or codes & (_TRUST | _FILE):
        return
    run = header.scope == SCOPE_RUN
    if counts["batches"] and not codes & _BATCHES:
        order = (
            "each is part of the signed tree" if run else "each names the one before it, and none is missing between"
        )
        name = partitions[0].origin if partitions else header.origin
        yield (
            f"{counts['batches']:,} batches of {name} are signed by keys that were allowed to sign them there; {order}."
        )
    if counts["records"] and not codes & (_BATCHES | _RECORDS):
        yield f"{counts['records']:,} records are, byte for byte, those the batches bind, with the evidence they name."
        yield (
            f"{book.jobs.count:,} jobs went through legal transitions only, each in an unbroken chain from a manifest "
            "signed by a key that may submit for its tenant."
        )
        if named := counts["submitted"] - counts["submitted_without_origin"]:
            jobs, whose = (
                ("1 job was", "its manifest names") if named == 1 else (f"{named:,} jobs were", "their manifests name")
            )
            yield f"{jobs} submitted to this ledger and to no other: {whose} it, and the submitter signed that."
    if run and not codes & (_BATCHES | _RECORDS):
        yield f"Run {header.run_id} is complete: its end binds exactly these jobs."
    if counts["results_signed"] and not codes & (_BATCHES | _RECORDS | _RESULTS):
        yield (
            f"{counts['results_signed']:,} results are signed by executor keys that were allowed to sign them there, each "
            f"for its own job and attempt: {_signers(book)}."
        )
    if not codes & (_BATCHES | _RECORDS):
        yield from _operators(counts)
    yield from _copies(partitions)
    yield from _trees(codes, partitions)
    if rows and not codes & (_BESIDE | _TREE):
        yield f"{rows:,} stored rows say what the records say."
    if counts["contents"] and not codes & _BESIDE:
        yield f"{counts['contents']:,} contents are what their digests name; none of them is one the ledger says is erased."
    if book.erased.count and not codes & _RECORDS:
        yield f"{book.erased.count:,} contents were erased on purpose; the history that names them is whole."


def _copies(partitions: list[Partition]) -> Iterator[str]:
    trust = next((partition.trust for partition in partitions if partition.trust is not None), None)
    for version in trust.copies if trust is not None else ():
        yield (
            f"It is a copy: {version.position:,} batches of partition {partitions[0].number} were signed as {version.config.copy_of}, and"
            f" those since as {version.config.origin}, whose keys the original's root key announced."
        )


def _trees(codes: AbstractSet[str], partitions: list[Partition]) -> Iterator[str]:
    if codes & (_TREE | _BATCHES):
        return
    for partition in partitions:
        shown, kept = partition.heads.newest(kept=False), partition.heads.newest(kept=True)
        name = f"partition {partition.number}"
        if shown is not None:
            yield f"The tree of {name} leads to the signed tree head over {shown.head.size:,} batches."
        if kept is not None:
            yield f"The tree of {name} continues the tree head over {kept.head.size:,} batches that was kept elsewhere."
        if partition.heads.witnessed:
            names = ", ".join(sorted(partition.heads.witnessed))
            yield f"The newest tree head of {name} is cosigned by {names}."


def not_proved(
    book: Book, partitions: list[Partition], counts: Mapping[str, int], *, pinned_home: bool
) -> Iterator[str]:
    """What this verification cannot have shown, however green it is."""
    header = book.header
    run = header is not None and header.scope == SCOPE_RUN
    if pinned_home:
        yield HOME
    if run:
        yield RUN_ONLY
        if book.unseen is not None:
            run_id, digest = book.unseen
            yield (
                f"What run {run_id}, whose results this run took, did. The bundle of that run shows it, if the jobs_digest in its end is"
                f" {digest_text(digest)}."
            )
        if header is not None and header.partitions > 1:
            yield MANY_PARTITIONS
    kept = [partition.heads.newest(kept=True) for partition in partitions]
    if not any(
        claim.kept for partition in partitions for claims in partition.heads.by_size.values() for claim in claims
    ):
        yield NO_KEPT_HEAD
    for partition, claim in zip(partitions, kept, strict=True):
        yield from _tail(partition, None if claim is None else claim.head.size, run=run)
    if not any(partition.heads.witnessed for partition in partitions):
        yield NO_WITNESS
    yield KEY_HOLDER
    yield OMISSION
    yield from _unnamed(partitions, counts)
    yield from _unsigned(counts, book.findings.codes.keys())
    if counts["operated"] > counts["operated_signed"]:
        yield ASSERTED
    yield EXECUTOR
    yield TIME
    yield CONTENT
    if not book.with_rows:
        yield HEADER


def _operators(counts: Mapping[str, int]) -> Iterator[str]:
    """Who vouches for operators' actions, and which workers were certified."""
    if operated := counts["operated"]:
        actions = "1 operator action" if operated == 1 else f"{operated:,} operator actions"
        signed = counts["operated_signed"]
        whose = f"{signed:,} signed by the operators themselves, the rest asserted by the server"
        yield f"{actions}; {whose if signed < operated else 'each signed by the operator'}."
    if enrolled := counts["worker_enrolled"]:
        workers = "1 worker was" if enrolled == 1 else f"{enrolled:,} workers were"
        retired = f"; {counts['worker_retired']:,} retired since" if counts["worker_retired"] else ""
        yield f"{workers} enrolled, each certified by a key of this ledger and proved to hold its own key{retired}."


def _signers(book: Book) -> str:
    """How many results each executor key signed, the busiest first; an enrolled worker by its name."""
    named = [
        f"{count:,} by worker {book.workers[key]}" if key in book.workers else f"{count:,} by {short_id(key)}"
        for key, count in book.executors.most_common(SIGNERS_NAMED_MAX)
        if count
    ]
    more = len(book.executors) - SIGNERS_NAMED_MAX
    return ", ".join(named) + (f" and others by {more:,} more keys" if more > 0 else "")


def _unnamed(partitions: list[Partition], counts: Mapping[str, int]) -> Iterator[str]:
    """Jobs whose submitters signed for no ledger in particular (X-197)."""
    count = counts["submitted_without_origin"]
    if not count:
        return
    last = ", ".join(
        f"job {partition.unnamed[0]} in batch {partition.unnamed[1]:,} of partition {partition.number}"
        for partition in partitions
        if partition.unnamed is not None
    )
    jobs = "1 job was" if count == 1 else f"{count:,} jobs were"
    yield (
        f"That {jobs} submitted to this ledger: a manifest that names no ledger, as older versions signed them, fits every ledger "
        f"that trusts its submitter, so a holder of the owner's key can move it there. The last of them: {last}."
    )


def _unsigned(counts: Mapping[str, int], codes: AbstractSet[str]) -> Iterator[str]:
    """Results whose signature this verification has not seen, and why."""
    if counts["reports_missing"] and "RESULT_MISSING" not in codes:
        yield (
            f"Which executors signed the {counts['reports_missing']:,} results: the file was exported without their reports. "
            "`detent export` includes them unless told otherwise."
        )
    if counts["reports_erased"]:
        one = counts["reports_erased"] == 1
        which = "1 result whose report was" if one else f"{counts['reports_erased']:,} results whose reports were"
        yield f"Which executors signed {which} erased on purpose."
    if counts["results_without_report"]:
        yield f"Which executors reported {counts['results_without_report']:,} results: their records name no signed report."


def _tail(partition: Partition, kept_size: int | None, *, run: bool) -> Iterator[str]:
    shown = partition.heads.newest()
    if run:
        sizes = sorted(
            size for size, claims in partition.heads.by_size.items() if any(one.agrees is None for one in claims)
        )
        for size in sizes:
            yield (
                f"That the tree of partition {partition.number} continues the tree head over {size:,} batches that was kept "
                "elsewhere: one run cannot show it."
            )
    if run or not partition.frontier.size:
        return
    covered = max(kept_size or 0, 0 if shown is None else shown.head.size)
    if covered < partition.frontier.size:
        count = partition.frontier.size - covered
        yield (
            f"That nothing follows in partition {partition.number}: its last {count:,} batches are under no tree head, "
            "so cutting them off would not be noticed."
        )
    if kept_size is not None and kept_size < partition.frontier.size:
        yield (
            f"That the {partition.frontier.size - kept_size:,} batches of partition {partition.number} after the tree head "
            "kept elsewhere were not replaced or cut off by a holder of the keys."
        )
