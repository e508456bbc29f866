"""Write docs/traceability.md: for every row of the contracts, the tests that name it and the doors they go through.

The rows come from docs/contracts/*.md, the names from the text of tests/**/*.py: docstrings, comments and strings alike.
An id belongs to the innermost test function, test class or test module around it. A run of ids is written
`PIPE-050..PIPE-055`, both ends in full; any other way of writing one is reported, because half of it would be lost
silently. tools/doors.py reads which door a test goes through: a command, an SDK call, the workflow library, a marker.

A row without a door is listed in docs/contracts/waiting.toml: it waits for a part that is not built, it is a rule about the
source that no door can show, or it has no door yet. That last list can only shrink: this program takes a row off it when
a door arrives, and never puts one on it.

With --check nothing is written. The exit code is 1 when the page on disk differs, when a test or waiting.toml names an
id that no contract has, when a range is miswritten, when a row has no test and waits for nothing, or when a row has
neither a door nor an entry in waiting.toml.

Known weak spot: a mention is taken at its word. Whether the test would fail if the row were broken, only a reader can say.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.doors import LIBRARY, Doors, Names, package_names

CONTRACTS = ("pipeline.md", "ordered.md", "core.md", "workflow.md", "jobs.md", "decisions.md")
PARTS = ("fleet", "PostgreSQL")
"""What a row may wait for."""
TEXT_CHARS_MAX = 100
TESTS_SHOWN_MAX = 3
DOORS_SHOWN_MAX = 3

_ID = r"(?:(?:PIPE|ORD|WF|JOB|X)-\d{3}|OC-CORE-\d{4}[a-z]?|CORE-X\d{3})"
_MENTION = re.compile(rf"(?<![\w-])(?P<first>{_ID})(?:\.\.(?P<last>{_ID}))?(?!\w)")
_MISWRITTEN = re.compile(
    rf"(?<![\w-])({_ID})(?:\.\.\.?|\s+to\s+|\s+through\s+|\s*[-\u2013/]\s*)(?:\d{{3,4}}(?!\w)|{_ID})"
)
_TEXT_COLUMNS = ("Requirement", "Resolution we take")


@dataclass(frozen=True, slots=True)
class Row:
    """One requirement: its id, its wording and the file that holds it."""

    id: str
    text: str
    contract: str


@dataclass(frozen=True, slots=True, order=True)
class Test:
    """A place that names an id; functions sort before classes, classes before modules."""

    rank: int
    path: str
    name: str

    def __str__(self) -> str:
        return f"`{self.path}::{self.name}`" if self.name else f"`{self.path}`"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Everything the page says, and every fault found on the way."""

    titles: dict[str, str]
    rows: dict[str, Row]
    tests: dict[str, list[Test]]
    waiting: Waiting
    problems: list[str]
    doors: dict[str, list[str]] = field(default_factory=dict)
    """By row: its doors, those that most tests go through first."""

    def untested(self) -> list[str]:
        """Return the ids that have neither a test nor a part they wait for."""
        return [row_id for row_id in self.rows if row_id not in self.tests and row_id not in self.waiting.parts]

    def closed(self) -> list[str]:
        """Return the ids that have neither a door nor an entry in waiting.toml."""
        listed = {*self.doors, *self.waiting.parts, *self.waiting.source, *self.waiting.no_door_yet}
        return [row_id for row_id in self.rows if row_id not in listed]

    def column(self, row_id: str) -> str:
        """Name the column of the summary that counts a row."""
        if row_id in self.doors:
            return "library" if all(_is_library(door) for door in self.doors[row_id]) else "door"
        if row_id in self.waiting.parts:
            return "waiting"
        return "source" if row_id in self.waiting.source else "no door yet"


@dataclass(frozen=True, slots=True)
class Waiting:
    """docs/contracts/waiting.toml: what rows wait for, those that speak of the source, those without a door yet."""

    parts: dict[str, str] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    no_door_yet: tuple[str, ...] = ()


def read_matrix(root: Path, names: Names | None = None) -> Matrix:
    """Read contracts, waiting list and tests below a repository root."""
    contracts = root / "docs" / "contracts"
    titles: dict[str, str] = {}
    rows: dict[str, Row] = {}
    problems: list[str] = []
    for name in CONTRACTS:
        text = (contracts / name).read_text(encoding="utf-8")
        titles[name] = text.splitlines()[0].removeprefix("# ")
        for row in read_rows(text, name):
            if row.id in rows:
                problems.append(f"docs/contracts/{name}: {row.id} is defined twice")
            rows[row.id] = row
    waiting = _read_waiting(contracts / "waiting.toml", rows, problems)
    tests = _read_tests(root, rows, problems)
    doors = _read_doors(tests, Doors(root, names or package_names()))
    matrix = Matrix(titles, rows, tests, waiting, problems, doors)
    if matrix.untested():
        problems.append(
            f"no test and no part to wait for in docs/contracts/waiting.toml: {_runs(matrix.untested(), rows)}"
        )
    if matrix.closed():
        problems.append(f"no door and no entry in docs/contracts/waiting.toml: {_runs(matrix.closed(), rows)}")
    return matrix


def read_rows(text: str, contract: str) -> list[Row]:
    """Read the requirement rows out of the tables of one contract file, in their order."""
    rows: list[Row] = []
    column = 0
    for line in text.splitlines():
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells[0] == "ID":
            column = next(cells.index(name) for name in _TEXT_COLUMNS if name in cells)
        elif re.fullmatch(_ID, cells[0]):
            rows.append(Row(cells[0], cells[column], contract))
    return rows


def mentions(source: str, path: str) -> list[tuple[str, str | None, int, Test | None]]:
    """Find every id or range in one file, as (first, last, line, the test around it)."""
    scopes = _test_scopes(ast.parse(source), path)
    found = []
    for match in _MENTION.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        around = [scope for scope in scopes if scope[0] <= line <= scope[1]]
        # The innermost scope is the one that starts last: scopes nest, they never overlap.
        test = max(around, key=lambda scope: scope[0])[2] if around else None
        found.append((match["first"], match["last"], line, test))
    return found


def expand(first: str, last: str | None, rows: dict[str, Row]) -> list[str]:
    """Turn a mention into the ids it stands for; empty when no contract has them.

    A bare `OC-CORE-1001` stands for its lettered rows. A range runs in the order of its contract.
    """
    if last is not None:
        ids = list(rows)
        if first not in rows or last not in rows or rows[first].contract != rows[last].contract:
            return []
        # CORE-X rows stand between OC-CORE rows in one file; a range keeps to its own series.
        span = ids[ids.index(first) : ids.index(last) + 1]
        return [row_id for row_id in span if _series(row_id) == _series(first)]
    if first in rows:
        return [first]
    return [row_id for row_id in rows if row_id[:-1] == first and row_id[-1].isalpha()]


def render(matrix: Matrix) -> str:
    """Write the page. Same contracts and tests, same bytes."""
    lines = [
        "# Traceability",
        "",
        "Generated by `make docs` from the ids in `docs/contracts/` and `tests/`; do not edit.",
        "[contracts/README.md](contracts/README.md) says how to write ids, and what counts as a door.",
        "",
        "| contract | rows | with a test | with a door | by the library alone | of the source | waiting | no door yet |",
        "|---|---|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    sections: list[str] = []
    for contract, title in matrix.titles.items():
        ids = [row.id for row in matrix.rows.values() if row.contract == contract]
        count = Counter(matrix.column(row_id) for row_id in ids)
        count.update(rows=len(ids), test=sum(row_id in matrix.tests for row_id in ids))
        total += count
        lines.append(f"| [{title}](contracts/{contract}) | {_figures(count)} |")
        sections += ["", f"## {title}", "", "| id | requirement | door | tests |", "|---|---|---|---|"]
        sections += [
            f"| {row_id} | {_short(matrix.rows[row_id].text)} | {_door_cell(row_id, matrix)} | {_cell(row_id, matrix)} |"
            for row_id in ids
        ]
    lines.append(f"| all | {_figures(total)} |")
    return "\n".join([*lines, *sections, *_without_door(matrix), ""])


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or with --check say what is wrong with the one on disk."""
    parser = argparse.ArgumentParser(description="Write docs/traceability.md from the ids in contracts and tests.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something does not fit")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the repository")
    options = parser.parse_args(arguments)
    page = options.root / "docs" / "traceability.md"
    matrix = read_matrix(options.root)
    text = render(matrix)
    problems = list(matrix.problems)
    opened = [row_id for row_id in matrix.waiting.no_door_yet if matrix.column(row_id) != "no door yet"]
    if not options.check:
        page.write_text(text, encoding="utf-8")
        strike(options.root / "docs" / "contracts" / "waiting.toml", opened)
    elif opened:
        problems.append(f"docs/contracts/waiting.toml still lists {', '.join(opened)}: run `make docs`")
    elif not page.is_file() or page.read_text(encoding="utf-8") != text:
        problems.append("docs/traceability.md is not what the contracts and tests give: run `make docs`")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems and options.check else 0


def strike(path: Path, ids: Iterable[str]) -> None:
    """Take rows off the list of those without a door; each has a line of its own there."""
    gone = {f'"{row_id}",' for row_id in ids}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if line.strip() not in gone), encoding="utf-8")


def _read_waiting(path: Path, rows: dict[str, Row], problems: list[str]) -> Waiting:
    document = tomllib.loads(path.read_text(encoding="utf-8"))

    def ids_of(key: str) -> list[str]:
        match = _MENTION.fullmatch(key)
        ids = expand(match["first"], match["last"], rows) if match else []
        if not ids:
            problems.append(f"docs/contracts/waiting.toml: {key} names no row")
        return ids

    parts = {row_id: part for key, part in document.get("rows", {}).items() for row_id in ids_of(key)}
    problems += [
        f"docs/contracts/waiting.toml: {row_id} waits for {part!r}, which is none of {', '.join(PARTS)}"
        for row_id, part in parts.items()
        if part not in PARTS
    ]
    source = {row_id: reason for key, reason in document.get("source", {}).items() for row_id in ids_of(key)}
    yet = tuple(row_id for key in document.get("no_door_yet", ()) for row_id in ids_of(key))
    return Waiting(parts, source, yet)


def _read_doors(tests: dict[str, list[Test]], doors: Doors) -> dict[str, list[str]]:
    """Count the doors of each row's tests, and put the tests that go through one first."""
    found: dict[str, list[str]] = {}
    for row_id, named in tests.items():
        opened = {test: doors.of(test.path, test.name.replace("::", ".")) for test in named}
        count = Counter(door for through in opened.values() for door in through)
        named.sort(key=lambda test: (not opened[test], all(_is_library(door) for door in opened[test]), test))
        if count:
            found[row_id] = sorted(count, key=lambda door: (_is_library(door), -count[door], door))
    return found


def _read_tests(root: Path, rows: dict[str, Row], problems: list[str]) -> dict[str, list[Test]]:
    found: dict[str, set[Test]] = defaultdict(set)
    for file in sorted((root / "tests").rglob("*.py")):
        path = file.relative_to(root).as_posix()
        source = file.read_text(encoding="utf-8")
        for first, last, line, test in mentions(source, path):
            ids = expand(first, last, rows)
            if not ids:
                problems.append(f"{path}:{line}: {first}{'..' + last if last else ''} names no row of a contract")
            elif test is not None:
                for row_id in ids:
                    found[row_id].add(test)
        for match in _MISWRITTEN.finditer(source):
            if not _MENTION.fullmatch(match[0]):
                line = source.count("\n", 0, match.start()) + 1
                problems.append(f"{path}:{line}: write a range as PIPE-050..PIPE-055, not {match[0]!r}")
    return {row_id: sorted(tests) for row_id, tests in found.items()}


def _test_scopes(tree: ast.Module, path: str) -> list[tuple[int, int, Test]]:
    """List the lines of the module's tests; a helper is no scope, its ids belong to what stands around it."""
    scopes: list[tuple[int, int, Test]] = []

    def visit(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            inside = names
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                is_class = isinstance(child, ast.ClassDef)
                inside = (*names, child.name)
                if child.name.startswith("Test" if is_class else "test_"):
                    first_line = min([child.lineno, *(item.lineno for item in child.decorator_list)])
                    test = Test(1 if is_class else 0, path, "::".join(inside))
                    scopes.append((first_line, child.end_lineno or child.lineno, test))
            visit(child, inside)

    visit(tree, ())
    if scopes or Path(path).name.startswith("test_"):
        scopes.append((0, sys.maxsize, Test(2, path, "")))
    return scopes


def _cell(row_id: str, matrix: Matrix) -> str:
    return _first([str(test) for test in matrix.tests.get(row_id, [])], TESTS_SHOWN_MAX) or "**none**"


def _door_cell(row_id: str, matrix: Matrix) -> str:
    doors = [door if " [" in door else f"`{door}`" for door in matrix.doors.get(row_id, [])]
    shown = _first(doors, DOORS_SHOWN_MAX)
    if row_id in matrix.waiting.parts:
        return "<br>".join([shown, "the rest "][: 2 if shown else 0]) + f"waits for: {matrix.waiting.parts[row_id]}"
    if not shown and row_id in matrix.waiting.source:
        return f"the source: {matrix.waiting.source[row_id]}"
    return shown or "**none yet**"


def _first(items: list[str], most: int) -> str:
    return "<br>".join([*items[:most], *([f"and {len(items) - most} more"] if len(items) > most else [])])


def _figures(count: Counter[str]) -> str:
    columns = ("rows", "test", "door", "library", "source", "waiting", "no door yet")
    return " | ".join(str(count[name]) for name in columns)


def _is_library(door: str) -> bool:
    return door.startswith(f"{LIBRARY}.")


def _short(text: str) -> str:
    if len(text) <= TEXT_CHARS_MAX:
        return text
    cut = text[: text.rindex(" ", 0, TEXT_CHARS_MAX)]
    for mark in ("`", "**"):
        # A code span or bold run that loses its end would swallow the rest of the table.
        if cut.count(mark) % 2:
            cut = cut[: cut.rindex(mark)].rstrip()
    return cut + " …"


def _without_door(matrix: Matrix) -> list[str]:
    parts: dict[str, list[str]] = defaultdict(list)
    for row_id, part in matrix.waiting.parts.items():
        if row_id not in matrix.doors:
            parts[part].append(row_id)
    lines = ["", "## Rows without a door", "", "Waiting for a part that is not built yet:", ""]
    lines += [f"- {part}: {_runs(ids, matrix.rows)}" for part, ids in sorted(parts.items())] or ["- none"]
    yet = [row_id for row_id in matrix.rows if matrix.column(row_id) == "no door yet"]
    lines += ["", "No door yet:", "", f"- {_runs(yet, matrix.rows) or 'none'}"]
    lines += ["", "Without a test:", "", f"- {_runs(matrix.untested(), matrix.rows) or 'none'}"]
    return lines


def _runs(ids: list[str], rows: dict[str, Row]) -> str:
    """Join ids that follow each other in their contract into ranges."""
    place = {row_id: index for index, row_id in enumerate(rows)}
    runs: list[list[str]] = []
    for row_id in sorted(ids, key=place.__getitem__):
        if runs and place[row_id] == place[runs[-1][-1]] + 1 and _series(row_id) == _series(runs[-1][0]):
            runs[-1].append(row_id)
        else:
            runs.append([row_id])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)


def _series(row_id: str) -> str:
    return re.split(r"\d", row_id)[0]


if __name__ == "__main__":
    sys.exit(main())
