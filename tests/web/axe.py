"""What axe finds wrong with a page, in light and dark, wide and narrow, without loading the page again for each.

Rules beside those about colours see the same in both themes, and run once at each width.

To judge contrasts takes axe longer than all other rules together, and pages show the same few kinds of text hundreds of times. The contrast of a
text follows from its size and from the colours of it and of everything around it, so of all texts that have these in common, in whatever
page, theme and width, axe judges one.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

from axe_playwright_python.base import AXE_FILE_PATH  # type: ignore[import-untyped]
from playwright.sync_api import Page

WIDTHS: Final = (1280, 320)
THEMES: Final = ("light", "dark")
_TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_COLOURS: Final = ("color-contrast", "link-in-text-block")
_ALL_OTHERS: Final = {"runOnly": list(_TAGS), "rules": {name: {"enabled": False} for name in _COLOURS}}
_ONLY_COLOURS: Final = {"runOnly": {"type": "rule", "values": list(_COLOURS)}}
_REMEMBER: Final = """
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
window.coloursOf = (all) => {
  const around = new Map([[null, ""]]);
  const of = (one) => {
    if (!around.has(one)) {
      const { backgroundColor, backgroundImage, opacity, filter, position } = getComputedStyle(one);
      const own = [backgroundColor.replace("rgba(0, 0, 0, 0)", ""), backgroundImage, opacity, filter, position === "fixed"].join();
      around.set(one, of(one.parentElement) + (own === ",none,1,none,false" ? "" : `${own};`));
    }
    return around.get(one);
  };
  const found = new Map();
  for (const one of all) {
    const control = one.matches("input, select, textarea");
    if (!control && ![...one.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim())) continue;
    if (!one.checkVisibility({ visibilityProperty: true })) continue;
    const { color, fontSize, fontWeight, textShadow } = getComputedStyle(one);
    const link = one.matches("a") && getComputedStyle(one.parentElement).color;
    const key = [of(one), color, fontSize, fontWeight, textShadow, link, control, !!one.disabled, one.ariaDisabled].join();
    if (!found.has(key)) found.set(key, one);
  }
  return found;
};
undefined;
"""
"""A third of axe's time went into reading the same few colours again for every element and all that is behind it."""
_JUDGE: Final = """async ([others, colours, known]) => {
  const said = [], seen = new Set(known);
  const run = async (context, options) => {
    const { violations } = await axe.run(context, { ...options, resultTypes: ["violations"], iframes: false });
    for (const { id, nodes } of violations)
      for (const { target, failureSummary } of nodes) said.push(`${id}: ${target} ${failureSummary}`);
  };
  if (others) await run(document, others);
  const fresh = [...coloursOf(document.body.querySelectorAll("*"))].filter(([key]) => !seen.has(key));
  if (fresh.length) await run({ include: fresh.map(([, one]) => [one]) }, colours);
  return [said, fresh.map(([key]) => key), document.documentElement.scrollWidth];
}"""
"""Texts that axe has not judged yet are judged; which ones those were is told, with what is wrong."""


@cache
def _program() -> str:
    return Path(AXE_FILE_PATH).read_text(encoding="utf-8") + _REMEMBER


_judged: set[str] = set()
"""The colours of texts with which nothing is wrong."""


def faults(page: Page) -> list[str]:
    """What is wrong with a page in each theme at each width. Leaves it light and wide."""
    found: list[str] = []
    for width, theme in product(WIDTHS, THEMES):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="light" if theme == "light" else "dark")
        found += [
            f"{theme}, {width} px: {one}" for one in _faults(page, width, None if theme == "dark" else _ALL_OTHERS)
        ]
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    page.emulate_media(color_scheme="light")
    return found


def _faults(page: Page, width: int, others: dict[str, Any] | None) -> list[str]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(_program())
    said, fresh, wide = page.evaluate(_JUDGE, [others, _ONLY_COLOURS, list(_judged)])
    found = list(said)
    if wide > width:
        found.append(f"is {wide} px wide")
    if not found:
        _judged.update(fresh)
    return found
