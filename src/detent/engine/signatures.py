"""Many signatures at once: a verification gathers them, and this checks them on all processors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from detent.ledger.book import Signed, VerifyMany, verify_each

THREADS_MAX = 8


@contextmanager
def signature_threads() -> Iterator[VerifyMany]:
    """Signatures are checked on all processors: the library lets go of the interpreter while it computes."""
    workers = min(THREADS_MAX, os.cpu_count() or 1)
    if workers == 1:
        yield verify_each
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="detent-verify") as pool:

        def verify_many(signed: Sequence[Signed]) -> list[bool]:
            share = -(-len(signed) // workers)
            parts = [signed[start : start + share] for start in range(0, len(signed), share)]
            return [answer for answers in pool.map(verify_each, parts) for answer in answers]

        yield verify_many
