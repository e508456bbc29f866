"""One batch after the other: the checks a partition's commits must pass, whole or in part.

A whole batch is checked against everything: numbers, chain, signature, commands, records, tree. A partial one, in the
bundle of a run, shows some records with their paths; what it cannot show is said in the report, not guessed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice

from detent.canon import UINT64_MAX
from detent.canon.merkle import leaf_hash, root_of, verify_inclusion
from detent.errors import TrustError
from detent.kernel.commands import commands_digest
from detent.ledger.batch import (
    BATCH_LABEL,
    BatchHeader,
    batch_leaf,
    parse_batch,
    signer_of,
    tree_origin,
)
from detent.ledger.book import Book, Partition
from detent.ledger.findings import Finding
from detent.ledger.items import BatchColumns, BatchItem, PartialItem
from detent.ledger.loose import loose
from detent.ledger.record_walk import RecordWalk
from detent.ledger.trust import Trust
from detent.ledger.trust_config import TrustFault


class BatchWalk:
    """The batches of one partition, in the order in which they are read."""

    def __init__(self, book: Book, partition: Partition) -> None:
        self.book = book
        self.partition = partition
        self._records = RecordWalk(book, partition)
        self._counted = {"batches": 0, "commands": 0, "records": 0}

    def batch(self, item: BatchItem) -> None:
        """Check a whole batch."""
        header = parse_batch(item.body)
        if isinstance(header, TrustFault):
            self._note(header.code, header.message)
            return self._unreadable(item)
        trust = self._trust_of(header, item.records)
        self._check_place(header)
        self._check_signature(header, item.body, item.signature, trust)
        if commands_digest(item.commands) != header.commands_digest:
            self._note("COMMANDS_DIGEST_WRONG", "the commands are not those the batch record binds", header)
        if item.columns is not None:
            self._check_columns(header, item.columns)
        self._records.begin(header.batch_no, header.last_tick, self._command_ticks(header, item.commands))
        self._check_records(header, self._walk(header.first_position, item))
        self._grow(header.batch_no, item)
        self._close(header)
        return None

    def partial(self, item: PartialItem) -> None:
        """Check a batch that shows some of its records, each with its path."""
        partition = self.partition
        header = parse_batch(item.body)
        if isinstance(header, TrustFault):
            self._note(header.code, header.message)
            return
        if header.batch_no < partition.next_batch:
            message = f"batch {header.batch_no} after batch {partition.next_batch - 1}"
            self._note("BATCH_NUMBER_WRONG", message, header)
        adjoins = header.batch_no == partition.next_batch
        if adjoins and header.prev_batch_hash != partition.leaf:
            self._note("BATCH_CHAIN_BROKEN", "the batch does not name the batch before it", header)
        trust = self._trust_of(header, [(record.body, record.evidence) for record in item.records])
        self._check_origin(header)
        self._check_flow(header, adjoins=adjoins)
        self._check_signature(header, item.body, item.signature, trust)
        leaf = batch_leaf(item.body, item.signature)
        self._check_inclusion(header, leaf, item)
        self._records.begin(header.batch_no, header.last_tick, None)
        self._walk_partial(header, item)
        partition.leaf = leaf
        self._close(header)

    def count(self, counts: Counter[str]) -> None:
        """Add what was counted apart from the shared counts, because it happens for every batch or record."""
        counts.update(self._counted)
        counts["transitions"] += self._records.transitions
        counts["submitted"] += self._records.submitted
        counts["submitted_without_origin"] += self._records.unnamed

    # -- a whole batch ---------------------------------------------------------------------------------------------------

    def _check_place(self, header: BatchHeader) -> None:
        """The batch goes on where the one before it ended, in the same ledger and partition."""
        partition = self.partition
        place = (header.batch_no, header.prev_batch_hash, header.first_position, header.partition)
        due = (partition.next_batch, partition.leaf, partition.next_position, partition.number)
        if place == due and header.first_tick >= partition.last_tick and header.origin == partition.origin:
            return
        if header.batch_no != partition.next_batch:
            message = f"batch {header.batch_no} where batch {partition.next_batch} is due"
            self._note("BATCH_NUMBER_WRONG", message, header)
        if header.prev_batch_hash != partition.leaf:
            self._note("BATCH_CHAIN_BROKEN", "the batch does not name the batch before it", header)
        self._check_origin(header)
        self._check_flow(header, adjoins=True)

    def _check_origin(self, header: BatchHeader) -> None:
        if header.origin != self.partition.origin:
            message = f"a batch of {header.origin!r} in a ledger of {self.partition.origin!r}"
            self._note("BATCH_ORIGIN_WRONG", message, header)
        if header.partition != self.partition.number:
            message = f"a batch of partition {header.partition} among those of partition {self.partition.number}"
            self._note("BATCH_PARTITION_WRONG", message, header)

    def _check_flow(self, header: BatchHeader, *, adjoins: bool) -> None:
        """Positions and ticks go on where the batch before ended, or behind it when some are not shown."""
        partition = self.partition
        first, due = header.first_position, partition.next_position
        if first < due or (adjoins and first != due):
            self._note("POSITION_WRONG", f"the batch starts at position {first}, due is {due}", header)
        if header.first_tick < partition.last_tick:
            message = f"the batch starts at tick {header.first_tick}, the last one ended at {partition.last_tick}"
            self._note("TICK_BACKWARDS", message, header)

    def _trust_of(self, header: BatchHeader, records: Sequence[tuple[bytes, bytes | None]]) -> Trust | None:
        """The trust that decides about a batch: the one in force or, if the batch gives the ledger another name, the next."""
        partition = self.partition
        if partition.trust is None and not partition.untrusted:
            self._start_trust(header, records)
        if partition.trust is None or header.origin == partition.origin:
            return partition.trust
        for evidence in _announcements(records):
            try:
                longer = partition.trust.extend(evidence, header.batch_no)
            except TrustError:
                continue  # Said when the record is read.
            if longer.origin == header.origin:
                partition.origin = longer.origin
                partition.heads.origins.add(tree_origin(longer.origin, partition.number))
                return longer
        return partition.trust

    def _check_signature(self, header: BatchHeader, body: bytes, signature: bytes, trust: Trust | None) -> None:
        partition = self.partition
        if trust is None:
            return
        public_key = signer_of(header, trust)
        if isinstance(public_key, TrustFault):
            self._note(public_key.code, public_key.message, header)
            return
        message = "the batch record's signature does not verify"
        otherwise = ("BATCH_SIGNATURE_INVALID", message, partition.number, header.batch_no, None, None, None)
        self.book.signature((public_key, BATCH_LABEL + body, signature), otherwise)

    def _start_trust(self, header: BatchHeader, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Find version 1 in the first batch, before that batch's own signature can be looked at."""
        partition, book = self.partition, self.book
        partition.untrusted = True
        fault: tuple[str, str] = ("TRUST_MISSING", "the first batch announces no trust configuration")
        if header.batch_no == 0:
            for evidence in islice(_announcements(records), 1):
                try:
                    partition.trust = Trust.start(evidence, 0)
                except TrustError as exc:
                    fault = ("TRUST_INVALID", str(exc))
        if partition.trust is None:
            self._note(*fault, header)
            return
        partition.untrusted = False
        if book.root is not None and partition.trust.root_digest != book.root:
            message = f"the ledger starts from {partition.trust.root_text}, pinned is sha256:{book.root.hex()}"
            self._note("TRUST_ROOT_MISMATCH", message, header)

    def _command_ticks(self, header: BatchHeader, commands: bytes) -> set[int] | None:
        """The ticks at which the commands were applied; None when the commands cannot be read."""
        listed = loose(commands)
        if type(listed) is not list or len(listed) != header.command_count:
            self._note("COMMANDS_MALFORMED", f"the commands are not a list of {header.command_count}", header)
            return None
        tick = self.partition.last_tick
        ticks: list[int] = []
        for command in listed:
            if type(command) is not list or len(command) < 2 or type(command[0]) is not str:
                self._note("COMMANDS_MALFORMED", "a command is not a list that starts with its name", header)
                return None
            at = command[1]
            if type(at) is not int or not 0 <= at <= UINT64_MAX:
                self._note("COMMANDS_MALFORMED", f"a command of kind {command[0][:40]!r} has no tick", header)
                return None
            tick = max(tick, at)
            ticks.append(tick)
        if ticks and (ticks[0], ticks[-1]) != (header.first_tick, header.last_tick):
            message = f"the batch spans ticks {header.first_tick} to {header.last_tick}"
            self._note("TICK_OUT_OF_BATCH", f"{message}, its commands {ticks[0]} to {ticks[-1]}", header)
        self._counted["commands"] += len(listed)
        return set(ticks)

    def _walk(self, first_position: int, item: BatchItem) -> list[bytes]:
        """Every record of the batch; gives back their leaf hashes."""
        record = self._records.record
        leaves: list[bytes] = []
        append = leaves.append
        columns = item.record_columns
        if columns is not None and len(columns) != len(item.records):
            self._note("STORED_COLUMN_DIFFERS", "rows and records are not equally many")
            columns = None
        for index, (body, evidence) in enumerate(item.records):
            append(sha256(b"\x00" + body).digest())
            record(body, evidence, first_position + index, None if columns is None else columns[index])
        self._counted["records"] += len(leaves)
        return leaves

    def _check_records(self, header: BatchHeader, leaves: list[bytes]) -> None:
        if len(leaves) != header.record_count:
            message = f"the batch record binds {header.record_count} records, {len(leaves)} are here"
            self._note("RECORD_COUNT_WRONG", message, header)
        if (leaves[0] if len(leaves) == 1 else root_of(leaves)) != header.records_root:
            position = header.first_position if header.record_count == 1 else None
            last = header.first_position + header.record_count - 1
            where = "" if position is not None else f" (records {header.first_position} to {last})"
            self._note(
                "RECORDS_ROOT_WRONG", f"the records are not those the batch record binds{where}", header, position
            )

    def _grow(self, batch_no: int, item: BatchItem) -> None:
        """The batch becomes the tree's next leaf; stored nodes and tree heads of that size are held against it."""
        partition = self.partition
        partition.leaf = leaf = batch_leaf(item.body, item.signature)
        completed = partition.frontier.append(leaf)
        stored = (item.leaf_hash, item.nodes)
        if stored != (None, None) and stored != (leaf, b"".join(completed)):
            finding = "the stored leaf hash or tree nodes are not those of the batches"
            self.book.findings.add(Finding("STORED_TREE_DIFFERS", finding, partition.number, batch_no))
        if partition.frontier.size in partition.heads.by_size:
            for fork in partition.heads.passed(partition.frontier.size, partition.frontier.root()):
                self.book.findings.add(fork)

    def _unreadable(self, item: BatchItem) -> None:
        """A batch record that cannot be read: its records are still looked at, where they would be due."""
        partition = self.partition
        batch_no, position = partition.next_batch, partition.next_position
        self._records.begin(batch_no, UINT64_MAX, None)
        self._walk(position, item)
        self._records.finish()
        self._grow(batch_no, item)
        partition.next_batch, partition.next_position = batch_no + 1, position + len(item.records)
        self._counted["batches"] += 1

    def _check_columns(self, header: BatchHeader, columns: BatchColumns) -> None:
        said = BatchColumns(
            header.batch_no,
            header.epoch,
            header.first_position,
            header.record_count,
            header.first_tick,
            header.last_tick,
        )
        if said != columns:
            names = [name for name in said._fields if getattr(said, name) != getattr(columns, name)]
            self._note("STORED_COLUMN_DIFFERS", f"the batch's row has another {', '.join(names)}", header)

    # -- a part of a batch -----------------------------------------------------------------------------------------------

    def _check_inclusion(self, header: BatchHeader, leaf: bytes, item: PartialItem) -> None:
        """The batch's path to the bundle's tree head; that there is a head at all is asked at the end."""
        claim = self.partition.heads.largest
        if claim is None:
            return
        shown = claim.head
        included = verify_inclusion(leaf, header.batch_no, shown.size, item.tree_path, shown.root)
        claim.agrees = included and claim.agrees is not False
        if not included:
            message = f"the path does not lead from the batch to the tree head of size {shown.size}"
            self._note("BATCH_NOT_INCLUDED", message, header)

    def _walk_partial(self, header: BatchHeader, item: PartialItem) -> None:
        before = -1
        for record in item.records:
            index, position = record.index_in_batch, header.first_position + record.index_in_batch
            if index <= before:
                self._note("POSITION_WRONG", "the records of a batch are not in order", header, position)
            before = index
            leaf = leaf_hash(record.body)
            if not verify_inclusion(leaf, index, header.record_count, record.path, header.records_root):
                message = f"the path does not lead from record {index} to the batch record"
                self._note("RECORD_NOT_INCLUDED", message, header, position)
            self._records.record(record.body, record.evidence, position)
            self._counted["records"] += 1

    # -- both ------------------------------------------------------------------------------------------------------------

    def _close(self, header: BatchHeader) -> None:
        """What must hold when all records of a batch have been folded in, and where the next one goes on."""
        partition = self.partition
        self._records.finish()
        if header.epoch != partition.epoch:
            self._note("EPOCH_WRONG", f"a batch of epoch {header.epoch} under epoch {partition.epoch}", header)
        if header.signer_key_id != partition.signer:
            message = "the batch is signed by another key than the one its owner announced"
            self._note("RECORD_SIGNER_WRONG", message, header)
        if partition.trust is not None and header.origin == partition.origin != partition.trust.origin:
            message = f"a batch of {header.origin!r} announces that the ledger is {partition.trust.origin!r}"
            self._note("BATCH_ORIGIN_WRONG", message, header)
        partition.next_batch = header.batch_no + 1
        partition.next_position = header.first_position + header.record_count
        partition.last_tick = max(partition.last_tick, header.last_tick)
        self._counted["batches"] += 1

    def _note(self, code: str, message: str, header: BatchHeader | None = None, position: int | None = None) -> None:
        partition = self.partition
        batch_no = partition.next_batch if header is None else header.batch_no
        self.book.findings.add(Finding(code, message, partition.number, batch_no, position))


def _announcements(records: Iterable[tuple[bytes, bytes | None]]) -> Iterator[bytes]:
    """The trust configurations that the records of a batch announce, as they come."""
    for body, evidence in records:
        fields = loose(body) if evidence is not None else None
        if evidence is not None and type(fields) is dict and fields.get("kind") == "trust_changed":
            yield evidence
