"""Every page in a real browser: readable for everyone, in light and dark, wide and narrow, full, empty, failing and offline.

The page is loaded once and then goes from address to address as it does for its user, which is far quicker than to load it for each.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from difflib import unified_diff
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from detent.errors import CODES
from tests.web.aria import FOLDER, addresses, told
from tests.web.axe import faults
from tests.web.conftest import EMPTY, WAIT_MS, Visit, Visitor, settled
from tests.web.seeded import HOSTILE, Seeded

pytestmark = pytest.mark.door("route: /w/{workspace}, in a browser")
LISTS = (
    *("", "/runs", "/jobs", "/queue", "/workers", "/schedules", "/sessions", "/verify", "/audit"),
    *("/settings/keys", "/settings/members", "/settings/webhooks"),
)
"""The pages that are about a whole workspace."""
LOOK_MS = 100
SEED_FAULTS = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`
    @media (prefers-color-scheme: dark) { h1 { color: #444 !important; } }
    @media (max-width: 400px) { .seeded span { display: none; } .seeded { color: light-dark(#ccc, #333) !important; } }
  `);
  document.adoptedStyleSheets.push(sheet);
  const button = document.createElement("button"), text = document.createElement("p");
  button.className = text.className = "seeded";
  button.append(document.createElement("span"));
  button.firstChild.textContent = text.textContent = "seeded";
  document.querySelector("main").append(button, text);
}"""
"""A heading that is too faint in dark, and a button without a name and a text that is too faint on a narrow screen."""
FAILING = {
    "type": "/problems/STORE_UNAVAILABLE",
    "title": "the store cannot be used now",
    "status": 503,
    "detail": "the disk of the ledger does not answer",
    "instance": "req_0123456789abcdef01234567",
    "code": "STORE_UNAVAILABLE",
    "retryable": True,
    "hint": "check the disk of the home",
}


def _lists(seeded: Seeded) -> list[str]:
    filtered = ("/runs?status=failed", "/runs?name=nothing", "/schedules?state=paused")
    return [*LISTS, *filtered, f"/audit?record={seeded.record}", f"/settings/webhooks/{seeded.hook}"]


def _runs(seeded: Seeded) -> list[str]:
    run = f"/runs/{seeded.failed}"
    return [
        *(f"{run}?step=fetch", f"{run}?view=timeline", f"{run}?view=timeline&group=worker", f"{run}?view=why"),
        *(f"{run}?view=records", f"/runs/{seeded.succeeded}?view=steps", f"/runs/{seeded.hostile}"),
        *(f"/runs/{seeded.running}", f"/diff/{seeded.failed}/{seeded.hostile}", "/runs/nowhere"),
    ]


def _jobs(seeded: Seeded) -> list[str]:
    job = f"/jobs/{seeded.failed_job}"
    return [job, *(f"{job}?tab={tab}" for tab in ("why", "input", "attempts", "records")), "/nowhere"]


PAGES = {"lists": _lists, "runs": _runs, "jobs": _jobs}
"""Every page that has something to show, behind the workspace; in parts, which processes share among them."""


def wrong(visitor: Visitor, workspace: str, found: list[str], also: Callable[[Page, str], None] | None = None) -> Any:
    """What is wrong with pages that are gone to one after the other."""
    seen: dict[str, list[str]] = {}
    for path in found:
        visitor.move(f"/w/{workspace}{path}")
        settled(visitor.page)
        if also is not None:
            also(visitor.page, path)
        if found_here := faults(visitor.page):
            seen[path] = found_here
    return seen


@pytest.fixture(scope="module")
def shared(visit_module: Visit) -> Iterator[Visitor]:
    with visit_module() as found:
        found.go("/w/local")
        yield found


@pytest.fixture
def visitor(shared: Visitor) -> Visitor:
    """One page for the tests of this file; what it noticed is forgotten between them."""
    shared.errors.clear()
    shared.foreign.clear()
    return shared


def test_a_fault_in_one_theme_or_at_one_width_alone_is_found(visitor: Visitor) -> None:
    page = visitor.page
    visitor.move("/w/local/runs")
    settled(page)
    assert faults(page) == []
    page.evaluate(SEED_FAULTS)
    try:
        found = faults(page)
    finally:
        visitor.forget()
    seen = {(place, said.partition(":")[0]) for place, _, said in (one.partition(": ") for one in found)}
    assert seen == {
        ("dark, 1280 px", "color-contrast"),
        ("dark, 320 px", "color-contrast"),
        ("light, 320 px", "color-contrast"),
        ("light, 320 px", "button-name"),
    }
    assert (
        sum("dark" in one for one in found) == 3
    )  # Two at 320 px: what is wrong there alone is not hidden by the other.


@pytest.mark.parametrize("part", PAGES)
def test_every_page_is_accessible_and_talks_to_this_server_alone(visitor: Visitor, seeded: Seeded, part: str) -> None:
    def unscrolled(page: Page, path: str) -> None:
        assert page.evaluate("scrollY") == 0, path

    assert wrong(visitor, "local", PAGES[part](seeded), unscrolled) == {}
    # A run that is not there is answered with 404, which the browser writes into its console.
    visitor.errors = [one for one in visitor.errors if "404" not in one]
    visitor.assert_clean()


def test_every_page_of_an_empty_workspace_says_what_fills_it(visitor: Visitor) -> None:
    assert wrong(visitor, EMPTY, [*LISTS]) == {}
    visitor.assert_clean()


def test_every_page_that_fails_says_why_and_offers_to_try_again(visitor: Visitor, seeded: Seeded) -> None:
    def fail(route: Route) -> None:
        if route.request.url.endswith("/v1/me") or "/v1/events" in route.request.url:
            return route.continue_()
        return route.fulfill(
            status=503, content_type="application/problem+json", body=json.dumps(FAILING), headers={"Retry-After": "1"}
        )

    def says(page: Page, path: str) -> None:
        expect(page.get_by_role("alert").first, path).to_contain_text("STORE_UNAVAILABLE")
        expect(page.get_by_role("button", name="Try again").first, path).to_be_visible()

    visitor.forget()
    visitor.page.route("**/v1/**", fail)
    try:
        found = [
            *LISTS[1:],
            f"/runs/{seeded.failed}",
            f"/jobs/{seeded.failed_job}",
            f"/diff/{seeded.failed}/{seeded.hostile}",
        ]
        assert wrong(visitor, "local", found, says) == {}
    finally:
        visitor.page.unroute("**/v1/**")
    visitor.errors = [one for one in visitor.errors if "503" not in one]
    visitor.assert_clean()


def test_every_page_keeps_what_it_has_while_the_server_is_away(visitor: Visitor, seeded: Seeded) -> None:
    page = visitor.page
    visitor.forget()
    visitor.move("/w/local/runs")
    expect(page.get_by_role("grid", name="Runs")).to_contain_text(seeded.failed)
    page.context.set_offline(True)
    try:
        expect(page.locator(".offline")).to_contain_text("Reconnecting. Data as of")
        expect(page.get_by_role("grid", name="Runs")).to_contain_text(seeded.failed)  # Still there.

        def says(page: Page, path: str) -> None:
            expect(page.locator(".offline"), path).to_be_visible()
            if path != "/runs":
                expect(page.get_by_role("alert").first, path).to_contain_text("The server is not responding")

        assert wrong(visitor, "local", ["/runs", *LISTS[2:], f"/runs/{seeded.failed}"], says) == {}
    finally:
        page.context.set_offline(False)
    expect(page.locator(".offline")).to_have_count(0)
    visitor.errors = [one for one in visitor.errors if "ERR_INTERNET_DISCONNECTED" not in one]
    visitor.assert_clean()


def test_pages_tell_assistive_technology_what_the_golden_files_say(visitor: Visitor, seeded: Seeded) -> None:
    visitor.forget()
    differing = {}
    deadline = time.monotonic() + WAIT_MS / 1_000
    for name, address in addresses(seeded).items():
        visitor.move(address)
        settled(visitor.page)
        golden = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
        seen = told(visitor.page)
        while seen != golden and time.monotonic() < deadline:  # Sections come one after the other.
            visitor.page.wait_for_timeout(LOOK_MS)
            seen = told(visitor.page)
        if seen != golden:
            differing[name] = "\n".join(unified_diff(golden.splitlines(), seen.splitlines(), lineterm=""))
    assert differing == {}, "run `make golden` and review the difference"
    assert {path.stem for path in FOLDER.iterdir()} == set(addresses(seeded))


def test_what_a_code_means_is_a_page_for_everyone(visit: Visit, seeded: Seeded) -> None:
    with visit(log_in=False) as visitor:
        page = visitor.page
        page.goto(f"{seeded.base}/problems/QUEUE_FULL")
        expect(page.get_by_role("heading", name="QUEUE_FULL")).to_be_visible()
        expect(page.get_by_role("main")).to_contain_text(f"HTTP status{CODES['QUEUE_FULL'].http_status}")
        assert faults(page) == []
        page.goto(f"{seeded.base}/w/local/runs/")
        page.get_by_label("API key").wait_for()
        assert faults(page) == []
        visitor.errors = [one for one in visitor.errors if "401" not in one]
        visitor.assert_clean()


def test_markup_in_names_output_results_and_pictures_is_text(visitor: Visitor, seeded: Seeded) -> None:
    page = visitor.page
    visitor.move(f"/w/local/runs/{seeded.hostile}")
    expect(page.get_by_text(HOSTILE).first).to_be_visible()
    page.get_by_role("link", name="Open the log").or_(page.locator(".failure h2 a")).first.click()
    log = page.get_by_role("region", name="Log of stdout")
    expect(log).to_contain_text("<script>document.title = 'owned'</script>")
    expect(log.locator(".fg-red.fg-bold")).to_have_text("red")
    expect(log).not_to_contain_text("\u202e")
    visitor.move(f"/w/local/jobs/{seeded.job_of('collect')}?tab=result")
    expect(page.get_by_role("tabpanel")).to_contain_text('"html": "<img src=x onerror=alert(1)>')
    visitor.move(f"/w/local/jobs/{seeded.job_of('write')}?tab=artifacts")
    expect(page.get_by_role("tabpanel")).to_contain_text("evil.svg")
    expect(page.locator("main img, main script, main object, main iframe")).to_have_count(0)
    assert "owned" not in page.title()
    visitor.assert_clean()


def test_labels_of_filters_stay_on_one_line_on_a_narrow_screen(visit: Visit) -> None:
    with visit(width=320) as visitor:
        for path in ("/runs", "/jobs"):
            page = visitor.go(f"/w/local{path}")
            settled(page)
            lines = page.locator(".filters .field label").evaluate_all(
                "all => all.map(one => [one.textContent, Math.round(one.offsetHeight / parseFloat(getComputedStyle(one).lineHeight))])"
            )
            assert [name for name, count in lines if count != 1] == [], path
            assert page.evaluate("document.documentElement.scrollWidth") == 320
        visitor.assert_clean()
