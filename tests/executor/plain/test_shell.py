"""Commands of the user's own, run with /bin/sh in a plain process."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from detent.jobs.work import CANCELLED
from tests.executor.plain.rig import OUTPUT_BYTES_MAX, Rig, failure, is_gone, value

USER = "USER_CODE_ERROR"


def shell(rig: Rig, command: str, **fields: object) -> int:
    return rig.submit(command, kind="shell", **fields)


def test_a_commands_value_is_its_status_its_output_and_its_files(rig: Rig, tmp_path: Path) -> None:
    """X-175"""
    command = "cat $NAME; echo warned >&2; echo a > b.out; echo c > 'a b.out'"
    (tmp_path / "in").write_text("read\n")
    outputs = {"b": "b.out", "all": "*.out"}
    done = rig.result(shell(rig, command, env={"NAME": "in"}, cwd=str(tmp_path), outputs=outputs))
    named = {
        "$file": _digest(b"a\n"),
        "size": 2,
        "name": "b.out",
        "type": "application/octet-stream",
    }
    found = value(done)
    assert (found["exit"], found["stdout"], found["outputs"]["b"]) == (0, "read\n", named)
    assert [one["name"] for one in found["outputs"]["all"]] == ["a b.out", "b.out"]
    assert (done.stdout.data, done.stderr.data) == (b"read\n", b"warned\n")
    assert [made.name for made in done.files] == ["b.out", "a b.out", "b.out"]


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def test_a_status_that_is_not_0_fails_with_the_end_of_stderr(rig: Rig) -> None:
    done = rig.result(shell(rig, "seq 2000 >&2; echo 'it is äll wrong' >&2; exit 3"))
    assert failure(done) == (USER, "SHELL_EXIT")
    assert done.failure is not None
    assert done.failure.message.startswith("the command ended with exit status 3: ")
    assert done.failure.message.endswith("2000\nit is äll wrong")
    assert len(done.failure.message) < 2100
    done = rig.result(shell(rig, "kill -9 $$"))
    assert done.failure is not None
    assert done.failure.message == "the command ended by signal 9"


def test_a_missing_output_is_named(rig: Rig, tmp_path: Path) -> None:
    """X-175"""
    done = rig.result(shell(rig, "true", cwd=str(tmp_path), outputs={"table": "out.csv"}))
    assert failure(done) == (USER, "OUTPUT_MISSING")
    assert done.failure is not None
    assert "'table': out.csv is not there" in done.failure.message


def test_output_of_a_command_is_bounded(rig: Rig) -> None:
    done = rig.result(shell(rig, "yes €€ | head -c 5000002; echo; echo the end"))
    assert done.ok
    assert done.stdout.truncated
    assert OUTPUT_BYTES_MAX - 70 <= len(done.stdout.data) <= OUTPUT_BYTES_MAX
    text = done.stdout.data.decode()
    assert (text[:3], text[-9:]) == ("€€\n", "\nthe end\n")
    assert value(done)["stdout"] == text


def test_what_a_command_leaves_in_the_background_is_ended_and_the_worker_stays(rig: Rig, tmp_path: Path) -> None:
    command = "(setsid sleep 1000 & echo $! > pid); sleep 1000 & echo $! >> pid"
    done = rig.result(shell(rig, command, cwd=str(tmp_path)))
    assert done.ok
    pids = [int(word) for word in (tmp_path / "pid").read_text().split()]
    assert len(pids) == 2
    assert all(is_gone(pid) for pid in pids)
    assert rig.run("pid").process == done.process


def test_cancelling_and_limits_end_a_commands_whole_tree(rig: Rig, tmp_path: Path) -> None:
    """X-162"""
    deaf = "trap '' TERM; setsid sh -c 'echo $$ > pids; sleep 1000' & echo $$ > pids; sleep 1000"
    os.mkfifo(tmp_path / "pids")
    for limit in (None, 300):
        number = shell(rig, deaf, cwd=str(tmp_path), wall_ms=limit)
        pids: list[int] = []
        with (tmp_path / "pids").open() as fifo:
            while len(pids) < 2:
                pids += [int(line) for line in fifo]
        if limit is None:
            rig.pool.cancel(number)
        done = rig.result(number)
        assert (done.status == CANCELLED, done.ok) == (limit is None, False)
        assert done.status == CANCELLED or failure(done) == ("RESOURCE_LIMIT", "LIMIT_WALL")
        assert all(is_gone(pid) for pid in pids)


def test_a_command_that_was_told_to_stop_may_clean_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "home", workers=1, grace_ms=60_000)
    os.mkfifo(tmp_path / "ready")
    command = "trap 'echo cleaned > mark; exit 1' TERM; echo > ready; sleep 1000 & wait"
    number = shell(rig, command, cwd=str(tmp_path))
    (tmp_path / "ready").read_text()
    rig.pool.cancel(number)
    assert rig.result(number).status == CANCELLED
    assert (tmp_path / "mark").read_text() == "cleaned\n"
    rig.pool.close()
