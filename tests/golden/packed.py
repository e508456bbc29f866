"""A home and two bundles of the first version that stores records in less room, kept for ever.

Six steps of a run and 40 single jobs: the manifests of each were signed together, and so were the reports of the single jobs that
arrived together. Their decisions lie with their commits, and their records are packed. The archive was made once, by

    python -m tests.golden.packed

which draws keys, ids and times anew: it is not made again, because what it has to show is that these very bytes verify.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import detent
from tests.golden.archives import pack

ARCHIVE = "packed.tar.gz"
STEPS = 6
JOBS = 40


@detent.task(cache=False)
def echo(x: int) -> int:
    """Give back the argument."""
    return x


@detent.flow
def fan() -> list[int]:
    """Steps that are ready together."""
    return [echo(number) for number in range(STEPS)]


def main() -> None:
    """Make the archive."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        os.environ["XDG_STATE_HOME"] = str(place / "state")
        run = detent.run(fan.contract(), home=place / "home", workers=1)
        with detent.Client(place / "home", workers=1) as client:
            for handle in client.submit_many(echo, [(number,) for number in range(JOBS)]):
                handle.result()
        pack(ARCHIVE, place, run.run_id)


if __name__ == "__main__":
    main()
