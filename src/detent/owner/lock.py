"""Who works on a home: one process owns it, and the threads of a process take turns.

Who owns a home: the process that holds the lock on ``owner.lock``.

The lock belongs to the open file, so it ends with the process, however that ends. A child made by fork shares it; the
child closes its copy at once, or a forked worker would keep a dead owner's home locked.

Taking turns: who computes, among the threads of a process that work on one home.

A client's thread, the driver of a run and the supervisor each have bursts of work, made of many small steps: a signature, a row, a
message. Whenever two of them are at it together, each such step hands the interpreter to the other and has to get it back,
which costs more than the step (two thirds more processor time for each job, on two cores). So a thread with a burst before it
takes its turn first, and gets it in the order of asking.

It is a courtesy and not a lock: nothing is guarded by it, and a thread that has waited long enough goes on without it. A thread
that holds the turn may therefore do anything, at the cost of the others.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

from detent.errors import HomeError, StoreUnavailable
from detent.owner.home_permissions import insist_on_writable
from detent.store.files import open_no_follow, read_no_follow

_held: weakref.WeakSet[OwnerLock]


class OwnerLock:
    """A held lock. Make one with `try_lock`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        _held.add(self)

    def release(self) -> None:
        """Give the home up; safe to call twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


_held = weakref.WeakSet()


def _let_go_in_child() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)


def try_lock(path: Path) -> OwnerLock | None:
    """Become the owner of a home, or learn that another process is (None). `StoreUnavailable` if it may not be written to."""
    try:
        descriptor = open_no_follow(path, os.O_RDWR | os.O_CREAT)
    except OSError as exc:
        insist_on_writable(path.parent)
        raise HomeError(
            f"{path} cannot be opened: {exc.strerror}", hint="check the home's permissions, or choose another home"
        ) from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as exc:
        os.close(descriptor)
        raise HomeError(f"{path} cannot be locked: {exc.strerror}", hint="a home must lie on a local disk") from exc
    with contextlib.suppress(OSError):  # It is for messages only; a full disk must not block readers.
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    return OwnerLock(descriptor)


@contextlib.contextmanager
def held_alone(path: Path, hint: str) -> Iterator[None]:
    """Own a home for as long as the block lasts; `StoreUnavailable` with this hint while another process does."""
    held = try_lock(path)
    if held is None:
        message = f"process {owner_pid(path) or 'unknown'} owns the home {path.parent}"
        raise StoreUnavailable(message, hint=hint)
    try:
        yield
    finally:
        held.release()


def is_held(path: Path) -> bool:
    """Whether a process owns the home right now. Asks for a shared lock and lets go of it at once."""
    try:
        descriptor = open_no_follow(path)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def owner_pid(path: Path) -> int | None:
    """The process that last took the lock, for messages only: it may be gone."""
    try:
        return int(read_no_follow(path))
    except (OSError, ValueError):
        return None


PATIENCE_SECONDS: Final = 0.1
"""How long one waits for the turn; much less than a lease, which the supervisor has to keep alive."""


_mine = threading.local()


def step_aside() -> None:
    """Give up the turn before waiting for another thread's work; harmless for a thread that has none."""
    turn: TurnTaking | None = getattr(_mine, "turn", None)
    if turn is not None:
        turn.__exit__(None, None, None)


class TurnTaking:
    """A context manager for bursts of work, which says whether others were at it first; not to be entered twice by a thread."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._guard = threading.Lock()
        self._holder: int | None = None
        self._waiting: deque[tuple[int, threading.Lock]] = deque()

    def __enter__(self) -> bool:
        me = threading.get_ident()
        _mine.turn = self
        with self._guard:
            if self._holder is None:
                self._holder = me
                return False
            bell = threading.Lock()
            bell.acquire()
            self._waiting.append((me, bell))
        try:
            got = bell.acquire(timeout=self._patience_seconds)
        except BaseException:
            self._leave(me, bell)
            self.__exit__(None, None, None)
            raise
        if not got:
            self._leave(me, bell)
        return True

    def _leave(self, me: int, bell: threading.Lock) -> None:
        """Wait no longer; the turn may have come at that very moment."""
        with self._guard:
            if self._holder != me:
                self._waiting.remove((me, bell))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _mine.turn = None
        with self._guard:
            if self._holder != threading.get_ident():
                return  # It went on without, or stepped aside.
            self._holder = None
            if self._waiting:
                self._holder, bell = self._waiting.popleft()
                bell.release()
