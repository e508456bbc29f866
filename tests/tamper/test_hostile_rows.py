"""One hostile value in the database: every reading command ends with an answer, within its memory (X-196)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tamper.hostile_rows import COMMANDS, VALUES

READING = [name for name in COMMANDS if name != "doctor"]


def faults(directory: Path, values: list[str], commands: list[str], *tables: str) -> list[dict[str, object]]:
    """What the program in `hostile_rows` has to tell; it must come to its end."""
    said = [json.dumps(words) for words in (values, commands, tables)]
    words = [sys.executable, "-m", "tests.tamper.hostile_rows", str(directory), *said]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    *told, last = map(json.loads, done.stdout.splitlines())
    assert last == {"faults": len(told)}
    return told


@pytest.mark.parametrize("value", ["2^62", "33 bytes"])
def test_a_hostile_value_leaves_no_verification_without_an_answer(tmp_path: Path, value: str) -> None:
    """X-196: `partitions` = 2^62 took all memory; a value of another kind was called a bug."""
    assert faults(tmp_path, [value], ["verify", "replay"], "ledger", "partitions", "records", "runs", "work") == []


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES)
def test_a_hostile_value_in_any_column_gets_a_typed_answer_from_every_command(tmp_path: Path, value: str) -> None:
    """X-196: numbers, sizes and kinds that no release writes, in every column of every table."""
    assert faults(tmp_path, [value], [*READING, "doctor"]) == []


def test_doctor_ends_when_the_number_of_partitions_is_hostile(tmp_path: Path) -> None:
    """X-196: it went through 2^62 partitions one by one."""
    assert faults(tmp_path, ["2^62"], ["doctor"], "ledger", "partitions") == []
