"""How fast a ledger is verified, beside bare Ed25519 verification: one run, printed as ratios.

Each job leaves three records (submitted, leased, succeeded) and one manifest signature; each batch leaves one signature.
Two ledgers: commits of 100 records, where the walk over records weighs most, and commits of one record, where signatures
do. ``python bench/verify_rate.py [JOBS]``.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from detent.canon import SigningKey, sha256, verify
from detent.kernel import (
    ChangeTrust,
    Claim,
    Command,
    Finish,
    Kernel,
    KernelConfig,
    Manifest,
    QueuePolicy,
    RaiseEpoch,
    Submit,
    encode_commands,
)
from detent.ledger import (
    NO_BATCH,
    BatchItem,
    HeaderItem,
    HeadItem,
    Item,
    KeyEntry,
    TreeHead,
    TrustConfig,
    Frontier,
    seal,
    sign_head,
    sign_manifest,
    sign_trust,
    tree_origin,
    verify_bundle,
    write_bundle,
)
from detent.store.spill import SpilledHeads

ORIGIN = "detent/bench"
ROLES = ("root", "manifest", "transition", "log")
JOBS_DEFAULT = 20_000
TARGET = 0.6


def key(role: str) -> SigningKey:
    return SigningKey(sha256(role.encode()))


class Writer:
    """An owner in a few lines: applies commands, seals a batch whenever enough records wait."""

    def __init__(self, records_per_batch: int) -> None:
        config = KernelConfig(queue=QueuePolicy(1_000_000, 1_000_000))
        self.kernel = Kernel(config, history=_Forgetful())
        self.records_per_batch = records_per_batch
        self.owner = key("transition")
        self.frontier = Frontier()
        self.leaf = NO_BATCH
        self.position = 0
        self.waiting: tuple[list[Command], list[tuple[bytes, bytes | None]], list[int]] = ([], [], [])
        entries = tuple(KeyEntry(key(role).public_key, role) for role in ROLES)
        signed = sign_trust(TrustConfig(ORIGIN, entries), key("root"))
        self.root = signed.digest()
        self.genesis = [
            RaiseEpoch(0, 1, self.owner.key_id, config.encode()),
            ChangeTrust(0, 1, signed.digest(), signed.envelope()),
        ]

    def items(self, jobs: int) -> Iterator[BatchItem]:
        for command in self.genesis:
            self.apply(command)
        yield self.commit()
        group = max(1, self.records_per_batch)
        for first in range(0, jobs, group):
            numbers = range(first, min(first + group, jobs))
            for number in numbers:
                yield from self.put(Submit(number, self.manifest(number)))
            leases = []
            for number in numbers:
                out = self.apply(Claim(number, "worker", 1))
                leases += out.grants
                yield from self.full()
            for lease in leases:
                yield from self.put(Finish(jobs, lease.job_id, lease.lease_id))
        if self.waiting[0]:
            yield self.commit()

    def manifest(self, number: int):  # type: ignore[no-untyped-def]
        job_id = f"job-{number:09d}"
        quota = self.kernel.config.quota_policies[0].hash()
        return sign_manifest(
            Manifest("acme", job_id, "task", sha256(job_id.encode()), 5, quota, number), key("manifest")
        )

    def put(self, command: Command) -> Iterator[BatchItem]:
        self.apply(command)
        yield from self.full()

    def full(self) -> Iterator[BatchItem]:
        if len(self.waiting[1]) >= self.records_per_batch:
            yield self.commit()

    def apply(self, command: Command):  # type: ignore[no-untyped-def]
        out = self.kernel.apply(command)
        commands, records, ticks = self.waiting
        commands.append(command)
        records += [(record.body, record.evidence) for record in out.records]
        ticks.append(self.kernel.tick)
        return out

    def commit(self) -> BatchItem:
        commands, records, ticks = self.waiting
        self.waiting = ([], [], [])
        blob = encode_commands(commands)
        sealed = seal(
            self.owner,
            origin=ORIGIN,
            partition=0,
            epoch=1,
            batch_no=self.frontier.size,
            prev_batch_hash=self.leaf,
            commands=blob,
            command_count=len(commands),
            records=[body for body, _ in records],
            first_position=self.position,
            first_tick=ticks[0],
            last_tick=ticks[-1],
        )
        self.leaf = sealed.leaf_hash
        self.position += len(records)
        self.frontier.append(sealed.leaf_hash)
        self.kernel.drain_touched()
        return BatchItem(0, sealed.body, sealed.signature, blob, records)


class _Forgetful:
    """A history for jobs that nobody asks about again."""

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        return lambda *_: None


def bundle(path: Path, jobs: int, records_per_batch: int) -> bytes:
    """Write a bundle; returns its root."""
    writer = Writer(records_per_batch)
    batches = path.with_suffix(".batches")
    # The head's size and root come first in the file and are known last, so the ledger is made twice.
    for _ in writer.items(jobs):
        pass
    name = tree_origin(ORIGIN, 0)
    note = sign_head(TreeHead(name, writer.frontier.size, writer.frontier.root()), name, key("log"))

    def items() -> Iterator[Item]:
        yield HeaderItem(ORIGIN, 1)
        yield HeadItem(0, note)
        yield from Writer(records_per_batch).items(jobs)

    with path.open("wb") as out:
        out.writelines(write_bundle(items()))
    batches.unlink(missing_ok=True)
    return writer.root


def bare_rate(seconds: float = 1.0) -> float:
    """Ed25519 verifications a second, in a plain loop over messages of a manifest's size."""
    signer = key("manifest")
    messages = [sha256(bytes([number])) * 10 for number in range(200)]
    signed = [(signer.public_key, message, signer.sign(message)) for message in messages]
    count, begin = 0, perf_counter()
    while perf_counter() - begin < seconds:
        for one in signed:
            if not verify(*one):
                raise SystemExit("a good signature does not verify")
        count += len(signed)
    return count / (perf_counter() - begin)


def main(jobs: int) -> int:
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for records_per_batch, count in ((100, jobs), (1, max(1, jobs // 4))):
            path = Path(folder) / f"{records_per_batch}.detent"
            root = bundle(path, count, records_per_batch)
            before = bare_rate()
            begin = perf_counter()
            with path.open("rb") as stream, SpilledHeads() as heads:
                report = verify_bundle(stream, root, heads=heads)
            elapsed = perf_counter() - begin
            bare = (before + bare_rate()) / 2
            if not report.ok:
                raise SystemExit(f"an untouched ledger is red: {report.findings[:3]}")
            signatures, records = report.counts["signatures"] / elapsed, report.counts["records"] / elapsed
            megabytes = path.stat().st_size / 1e6
            print(
                f"batches of {records_per_batch}: {report.counts['records']} records, {megabytes:.0f} MB, {elapsed:.2f} s"
            )
            print(f"  bare Ed25519       {bare:9.0f} signatures/s")
            print(
                f"  verify             {signatures:9.0f} signatures/s  {signatures / bare:6.1%} of bare (goal {TARGET:.0%})"
            )
            print(f"                     {records:9.0f} records/s     {records / bare:6.1%} of bare")
            missed += signatures < TARGET * bare
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory          {peak:9.0f} MiB (goal: below 300)")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else JOBS_DEFAULT))
