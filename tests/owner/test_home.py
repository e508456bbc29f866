"""A home: found like a repository, made all at once, and refused when it is not what it was."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from detent.canon import digest_text
from detent.errors import DetentError, HomeError, RolledBack, StoreUnavailable, TrustError
from detent.ledger import SignedTrust
from detent.owner.home import Home, find_home, home_or_new, make_home, new_home_path
from detent.owner.lock import try_lock
from detent.owner.state_directory import KeptHeads, state_directory
from detent.owner.wiring import Parts, begin_ledger
from detent.runs.runtime import Runtime, home_at
from detent.store.api import Store
from detent.store.sqlite import SqliteStore
from detent.testing import CrashAt
from tests.faults.disk import can_mount, small_disk
from tests.owner.homes import House, one
from tests.owner.processes import surroundings
from tests.owner.rig import cancel

MS_REMOUNT_READ_ONLY = 32 | 1


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- finding -----------------------------------------------------------------------------------------------------------


def test_a_home_is_found_upwards(house: House, tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert find_home(deep, {}) == Home(tmp_path / ".detent")
    assert find_home(tmp_path, {}) == Home(tmp_path / ".detent")


def test_the_variable_and_the_option_come_before_the_directory(house: House, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = House(tmp_path / "other")
    assert find_home(tmp_path, {"DETENT_HOME": str(other.home.path)}) == other.home
    assert find_home(tmp_path, {"DETENT_HOME": str(other.home.path)}, house.home.path) == house.home


def test_what_is_no_home_is_not_found(tmp_path: Path) -> None:
    (tmp_path / ".detent").mkdir()
    assert find_home(tmp_path, {}) is None or find_home(tmp_path, {}) != Home(tmp_path / ".detent")
    assert find_home(tmp_path, {"DETENT_HOME": str(tmp_path / "nowhere")}) is None


def test_a_new_home_is_made_where_it_would_be_looked_for(tmp_path: Path) -> None:
    assert new_home_path(tmp_path, {}) == tmp_path / ".detent"
    assert new_home_path(tmp_path, {"DETENT_HOME": str(tmp_path / "x")}) == tmp_path / "x"
    assert new_home_path(tmp_path, {"DETENT_HOME": str(tmp_path / "x")}, tmp_path / "y") == tmp_path / "y"


# -- making ------------------------------------------------------------------------------------------------------------


def test_a_new_home_is_private_and_ignored_by_git(tmp_path: Path) -> None:
    """X-178"""
    home = make_home(tmp_path / ".detent", begin_ledger)
    path = home.path
    assert mode(path) == 0o700
    assert (path / ".gitignore").read_text() == "*\n"
    assert mode(path / "keys") == 0o700
    keys = sorted((path / "keys").iterdir())
    assert [key.name.partition("-")[0] for key in keys] == ["log", "manifest", "result", "root", "transition"]
    assert {mode(key) for key in keys} == {0o600}
    assert mode(home.ledger_file) == 0o600


def test_a_new_home_pins_the_root_of_its_own_ledger(house: House) -> None:
    """X-178"""
    settings = house.home.settings()
    trust = house.trust()
    assert trust.root_digest == settings.root
    assert trust.origin == settings.origin
    assert digest_text(settings.root) in (house.home.path / "config.toml").read_text()


def test_no_two_homes_have_the_same_name_or_keys(tmp_path: Path) -> None:
    first, second = (make_home(tmp_path / name, begin_ledger) for name in ("a", "b"))
    assert first.settings().origin != second.settings().origin
    assert not {path.name for path in (first.path / "keys").iterdir()} & {
        path.name for path in (second.path / "keys").iterdir()
    }


def test_a_home_is_never_made_over_something_else(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("something else")
    with pytest.raises(HomeError, match="there is a file"):
        make_home(tmp_path / "there", begin_ledger)
    with pytest.raises(HomeError, match="has files in it and is not a home"):
        make_home(tmp_path, begin_ledger)
    with pytest.raises(HomeError, match="not a directory"):
        make_home(tmp_path / "no" / "such" / "place", begin_ledger)
    assert (tmp_path / "there").read_text() == "something else"


@pytest.mark.parametrize("point", CrashAt.POINTS)
def test_a_home_whose_making_fails_is_not_there(tmp_path: Path, point: str) -> None:
    def begin(home: Home, signed: SignedTrust, store: Store) -> None:
        begin_ledger(home, signed, store, parts=Parts(crash_point=CrashAt(point)))

    with pytest.raises(DetentError):
        make_home(tmp_path / ".detent", begin)
    assert list(tmp_path.iterdir()) == []
    assert make_home(tmp_path / ".detent", begin_ledger).ledger_file.exists()


KILLED_WHILE_MAKING = """
import os, signal, sys
from pathlib import Path
from detent.owner.home import make_home
from detent.owner.wiring import Parts, begin_ledger

def crash(name):
    if name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

make_home(Path(sys.argv[1]), lambda home, signed, store: begin_ledger(home, signed, store, parts=Parts(crash_point=crash)))
"""


@pytest.mark.parametrize("point", ["sealed", "appended"])
def test_a_process_killed_while_it_makes_a_home_leaves_none(tmp_path: Path, point: str) -> None:
    path = tmp_path / ".detent"
    command = [sys.executable, "-c", KILLED_WHILE_MAKING, str(path), point]
    ended = subprocess.run(command, check=False, timeout=60, env=surroundings())
    assert ended.returncode == -signal.SIGKILL
    assert not path.exists()
    assert find_home(tmp_path, {"DETENT_HOME": str(path)}) is None
    assert [entry.name[:12] for entry in tmp_path.iterdir()] == [".detent.new-"]
    make_home(path, begin_ledger)
    assert list(tmp_path.iterdir()) == [path], "what the dead process left has been swept away"


KILLED_AT_EACH_CALL = """
import os, shutil, signal, sys
from pathlib import Path
from detent.owner.home import make_home
from detent.owner.wiring import begin_ledger

def counted(real):
    def call(*args, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)
    return call

path, left, killed = Path(sys.argv[1]), 0, True
for name in ("mkdir", "open", "link", "rename", "fsync", "unlink", "rmdir"):
    setattr(os, name, counted(getattr(os, name)))
Path.rename = counted(Path.rename)
calls = 0
while killed:
    child = os.fork()
    if child == 0:
        left = calls
        make_home(path, begin_ledger)
        os._exit(0)
    left = 1 << 30
    killed = os.waitpid(child, 0)[1] == signal.SIGKILL
    whole = path.exists()
    print(calls, whole, sorted(entry.name for entry in path.iterdir()) if whole else [], flush=True)
    if whole and killed:
        shutil.rmtree(path)
    calls += 1
"""


def test_a_process_killed_at_any_call_while_it_makes_a_home_leaves_none_or_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / ".detent"
    command = [sys.executable, "-c", KILLED_AT_EACH_CALL, str(path)]
    done = subprocess.run(command, check=True, timeout=120, env=surroundings(), capture_output=True, text=True)
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert len(lines) > 20
    assert {found for _, whole, found in lines if whole == "False"} == {"[]"}
    assert {found for _, whole, found in lines if whole == "True"} == {
        "['.gitignore', 'config.toml', 'content', 'keys', 'ledger.db']"
    }
    assert [whole for _, whole, _ in lines] == sorted(whole for _, whole, _ in lines), "once there it stays"
    assert list(tmp_path.iterdir()) == [path], "the last one swept away what the dead left"
    with Runtime(Home(path), workers=1):
        pass


def test_a_new_home_is_synced_once_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    home = make_home(tmp_path / ".detent", begin_ledger)
    assert len(synced) == len(set(synced)) == len(list(home.path.rglob("*"))) + 2, "each file, the home, its directory"


def test_a_home_that_another_process_is_making_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / ".detent"
    seen: list[Path] = []

    def begin(home: Home, signed: SignedTrust, store: Store) -> None:
        if not seen:
            seen.append(home.path)
            make_home(path, begin)  # Another process would see exactly this.
            assert home.path.exists()
        begin_ledger(home, signed, store)

    with pytest.raises(HomeError, match="exists already"):
        make_home(path, begin)  # The other one was faster.
    assert list(tmp_path.iterdir()) == [path]
    assert seen[0].name.startswith(".detent.new-")


def test_a_directory_that_appears_where_a_home_is_being_made_becomes_that_home(tmp_path: Path) -> None:
    """Another process makes the directory to build inside it, and dies."""
    path = tmp_path / ".detent"

    def begin(home: Home, signed: SignedTrust, store: Store) -> None:
        begin_ledger(home, signed, store)
        if not path.exists():
            (path / ".new-01234567").mkdir(parents=True)

    assert make_home(path, begin).ledger_file.exists()
    assert list(tmp_path.iterdir()) == [path]
    assert not list(path.glob(".new-*"))


def test_a_building_swept_away_before_it_was_locked_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making a directory and locking it another process may take it for a dead one's."""
    path, flock = tmp_path / ".detent", fcntl.flock
    swept: list[Path] = []

    def sweeping(descriptor: int, operation: int) -> None:
        if not swept and not operation & fcntl.LOCK_NB:
            (building,) = tmp_path.iterdir()
            swept.append(building)
            building.rmdir()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", sweeping)
    make_home(path, begin_ledger)
    assert (len(swept), list(tmp_path.iterdir())) == (1, [path])


def test_nothing_else_beside_a_new_home_is_swept_away(tmp_path: Path) -> None:
    others = [".detent.new-", ".detent.new-0123456", ".detent.new-0123456x", ".detent.new-012345678", "x.new-01234567"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / ".detent.new-00000000").write_text("a file")
    (tmp_path / ".detent.new-11111111").symlink_to(tmp_path / "x.new-01234567")
    (tmp_path / ".detent.new-22222222").mkdir()
    make_home(tmp_path / ".detent", begin_ledger)
    kept = {*others, ".detent.new-00000000", ".detent.new-11111111", ".detent"}
    assert {entry.name for entry in tmp_path.iterdir()} == kept


def test_everything_in_a_new_home_is_durable_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut after the rename must not leave a home with an empty config.toml."""
    synced: set[str] = set()
    rename = Path.rename
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        if target.name == ".detent":
            lacking = {path.name for path in self.rglob("*")} - synced
            assert lacking == set()
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", renamed)
    make_home(tmp_path / ".detent", begin_ledger)
    assert tmp_path.name in synced


# -- making it of an empty directory -------------------------------------------------------------------------------------


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """An empty directory, as a new volume is one."""
    path = tmp_path / "volume"
    (path / "lost+found").mkdir(parents=True)
    return path


def test_an_empty_directory_becomes_a_home_and_stays_itself(volume: Path) -> None:
    """It may be where a volume is mounted, or all that this user may write to: nothing can take its place."""
    volume.chmod(0o755)
    number = volume.stat().st_ino
    home = make_home(volume, begin_ledger)
    assert find_home(volume, {"DETENT_HOME": str(volume)}) == home
    assert (volume.stat().st_ino, mode(volume)) == (number, 0o700)
    assert {entry.name for entry in volume.iterdir()} == {
        *("lost+found", ".gitignore", "config.toml", "content", "keys", "ledger.db")
    }
    assert list(volume.parent.iterdir()) == [volume]
    with Parts().open_reader(home.ledger) as reader:
        assert reader.origin == home.settings().origin


def test_a_process_killed_while_it_makes_one_of_an_empty_directory_leaves_none(volume: Path) -> None:
    command = [sys.executable, "-c", KILLED_WHILE_MAKING, str(volume), "appended"]
    ended = subprocess.run(command, check=False, timeout=60, env=surroundings())
    assert ended.returncode == -signal.SIGKILL
    assert find_home(volume, {"DETENT_HOME": str(volume)}) is None
    assert sorted(entry.name[:5] for entry in volume.iterdir()) == [".new-", "lost+"]
    make_home(volume, begin_ledger)
    assert not list(volume.glob(".new-*")), "what the dead process left has been swept away"


def test_of_two_who_make_one_of_an_empty_directory_the_faster_keeps_its_keys(volume: Path) -> None:
    made: list[Home] = []

    def begin(home: Home, signed: SignedTrust, store: Store) -> None:
        begin_ledger(home, signed, store)
        if not made:
            made.append(home)
            make_home(volume, begin)  # Another process would see exactly this.
            kept.update({path.name: path.read_bytes() for path in (volume / "keys").iterdir()})

    kept: dict[str, bytes] = {}
    with pytest.raises(HomeError, match="exists already"):
        make_home(volume, begin)
    assert {path.name: path.read_bytes() for path in (volume / "keys").iterdir()} == kept
    assert not list(volume.glob(".new-*"))


def test_a_home_that_is_being_moved_up_is_waited_for(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it is in place, and the settings are not: to another process that must not look like a user's files."""
    rename, flock = Path.rename, fcntl.flock
    second, found, waits = ThreadPoolExecutor(1), list[Future[Home]](), threading.Event()

    def locking(descriptor: int, operation: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            waits.set()
        flock(descriptor, operation)

    def renamed(self: Path, target: Path) -> Path:
        if target.parent == volume and not found:
            moved = rename(self, target)
            found.append(second.submit(home_or_new, volume, begin_ledger))
            assert waits.wait(60)
            return moved
        return rename(self, target)

    monkeypatch.setattr(fcntl, "flock", locking)
    monkeypatch.setattr(Path, "rename", renamed)
    with second:
        first = home_or_new(volume, begin_ledger)
    assert found[0].result() == first
    assert not list(volume.glob(".new-*"))


def test_an_empty_directory_is_a_home_only_when_everything_else_of_it_is_durable(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings make it one. A power cut before them leaves none, and one after them a whole one."""
    deeds: list[str] = []
    rename, real = Path.rename, os.fsync

    def fsync(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == volume:
            deeds.append("synced")
        real(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        deeds.append(target.name)
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", renamed)
    make_home(volume, begin_ledger)
    assert deeds[-3:] == ["synced", "config.toml", "synced"]
    assert sorted(deeds[:-3]) == [".gitignore", "content", "keys", "ledger.db"]


def test_a_home_without_its_ledger_keeps_its_keys_and_names_the_ways_out(house: House) -> None:
    path = house.home.path
    house.home.ledger_file.unlink()
    before = {key: key.read_bytes() for key in (path / "keys").iterdir()}
    with pytest.raises(HomeError, match=r"its ledger\.db is missing") as making:
        make_home(path, begin_ledger)
    with pytest.raises(StoreUnavailable, match="does not exist") as opening:
        house.session()
    for caught in (making, opening):
        assert "from a copy" in (caught.value.hint or "")
        assert f"move {path} away" in (caught.value.hint or "")
    assert {key: key.read_bytes() for key in (path / "keys").iterdir()} == before
    path.rename(path.with_name("away"))
    assert make_home(path, begin_ledger).ledger_file.exists()


@pytest.mark.skipif(not can_mount(), reason="a read-only file system has to be mounted, which needs root")
def test_a_home_on_a_read_only_file_system_is_named_by_every_writer(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        home = make_home(disk, begin_ledger)
        assert ctypes.CDLL(None).mount(None, os.fsencode(disk), None, MS_REMOUNT_READ_ONLY, None) == 0
        deeds: list[Callable[[], object]] = [
            *(lambda: home_at(disk), lambda: Runtime(home), lambda: try_lock(home.lock)),
            lambda: make_home(disk, begin_ledger),
        ]
        for deed in deeds:
            with pytest.raises(StoreUnavailable, match=f"the home {disk} .* its file system is read-only") as caught:
                deed()
            assert "mount it for writing" in (caught.value.hint or "")
            assert not caught.value.retryable


# -- opening -----------------------------------------------------------------------------------------------------------


def test_a_home_whose_ledger_was_replaced_is_refused(house: House, tmp_path: Path) -> None:
    """X-178: the ledger is another one than the home was made with."""
    (tmp_path / "other").mkdir()
    other = House(tmp_path / "other", number=1)
    shutil.copy(other.home.ledger_file, house.home.ledger_file)
    with pytest.raises(TrustError, match="root") as caught:
        house.session()
    assert caught.value.hint is not None
    assert "config.toml" in str(caught.value)


def test_settings_of_another_ledger_are_refused(house: House) -> None:
    config = house.home.path / "config.toml"
    config.write_text(config.read_text().replace(house.home.settings().origin, "detent/ffffffffffffffff"))
    with pytest.raises(HomeError, match=r"ledger\.db"):
        house.session()


def test_a_ledger_without_trust_is_refused_and_nothing_is_written(house: House) -> None:
    """PIPE-108: start without a trust configuration fails."""
    house.home.ledger_file.unlink()
    SqliteStore.create(house.home.ledger_file, house.home.settings().origin, 1).close()
    with pytest.raises(TrustError, match="no trust configuration"):
        house.session()
    with house.reader() as reader:
        assert reader.head(0)[:2] == (0, 0)


def test_start_up_looks_at_policies_then_trust_then_the_log(house: House, tmp_path: Path) -> None:
    """PIPE-107, PIPE-108, PIPE-109: of several faults the first in this order is named."""
    origin = house.home.settings().origin
    config = house.home.path / "config.toml"
    good = config.read_text()
    whole = tmp_path / "whole.db"
    shutil.copy(house.home.ledger_file, whole)
    config.write_text(good.replace("capacity_total = 2560", "capacity_total = 0"))
    house.home.ledger_file.unlink()
    SqliteStore.create(house.home.ledger_file, origin, 1).close()
    with pytest.raises(HomeError, match="capacity_total"):
        house.session()
    config.write_text(good)
    with pytest.raises(TrustError):
        house.session()
    house.home.ledger_file.unlink()
    shutil.copy(whole, house.home.ledger_file)
    _spoil_commands(house.home.ledger_file)
    with pytest.raises(DetentError) as caught:
        house.session()
    assert caught.value.code == "STORE_CORRUPT"


def _spoil_commands(ledger: Path) -> None:
    connection = apsw.Connection(str(ledger))
    for (name,) in list(connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")):
        connection.execute(f'DROP TRIGGER "{name}"')
    connection.execute("UPDATE batches SET commands = x'80'")
    connection.close()


@pytest.mark.parametrize("role", ["transition", "log"])
def test_a_missing_key_is_named_and_nothing_is_written(house: House, role: str) -> None:
    (key,) = (house.home.path / "keys").glob(f"{role}-*.key")
    key.unlink()
    before = house.epochs()
    with pytest.raises(HomeError, match=f"the {role} key"):
        house.session()
    assert house.epochs() == before


def test_a_key_that_others_can_read_is_refused(house: House) -> None:
    """X-178: keys are 0600."""
    (key,) = (house.home.path / "keys").glob("transition-*.key")
    key.chmod(0o640)
    with pytest.raises(HomeError, match="readable by others") as caught:
        house.session()
    assert caught.value.hint == f"chmod 600 {key}"


def test_a_home_that_was_given_up_after_a_failure_can_be_opened_at_once(house: House) -> None:
    """A refused opening holds neither the lock nor a thread."""
    (key,) = (house.home.path / "keys").glob("transition-*.key")
    key.chmod(0o640)
    for _ in range(3):
        with pytest.raises(HomeError):
            house.session()
    key.chmod(0o600)
    house.session().close()


def test_a_missing_ledger_is_named(house: House) -> None:
    house.home.ledger_file.unlink()
    with pytest.raises(StoreUnavailable, match=r"ledger\.db does not exist"):
        house.session()


# -- an older copy -----------------------------------------------------------------------------------------------------


def copied(house: House) -> Path:
    copy = house.directory / "copy"
    shutil.copytree(house.home.path, copy, ignore=shutil.ignore_patterns("owner.sock"))
    return copy


def restored(house: House, copy: Path) -> None:
    shutil.rmtree(house.home.path)
    shutil.copytree(copy, house.home.path)


def test_a_home_restored_from_an_older_copy_is_refused(house: House) -> None:
    """X-178: the tree head kept outside the home remembers more."""
    house.session().close()
    copy = copied(house)
    with house.session() as session:
        assert one(session, house.submit()).ok
    restored(house, copy)
    before = house.size()
    with pytest.raises(RolledBack, match="batches") as caught:
        house.session()
    assert caught.value.hint is not None
    assert house.size() == before, "nothing may be signed on top"


def test_a_home_that_went_another_way_since_is_refused(house: House) -> None:
    """X-178: as long as before, but not the same."""
    house.session().close()
    copy = copied(house)
    with house.session() as session:
        one(session, house.submit("job-1"))
    restored(house, copy)
    forgetful = {**house.environment, "XDG_STATE_HOME": str(house.directory / "elsewhere")}
    real, house.environment = house.environment, forgetful
    with house.session() as session:
        one(session, house.submit("job-2"))
        one(session, house.submit("job-3"))
    house.environment = real
    with pytest.raises(RolledBack, match="not those"):
        house.session()


def test_a_rollback_is_accepted_only_on_purpose(house: House) -> None:
    """X-178"""
    house.session().close()
    copy = copied(house)
    with house.session() as session:
        one(session, house.submit())
    restored(house, copy)
    with house.session(Parts(accept_rollback=True)) as session:
        assert one(session, cancel()).refusal is not None, "the job is lost with the rollback"
        assert one(session, house.submit()).ok
    with house.session() as session:
        assert one(session, house.submit()).status == "DEDUPLICATED"


def test_the_newest_head_is_kept_outside_when_an_owner_ends(house: House) -> None:
    """X-178"""
    with house.session() as session:
        one(session, house.submit())
    keeper = KeptHeads(state_directory(house.environment), house.home.settings().origin)
    size, note = keeper.heads()[0]
    assert size == house.size()
    with house.reader() as reader:
        assert next(reader.tree_heads(0)).note == note


def test_a_home_whose_heads_cannot_be_kept_outside_is_refused_before_anything_is_written(house: House) -> None:
    """X-178: not a second later, by the first tree head."""
    (house.directory / "state").write_text("in the way")
    before = house.epochs()
    with pytest.raises(HomeError, match="cannot be kept") as caught:
        house.session()
    assert "XDG_STATE_HOME" in str(caught.value.hint)
    assert house.epochs() == before


def test_a_damaged_keeper_is_said_aloud(house: House) -> None:
    """A keeper that forgets silently keeps nothing."""
    house.session().close()
    keeper = KeptHeads(state_directory(house.environment), house.home.settings().origin)
    keeper.path.write_bytes(b"\xff")
    with pytest.raises(HomeError, match="damaged"):
        house.session()
