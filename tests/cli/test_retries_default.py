"""How often a job is tried again that says nothing about it: the same for every way to a job (A.10)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from detent.cli.app import run
from detent.sdk.client import Client
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_home

__all__ = ["detent_home"]

PROGRAM = """
import detent
@detent.task
def one(): return 1
@detent.flow
def flowing(): return one()
"""


def test_steps_flows_and_tasks_of_a_client_have_one_default(
    detent_home: TemporaryHome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A.10, X-008: `max_retries` is 2, and only failures of the system count without a word about others."""
    monkeypatch.chdir(detent_home.directory)

    def said(*arguments: str) -> Any:
        assert run([*arguments, "-o", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    (detent_home.directory / "work.py").write_text(PROGRAM)
    (detent_home.directory / "flow.yaml").write_text(
        'name: contract\nsteps: [{id: a, run: {python: "work:one"}}, {id: b, run: {shell: "echo b"}}]\n'
    )
    said("run", "flow.yaml")
    said("run", "work.py", "--force")
    with Client(detent_home.path, workers=1) as client:
        client.submit(max, 1, 2).result(60)
    retries = {said("show", job["job_id"])["max_retries"] for job in said("list", "--jobs")}
    assert len(said("list", "--jobs")) == 4
    assert retries == {2}
