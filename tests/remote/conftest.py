"""A server and a proxy before it that fails on request, for all tests of clients that do not stop the server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from detent.remote.address import parse_address
from detent.remote.http import Http
from tests.serve.served import Served, play, serving
from tests.serve.toxic import AGAIN_SECONDS, Toxic

HERE = Path(__file__).parent


_OPENED: list[Http] = []


def client(url: str, *, key: str | None = None, pin: str | None = None, patience: float = 0.0) -> Http:
    """A client that is closed behind the test."""
    http = Http(parse_address(url, key=key, pin=pin), patience=patience)
    _OPENED.append(http)
    return http


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _OPENED:
        _OPENED.pop().close()


@dataclass(frozen=True, slots=True)
class Connected:
    """A server behind a proxy."""

    served: Served
    proxy: Toxic

    def http(self, *, direct: bool = False, patience: float = 0.0) -> Http:
        """A client of the server, through the proxy."""
        url = self.served.told["url"] if direct else self.proxy.url
        return client(url, key=self.served.token, patience=patience)


@pytest.fixture(scope="session")
def _connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    played = play(tmp_path_factory.mktemp("connected"))
    with Toxic() as proxy, serving(played, "--allow-host", f"127.0.0.1:{proxy.port}") as served:
        proxy.target = served.port
        yield Connected(served, proxy)


@pytest.fixture
def connected(_connected: Connected) -> Iterator[Connected]:
    yield _connected
    _connected.proxy.fail(None)
    _connected.proxy.again_seconds = AGAIN_SECONDS
    _connected.proxy.refuses = False
