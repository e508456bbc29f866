"""One server for all tests that only read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.served import Served, play, serving
from tests.serve.shared import Shared, sharing


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(play(tmp_path_factory.mktemp("served"))) as server:
        yield server
        assert server.process.poll() is None, "the server ended while it was tested"


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with sharing(tmp_path_factory.mktemp("shared")) as found:
        yield found
        assert found.served.process.poll() is None, "the server ended while it was tested"
