"""The signed history: trust, batch records, the Merkle tree and its heads, bundles, verification and replay.

The kernel builds record bodies; this room signs them, binds them and checks them. It reads no file, no clock and no store:
the caller brings the bytes.

Writing: `trust_config` and `trust` (who may sign), `signing` (manifests, results), `batch` (one signature for a commit),
`merkle` and `note` (the tree and its heads), `items` and `bundle` (the file). Reading: `verify`, which hands batches to
`batch_walk`, records to `record_walk`, rows and executors' reports to
`rows`, and gathers what they say in `findings` and `claims`; and `replay`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.canon.merkle import EMPTY_ROOT, Frontier, Tree, consistency_path, inclusion_path, root_of
from detent.ledger.batch import (
    NO_BATCH,
    BatchHeader,
    RecordProof,
    SealedBatch,
    batch_leaf,
    open_batch,
    parse_batch,
    record_proof,
    seal,
    tree_origin,
    verify_record_proof,
)
from detent.ledger.note import NoteInvalid, TreeHead, cosign, sign_head, verify_cosignature, verify_head
from detent.ledger.signing import (
    SignedResult,
    result_signature,
    sign_manifest,
    sign_own_manifests,
    sign_result,
    sign_results,
    signer_refusal,
    verify_manifest,
)
from detent.ledger.trust import Trust
from detent.ledger.trust_config import ROLES, KeyEntry, SignedTrust, TrustConfig, TrustFault, sign_trust

if TYPE_CHECKING:
    from detent.ledger.book import VerifyMany
    from detent.ledger.bundle import BundleWriter, read_items, write_bundle
    from detent.ledger.findings import FINDINGS, Finding, Report, TreeState
    from detent.ledger.heads import Heads, MemoryHeads
    from detent.ledger.items import (
        BatchItem,
        ContentItem,
        HeaderItem,
        HeadItem,
        Item,
        JobItem,
        PartialItem,
        PartialRecord,
        RunItem,
        batch_item,
        job_item,
        run_item,
    )
    from detent.ledger.replay import Difference, ReplayReport, replay_items
    from detent.ledger.verify import verify_bundle, verify_items

__all__ = [
    "EMPTY_ROOT",
    "FINDINGS",
    "NO_BATCH",
    "ROLES",
    "BatchHeader",
    "BatchItem",
    "BundleWriter",
    "ContentItem",
    "Difference",
    "Finding",
    "Frontier",
    "HeadItem",
    "HeaderItem",
    "Heads",
    "Item",
    "JobItem",
    "KeyEntry",
    "MemoryHeads",
    "NoteInvalid",
    "PartialItem",
    "PartialRecord",
    "RecordProof",
    "ReplayReport",
    "Report",
    "RunItem",
    "SealedBatch",
    "SignedResult",
    "SignedTrust",
    "Tree",
    "TreeHead",
    "TreeState",
    "Trust",
    "TrustConfig",
    "TrustFault",
    "VerifyMany",
    "batch_item",
    "batch_leaf",
    "consistency_path",
    "cosign",
    "inclusion_path",
    "job_item",
    "open_batch",
    "parse_batch",
    "read_items",
    "record_proof",
    "replay_items",
    "result_signature",
    "root_of",
    "run_item",
    "seal",
    "sign_head",
    "sign_manifest",
    "sign_own_manifests",
    "sign_result",
    "sign_results",
    "sign_trust",
    "signer_refusal",
    "tree_origin",
    "verify_bundle",
    "verify_cosignature",
    "verify_head",
    "verify_items",
    "verify_manifest",
    "verify_record_proof",
    "write_bundle",
]


def __getattr__(name: str) -> Any:
    """What most runs never need is loaded when it is first named."""
    if name in __all__:
        from detent.ledger import book, bundle, findings, heads, items, replay, verify  # noqa: PLC0415

        for module in (book, bundle, findings, heads, items, replay, verify):
            if name in vars(module):
                globals()[name] = vars(module)[name]
                return globals()[name]
    raise AttributeError(f"module 'detent.ledger' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
