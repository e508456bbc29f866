"""What people come for, by keyboard alone: find the failed run, why it failed, its log line, and retry it; cancel; follow it live."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import Visit
from tests.web.seeded import SLOW, Seeded, ended, run

pytestmark = pytest.mark.door("route: /w/{workspace}/runs, in a browser")
PRESSES_MAX = 60


def press_until(page: Page, key: str, arrived: str) -> None:
    """Press a key until a script says that the focus is where it should be."""
    for _ in range(PRESSES_MAX):
        page.keyboard.press(key)
        if page.evaluate(f"() => {{ const at = document.activeElement; return !!({arrived}); }}"):
            return
    raise AssertionError(f"{key} did not lead there")


def test_a_failed_run_is_found_explained_and_retried_by_keyboard(visit: Visit, seeded: Seeded) -> None:
    with visit() as visitor:
        page = visitor.go("/w/local")
        for _ in range(PRESSES_MAX):  # The second key counts for a moment only, which a busy machine may let pass.
            page.keyboard.press("g")
            page.keyboard.press("r")
            if page.url.endswith("/runs"):
                break
        expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
        page.keyboard.press("f")
        expect(page).to_have_url(re.compile(r"status=failed"))
        expect(page.get_by_role("grid", name="Runs")).to_contain_text("HTTPError 503 for city-5")
        press_until(page, "j", f"at.matches('tr') && at.textContent.includes('{seeded.failed}')")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=seeded.failed)).to_be_visible()
        # Without a click: what failed first, why, and the last line that it printed.
        first = page.get_by_role("region", name="First failure")
        expect(first).to_contain_text("fetch[5]")
        expect(first).to_contain_text("HTTPError: 503 Service Unavailable")
        page.keyboard.press("y")
        expect(page.get_by_role("tabpanel")).to_contain_text("Element 5 failed")
        page.keyboard.press("l")
        expect(page.get_by_role("heading", name="fetch[5]")).to_be_visible()
        expect(page.get_by_role("region", name="Log of stderr")).to_contain_text("HTTPError: 503")
        page.keyboard.press("y")
        expect(page.get_by_role("tabpanel")).to_contain_text("running → failed")
        page.keyboard.press("Escape")
        expect(page.get_by_role("heading", name=seeded.failed)).to_be_visible()
        press_until(page, "Tab", "at.textContent === 'Retry failed'")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).not_to_have_text(seeded.failed)
        again = page.url.rpartition("/")[2]
        assert seeded.served.json(f"/v1/runs/{again}")["name"] == "prices"
        expect(page.locator(".head .badge").first).to_have_text(
            "failed"
        )  # It is live: the page sees the end by itself.
        visitor.assert_clean()


@pytest.fixture(scope="module")
def job_of_map(seeded: Seeded) -> Any:
    """A job of a run of `detent map`."""
    home = seeded.served.home
    (home.parent / "rows.jsonl").write_text("1\n2\n")
    words = ("--items", "rows.jsonl", "--compute", "tasks.py:ok", "--commit", "jsonl:rows out.jsonl")
    ran = subprocess.run(
        [sys.executable, "-m", "detent", "map", *words, "--home", str(home)],
        cwd=home.parent, env=dict(seeded.served.environment), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return next(one for one in seeded.served.json("/v1/jobs")["items"] if "/seq-" in one["job_id"])


def test_comparing_a_map_says_that_it_has_no_steps(visit: Visit, seeded: Seeded, job_of_map: Any) -> None:
    with visit() as visitor:
        page = visitor.page
        for before, after in ((job_of_map["run_id"], seeded.failed), (seeded.failed, job_of_map["run_id"])):
            visitor.go(f"/w/local/diff/{before}/{after}")
            said = page.get_by_role("alert")
            expect(said).to_contain_text(f"Run {job_of_map['run_id']} is a map: it has no steps to compare")
            expect(said).to_contain_text("NO_STEPS")
        visitor.move("/w/local/runs")
        row = page.get_by_role("grid", name="Runs").locator("tbody tr").filter(has_text=job_of_map["run_id"])
        expect(row.locator("td").nth(6)).to_have_text("\u2013")  # It was started by a command in the home itself.
        visitor.errors = [one for one in visitor.errors if "409" not in one]
        visitor.assert_clean()


def test_a_job_whose_id_has_a_slash_has_a_page(visit: Visit, job_of_map: Any) -> None:
    job = job_of_map["job_id"]
    with visit() as visitor:
        page = visitor.go("/w/local/jobs")
        page.locator(f"a[href*='{quote(job, safe='')}']").first.click()
        expect(page).to_have_url(re.compile(re.escape(quote(job, safe=""))))
        expect(page.locator(".head .badge").first).to_have_text("succeeded")
        page.reload()
        expect(page.locator(".head .badge").first).to_have_text("succeeded")
        visitor.assert_clean()


def test_a_run_is_cancelled_by_keyboard_and_asks_first(visit: Visit, seeded: Seeded) -> None:
    own = run(seeded.served, SLOW.replace("nightly", "cancelled") % f'"{seeded.gate}-never"')
    with visit() as visitor:
        page = visitor.go(f"/w/local/runs/{own}")
        expect(page.locator(".head .badge").first).to_have_text("running")
        page.keyboard.press("c")
        dialog = page.get_by_role("dialog", name="Cancel?")
        expect(dialog).to_contain_text(f"detent cancel {own}")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        assert seeded.served.json(f"/v1/runs/{own}")["status"] == "running"
        page.keyboard.press("c")
        press_until(page, "Tab", "at.matches('.danger') && at.closest('dialog')")
        page.keyboard.press("Enter")
        expect(page.locator(".head .badge").first).to_have_text("cancelled")
        assert ended(seeded.served, own)["status"] == "cancelled"
        visitor.assert_clean()


def test_the_palette_finds_a_run_by_the_beginning_of_its_id(visit: Visit, seeded: Seeded) -> None:
    with visit() as visitor:
        page = visitor.go("/w/local")
        page.keyboard.press("Control+k")
        page.keyboard.type(seeded.succeeded[:-2])
        expect(page.get_by_role("option", name=seeded.succeeded)).to_be_visible()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=seeded.succeeded)).to_be_visible()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keyboard")).to_contain_text("go to runs")
        visitor.assert_clean()


def test_a_key_is_made_and_a_run_is_verified_by_keyboard(visit: Visit, seeded: Seeded) -> None:
    with visit() as visitor:
        page = visitor.go("/w/local/settings/keys")
        page.get_by_role("grid", name="Keys").wait_for()
        press_until(page, "Tab", "at.textContent === 'New key'")
        page.keyboard.press("Enter")
        press_until(page, "Tab", "at.labels && at.labels[0].textContent.startsWith('Name')")
        page.keyboard.type("by keyboard")
        page.keyboard.press("Enter")
        secret = page.locator(".secret code").inner_text()
        assert seeded.served.ask("GET", "/v1/jobs", token=secret).status == 200
        page.keyboard.press("Escape")
        visitor.move(f"/w/local/runs/{seeded.succeeded}")
        press_until(page, "Tab", "/^Verif/.test(at.textContent) && at.matches('.head button')")
        page.keyboard.press("Enter")
        press_until(page, "Tab", "at.textContent === 'Verify now'")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_contain_text("Not proved")
        page.keyboard.press("Escape")
        expect(page.locator(".head button", has_text="Verified")).to_be_visible()
        visitor.assert_clean()


def test_the_graph_is_walked_by_arrows_and_says_where_one_is(visit: Visit, seeded: Seeded) -> None:
    with visit() as visitor:
        page = visitor.go(f"/w/local/runs/{seeded.failed}?step=cities")
        press_until(page, "Tab", "at.getAttribute('role') === 'application'")
        page.keyboard.press("ArrowRight")
        expect(page).to_have_url(re.compile("step=fetch"))
        expect(page.locator(".graph [role=status]")).to_have_text("fetch, failed, 7 of 8 done, needs cities")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="fetch[5]")).to_be_visible()
        visitor.assert_clean()
