"""The owner against the raw ceiling: records a second, made durable, at batches of 100 and of 1.

The ceiling is a bare loop: encode a record, chain it by SHA-256, sign it, insert it and upsert its job's row, one
transaction for each batch, SQLite in WAL mode with ``synchronous=FULL``. It decides nothing. The owner does all of what
Detent promises: it stamps, checks every request against the state machine, keeps leases and queues, chains, builds both
Merkle trees, signs the batch, appends with compare-and-swap, and answers after the commit.

Jobs live whole lives here: submitted, leased, finished; three records each. Manifests are signed before the clock starts,
because that is the submitter's work; the last line shows the rate with that included.

The owner runs twice: with the kernel's plain queue, and with the scheduler, which stores a decision record for every
admission and every placement. What these cost is the difference between the two.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from detent.canon import SigningKey, encode_trusted, sha256
from detent.kernel import Claim, Finish, Grant, Manifest, Submit, VerifiedManifest, plain_queue
from detent.kernel.partition_state import MakeQueue
from detent.kernel.policy import UNLIMITED_QUOTA
from detent.ledger import sign_manifest
from detent.owner.home import make_home
from detent.owner.lock import try_lock
from detent.owner.owner import Owner
from detent.owner.turn import Make
from detent.owner.wiring import OwnedHome, Parts, begin_ledger, open_owned, signing_key
from detent.scheduling import Scheduler

RAW_SCHEMA = """
create table records (position integer primary key, body blob not null, hash blob not null, sig blob not null);
create table jobs (job_id text primary key, state text not null, seq integer not null, head blob not null) without rowid;
"""


def raw_rate(directory: Path, batch: int, total: int) -> float:
    """Records a second of the bare loop."""
    connection = apsw.Connection(str(directory / f"raw-{batch}.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute(RAW_SCHEMA)
    key = SigningKey(bytes(range(32)))
    head = bytes(32)
    states = ("QUEUED", "RUNNING", "SUCCEEDED")
    begun = time.perf_counter()
    for first in range(0, total, batch):
        records, jobs = [], []
        for position in range(first, min(first + batch, total)):
            job, seq = divmod(position, 3)
            body = encode_trusted(raw_body(f"job-{job:08d}", seq, states[seq], head))
            head = sha256(body)
            records.append((position, body, head, key.sign(body)))
            jobs.append((f"job-{job:08d}", states[seq], seq, head))
        connection.execute("begin immediate")
        connection.executemany("insert into records values (?, ?, ?, ?)", records)
        connection.executemany(
            "insert into jobs values (?, ?, ?, ?) on conflict (job_id) do update set "
            "state = excluded.state, seq = excluded.seq, head = excluded.head",
            jobs,
        )
        connection.execute("commit")
    rate = total / (time.perf_counter() - begun)
    connection.close()
    return rate


def raw_body(job_id: str, seq: int, state: str, head: bytes) -> dict[str, object]:
    """A record of the size and shape that ours have."""
    return {
        "kind": "transition",
        "tenant_id": "bench",
        "job_id": job_id,
        "attempt_id": 0,
        "transition_seq": seq,
        "from_state": "RUNNING",
        "to_state": state,
        "evidence_ref": "sha256:" + head.hex(),
        "job_manifest_hash": head,
        "idempotency_key": head,
        "request_digest": head,
        "lease_id": head,
        "dispatch": False,
        "reason_code": "COMPLETED",
        "tick": 1_790_000_000_000,
        "partition_id": 0,
        "quota_policy_hash": head,
        "quota_verdict": "OK",
        "batch_id": head,
        "batch_index": 0,
        "batch_len": 1,
        "prev_chain_hash": head,
        "signer_key_id": head,
    }


def open_bench_home(directory: Path, make_queue: MakeQueue = Scheduler) -> tuple[OwnedHome, SigningKey]:
    """A home with room in its queue, owned by this process."""
    home = make_home(directory / ".detent", begin_ledger)
    config = home.path / "config.toml"
    config.write_text(
        config.read_text()
        .replace("capacity_per_class = 256", "capacity_per_class = 1000000")
        .replace("capacity_total = 2560", "capacity_total = 1000000")
    )
    held = try_lock(home.lock)
    if held is None:
        sys.exit("the bench home is locked")
    parts = Parts(make_queue=make_queue)
    owned = open_owned(home, held, parts, environment={"XDG_STATE_HOME": str(directory / "state")}, listen=False)
    return owned, signing_key(home, owned.trust, "manifest", 1)


def manifests(key: SigningKey, origin: str, jobs: int, first: int = 0) -> list[VerifiedManifest]:
    """Signed manifests, one for each job."""
    quota = UNLIMITED_QUOTA.hash()
    return [
        sign_manifest(
            Manifest("bench", f"job-{number:08d}", "task", bytes(32), 5, quota, 0, origin=origin),
            key,
        )
        for number in range(first, first + jobs)
    ]


def live(owner: Owner, signed: Sequence[VerifiedManifest], batch: int) -> int:
    """Take jobs through their whole lives, ``batch`` records at a time; returns the number of records."""
    for first in range(0, len(signed), batch):
        part = signed[first : first + batch]
        owner.call([submit_job(manifest) for manifest in part])
        grants = owner.call([claim_jobs(len(part))])[0].grants
        owner.call([finish_job(grant) for grant in grants])
    return 3 * len(signed)


def submit_job(manifest: VerifiedManifest) -> Make:
    return lambda tick: Submit(tick, manifest)


def claim_jobs(limit: int) -> Make:
    return lambda tick: Claim(tick, "bench", limit)


def finish_job(grant: Grant) -> Make:
    return lambda tick: Finish(tick, grant.job_id, grant.lease_id)


def owner_rate(
    directory: Path, batch: int, total: int, *, make_queue: MakeQueue = Scheduler, sign_inside: bool = False
) -> float:
    """Records a second of the owner."""
    directory.mkdir()
    owned, key = open_bench_home(directory, make_queue)
    jobs = total // 3
    signed = [] if sign_inside else manifests(key, owned.trust.origin, jobs)
    begun = time.perf_counter()
    if sign_inside:
        signed = manifests(key, owned.trust.origin, jobs)
    records = live(owned.owners[0], signed, batch)
    rate = records / (time.perf_counter() - begun)
    owned.close()
    return rate


def best(measure: Callable[[int], float], repeats: int) -> float:
    """The median of a few runs."""
    gc.collect()
    return statistics.median(measure(number) for number in range(repeats))


def main() -> None:
    quick = "--quick" in sys.argv
    sizes = {100: 6_000 if quick else 30_000, 1: 600 if quick else 3_000}
    repeats = 3
    place = os.environ.get("DETENT_BENCH_DIR")
    with tempfile.TemporaryDirectory(dir=place) as name:
        directory = Path(name)
        print("durable records a second, one process, SQLite WAL synchronous=FULL (median of 3)")
        for batch, total in sizes.items():
            raw: list[float] = []
            ours: list[float] = []
            decided: list[float] = []
            for number in range(repeats):
                where = directory / f"{batch}-{number}"
                where.mkdir()
                raw.append(raw_rate(where, batch, total))
                ours.append(owner_rate(where / "owner", batch, total, make_queue=plain_queue))
                decided.append(owner_rate(where / "decided", batch, total))
            ceiling, owner, explained = (statistics.median(side) for side in (raw, ours, decided))
            goal = 0.5 if batch == 100 else 0.6
            print(
                f"  batch {batch:>3}: raw {ceiling:>8,.0f}   owner {owner:>8,.0f}   ratio {owner / ceiling:.2f} (goal {goal:.2f})"
            )
            cost = 1 - explained / owner
            print(
                f"             with the scheduler's decision records {explained:>8,.0f}   ratio {explained / ceiling:.2f}, "
                f"they cost {cost:.0%} (goal 25%)"
            )
        inside = best(lambda n: owner_rate(directory / f"signed-{n}", 100, sizes[100], sign_inside=True), 1)
        print(f"  batch 100 with the submitter's signatures in the same process: {inside:,.0f}")


if __name__ == "__main__":
    main()
