"""The dashboard in Chromium beside an empty page, in one run: first paint of a list, a run of 10,000 steps, events to pixels, memory.

The empty page comes from the same server, so what differs is ours. A busy machine makes every figure larger, the empty page's too: compare
within one run.

    python -m bench.dashboard [STEPS]

With 0 steps only the events are measured.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Page

from detent.serve.login import link
from tests.serve.served import Served
from tests.web.chromium import NOT_RUN, launched, path
from tests.web.conftest import opened
from tests.web.seeded import Seeded, begun_project, ended, login_of, run, seeding

STEPS: Final = 10_000
WAVE: Final = 100
LOOKS: Final = 5
EVENT_RUNS: Final = 10
EVENTS_A_SECOND: Final = 500
BATCH: Final = 50
CANCELLED: Final = 40
CANCEL_EVERY_SECONDS: Final = 0.25
ROOM: Final = {
    "capacity_per_class = 256": "capacity_per_class = 50000",
    "capacity_total = 2560": "capacity_total = 100000",
}
PAINTED: Final = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
FRAMES: Final = """() => new Promise((done) => {
  const canvas = document.querySelector('.graph canvas'), box = canvas.getBoundingClientRect(), gaps = [];
  let last = 0, left = 60, x = box.left + 200;
  const at = (type, buttons) => canvas.dispatchEvent(new PointerEvent(type,
    {clientX: x, clientY: box.top + 100, buttons, pointerId: 1, bubbles: true}));
  canvas.setPointerCapture = () => undefined;
  at('pointerdown', 1);
  const frame = (now) => {
    if (last) gaps.push(now - last);
    last = now;
    x += 4;
    at('pointermove', 1);
    if (left--) requestAnimationFrame(frame); else { at('pointerup', 0); done(gaps); }
  };
  requestAnimationFrame(frame);
})"""
SHOWN: Final = """text => new Promise((done) => {
  const look = () => document.body.textContent.includes(text) ? done(Date.now()) : requestAnimationFrame(look);
  look();
})"""
WATCH: Final = """() => {
  const grid = document.querySelector('[role=grid]'), painted = new Map();
  const look = () => {
    const now = Date.now();
    for (const row of grid.querySelectorAll('tbody tr')) {
      const id = row.querySelector('a.mono')?.textContent;
      if (id && !painted.has(id) && row.textContent.includes('cancelled')) painted.set(id, now);
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  window.painted = () => Object.fromEntries(painted);
}"""


def main() -> None:
    """Measure, and print what was measured."""
    if path() is None:
        raise SystemExit(NOT_RUN)
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    with launched() as browser:
        flood(browser)
        if steps:
            pages(browser, steps)


def flood(browser: Browser) -> None:
    """Rows of the list of jobs while 500 events a second go by: from the answer to a cancellation to the row that says so."""
    with tempfile.TemporaryDirectory() as place:
        served = begun_project(Path(place), "--workers", "0", settings_changed=ROOM)
        context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-US")
        over = threading.Event()
        sent = list[int]()
        try:
            shown = _submitted(served, CANCELLED)
            page = context.new_page()
            page.goto(link(served.told["url"], login_of(served)))
            page.get_by_role("heading", name="Overview").wait_for()
            page.goto(f"{served.told['url']}/w/local/jobs")
            page.get_by_role("link", name=shown[0]).wait_for()
            page.evaluate(WATCH)
            load = threading.Thread(target=_load, args=(served, over, sent))
            load.start()
            began, answered = time.perf_counter(), dict[str, float]()
            for job_id in shown:
                page.wait_for_timeout(CANCEL_EVERY_SECONDS * 1_000)
                served.ask("POST", f"/v1/jobs/{job_id}/cancel", body=b"{}")
                answered[job_id] = time.time() * 1_000
            took_seconds = time.perf_counter() - began
            over.set()
            load.join()
            page.wait_for_function(f"() => Object.keys(painted()).length >= {len(shown)}", timeout=20_000)
            painted = page.evaluate("() => painted()")
        finally:
            over.set()
            context.close()
            served.stop()
    took = sorted(max(0.0, painted[job_id] - at) for job_id, at in answered.items())
    print(
        f"event to pixel at {(sum(sent) + len(shown)) / took_seconds:.0f} events a second:"
        f" median {statistics.median(took):.0f} ms, 95 % within {took[len(took) * 95 // 100 - 1]:.0f} ms, most {took[-1]:.0f} ms"
    )


def _submitted(served: Served, count: int) -> list[str]:
    items = [{"task": {"target": "tasks.py:ok", "arguments": [n]}} for n in range(count)]
    reply = served.ask("POST", "/v1/jobs:batch", body=json.dumps({"items": items}).encode())
    assert reply.status == 200, reply.body
    return [str(one["job_id"]) for one in reply.json["items"]]


def _load(served: Served, over: threading.Event, sent: list[int]) -> None:
    """Submit so many jobs a second that a stream of jobs has that many events."""
    due = time.perf_counter()
    while not over.is_set():
        sent.append(len(_submitted(served, BATCH)))
        due += BATCH / EVENTS_A_SECOND
        over.wait(max(0.0, due - time.perf_counter()))


def pages(browser: Browser, steps: int) -> None:
    """Everything else, on a server with a large run."""
    with tempfile.TemporaryDirectory() as place, seeding(Path(place)) as seeded:
        large = run(seeded.served, contract(steps))
        print(f"a run of {steps:,} steps has {ended(seeded.served, large)['status']}")
        with opened(browser, seeded) as visitor:
            page, context = visitor.go("/w/local"), visitor.page.context
            for name, cold in (("cold", True), ("warm", False)):
                paints(context, seeded, name, cold=cold)
            for look in range(2):
                opened_in(page, seeded, large, "first look at it" if look == 0 else "known to the server")
            gaps = page.evaluate(FRAMES)
            print(
                f"panning it: {statistics.median(gaps):.1f} ms a frame, 95 % within {sorted(gaps)[len(gaps) * 95 // 100]:.1f} ms"
            )
            events(page, seeded.served, seeded.base)
            used = page.evaluate("() => performance.memory.usedJSHeapSize")
            print(f"JavaScript heap of the tab: {used / 1e6:.0f} MB")


def contract(steps: int) -> str:
    """Steps in waves, each of which needs two of the wave before; equal work, which runs once."""
    lines = ["name: wide", "steps:"]
    for number in range(steps):
        wave, place = divmod(number, WAVE)
        needs = sorted({(wave - 1) * WAVE + place, (wave - 1) * WAVE + (place * 7 + 3) % WAVE}) if wave else []
        needed = f", needs: [{', '.join(f's{one}' for one in needs)}]" if needs else ""
        lines.append(f'  - {{id: s{number}{needed}, run: {{python: "tasks:ok"}}}}')
    return "\n".join(lines)


def paints(context: BrowserContext, seeded: Seeded, name: str, *, cold: bool) -> None:
    """First paint of the list of runs with its rows, beside a page without anything."""
    empty, listed = list[float](), list[float]()
    for _ in range(LOOKS):
        page = context.new_page()
        if cold:
            page.context.new_cdp_session(page).send("Network.clearBrowserCache")
        empty.append(_timed(page, f"{seeded.base}/healthz", "ok"))
        listed.append(_timed(page, f"{seeded.base}/w/local/runs", seeded.failed))
        page.close()
    over = statistics.median(listed) - statistics.median(empty)
    print(f"list of runs, {name}: {statistics.median(listed):.0f} ms, {over:.0f} ms over an empty page")


def _timed(page: Page, address: str, text: str) -> float:
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.evaluate(SHOWN, text)
    return (time.perf_counter() - began) * 1_000


def opened_in(page: Page, seeded: Seeded, large: str, name: str) -> None:
    """From the click on a large run to its graph, and to the states of all of its steps."""
    page.goto(f"{seeded.base}/w/local/runs")
    page.get_by_role("link", name=large).wait_for()
    began = time.perf_counter()
    page.get_by_role("link", name=large).click()
    page.locator(".graph [role=application]").wait_for()
    graph = time.perf_counter() - began
    page.wait_for_function("() => document.querySelector('[role=tab] .count')?.textContent.length > 0")
    print(f"large run, {name}: graph {graph:.2f} s, all steps {time.perf_counter() - began:.2f} s after the click")


def events(page: Page, served: Served, base: str) -> None:
    """From the answer to a submission to the row of its run in an open page."""
    page.goto(f"{base}/w/local")
    page.get_by_role("heading", name="Overview").wait_for()
    took = []
    for number in range(EVENT_RUNS):
        body: dict[str, Any] = {
            "contract": f"name: event\nsteps:\n  - {{id: e{number}, run: {{python: 'tasks:ok', with: {{value: {number}}}}}}}\n"
        }
        made = served.ask("POST", "/v1/runs", body=json.dumps(body).encode()).json["run_id"]
        answered = time.time() * 1_000
        took.append(page.evaluate(SHOWN, made) - answered)
    print(f"event to pixel: median {statistics.median(took):.0f} ms, most {max(took):.0f} ms")


if __name__ == "__main__":
    main()
