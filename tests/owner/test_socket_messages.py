"""What travels over the owner's socket: errors, answers and messages arrive as they were sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.canon import encode
from detent.errors import CODES, DetentError, InvalidInput, InvariantBroken, Refused, StoreUnavailable
from detent.kernel import Claim, Heartbeat
from detent.owner.socket_messages import (
    Answer,
    answer_from_list,
    answer_to_list,
    error_from_map,
    error_to_map,
    frame,
    read_message,
)
from detent.targets import CommitFailed  # noqa: F401 - one more class that must be able to arrive
from tests.owner.homes import House, one
from tests.owner.rig import cancel


def test_every_error_arrives_as_the_class_its_code_stands_for() -> None:
    for code in CODES:
        sent = DetentError("what happened", code=code, hint="what to do", details={"n": 1, "path": "x"})
        arrived = error_from_map(read_message(frame(error_to_map(sent))[4:]))
        assert (arrived.code, str(arrived), arrived.hint) == (code, "what happened", "what to do")
        assert (arrived.retryable, arrived.details) == (sent.retryable, {"n": 1, "path": "x"})
    assert type(error_from_map(error_to_map(StoreUnavailable("x")))) is StoreUnavailable
    assert error_from_map(error_to_map(InvariantBroken("a bug"))).code == "INVARIANT_VIOLATION"


@pytest.mark.parametrize("value", [None, 7, {}, {"code": "NO_SUCH_CODE"}, {"code": None}])
def test_an_error_that_cannot_be_read_is_an_error_all_the_same(value: object) -> None:
    assert isinstance(error_from_map(value), InvalidInput)


@pytest.mark.parametrize("value", [None, 7, [], [1, 2, 3, 4, 5, 6, 7], ["A", 1, None, None, [], None], {"a": 1}])
def test_what_is_no_answer_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput):
        answer_from_list(value)


def test_an_answer_arrives_as_it_was_sent(tmp_path: Path) -> None:
    house = House(tmp_path)
    with house.session() as owner:
        one(owner, house.submit())
        answers: list[Answer] = [one(owner, Claim(0, "worker-1")), one(owner, cancel("nobody"))]
        (grant,) = answers[0].grants
        answers.append(one(owner, Heartbeat(0, grant.job_id, grant.lease_id)))
    for answer in answers:
        assert answer_from_list(read_message(frame({"a": answer_to_list(answer)})[4:])["a"]) == answer


def test_details_that_cannot_travel_are_sent_as_text() -> None:
    refused = Answer("REFUSED", None, None, Refused("CONFLICT", "no", {"path": Path("/x"), "n": 3}), (), None)
    sent = answer_from_list(answer_to_list(refused))
    assert sent.refusal is not None
    assert sent.refusal.details == {"path": "/x", "n": 3}


def test_a_message_is_a_canonical_map() -> None:
    assert read_message(encode({"a": 1})) == {"a": 1}
    for data in (encode(1), b"\xa1\x61\x61\x18\x01", b""):
        with pytest.raises(InvalidInput):
            read_message(data)
