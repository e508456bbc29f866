"""What people do beside looking: keys, tokens, schedules, comparing, verifying; by mouse and by keyboard."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Visit
from tests.web.seeded import SCHEDULED, Seeded

pytestmark = pytest.mark.door("route: /w/{workspace}, in a browser")


def test_a_key_is_made_told_once_and_revoked(visit: Visit, seeded: Seeded) -> None:
    with visit() as visitor:
        page = visitor.go("/w/local/settings/keys")
        page.get_by_role("button", name="New key").click()
        page.get_by_role("textbox", name="Name").fill("a robot")
        page.get_by_role("combobox", name="Role").select_option("viewer")
        page.get_by_role("button", name="Create key").click()
        secret = page.locator(".secret code").inner_text()
        assert seeded.served.ask("GET", "/v1/jobs", token=secret).status == 200
        page.keyboard.press("Escape")
        expect(page.locator(".secret")).to_have_count(0)
        robot = page.get_by_role("grid", name="Keys").locator("tr", has_text="a robot")
        expect(robot).to_contain_text("viewer")
        robot.get_by_role("button", name="Revoke").click()
        expect(page.get_by_role("dialog")).to_contain_text("detent keys revoke")
        page.get_by_role("dialog").get_by_role("button", name="Revoke", exact=True).click()
        expect(robot).to_have_count(0)
        assert seeded.served.ask("GET", "/v1/jobs", token=secret).status == 401
        visitor.assert_clean()


def test_a_refused_form_says_why_and_keeps_what_was_typed(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.go("/w/local/settings/webhooks")
        page.get_by_role("button", name="New webhook").click()
        page.get_by_role("textbox", name="URL").fill("http://127.0.0.1/hook")
        page.get_by_role("button", name="Add webhook").click()
        expect(page.get_by_role("alert")).to_contain_text("URL_REFUSED")
        expect(page.get_by_role("textbox", name="URL")).to_have_value("http://127.0.0.1/hook")


def test_a_schedule_is_paused_and_resumed(visit: Visit, seeded: Seeded) -> None:
    with visit() as visitor:
        page = visitor.go("/w/local/schedules")
        hourly = page.get_by_role("grid", name="Schedules").locator("tr", has_text="hourly")
        hourly.get_by_role("button", name="Pause").click()
        expect(hourly.get_by_role("button", name="Resume")).to_be_visible()
        assert [one["state"] for one in seeded.served.json("/v1/schedules")["items"]] == ["paused"]
        hourly.get_by_role("button", name="Resume").click()
        expect(hourly.get_by_role("button", name="Pause")).to_be_visible()
        visitor.assert_clean()


def test_a_run_of_a_schedule_leads_to_the_schedule(visit: Visit, seeded: Seeded) -> None:
    contract = SCHEDULED.replace("hourly", "ticking").replace('cron: "0 * * * *", timezone: Europe/Oslo', "every: 1s")
    made = seeded.served.ask("POST", "/v1/schedules", body=json.dumps({"contract": contract}).encode())
    address = f"/v1/schedules/{made.json['schedule_id']}"
    with visit() as visitor:
        page = visitor.go("/w/local/runs?name=ticking")
        row = page.get_by_role("grid", name="Runs").locator("tbody tr").first  # It comes by itself.
        expect(row.get_by_role("link", name="schedule", exact=True)).to_be_visible()
        assert seeded.served.ask("POST", f"{address}/pause", body=b"{}").status == 200
        row.get_by_role("link", name="schedule", exact=True).click()
        rows = page.get_by_role("grid", name="Schedules").locator("tbody tr")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("ticking")
        rows.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("NOT_FOUND")
        page.get_by_role("link", name="Show all schedules").click()
        expect(rows.filter(has_text="hourly")).to_have_count(1)
        visitor.errors = [one for one in visitor.errors if "404" not in one]
        visitor.assert_clean()


def test_the_list_of_runs_says_whether_each_is_verified_and_leads_to_what_was_proved(
    visit: Visit, seeded: Seeded
) -> None:
    with visit() as visitor:
        page = visitor.go("/w/local/runs")
        rows = page.get_by_role("grid", name="Runs").locator("tbody tr")
        row = rows.filter(has=page.get_by_role("link", name=seeded.hostile, exact=True))
        expect(row).to_contain_text("this machine's user")
        row.get_by_role("link", name="not yet").click()
        expect(page).to_have_url(re.compile(rf"/runs/{seeded.hostile}\?verify=open$"))
        expect(page.get_by_role("dialog")).to_contain_text("not been verified")
        page.keyboard.press("Escape")
        expect(page).to_have_url(re.compile(rf"/runs/{seeded.hostile}$"))
        started = seeded.served.ask("POST", f"/v1/runs/{seeded.hostile}/verify", body=b"{}")
        assert started.json["state"] == "running"
        visitor.move("/w/local/runs")  # A verification tells no events: the row asks until it has ended.
        row.get_by_role("link", name="ok", exact=True).click()
        expect(page.get_by_role("dialog")).to_contain_text("Not proved")
        visitor.assert_clean()


def test_deliveries_of_a_webhook_say_what_was_answered_and_lead_to_their_jobs(visit: Visit, seeded: Seeded) -> None:
    with visit() as visitor:
        page = visitor.go("/w/local/settings/webhooks")
        page.get_by_role("link", name="Deliveries").click()
        expect(page).to_have_url(re.compile(f"/settings/webhooks/{seeded.hook}$"))
        rows = page.get_by_role("grid", name="Deliveries").locator("tbody tr")
        expect(rows.first).to_contain_text(re.compile(r"retrying.*1 of 9.*cannot be reached.*in 1 h"))
        page.get_by_role("button", name="Test").click()
        page.get_by_role("button", name="Show 1 new delivery").click()
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text(re.compile(r"retrying.*1 of 9"))  # It is live.
        rows.first.get_by_role("link", name="webhook.test").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(f"webhook {seeded.hook}")
        visitor.assert_clean()


def test_jobs_are_found_by_label_or_by_pool(visit: Visit, seeded: Seeded) -> None:
    task = {"target": "tasks.py:ok", "pool": "shelf", "reuse": False}
    made = seeded.served.ask("POST", "/v1/jobs", body=json.dumps({"task": task}).encode()).json["job_id"]
    try:
        with visit() as visitor:
            page = visitor.go(f"/w/local/jobs?run={seeded.failed}&state=failed")
            rows = page.get_by_role("grid", name="Jobs").locator("tbody tr")
            expect(rows).to_have_count(1)
            page.get_by_role("group", name="State").get_by_role("button", name="All").click()
            page.get_by_role("searchbox", name="Label").fill("report/collect")
            expect(rows).to_have_count(1)
            expect(rows).to_contain_text(seeded.succeeded)
            # One of them at a time, as the server has it: the other fields are empty then.
            page.get_by_role("searchbox", name="Pool").fill("shelf")
            expect(rows).to_have_count(1)
            expect(rows).to_contain_text(made)
            expect(page.get_by_role("searchbox", name="Label")).to_have_value("")
            assert page.url.endswith("/jobs?pool=shelf")
            expect(page.locator(".listfoot")).to_contain_text("detent list --jobs --pool shelf")
            page.get_by_role("group", name="State").get_by_role("button", name="Failed").click()
            expect(page.get_by_role("heading", name="No job matches")).to_be_visible()
            visitor.assert_clean()
    finally:
        assert seeded.served.ask("POST", f"/v1/jobs/{made}/cancel", body=b"{}").status < 300


def test_two_runs_are_compared_by_keyboard_alone(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.go("/w/local/runs?status=failed")  # A map, which another test makes, has no steps to compare.
        page.get_by_role("grid", name="Runs").locator("tbody tr").nth(1).wait_for()
        for key in ("j", "x", "j", "x", "d"):
            page.keyboard.press(key)
        expect(page.get_by_role("heading", name="Compare two runs")).to_be_visible()
        assert "/diff/" in page.url
        visitor.assert_clean()


def test_verifying_shows_what_was_proved_and_what_was_not(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.go("/w/local/verify")
        # What is shown behind the answer is no older than it.
        with page.expect_response(
            lambda one: one.request.method == "POST" and one.url.endswith("/ledger/verify")
        ) as one:
            page.get_by_role("button", name="Verify the ledger").click()
        assert one.value.ok
        expect(page.locator(".badge", has_text="Verified")).to_be_visible()
        for title in ("Proved", "Not proved"):
            section = page.locator("section", has=page.get_by_role("heading", name=title, exact=True))
            expect(section.locator("li").first).to_be_visible()
        visitor.assert_clean()


def test_an_action_opens_its_proof_by_keyboard(visit: Visit) -> None:
    with visit() as visitor:
        page = visitor.go("/w/local/audit")
        page.get_by_role("grid", name="Actions").locator("tbody tr").first.wait_for()
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_contain_text("hashes lead from it to the root")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page).not_to_have_url(re.compile("record="))
        visitor.assert_clean()
