"""What the PostgreSQL store does when the world fails: connections, backends, the server, another owner, a pooler, a setting."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import psycopg
import pytest

from detent.errors import EpochLost, HomeError, OutcomeUnknown, StoreUnavailable
from detent.store.api import JobRow, RecordRow
from detent.store.postgres.address import PostgresAddress
from detent.store.postgres.store import PostgresStore
from tests.postgres_server import Server, own_server
from tests.store.proxy import Cut, Proxy
from tests.store.rows import Writer, everything, job, submitted


@pytest.fixture
def address(postgres: Server) -> PostgresAddress:
    made = postgres.address()
    PostgresStore.create(made, "origin", 1).close()
    return made


@contextmanager
def through(proxy: Proxy, address: PostgresAddress) -> Iterator[PostgresStore]:
    with closing(proxy), closing(PostgresStore.open(proxy.address(address.schema))) as store:
        yield store


def jobs_of(address: PostgresAddress) -> list[str]:
    with closing(PostgresStore.open(address)) as store:
        return [job.job_id for job in store.jobs()]


# Lost answers


@pytest.mark.parametrize("moment", Cut)
def test_a_lost_connection_leaves_the_commit_whole_or_absent_and_the_next_opening_says_which(
    postgres: Server, address: PostgresAddress, moment: Cut
) -> None:
    """X-173"""
    proxy = Proxy(postgres.url)
    with through(proxy, address) as store:
        writer = Writer(store)
        writer.submit("before")
        commit = writer.commit(*parts("lost"))
        proxy.cut(moment)
        with pytest.raises(OutcomeUnknown):
            store.append(commit)
        with pytest.raises(StoreUnavailable):
            store.append(commit)
    with closing(PostgresStore.open(address)) as again:
        epoch = again.take_ownership(0)
        found = again.batch(0, commit.batch.batch_no)
        is_there = found is not None and found.leaf_hash == commit.batch.leaf_hash
        assert is_there is (moment not in {Cut.BEFORE_IT_IS_SENT, Cut.WITHIN_THE_REQUEST})
        if not is_there:
            again.append(commit._replace(batch=commit.batch._replace(epoch=epoch)))
        assert [job.job_id for job in again.jobs()] == ["before", "lost"]
        assert again.head(0).size == 2


def parts(job_id: str) -> tuple[list[RecordRow], list[JobRow]]:
    """One job that is submitted."""
    return [submitted(job_id)], [job(job_id)]


# Ends of the other side


@pytest.mark.parametrize("how", ["pg_terminate_backend", "kill -9"])
def test_the_end_of_its_backend_is_an_unknown_outcome_and_loses_nothing(how: str) -> None:
    with own_server() as server:
        address = server.address()
        with closing(PostgresStore.create(address, "origin", 1)) as store:
            Writer(store).submit("a")
            commit = Writer(store).commit(*parts("b"))
            pid = store.backend_pid
            assert pid is not None
            if how == "kill -9":
                os.kill(pid, signal.SIGKILL)
            else:
                server.execute("SELECT pg_terminate_backend(%s)", pid)
            wait_until(lambda: not wait_for(lambda: alive(server, pid)))
            with pytest.raises(OutcomeUnknown):
                store.append(commit)
        assert wait_for(lambda: jobs_of(address)) == ["a"]


def test_a_restart_under_load_loses_nothing_that_was_acknowledged_and_writes_nothing_twice() -> None:
    """Two polite restarts and two kills, while an owner appends as fast as it can and opens again when it is thrown out."""
    with own_server() as server:
        address = server.address()
        PostgresStore.create(address, "origin", 1).close()
        acknowledged: list[str] = []
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                try:
                    with closing(PostgresStore.open(address)) as store:
                        writer = Writer(store)
                        while not stop.is_set():
                            name = f"job-{number:06d}"
                            if store.job(name) is None:  # An earlier outcome may have been unknown.
                                writer.submit(name)
                            acknowledged.append(name)
                            number += 1
                except (OutcomeUnknown, StoreUnavailable):
                    continue

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGINT):
                    before = len(acknowledged)
                    wait_until(lambda: len(acknowledged) > before + 5)  # noqa: B023
                    server.restart(how)
                last = len(acknowledged)
                wait_until(lambda: len(acknowledged) > last + 5)
            finally:
                stop.set()
            writing.result()
        with closing(PostgresStore.open(address)) as store:
            assert [job.job_id for job in store.jobs()] == acknowledged
            assert [batch.batch_no for batch in store.batches(0)] == list(range(store.head(0).size))
            assert [record.job_id for record in store.records(0)] == acknowledged


def test_a_reader_that_lives_long_reads_on_after_a_restart() -> None:
    with own_server() as server:
        address = server.address()
        with closing(PostgresStore.create(address, "origin", 1)) as store:
            Writer(store).submit("a")
        with closing(PostgresStore.open_reader(address)) as reader:
            before = everything(reader)
            server.restart()
            assert everything(reader) == before
            server.restart()
            with reader.snapshot() as moment:
                assert everything(moment) == before


# Two owners


def test_an_append_that_arrives_after_the_epoch_was_raised_writes_nothing(
    postgres: Server, address: PostgresAddress
) -> None:
    """X-172"""
    proxy = Proxy(postgres.url)
    with through(proxy, address) as old, closing(PostgresStore.open(address)) as new:
        writer = Writer(old)
        writer.submit("a")
        late = writer.commit(*parts("late"))
        proxy.hold()
        with ThreadPoolExecutor(1) as pool:
            appending = pool.submit(old.append, late)
            assert proxy.reached.wait(60)
            successor = Writer(new)  # While the old owner's request is on its way.
            proxy.let_go()
            with pytest.raises(EpochLost):
                appending.result(60)
            successor.submit("b")
        assert [job.job_id for job in new.jobs()] == ["a", "b"]


def test_an_epoch_that_is_raised_during_an_append_waits_for_it(postgres: Server, address: PostgresAddress) -> None:
    """The other order: what the old owner has begun is whole before the new one begins."""
    with closing(PostgresStore.open(address)) as old, closing(PostgresStore.open(address)) as new:
        writer = Writer(old)
        commit = writer.commit(*parts("a"))
        gate = psycopg.connect(postgres.url)  # Holds the append in its middle: a table that it has to write to.
        gate.execute(f"LOCK TABLE {address.schema}.jobs IN ACCESS EXCLUSIVE MODE".encode())
        with ThreadPoolExecutor(2) as pool:
            appending = pool.submit(old.append, commit)
            wait_until(lambda: waiting(postgres, old))
            taking = pool.submit(new.take_ownership, 0)
            wait_until(lambda: waiting(postgres, new))
            assert not taking.done()
            gate.rollback()
            gate.close()
            appending.result(60)
            assert taking.result(60) == writer.epoch + 1
        assert new.head(0).size == 1
        with pytest.raises(EpochLost):
            old.append(commit)


def test_one_connection_holds_a_partition_and_others_learn_which(address: PostgresAddress) -> None:
    with closing(PostgresStore.open(address)) as second:
        with closing(PostgresStore.open(address)) as first:
            assert first.hold(0, "here", "process", "/a/socket", 60.0) is None
            holder = second.hold(0, "there", "other", "/b/socket", 60.0)
            assert holder is not None
            assert (holder.host, holder.process, holder.socket) == ("here", "process", "/a/socket")
            assert holder.backend_pid == first.backend_pid
        wait_until(lambda: second.hold(0, "there", "other", "/b/socket", 60.0) is None)


def test_a_lease_is_renewed_until_another_epoch_begins(address: PostgresAddress) -> None:
    """Its age is told by the server's clock; a row that an earlier holder left says nothing about the present one."""
    with closing(PostgresStore.open(address)) as second:
        with closing(PostgresStore.open(address)) as first:
            assert first.hold(0, "here", "process", "/a/socket", 60.0) is None
            epoch = first.take_ownership(0)
            holder = second.holder(0)
            assert holder is not None
            assert -60_000 <= holder.silent_ms < 0
            assert first.renew(0, epoch)
            holder = second.holder(0)
            assert holder is not None
            assert 0 <= holder.silent_ms < 60_000
            assert not second.renew(0, epoch), "only the holder renews"
            second.take_ownership(0)
            assert not first.renew(0, epoch)
            second._all("end_holder", first.backend_pid)
        wait_until(lambda: bool(second._all("hold", 0)[0][0]))
        holder = second.holder(0)
        assert holder is not None
        assert (holder.host, holder.silent_ms) == ("unknown", 0)


# What is refused


def test_a_pooler_is_refused_for_writing(postgres: Server, address: PostgresAddress) -> None:
    with closing(Proxy(postgres.url, other_pid=True)) as pooler:
        with pytest.raises(StoreUnavailable, match="pooler") as refused:
            PostgresStore.open(pooler.address(address.schema))
        assert not refused.value.retryable
        PostgresStore.open_reader(pooler.address(address.schema)).close()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes", "synchronous_commit"])
def test_a_server_that_may_lose_what_it_acknowledged_is_refused(setting: str, unsafe: Server) -> None:
    address = unsafe.address()
    unsafe.execute(f"ALTER SYSTEM SET {setting} = off")
    unsafe.execute("SELECT pg_reload_conf()")
    wait_until(lambda: unsafe.execute(f"SHOW {setting}") == [("off",)])
    with pytest.raises(StoreUnavailable, match=f"{setting}=off"):
        PostgresStore.create(address, "origin", 1)
    unsafe.execute(f"ALTER SYSTEM SET {setting} = on")
    unsafe.execute("SELECT pg_reload_conf()")
    wait_until(lambda: unsafe.execute(f"SHOW {setting}") == [("on",)])
    PostgresStore.create(address, "origin", 1).close()


@pytest.fixture(scope="module")
def unsafe() -> Iterator[Server]:
    # The settings of the command line go over those of the file, so the ones that are switched are not on it.
    with own_server(("autovacuum=off",)) as server:
        yield server


def test_a_commit_is_synchronous_even_where_a_setting_leaked(address: PostgresAddress, postgres: Server) -> None:
    """A pooler was seen to hand one client's ``synchronous_commit=off`` to another."""
    with closing(PostgresStore.open(address)) as store:
        store._connection.execute("SET synchronous_commit = off")
        writer = Writer(store)
        store._connection.execute("BEGIN")
        writer.submit("a")
        assert store._connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        store._connection.execute("COMMIT")


def test_a_schema_that_holds_anything_is_refused(postgres: Server, address: PostgresAddress) -> None:
    with pytest.raises(HomeError, match="another ledger"):
        PostgresStore.create(address, "origin", 1)
    other = postgres.address()
    postgres.execute(f"CREATE SCHEMA {other.schema}")
    postgres.execute(f"CREATE TABLE {other.schema}.mine (x int)")
    with pytest.raises(HomeError, match="not a ledger"):
        PostgresStore.create(other, "origin", 1)


def test_a_child_that_forks_does_not_end_its_parents_session(address: PostgresAddress) -> None:
    with closing(PostgresStore.open(address)) as store:
        writer = Writer(store)
        child = os.fork()
        if child == 0:
            store.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        writer.submit("a")
        assert store.head(0).size == 1


def alive(server: Server, pid: int) -> list[str]:
    """A backend, if it is still there."""
    try:
        return [str(row) for row in server.execute("SELECT pid FROM pg_stat_activity WHERE pid = %s", pid)]
    except psycopg.OperationalError as exc:
        raise StoreUnavailable("the server restarts") from exc


def waiting(postgres: Server, store: PostgresStore) -> bool:
    """Whether a store's statement waits for a lock."""
    rows = postgres.execute(
        "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'", store.backend_pid
    )
    return bool(rows)


def wait_until(holds: Callable[[], bool], seconds: float = 120) -> None:
    pause = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if holds():
            return
        pause.wait(0.02)
    raise AssertionError("it did not happen in time")


def wait_for(get: Callable[[], list[str]]) -> list[str]:
    """What is got once the server is back."""
    found: list[list[str]] = []

    def got() -> bool:
        try:
            found.append(get())
        except StoreUnavailable:
            return False
        return True

    wait_until(got)
    return found[0]
