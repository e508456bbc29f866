"""Processes that start at once on homes that are not there yet; run by `test_start_at_once.py`.

    python start_child.py DIRECTORY KIND ROUNDS PROCESSES

Everything is loaded once; each process of a round is a fork that waits for the others, opens a client on the round's home
and has a task done there. For each round one line of JSON: what every process says.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import detent
from detent.canon import digest_text
from detent.owner.home import find_home
from tests.sdk.work_functions import square

NAMED, FOUND, EMPTY = "named", "found", "empty"


def work(kind: str, place: Path, number: int) -> dict[str, Any]:
    """What a user's script does: open a client and submit a task."""
    if kind == FOUND:
        os.chdir(place)
    with detent.Client(None if kind == FOUND else place / "home", workers=1) as client:
        result = client.submit(square, number).result(timeout=120)
        home = find_home(Path.cwd(), {}, None if kind == FOUND else place / "home")
        assert home is not None
        return {"result": result, "home": str(home.path), "root": digest_text(home.settings().root)}


def start(kind: str, place: Path, number: int, gate: int) -> tuple[int, int]:
    """One process, which waits at the gate; its id and where its answer comes from."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.read(gate, 1)
        answer = work(kind, place, number)
    except BaseException:  # noqa: BLE001 - whatever it is, the test shows it
        answer = {"error": traceback.format_exc()}
    os.write(writing, json.dumps(answer).encode())
    os._exit(0)


def round_of(kind: str, place: Path, processes: int) -> list[dict[str, Any]]:
    """What each of the processes says that start at once on one new home."""
    place.mkdir()
    if kind == EMPTY:
        (place / "home").mkdir()
    gate, opener = os.pipe()
    os.set_inheritable(opener, False)
    started = [start(kind, place, number, gate) for number in range(processes)]
    os.write(opener, bytes(processes))
    answers = []
    for pid, reading in started:
        with os.fdopen(reading, "rb") as stream:
            answers.append(json.loads(stream.read()))
        os.waitpid(pid, 0)
    os.close(gate)
    os.close(opener)
    return answers


def main() -> None:
    directory, kind, rounds, processes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    for number in range(rounds):
        sys.stdout.write(json.dumps(round_of(kind, directory / f"round-{number}", processes)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
