"""What one verification keeps while it reads: findings, jobs, runs, signatures still to be checked, counts.

Signatures are gathered and checked together, a few hundred at a time, through a function that the caller may replace: a
shell with threads or processes can spread them. What a signature covers is used before it has been checked; that is safe because every
finding makes the report red, whenever it comes.

Where a verification stands: the batch whose records are being checked, the time they may carry, and the findings about them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import Final, TypeAlias

from detent.canon import verify
from detent.canon.crypto import signed_text
from detent.canon.late import dataclass
from detent.canon.merkle import Frontier
from detent.kernel import KernelConfig
from detent.ledger.batch import NO_BATCH
from detent.ledger.findings import Finding, Findings
from detent.ledger.fold import CancelBatch
from detent.ledger.heads import Heads, MemoryHeads
from detent.ledger.items import HeaderItem
from detent.ledger.operators import Operators
from detent.ledger.schema import VERDICTS
from detent.ledger.signing import ResultTable
from detent.ledger.tables import ErasedTable, JobTable, RunTable
from detent.ledger.templates import OwnerParts, owner_parts
from detent.ledger.tree_heads import HeadClaims
from detent.ledger.trust import Trust
from detent.ledger.trust_config import MANIFEST, KeyEntry, TrustFault
from detent.ledger.workers import EnrolledWorkers

SIGNATURES_GATHERED: Final = 256
GROUPS_ASKED_MAX: Final = 32
"""Groups whose answers have not been looked at; they are held in memory until then."""

Signed: TypeAlias = tuple[bytes, bytes, bytes]
"""Public key, message, signature."""
Otherwise: TypeAlias = tuple[str, str, int, int, int | None, str | None, bytes | None]
"""Code, message, partition, batch, position and job of a finding that has not been made yet; and the executor's key, of a result."""
VerifyMany: TypeAlias = Callable[[Sequence[Signed]], Iterable[bool]]
"""Asked about a group; the answers are looked at some groups later, so they need not be there when it returns."""


def verify_each(signed: Sequence[Signed]) -> list[bool]:
    """Check signatures one after the other."""
    return [verify(*one) for one in signed]


class Book:
    """The state of one verification that all partitions share."""

    def __init__(
        self,
        *,
        heads: Heads | None,
        findings: Findings,
        root: bytes | None,
        verify_many: VerifyMany,
        with_rows: bool = False,
    ) -> None:
        store = heads if heads is not None else MemoryHeads()
        self.findings = findings
        self.jobs = JobTable(store)
        self.runs = RunTable(store)
        self.erased = ErasedTable(store)
        self.results = ResultTable(store)
        self.operators = Operators()
        self.executors: Counter[bytes] = Counter()
        """Results by the id of the executor's key that signed them."""
        self.workers: dict[bytes, str] = {}
        """The worker's id, of each of these keys that is an enrolled worker's."""
        self.counts: Counter[str] = Counter()
        self.header: HeaderItem | None = None
        self.root = root
        self.with_rows = with_rows
        """Stored rows will follow: only then are the details of every job worth remembering."""
        self.unseen: tuple[str, bytes] | None = None
        """The run whose results a run took that is in the file alone, and the digest of its jobs."""
        self.versions: dict[int, bytes] = {}
        """Digest of each trust version, over all partitions."""
        self._verify_many = verify_many
        self._pending: dict[Signed, list[Otherwise]] = {}
        """Signatures to be checked, each once, and what depends on it: messages that were signed together share one."""
        self._asked: deque[tuple[Iterable[bool], list[list[Otherwise]]]] = deque()

    def signature(self, signed: Signed, otherwise: Otherwise) -> None:
        """Have a signature checked, sooner or later; ``otherwise`` are the parts of the finding if it does not verify."""
        self.counts["signatures"] += 1
        public_key, message, signature = signed
        text = signed_text(message, signature)
        if text is None:
            self._add(otherwise)
            return
        self._pending.setdefault((public_key, *text), []).append(otherwise)
        if len(self._pending) >= SIGNATURES_GATHERED:
            self._ask()
            if len(self._asked) > GROUPS_ASKED_MAX:
                self._hear()

    def check_signatures(self) -> None:
        """Have all that were gathered checked, and wait for every answer."""
        if self._pending:
            self._ask()
        while self._asked:
            self._hear()

    def _ask(self) -> None:
        self._asked.append((self._verify_many(list(self._pending)), list(self._pending.values())))
        self._pending = {}

    def _hear(self) -> None:
        answers, dependents = self._asked.popleft()
        for good, others in zip(answers, dependents, strict=True):
            if good is not True:
                for otherwise in others:
                    self._add(otherwise)

    def _add(self, otherwise: Otherwise) -> None:
        code, message, partition, batch_no, position, job_id, executor = otherwise
        self.findings.add(Finding(code, message, partition, batch_no, position, job_id))
        if executor is not None:
            self.executors[executor] -= 1


@dataclass(slots=True)
class Partition:
    """Where the reading of one partition stands."""

    number: int
    heads: HeadClaims
    origin: str
    """The name that the ledger's batches carry now; a copy changes it in the batch that says so."""
    frontier: Frontier = field(default_factory=Frontier)
    trust: Trust | None = None
    untrusted: bool = False
    """Trust could not be established; that has been said and is not said again for every batch."""
    genesis_seen: bool = False
    """The record that announces version 1 has been read; it was looked for before, to check the first signature."""
    next_batch: int = 0
    leaf: bytes = NO_BATCH
    next_position: int = 0
    last_tick: int = 0
    record_tick: int = 0
    epoch: int = 0
    erasures: int = 0
    signer: bytes = bytes(32)
    owner: OwnerParts = field(init=False)
    """The pieces of records that the signer fixes."""
    config: KernelConfig | None = None
    cancel_batch: CancelBatch | None = None
    workers: EnrolledWorkers = field(default_factory=EnrolledWorkers)
    unnamed: tuple[str, int] | None = None
    """The last job whose manifest does not name its ledger, and its batch."""

    def __post_init__(self) -> None:
        self.owner = owner_parts(self.number, self.signer, VERDICTS)

    def change_owner(self, epoch: int, signer: bytes) -> None:
        """A new owner has begun."""
        self.epoch, self.signer = epoch, signer
        self.owner = owner_parts(self.number, signer, VERDICTS)


class WalkState:
    """What the checks of all kinds of records share."""

    def __init__(self, book: Book, partition: Partition) -> None:
        self.book = book
        self.partition = partition
        self.batch_no = 0
        self.position = 0
        """Of the record that belongs to no job and is being checked."""
        self.transitions = 0
        self.submitted = 0
        self.unnamed = 0
        self._tick_max = 0
        self._ticks: AbstractSet[int] | None = None
        self._submitters: dict[bytes, KeyEntry | TrustFault] = {}

    def begin(self, batch_no: int, tick_max: int, ticks: AbstractSet[int] | None) -> None:
        """The next records are of this batch; ``ticks`` are those its commands were applied at, where they are known."""
        self.batch_no = batch_no
        self._tick_max = tick_max
        self._ticks = ticks
        self._submitters.clear()

    def submitter(self, trust: Trust, key_id: bytes) -> KeyEntry | TrustFault:
        """The key that signed a manifest of the present batch, or why it may not sign one here."""
        entry = self._submitters.get(key_id)
        if entry is None:
            entry = self._submitters[key_id] = trust.entry(key_id, MANIFEST, self.batch_no)
        return entry

    def note(
        self, code: str, message: str, position: int | None, job_id: str | None = None, seq: int | None = None
    ) -> None:
        """Add a finding about a record of the present batch."""
        self.book.findings.add(Finding(code, message, self.partition.number, self.batch_no, position, job_id, seq))

    def note_all(
        self, faults: Iterable[TrustFault], position: int, job_id: str | None = None, seq: int | None = None
    ) -> None:
        """Add a finding for each fault, each code once."""
        seen: set[str] = set()
        for fault in faults:
            if fault.code not in seen:
                seen.add(fault.code)
                self.note(fault.code, fault.message, position, job_id, seq)

    @property
    def written_tick(self) -> int:
        """The last tick of the present batch, which the rows written with it carry."""
        return self._tick_max

    def in_time(self, tick: int) -> bool:
        """Whether nothing is wrong with a record's tick; time goes on to it then."""
        partition = self.partition
        if partition.record_tick <= tick <= self._tick_max and (self._ticks is None or tick in self._ticks):
            partition.record_tick = tick
            return True
        return False

    def tick(self, tick: int, position: int, job_id: str | None = None, seq: int | None = None) -> None:
        """A record's tick: never before the last one, inside its batch, and that of a command."""
        partition = self.partition
        if tick < partition.record_tick:
            message = f"tick {tick} comes after tick {partition.record_tick}"
            self.note("TICK_BACKWARDS", message, position, job_id, seq)
        else:
            partition.record_tick = tick
        if tick > self._tick_max or (self._ticks is not None and tick not in self._ticks):
            self.note("TICK_OUT_OF_BATCH", f"tick {tick} is not one of its batch", position, job_id, seq)
