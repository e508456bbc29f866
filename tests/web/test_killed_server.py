"""A server that is killed under an open page: the page says so, goes on by itself when the server is back, and shows everything once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from detent.serve.login import link
from tests.serve.served import Served, start
from tests.web.conftest import WAIT_MS
from tests.web.seeded import begun_project, ended, login_of, run

pytestmark = pytest.mark.door("route: /w/{workspace}/runs, in a browser")
CONTRACT = """
name: %s
steps:
  - {id: only, run: {python: "tasks:ok", with: {value: %s}}}
"""


def again(served: Served) -> Served:
    """The same server once more, at the same address."""
    return start(
        served.home,
        dict(served.environment),
        "--workers",
        "1",
        "--port",
        str(served.port),
        "--project",
        str(served.home.parent),
    )


def test_a_page_outlasts_a_kill_of_its_server_and_shows_every_run_once(browser: Browser, tmp_path: Path) -> None:
    served = begun_project(tmp_path, "--workers", "1")
    context = browser.new_context(locale="en-US")
    context.set_default_timeout(WAIT_MS)
    try:
        first = run(served, CONTRACT % ("first", json.dumps("one")))
        ended(served, first)
        page = context.new_page()
        page.goto(link(served.told["url"], login_of(served)))
        page.get_by_role("heading", name="Overview").wait_for()
        page.goto(f"{served.told['url']}/w/local/runs")
        rows = page.get_by_role("grid", name="Runs").locator("tbody tr", has=page.locator("a.mono"))
        expect(rows).to_have_count(1)
        served.kill()
        expect(page.locator(".offline")).to_contain_text("Reconnecting")
        expect(rows).to_have_count(1)  # What is known stays.
        served = again(served)
        second = run(served, CONTRACT % ("second", json.dumps("two")))
        ended(served, second)
        expect(page.locator(".offline")).to_have_count(0)
        page.get_by_role("button", name="Show 1 new run").click()
        expect(rows).to_have_count(2)
        for name in (first, second):
            expect(rows.filter(has_text=name)).to_have_count(1)
            expect(rows.filter(has_text=name)).to_contain_text("succeeded")
    finally:
        context.close()
        served.stop()
