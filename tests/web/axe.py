"""What axe finds wrong with a page, in light and dark, wide and narrow, without loading the page again for each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

from axe_playwright_python.base import AXE_FILE_PATH  # type: ignore[import-untyped]
from playwright.sync_api import Page

WIDTHS: Final = (1280, 320)
THEMES: Final = ("light", "dark")
_RULES: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_ALL: Final = {"runOnly": list(_RULES), "resultTypes": ["violations"]}
_COLOURS: Final = {"runOnly": {"type": "rule", "values": ["color-contrast"]}, "resultTypes": ["violations"]}
"""The rule that depends on the theme."""
_REMEMBER_COLOURS: Final = """
{
  const colour = axe.commons.color.Color.prototype, parse = colour.parseString, known = new Map();
  colour.parseString = function (text) {
    const found = known.get(text);
    if (found) [this.r, this.g, this.b, this.alpha] = found;
    else {
      parse.call(this, text);
      known.set(text, [this.r, this.g, this.b, this.alpha]);
    }
    return this;
  };
}
undefined;
"""
"""A third of its time goes into reading the same few colours again for every element and all that is behind it."""


@cache
def _program() -> str:
    return Path(AXE_FILE_PATH).read_text(encoding="utf-8") + _REMEMBER_COLOURS


def faults(page: Page) -> list[str]:
    """What is wrong with a page in each theme at each width. Leaves it light and wide."""
    found: list[str] = []
    for width, theme in product(WIDTHS, THEMES):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="light" if theme == "light" else "dark")
        # Other rules see the same in both themes.
        found += [f"{theme}, {width} px: {one}" for one in _violations(page, _ALL if theme == "light" else _COLOURS)]
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
            found.append(f"{theme}, {width} px: is {wide} px wide")
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    page.emulate_media(color_scheme="light")
    return found


def _violations(page: Page, options: dict[str, Any]) -> Iterator[str]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(_program())
    for one in page.evaluate("options => axe.run(options)", options)["violations"]:
        for node in one["nodes"]:
            yield f"{one['id']}: {node['target']} {node['failureSummary']}"
