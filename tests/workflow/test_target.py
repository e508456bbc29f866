"""The target's side of an action lease."""

from __future__ import annotations

from uuid import UUID

import pytest

from detent.errors import DetentError
from detent.workflow import EpochConflictError, LeaseExpiredError, ModelAction, TargetNode
from tests.workflow.builders import execute, step


@pytest.fixture
def action() -> ModelAction:
    return execute([step("A")]).actions_emitted[0]


@pytest.fixture
def node(action: ModelAction) -> TargetNode:
    made = TargetNode()
    made.grant(action)
    return made


def test_the_epoch_rises_after_each_success(node: TargetNode, action: ModelAction) -> None:
    """WF-058, X-014, X-125"""
    assert node.epoch_of(action.action_id) == 0
    assert node.execute(action, lambda one: one.payload["step_name"]) == "A"
    assert node.epoch_of(action.action_id) == 1
    node.execute(action.model_copy(update={"epoch": 1}), lambda _: None)
    assert node.epoch_of(action.action_id) == 2


def test_the_epoch_stays_when_the_work_fails(node: TargetNode, action: ModelAction) -> None:
    """WF-058, X-014, X-125"""

    def fail(_: ModelAction) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        node.execute(action, fail)
    assert node.epoch_of(action.action_id) == 0
    assert node.execute(action, lambda _: "second try") == "second try"


def test_an_action_older_than_what_was_executed_conflicts(node: TargetNode, action: ModelAction) -> None:
    """WF-059"""
    node.execute(action, lambda _: None)
    with pytest.raises(EpochConflictError) as caught:
        node.execute(action, lambda _: pytest.fail("it was executed"))
    assert caught.value.details == {"epoch": 0, "current": 1}
    assert isinstance(caught.value, DetentError)


def test_a_lease_that_is_not_the_nodes_is_refused(node: TargetNode, action: ModelAction) -> None:
    """WF-054, WF-059, X-013"""
    forged = action.model_copy(update={"lease_id": UUID(int=99)})
    with pytest.raises(LeaseExpiredError):
        node.execute(forged, lambda _: pytest.fail("it was executed"))
    node.revoke(action.action_id)
    with pytest.raises(LeaseExpiredError):
        node.execute(action, lambda _: pytest.fail("it was executed"))


def test_granting_again_changes_nothing_and_a_new_lease_keeps_the_epoch(node: TargetNode, action: ModelAction) -> None:
    """WF-059"""
    node.execute(action, lambda _: None)
    node.grant(action)
    assert node.epoch_of(action.action_id) == 1
    taken = action.model_copy(update={"lease_id": UUID(int=99), "epoch": 1})
    node.grant(taken)
    with pytest.raises(LeaseExpiredError):
        node.execute(action, lambda _: None)
    node.execute(taken, lambda _: None)
    assert node.epoch_of(action.action_id) == 2
    assert node.epoch_of(UUID(int=5)) == 0
