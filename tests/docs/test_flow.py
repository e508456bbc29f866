"""docs/flow.md names every stage in order and nothing that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in (ROOT / "docs" / "flow.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ")
]


def test_the_stages_stand_in_the_order_in_which_a_job_meets_them() -> None:
    words = [row[0] for row in ROWS[1:]]
    assert words == ["contract", "plan", "admit", "place", "lease", "run", "commit", "ledger", "verify"]


def test_every_module_and_test_named_exists_unless_it_is_called_not_built() -> None:
    missing = []
    for row in ROWS[1:]:
        built = row[1].partition("not built yet")[0]
        modules = [ROOT / "src" / "detent" / name for name in re.findall(r"`([\w/]+(?:/|\.py))`", built)]
        tests = [ROOT / name for name in re.findall(r"`([\w/.]+)`", row[5])]
        missing += [f"{row[0]}: {path.relative_to(ROOT)}" for path in [*modules, *tests] if not path.exists()]
    assert missing == []


def test_a_part_that_is_called_not_built_is_not_there() -> None:
    """When a part arrives, its row must say so."""
    unbuilt = [row[1].partition("not built yet")[2] for row in ROWS[1:]]
    rooms = {room for text in unbuilt for room in re.findall(r"`(\w+)/`", text)}
    assert rooms == set()
    assert [room for room in sorted(rooms) if (ROOT / "src" / "detent" / room).exists()] == []
