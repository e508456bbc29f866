"""Connections that a server which stands by passes on: bytes, ends of either side, an owner that goes away, and a circle of servers."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NoReturn

import pytest

from detent.errors import InvalidInput
from detent.owner.owner_address import Address, parse_address
from detent.serve.listening import Listening, advertised
from detent.serve.passing_on import PassingOn
from tests.serve.served import ANSWER_SECONDS, read_all

CONNECTIONS = 2


def listens() -> socket.socket:
    made = socket.create_server(("127.0.0.1", 0))
    made.settimeout(ANSWER_SECONDS)
    return made


def at(listener: socket.socket) -> Address:
    return Address(*listener.getsockname())


def connected(listener: socket.socket) -> socket.socket:
    return socket.create_connection(at(listener), ANSWER_SECONDS)


def accepted(listener: socket.socket) -> socket.socket:
    made, _ = listener.accept()
    made.settimeout(ANSWER_SECONDS)
    return made


@pytest.fixture
def owner() -> Iterator[socket.socket]:
    with listens() as made:
        yield made


@pytest.fixture
def near() -> Iterator[socket.socket]:
    with listens() as made:
        yield made


@pytest.fixture
def passing(near: socket.socket) -> Iterator[PassingOn]:
    made = PassingOn(near, CONNECTIONS)
    yield made
    made.close()


def test_bytes_go_both_ways_until_both_sides_have_ended(
    near: socket.socket, owner: socket.socket, passing: PassingOn
) -> None:
    passing.to(at(owner))
    with connected(near) as client, accepted(owner) as there:
        sent = b"asked" * 100_000
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert read_all(there) == sent
        there.sendall(b"answered")
        there.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"answered"


class WithoutRoom(socket.socket):
    """A socket that listens, of a process that has no descriptor left for the next connection."""

    looks = 0

    def accept(self) -> NoReturn:
        self.looks += 1
        raise OSError(errno.EMFILE, "Too many open files")


def test_clients_wait_without_a_busy_loop_while_no_descriptor_is_left(owner: socket.socket) -> None:
    with WithoutRoom() as near:
        near.bind(("127.0.0.1", 0))
        near.listen()
        passing = PassingOn(near, CONNECTIONS)
        try:
            with connected(near):
                for told in range(1, 4):
                    passing.to(at(owner))
                    deadline = time.monotonic() + ANSWER_SECONDS
                    while near.looks < told and time.monotonic() < deadline:
                        time.sleep(0.01)
                    time.sleep(0.05)
                    assert near.looks == told, "once for each time that the owner is told"
        finally:
            passing.close()


def test_the_end_of_a_client_reaches_the_owner_and_that_of_the_owner_the_client(
    near: socket.socket, owner: socket.socket, passing: PassingOn
) -> None:
    passing.to(at(owner))
    with connected(near) as client, accepted(owner) as there:
        client.close()
        assert read_all(there) == b""
    passing.to(at(owner))
    with connected(near) as client, accepted(owner) as there:
        there.close()
        assert read_all(client) == b""


def test_a_connection_waits_until_an_owner_is_known_and_for_its_successor_if_it_is_gone(
    near: socket.socket, owner: socket.socket, passing: PassingOn
) -> None:
    with listens() as gone:
        nowhere = at(gone)
    with connected(near) as first:
        passing.to(nowhere)
        assert read_all(first) == b"", "its owner was gone, and it is told so"
    with connected(near) as second:
        second.sendall(b"asked")
        passing.to(at(owner))
        with accepted(owner) as there:
            assert there.recv(5) == b"asked"


def test_an_owner_that_is_not_named_again_gets_nothing_more_and_its_clients_wait_for_the_next(
    near: socket.socket, owner: socket.socket, passing: PassingOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.serve.passing_on.FRESH_SECONDS", 0.01)
    passing.to(at(owner))
    with connected(near) as probe:
        probe.settimeout(0.3)
        with pytest.raises(TimeoutError):  # Longer than the address counts.
            probe.recv(1)
    with listens() as successor, connected(near) as client:
        client.sendall(b"asked")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        monkeypatch.undo()
        passing.to(at(successor))
        asked = b""
        while not asked:  # The probe may have waited as well.
            with accepted(successor) as there:
                asked = there.recv(5)
        assert asked == b"asked"


def test_no_more_than_so_many_connections_are_passed_on_and_the_next_waits(
    near: socket.socket, owner: socket.socket, passing: PassingOn
) -> None:
    passing.to(at(owner))
    clients = [connected(near) for _ in range(CONNECTIONS + 1)]
    there = [accepted(owner) for _ in range(CONNECTIONS)]
    owner.settimeout(0.2)
    with pytest.raises(TimeoutError):
        owner.accept()
    owner.settimeout(ANSWER_SECONDS)
    there[0].close()
    for client in clients:
        client.close()
    passing.to(at(owner))
    there.append(accepted(owner))
    for one in there:
        one.close()


def test_what_is_passed_on_ends_at_the_take_over_and_what_waits_is_left_to_the_server(
    near: socket.socket, owner: socket.socket
) -> None:
    passing = PassingOn(near, CONNECTIONS)
    passing.to(at(owner))
    with connected(near) as client, accepted(owner) as hangs:
        client.sendall(b"asked")
        assert hangs.recv(5) == b"asked"
        passing.close()
        assert read_all(client) == b""
    with connected(near) as client:
        near.settimeout(ANSWER_SECONDS)
        with accepted(near) as here:
            client.sendall(b"asked")
            assert here.recv(5) == b"asked"


def test_a_take_over_while_clients_connect_does_not_wait_for_an_owner_that_hangs() -> None:
    """A connection that is made at the very moment of the end was passed on and never closed."""
    for number in range(40):
        with listens() as hangs, listens() as near, ExitStack() as clients:
            passing = PassingOn(near, 50)
            passing.to(at(hangs))
            connecting = threading.Thread(target=lambda: [clients.enter_context(connected(near)) for _ in range(20)])
            connecting.start()
            threading.Event().wait(0.001 * (number % 6))
            closing = threading.Thread(target=passing.close, daemon=True)
            closing.start()
            closing.join(ANSWER_SECONDS)
            assert not closing.is_alive()
            connecting.join()


def test_a_server_that_would_pass_connections_on_to_itself_closes_them(near: socket.socket, passing: PassingOn) -> None:
    passing.to(at(near))
    with connected(near) as client:
        client.sendall(b"asked")
        assert read_all(client) == b""


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a.example:7733", Address("a.example", 7733)),
        ("[::1]:80", Address("::1", 80)),
        ("a.example", None),
        (":80", None),
        ("a:0", None),
        ("a:65536", None),
        ("a:x", None),
        ("fd00::5", None),
        ("", None),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: Address | None) -> None:
    assert parse_address(text) == address
    assert address is None or str(address) == text


def test_a_server_says_where_it_listens_by_its_own_name_if_that_is_everywhere() -> None:
    assert advertised(Listening("127.0.0.1"), 7733) == "127.0.0.1:7733"
    assert advertised(Listening("::1"), 7733) == "[::1]:7733"
    assert advertised(Listening("0.0.0.0"), 7733) == f"{socket.gethostname()}:7733"
    assert advertised(Listening("::"), 7733) == f"{socket.gethostname()}:7733"
    assert advertised(Listening("0.0.0.0", advertise="10.0.0.5"), 7733) == "10.0.0.5:7733"
    assert advertised(Listening("0.0.0.0", advertise="a.example:443"), 7733) == "a.example:443"
    assert advertised(Listening("0.0.0.0", advertise="fd00::5"), 7733) == "[fd00::5]:7733"
    with pytest.raises(InvalidInput):
        advertised(Listening("0.0.0.0", advertise=""), 7733)
