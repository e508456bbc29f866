"""Ledgers for tests, in memory: the kernel decides, `seal` signs, the tree grows. No engine, no store.

`Builder` plays scenarios. What it wrote stays available as plain parts (`RawCommit`), so that a tamper test can change any
of them and, playing an attacker with the keys, seal everything again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any

from detent.access.certificate import Certificate, Enrolment, issue, prove
from detent.canon import SigningKey, decode, encode, sha256
from detent.canon.merkle import Tree, leaf_hash
from detent.kernel import (
    AdvanceTick,
    Cancel,
    ChangeTrust,
    Claim,
    Command,
    EndRun,
    EnrollWorker,
    Erase,
    Finish,
    Grant,
    Job,
    Kernel,
    KernelConfig,
    Manifest,
    Operate,
    Outcome,
    RaiseEpoch,
    RetireWorker,
    ReuseRun,
    ReuseStep,
    StartRun,
    Submit,
    encode_commands,
    partition_of,
    plain_queue,
)
from detent.kernel.partition_state import MakeQueue
from detent.kernel.run import Run
from detent.ledger import (
    NO_BATCH,
    Frontier,
    KeyEntry,
    Report,
    TreeHead,
    Trust,
    TrustConfig,
    seal,
    sign_head,
    sign_manifest,
    sign_trust,
    tree_origin,
    verify_bundle,
    write_bundle,
)
from detent.ledger.batch import batch_leaf
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
)

ORIGIN = "detent/0123456789abcdef"
ROLES = ("root", "manifest", "transition", "result", "log", "witness")
RETRY_DELAY = 1_000


def key(name: str) -> SigningKey:
    """A key that is always the same for a name."""
    return SigningKey(sha256(f"seed of {name}".encode()))


def digest_of(name: str) -> bytes:
    return sha256(name.encode())


@dataclass
class RawCommit:
    """The parts of one commit before they are sealed."""

    partition: int
    epoch: int
    signer: SigningKey
    commands: bytes
    command_count: int
    records: list[tuple[bytes, bytes | None]]
    first_tick: int
    last_tick: int


@dataclass
class Sealed:
    """One partition's sealed batches and their tree."""

    items: list[BatchItem]
    leaves: list[bytes]

    @property
    def tree(self) -> Tree:
        return Tree(self.leaves)


def seal_commits(commits: Iterable[RawCommit], origin: str = ORIGIN) -> dict[int, Sealed]:
    """Seal commits as their signers would: chain, positions and tree from the beginning."""
    sealed: dict[int, Sealed] = {}
    positions: dict[int, int] = {}
    frontiers: dict[int, Frontier] = {}
    for commit in commits:
        part = sealed.setdefault(commit.partition, Sealed([], []))
        frontier = frontiers.setdefault(commit.partition, Frontier())
        bodies = [body for body, _ in commit.records]
        batch = seal(
            commit.signer,
            origin=origin,
            partition=commit.partition,
            epoch=commit.epoch,
            batch_no=len(part.items),
            prev_batch_hash=part.leaves[-1] if part.leaves else NO_BATCH,
            commands=commit.commands,
            command_count=commit.command_count,
            records=bodies,
            first_position=positions.get(commit.partition, 0),
            first_tick=commit.first_tick,
            last_tick=commit.last_tick,
        )
        nodes = b"".join(frontier.append(batch.leaf_hash))
        part.items.append(
            BatchItem(
                commit.partition,
                batch.body,
                batch.signature,
                commit.commands,
                list(commit.records),
                batch.leaf_hash,
                nodes,
            )
        )
        part.leaves.append(batch.leaf_hash)
        positions[commit.partition] = positions.get(commit.partition, 0) + len(bodies)
    return sealed


@dataclass
class Builder:
    """A ledger being written by an honest owner."""

    origin: str = ORIGIN
    partitions: int = 1
    config: KernelConfig = field(default_factory=KernelConfig)
    keys: dict[str, SigningKey] = field(default_factory=lambda: {role: key(role) for role in ROLES})
    tenants: tuple[str, ...] | None = None
    genesis: bool = True
    make_queue: MakeQueue = plain_queue

    def __post_init__(self) -> None:
        self.tick = 0
        self.commits: list[RawCommit] = []
        self.heads: list[HeadItem] = []
        self.contents: list[ContentItem] = []
        self.pending: list[tuple[list[Command], list[Any], list[int]]] = []
        self.kernels: list[Kernel] = []
        self.epochs = [0] * self.partitions
        self.rows: dict[str, Job] = {}
        self.row_ticks: dict[str, int] = {}
        self.runs: dict[tuple[int, str], Run] = {}
        self.grants: dict[str, Grant] = {}
        self.trust_versions: list[TrustConfig] = []
        self.signer = self.keys["transition"]
        for number in range(self.partitions):
            config = replace(self.config, partitions=self.partitions, partition_id=number)
            self.kernels.append(Kernel(config, make_queue=self.make_queue))
            self.pending.append(([], [], []))
        if self.genesis:
            self.begin()

    def begin(self) -> None:
        """The genesis batch of every partition: an owner, and version 1 of trust."""
        entries = [
            KeyEntry(self.keys[role].public_key, role, self.tenants if role == "manifest" else None) for role in ROLES
        ]
        config = TrustConfig(self.origin, tuple(entries))
        for number in range(self.partitions):
            self.raise_epoch(number)
        self.announce(config, self.keys["root"])
        self.commit()

    # -- commands --------------------------------------------------------------------------------------------------------

    def apply(self, command: Command, partition: int = 0) -> Outcome:
        kernel = self.kernels[partition]
        outcome = kernel.apply(command)
        for grant in outcome.grants:
            self.grants[grant.job_id] = grant
        if outcome.recorded:
            commands, records, ticks = self.pending[partition]
            commands.append(command)
            records += [(record.body, record.evidence) for record in outcome.records]
            ticks.append(kernel.tick)
        return outcome

    def commit(self) -> None:
        """Write what is waiting: one batch for each partition that has something."""
        for number, (commands, records, ticks) in enumerate(self.pending):
            if commands:
                self.commits.append(
                    RawCommit(
                        number,
                        self.epochs[number],
                        self.signer,
                        encode_commands(commands),
                        len(commands),
                        list(records),
                        ticks[0],
                        ticks[-1],
                    )
                )
            jobs, runs = self.kernels[number].drain_touched()
            self.rows |= {job.job_id: Job.decode(job.encode()) for job, _ in jobs}
            self.row_ticks |= {job.job_id: self.kernels[number].tick for job, _ in jobs}
            self.runs |= {(number, run.run_id): Run.decode(run.encode()) for run in runs}
            self.pending[number] = ([], [], [])

    def raise_epoch(self, partition: int = 0, config: KernelConfig | None = None) -> None:
        self.epochs[partition] += 1
        config = config or self.kernels[partition].config
        self.apply(RaiseEpoch(self.tick, self.epochs[partition], self.signer.key_id, config.encode()), partition)

    def announce(self, config: TrustConfig, *signers: SigningKey) -> None:
        """A version of trust, in every partition."""
        signed = sign_trust(config, *signers)
        self.trust_versions.append(config)
        for number in range(self.partitions):
            self.apply(ChangeTrust(self.tick, config.version, signed.digest(), signed.envelope()), number)

    def rotate(self, role: str, new: SigningKey) -> None:
        """Replace the key of a role: announced in the next batch, in force from the one after."""
        last = self.trust_versions[-1]
        position = self.size() + 1
        old = self.keys[role]
        entries = [
            replace(entry, to_position=position) if entry.public_key == old.public_key else entry for entry in last.keys
        ]
        entries.append(KeyEntry(new.public_key, role, from_position=position))
        self.announce(TrustConfig(self.origin, tuple(entries), last.version + 1, last.digest()), self.keys["root"])
        self.commit()
        self.keys[role] = new
        if role == "transition":
            self.signer = new
            for number in range(self.partitions):
                self.raise_epoch(number)
            self.commit()

    def size(self, partition: int = 0) -> int:
        return sum(1 for commit in self.commits if commit.partition == partition)

    def submit(self, job_id: str, *, tenant: str = "acme", run_id: str | None = None, **fields: Any) -> Outcome:
        defaults: dict[str, Any] = {
            "payload_digest": digest_of(f"payload of {job_id}"),
            "priority": 5,
            "quota_policy_hash": self.config.quota_policies[0].hash(),
            "origin": self.origin,
        }
        manifest = Manifest(tenant, job_id, "task", created_tick=self.tick, **(defaults | fields))
        command = Submit(self.tick, sign_manifest(manifest, self.keys["manifest"]), run_id)
        return self.apply(command, self.owner(job_id))

    def owner(self, job_id: str) -> int:
        return partition_of(job_id, self.partitions)

    def claim(self, limit: int = 100, replica: str = "worker-1", partition: int = 0) -> Outcome:
        return self.apply(Claim(self.tick, replica, limit), partition)

    def finish(self, job_id: str, *, ok: bool = True, **fields: Any) -> Outcome:
        reason = "COMPLETED" if ok else "CRASHED"
        values: dict[str, Any] = {
            "ok": ok,
            "reason_code": reason,
            "category": None if ok else "INTERNAL_ERROR",
        } | fields
        return self.apply(Finish(self.tick, job_id, self.grants[job_id].lease_id, **values), self.owner(job_id))

    def cancel(self, job_id: str, tenant: str = "acme") -> Outcome:
        return self.apply(Cancel(self.tick, tenant, job_id), self.owner(job_id))

    def advance(self, ticks: int) -> None:
        self.tick += ticks
        for number in range(self.partitions):
            self.apply(AdvanceTick(self.tick), number)

    def start_run(self, run_id: str, tenant: str = "acme", partition: int = 0) -> Outcome:
        digests = (digest_of("contract"), digest_of("bindings"), digest_of("inputs"))
        return self.apply(StartRun(self.tick, tenant, run_id, "demo", *digests, f"op-{run_id}"), partition)

    def reuse(self, run_id: str, step_id: str, job_id: str) -> Outcome:
        return self.apply(ReuseStep(self.tick, run_id, step_id, job_id, digest_of("ingredients")))

    def reuse_run(self, run_id: str, reused_run_id: str, *excepted: str) -> Outcome:
        return self.apply(ReuseRun(self.tick, run_id, reused_run_id, excepted, digest_of("ingredients")))

    def end_run(self, run_id: str, status: str = "completed", partition: int = 0) -> Outcome:
        return self.apply(EndRun(self.tick, run_id, status), partition)

    def erase(self, *digests: bytes) -> Outcome:
        self.contents = [item for item in self.contents if item.digest not in digests]
        return self.apply(Erase(self.tick, digests, self.kernels[0].erasures))

    def operate(self, action: str = "job.cancel", object_id: str = "job-1", **fields: Any) -> Outcome:
        """An operator's action, asked for by ann."""
        values: dict[str, Any] = {
            "principal_id": "p_ann",
            "credential_id": "dtk_1",
            "object_kind": "job",
            "outcome_code": "OK",
            "request_digest": digest_of(f"{action} {object_id}"),
            "tenant_id": "acme",
            "evidence": encode({"request_id": "req-1", "reason": "asked for"}),
        } | fields
        return self.apply(Operate(self.tick, action=action, object_id=object_id, **values))

    def allow_enrolment(self, enroll: SigningKey | None = None) -> None:
        """Announce a key that certifies workers: what the first server of a home does."""
        last = self.trust_versions[-1]
        self.keys["enroll"] = enroll or key("enroll")
        entry = KeyEntry(self.keys["enroll"].public_key, "enroll", from_position=self.size() + 1)
        config = TrustConfig(self.origin, (*last.keys, entry), last.version + 1, last.digest())
        self.announce(config, self.keys["root"])
        self.commit()

    def enrolment(self, worker_id: str, worker: SigningKey, **fields: Any) -> Enrolment:
        """A certificate and a proof, as honest server and worker make them but for what is changed."""
        values: dict[str, Any] = {"tenants": ("acme",), "pools": None, "labels": (), "issued_tick": self.tick} | fields
        certificate = Certificate(self.origin, worker_id, worker.public_key, **values)
        proof = prove(self.origin, digest_of("token"), bytes(16), worker)
        return Enrolment(issue(certificate, self.keys["enroll"]), proof)

    def enroll(self, worker_id: str = "gpu-1", worker: SigningKey | None = None, **fields: Any) -> Outcome:
        """Enrol a worker in every partition."""
        enrolment = self.enrolment(worker_id, worker or key(worker_id), **fields)
        outcomes = [self.apply(enroll_command(self.tick, enrolment), number) for number in range(self.partitions)]
        return outcomes[0]

    def retire(self, worker_id: str = "gpu-1", reason_code: str = "RETIRED_BY_USER") -> Outcome:
        outcomes = [
            self.apply(RetireWorker(self.tick, worker_id, reason_code), number) for number in range(self.partitions)
        ]
        return outcomes[0]

    def content(self, data: bytes) -> bytes:
        item = ContentItem(sha256(data), data)
        self.contents.append(item)
        return item.digest

    # -- what comes out --------------------------------------------------------------------------------------------------

    def sealed(self) -> dict[int, Sealed]:
        return seal_commits(self.commits, self.origin)

    def head(self, partition: int = 0, size: int | None = None, signer: SigningKey | None = None) -> str:
        """A signed tree head over the first ``size`` batches."""
        return sign_tree(self.sealed()[partition], partition, size, signer or self.keys["log"], self.origin)

    def keep_head(self) -> None:
        """Have every partition's present tree head go into the bundle."""
        for number, part in sorted(self.sealed().items()):
            self.heads.append(HeadItem(number, sign_tree(part, number, None, self.keys["log"], self.origin)))

    @property
    def root(self) -> str:
        """The digest to pin."""
        return f"sha256:{self.trust_versions[0].digest().hex()}"

    def trust(self) -> Trust:
        """The chain of trust of partition 0, as its records announce it."""
        announced = []
        for number, item in enumerate(self.sealed()[0].items):
            for body, evidence in item.records:
                if decode(body)["kind"] == "trust_changed" and evidence is not None:
                    announced.append((number, evidence))
        return Trust.build(announced)

    def header(self) -> HeaderItem:
        return HeaderItem(self.origin, self.partitions, exported_tick=self.tick)

    def items(self, *, rows: bool = False) -> list[Item]:
        """The whole ledger, as a bundle holds it; with stored rows, as a home is verified."""
        batches = [item for part in self.sealed().values() for item in part.items]
        if not rows:
            batches = [item._replace(leaf_hash=None, nodes=None) for item in batches]
        items: list[Item] = [self.header(), *self.heads, *batches, *self.contents]
        return items + (list(self.row_items()) if rows else [])

    def row_items(self) -> Iterator[Item]:
        for job_id in sorted(self.rows, key=str.encode):
            job = self.rows[job_id]
            yield JobItem(
                job_id,
                job.tenant_id,
                job.run_id,
                job.state,
                job.transition_seq,
                job.attempt_id,
                job.head,
                job.encode(),
                self.owner(job_id),
                self.row_ticks.get(job_id),
            )
        for (partition, run_id), run in sorted(self.runs.items()):
            columns = (run.tenant_id, run.name, run.status, run.started_tick, run.ended_tick)
            yield RunItem(partition, run_id, *columns, run.encode())

    def run_items(self, run_id: str, leave_out: Sequence[str] = ()) -> list[Item]:
        """The bundle of one run: its records and its jobs', owners and trust, each with its proof."""
        sealed = self.sealed()
        items: list[Item] = [HeaderItem(self.origin, self.partitions, "run", run_id, self.tick)]
        items += [HeadItem(number, self.head(number)) for number in sorted(sealed)]
        jobs = {job_id for job_id, job in self.rows.items() if job.run_id == run_id} - set(leave_out)
        for number, part in sorted(sealed.items()):
            items += partials(number, part, lambda fields: _of_run(fields, run_id, jobs))
        return items + list(self.contents)

    def bundle(self) -> bytes:
        return b"".join(write_bundle(self.items()))

    def verify(self, **options: Any) -> Report:
        return verify_bundle(BytesIO(self.bundle()), **({"root": self.root} | options))


def sign_tree(part: Sealed, partition: int, size: int | None, signer: SigningKey, origin: str = ORIGIN) -> str:
    tree = part.tree
    size = tree.size if size is None else size
    name = tree_origin(origin, partition)
    return sign_head(TreeHead(name, size, tree.root(size)), name, signer)


def partials(number: int, part: Sealed, wanted: Any) -> Iterator[PartialItem]:
    """Those batches that hold wanted records, with their paths."""
    tree = part.tree
    for batch_no, item in enumerate(part.items):
        inner = Tree([leaf_hash(body) for body, _ in item.records])
        records = [
            PartialRecord(index, body, evidence, inner.inclusion_path(index))
            for index, (body, evidence) in enumerate(item.records)
            if wanted(decode(body))
        ]
        if records:
            yield PartialItem(number, item.body, item.signature, records, tree.inclusion_path(batch_no))


def _of_run(fields: dict[str, Any], run_id: str, jobs: set[str]) -> bool:
    if fields["kind"] in {"owner_epoch", "trust_changed", "erased", "worker_enrolled", "worker_retired"}:
        return True
    if fields["kind"] == "operated":
        return bool(fields["object_id"] in {run_id, *jobs})
    if fields["kind"] in {"submitted", "transition"}:
        return fields["job_id"] in jobs
    return bool(fields.get("run_id") == run_id)


def enroll_command(tick: int, enrolment: Enrolment) -> EnrollWorker:
    """The command that puts a certificate on the ledger."""
    certificate = enrolment.signed.certificate
    return EnrollWorker(
        tick, certificate.worker_id, certificate.key_id, enrolment.certificate_digest, enrolment.evidence()
    )


def edit(body: bytes, **changes: Any) -> bytes:
    """A record's or batch's body with some fields changed."""
    fields = decode(body)
    for name, value in changes.items():
        fields[name] = value(fields[name]) if callable(value) else value
    changed = encode(fields)
    assert changed != body
    return changed


def resign(item: BatchItem, body: bytes, signer: SigningKey) -> BatchItem:
    """A batch item with another body, signed by any key."""
    signature = signer.sign(b"detent/batch/v1\x00" + body)
    return item._replace(body=body, signature=signature, leaf_hash=batch_leaf(body, signature))


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}


def lively() -> Builder:
    """A ledger in which about everything happens once: the scenario of most tests."""
    ledger = Builder()
    ledger.content(b"a payload that stays")
    gone = ledger.content(b"a payload that goes")
    ledger.submit("plain")
    ledger.submit("flaky", max_retries=1)
    ledger.submit("stuck", max_retries=0)
    ledger.submit("unwanted", priority=1)
    ledger.commit()
    ledger.tick += 5
    ledger.claim(3)
    ledger.commit()
    ledger.tick += 5
    ledger.finish("plain")
    ledger.finish("flaky", ok=False)
    ledger.cancel("unwanted")
    ledger.commit()
    ledger.start_run("run-1")
    ledger.submit("step-1", run_id="run-1")
    ledger.submit("step-2", run_id="run-1")
    ledger.commit()
    ledger.advance(RETRY_DELAY)
    ledger.claim(1)
    ledger.commit()
    ledger.tick += 1
    ledger.claim(10)
    ledger.finish("step-1")
    ledger.reuse("run-1", "step-0", "plain")
    ledger.commit()
    ledger.keep_head()
    ledger.tick += 1
    ledger.finish("step-2")
    ledger.end_run("run-1")
    ledger.commit()
    ledger.advance(40_000)
    ledger.erase(gone)
    ledger.commit()
    ledger.submit("waiting")
    ledger.submit("retrying")
    ledger.claim(2)
    ledger.finish("retrying", ok=False)
    ledger.commit()
    ledger.cancel("retrying")
    ledger.commit()
    ledger.keep_head()
    return ledger
