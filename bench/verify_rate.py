"""How fast a ledger is verified, beside bare Ed25519 verification: one run, printed as ratios.

Each job leaves three records (submitted, leased, succeeded) and one manifest signature; each batch leaves one signature.
Two ledgers: commits of 100 records, where the walk over the records weighs most, and commits of one record, where the
signatures do. Each is verified by one thread, as `verify_bundle` does by itself, and with signatures spread over the
processors, as `detent verify` does. ``--full`` makes the ledgers ten times as long; memory must stay where it is.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from detent.canon import SigningKey, sha256, verify
from detent.inspect.signatures import signature_checkers
from detent.kernel import (
    ChangeTrust,
    Claim,
    Command,
    Finish,
    Job,
    Kernel,
    KernelConfig,
    Manifest,
    MemoryHistory,
    Outcome,
    QueuePolicy,
    RaiseEpoch,
    Record,
    Submit,
    encode_commands,
)
from detent.ledger import (
    NO_BATCH,
    BatchItem,
    Frontier,
    HeaderItem,
    Item,
    KeyEntry,
    TrustConfig,
    seal,
    sign_manifest,
    sign_trust,
    verify_bundle,
    write_bundle,
)
from detent.ledger.book import verify_each
from detent.store.spill import SpilledHeads

ORIGIN = "detent/bench"
ROLES = ("root", "manifest", "transition", "log")
GOAL = 0.6
GOAL_MIB = 300


def key(role: str) -> SigningKey:
    return SigningKey(sha256(role.encode()))


class Forgetful(MemoryHistory):
    """A history for jobs that are not asked about again."""

    def add_record(self, record: Record) -> None: ...
    def end_job(self, job: Job) -> None: ...


class Writer:
    """An owner in a few lines: applies commands, seals a batch whenever enough records wait."""

    def __init__(self, records_per_batch: int) -> None:
        config = KernelConfig(queue=QueuePolicy(1_000_000, 1_000_000))
        self.kernel = Kernel(config, history=Forgetful())
        self.records_per_batch = records_per_batch
        self.owner = key("transition")
        self.submitter = key("manifest")
        self.frontier = Frontier()
        self.leaf = NO_BATCH
        self.position = 0
        self.commands: list[Command] = []
        self.records: list[tuple[bytes, bytes | None]] = []
        self.first_tick = 0
        entries = tuple(KeyEntry(key(role).public_key, role) for role in ROLES)
        signed = sign_trust(TrustConfig(ORIGIN, entries), key("root"))
        self.root = signed.digest()
        self.genesis: list[Command] = [
            RaiseEpoch(0, 1, self.owner.key_id, config.encode()),
            ChangeTrust(0, 1, signed.digest(), signed.envelope()),
        ]

    def items(self, jobs: int) -> Iterator[Item]:
        """The whole ledger: waves of jobs that are submitted, leased and finished."""
        yield HeaderItem(ORIGIN, 1)
        for command in self.genesis:
            self.apply(command)
        yield self.commit()
        for first in range(0, jobs, 100):
            numbers = range(first, min(first + 100, jobs))
            tick = first
            for number in numbers:
                self.apply(Submit(tick, sign_manifest(self.manifest(number), self.submitter)))
                yield from self.full()
            leases = []
            for _ in numbers:
                leases += self.apply(Claim(tick + 1, "worker", 1)).grants
                yield from self.full()
            for lease in leases:
                self.apply(Finish(tick + 2, lease.job_id, lease.lease_id, detail_digest=sha256(lease.lease_id)))
                yield from self.full()
        if self.commands:
            yield self.commit()

    def manifest(self, number: int) -> Manifest:
        job_id = f"job-{number:09d}"
        quota = self.kernel.config.quota_policies[0].hash()
        return Manifest("acme", job_id, "task", sha256(job_id.encode()), 5, quota, 0, origin=ORIGIN)

    def apply(self, command: Command) -> Outcome:
        out = self.kernel.apply(command)
        if not self.commands:
            self.first_tick = self.kernel.tick
        self.commands.append(command)
        self.records += [(record.body, record.evidence) for record in out.records]
        return out

    def full(self) -> Iterator[Item]:
        if len(self.records) >= self.records_per_batch:
            yield self.commit()

    def commit(self) -> Item:
        blob = encode_commands(self.commands)
        sealed = seal(
            self.owner,
            origin=ORIGIN,
            partition=0,
            epoch=1,
            batch_no=self.frontier.size,
            prev_batch_hash=self.leaf,
            commands=blob,
            command_count=len(self.commands),
            records=[body for body, _ in self.records],
            first_position=self.position,
            first_tick=self.first_tick,
            last_tick=self.kernel.tick,
        )
        item = BatchItem(0, sealed.body, sealed.signature, blob, self.records)
        self.leaf = sealed.leaf_hash
        self.position += len(self.records)
        self.frontier.append(sealed.leaf_hash)
        self.kernel.drain_touched()
        self.commands, self.records = [], []
        return item


def bare_rate(clock: Callable[[], float], seconds: float = 1.0) -> float:
    """Ed25519 verifications a second, in a plain loop over messages of a manifest's size."""
    signer = key("manifest")
    messages = [sha256(bytes([number])) * 10 for number in range(200)]
    signed = [(signer.public_key, message, signer.sign(message)) for message in messages]
    count, begun = 0, clock()
    while clock() - begun < seconds:
        for one in signed:
            if not verify(*one):
                raise SystemExit("a good signature does not verify")
        count += len(signed)
    return count / (clock() - begun)


def measure(path: str, root: bytes, spread: bool, send: Connection) -> None:
    """Verify in a fresh process: signatures and records a second, the bare rate around it, peak memory in MiB.

    One thread is measured by the processor's time, so that a busy machine does not blur the ratio; several by the clock.
    """
    clock = time.perf_counter if spread else time.process_time
    bare = bare_rate(clock)
    begun = clock()
    with Path(path).open("rb") as stream, SpilledHeads() as heads, signature_checkers() as checkers:
        report = verify_bundle(stream, root, heads=heads, verify_many=checkers if spread else verify_each)
    elapsed = clock() - begun
    bare = (bare + bare_rate(clock)) / 2
    if not report.ok:
        raise SystemExit(f"an untouched ledger is red: {report.findings[:3]}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    send.send((report.counts["signatures"] / elapsed, report.counts["records"] / elapsed, bare, peak))


def measured(path: Path, root: bytes, *, spread: bool) -> tuple[float, float, float, float]:
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(str(path), root, spread, send))
    process.start()
    send.close()
    result: tuple[float, float, float, float] = receive.recv()
    process.join()
    return result


def main() -> None:
    scale = 10 if "--full" in sys.argv else 1
    with tempfile.TemporaryDirectory() as folder:
        for records_per_batch, jobs in ((100, 20_000 * scale), (1, 4_000 * scale)):
            path = Path(folder) / f"{records_per_batch}.detent"
            writer = Writer(records_per_batch)
            with path.open("wb") as out:
                out.writelines(write_bundle(writer.items(jobs)))
            size = path.stat().st_size / 1e6
            print(f"batches of {records_per_batch}: {jobs} jobs, {writer.position} records, {size:.0f} MB")
            for name, spread in (("one thread", False), ("all processors", True)):
                signatures, records, bare, peak = measured(path, writer.root, spread=spread)
                print(
                    f"  {name:15} {signatures:7.0f} signatures/s, {signatures / bare:4.0%} of {bare:.0f} bare (goal {GOAL:.0%});"
                    f" {records:7.0f} records/s, {records / bare:4.0%}; {peak:.0f} MiB (goal below {GOAL_MIB})"
                )
            path.unlink()


if __name__ == "__main__":
    sys.path.insert(0, ".")
    main()
