"""State names have one table: nowhere else in the source is one written out as a string.

The names that are stored (the kernel's states, the recorded statuses of runs, the statuses of reports) come from
`detent.kernel` and `detent.jobs.status`, the words that people read from `detent.words.states`. A name that is written
out a second time is a second table, and the two drift apart.

Keys of JSON objects are names of fields, not states: ``{"failed": 3}`` counts what failed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from detent.jobs.status import JobStatus
from detent.kernel.run import RUN_STATUSES
from detent.kernel.table import State
from detent.words import states

SOURCE = Path(__file__).parents[1] / "src" / "detent"
NAMES = frozenset({*map(str, State), *map(str, JobStatus), *RUN_STATUSES, *states.JOB_STATES, *states.STEP_STATES})
TABLES = ("words/states.py", "kernel/", "ledger/", "jobs/status.py", "workflow/vocabulary.py")
"""The table itself; the rooms whose contract the names are; and the two contracts with enums of their own."""
_CODE = "a code of an error, stored in reports"
_READY = "a field of a replica's status, named by the contract"
EXCEPTIONS = {
    "pages/logs.py": "names of fields of the pages",
    "pages/show_job.py": "the beginning of the fields ready_at and ready_tick",
    "executor/plain/child.py": _CODE,
    "executor/plain/verdict.py": _CODE,
    "executor/sandbox/running.py": "why the supervisor ended a guest, in its own evidence",
    "ordered/compute_lane.py": _CODE,
    "scheduling/decisions.py": "a kind of decision record, stored",
    "scheduling/fleet.py": _READY,
    "scheduling/observability.py": "an outcome of a preload in the metrics contract",
    "scheduling/orders.py": _READY,
    "scheduling/types.py": _READY,
    "testing/inline.py": _CODE,
}
"""Files that have such a string for another reason, and which."""


def state_names(source: str) -> Iterator[tuple[int, str]]:
    """The lines on which the name of a state is written out as a string, keys of mappings aside."""
    tree = ast.parse(source)
    keys = {id(key) for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys}
    keys |= {id(node.slice) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    keys |= {id(node.args[0]) for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_get(node)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value in NAMES
            and id(node) not in keys
        ):
            yield node.lineno, node.value


def _is_get(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.func, ast.Attribute) and call.func.attr == "get"


def test_no_state_is_written_out_beside_the_table() -> None:
    found = [
        f"{path}:{line}: {name!r}"
        for file in sorted(SOURCE.rglob("*.py"))
        if not (path := file.relative_to(SOURCE).as_posix()).startswith(TABLES) and path not in EXCEPTIONS
        for line, name in state_names(file.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_exception_is_needed() -> None:
    needless = [path for path in EXCEPTIONS if not list(state_names((SOURCE / path).read_text(encoding="utf-8")))]
    assert needless == []


def test_a_name_is_found_and_a_field_is_not() -> None:
    source = "if row.state == 'SUCCEEDED':\n    print({'failed': 1}['failed'], counts.get('failed'), 'cancelled')\n"
    assert sorted(state_names(source)) == [(1, "SUCCEEDED"), (2, "cancelled")]
