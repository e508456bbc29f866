"""The functions of pipeline.yaml: plain Python that does not import Detent.

Values between steps are JSON. The one exception is the rendered formula, which arrives as a file.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypedDict

HIGHEST_POSSIBLE_CM = 2_000
CHART_WIDTH, CHART_HEIGHT = 300, 70


class Gauge(TypedDict):
    """A place where the level of a river is measured, and its warning level."""

    gauge: str
    river: str
    place: str
    warn_cm: int


class RawSeries(TypedDict):
    """The raw readings of a gauge."""

    gauge: str
    levels: list[str]


class Series(TypedDict):
    """The clean readings: hours since the first one, and centimetres."""

    gauge: str
    points: list[list[int]]
    dropped: int


class Trend(TypedDict):
    """The current level, its change in centimetres per hour, and the forecast for six hours later."""

    gauge: str
    now: int
    slope: float
    soon: int


class File(Protocol):
    """The part of `detent.File` that is used here."""

    def read_bytes(self) -> bytes:
        """All of it."""


class Outlook(TypedDict):
    """The result of the whole pipeline."""

    report: str
    rising: list[str]
    above_warning: list[str]


def gauges(path: str) -> list[Gauge]:
    """All gauges, in the order of the file."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        return [
            Gauge(gauge=row["gauge"], river=row["river"], place=row["place"], warn_cm=int(row["warn_cm"]))
            for row in csv.DictReader(file)
        ]


def fetch(gauge: Gauge, directory: str) -> RawSeries:
    """The hourly levels of one gauge, as text."""
    path = Path(directory) / f"level-{gauge['gauge']}.csv"
    with path.open(newline="", encoding="utf-8") as file:
        levels = [row["cm"] for row in csv.DictReader(file)]
    print(f"{path}: {len(levels)} readings")
    return RawSeries(gauge=gauge["gauge"], levels=levels)


def clean(series: RawSeries, jump_cm: float) -> Series:
    """The levels without gaps, error codes and impossible jumps."""
    points: list[list[int]] = []
    for hour, text in enumerate(series["levels"]):
        if not text.isdigit() or int(text) > HIGHEST_POSSIBLE_CM:
            continue
        if points and abs(int(text) - points[-1][1]) > jump_cm:
            continue
        points.append([hour, int(text)])
    dropped = len(series["levels"]) - len(points)
    print(f"{series['gauge']}: kept {len(points)}, dropped {dropped}")
    return Series(gauge=series["gauge"], points=points, dropped=dropped)


def report(
    gauges: Sequence[Gauge],
    series: Sequence[Series],
    trends: Sequence[Trend],
    highest: Mapping[str, Any],
    formula: Mapping[str, File],
    path: str,
) -> Outlook:
    """Write the page and return its path and the rivers to watch."""
    tops = dict(line.split("\t", 1) for line in highest["stdout"].splitlines())
    trend_of = {trend["gauge"]: trend for trend in trends}
    points_of = {one["gauge"]: one["points"] for one in series}
    rows = [_row(gauge, points_of[gauge["gauge"]], trend_of[gauge["gauge"]], tops[gauge["gauge"]]) for gauge in gauges]
    drawing = formula["formula.svg"].read_bytes().decode("utf-8")
    page = _PAGE.format(rows="\n".join(rows), formula=drawing[drawing.index("<svg") :])
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(page, encoding="utf-8")
    return Outlook(
        report=path,
        rising=[gauge["river"] for gauge in gauges if trend_of[gauge["gauge"]]["slope"] > 1],
        above_warning=[gauge["river"] for gauge in gauges if trend_of[gauge["gauge"]]["now"] >= gauge["warn_cm"]],
    )


def _row(gauge: Gauge, points: Sequence[Sequence[int]], trend: Trend, top: str) -> str:
    level, _, moment = top.partition("\t")
    kind = "warn" if max(trend["now"], trend["soon"]) >= gauge["warn_cm"] else "calm"
    arrow = "&#8599;" if trend["slope"] > 1 else "&#8600;" if trend["slope"] < -1 else "&#8594;"
    return (
        f'<tr class="{kind}"><th>{escape(gauge["river"])}<small>{escape(gauge["place"])}</small></th>'
        f"<td>{_chart(points, gauge['warn_cm'])}</td><td>{trend['now']} cm</td>"
        f"<td>{arrow} {trend['slope']:+.1f} cm/h</td><td>{trend['soon']} cm</td>"
        f"<td>{escape(level)} cm<small>{escape(moment.strip().replace('T', ' '))}</small></td></tr>"
    )


def _chart(points: Sequence[Sequence[int]], warn_cm: int) -> str:
    """A chart of the levels with the warning level, as SVG."""
    lowest = min(cm for _, cm in points)
    highest = max(warn_cm, *(cm for _, cm in points))
    across = CHART_WIDTH / (points[-1][0] - points[0][0])
    up = (CHART_HEIGHT - 4) / (highest - lowest)

    def y(cm: float) -> float:
        return CHART_HEIGHT - 2 - (cm - lowest) * up

    steps = [f"L{(hour - points[0][0]) * across:.1f} {y(cm):.1f}" for _, (hour, cm) in pairwise(points)]
    line = f"M0 {y(points[0][1]):.1f}" + "".join(steps)
    return (
        f'<svg width="{CHART_WIDTH}" height="{CHART_HEIGHT}" viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}">'
        f'<path class="limit" d="M0 {y(warn_cm):.1f}H{CHART_WIDTH}"/><path class="level" d="{line}"/></svg>'
    )


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Rivers</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 3rem auto; color: #1d2733; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: .5rem .75rem; border-bottom: 1px solid #e3e8ee; }}
small {{ display: block; color: #6b7785; font-weight: normal; }}
td path {{ fill: none; stroke-width: 1.5; }}
.level {{ stroke: #2b6cb0; }}
.limit {{ stroke: #c9d3df; stroke-dasharray: 4 4; }}
.warn .level {{ stroke: #c0392b; }}
.warn td:nth-child(5) {{ color: #c0392b; font-weight: 600; }}
figure {{ margin: 2rem 0; }}
</style>
<h1>Rivers</h1>
<p>The last four days of each gauge; the dashed line is the level at which people are warned.</p>
<table>
<tr><th>river</th><th>level</th><th>now</th><th>trend</th><th>in six hours</th><th>highest</th></tr>
{rows}
</table>
<figure>{formula}<figcaption>How the trend is taken: the slope of the line with the least squares.</figcaption></figure>
</html>
"""
