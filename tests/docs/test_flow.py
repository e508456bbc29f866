"""docs/flow.md names every stage in order and nothing that does not exist."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import detent

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "flow.md").read_text(encoding="utf-8")
TABLE, _, FLEET = PAGE.partition("## With and without a fleet")
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE.splitlines() if line.startswith("| ")]
MODULE = re.compile(r"`([\w/]+\.py)`")


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


def entered(run: Callable[[], object]) -> set[tuple[str, str]]:
    """Module and name of the functions of Detent that are called while something runs, in any thread of this process."""
    source = str(ROOT / "src" / "detent") + os.sep
    called: set[tuple[str, str]] = set()

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(source) and frame.f_code.co_name != "<module>":
            called.add((frame.f_code.co_filename.removeprefix(source), frame.f_code.co_qualname))

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return called


def test_a_run_on_one_machine_goes_the_way_that_the_table_shows(tmp_path: Path) -> None:
    """From admit to commit every module named is entered, and the decisions of a fleet are not made."""
    contract = tmp_path / "pipeline.yaml"
    contract.write_text("name: demo\nsteps: [{id: a, run: {shell: echo 1}}]\n", encoding="utf-8")
    called = entered(lambda: detent.run(contract, home=tmp_path / "home", workers=1))
    named = [module for row in ROWS[1:] if row[0] in STAGES for module in MODULE.findall(row[1])]
    assert len(named) >= 10
    assert [module for module in named if module not in {module for module, _ in called}] == []
    fleet = re.findall(r"`(scheduling/\w+\.py)`, `(\w+)`", FLEET)
    assert fleet == [("scheduling/admission.py", "admit"), ("scheduling/placement.py", "place")]
    assert [decision for decision in fleet if decision in called] == []


STAGES = ("admit", "place", "lease", "run", "commit")
