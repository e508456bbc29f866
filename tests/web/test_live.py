"""What happens is seen at once: a row follows the event itself, and nothing is asked for what the event says."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from tests.web.conftest import Visit, Visitor
from tests.web.seeded import SLOW, Seeded, ended, run

pytestmark = pytest.mark.door("route: /w/{workspace}/jobs, in a browser")
ROW = {"/jobs": "Jobs", "/runs": "Runs", "": "Newest runs", "/runs/{run}?view=steps": "Steps"}
"""The table of each page that follows a run, or a job or step of it."""
TOPIC = {"/jobs": "jobs", "/runs": "runs", "": "runs", "/runs/{run}?view=steps": "run:{run}"}
FOLLOWED = """
window.followed = [];
const ask = window.fetch;
window.fetch = async (address, init) => {
  const answer = await ask(address, init), where = new URL(address, location.href);
  if (answer.ok && where.pathname === '/v1/events') window.followed = where.searchParams.get('topics').split(',');
  else if (answer.ok && where.pathname.endsWith('/topics')) window.followed = JSON.parse(init.body).topics;
  return answer;
};
"""
"""Notes the topics that the server has been told the page follows: what happens before is asked for, not told."""


@pytest.fixture
def visitor(visit: Visit) -> Iterator[Visitor]:
    with visit() as found:
        found.page.add_init_script(FOLLOWED)
        yield found


def silence(page: Page) -> None:
    """Have the server answer nothing more but its events."""

    def refuse(route: Route) -> None:
        body = {"type": "about:blank", "title": "no", "status": 503, "detail": "no", "code": "STORE_UNAVAILABLE"}
        route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(body))

    page.route(lambda url: "/v1/" in url and "/v1/events" not in url, refuse)


@pytest.mark.parametrize("path", ROW)
def test_a_row_follows_an_event_without_a_question_to_the_server(visitor: Visitor, seeded: Seeded, path: str) -> None:
    own = run(seeded.served, SLOW.replace("nightly", "followed") % f'"{seeded.gate}-never"')
    try:
        page = visitor.go(f"/w/local{path.format(run=own)}")
        rows = page.get_by_role("grid", name=ROW[path], exact=True).locator("tbody tr")
        row = rows.filter(has_text="first" if "view=steps" in path else own).first
        expect(row).to_contain_text("running")
        page.wait_for_function("one => followed.includes(one)", arg=TOPIC[path].format(run=own))
        silence(page)
    finally:
        assert seeded.served.ask("POST", f"/v1/runs/{own}/cancel", body=b"{}").status < 300
    expect(row).to_contain_text("cancelled")
    assert ended(seeded.served, own)["status"] == "cancelled"


def test_who_started_a_run_is_left_open_until_the_server_has_said_it(visitor: Visitor, seeded: Seeded) -> None:
    page = visitor.go("/w/local")
    page.get_by_role("grid", name="Newest runs").wait_for()
    page.wait_for_function("followed.includes('runs')")
    silence(page)
    own = run(seeded.served, SLOW.replace("nightly", "begun") % f'"{seeded.gate}-never"')
    try:
        row = page.get_by_role("grid", name="Newest runs").locator("tbody tr").filter(has_text=own)
        expect(row).to_contain_text("running")
        expect(row.locator("td").nth(6)).to_have_text("")
        page.unroute_all()
    finally:
        assert seeded.served.ask("POST", f"/v1/runs/{own}/cancel", body=b"{}").status < 300
    expect(row.locator("td").nth(6)).to_have_text("this machine's user")


def test_a_row_that_newer_ones_pushed_off_the_first_page_still_follows(visitor: Visitor, seeded: Seeded) -> None:
    own = run(seeded.served, SLOW.replace("nightly", "pushed") % f'"{seeded.gate}-never"')
    try:
        page = visitor.go("/w/local/jobs")
        row = page.get_by_role("grid", name="Jobs").locator("tbody tr").filter(has_text=own).first
        expect(row).to_contain_text("running")
        items = [{"task": {"target": "tasks.py:ok", "arguments": [n]}} for n in range(60)]
        made = seeded.served.ask("POST", "/v1/jobs:batch", body=json.dumps({"items": items}).encode())
        assert made.status == 200
        expect(page.get_by_role("button", name="Show 50 new jobs")).to_be_visible()
        expect(row).to_contain_text("running")
    finally:
        assert seeded.served.ask("POST", f"/v1/runs/{own}/cancel", body=b"{}").status < 300
    expect(row).to_contain_text("cancelled")
    visitor.assert_clean()
