"""A program that makes one value of a home's database hostile at a time and has the reading commands answer.

It runs in a process of its own, whose memory is limited: `python -m tests.tamper.hostile_rows DIRECTORY VALUES COMMANDS
[TABLES]`, all but the first as JSON lists. For every answer that is none (a bug, no memory, no end) it prints a line of JSON; at last, how many there were.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from detent.cli.app import run
from tests.homes import fresh

MEMORY_BYTES_MAX = 1536 * 1024 * 1024
"""Of address space; a command on the untouched home takes a fraction of it."""
SECONDS_MAX = 60
"""After which a command that answers within a second is taken for one that never ends."""
VALUES = {
    "2^62": 1 << 62,
    "-2^63": -(1 << 63),
    "2^31": 1 << 31,
    "65536": 65_536,
    "-1": -1,
    "0": 0,
    "null": None,
    "real": 1e300,
    "no bytes": b"",
    "31 bytes": bytes(31),
    "33 bytes": bytes(33),
    "a mebibyte": bytes(1 << 20),
    "deep": b"\x81" * 5_000 + b"\x00",
    "long": b"\x9b" + b"\xff" * 8,
    "no text": "",
    "text": "a\x00\u202e\n'; --",
    "long text": "9" * 100_000,
}
RUN, JOB = "run-1", "done"
COMMANDS = {
    "verify": ["verify"],
    "replay": ["replay"],
    "list": ["list"],
    "jobs": ["list", "--jobs"],
    "show": ["show", RUN],
    "job": ["show", JOB],
    "explain": ["explain", JOB],
    "keys": ["keys"],
    "doctor": ["doctor"],
    "export": ["export", "--output", "hostile.detent"],
}
BESIDE = """
INSERT INTO work VALUES (1, 'demo', zeroblob(32), 'flow/step', 1, zeroblob(32));
INSERT INTO answers VALUES (1, zeroblob(32), zeroblob(32), CAST('done' AS BLOB), 1);
INSERT INTO refusals VALUES (1, 0, 1, 'done', 'QUEUE_FULL', x'a0');
INSERT OR IGNORE INTO checkpoints VALUES (1, 0, 3, zeroblob(32), x'80');
"""


def editor(ledger: Path) -> contextlib.closing[apsw.Connection]:
    """The database for edits that need not survive a power cut."""
    database = apsw.Connection(str(ledger))
    database.pragma("synchronous", "OFF")
    database.pragma("journal_mode", "MEMORY")
    return contextlib.closing(database)


class Endless(BaseException):
    """A command went on for too long. No error that a command could take for its own."""


def columns(ledger: Path) -> list[tuple[str, str]]:
    """Every column of every table that is not computed from others."""
    with editor(ledger) as database:
        tables = [
            name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        ]
        return [
            (str(table), str(name))
            for table in sorted(tables, key=str)
            for (name,) in database.execute(f"SELECT name FROM pragma_table_xinfo('{table}') WHERE hidden = 0")
        ]


def without_rules(ledger: Path) -> dict[str, str]:
    """Have the tables take anything, as a file that was put together by hand does; gives back what was taken away."""
    with editor(ledger) as database:
        kept = {
            str(name): str(sql)
            for name, sql in database.execute(
                "SELECT name, sql FROM sqlite_schema WHERE type IN ('table', 'trigger') AND sql IS NOT NULL"
            ).fetchall()
        }
        for name, sql in kept.items():
            if sql.startswith("CREATE TRIGGER"):
                database.execute(f"DROP TRIGGER {name}")
        database.pragma("writable_schema", 1)
        for name, sql in kept.items():
            loose = re.sub(r"(?<! IS) NOT NULL", "", sql.replace(") STRICT, ", ") ").replace(") STRICT", ")"))
            database.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ? AND type = 'table'", (loose, name))
    return kept


def with_rules(ledger: Path, kept: dict[str, str]) -> None:
    """Put the rules back."""
    with editor(ledger) as database:
        database.pragma("writable_schema", 1)
        for name, sql in kept.items():
            database.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ? AND type = 'table'", (sql, name))
    with editor(ledger) as database:
        for sql in kept.values():
            if sql.startswith("CREATE TRIGGER"):
                database.execute(sql)


def make_hostile(ledger: Path, table: str, column: str, value: Any) -> bool:
    """Set a column of a table's first row, or of all where that cannot be; False when there is no row to set."""
    kept = without_rules(ledger)
    with editor(ledger) as database:
        database.pragma("ignore_check_constraints", 1)
        where = f"{column} IS (SELECT {column} FROM {table} LIMIT 1)"
        with contextlib.suppress(
            apsw.ConstraintError, apsw.MismatchError
        ):  # An id that is no integer cannot be stored.
            database.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))
        changed = database.changes() > 0
    with_rules(ledger, kept)
    return changed


def answer(words: list[str]) -> dict[str, Any] | None:
    """What is wrong with how a command ends, or nothing."""
    out, err = io.StringIO(), io.StringIO()
    signal.alarm(SECONDS_MAX)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(words)
    except Endless:
        return {"ends": False}
    finally:
        signal.alarm(0)
    if code not in {0, 1, 2, 3, 4, 5} or "INVARIANT_VIOLATION" in err.getvalue() or "Traceback" in err.getvalue():
        return {"code": code, "err": err.getvalue()[-2_000:]}
    return None


def findings(directory: Path, values: list[str], commands: list[str], tables: list[str]) -> Iterator[dict[str, Any]]:
    """Every answer that is none."""
    played = fresh(directory)
    os.environ["XDG_STATE_HOME"] = str(played.state)
    os.environ["DETENT_DEBUG"] = ""
    os.chdir(directory)
    ledger, whole = played.home.ledger_file, directory / "whole.db"
    with editor(ledger) as database:
        database.execute(BESIDE)
    shutil.copy(ledger, whole)
    for name in commands:
        if fault := answer(COMMANDS[name]):
            yield {"untouched": name, **fault}
    for table, column in [place for place in columns(whole) if not tables or place[0] in tables]:
        for value in values:
            for left in directory.glob(".detent/ledger.db*"):
                left.unlink()
            shutil.copy(whole, ledger)
            if not make_hostile(ledger, table, column, VALUES[value]):
                continue
            for name in commands:
                (directory / "hostile.detent").unlink(missing_ok=True)
                if fault := answer(COMMANDS[name]):
                    yield {"table": table, "column": column, "value": value, "command": name, **fault}


def _endless(*_: object) -> None:
    raise Endless


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    signal.signal(signal.SIGALRM, _endless)
    told = 0
    place, *said = sys.argv[1:]
    for fault in findings(Path(place), *(json.loads(words) for words in said)):
        told += 1
        sys.stdout.write(json.dumps(fault) + "\n")
        sys.stdout.flush()
    sys.stdout.write(json.dumps({"faults": told}) + "\n")
