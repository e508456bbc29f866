"""What a server notices by itself: recorded once, with real records of a real home; a worker's silence is set back by hand."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from detent.access.certificate import Certificate
from detent.canon import SigningKey, decode
from detent.kernel.records import OPERATED
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.serve.alerts import Alerts
from detent.serve.fleet import SILENT_SECONDS, Fleet, Worker
from tests.homes import fresh
from tests.serve.laboured import project
from tests.serve.served import ANSWER_SECONDS


def test_a_silent_worker_is_lost_once_for_each_silence(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    key = SigningKey(bytes(32))
    certificate = Certificate("origin", "gpu-2", key.public_key, None, None, (), 0)
    worker, fleet = Worker(certificate, key.key_id, b"", b""), Fleet()
    fleet._workers["gpu-2"] = worker

    async def silences() -> None:
        alerts = Alerts(session, fleet, look_seconds=0.01)
        alerts.start()
        for lost in (1, 2):
            worker.heard_at = time.monotonic() - SILENT_SECONDS - 1
            async with asyncio.timeout(ANSWER_SECONDS):
                while len(told()) < lost:  # noqa: ASYNC110 - what it waits for is on the disk
                    await asyncio.sleep(0.01)
            for look in range(10):  # It is told once, however often it is looked at; then it is heard again.
                await asyncio.sleep(0.02)
                worker.heard_at = time.monotonic() - (SILENT_SECONDS + 1 if look < 5 else 0)
        await alerts.stop()

    def told() -> list[tuple[str, str, str]]:
        with Parts().open_reader(played.home.ledger) as reader:
            bodies = [decode(row.body) for row in reader.records_of_kind(0, OPERATED)]
        return [(one["action"], one["object_id"], one["principal_id"]) for one in bodies if isinstance(one, dict)]

    with Session(played.home) as session:
        asyncio.run(silences())
    assert told() == [("worker.lost", "gpu-2", "p_server")] * 2


def test_a_worker_is_not_lost_because_the_server_itself_stood_still(tmp_path: Path) -> None:
    """X-180: nothing can be heard during a stall, so that is no silence."""
    home = project(tmp_path).home
    key = SigningKey(bytes(32))
    certificate = Certificate("origin", "gpu-2", key.public_key, None, None, (), 0)
    worker, fleet = Worker(certificate, key.key_id, b"", b""), Fleet()
    fleet._workers["gpu-2"] = worker
    stood_still = 0.0

    async def stall() -> None:
        nonlocal stood_still
        alerts = Alerts(session, fleet, lambda: time.monotonic() + stood_still, look_seconds=0.01)
        alerts.start()
        await asyncio.sleep(0)  # It begins to look.
        stood_still = 2 * SILENT_SECONDS
        worker.heard_at = time.monotonic() - 2 * SILENT_SECONDS
        async with asyncio.timeout(ANSWER_SECONDS):
            while worker.state == "silent" and not alerts._lost:  # noqa: ASYNC110 - it looks by itself
                await asyncio.sleep(0.01)
        await alerts.stop()

    with Session(home) as session:
        asyncio.run(stall())
    with Parts().open_reader(home.ledger) as reader:
        assert list(reader.records_of_kind(0, OPERATED)) == []
    assert worker.state == "idle"
