"""A ledger with many ended and many queued jobs: how long it takes to open, and what memory the owner holds.

``--full`` makes 1,000,000 ended and 100,000 queued jobs (some gigabytes, several minutes); without it a tenth of that. The
memory of the owner must not depend on how many jobs have ended: the first line measures it with a hundredth of them.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from bench.owner_rate import claim_jobs, finish_job, manifests, open_bench_home, submit_job
from detent.owner.home import Home
from detent.owner.lock import try_lock
from detent.owner.wiring import Parts, open_owned

BATCH = 500


def build(directory: Path, ended: int, queued: int) -> float:
    """Make the ledger; returns the seconds it took."""
    owned, key = open_bench_home(directory)
    owner = owned.owners[0]
    begun = time.perf_counter()
    for first in range(0, ended, BATCH):
        signed = manifests(key, owned.trust.origin, min(BATCH, ended - first), first)
        owner.call([submit_job(manifest) for manifest in signed])
        grants = owner.call([claim_jobs(BATCH)])[0].grants
        owner.call([finish_job(grant) for grant in grants])
    for first in range(ended, ended + queued, BATCH):
        signed = manifests(key, owned.trust.origin, min(BATCH, ended + queued - first), first)
        owner.call([submit_job(manifest) for manifest in signed])
    took = time.perf_counter() - begun
    owned.close()
    return took


def measure(directory: str, send: Connection) -> None:
    """Open the ledger in a fresh process: seconds until it answers, and its peak memory in MiB."""
    home = Home(Path(directory) / ".detent")
    begun = time.perf_counter()
    held = try_lock(home.lock)
    if held is None:
        sys.exit("the bench home is locked")
    owned = open_owned(
        home, held, Parts(), environment={"XDG_STATE_HOME": str(Path(directory) / "state")}, listen=False
    )
    live = owned.owners[0].look(lambda kernel: len(kernel.jobs)).result()
    took = time.perf_counter() - begun
    send.send((took, live, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    owned.close()


def report(name: str, ended: int, queued: int) -> None:
    """Build, open and print one line."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("DETENT_BENCH_DIR")) as place:
        directory = Path(place)
        built = build(directory, ended, queued)
        size = (directory / ".detent" / "ledger.db").stat().st_size / 2**20
        receive, send = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("spawn").Process(target=measure, args=(place, send))
        child.start()
        took, live, memory = receive.recv()
        child.join()
    records = (3 * ended + queued) / built
    print(
        f"  {name}: {ended:>9,} ended, {queued:>7,} queued ({size:,.0f} MiB, built at {records:,.0f} records/s): "
        f"opens in {took:.1f} s with {live:,} live jobs, peak {memory:,.0f} MiB"
    )


def main() -> None:
    ended, queued = (1_000_000, 100_000) if "--full" in sys.argv else (100_000, 10_000)
    print("opening a long ledger (goal: seconds, and memory by live jobs alone)")
    report("few ended ", ended // 100, queued)
    report("many ended", ended, queued)


if __name__ == "__main__":
    main()
