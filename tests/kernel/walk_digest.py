"""Print the digest of some walks: every record, event, refusal and checkpoint byte. Run in processes of its own."""

from __future__ import annotations

import hashlib
import sys

from detent.canon import encode
from detent.kernel import checkpoint
from tests.kernel.walk import walked

SEEDS = range(12)
STEPS = 120


def digest() -> str:
    """One digest over all that the walks decided."""
    hasher = hashlib.sha256()
    for seed in SEEDS:
        walk = walked(seed, STEPS)
        for outcome in walk.outcomes:
            for record in outcome.records:
                hasher.update(record.body + (record.evidence or b""))
            for event in outcome.events:
                hasher.update(encode(event.to_map()))
            if outcome.error is not None:
                hasher.update(outcome.error.encode())
        hasher.update(checkpoint(walk.kernel))
    return hasher.hexdigest()


if __name__ == "__main__":
    sys.stdout.write(digest())
