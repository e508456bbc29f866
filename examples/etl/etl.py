"""The functions of weather.yaml: plain Python that does not import Detent.

Values between steps are JSON: text, numbers, lists and dicts of these.
"""

from __future__ import annotations

import csv
import sqlite3
from pathlib import Path
from statistics import fmean
from typing import Any

Reading = dict[str, Any]
"""``{"station": "hill", "time": "2026-03-01T06:00", "celsius": 3.4}``; ``celsius`` is text until it is clean."""


def stations(path: str) -> list[str]:
    """The names of the stations."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        return [row["station"] for row in csv.DictReader(file)]


def extract(station: str, directory: str) -> list[Reading]:
    """The raw readings of one station."""
    with (Path(directory) / f"{station}.csv").open(newline="", encoding="utf-8") as file:
        return [{"station": station, **row} for row in csv.DictReader(file)]


def clean(readings: list[Reading], lowest: float, highest: float) -> list[Reading]:
    """The readings that are plausible temperatures."""
    good = []
    for reading in readings:
        try:
            celsius = float(reading["celsius"])
        except ValueError:
            continue
        if lowest <= celsius <= highest:
            good.append({**reading, "celsius": celsius})
    return good


def daily(readings: list[list[Reading]]) -> list[Reading]:
    """One row for each station and day: mean, lowest and highest of the clean readings."""
    days: dict[tuple[str, str], list[float]] = {}
    for reading in (reading for station in readings for reading in station):
        days.setdefault((reading["station"], reading["time"][:10]), []).append(reading["celsius"])
    return [
        {"station": station, "day": day, "mean": round(fmean(values), 2), "low": min(values), "high": max(values)}
        for (station, day), values in sorted(days.items())
    ]


def load(days: list[Reading], database: str) -> int:
    """Write the rows to a database, replacing earlier rows, and return the number of rows in it."""
    Path(database).parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(database) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS days (station, day, mean, low, high, PRIMARY KEY (station, day))"
        )
        connection.executemany("INSERT OR REPLACE INTO days VALUES (:station, :day, :mean, :low, :high)", days)
        (count,) = connection.execute("SELECT count(*) FROM days").fetchone()
    connection.close()
    return int(count)


def report(days: list[Reading], spread: dict[str, float], path: str) -> str:
    """Write the report as a table and return its path."""
    lines = [f"{'station':<10}{'day':<12}{'mean':>7}{'low':>7}{'high':>7}"]
    lines += [
        f"{row['station']:<10}{row['day']:<12}{row['mean']:>7.2f}{row['low']:>7.1f}{row['high']:>7.1f}" for row in days
    ]
    lines += [
        "",
        *(f"{station}: {degrees:.1f} degrees between coldest and warmest" for station, degrees in spread.items()),
    ]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
