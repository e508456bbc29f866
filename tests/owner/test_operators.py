"""Operators' actions in the owner's turn: in the commit of their effect, with what came of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detent.canon import decode, encode, sha256
from detent.errors import InvalidInput
from detent.kernel import EnrollWorker, Operate, RetireWorker
from detent.kernel.commands import OUTCOME_OF_REQUEST
from tests.kernel.builders import TENANT
from tests.owner.rig import Rig, cancel, submit

ACTION = Operate(
    0, "p_ann", "dtk_1", "job.cancel", "job", "job-1", OUTCOME_OF_REQUEST, bytes(32), TENANT, encode({"reason": "slow"})
)


def operated(rig: Rig) -> list[dict[str, object]]:
    return [decode(row.body) for row in rig.store.records_of_kind(0, "operated")]


def test_an_action_shares_the_commit_of_its_effect_and_says_how_that_ended(rig: Rig) -> None:
    rig.do(submit())
    size = rig.size
    canceled, asked = rig.do(cancel(), ACTION)
    assert (canceled.ok, asked.ok, rig.size) == (True, True, size + 1)
    assert [row.kind for row in rig.store.records(0)][-2:] == ["transition", "operated"]
    assert [record["outcome_code"] for record in operated(rig)] == ["OK"]


def test_an_action_that_was_refused_is_on_the_ledger_with_the_code_of_the_refusal(rig: Rig) -> None:
    refused, asked = rig.do(cancel("nobody"), replace(ACTION, object_id="nobody"))
    assert (refused.ok, asked.ok) == (False, True)
    assert [(record["object_id"], record["outcome_code"]) for record in operated(rig)] == [("nobody", "UNKNOWN_JOB")]


def test_an_outcome_that_is_given_stays_as_it_is(rig: Rig) -> None:
    rig.do(cancel("nobody"), replace(ACTION, outcome_code="FORBIDDEN"))
    assert [record["outcome_code"] for record in operated(rig)] == ["FORBIDDEN"]


def test_an_action_that_is_not_in_the_list_is_refused_before_anything_is_written(rig: Rig) -> None:
    size = rig.size
    with pytest.raises(InvalidInput, match=r"no action 'job\.paint'"):
        rig.do(submit(), replace(ACTION, action="job.paint"))
    assert rig.size == size


@pytest.mark.parametrize("checkpoint_records", [1, 10_000], ids=["from a checkpoint", "from the beginning"])
def test_workers_are_known_again_after_a_restart(rig: Rig, checkpoint_records: int) -> None:
    rig.owner.close()
    rig.open(checkpoint_records=checkpoint_records)
    evidence = encode({"certificate": b"one", "proof": b""})
    command = EnrollWorker(0, "gpu-1", b"\x01" * 32, sha256(b"one"), evidence)
    assert rig.one(command).status == "COMMITTED"
    assert rig.one(RetireWorker(0, "gpu-1", "KEY_LOST")).status == "COMMITTED"
    rig.owner.close()
    rig.open()
    assert rig.one(RetireWorker(0, "gpu-1", "KEY_LOST")).status == "DEDUPLICATED"
    assert rig.one(replace(command, worker_id="gpu-2")).status == "CONFLICT"
    assert rig.one(replace(command, worker_id="gpu-2", key_id=b"\x02" * 32)).status == "COMMITTED"
