"""A file among the arguments of a job that was deleted from the home: `verify` finds it (X-196)."""

from __future__ import annotations

from functools import partial

import pytest

import detent
from detent.canon import parse_digest
from detent.inspect.audit import verify_home
from detent.jobs.order import read_order
from detent.kernel import Job
from detent.owner.content import open_value
from detent.owner.wiring import Parts
from detent.runs import runtime
from detent.sdk.client import Client
from detent.testing import InlineLane, TemporaryHome
from detent.testing.plugin import detent_home
from tests.sdk import work_functions as functions

__all__ = ["detent_home"]


def test_a_deleted_file_among_the_arguments_is_found(
    detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-196"""
    lane = InlineLane(content=detent_home.path / "content", clock_ms=detent_home.parts.clock.wall_ms)
    inline = partial(runtime.Runtime, parts=detent_home.parts, executors=lane.executors)
    monkeypatch.setattr(runtime, "Runtime", inline)
    source = detent_home.directory / "given.bin"
    source.write_bytes(b"x" * 100_000)
    with Client(detent_home.path) as client:
        client.submit(functions.pid, detent.File(source)).result(60)
    with Parts().open_reader(detent_home.home.ledger) as reader:
        (row,) = reader.jobs()
        data = reader.content(Job.decode(row.body).payload_digest)
        assert data is not None
        (named,) = read_order(open_value(data)).call.files()
    assert verify_home(detent_home.home, environment=detent_home.environment).ok
    files = [path for path in (detent_home.path / "content").rglob("*") if path.is_file()]
    (stored,) = [path for path in files if parse_digest(named).hex() in "".join(path.parts)]
    stored.unlink()
    report = verify_home(detent_home.home, environment=detent_home.environment)
    assert set(report.codes) == {"CONTENT_MISSING"}
    assert "a file among the arguments" in report.findings[0].message
