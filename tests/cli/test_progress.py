"""The thread that shows a run: it shows the last state whatever happens, and the run never waits for it."""

from __future__ import annotations

from threading import Event

import pytest

from detent.cli.progress import Console, Progress
from detent.runs.record.view import RunView
from tests.cli.run_views import START_MS, run_view, step


class Written:
    """A console that keeps what was written, and tells when it was."""

    def __init__(self, *, live: bool) -> None:
        self.text = ""
        self.happened = Event()
        self.console = Console(self._write, live, lambda: (60, 24))

    def _write(self, text: str) -> None:
        self.text += text
        self.happened.set()


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_last_state_is_shown_whatever_ended_the_run(live: bool, error: type[BaseException]) -> None:
    views = [run_view(step("a", "running"), after_ms=0)]
    written = Written(live=live)

    def run() -> None:
        with Progress(lambda: views[-1], written.console):
            assert written.happened.wait(10)
            views.append(run_view(step("a", "succeeded", done=1, ended_ms=START_MS + 1_000), after_ms=1_000))
            raise error

    with pytest.raises(error):
        run()
    assert ("✓ \x1b[0ma" if live else " a done in 0.0s") in written.text


def test_messages_are_said_in_both_forms_and_made_safe() -> None:
    for live in (True, False):
        written = Written(live=live)
        with Progress(lambda: run_view(step("a", "running")), written.console) as progress:
            progress.say("first\nsecond \x1b[2J")
        assert "first" in written.text
        assert "second \\x1b[2J" in written.text


def test_a_view_that_cannot_be_made_ends_the_drawing_and_not_the_run() -> None:
    def view() -> RunView:
        raise ZeroDivisionError

    written = Written(live=True)
    with Progress(view, written.console) as progress:
        progress.say("still fine")
    assert isinstance(progress.fault, ZeroDivisionError)
    assert written.text == ""


def test_a_terminal_that_is_gone_ends_the_drawing_and_not_the_run() -> None:
    def write(text: str) -> None:
        raise OSError(5, "Input/output error")

    with Progress(run_view, Console(write, True, lambda: (80, 24))) as progress:
        pass
    assert isinstance(progress.fault, OSError)
    progress.close()


def test_a_message_never_waits_for_the_terminal() -> None:
    release, blocked = Event(), Event()

    def write(text: str) -> None:
        blocked.set()
        release.wait(30)

    progress = Progress(run_view, Console(write, True, lambda: (80, 24)))
    with progress:
        assert blocked.wait(10)
        progress.say("goes on at once")
        release.set()
