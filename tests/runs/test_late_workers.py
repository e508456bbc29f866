"""A run starts worker processes when something has to run, and not before: where all results are reused, none is started."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import detent
from detent.cli.app import run
from detent.runs.runtime import LIVE
from detent.sdk.client import Client
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_home
from tests.sdk import work_functions as functions

__all__ = ["detent_home"]

CHAIN = """
name: chain
params: {x: {type: integer, default: 3}}
steps:
  - {id: a, run: {python: "late_steps:double", with: {x: {$param: x}}}}
  - {id: b, run: {python: "late_steps:double", with: {x: {$from: a}}}}
result: {$from: b}
"""


class Workers:
    """Whether a pool of worker processes was made since the last look: it makes its directory first of all."""

    def __init__(self, home: Path) -> None:
        self._live = home / LIVE

    def were_started(self) -> bool:
        started = self._live.exists()
        shutil.rmtree(self._live, ignore_errors=True)
        return started


@pytest.fixture
def workers(detent_home: TemporaryHome) -> Workers:
    (detent_home.directory / "late_steps.py").write_text("def double(x): return 2 * x\n")
    (detent_home.directory / "flow.yaml").write_text(CHAIN)
    return Workers(detent_home.home.path)


def test_detent_run_starts_workers_only_for_what_has_to_run(
    workers: Workers, detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(detent_home.directory)
    command = ["run", "flow.yaml", "-q", "--home", str(detent_home.home.path)]
    assert run(command) == 0
    assert workers.were_started()
    assert run(command) == 0
    assert not workers.were_started()
    assert run([*command, "-p", "x=4"]) == 0
    assert workers.were_started()


def test_detent_run_of_the_sdk_starts_workers_only_for_what_has_to_run(
    workers: Workers, detent_home: TemporaryHome
) -> None:
    def result(x: int) -> object:
        contract = detent_home.directory / "flow.yaml"
        return detent.run(contract, {"x": x}, home=detent_home.home.path, workers=1).result()

    assert result(3) == 12
    assert workers.were_started()
    assert result(3) == 12
    assert not workers.were_started()
    assert result(4) == 16
    assert workers.were_started()


def test_a_client_starts_workers_only_for_flows_in_which_something_has_to_run(
    workers: Workers, detent_home: TemporaryHome
) -> None:
    for x, starts in ((1, True), (1, False), (2, True)):
        with Client(detent_home.home.path) as client:
            assert client.submit(functions.counted_numbers, x).result(60) == [n * n for n in range(x)]
        assert workers.were_started() == starts
