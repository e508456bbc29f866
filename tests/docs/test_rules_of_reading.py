"""Rows that say how the contracts are read: what can be checked of them is checked here."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

from detent.scheduling.index import ORDERS

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = ROOT / "docs" / "contracts"


def text(name: str) -> str:
    return (CONTRACTS / name).read_text(encoding="utf-8")


def test_every_clash_that_a_contract_points_to_is_settled() -> None:
    """WF-014, X-096: what is unclear in a contract is decided in one place, by the ladder that stands there"""
    settled = set(re.findall(r"^\| (X-\d+) \|", text("decisions.md"), re.MULTILINE))
    pointed = {
        found
        for name in ("pipeline.md", "ordered.md", "core.md", "workflow.md", "jobs.md")
        for found in re.findall(r"\bX-\d+\b", text(name))
    }
    assert len(pointed) > 50
    assert pointed - settled == set()
    assert "Global Normative Rules > the five normative sections > models" in text("decisions.md")


def test_rows_of_the_core_contract_are_cited_by_id() -> None:
    """X-081: two of its sections have one number"""
    cited = [
        path.relative_to(ROOT)
        for folder in ("src", "tests", "tools", "bench")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "test_rules_of_reading.py" and "§" + "2A" in path.read_text(encoding="utf-8")
    ]
    assert cited == []


def test_placement_looks_at_nothing_that_is_predicted() -> None:
    """CORE-X011: no such signal is built, so an order is made of what a replica reports and nothing else"""
    assert {tuple(signature(order).parameters) for order in ORDERS.values()} == {("free_vram_mb", "active_slots")}
