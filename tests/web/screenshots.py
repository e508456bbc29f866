"""`make docs`: the pictures of the dashboard in README and docs, taken of a real server with a real browser.

They are taken again when the sources of the dashboard have changed since: a picture differs in its ids and times each time, and would change in
every commit otherwise. Without Chromium they stay as they are, and this says so.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.web.chromium import NOT_RUN, launched, path
from tests.web.seeded import seeding
from tools.web import digest

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "images"
TAKEN_OF: Final = FOLDER / "dashboard.sha256"
SIZE: Final = {"width": 1200, "height": 640}
BYTES_MAX: Final = 150_000
SETTLE_MS: Final = 1_000


def main() -> None:
    """Take the pictures, unless they are of these sources."""
    sources = f"{digest()}\n"
    if TAKEN_OF.is_file() and TAKEN_OF.read_text(encoding="utf-8") == sources:
        return
    if path() is None:
        sys.stderr.write(f"docs/images/dashboard-*.png are older than the dashboard. {NOT_RUN}\n")
        return
    from tests.web.conftest import opened, settled

    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place, seeding(Path(place)) as seeded, launched() as browser:
        taken = {
            "dashboard-run": (False, f"/w/local/runs/{seeded.failed}?step=fetch"),
            "dashboard-job": (True, f"/w/local/jobs/{seeded.failed_job}?tab=why"),
        }
        for name, (dark, address) in taken.items():
            with opened(browser, seeded, dark=dark, width=SIZE["width"]) as visitor:
                visitor.page.set_viewport_size({"width": SIZE["width"], "height": SIZE["height"]})
                visitor.go(address)
                settled(visitor.page)
                visitor.page.wait_for_timeout(SETTLE_MS)  # Nothing depends on it but what the picture shows.
                picture = visitor.page.screenshot()
            if len(picture) > BYTES_MAX:
                raise SystemExit(f"docs/images/{name}.png would have {len(picture):,} bytes, more than {BYTES_MAX:,}")
            (FOLDER / f"{name}.png").write_bytes(picture)
    TAKEN_OF.write_text(sources, encoding="utf-8")


if __name__ == "__main__":
    main()
