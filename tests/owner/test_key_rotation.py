"""Key rotation: exact ranges, an untouched past, and the ways in which it is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from detent.errors import HomeError, InvalidInput, RolledBack, StoreUnavailable, TrustError
from detent.inspect.audit import verify_home
from detent.ledger import KeyEntry, Trust
from detent.owner import keys as rotate_module
from detent.owner.home import make_home
from detent.owner.home_permissions import ROLES
from detent.owner.keys import Rotated, keys_view, rotate
from detent.owner.session import Session
from detent.owner.state_directory import KeptHeads, state_directory
from detent.owner.wiring import Parts, begin_ledger, load_trust
from detent.testing import Crash, CrashAt, FakeClock
from tests.homes import EARLY_MS, Hand, Played, fresh


def rotated(played: Played, role: str, parts: Parts | None = None) -> Rotated:
    parts = parts or Parts(clock=FakeClock(EARLY_MS + 3_600_000))
    return rotate(played.home, role, environment=played.environment, parts=parts)


def size_of(played: Played) -> int:
    with Parts().open_reader(played.home.ledger) as reader:
        return reader.head(0).size


def trust_of(played: Played) -> Trust:
    with Parts().open_reader(played.home.ledger) as reader:
        return load_trust(reader, played.home.settings())


def entry(trust: Trust, key_id: bytes) -> KeyEntry:
    return next(entry for entry in trust.config.keys if entry.key_id == key_id)


@pytest.mark.parametrize("role", ROLES)
def test_every_role_is_rotated_and_work_goes_on_under_the_new_key(tmp_path: Path, role: str) -> None:
    played = fresh(tmp_path)
    size = size_of(played)
    done = rotated(played, role)
    trust = trust_of(played)
    assert (done.version, done.from_position, trust.config.version) == (2, size + 1, 2)
    (old,) = done.old_key_ids
    assert entry(trust, old).to_position == size + 1
    assert entry(trust, done.new_key_id).from_position == size + 1
    assert verify_home(played.home, environment=played.environment).ok
    with played.session() as session:
        Hand(played.home, session).submit("later")
    report = verify_home(played.home, environment=played.environment)
    assert report.ok, report.findings
    assert report.root == played.root


def test_the_announcing_batch_is_the_old_keys_last(tmp_path: Path) -> None:
    """The owner that announces writes one batch: a second would be signed by a key whose time is over."""
    played = fresh(tmp_path)
    size = size_of(played)
    # At this setting an owner that closes would write a checkpoint, in a batch of its own.
    rotated(played, "transition", Parts(clock=FakeClock(EARLY_MS + 3_600_000), checkpoint_records=100))
    assert size_of(played) == size + 1
    assert verify_home(played.home, environment=played.environment).ok


def test_what_the_old_key_signs_after_its_time_is_refused_and_found_where_it_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PIPE-083"""
    played = fresh(tmp_path)
    rotated(played, "manifest")
    trust = trust_of(played)
    with played.session() as session:
        hand = Hand(played.home, session)
        old = next(entry for entry in trust.config.keys if entry.role == "manifest" and entry.to_position is not None)
        hand._manifest_key = played.home.keyring.find("manifest", old.key_id)
        with pytest.raises(AssertionError, match="KEY_OUT_OF_RANGE"):
            hand.submit("backdated")
        # An owner that believes what it is handed; a verifier does not.
        monkeypatch.setattr("detent.owner.session.signer_refusal", lambda *_: None)
        hand.submit("backdated")
    assert "KEY_OUT_OF_RANGE" in verify_home(played.home, environment=played.environment).codes


def test_roles_are_rotated_again_and_again(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    for version, role in enumerate(("root", "log", "root", "transition", "transition"), 2):
        assert rotated(played, role).version == version
    report = verify_home(played.home, environment=played.environment)
    assert report.ok, report.findings


def test_the_pinned_root_stays_the_same(tmp_path: Path) -> None:
    """X-178"""
    played = fresh(tmp_path)
    before = played.root
    rotated(played, "root")
    assert (played.root, trust_of(played).root_text) == (before, before)


def test_every_partition_announces_and_goes_on_under_the_new_keys(tmp_path: Path) -> None:
    """Partitions have different lengths; the ranges fit each of them."""
    home = make_home(tmp_path / ".detent", begin_ledger, partitions=3)
    played = Played(home, tmp_path / "state")
    with played.session() as session:
        hand = Hand(home, session)
        busy = session.partition("a")
        for _ in range(4):
            session.ask([], partition=busy)
        assert hand.session.owns
    for role in ("transition", "log", "root", "transition"):
        rotated(played, role)
        with played.session():
            pass
    report = verify_home(home, environment=played.environment)
    assert report.ok, report.findings


def test_a_rotation_cut_short_between_partitions_is_finished_by_the_next_one(tmp_path: Path) -> None:
    home = make_home(tmp_path / ".detent", begin_ledger, partitions=2)
    played = Played(home, tmp_path / "state")
    parts = Parts(clock=FakeClock(EARLY_MS), crash_point=CrashAt("decided", 2))
    with pytest.raises(Crash):
        rotated(played, "transition", parts)
    with Parts().open_reader(home.ledger) as reader:
        versions = [load_trust(reader, home.settings(), number).config.version for number in range(2)]
    assert versions == [2, 1]
    assert verify_home(home, environment=played.environment).ok
    with played.session():
        pass  # Each partition goes on under the keys it has announced.
    assert rotated(played, "transition").version == 3
    with Parts().open_reader(home.ledger) as reader:
        versions = [load_trust(reader, home.settings(), number).config.version for number in range(2)]
    assert versions == [3, 3]
    with played.session():
        pass
    report = verify_home(home, environment=played.environment)
    assert report.ok, report.findings


def test_a_home_with_an_owner_is_refused(tmp_path: Path) -> None:
    """X-172"""
    played = fresh(tmp_path)
    with played.session(), pytest.raises(StoreUnavailable, match="owns the home"):
        rotated(played, "log")
    assert sum(1 for _ in played.home.keyring.stored()) == len(ROLES)


def test_a_role_without_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no role 'witness' here"):
        rotated(fresh(tmp_path), "witness")


def test_a_rolled_back_ledger_is_refused_before_a_key_is_made(tmp_path: Path) -> None:
    """X-178"""
    played = fresh(tmp_path)
    keeper = KeptHeads(state_directory(played.environment), played.home.settings().origin)
    size, note = keeper.heads()[0]
    keeper.keep(0, size + 1, note)
    with pytest.raises(RolledBack):
        rotated(played, "log")
    assert sum(1 for _ in played.home.keyring.stored()) == len(ROLES)


def test_without_the_root_key_nothing_is_rotated(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    for path in (played.home.path / "keys").glob("root-*.key"):
        path.unlink()
    with pytest.raises(HomeError, match="the root key"):
        rotated(played, "log")
    assert trust_of(played).config.version == 1


def test_a_lost_key_is_replaced_as_long_as_root_owner_and_log_are_there(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    for path in (played.home.path / "keys").glob("manifest-*.key"):
        path.unlink()
    rotated(played, "manifest")
    with played.session() as session:
        Hand(played.home, session).submit("later")
    assert verify_home(played.home, environment=played.environment).ok


def test_a_crash_before_the_announcement_leaves_an_unused_file(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    parts = Parts(clock=FakeClock(EARLY_MS + 3_600_000), crash_point=CrashAt("sealed"))
    with pytest.raises(Crash):
        rotated(played, "log", parts)
    with Parts().open_reader(played.home.ledger) as reader:
        view = keys_view(played.home, reader)
    assert [role for role, _ in view.unused] == ["log"]
    with Session(played.home, Parts(clock=FakeClock(EARLY_MS + 3_600_000)), environment=played.environment):
        pass
    assert verify_home(played.home, environment=played.environment).ok


def test_a_configuration_without_a_key_to_follow_is_refused(tmp_path: Path) -> None:
    trust = trust_of(fresh(tmp_path))
    new = replace(trust.config.keys[0], role="witness")
    with pytest.raises(TrustError, match="no witness key to rotate"):
        rotate_module.rotated_config(trust, "witness", new)


def test_private_keys_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    """X-178"""
    played = fresh(tmp_path)
    rotated(played, "log")
    assert {path.stat().st_mode & 0o777 for path in (played.home.path / "keys").glob("*.key")} == {0o600}
