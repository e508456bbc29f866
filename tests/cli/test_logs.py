"""`detent logs`."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from detent.cli import logs
from detent.cli.app import run
from detent.cli.logs import LogsPage, printable
from detent.inspect.logs import AttemptLog, Piece
from detent.jobs.work import Failure
from detent.kernel import EndRun
from detent.runs.find_jobs import FoundJob
from tests.cli.conftest import Cli
from tests.reports import Printing, printing


@pytest.fixture
def hand(cli: Cli) -> Iterator[Printing]:
    with printing(cli.played.home.path.parent, cli.played) as hand:
        yield hand


def two_attempts(hand: Printing) -> None:
    hand.order("a", "run-2", step="extract", index=3)
    hand.report(hand.take("a"), stdout=b"one\n", stderr=b"oh", error=Failure("INTERNAL_ERROR", "WORKER_BROKE", "no"))
    hand.wait_for_retry()
    hand.report(hand.take("a"), stdout=b"two\n")


def test_a_pipe_gets_plain_text(hand: Printing, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a job printed may not write to the clipboard (OSC 52) of the terminal behind a pager."""
    hand.order("a")
    hand.report(hand.take("a"), stdout=b"one\r\n\x1b[31mtwo\x1b[0m \xff\x1b]52;c;aGk=\x07\n")
    pipe = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(pipe, encoding="utf-8"))
    assert run(["logs", "a"]) == 0
    shown = pipe.getvalue()
    assert shown.startswith(b"one\ntwo \\xff")
    assert b"\x1b" not in shown
    assert b"\x07" not in shown


def test_raw_gives_the_bytes_that_were_written(hand: Printing, monkeypatch: pytest.MonkeyPatch) -> None:
    written = b"one\r\n\x1b[31mtwo\x1b[0m \xff"
    hand.order("a")
    hand.report(hand.take("a"), stdout=written)
    pipe = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(pipe, encoding="utf-8"))
    assert run(["logs", "a", "--raw"]) == 0
    assert pipe.getvalue() == written


def test_several_attempts_have_a_header_each(cli: Cli, hand: Printing) -> None:
    two_attempts(hand)
    result = cli("logs", "a")
    assert result.out == (
        "--- extract[3] (a), attempt 1 of 2, failed (WORKER_BROKE) ---\none\n--- stderr ---\noh\n"
        "--- extract[3] (a), attempt 2 of 2, succeeded ---\ntwo\n"
    )
    assert result.err == "extract[3], attempt 1: only the first 2 bytes of its stderr were kept\n"


def test_one_stream_can_be_asked_for(cli: Cli, hand: Printing) -> None:
    hand.order("a")
    hand.report(hand.take("a"), stdout=b"out\n", stderr=b"err\n")
    assert cli("logs", "a", "--stdout").out == "out\n"
    assert cli("logs", "a", "--stderr").out == "err\n"
    assert cli("logs", "a").out == "out\n--- stderr ---\nerr\n"


def test_a_step_and_a_run_show_all_their_jobs(cli: Cli, hand: Printing) -> None:
    for index in (1, 0):
        hand.order(f"job-{index}", "run-2", step="map", index=index)
        hand.report(hand.take(f"job-{index}"), stdout=f"this is {index}\n".encode())
    expected = "--- map[0] (job-0), succeeded ---\nthis is 0\n--- map[1] (job-1), succeeded ---\nthis is 1\n"
    assert cli("logs", "map").out == expected
    result = cli("logs", "run-2")
    assert (result.out, result.err) == (expected, "")


def test_json_has_everything(cli: Cli, hand: Printing) -> None:
    two_attempts(hand)
    document = cli.json("logs", "a")
    assert (document["kind"], document["run_id"]) == ("job", "run-2")
    (job,) = document["jobs"]
    assert (job["job_id"], job["step"], job["index"], job["state"]) == ("a", "extract", 3, "succeeded")
    first, second = job["attempts"]
    assert first["stdout"] == {"text": "one\n", "size_bytes": 4, "truncated": False, "content": "here"}
    assert first["stderr"]["truncated"] is True
    assert (first["status"], first["reason_code"], first["worker"]) == ("failed", "WORKER_BROKE", "worker-a")
    assert (second["attempt"], second["finished_ms"] - second["started_ms"]) == (2, 1_500)
    assert "stderr" not in cli.json("logs", "a", "--stdout")["jobs"][0]["attempts"][0]


def test_a_running_job_shows_what_it_has_printed_so_far(cli: Cli, hand: Printing) -> None:
    hand.order("a")
    hand.take("a")
    hand.live("w1", "a", stdout=b"working...\n")
    assert cli("logs", "a").out == "working...\n"
    assert cli.json("logs", "a")["jobs"][0]["attempts"][0]["running"] is True


def test_what_is_missing_is_said(cli: Cli, hand: Printing) -> None:
    hand.order("quiet")
    hand.report(hand.take("quiet"))
    hand.order("lost", max_retries=0)
    hand.lose(hand.take("lost"))
    hand.order("odd")
    hand.hand_in(hand.take("odd"), b"no report")
    hand.order("queued")
    assert cli("logs", "quiet").err == "quiet printed nothing\n"
    assert "lost, attempt 1: it ended without a report (LEASE_EXPIRED)" in cli("logs", "lost").err
    assert cli("logs", "queued").err == "queued is queued and has printed nothing yet\n"
    assert cli("logs", "odd").err == "odd, attempt 1: its report cannot be read; `detent verify` says more\n"
    cli("erase", "--job", "odd")
    assert cli("logs", "odd").err == "odd, attempt 1: its report was erased\n"


@pytest.mark.parametrize("arguments", [("brokn",), ("waiting", "--run", "run-1"), ("done", "--run", "run-3")])
def test_what_is_not_there_is_refused(cli: Cli, arguments: tuple[str, ...]) -> None:
    result = cli("logs", *arguments)
    assert result.code == 2
    assert "there is no" in result.err
    assert "hint:" in result.err


def test_following_what_has_ended_prints_it_and_tells_how_it_ended(cli: Cli, hand: Printing) -> None:
    two_attempts(hand)
    hand.order("bad", max_retries=0)
    hand.report(hand.take("bad"), stdout=b"no\n", error=Failure("USER_CODE_ERROR", "PYTHON_EXCEPTION", "no"))
    good, bad = cli("logs", "a", "-f"), cli("logs", "bad", "-f")
    assert (good.code, bad.code) == (0, 1)
    assert good.out == "one\n--- stderr ---\noh\n--- extract[3] (a), attempt 2 ---\ntwo\n"
    assert bad.out == "no\n"
    document = cli("logs", "bad", "-f", "-o", "json")
    assert document.code == 1
    assert document.document["jobs"][0]["attempts"][0]["stdout"]["text"] == "no\n"


def test_following_waits_for_what_runs(cli: Cli, hand: Printing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait lets the next thing happen, so nothing here depends on a clock."""
    hand.order("a", "run-2", step="map", index=0)
    grant = hand.take("a")

    def play() -> Iterator[None]:
        hand.live("w1", "a", stdout=b"live\n")
        yield
        hand.report(grant, stdout=b"live\nrest\n")
        yield
        hand.report(hand.take("waiting"), stdout=b"other\n")
        yield
        hand.ask(EndRun(0, "run-2", "completed"))
        yield

    scene = play()
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        next(scene)

    monkeypatch.setattr(logs, "pause", pause)
    result = cli("logs", "run-2", "-f")
    assert result.code == 0
    assert result.out == "map[0] | live\nmap[0] | rest\nwaiting | other\n"
    assert waits == [0.1] * 4


def test_waiting_without_a_worker_is_said_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter(range(20))

    def pause(seconds: float) -> None:
        if next(waits) == 15:
            raise KeyboardInterrupt

    monkeypatch.setattr(logs, "pause", pause)
    result = cli("logs", "waiting", "-f")
    assert result.code == 130
    assert result.err.count("no process is working on this home") == 1


def test_of_many_jobs_that_print_at_once_each_whole_line_says_whose_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    page = LogsPage(("stdout", "stderr"), many=True, note=lambda text: None)
    first, second = FoundJob("a", "map", 0), FoundJob("b", "map", 1)
    page.pieces(
        [
            (first, Piece("a", 1, "stdout", b"one\ntw")),
            (second, Piece("b", 2, "stdout", b"other\n")),
            (first, Piece("a", 1, "stderr", b"oh\n")),
            (first, Piece("a", 1, "stdout", b"o\nno end")),
        ]
    )
    assert capsys.readouterr().out == "map[0] | one\nmap[1] attempt 2 | other\nmap[0] | oh\nmap[0] | two\n"
    page.pieces([(first, Piece("a", 1, None, ended=AttemptLog(1, fate="here")))])
    assert capsys.readouterr().out == "map[0] | no end\n"


def test_a_line_that_never_ends_is_shown_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    page = LogsPage(("stdout",), many=True, note=lambda text: None)
    page.pieces([(FoundJob("a", ""), Piece("a", 1, "stdout", b"x" * 70_000))])
    assert len(capsys.readouterr().out) == 70_000 + len("a | \n")


# -- a terminal --------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours_and_nothing_else_that_acts() -> None:
    text = "\x1b[1;31mred\x1b[0m\tx\r\nbell\x07 \x1b[2J \x1b]0;title\x07"
    assert printable(text, colour=True) == "\x1b[1;31mred\x1b[0m\tx\nbell\\x07 \\x1b[2J \\x1b]0;title\\x07"
    assert printable(text, colour=False).startswith("red\tx\n")


def test_a_character_may_come_in_two_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    page = LogsPage(("stdout",), many=False, note=lambda text: None)
    euro = "€".encode()
    page.pieces((FoundJob("a", ""), Piece("a", 1, "stdout", piece)) for piece in (euro[:1], euro[1:]))
    page.close()
    assert terminal.getvalue() == "€\n"
