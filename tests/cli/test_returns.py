"""A function annotated to return what has no JSON form is refused before it runs, at every door that would begin it (X-170)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.canon import NotStrictJson
from detent.contract import ContractInvalid
from detent.sdk.client import Client
from detent.sdk.flow_file import load_flow
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

WORK = '''\
from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Optional

import detent

if TYPE_CHECKING:
    import pandas as pd


class DataFrame:
    """One of our own, whatever others call theirs."""


def mark(_=None):
    open("began", "a").write("x")


@detent.task
def picture() -> bytes:
    mark()
    return b""


def digests() -> dict[str, set[bytes]]:
    mark()
    return {}


def table(_=None) -> pd.DataFrame:
    mark()


def lengths() -> tuple[datetime.timedelta, ...]:
    mark()


def each() -> "Iterator[int]":
    mark()


def unclear() -> bytes | bytearray:
    mark()


def either() -> bytes | None:
    mark()
    return None


def perhaps() -> Optional[bytes]:
    return None


def ours() -> DataFrame | None:
    return None


def noted() -> Annotated[int, bytes]:
    return 1


@detent.flow
def pictures():
    return picture()
'''
CONTRACT = """\
name: work
steps:
  - id: fine
    run: {{python: "annotated:noted"}}
  - id: step
    run: {{python: "annotated:{name}"}}
"""
REFUSED = {
    "picture": ("bytes, which has no JSON form", "detent.File.from_bytes("),
    "digests": ("dict[str, set[bytes]], and bytes has no JSON form", "detent.File.from_bytes("),
    "table": ("pd.DataFrame, which has no JSON form", 'df.to_dict("records")'),
    "lengths": ("tuple[datetime.timedelta, ...], and datetime.timedelta has no JSON form", "delta.total_seconds()"),
    "each": ("Iterator[int], which has no JSON form", "list(...) of it"),
    "unclear": ("bytes | bytearray, and bytes has no JSON form", "detent.File.from_bytes("),
}


@pytest.fixture
def work(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    project.write("annotated.py", WORK)
    monkeypatch.syspath_prepend(project.directory)
    monkeypatch.chdir(project.directory)
    yield project
    assert not Path("began").exists(), "refused work began"


@pytest.mark.parametrize("name", REFUSED)
def test_validate_plan_and_run_refuse_a_result_that_its_annotation_rules_out(work: Project, name: str) -> None:
    """X-170: with the file, the line of the step, the annotation and what to return instead."""
    said, instead = REFUSED[name]
    file = work.write("work.yaml", CONTRACT.format(name=name))
    for command in ("validate", "plan", "run"):
        done = work(command, file)
        told = done.out + done.err
        assert done.code == 2, command
        assert "work.yaml:5:" in told
        assert f"annotated:{name} (line " in told
        assert f"is annotated to return {said}" in told
        assert instead in told.replace("\n         ", " ")


@pytest.mark.parametrize("name", ["perhaps", "ours", "noted"])
def test_an_annotation_that_may_be_kept_is_no_obstacle(work: Project, name: str) -> None:
    file = work.write("work.yaml", CONTRACT.format(name=name))
    assert work("validate", file).code == 0
    assert work("run", file, "--workers", "1").code == 0


def test_a_flow_a_client_and_a_map_refuse_it_before_anything_begins(work: Project) -> None:
    """X-170: the same rule and the same words, from Python and from the command line."""
    for command in (("plan", "annotated.py:pictures"), ("run", "annotated.py:pictures")):
        done = work(*command)
        assert done.code == 2
        assert "is annotated to return bytes" in done.out + done.err
    flow = load_flow("annotated.py:pictures")
    with pytest.raises(ContractInvalid, match="is annotated to return bytes"):
        flow.run()
    import annotated as functions  # type: ignore[import-not-found]

    with Client(work.home.path, workers=1) as client:
        with pytest.raises(NotStrictJson, match="is annotated to return bytes") as refused:
            client.submit(functions.picture)
        assert "detent.File.from_bytes(" in str(refused.value.hint)
    rows = work.write("rows.jsonl", "1\n2\n")
    done = work("map", "--items", rows, "--compute", "annotated:table", "--commit", "jsonl:out.jsonl")
    assert done.code == 2
    assert "is annotated to return pd.DataFrame" in done.err
