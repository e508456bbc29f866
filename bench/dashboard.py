"""The dashboard in Chromium beside an empty page, in one run: first paint of a list, a run of 10,000 steps, events to pixels, memory.

The empty page comes from the same server, so what differs is ours. A busy machine makes every figure larger, the empty page's too: compare
within one run.

    python -m bench.dashboard [STEPS]           # with 0 steps only the events are measured
    python -m bench.dashboard --tab MINUTES     # memory of a tab that shows live runs for so long
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from itertools import count
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, BrowserContext, CDPSession, Page

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
TAB_RUN_EVERY_SECONDS: Final = 2.0
TAB_LOOK_EVERY_SECONDS: Final = 300.0
TAB_PAGES: Final = ("", "/runs", "/jobs", "/queue")
EVENT_RUN: Final = "name: event\nsteps:\n  - {id: e%d, run: {python: 'tasks:ok', with: {value: %d}}}\n"
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
    if sys.argv[1:2] == ["--tab"]:
        with launched() as browser:
            tab(browser, float(sys.argv[2]) * 60)
        return
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


def tab(browser: Browser, seconds: float) -> None:
    """Memory of a tab while runs start and end: it stays on one page for some minutes, then goes to the next, as its user does."""
    with tempfile.TemporaryDirectory() as place, seeding(Path(place)) as seeded, opened(browser, seeded) as visitor:
        page, began, looked = visitor.go("/w/local"), time.monotonic(), 0
        processes = browser.new_browser_cdp_session()
        for number in count():
            passed = time.monotonic() - began
            if passed >= looked * TAB_LOOK_EVERY_SECONDS or passed >= seconds:
                _print_memory(page, processes, passed, number)
                visitor.move(f"/w/local{TAB_PAGES[looked % len(TAB_PAGES)]}")
                looked += 1
            if passed >= seconds:
                break
            run(seeded.served, EVENT_RUN % (number, number))
            page.wait_for_timeout(max(0.0, (number + 1) * TAB_RUN_EVERY_SECONDS - (time.monotonic() - began)) * 1_000)
        visitor.assert_clean()


def _print_memory(page: Page, processes: CDPSession, passed: float, runs: int) -> None:
    """The heap of the tab before and after its garbage is collected, and the largest renderer's memory (PSS), which is the tab's."""
    before = page.evaluate("() => performance.memory.usedJSHeapSize")
    page.request_gc()
    after = page.evaluate("() => performance.memory.usedJSHeapSize")
    found = processes.send("SystemInfo.getProcessInfo")["processInfo"]
    pss = max(_pss_bytes(int(one["id"])) for one in found if one["type"] == "renderer")
    print(
        f"{passed / 60:5.1f} min, {runs:,} runs: heap {before / 1e6:.0f} MB, {after / 1e6:.0f} MB without garbage,"
        f" process {pss / 1e6:.0f} MB; load {os.getloadavg()[0]:.0f}",
        flush=True,
    )


def _pss_bytes(pid: int) -> int:
    line = next(one for one in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if one.startswith("Pss:"))
    return int(line.split()[1]) * 1_024


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
        made = run(served, EVENT_RUN % (number, number))
        answered = time.time() * 1_000
        took.append(page.evaluate(SHOWN, made) - answered)
    print(f"event to pixel: median {statistics.median(took):.0f} ms, most {max(took):.0f} ms")


if __name__ == "__main__":
    main()
