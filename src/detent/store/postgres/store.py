"""The writing half of the PostgreSQL store: one append is one call of one function, and so one statement and one transaction.

The function compares first: the owner's epoch, the batch number and position it expects, the sequence numbers of the jobs it moves
(`schema.sql`). So a deposed owner writes nothing however late it wakes up, and no lock is held while a message travels.

A connection that ends before the answer leaves open whether the commit is durable: `OutcomeUnknown`. From then on the store refuses to
write; the next opening reads what is there, and a batch under that number with that leaf hash is this one. It is never repeated
blindly. An advisory lock on the same connection says which process owns a partition (`hold`); the epoch alone decides.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

import psycopg
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

from detent.errors import StoreUnavailable
from detent.store.api import (
    ANSWERS_KEPT_MS,
    CHECKPOINTS_KEPT,
    REFUSALS_KEPT_MAX,
    AnswerRow,
    Commit,
    JobRow,
    RecordRow,
    RefusalRow,
    RunRow,
    TreeHeadRow,
    WorkRow,
)
from detent.store.checks import (
    check_beside,
    check_commit,
    check_ledger,
    check_partition,
    check_refusals,
    check_tree_head,
    integer_too_large,
)
from detent.store.postgres.address import PostgresAddress
from detent.store.postgres.arrays import (
    BYTEA,
    BYTEA_ARRAY,
    INT4,
    INT4_ARRAY,
    INT8,
    INT8_ARRAY,
    TEXT,
    TEXT_ARRAY,
    byte_array,
    id_array,
    int4,
    int4_array,
    int8,
    int8_array,
    text_array,
)
from detent.store.postgres.database import (
    Connection,
    close_quietly,
    connect,
    create_schema,
    insist_on_durable,
    open_writer,
)
from detent.store.postgres.errors import lost_commit, translated
from detent.store.postgres.reader import Holder, PostgresReader

_I, _B, _T, _IA, _BA, _TA = INT8, BYTEA, TEXT, INT8_ARRAY, BYTEA_ARRAY, TEXT_ARRAY
_RECORD_TYPES: Final = (_TA, _BA, _BA, _IA, _BA, _BA)
_JOB_TYPES: Final = (_I, _I, _BA, _BA, _BA, _TA, _IA, _IA, _BA, _IA, _BA, _IA)
_RUN_TYPES: Final = (_BA, _BA, _BA, _TA, _IA, _IA, _BA)
_REFUSAL_TYPES: Final = (INT4_ARRAY, _IA, _BA, _TA, _BA, _I)
_BESIDE_TYPES: Final = (_BA, _BA, _BA, _BA, _IA, _BA, _BA, _BA, _IA, _BA, _BA, _BA, _BA, _IA, _I)
_APPEND_TYPES: Final = (
    *(INT4, _I, _I, _B, _B, _B, _B, _B, _I, _I, _I, _I, _B),
    *_RECORD_TYPES,
    _BA,
    *_JOB_TYPES,
    *(_BA, _BA),
    *_RUN_TYPES,
    _BA,
    *_REFUSAL_TYPES,
    *(_I, _B, _B, _I),
    *(_I, _T),
    *_BESIDE_TYPES,
)
"""The types of what ``detent.append`` takes, in its order."""


class ServerRow(NamedTuple):
    """A server that shares the partitions of a ledger."""

    process: str
    host: str
    address: str
    """Where the server that leads connects to it."""
    certificate: bytes
    proof: bytes
    linked: int
    """The epoch of the first partition whose owner is connected to it; 0 while none is."""


_Parameters = list[bytes | None]
_PREPARED: Final = {
    "append": _APPEND_TYPES,
    "append_refusals": _REFUSAL_TYPES,
    "append_beside": _BESIDE_TYPES,
    "take_ownership": (INT4,),
    "renew": (INT4, INT8),
}
_NOT_PREPARED: Final = b"26000"
_NONE: Final[dict[int, _Parameters]] = {count: [None] * count for count in (2, 4, 6, 7, 12, 15)}


class PostgresStore(PostgresReader):
    """A ledger opened for writing, from one thread.

    Iterators read through connections of their own; a single row is read through the writer, between two commits.
    """

    def __init__(self, address: PostgresAddress, writer: Connection) -> None:
        self._outcome_unknown = False
        super().__init__(address, writer)
        self._prepared: set[str] = set()

    @classmethod
    def create(cls, address: PostgresAddress, origin: str, partitions: int) -> Self:
        """Make an empty ledger in a schema where nothing is, and open it."""
        store = cls.begin(address, origin, partitions)
        store.finish()
        return store

    @classmethod
    def begin(cls, address: PostgresAddress, origin: str, partitions: int) -> Self:
        """Begin a ledger that is there when `finish` is called, with what was written to it by then, and not before."""
        check_ledger(origin, partitions)
        writer = connect(address)
        try:
            insist_on_durable(writer, address)
            _command(writer, address, "BEGIN")
            create_schema(writer, address, origin, partitions)
            store = cls(address, writer)
            store._pinned = True
            return store
        except BaseException:
            close_quietly(writer)
            raise

    def finish(self) -> None:
        """Make a ledger that was begun durable."""
        _command(self._connection, self._address, "COMMIT")
        self._pinned = False

    @classmethod
    def open(cls, address: PostgresAddress) -> Self:
        """Open an existing ledger for writing; an older schema is brought up to date first."""
        writer = open_writer(address)
        try:
            return cls(address, writer)
        except BaseException:
            close_quietly(writer)
            raise

    @staticmethod
    def open_reader(address: PostgresAddress) -> PostgresReader:
        """Open an existing ledger without the right to change it."""
        return PostgresReader.open(address)

    def take_ownership(self, partition: int) -> int:
        """Raise the partition's epoch by one, durably, and return it. Waits for an append that is under way."""
        check_partition(partition, self._partitions)
        epoch = self._call("take_ownership", [int4(partition)])
        return int.from_bytes(epoch or b"", "big")

    def hold(self, partition: int, host: str, process: str, socket: str, lease_seconds: float) -> Holder | None:
        """Hold a partition for as long as the store is open (None), or learn which process does.

        Its lease is as long as that; another process may depose a holder that does not `renew` it.
        """
        check_partition(partition, self._partitions)
        while not self._all("hold", partition)[0][0]:
            if (holder := self.holder(partition)) is not None:
                return holder
        self._write("set_owner", [partition, host, process, socket, lease_seconds])
        return None

    def set_address(self, partition: int, address: str, proof: bytes) -> None:
        """Say where the holder of a partition takes requests over HTTP."""
        self._write("set_address", [partition, address, proof])

    def renew(self, partition: int, epoch: int) -> bool:
        """Say that the owner under an epoch still works; False if it is deposed."""
        return self._call("renew", [int4(partition), int8(epoch)]) == b"\1"

    def holders(self) -> dict[int, tuple[str, int]]:
        """The process that holds each partition that is held, and for how many milliseconds it has been silent."""
        return {partition: (process, silent_ms) for partition, process, silent_ms in self._all("holders")}

    def presence(self) -> None:
        """Use this connection to say that a server works: what it writes need not be durable."""
        self._all("not_synced")

    def renew_server(self, server: ServerRow) -> None:
        """Say that a server works."""
        self._write("renew_server", [*server])

    def forget_servers(self, process: str, silent_seconds: float) -> None:
        """Remove a server, and those that have been silent for so long."""
        self._write("forget_servers", [process, silent_seconds])

    def servers(self, silent_ms: int) -> list[ServerRow]:
        """The servers that have said within so many milliseconds that they work."""
        return [ServerRow(*row) for row in self._all("servers", silent_ms)]

    @property
    def backend_pid(self) -> int | None:
        """The server's process that this store writes through; None when the connection is lost."""
        pgconn = self._connection.pgconn
        return pgconn.backend_pid if pgconn.status == ConnStatus.OK else None

    def end_holder(self, holder: Holder) -> None:
        """End the session of a holder whose process is known to be dead: what it has under way is finished or undone first."""
        self._all("end_holder", holder.backend_pid)

    def append(self, commit: Commit) -> None:
        """Make one commit durable before returning, or raise and leave nothing of it."""
        check_commit(commit, self._partitions)
        try:
            parameters = _append_parameters(commit)
        except struct.error:
            raise integer_too_large() from None
        if not commit.erased:
            self._call("append", parameters)
            return
        self._in_transaction(lambda: self._append_erasing(parameters, frozenset(commit.erased)))

    def append_refusals(self, refusals: Sequence[RefusalRow]) -> None:
        """Add to the bounded decision log outside a commit."""
        check_refusals(refusals, self._partitions)
        if refusals:
            self._call("append_refusals", _packed(_refusals, refusals))

    def append_beside(
        self, work: Sequence[WorkRow], answers: Sequence[AnswerRow], answers_kept_ms: int = ANSWERS_KEPT_MS
    ) -> None:
        """Add to the work index and to the kept answers outside a commit."""
        check_beside(work, answers)
        self._call("append_beside", _packed(_beside, work, answers, answers_kept_ms))

    def append_tree_head(self, head: TreeHeadRow) -> None:
        """Keep a signed tree head over batches that are already durable."""
        check_tree_head(head, head.partition, self.head(head.partition).size)
        self._write("insert_tree_head", [head.partition, head.size, head.note])

    def remove_content(self, digests: Sequence[bytes]) -> int:
        """Delete unreferenced inline content; returns the number of bytes freed."""
        freed: int = self._write("delete_content", [[*digests]])[0][0]
        return freed

    def set_moved(self, to: str) -> None:
        """Mark the ledger as moved: nothing is written here any more, by any owner."""
        self._write("set_moved", [to])

    # Calls

    def _call(self, name: str, parameters: Any) -> bytes | None:
        """One call of a function: one statement, and outside a transaction one commit."""
        self._insist_on_known_outcome()
        pgconn = self._connection.pgconn
        if pgconn.status != ConnStatus.OK:
            self._outcome_unknown = True
            raise StoreUnavailable(f"{self._address}: the connection is lost", hint="open the ledger again")
        key = name.encode()
        if name not in self._prepared:
            self._answered(pgconn.prepare(key, self._sql[name].encode(), _PREPARED[name]))
            self._prepared.add(name)
        result = pgconn.exec_prepared(key, parameters, [1] * len(parameters), 1)
        if (
            result.status == ExecStatus.FATAL_ERROR
            and result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == _NOT_PREPARED
        ):
            self._prepared.discard(name)  # Dropped by something else in this session; nothing was run.
            return self._call(name, parameters)
        return self._answered(result).get_value(0, 0)

    def _answered(self, result: psycopg.pq.abc.PGresult) -> psycopg.pq.abc.PGresult:
        """A result that is one; the error of ours otherwise, which says when it is unknown whether something was committed."""
        if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            return result
        error = psycopg.errors.error_from_result(result)
        if self._connection.pgconn.status != ConnStatus.OK:
            self._outcome_unknown = True
            raise lost_commit(error, self._address) from error
        raise translated(error, self._address) from error

    def _write(self, name: str, values: list[Any]) -> list[tuple[Any, ...]]:
        self._insist_on_known_outcome()
        try:
            cursor = self._connection.execute(self._sql[name], values)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as exc:
            if self._connection.closed:
                self._outcome_unknown = True
                raise lost_commit(exc, self._address) from exc
            raise translated(exc, self._address) from exc

    def _in_transaction(self, work: Any) -> None:
        """For the one change that must read what it wrote before it ends: an erasure."""
        nested = self._connection.pgconn.transaction_status != TransactionStatus.IDLE
        if not nested:
            self._exec("begin_write")
        try:
            work()
        except BaseException:
            if not nested and self._connection.pgconn.status == ConnStatus.OK:
                self._exec("rollback")
            raise
        if not nested:
            self._exec("commit")

    def _exec(self, name: str) -> None:
        self._answered(self._connection.pgconn.exec_(self._sql[name].encode()))

    def _append_erasing(self, parameters: _Parameters, erased: frozenset[bytes]) -> None:
        from detent.jobs.kept_answer import jobs_named  # noqa: PLC0415 - erasing is rare
        from detent.ledger.loose import named_digests  # noqa: PLC0415

        self._call("append", parameters)
        gone = [scope for scope, body in self._all("answered_jobs") if not erased.isdisjoint(named_digests(body))]
        for scope, response in self._all("whole_answers"):
            jobs = self.jobs_of([*jobs_named(response)])
            if any(not erased.isdisjoint(named_digests(job.body)) for job in jobs):
                gone.append(scope)
        if gone:
            self._write("delete_answer", [gone])

    def _insist_on_known_outcome(self) -> None:
        if self._outcome_unknown:
            raise StoreUnavailable(
                f"{self._address}: an earlier commit ended with an unknown outcome; nothing is written on top of it",
                hint="open the ledger again, which finds out what is there",
                details={"address": str(self._address)},
            )

    def _reconnected(self) -> bool:
        """Never: with its connection a writer has lost its hold on the partition."""
        self._outcome_unknown = True
        return False


def _command(connection: Connection, address: PostgresAddress, text: str) -> None:
    result = connection.pgconn.exec_(text.encode())
    if result.status != ExecStatus.COMMAND_OK:
        error = psycopg.errors.error_from_result(result)
        if connection.pgconn.status != ConnStatus.OK:
            raise lost_commit(error, address) from error
        raise translated(error, address) from error


def _packed(pack: Any, *rows: Any) -> _Parameters:
    try:
        packed: _Parameters = pack(*rows)
    except struct.error:
        raise integer_too_large() from None
    return packed


def _append_parameters(commit: Commit) -> _Parameters:
    batch, records, jobs, runs, content, erased, refusals, checkpoint, tree_head, work, answers, kept_ms, decisions = (
        commit
    )
    names = {record[4]: None for record in records if record[3] != "transition" and record[4] is not None}
    new = 0
    for job in jobs:
        if job[10] < 0:
            names[job[1]] = None
            new += 1
    pieces = dict(content)
    return [
        int4(batch[0]),
        int8(batch[1]),
        int8(batch[2]),
        *batch[3:8],
        *map(int8, batch[8:12]),
        decisions,
        *(_records(records) if records else _NONE[6]),
        id_array([*names]) if names else None,
        *(_jobs(jobs, new) if jobs else [int8(0), int8(0), *_NONE[12][2:]]),
        *((byte_array([*pieces]), byte_array([*pieces.values()])) if pieces else _NONE[2]),
        *(_runs(runs) if runs else _NONE[7]),
        byte_array([*dict.fromkeys(erased)]) if erased else None,
        *(_refusals(refusals) if refusals else _NONE[6]),
        *(
            _NONE[4]
            if checkpoint is None
            else (int8(checkpoint.batch_no), checkpoint.digest, checkpoint.body, int8(CHECKPOINTS_KEPT))
        ),
        *(_NONE[2] if tree_head is None else (int8(tree_head.size), tree_head.note.encode())),
        *(_beside(work, answers, kept_ms) if work or answers else _NONE[15]),
    ]


def _records(records: Sequence[RecordRow]) -> _Parameters:
    _, _, _, kinds, jobs, runs, numbers, bodies, evidence = zip(*records, strict=True)
    return [
        text_array(kinds),
        id_array(jobs),
        id_array(runs),
        int8_array(numbers),
        byte_array(bodies),
        byte_array(evidence),
    ]


def _jobs(jobs: Sequence[JobRow], new: int) -> _Parameters:
    _, ids, tenants, runs, states, numbers, attempts, heads, ticks, bodies, expected = zip(*jobs, strict=True)
    return [
        int8(new),
        int8(len(jobs) - new),
        id_array(ids),
        id_array(tenants),
        id_array(runs),
        text_array(states),
        int8_array(numbers),
        int8_array(attempts),
        byte_array(heads),
        int8_array(ticks),
        byte_array(bodies),
        int8_array(expected),
    ]


def _runs(runs: Sequence[RunRow]) -> _Parameters:
    last = {run.run_id: run for run in runs}
    _, ids, tenants, names, statuses, started, ended, bodies = zip(*last.values(), strict=True)
    return [
        id_array(ids),
        id_array(tenants),
        id_array(names),
        text_array(statuses),
        int8_array(started),
        int8_array(ended),
        byte_array(bodies),
    ]


def _refusals(refusals: Sequence[RefusalRow]) -> _Parameters:
    partitions, ticks, jobs, codes, bodies = zip(*refusals, strict=True)
    return [
        int4_array(partitions),
        int8_array(ticks),
        id_array(jobs),
        text_array(codes),
        byte_array(bodies),
        int8(REFUSALS_KEPT_MAX),
    ]


def _beside(work: Sequence[WorkRow], answers: Sequence[AnswerRow], kept_ms: int) -> _Parameters:
    first: dict[str, WorkRow] = {}
    for row in work:
        first.setdefault(row.job_id, row)
    elements = [
        (row.job_id, place, key)
        for row in first.values()
        for place, key in enumerate(row.element_keys)
        if key is not None
    ]
    rows = list(first.values())
    return [
        *(
            (
                id_array([row.workspace for row in rows]),
                byte_array([row.execution_key for row in rows]),
                id_array([row.job_id for row in rows]),
                id_array([row.label for row in rows]),
                int8_array([row.tick for row in rows]),
                byte_array([row.payload_digest for row in rows]),
                id_array([row.pool for row in rows]),
            )
            if rows
            else _NONE[7]
        ),
        id_array([job_id for job_id, _, _ in elements]),
        int8_array([place for _, place, _ in elements]),
        byte_array([key for _, _, key in elements]),
        *(
            (
                byte_array([answer.scope for answer in answers]),
                byte_array([answer.body_digest for answer in answers]),
                byte_array([answer.response for answer in answers]),
                int8_array([answer.stored_at_ms for answer in answers]),
            )
            if answers
            else _NONE[4]
        ),
        int8(kept_ms),
    ]
