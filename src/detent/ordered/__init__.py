"""Ordered runs: compute out of order, commit strictly in order, each exactly once.

Start reading at `states` (which moves are legal), then `run` (which events there are and what follows from each), then
`compute_lane` and `commit_lane`, and `resume` for how a run is taken up again. Nothing here has a clock, a thread or a file; the runtime around it has.
"""

from __future__ import annotations

from detent.ordered.actions import (
    Action,
    Batch,
    Boundary,
    Commit,
    Complete,
    Discard,
    Dispatch,
    Envelope,
    Fatal,
    Snapshot,
    Summary,
    Withdraw,
    WriteAgain,
)
from detent.ordered.config import FAILURE_POLICIES, Chunk, OrderedConfig, Window, chunk_job_id, chunk_of, plan_windows
from detent.ordered.digests import ChunkOutcomes, Discovery, ItemProof, discover, item_leaf
from detent.ordered.resume import resume_after
from detent.ordered.run import OrderedRun
from detent.ordered.seq_ledger import SeqLedger
from detent.ordered.states import MOVES, RULES, TERMINAL, SeqState

__all__ = [
    "FAILURE_POLICIES",
    "MOVES",
    "RULES",
    "TERMINAL",
    "Action",
    "Batch",
    "Boundary",
    "Chunk",
    "ChunkOutcomes",
    "Commit",
    "Complete",
    "Discard",
    "Discovery",
    "Dispatch",
    "Envelope",
    "Fatal",
    "ItemProof",
    "OrderedConfig",
    "OrderedRun",
    "SeqLedger",
    "SeqState",
    "Snapshot",
    "Summary",
    "Window",
    "Withdraw",
    "WriteAgain",
    "chunk_job_id",
    "chunk_of",
    "discover",
    "item_leaf",
    "plan_windows",
    "resume_after",
]
