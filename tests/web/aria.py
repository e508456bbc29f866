"""What assistive technology is told of pages: golden text in `aria/`, rewritten by `make golden` where there is a browser.

Ids, times and addresses differ from run to run and are written as words.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Page

from tests.web.chromium import launched, path
from tests.web.seeded import Seeded, seeding

FOLDER: Final = Path(__file__).parent / "aria"
_WORDS: Final = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "JOB"),
    (r"\blocal/[0-9a-f/]+\b", "WORKER"),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r"\bwh_[a-z2-7]{16}\b", "HOOK"),
    (r"\b(?:sha256:)?[0-9a-f]{64}\b", "DIGEST"),
    (r"-[0-9a-f]{10}\b", "-ID"),
    (r"\d\d:\d\d:\d\d(?:\.\d+)?", "TIME"),
    (r"\b(?:\d+ (?:s|min|h) ago|just now|now)\b", "AGO"),
    (r"\b\d[\d,.]* ?(?:ms|s|m\d+s)\b", "SPAN"),
    (r"number \d+ in class 5(?:, with \d+ jobs? before it)?", "NUMBER"),
    (r"\bposition \d+:\d+, batch [\d,]+", "POSITION"),
    (r"\b\d+(?:\.\d+)? (?:MB|kB|KiB|MiB)\b", "SIZE"),
)


def addresses(seeded: Seeded) -> dict[str, str]:
    """The pages that are kept, by the name of their file: those that other tests do not change."""
    run, job = f"/w/local/runs/{seeded.failed}", f"/w/local/jobs/{seeded.failed_job}"
    return {
        **{f"run-{view}": f"{run}?view={view}" for view in ("graph", "timeline", "steps", "why", "records")},
        **{f"job-{tab}": f"{job}?tab={tab}" for tab in ("log", "why", "attempts", "records")},
        **{f"empty-{name}": f"/w/empty/{name}" for name in ("runs", "jobs", "schedules", "sessions", "queue")},
        "webhooks": "/w/local/settings/webhooks",
        "unknown-page": "/w/local/nowhere",
    }


def told(page: Page) -> str:
    """What a page tells, with words in place of what differs from run to run."""
    text = page.locator("main").aria_snapshot()
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text)
    return f"{text}\n"


def main() -> None:
    """Rewrite the golden files; without a browser they stay as they are."""
    if path() is None:
        print("tests/web/aria is left as it is: Chromium is not installed")  # noqa: T201 - for `make golden`
        return
    from tests.web.conftest import opened, settled

    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        seeding(Path(place)) as seeded,
        launched() as browser,
        opened(browser, seeded) as visitor,
    ):
        visitor.go("/w/local")
        for name, address in addresses(seeded).items():
            visitor.move(address)
            settled(visitor.page)
            visitor.page.wait_for_timeout(500)  # Sections come one after the other; the test waits for them by itself.
            (FOLDER / f"{name}.txt").write_text(told(visitor.page), encoding="utf-8")
