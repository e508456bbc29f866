"""A home in which jobs print: orders, attempts with signed reports, and the files that workers at work leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from detent.jobs.order import read_order
from detent.jobs.work import STREAM_INLINE_BYTES_MAX, Failure, WorkFile, WorkStream
from detent.kernel import Claim, Finish, Grant, ReuseStep
from detent.ledger import sign_result
from detent.owner.content import Content
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.store.api import StoreReader
from detent.testing import FakeClock
from tests.flat_reports import flat_report
from tests.homes import EARLY_MS, TENANT, Hand, Played, fresh


class Printing(Hand):
    """A hand whose jobs have work orders and whose attempts end with work reports."""

    def __init__(self, played: Played, session: Session, clock: FakeClock) -> None:
        super().__init__(played.home, session)
        self.clock = clock
        self._leased: dict[str, Grant] = {}

    def order(
        self, job_id: str, run_id: str | None = None, *, step: str | None = None, max_retries: int = 1, **order: Any
    ) -> None:
        """Submit a job with a work order."""
        said = {
            "version": 1,
            "kind": "python",
            "target": "etl:run",
            "label": step or job_id,
            "run_id": run_id,
            "step": step,
        } | order
        self.submit(job_id, read_order(said).document(), run_id, max_retries=max_retries)

    def take(self, job_id: str) -> Grant:
        """Lease a job; whatever goes before it in the queue is leased too, and kept for later."""
        while job_id not in self._leased:
            (grant,) = self.ask(Claim(0, "worker-a")).grants
            self._leased[grant.job_id] = grant
        return self._leased.pop(job_id)

    def report(
        self,
        grant: Grant,
        *,
        stdout: bytes = b"",
        stderr: bytes = b"",
        error: Failure | None = None,
        files: tuple[WorkFile, ...] = (),
    ) -> bytes | None:
        """End an attempt with a signed report; gives back the digest of stdout if that is content of its own.

        stderr is said to have been cut, so that both cases are there.
        """
        stored = stdout if len(stdout) > STREAM_INLINE_BYTES_MAX else None
        digest = None if stored is None else self.home.content_files().put(stored)
        report = flat_report(
            job_id=grant.job_id,
            attempt_id=grant.attempt_id,
            lease_id=grant.lease_id,
            manifest_hash=grant.job_manifest_hash,
            status="SUCCEEDED" if error is None else "FAILED",
            nonce=next(self._nonces).to_bytes(16, "big"),
            error=error,
            stdout=WorkStream(stdout) if digest is None else WorkStream(content=digest),
            stderr=WorkStream(stderr, truncated=bool(stderr)),
            files=files,
            worker="worker-a",
            started_ms=EARLY_MS,
            finished_ms=EARLY_MS + 1_500,
        )
        detail, inline = self.stage(sign_result(report.body(), self._result_key).envelope())
        self.ask(
            Finish(
                0,
                grant.job_id,
                grant.lease_id,
                ok=error is None,
                reason_code=report.reason_code,
                category=None if error is None else error.category,
                detail_digest=detail,
            ),
            inline,
        )
        return digest

    def lose(self, grant: Grant) -> None:
        """Let an attempt's lease run out without a word."""
        with Parts().open_reader(self.home.ledger) as reader:
            while (row := reader.job(grant.job_id)) is not None and row.state == "RUNNING":
                self.clock.jump(5_000)
                self.session.ask([])

    def wait_for_retry(self) -> None:
        """Let the time pass after which failed attempts are tried again."""
        for _ in range(4):
            self.clock.jump(5_000)
            self.session.ask([])

    def reuse(self, run_id: str, step_id: str, job_id: str) -> None:
        """Have a run take over a job's result."""
        self.ask(ReuseStep(0, run_id, step_id, job_id, bytes(32)))

    def live(self, worker: str, job_id: str, *, stdout: bytes = b"", stderr: bytes = b"") -> None:
        """A worker's files as they stand while it has a job; no job for one that waits."""
        directory = self.home.path / "live" / worker
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "job").write_bytes(f"{job_id}\n".encode())
        (directory / "stdout").write_bytes(stdout)
        (directory / "stderr").write_bytes(stderr)

    @contextmanager
    def reading(self) -> Iterator[tuple[StoreReader, Content]]:
        """The home as those see it who only read."""
        with Parts().open_reader(self.home.ledger) as reader:
            yield reader, Content(reader, self.home.content_files())


@contextmanager
def printing(directory: Path, played: Played | None = None) -> Iterator[Printing]:
    """A copy of the played home, at work."""
    played = played or fresh(directory)
    clock = FakeClock(EARLY_MS + 3_600_000)
    with played.session(clock) as session:
        yield Printing(played, session, clock)


__all__ = ["TENANT", "Printing", "printing"]
