"""A forged checkpoint: the next owner would go on from it, so `detent verify` compares it with what the commands lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from detent.canon import decode, encode, sha256
from detent.inspect import unsigned_rows
from detent.inspect.audit import verify_home
from detent.inspect.replay import replay_home
from detent.ledger.findings import Report
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.testing import FakeClock
from tests.homes import EARLY_MS, Played, fresh

LEFT = "(1 not compared)"


@pytest.fixture
def played(tmp_path: Path) -> Played:
    """A home that was closed with a checkpoint."""
    made = fresh(tmp_path)
    parts = Parts(clock=FakeClock(EARLY_MS + 3_600_000), checkpoint_records=1)
    with Session(made.home, parts, environment=made.environment):
        pass  # Opening and closing it writes batches, each with a checkpoint.
    assert verified(made).ok
    assert not any("checkpoint" in sentence for sentence in verified(made).not_proved)
    return made


def verified(played: Played) -> Report:
    return verify_home(played.home, environment=played.environment)


def forge(played: Played, name: str, value: object) -> None:
    """Change one part of the newest checkpoint, and its digest with it."""

    def change(database: apsw.Connection) -> None:
        newest = "SELECT checkpoint_no, body FROM checkpoints ORDER BY batch_no DESC LIMIT 1"
        rows: list[Any] = database.execute(newest).fetchall()
        ((number, body),) = rows
        state = decode(body)
        assert state[name] != value
        state[name] = value
        forged = encode(state)
        database.execute(
            "UPDATE checkpoints SET body = ?, digest = ? WHERE checkpoint_no = ?", (forged, sha256(forged), number)
        )

    played.edit(change)


@pytest.mark.parametrize(("name", "value"), [("jobs", []), ("tick", 5), ("epoch", 99), ("queue", None), ("runs", [])])
def test_a_forged_checkpoint_is_found(played: Played, name: str, value: object) -> None:
    """X-196, X-022: only `detent replay` found it."""
    forge(played, name, value)
    report = verified(played)
    assert set(report.codes) == {"CHECKPOINT_WRONG"}
    assert name in report.findings[0].message


def test_a_checkpoint_that_counts_otherwise_is_said_not_to_be_proved(played: Played) -> None:
    """An older release may have counted otherwise."""
    forge(played, "trace_length", 1)
    report = verified(played)
    assert report.ok
    assert any(LEFT in sentence for sentence in report.not_proved)


def test_the_checkpoint_of_a_long_history_is_said_not_to_be_proved(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-196: `verify` names what it leaves to `replay`."""
    monkeypatch.setattr(unsigned_rows, "RECORDS_APPLIED_MAX", 1)
    forge(played, "jobs", [])
    report = verified(played)
    assert report.ok
    assert any(LEFT in sentence for sentence in report.not_proved)


@pytest.mark.parametrize("batch_no", ["batch_no + 1000", "1 << 62", "-1", "-(1 << 62)"])
def test_a_checkpoint_after_a_batch_that_is_not_there_is_found_and_not_gone_on_from(
    played: Played, batch_no: str
) -> None:
    """X-196: an owner went on from it, and signed what a replay refused."""
    played.edit(
        lambda database: database.execute(f"UPDATE checkpoints SET batch_no = {batch_no} WHERE checkpoint_no = 1")
    )
    assert set(verified(played).codes) == {"CHECKPOINT_WRONG"}
    played.edit(lambda database: database.execute("DELETE FROM checkpoints WHERE checkpoint_no <> 1"))
    with played.session(FakeClock(EARLY_MS + 7_200_000)):
        pass
    assert replay_home(played.home).differences == ()


def test_a_changed_digest_of_a_checkpoint_is_found(played: Played) -> None:
    """X-196: an owner would pass the checkpoint over, and take longer to open the home."""
    played.edit(lambda database: database.execute("UPDATE checkpoints SET digest = zeroblob(32)"))
    report = verified(played)
    assert set(report.codes) == {"CHECKPOINT_WRONG"}
    assert "not what its digest names" in report.findings[0].message
