"""Rows of a home's database, changed behind Detent's back: found, of no effect, or listed under "not proved"; never believed.

A case changes one to three things in a home where everything has happened, and asks every command that reads. Then one of these
holds: `verify` is red; or every page that a person can read says what it said before; or `verify` lists under "not proved" exactly
what differs. And what is not signed decides nothing: the next run and the next answer to an idempotency key are right.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from tests.attacks.asked import Answer, Line, faults
from tests.attacks.case import Case
from tests.attacks.mutate import mutated, other_bytes, pick
from tests.attacks.recorded import RESULT, Recorded
from tests.tamper.hostile_rows import columns, editor, with_rules, without_rules

VERIFY: Line = ("verify", "-o", "json")
REPLAY: Line = ("replay", "-o", "json")
CHECKS: tuple[Line, ...] = (VERIFY, REPLAY, ("doctor", "-o", "json"))
READ_WHEN_RED = 4
"""Pages that are asked for when `verify` has found something: they need not be right, but they must be answers."""
DIFFERENCES_TOLD_MAX = 5
TRIES_MAX = 50
BESIDE = frozenset(
    {"work", "answers", "checkpoints", "content", "job_names", "refusals", "partitions", "content files"}
)
"""What is not signed and decides: after a change here the home must go on as if nothing were changed."""


class Difference(NamedTuple):
    """One part of a page that says something else than before."""

    line: str
    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.line}: {self.path}: {self.before!r:.120} -> {self.after!r:.120}"


class Verdict(NamedTuple):
    """What the checks of a case said, and what had been changed."""

    touched: set[str]
    not_proved: list[str]
    is_replayed: bool


NOT_PROVED: dict[str, Callable[[Difference, Verdict], bool]] = {
    "`detent replay` compares it": lambda one, verdict: (
        not verdict.is_replayed and bool(re.search(r"usage|reports|lease|heartbeat", one.path))
    ),
    "refused requests": lambda one, verdict: (
        "refusals" in verdict.touched
        and (one.path.startswith(".story[") or "refus" in f"{one.path} {one.before} {one.after}")
    ),
    "content which is not in the file": lambda one, verdict: (
        bool(verdict.touched & {"content", "content files"}) and (one.after is None or one.after == "absent")
    ),
}
"""Words of sentences under "not proved", and which differences each is about."""

Row = list[Any]
Table = tuple[str, list[str], list[Row]]


class Impossible(Exception):
    """The database does not take the change; another one is drawn."""


def attack(recorded: Recorded, seed: int) -> Case:
    """One case."""
    draw = random.Random(f"rows/{seed}")
    case = Case("rows", seed)
    touched = _change(recorded, draw, case)
    first = recorded.desk.ask(CHECKS)
    case.take(first)
    if case.problems:
        return case
    if first[0].code != 0:
        case.outcome = "found"
        read = recorded.desk.ask(draw.sample(recorded.lines, READ_WHEN_RED))
        case.take(read)
        return case
    read = recorded.desk.ask(recorded.steady)
    case.take(read)
    if case.problems:
        return case
    differing = [one for answer in read for one in differences(recorded.said[answer.line], answer)]
    _judge(case, differing, Verdict(touched, first[0].document["not_proved"], first[1].code == 0))
    if not case.problems and touched & BESIDE:
        case.problems += _go_on(recorded)
    return case


def differences(before: Answer, after: Answer) -> Iterator[Difference]:
    """Every part of a page that says something else than before."""
    line = " ".join(before.line[:-2])
    if before.code != after.code:
        yield Difference(line, "exit code", before.code, f"{after.code} {after.err[-200:]}")
        return
    yield from (Difference(line, *one) for one in _differing("", before.document, after.document))


def _differing(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from _differing(f"{path}.{name}", before.get(name), after.get(name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differing(f"{path}[{number}]", old, new)
    elif isinstance(before, list) and isinstance(after, list):
        gone = [(f"{path}[{place}]", old, "gone") for place, old in enumerate(before) if old not in after]
        new = [(f"{path}[{place}]", "not there", new) for place, new in enumerate(after) if new not in before]
        yield from [*gone, *new] or [(path, f"{len(before)} elements", f"{len(after)} elements")]
    elif before != after:
        yield path, before, after


def _judge(case: Case, differing: list[Difference], verdict: Verdict) -> None:
    """Nothing that a person reads may differ under a green `verify`, but for what it says it has not proved."""
    if not differing:
        case.outcome = "no effect"
        return
    listed = [about for words, about in NOT_PROVED.items() if any(words in said for said in verdict.not_proved)]
    believed = [one for one in differing if not any(about(one, verdict) for about in listed)]
    case.outcome = "believed" if believed else "listed"
    replay = "green" if verdict.is_replayed else "red"
    case.problems += [
        f"verify is green, replay is {replay}, and a person reads something else: {one}"
        for one in believed[:DIFFERENCES_TOLD_MAX]
    ]


def _go_on(recorded: Recorded) -> list[str]:
    """What the home does next, with rows that were changed and not found: as if they had not been."""
    again = recorded.desk.one("run", "flow.yaml", "-w", "1", "-o", "json")
    problems = faults([again])
    if again.code != 0:
        problems.append(f"verify was green, and the next run ended with {again.code}: {again.err[-600:]}")
    elif again.document["result"] != RESULT:
        problems.append(f"verify was green, and the next run gives {again.document['result']!r:.200}")
    keys = recorded.typed_keys()
    if keys != recorded.keys and not _typed(keys):
        problems.append(f"verify was green, and the idempotency keys are answered {keys!r:.600}")
    after = recorded.desk.ask((VERIFY, REPLAY))
    problems += faults(after)
    problems += [
        f"verify was green; after another run `{answer.line[0]}` is red: {answer.out[:600]}"
        for answer in after
        if answer.code != 0
    ]
    return problems


def _typed(keys: str) -> bool:
    """Whether keys were answered with the right results by new jobs, as when they had expired."""
    answered = re.fullmatch(r"first (\S+) 2\nsecond (\S+) 4\n", keys)
    return answered is not None and answered[1] != answered[2]


# -- changes -----------------------------------------------------------------------------------------------------------


def _change(recorded: Recorded, draw: random.Random, case: Case) -> set[str]:
    """Put the home back and change something in it; the tables that were touched."""
    for _ in range(TRIES_MAX):
        recorded.put_back()
        # Each change has draws of its own: what one of them consumes does not decide what the next one does.
        draws = [random.Random(draw.random()) for _ in range(pick(draw, (1, 1, 1, 1, 2, 3)))]
        try:
            made = [_change_once(recorded.home.ledger_file, recorded.home.path / "content", one) for one in draws]
        except Impossible:
            continue
        case.done = "; ".join(said for _, said in made)
        return {table for tables, _ in made for table in tables}
    raise AssertionError(f"no change in {TRIES_MAX} draws")


def _change_once(ledger: Path, content: Path, draw: random.Random) -> tuple[set[str], str]:
    choice = draw.random()
    if choice < 0.04:
        return _plant(ledger, draw)
    if choice < 0.10:
        return _change_file(content, draw)
    if choice < 0.16:
        return _delete_with_content(ledger, draw)
    tables = sorted({table for table, _ in columns(ledger)})
    name = draw.choice(tables)
    with editor(ledger) as database:
        names = [column for table, column in columns(ledger) if table == name]
        rows = [list(row) for row in database.execute(f"SELECT {', '.join(names)} FROM {name} ORDER BY 1")]
    if not rows:
        raise Impossible
    changed, said = _change_rows(draw, names, rows)
    _write(ledger, (name, names, changed))
    return {name}, f"{name}: {said}"


def _change_rows(draw: random.Random, names: list[str], rows: list[Row]) -> tuple[list[Row], str]:
    """Other rows: one value, one row or two of them are not what they were."""
    at, other, column = pick(draw, range(len(rows))), pick(draw, range(len(rows))), pick(draw, range(len(names)))
    new = [list(row) for row in rows]
    operation = draw.choice(("value", "value", "value", "value", "swap", "swap", "copy", "delete", "twice"))
    said = f"{operation} row {at} of {len(rows)}"
    if operation == "value":
        new[at][column] = mutated(draw, rows[at][column])
        said = f"{names[column]} of row {at} of {len(rows)}: {rows[at][column]!r:.60} -> {new[at][column]!r:.60}"
    elif operation in {"swap", "copy"}:
        chosen = draw.sample(range(1, len(names)), draw.randint(1, len(names) - 1)) if len(names) > 1 else [0]
        for place in chosen:
            new[at][place] = rows[other][place]
            if operation == "swap":
                new[other][place] = rows[at][place]
        said += f" with row {other}: {', '.join(names[place] for place in sorted(chosen))}"
    elif operation == "delete":
        del new[at]
    else:
        key = max((row[0] for row in rows if isinstance(row[0], int)), default=0) + 1
        new.append([key, *rows[at][1:]])
    if new == rows:
        raise Impossible
    return new, said


def _write(ledger: Path, table: Table) -> None:
    """Replace a table's rows, whatever its rules say."""
    name, names, rows = table
    kept = without_rules(ledger)
    try:
        with editor(ledger) as database:
            database.pragma("ignore_check_constraints", 1)
            with database:
                database.execute(f"DELETE FROM {name}")
                marks = ", ".join("?" * len(names))
                database.executemany(f"INSERT INTO {name} ({', '.join(names)}) VALUES ({marks})", rows)
    except (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, OverflowError):
        raise Impossible from None
    with_rules(ledger, kept)


def _delete_with_content(ledger: Path, draw: random.Random) -> tuple[set[str], str]:
    """A row goes together with the content that it names, so that nothing is left to miss it."""
    table, column = draw.choice((("work", "payload_digest"), ("work", "execution_key"), ("jobs", "head")))
    with editor(ledger) as database:
        rows = database.execute(f"SELECT job_no, {column} FROM {table} ORDER BY 1").fetchall()
        if not rows:
            raise Impossible
        job_no, digest = pick(draw, rows)
        if table == "work":
            database.execute("DELETE FROM work WHERE job_no = ?", (job_no,))
        database.execute("DELETE FROM content WHERE digest = ?", (digest,))
        if not database.total_changes():
            raise Impossible
    return {table, "content"}, f"{table}: delete row of job {job_no} and the content of its {column}"


PLANTED = (
    "CREATE TRIGGER planted AFTER INSERT ON records BEGIN UPDATE jobs SET state = 'SUCCEEDED'; END",
    "CREATE TRIGGER planted AFTER INSERT ON work BEGIN UPDATE work SET label = 'x'; END",
    "CREATE TRIGGER planted AFTER UPDATE ON partitions BEGIN DELETE FROM answers; END",
    "CREATE VIEW planted AS SELECT * FROM jobs",
    "CREATE TABLE planted (x)",
    "CREATE UNIQUE INDEX planted ON records (body)",
    "DROP INDEX jobs_by_state",
    "DROP TRIGGER records_are_never_updated",
    "ALTER TABLE refusals ADD COLUMN planted TEXT",
    "ALTER TABLE refusals RENAME COLUMN code TO kode",
    "DROP TABLE refusals",
    "PRAGMA user_version = 1",
    "PRAGMA user_version = 2000000000",
    "PRAGMA application_id = 7",
)


def _plant(ledger: Path, draw: random.Random) -> tuple[set[str], str]:
    """A change of the schema itself."""
    statement = draw.choice(PLANTED)
    with editor(ledger) as database:
        try:
            database.execute(statement)
        except apsw.SQLError:
            raise Impossible from None
    return {"schema"}, f"schema: {statement}"


def _change_file(content: Path, draw: random.Random) -> tuple[set[str], str]:
    """Content that is too large for the database lies in files."""
    files = sorted(path for path in content.rglob("*") if path.is_file())
    if not files:
        raise Impossible
    path = pick(draw, files)
    if draw.random() < 0.3:
        path.unlink()
        return {"content files"}, "content files: delete one"
    path.chmod(0o600)
    path.write_bytes(other_bytes(draw, path.read_bytes()))
    return {"content files"}, "content files: change one"
