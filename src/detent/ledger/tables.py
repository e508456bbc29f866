"""What a verification remembers of each job and run while it reads on.

Every job's head, every ended run and every erased digest goes into the `Heads`. Jobs and runs that are alive are kept as
objects, up to a limit. What is read back from the `Heads` was written here, so it is decoded without further questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from hashlib import sha256
from itertools import islice
from typing import Final

from detent.canon import encode_trusted
from detent.canon.late import dataclass
from detent.kernel import TERMINAL, Run, transition_log_hash
from detent.ledger.heads import Heads
from detent.ledger.loose import loose, named_digests, written_digests
from detent.ledger.templates import JobParts

LIVE_JOBS_MAX: Final = 20_000
"""Jobs held as objects; when there are more, the longest held half is put into the `Heads`."""
OPEN_RUNS_MAX: Final = 20_000
"""Open runs held as objects."""
ENDED_JOBS_MAX: Final = 20_000
"""Ended jobs of open runs held in memory, over all runs."""

_JOB: Final = b"j"
_RUN: Final = b"R"
_OPEN_RUN: Final = b"o"
_RUN_JOB: Final = b"r"
_RUN_STEP: Final = b"s"
_ERASED: Final = b"e"
_NAMED_SINCE: Final = b"N"
_ERASED_HERE: Final = b"H"
_HOLDS_ERASED: Final = b"O"
_NAMED_ELSEWHERE: Final = b"W"
_ENVELOPE: Final = 0xA2
"""How a payload and a signed report begin, and no JSON text does: a CBOR map of two entries."""
_PLACE_VALUES: Final = 6
_ENDED_VALUES: Final = 12
_SEQ, _HEAD, _CATEGORIES = 3, 5, 16
"""Places in an encoded fold."""
ENDED_STATES: Final = frozenset(state.value for state in TERMINAL)


@dataclass(slots=True)
class JobFold:
    """One job as its records say it stands."""

    tenant_id: str
    run_id: str | None
    state: str
    transition_seq: int
    attempt_id: int
    head: bytes
    manifest_hash: bytes
    quota_policy_hash: bytes
    max_retries: int = 0
    max_interruptions: int = 0
    retry_categories: tuple[str, ...] = ()
    lease_policy_id: str = ""
    backoff_schedule_id: str = ""
    failures: int = 0
    interruptions: int = 0
    lease_id: bytes | None = None
    due: int = 0
    """RUNNING: the first tick at which the lease can have expired. RETRYING: the first at which the wait is over."""
    fixed: bytes = b""
    """Digest of what its submission fixed, as `fixed_digest` gives it; empty when no rows will be compared with it, or the
    submission could not be read."""
    tick: int = 0
    """Last tick of the batch that holds its last record: the row was written then, or later."""
    moved_tick: int = 0
    """Tick of its last record."""
    dispatched: bool = False
    reason: str | None = None
    exit_seq: int | None = None
    holder: str | None = None
    parts: JobParts | None = None
    """The pieces of its records that never change, made when they are first needed."""

    @property
    def ended(self) -> bool:
        """Whether the job is in a terminal state."""
        return self.state in ENDED_STATES

    def encode(self) -> bytes:
        """The fold as bytes; of a job that has ended only what can still be asked for."""
        values: list[object] = [
            self.tenant_id,
            self.run_id,
            self.state,
            self.transition_seq,
            self.attempt_id,
            self.head,
        ]
        ended = self.state in ENDED_STATES
        if self.fixed or not ended:
            values += [self.fixed, self.tick, self.failures, self.interruptions, self.dispatched, self.reason]
        if not ended:
            values += [
                self.manifest_hash,
                self.quota_policy_hash,
                self.max_retries,
                self.max_interruptions,
                list(self.retry_categories),
                self.lease_policy_id,
                self.backoff_schedule_id,
                self.lease_id,
                self.due,
                self.moved_tick,
                self.exit_seq,
                self.holder,
            ]
        return encode_trusted(values)

    @classmethod
    def decode(cls, data: bytes) -> JobFold:
        """Rebuild a fold from `encode`."""
        values = loose(data)
        if len(values) <= _ENDED_VALUES:
            fold = cls(*[*values[:_PLACE_VALUES], b"", b""])
            if len(values) == _PLACE_VALUES:
                return fold
        else:
            values[_CATEGORIES] = tuple(values[_CATEGORIES])
            fold = cls(*values[:_PLACE_VALUES], *values[_ENDED_VALUES : _CATEGORIES + 3])
            fold.lease_id, fold.due, fold.moved_tick, fold.exit_seq, fold.holder = values[_CATEGORIES + 3 :]
        fold.fixed, fold.tick, fold.failures, fold.interruptions, fold.dispatched, fold.reason = values[
            _PLACE_VALUES:_ENDED_VALUES
        ]
        return fold


def fixed_digest(values: Sequence[object]) -> bytes:
    """Digest of the fields that a job's submission fixes, in the order of the kernel's own encoding."""
    return sha256(encode_trusted(list(values))).digest()


class JobTable:
    """All jobs seen so far, alive ones at hand."""

    def __init__(self, heads: Heads, live_max: int = LIVE_JOBS_MAX) -> None:
        self._heads = heads
        self._live: dict[str, JobFold] = {}
        self._live_max = live_max
        self.count = 0

    def get(self, job_id: str) -> JobFold | None:
        """The fold of a job; None when no record named it yet."""
        fold = self._live.get(job_id)
        if fold is not None:
            return fold
        data = self._heads.get(_job_key(job_id))
        if data is None:
            return None
        fold = JobFold.decode(data)
        if not fold.ended:
            self._keep(job_id, fold)
        return fold

    def add(self, job_id: str, fold: JobFold) -> None:
        """A new job."""
        self.count += 1
        self._keep(job_id, fold)

    def moved(self, job_id: str, fold: JobFold) -> None:
        """A job's fold has changed; one that has ended is remembered by its head only."""
        if fold.state in ENDED_STATES:
            self._live.pop(job_id, None)
            self._heads.put(_job_key(job_id), fold.encode())
        elif job_id not in self._live:
            self._keep(job_id, fold)

    def sorted(self) -> Iterator[tuple[str, JobFold]]:
        """Every job by the UTF-8 bytes of its id."""
        for key, data in self._entries():
            yield key[len(_JOB) :].decode(), JobFold.decode(data)

    def log_hash(self) -> bytes:
        """``transition_log_hash`` over all jobs (X-050)."""
        values = ((key, loose(data)) for key, data in self._entries())
        heads = ((key[len(_JOB) :].decode(), fold[_SEQ], fold[_HEAD]) for key, fold in values)
        return transition_log_hash(self.count, heads)

    def _entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Every job's entry in order, once all of them are in the `Heads`."""
        for job_id, fold in self._live.items():
            self._heads.put(_job_key(job_id), fold.encode())
        self._live.clear()
        return self._heads.items(_JOB)

    def _keep(self, job_id: str, fold: JobFold) -> None:
        self._live[job_id] = fold
        if len(self._live) > self._live_max:
            for name in list(islice(self._live, self._live_max // 2)):
                self._heads.put(_job_key(name), self._live.pop(name).encode())


@dataclass(slots=True)
class RunFold:
    """One open run as its records say it stands."""

    tenant_id: str
    name: str
    started_tick: int
    contract_digest: bytes = b""
    bindings_digest: bytes = b""
    inputs_digest: bytes = b""
    operation_id: str = ""
    jobs: int = 0
    live_jobs: int = 0
    steps_reused: int = 0
    reused_run: bool = False
    """It took the results of an earlier run."""
    ended_jobs: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    """(transitions, head) by job id of ended jobs, as far as they are in memory."""
    spilled: bool = False

    def encode(self) -> bytes:
        """The fold as bytes, without the ended jobs, which are spilled apart."""
        return encode_trusted(
            [
                self.tenant_id,
                self.name,
                self.started_tick,
                self.contract_digest,
                self.bindings_digest,
                self.inputs_digest,
                self.operation_id,
                self.jobs,
                self.live_jobs,
                self.steps_reused,
                self.reused_run,
            ]
        )

    def row_digest(self, run_id: str, status: str, ended_tick: int | None, reason_code: str | None = None) -> bytes:
        """SHA-256 of the kernel's own encoding of the run, which its stored row must have."""
        run = Run(
            run_id,
            self.tenant_id,
            self.name,
            self.contract_digest,
            self.bindings_digest,
            self.inputs_digest,
            self.operation_id,
            self.started_tick,
            status,
            ended_tick,
            self.jobs,
            self.live_jobs,
            self.steps_reused,
            reason_code,
        )
        return sha256(run.encode()).digest()

    @classmethod
    def decode(cls, data: bytes) -> RunFold:
        """Rebuild a fold from `encode`."""
        run = cls(*loose(data))
        run.spilled = True
        return run


class RunTable:
    """All runs seen so far, open ones at hand. A run belongs to one partition, like everything else there."""

    def __init__(self, heads: Heads, open_max: int = OPEN_RUNS_MAX, ended_max: int = ENDED_JOBS_MAX) -> None:
        self._heads = heads
        self._open: dict[tuple[int, str], RunFold] = {}
        self._open_max = open_max
        self._ended_max = ended_max
        self._ended_held = 0
        self.count = 0

    def open(self, partition: int, run_id: str) -> RunFold | None:
        """The run if it has been started and not ended."""
        run = self._open.get((partition, run_id))
        if run is None and (data := self._heads.get(_key(_OPEN_RUN, partition, run_id))) is not None:
            run = RunFold.decode(data)
            self._keep(partition, run_id, run)
        return run

    def ended(self, partition: int, run_id: str) -> list[object] | None:
        """An ended run as [tenant, name, status, started tick, ended tick, digest of its row, contract, jobs, digest of its jobs];
        None before its end.
        """
        data = self._heads.get(_key(_RUN, partition, run_id))
        return None if data is None else list(loose(data))

    def start(self, partition: int, run_id: str, run: RunFold) -> None:
        """A run begins."""
        self.count += 1
        self._keep(partition, run_id, run)

    def end_job(self, partition: int, run_id: str, job_id: str, fold: JobFold) -> None:
        """A job of an open run has ended."""
        run = self.open(partition, run_id)
        if run is None:
            return
        run.live_jobs -= 1
        self._ended_held += 1
        run.ended_jobs[job_id.encode()] = (fold.transition_seq, fold.head)
        if self._ended_held > self._ended_max:
            for (place, name), other in self._open.items():
                self._spill(place, name, other)
            self._ended_held = 0

    def reuse(self, partition: int, run_id: str, step_id: str) -> bool:
        """A step of an open run is reused; says whether that is the first time."""
        key = _key(_RUN_STEP, partition, run_id) + b"\x00" + step_id.encode()
        if self._heads.get(key) is not None:
            return False
        self._heads.put(key, b"")
        return True

    def jobs_digest(self, partition: int, run_id: str, run: RunFold) -> tuple[int, bytes]:
        """How many jobs of the run have ended, and the hash over their heads: what ``run_ended`` must say."""
        if not run.spilled:
            count = len(run.ended_jobs)
            heads = ((name.decode(), *run.ended_jobs[name]) for name in sorted(run.ended_jobs))
            return count, transition_log_hash(count, heads)
        self._spill(partition, run_id, run)
        prefix = _key(_RUN_JOB, partition, run_id) + b"\x00"
        count = sum(1 for _ in self._heads.items(prefix))
        return count, transition_log_hash(
            count, ((key[len(prefix) :].decode(), *loose(data)) for key, data in self._heads.items(prefix))
        )

    def end(
        self,
        partition: int,
        run_id: str,
        run: RunFold,
        status: str,
        tick: int,
        reason_code: str | None = None,
        *,
        jobs_digest: bytes,
    ) -> None:
        """A run has ended."""
        self._open.pop((partition, run_id), None)
        self._ended_held = max(0, self._ended_held - len(run.ended_jobs))
        if run.spilled:
            self._heads.delete(_key(_OPEN_RUN, partition, run_id))
            for key in [key for key, _ in self._heads.items(_key(_RUN_JOB, partition, run_id) + b"\x00")]:
                self._heads.delete(key)
        if run.steps_reused:
            for key in [key for key, _ in self._heads.items(_key(_RUN_STEP, partition, run_id) + b"\x00")]:
                self._heads.delete(key)
        row = run.row_digest(run_id, status, tick, reason_code)
        of_jobs = (run.contract_digest, run.jobs, jobs_digest)
        value = encode_trusted([run.tenant_id, run.name, status, run.started_tick, tick, row, *of_jobs])
        self._heads.put(_key(_RUN, partition, run_id), value)

    def _keep(self, partition: int, run_id: str, run: RunFold) -> None:
        self._open[partition, run_id] = run
        if len(self._open) > self._open_max:
            for place, name in list(islice(self._open, self._open_max // 2)):
                self._put(place, name, self._open.pop((place, name)))

    def _put(self, partition: int, run_id: str, run: RunFold) -> None:
        self._spill(partition, run_id, run)
        self._heads.put(_key(_OPEN_RUN, partition, run_id), run.encode())

    def _spill(self, partition: int, run_id: str, run: RunFold) -> None:
        # Ids hold no control characters, so the zero byte ends the run's id.
        prefix = _key(_RUN_JOB, partition, run_id) + b"\x00"
        for name, (transitions, head) in run.ended_jobs.items():
            self._heads.put(prefix + name, encode_trusted([transitions, head]))
        run.ended_jobs.clear()
        run.spilled = True


class ErasedTable:
    """Digests that the ledger says are erased, and content that is here all the same.

    A file or a value has no nonce: work that is done again may leave the very bytes that were erased with an earlier job. They
    are here by right if content says so that was recorded after the erasure, or that belongs to such content.
    """

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._clock = 0
        self.count = 0

    def add(self, digest: bytes) -> None:
        """A digest has been erased."""
        self._clock += 1
        if self._heads.get(_ERASED + digest) is None:
            self.count += 1
        self._heads.put(_ERASED + digest, self._now())

    def named_again(self, data: bytes) -> None:
        """A later record holds ``data``: content that it names may be here, even if it was erased before."""
        for digest in named_digests(data):
            if digest in self:
                self._heads.delete(_ERASED + digest)
            self._heads.put(_NAMED_SINCE + digest, self._now())

    def named_elsewhere(self, data: bytes) -> None:
        """A record of another partition holds ``data``. Whether it came before an erasure is not known: what it names may be here or gone."""
        for digest in named_digests(data):
            if digest in self:
                self._heads.put(_NAMED_ELSEWHERE + digest, b"")
            self._heads.put(_NAMED_SINCE + digest, self._now())

    def found(self, holder: bytes, data: bytes) -> None:
        """Content is here. Whether it may be, and what it says about other content, is checked when all has come."""
        if not self.count:
            return
        if holder in self:
            self._heads.put(_ERASED_HERE + holder, b"")
        since = self._heads.get(_NAMED_SINCE + holder)
        if since is None:
            # Recorded before anything was erased; or a part of other content, which no record names.
            since = b"" if data[:1] == bytes((_ENVELOPE,)) else self._now()
        for digest in {*named_digests(data), *written_digests([data])}:
            if since and digest in self and digest != holder:
                self._heads.put(_HOLDS_ERASED + holder + digest, since)

    def undone(self) -> list[bytes]:
        """All content has come: the digests that are erased and here, and that nothing names which came after."""
        if not self.count:
            return []
        held = [(key[1:33], key[33:], since) for key, since in self._heads.items(_HOLDS_ERASED)]
        changed = True
        while changed:
            changed = False
            for holder, digest, since in held:
                erased = self._heads.get(_ERASED + digest)
                if erased is not None and holder not in self and since >= erased:
                    self._heads.delete(_ERASED + digest)
                    changed = True
        here = [key[1:] for key, _ in self._heads.items(_ERASED_HERE)]
        return [name for name in here if name in self and self._heads.get(_NAMED_ELSEWHERE + name) is None]

    def __contains__(self, digest: bytes) -> bool:
        return self._heads.get(_ERASED + digest) is not None

    def _now(self) -> bytes:
        return self._clock.to_bytes(8, "big")


def _job_key(job_id: str) -> bytes:
    return _JOB + job_id.encode()


def _key(kind: bytes, partition: int, run_id: str) -> bytes:
    return kind + partition.to_bytes(8, "big") + run_id.encode()
