"""The browser that tests drive: Debian's Chromium, which tools/setup.sh installs where it may install packages.

It is started for each module and ended with it: while Playwright runs, no other test of the process can have an event loop.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
)
"""The last one is a name that its owner points at this machine (tests/serve/test_chromium.py)."""
NOT_RUN = "Chromium is not installed: run `apt-get install chromium fonts-dejavu-core` as root"


def path() -> str | None:
    """The browser's program; None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser. Without one the test is skipped, which the last lines of the report say; in continuous integration it fails."""
    with launched() as found:
        yield found


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser that runs."""
    program = path()
    if program is None:
        if os.environ.get("CI"):
            pytest.fail(NOT_RUN)
        pytest.skip(NOT_RUN)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield found
        found.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in the end, and in red, that the tests in a browser did not run."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if NOT_RUN in str(report.longrepr)]
    if skipped:
        terminalreporter.write_sep("=", f"BROWSER TESTS NOT RUN ({len(skipped)}): {NOT_RUN}", red=True, bold=True)
