"""One server, one login and one context of the browser for all tests of a process, and a page for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, StorageState, expect

from tests.web.chromium import launched
from tests.web.seeded import Seeded, seeding

EMPTY = "empty"
"""A workspace that has nothing."""
MOVE = "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }"
WAIT_MS = 60_000
"""Far above what a busy machine needs."""
expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    with seeding(tmp_path_factory.mktemp("seeded")) as found:
        yield found


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for all tests of this folder: to start it takes longer than most of them."""
    with launched() as found:
        yield found


@dataclass
class Visitor:
    """A person at a page, who notices whatever goes wrong in it."""

    page: Page
    base: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def go(self, path: str) -> Page:
        """Open a page of the workspace and wait for its heading."""
        self.page.goto(f"{self.base}{path}")
        self.page.locator("h1").first.wait_for()
        return self.page

    def move(self, path: str) -> None:
        """Go to another page of the workspace without loading anything anew, as a click on a link does."""
        self.page.evaluate(MOVE, path)

    def forget(self) -> None:
        """Load the page anew, so that it has no answer that it could show again."""
        self.go("/w/local/nowhere")

    def assert_clean(self) -> None:
        """No error in the console, no report of the policy, no request to another host."""
        assert self.errors == []
        assert self.foreign == []


def _said(told: ConsoleMessage) -> str:
    """A message of the console, and where it comes from: what could not be loaded is named there alone."""
    return f"{told.text} ({told.location.get('url', '')})"


Visit = Callable[..., Any]


def settled(page: Page) -> None:
    """Wait until a page shows what it has."""
    page.locator("main h1").first.wait_for()
    expect(page.locator("main .skeleton")).to_have_count(0)


@contextmanager
def opened(
    browser: Browser, seeded: Seeded, *, dark: bool = False, width: int = 1280, log_in: bool = True
) -> Iterator[Visitor]:
    """A context of the browser for a theme and a width, logged in. It has no page open yet: `go` opens one."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        locale="en-US",
        storage_state=_logged_in(browser, seeded) if log_in else None,
    )
    try:
        with visiting(context, seeded) as visitor:
            yield visitor
    finally:
        context.close()


@contextmanager
def visiting(context: BrowserContext, seeded: Seeded) -> Iterator[Visitor]:
    """Another page of a context."""
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    visitor = Visitor(page, seeded.base)
    page.on("console", lambda told: visitor.errors.append(_said(told)) if told.type == "error" else None)
    page.on("pageerror", lambda error: visitor.errors.append(str(error)))
    page.on(
        "request",
        lambda asked: None if asked.url.startswith(f"{seeded.base}/") else visitor.foreign.append(asked.url),
    )
    try:
        yield visitor
    finally:
        page.close()


def _logged_in(browser: Browser, seeded: Seeded) -> StorageState:
    """The cookies of a browser that followed a login link. Made once for each server: tests/web/test_login.py has logins of its own."""
    if seeded.cookies is None:
        context = browser.new_context()
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.goto(seeded.login())
        page.get_by_role("heading", name="Overview").wait_for()
        seeded.cookies = context.storage_state()
        context.close()
    return seeded.cookies


@pytest.fixture(scope="package")
def context(browser: Browser, seeded: Seeded) -> Iterator[BrowserContext]:
    """A context that is logged in: to make one takes as long as to load a page in it."""
    with opened(browser, seeded) as found:
        yield found.page.context


@pytest.fixture
def visit(context: BrowserContext, visit_module: Visit, seeded: Seeded) -> Visit:
    """Opens a page, logged in; in a context of its own where a theme, a width or no login is asked for."""
    return lambda **options: visit_module(**options) if options else visiting(context, seeded)


@pytest.fixture(scope="module")
def visit_module(browser: Browser, seeded: Seeded) -> Visit:
    """Opens a page in a context of its own, for the tests of a module to share."""
    return partial(opened, browser, seeded)
