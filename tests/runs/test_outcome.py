"""What a run left behind, read from the reports of its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.canon import digest_text
from detent.jobs.work import Failure, WorkFile
from detent.runs.record.outcome import artifacts_of, failures_of, users_line
from tests.reports import Printing, printing

TRACEBACK = """Traceback (most recent call last):
  File "/opt/tool/detent/worker.py", line 3, in call
    return function(*args)
  File "/srv/etl.py", line 42, in clean
    celsius = float(row["celsius"])
              ^^^^^^^^^^^^^^^^^^^^^
  File "/srv/.venv/lib/python3.11/site-packages/numbers.py", line 9, in parse
    raise ValueError
  File "/usr/lib/python3.11/json/decoder.py", line 9, in decode
ValueError: bad row
"""


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[Printing]:
    with printing(tmp_path) as hand:
        yield hand


def test_the_users_line_is_the_last_one_of_their_own_code() -> None:
    assert users_line(TRACEBACK, "/srv") == 'etl.py:42 in clean: celsius = float(row["celsius"])'
    assert users_line(TRACEBACK) == '/srv/etl.py:42 in clean: celsius = float(row["celsius"])'
    assert users_line(TRACEBACK, "/opt/tool") == "detent/worker.py:3 in call: return function(*args)"
    assert users_line("ValueError: bad row") is None


def test_a_line_outside_of_any_function_is_shown_without_one() -> None:
    assert users_line('  File "/w/a.py", line 1, in <module>\n    boom()\n', "/w") == "a.py:1: boom()"


def test_a_failure_is_told_from_the_last_report(hand: Printing) -> None:
    hand.order("a", base="/srv")
    broke = Failure("INTERNAL_ERROR", "WORKER_BROKE", "first")
    hand.report(hand.take("a"), error=broke)
    hand.wait_for_retry()
    raised = Failure("USER_CODE_ERROR", "PYTHON_EXCEPTION", "bad row", "ValueError", TRACEBACK)
    hand.report(hand.take("a"), error=raised)
    with hand.reading() as (reader, content):
        (failure,) = failures_of(reader, content, [("load", "a", "short")])
    assert (failure.step, failure.job_id, failure.attempts) == ("load", "a", 2)
    assert (failure.category, failure.code) == ("USER_CODE_ERROR", "PYTHON_EXCEPTION")
    assert failure.message == "ValueError: bad row"
    assert failure.where == 'etl.py:42 in clean: celsius = float(row["celsius"])'


def test_code_without_a_file_is_told_by_its_line(hand: Printing) -> None:
    hand.order("a", max_retries=0)
    hand.report(hand.take("a"), error=Failure("USER_CODE_ERROR", "PYTHON_EXCEPTION", "no", line=12))
    with hand.reading() as (reader, content):
        (failure,) = failures_of(reader, content, [("cell", "a", "")])
    assert failure.where == "line 12 of its code"


def test_an_unreported_end_is_explained_by_its_reason(hand: Printing) -> None:
    hand.order("a", max_retries=0)
    hand.lose(hand.take("a"))
    with hand.reading() as (reader, content):
        lost, never = failures_of(reader, content, [("load", "a", "no sign of life"), ("x", "nobody", "not made")])
    assert (lost.code, lost.message, lost.where) == ("LEASE_EXPIRED", "no sign of life", None)
    assert (never.code, never.message) == ("NOT_RUN", "not made")


def test_artifacts_lie_where_the_step_left_them_or_in_the_content_store(hand: Printing, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "page.html").write_text("page")
    page, picture = (hand.home.content_files().put(data) for data in (b"page", b"picture"))
    hand.order("a", base=str(tmp_path), outputs={"page": "out/page.html"})
    hand.order("b")
    hand.order("c")
    hand.report(hand.take("a"), files=(WorkFile("out/page.html", page, 4), WorkFile("out/gone.html", page, 4)))
    hand.report(hand.take("b"), files=(WorkFile("plot.png", picture, 7, "image/png"),))
    hand.report(hand.take("c"))
    files = hand.home.content_files()
    with hand.reading() as (reader, content):
        made = list(artifacts_of(reader, content, files, {"report": ["a"], "plot": ["b", "c", "nobody"]}))
    assert [(one.step, one.name, one.path) for one in made] == [
        ("report", "out/page.html", str(tmp_path / "out" / "page.html")),
        ("report", "out/gone.html", str(files.path(page))),
        ("plot", "plot.png", str(files.path(picture))),
    ]
    assert (made[2].size_bytes, made[2].digest) == (7, digest_text(picture))


def test_a_job_is_read_once_however_many_steps_took_its_result(hand: Printing, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = hand.home.content_files().put(b"picture")
    hand.order("a")
    hand.report(hand.take("a"), files=(WorkFile("plot.png", picture, 7),))
    steps = {f"s{number}": ["a"] for number in range(100)}
    read = list[bytes]()
    with hand.reading() as (reader, content):
        get = content.get

        def noted(digest: bytes) -> bytes | None:
            read.append(digest)
            return get(digest)

        monkeypatch.setattr(content, "get", noted)
        made = list(artifacts_of(reader, content, hand.home.content_files(), steps))
    assert [(one.step, one.name) for one in made] == [(step, "plot.png") for step in steps]
    assert len(read) == 2, "its report, and what it was asked to do"
