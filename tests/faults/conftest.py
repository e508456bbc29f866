"""One server of commands for each test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.commands import Commands


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    with Commands() as server:
        yield server
