"""Results of ended chunks that wait for their commit: how each item ended, its value, and why the failed ones failed."""

from __future__ import annotations

from typing import Final

from detent.errors import InvalidInput
from detent.jobs.work import WorkReport
from detent.kernel.table import State
from detent.ordered import Chunk, Commit, Envelope, OrderedConfig, OrderedRun, SeqState
from detent.owner.backend import Backend
from detent.runs.ordered.chunk_result import read_head
from detent.runs.ordered.commit_thread import Handed, Held, chunks_between
from detent.runs.ordered.recovery import FailedItem, envelopes, failure_code, failures_of

FAILURES_KEPT_MAX: Final = 1000


class Waiting:
    """What is held between the end of a chunk and its commit. One thread's own."""

    def __init__(self, backend: Backend, config: OrderedConfig) -> None:
        self.failures: list[FailedItem] = []
        """Of the items committed so far, in order; the first thousand."""
        self._backend = backend
        self._config = config
        self._held: dict[int, Held] = {}
        """Values of ended chunks, by the chunk's first seq."""
        self._told: dict[int, FailedItem] = {}

    def keep(
        self, chunk: Chunk, job_id: str, state: str, digest: bytes | None, report: WorkReport | None
    ) -> list[Envelope]:
        """Hold what a chunk came to, and say how each of its items ended. Of one that failed as a whole, all failed."""
        count = chunk.last - chunk.first + 1
        data = None
        if state == State.SUCCEEDED and report is not None and digest is not None:
            data = self._backend.value_bytes(report)
        result = None if data is None else read_head(data)
        if result is not None and (len(result.outcomes) > count or result.first != chunk.first):
            raise InvalidInput(f"job {job_id!r} answers for other items than it was given")
        for failure in failures_of(chunk, job_id, result, report):
            self._told[failure.seq] = failure
        if data is None or digest is None or result is None:
            return [Envelope(SeqState.TERMINAL_FAIL, code=failure_code(report))] * count
        size = len(data) // count
        keep = size <= self._config.payload_bytes_max
        self._held[chunk.first] = Held(
            result, data if keep else None, digest, None if report is None else report.value_content
        )
        return envelopes(result, size if keep else 0)

    def handed(self, commit: Commit, run: OrderedRun) -> Handed:
        """A run of seqs for the commit lane, with the values that are held for it."""
        outcomes: list[SeqState] = []
        digests: list[bytes | None] = []
        held: list[Held] = []
        for chunk in chunks_between(self._config, commit.first, commit.last):
            start, end = max(chunk.first, commit.first), min(chunk.last, commit.last) + 1
            known = self._held.get(chunk.first)
            if known is not None and not start <= run.boundary < end:  # No cancellation took some of them away.
                held.append(known)
                outcomes += known.result.outcomes[start - chunk.first : end - chunk.first]
                digests += known.result.digests[start - chunk.first : end - chunk.first]
                continue
            for seq in range(start, end):
                envelope = run.envelope(seq)
                assert envelope is not None
                outcomes.append(envelope.outcome)
                digests.append(envelope.payload_digest)
            held += () if known is None else (known,)
        return Handed(commit.first, commit.batches, outcomes, digests, held)

    def drop(self) -> None:
        """Let go of everything: nothing of it will be committed."""
        self._told.clear()
        held, self._held = self._held, {}
        for one in held.values():
            self._forget(one)

    def release(self, first: int, last: int) -> None:
        """These seqs are committed: let go of what was held for them."""
        for chunk in chunks_between(self._config, first, last):
            if chunk.last <= last and (held := self._held.pop(chunk.first, None)) is not None:
                self._forget(held)
        for seq in range(first, last + 1) if self._told else ():
            if (failure := self._told.pop(seq, None)) is not None and len(self.failures) < FAILURES_KEPT_MAX:
                self.failures.append(failure)

    def _forget(self, held: Held) -> None:
        self._backend.forget(held.digest)
        if held.content is not None:
            self._backend.forget(held.content)
