"""Who owns a home: the process that holds the lock on ``owner.lock``.

The lock belongs to the open file, so it ends with the process, however that ends. A child made by fork shares it; the
child closes its copy at once, or a forked worker would keep a dead owner's home locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from detent.errors import HomeError, StoreUnavailable
from detent.owner.home_permissions import insist_on_writable
from detent.store.no_follow import open_no_follow, read_no_follow

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
