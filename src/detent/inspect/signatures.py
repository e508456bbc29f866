"""Many signatures at once: a verification gathers them, and this checks them on all processors.

A short ledger is checked by threads, group by group, and the reading stands still meanwhile. Threads cannot do better: each
signature takes some tens of microseconds, and a thread that has checked one would wait a hundred times as long for the interpreter
that the reading holds. So a long ledger gets processes that check while the reading goes on. When they have enough before
them, the reader checks a group itself, which keeps every processor busy, however costs are divided.

Nothing depends on a helper: if it cannot be started or ends too soon, everything it has not answered is checked here.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import select
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from detent import version
from detent.ledger.book import Signed, VerifyMany, verify_each

THREADS_MAX: Final = 8
HELPERS_MAX: Final = 2
"""Reading costs about as much as the signatures in what is read, so more would only wait."""
HELPED_AFTER: Final = 4_000
"""Signatures after which a ledger is long: starting a helper costs as much as some two thousand."""
_GROUPS_WAITING: Final = 3
"""Groups that may wait for one helper."""
_PIPE_BYTES: Final = 1 << 20
_END_SECONDS: Final = 2.0
_START: Final = "import sys; sys.path.insert(0, sys.argv[1]); from detent.inspect.signature_helper import main; main()"


@contextmanager
def signature_checkers(*, helped_after: int = HELPED_AFTER, python: str = sys.executable) -> Iterator[VerifyMany]:
    """Check signatures on all processors. Answers may still be on their way when they are given back."""
    workers = min(THREADS_MAX, os.cpu_count() or 1)
    if workers == 1:
        yield verify_each
        return
    with ExitStack() as ends:
        helpers: list[_Helper] = []
        asked = 0
        threads = ends.enter_context(ThreadPoolExecutor(workers, thread_name_prefix="detent-verify"))

        def verify_many(signed: Sequence[Signed]) -> Sequence[bool] | _Group:
            nonlocal asked
            asked += len(signed)
            if not helpers and asked > helped_after:
                for _ in range(min(HELPERS_MAX, workers - 1)):
                    helpers.append(_Helper(python))
                    ends.callback(helpers[-1].close)
            loads = [(helper.load(), place) for place, helper in enumerate(helpers) if helper.alive]
            if not loads:
                return _by_threads(threads, workers, signed)
            load, place = min(loads)
            return helpers[place].ask(signed) if load < _GROUPS_WAITING else verify_each(signed)

        yield verify_many


def _by_threads(threads: ThreadPoolExecutor, workers: int, signed: Sequence[Signed]) -> list[bool]:
    share = -(-len(signed) // workers)
    parts = [signed[start : start + share] for start in range(0, len(signed), share)]
    return [answer for answers in threads.map(verify_each, parts) for answer in answers]


class _Group:
    """Signatures that a helper has been asked about; reading the answers waits for them."""

    __slots__ = ("_wait", "answers", "signed")

    def __init__(self, signed: Sequence[Signed], wait: Callable[[], None]) -> None:
        self.signed = signed
        self.answers: Sequence[bool] | None = None
        self._wait = wait

    def __iter__(self) -> Iterator[bool]:
        while self.answers is None:
            self._wait()
        return iter(self.answers)


class _Helper:
    """A process that checks groups in the order in which they are asked."""

    def __init__(self, python: str) -> None:
        self._groups: deque[_Group] = deque()
        theirs, self._write = os.pipe()
        self._read, answers = os.pipe()
        self._answers = select.poll()  # `select` would not take a descriptor above 1023.
        self._answers.register(self._read, select.POLLIN)
        self._process: subprocess.Popen[bytes] | None = None
        root = str(Path(version.__file__).parent.parent)
        # So that a group can be handed over while the one before it is checked. Where pipes are as they are, that waits.
        with suppress(OSError, AttributeError):
            fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        with suppress(OSError):
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own code
                [python, "-P", "-c", _START, root],
                stdin=theirs,
                stdout=answers,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        os.close(theirs)
        os.close(answers)
        self.alive = self._process is not None

    def load(self) -> int:
        """Groups it has before it."""
        while self._groups and self._answers.poll(0):
            self._hear()
        return len(self._groups)

    def ask(self, signed: Sequence[Signed]) -> _Group:
        """Hand over a group."""
        group = _Group(signed, self._hear)
        self._groups.append(group)
        data = marshal.dumps([tuple(one) for one in signed])
        try:
            _write_all(self._write, len(data).to_bytes(4, "big") + data)
        except OSError:
            self._give_up()
        return group

    def close(self) -> None:
        """End the process, and let go of it."""
        self.alive = False
        os.close(self._write)
        os.close(self._read)
        if self._process is None:
            return
        try:
            self._process.wait(0 if self._groups else _END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _hear(self) -> None:
        """Take the answers to the group it has had longest."""
        group = self._groups[0]
        data = _read_all(self._read, len(group.signed))
        if len(data) != len(group.signed):
            self._give_up()
            return
        self._groups.popleft()
        group.answers = [one == 1 for one in data]

    def _give_up(self) -> None:
        """It has ended: what it was asked is checked here."""
        self.alive = False
        for group in self._groups:
            group.answers = verify_each(group.signed)
        self._groups.clear()


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _read_all(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data
