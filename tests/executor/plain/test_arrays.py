"""Arrays in a pool whose workers are killed: what a worker wrote down counts for the piece it was written for, and for no other."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from detent.executor.assignment import Assignment
from detent.executor.plain import wire
from detent.jobs.elements import OPEN
from detent.jobs.order import Call, ElementOrder, JobLimits, Order, Origin
from tests.executor.plain.rig import BASE, Rig


def array(number: int, texts: list[str]) -> Assignment:
    """A function called once for each text."""
    call = Call(kind="python", target="work:double", base=BASE)
    elements = tuple(ElementOrder((text,)) for text in texts)
    return Assignment(number, f"job-{number}", 0, Order(call, "label", JobLimits(), Origin(), elements), {})


def test_a_worker_killed_before_it_begins_an_array_leaves_no_results_of_the_one_before(tmp_path: Path) -> None:
    """X-163: it had taken the second array from its socket, and its journal still held the first."""
    rig = Rig(tmp_path, workers=1)
    try:
        rig.pool.submit(array(1, ["a"]))
        first = rig.result(1).elements
        assert first is not None
        assert list(first.values) == [b'"aa"']

        long = "x" * wire.MESSAGE_BYTES_MAX  # So that it goes through a file, at which the worker can be held.
        (slot,) = rig.pool._slots.values()
        os.kill(slot.pid, signal.SIGSTOP)
        rig.pool.submit(array(2, ["d", "e", long]))
        rig.look(0)
        (entry,) = slot.entries.values()
        assert entry.file is not None
        Path(entry.file).unlink()
        os.mkfifo(entry.file)
        os.kill(slot.pid, signal.SIGCONT)
        rig.until(lambda: _is_taken(slot.theirs))
        os.kill(slot.pid, signal.SIGKILL)

        second = rig.result(2)
        assert second.lost
        assert second.elements is not None
        assert second.elements.codes[0] == OPEN
        assert list(second.elements.values[:2]) == [None, b'"ee"']
    finally:
        rig.pool.close()


def _is_taken(theirs: socket.socket) -> bool:
    """Whether nothing waits in a worker's socket any more."""
    try:
        theirs.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
    except BlockingIOError:
        return True
    return False
