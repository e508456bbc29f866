"""The way in: a link logs a browser in once and leaves no trace, a page that needs a login comes back after it."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Visit
from tests.web.seeded import Seeded

pytestmark = pytest.mark.door("route: /login, in a browser")


def test_a_link_leads_to_the_overview_and_leaves_no_token_behind(visit: Visit, seeded: Seeded) -> None:
    with visit(log_in=False) as visitor:
        page, link = visitor.page, seeded.login()
        page.goto(link)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        assert page.url == f"{seeded.base}/w/local"
        page.goto(link)
        expect(page.get_by_role("alert")).to_contain_text("was used before")
        assert "#" not in page.url
        assert page.evaluate("JSON.stringify(localStorage) + JSON.stringify(sessionStorage)").find("dtl_") < 0


def test_a_page_that_needs_a_login_is_shown_after_it(visit: Visit, seeded: Seeded) -> None:
    made = seeded.served.ask("POST", "/v1/keys", body=json.dumps({"name": "viewer", "role": "viewer"}).encode())
    with visit(log_in=False) as visitor:
        page = visitor.page
        page.goto(f"{seeded.base}/w/local/runs?status=failed")
        page.get_by_label("API key").fill(made.json["secret"])
        page.keyboard.press("Enter")
        expect(page.get_by_role("grid", name="Runs")).to_contain_text(seeded.failed)
        assert page.url.endswith("/w/local/runs?status=failed")
        # A viewer sees what it may not do, and why.
        page.goto(f"{seeded.base}/w/local/runs/{seeded.failed}")
        retry = page.get_by_role("button", name="Retry failed")
        expect(retry).to_have_attribute("aria-disabled", "true")
        expect(retry).to_have_attribute("title", "Your credential lacks the scope runs:write")
        page.locator(".user summary").click()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("API key")).to_be_visible()
        page.goto(f"{seeded.base}/w/local/runs")
        expect(page.get_by_label("API key")).to_be_visible()
