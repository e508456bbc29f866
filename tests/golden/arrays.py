"""A home and two bundles of the first version whose mapped steps share jobs, kept for ever.

Two runs of one flow over four numbers each. The elements of the first share a job. The second takes one of them by itself and computes
three in a job of its own: one is settled at once, one fails and succeeds in the next attempt, and one has a value so large that it is
stored as content. All print. The archive was made once, in a directory with a copy of ``tests``, by

    python -m tests.golden.arrays

which draws keys, ids and times anew: it is not made again, because what it has to show is that these very bytes verify.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import detent
from tests.golden.archives import pack

ARCHIVE = "arrays.tar.gz"
REUSED, RETRIED, LARGE = 4, 6, 5_000
FIRST = (1, 2, 3, REUSED)
SECOND = (REUSED, 5, RETRIED, LARGE)


@detent.task(retries=1, retry_on="USER_CODE_ERROR")
def repeated(n: int) -> str:
    """Two letters n times; for one number only in the second attempt."""
    print("repeating", n)  # noqa: T201 - for the log of the element
    if n == RETRIED and detent.context().attempt == 1:
        raise ValueError(f"{n} does not fit yet")
    return "ab" * n


@detent.flow
def mapped(numbers: list[int]) -> list[str]:
    """Elements that share jobs."""
    return repeated.map(numbers, chunk=4)


def main() -> None:
    """Make the archive."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        os.environ["XDG_STATE_HOME"] = str(place / "state")
        first, second = (
            detent.run(mapped.contract(list(numbers)), home=place / "home", workers=1) for numbers in (FIRST, SECOND)
        )
        assert first.result() + second.result() == ["ab" * number for number in FIRST + SECOND]
        pack(ARCHIVE, place, second.run_id)


if __name__ == "__main__":
    main()
