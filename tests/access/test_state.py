"""Access as a fold of records: what each change needs, and what it does to keys, members and workspaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from detent.access.attempts import KNOWN_MAX, Attempts
from detent.access.changes import (
    DAY_MS,
    KEY_RANDOM_BYTES,
    KEYS_MAX,
    OVERLAP_MS,
    Change,
    KeyDraft,
    change_workspace,
    create_key,
    create_workspace,
    local_principal,
    remove_member,
    revoke_key,
    rotate_key,
    set_member,
)
from detent.access.scopes import ROLES, Principal
from detent.access.state import AccessState
from detent.access.tokens import SECRET_BYTES, Token, read_token
from detent.errors import DetentError

NOW = 1_700_000_000_000
OWNER = local_principal("own")


class Book:
    """A fold, and changes applied to it as the ledger would."""

    def __init__(self) -> None:
        self.state = AccessState()
        self._count = 0

    def random(self) -> bytes:
        self._count += 1
        return (self._count << 8).to_bytes(8, "big") * (KEY_RANDOM_BYTES // 8)

    def put(self, change: Change, maker: Principal = OWNER, *, outcome: str = "OK", at_ms: int = NOW) -> None:
        record: dict[str, Any] = {
            "action": change.action,
            "object_id": change.object_id,
            "tenant_id": change.workspace,
            "outcome_code": outcome,
            "credential_id": maker.credential_id,
        }
        self.state.apply(record, {"parameters": dict(change.parameters)}, at_ms=at_ms)

    def key(self, maker: Principal = OWNER, **draft: Any) -> Token:
        change, token = create_key(self.state, maker, KeyDraft(**draft), random=self.random(), now_ms=NOW)
        self.put(change, maker)
        return token


@pytest.fixture
def book() -> Book:
    return Book()


def refusal(error: pytest.ExceptionInfo[DetentError]) -> tuple[str, str]:
    return error.value.code, str(error.value)


def test_a_key_is_kept_by_the_digest_of_its_secret(book: Book) -> None:
    token = book.key(role="viewer")
    key = book.state.key(token.token_id)
    assert key is not None
    assert (key.secret, key.workspace, key.role, key.scopes) == (token.digest, "local", "viewer", ROLES["viewer"])
    assert (key.created_ms, key.expires_ms, key.made_by) == (NOW, NOW + 90 * DAY_MS, "own")
    assert token.text.encode() not in repr(key).encode()
    assert key.counts(NOW + 90 * DAY_MS - 1)
    assert key.state(NOW + 90 * DAY_MS) == "expired"


def test_an_action_that_was_refused_changes_nothing(book: Book) -> None:
    change, token = create_key(book.state, OWNER, KeyDraft("viewer"), random=book.random(), now_ms=NOW)
    book.put(change, outcome="FORBIDDEN")
    assert book.state.key(token.token_id) is None


@pytest.mark.parametrize(
    "spoilt",
    [
        {"secret": b"short"},
        {"secret": None},
        {"scopes": []},
        {"scopes": ["jobs:read", "jobs:fly"]},
        {"scopes": "jobs:read"},
        {"expires_ms": "never"},
        {"principal_id": 7},
    ],
)
def test_a_key_that_cannot_be_read_is_not_made(book: Book, spoilt: Mapping[str, Any]) -> None:
    change, token = create_key(book.state, OWNER, KeyDraft("viewer"), random=book.random(), now_ms=NOW)
    book.put(replace(change, parameters={**change.parameters, **spoilt}))
    assert book.state.key(token.token_id) is None


def test_a_rotation_that_cannot_be_read_ends_the_key(book: Book) -> None:
    token = book.key(role="viewer")
    change, _ = rotate_key(book.state, OWNER, token.token_id, random=bytes(SECRET_BYTES), now_ms=NOW)
    book.put(replace(change, parameters={}))
    assert book.state.key(token.token_id) is None


def test_a_key_never_exceeds_its_maker(book: Book) -> None:
    maker = Principal("p_ann", "annkey", "local", ROLES["admin"], NOW + 10 * DAY_MS)
    with pytest.raises(DetentError) as error:
        book.key(maker, role="server_admin")
    assert refusal(error) == (
        "VALIDATION_ERROR",
        "scopes: your own credential does not have metrics:read, server:admin, server:audit, workers:write",
    )
    with pytest.raises(DetentError) as error:
        book.key(maker, role="viewer", lasts_ms=11 * DAY_MS)
    assert "ends no later than the credential that makes it" in str(error.value)
    with pytest.raises(DetentError):
        book.key(maker, role="viewer", never_expires=True)
    made = book.state.key(book.key(maker, role="viewer").token_id)
    assert made is not None
    assert (made.workspace, made.expires_ms) == ("local", NOW + 10 * DAY_MS)


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        ({}, "a key needs a role or scopes"),
        ({"role": "king"}, "is not one of viewer"),
        ({"scopes": []}, "at least one scope"),
        ({"scopes": ["jobs:fly"]}, "'jobs:fly' is not a scope"),
        ({"role": "viewer", "lasts_ms": 401 * DAY_MS}, "at most 400 days"),
        ({"role": "viewer", "lasts_ms": 0}, "at most 400 days"),
        ({"role": "viewer", "principal_id": "p_nobody"}, "is not a member of this workspace"),
    ],
)
def test_a_key_that_is_not_described_well_is_refused(book: Book, draft: Any, said: str) -> None:
    with pytest.raises(DetentError, match=said):
        book.key(**draft)


def test_rotation_gives_a_second_secret_and_ends_the_first_a_day_later(book: Book) -> None:
    token = book.key(role="viewer", lasts_ms=30 * DAY_MS)
    later = NOW + 20 * DAY_MS
    change, second = rotate_key(book.state, OWNER, token.token_id, random=b"r" * SECRET_BYTES, now_ms=later)
    book.put(change, at_ms=later)
    key = book.state.key(token.token_id)
    assert key is not None
    assert second.token_id == token.token_id
    assert read_token(second.text) == second
    assert key.secrets(later) == (second.digest, token.digest)
    assert key.secrets(later + OVERLAP_MS) == (second.digest,)
    assert key.expires_ms == later + 30 * DAY_MS, "it lasts as long again as it was made to last"


def test_a_key_is_rotated_only_by_a_credential_that_may_do_as_much(book: Book) -> None:
    token = book.key(role="server_admin")
    admin = Principal("p_ann", "annkey", "local", ROLES["admin"])
    with pytest.raises(DetentError, match="your own credential does not have"):
        rotate_key(book.state, admin, token.token_id, random=bytes(SECRET_BYTES), now_ms=NOW)
    elsewhere = replace(OWNER, workspace="other")
    for refused in (
        lambda: rotate_key(book.state, elsewhere, token.token_id, random=bytes(SECRET_BYTES), now_ms=NOW),
        lambda: revoke_key(book.state, elsewhere, token.token_id),
        lambda: revoke_key(book.state, OWNER, "z" * 12),
    ):
        with pytest.raises(DetentError) as error:
            refused()
        assert refusal(error) == ("NOT_FOUND", "there is no such key in this workspace")


def test_a_revoked_key_is_gone_and_still_listed(book: Book) -> None:
    token = book.key(role="viewer")
    book.put(revoke_key(book.state, OWNER, token.token_id), at_ms=NOW + 5)
    assert book.state.key(token.token_id) is None
    assert list(book.state.keys("local")) == []
    (listed,) = book.state.keys("local", ended=True)
    assert (listed.revoked_ms, listed.state(NOW)) == (NOW + 5, "revoked")
    change, _ = create_key(book.state, OWNER, KeyDraft("viewer"), random=book.random(), now_ms=NOW)
    book.put(replace(change, object_id=token.token_id))
    assert book.state.key(token.token_id) is None, "an id does not come back"


def test_a_member_that_leaves_takes_its_keys_along_and_a_lower_role_lowers_them(book: Book) -> None:
    book.put(set_member(book.state, OWNER, "p_ann", "operator"))
    mine = book.key(role="operator", principal_id="p_ann")
    other = book.key(role="operator")
    with pytest.raises(DetentError, match="the member's role operator does not have"):
        book.key(role="admin", principal_id="p_ann")
    book.put(set_member(book.state, OWNER, "p_ann", "viewer"))
    held = book.state.key(mine.token_id)
    assert held is not None
    assert book.state.scopes_of(held) == ROLES["viewer"]
    book.put(remove_member(book.state, OWNER, "p_ann"))
    assert book.state.key(mine.token_id) is None
    assert book.state.key(other.token_id) is not None
    with pytest.raises(DetentError, match="no such member"):
        remove_member(book.state, OWNER, "p_ann")


def test_a_role_is_given_and_taken_only_by_a_principal_that_has_all_of_it(book: Book) -> None:
    admin = Principal("p_ann", "annkey", "local", ROLES["admin"])
    with pytest.raises(DetentError, match="your own credential does not have"):
        set_member(book.state, admin, "p_bob", "server_admin")
    book.put(set_member(book.state, OWNER, "p_bob", "server_admin"))
    with pytest.raises(DetentError, match="your own credential does not have"):
        set_member(book.state, admin, "p_bob", "viewer")
    with pytest.raises(DetentError, match="your own credential does not have"):
        remove_member(book.state, admin, "p_bob")
    with pytest.raises(DetentError, match="is not one of"):
        set_member(book.state, OWNER, "p_bob", "king")
    with pytest.raises(DetentError, match="a principal is written"):
        set_member(book.state, OWNER, "bob", "viewer")


def test_workspaces_are_made_once_and_changed_whole(book: Book) -> None:
    book.put(create_workspace(book.state, "team-a", {"network_access": True}, {"stored_bytes": 5}))
    made = book.state.workspace("team-a")
    assert made is not None
    assert (made.plan, made.quotas) == ({"network_access": True}, {"stored_bytes": 5})
    with pytest.raises(DetentError) as error:
        create_workspace(book.state, "team-a", None, None)
    assert error.value.code == "CONFLICT"
    book.put(change_workspace(book.state, "team-a", None, None))
    changed = book.state.workspace("team-a")
    assert changed is not None
    assert (changed.plan, changed.quotas, changed.created_ms) == (None, None, NOW)
    for name in ("", "Team", "a_b", "-a", "a-", "x" * 64, "a/b"):
        with pytest.raises(DetentError, match="a workspace is written"):
            create_workspace(book.state, name, None, None)
    for quotas in ({"jobs": 1}, {"stored_bytes": 0}, {"stored_bytes": "1"}):
        with pytest.raises(DetentError):
            change_workspace(book.state, "team-a", None, quotas)  # type: ignore[arg-type]
    with pytest.raises(DetentError, match="no such workspace"):
        change_workspace(book.state, "team-b", None, None)


def test_a_workspace_holds_a_bounded_number_of_keys(book: Book) -> None:
    for _ in range(KEYS_MAX):
        book.key(role="viewer")
    with pytest.raises(DetentError) as error:
        book.key(role="viewer")
    assert error.value.code == "ACCESS_FULL"


def test_refused_attempts_are_recorded_once_a_second_and_then_counted() -> None:
    attempts: Attempts[str] = Attempts()
    assert attempts.refused("p_a", "job.cancel", "first", now_ms=0)
    assert not attempts.refused("p_a", "job.cancel", "second", now_ms=10)
    assert not attempts.refused("p_a", "job.cancel", "third", now_ms=999)
    assert attempts.refused("p_a", "job.retry", "other action", now_ms=999)
    assert attempts.due(now_ms=999) == []
    assert attempts.due(now_ms=1_000) == [("third", 2)]
    assert not attempts.refused("p_a", "job.cancel", "fourth", now_ms=1_500)
    assert attempts.due(now_ms=1_999) == []
    assert attempts.due(now_ms=2_000) == [("fourth", 1)]
    assert attempts.due(now_ms=9_000) == []
    assert attempts.refused("p_a", "job.cancel", "fifth", now_ms=9_000)


def test_attempts_of_too_many_principals_are_settled_early() -> None:
    attempts: Attempts[int] = Attempts()
    for number in range(KNOWN_MAX + 1):
        attempts.refused(f"p_{number}", "job.cancel", number, now_ms=0)
        attempts.refused(f"p_{number}", "job.cancel", number, now_ms=0)
    assert attempts.due(now_ms=0) == [(0, 1)]
