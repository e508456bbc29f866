"""Landlock: the second wall around files, and the first where there are no namespaces.

The rules say what a guest may open for reading, run, and write, by directory. Binding and connecting TCP sockets, abstract
sockets and signals to processes outside are refused where the kernel knows how.
"""

from __future__ import annotations

import os
import struct

from detent.executor.sandbox import linux

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
MAKE_CHAR, MAKE_BLOCK = 64, 2048
REFER, TRUNCATE, IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
_NET_ANY, _SCOPE_ANY = 3, 3

ABI_SIGNALS = 6
"""From this version on a guest cannot signal a process outside."""


def abi() -> int:
    """The version the kernel speaks; 0 when there is none."""
    try:
        return linux.call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def restrict(version: int, *, read: list[str], run: list[str], write: list[str], devices: list[str]) -> None:
    """Confine this process and all it starts to these places, for good. Needs no_new_privs."""
    handled = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
    attributes = struct.pack("=QQQ", handled, _NET_ANY, _SCOPE_ANY)
    size = 8 if version < 4 else 16 if version < ABI_SIGNALS else 24
    ruleset = linux.call("landlock_create_ruleset", attributes, size, 0)
    try:
        reading = READ_FILE | READ_DIR
        for paths, rights in (
            (read, reading),
            (run, reading | EXECUTE),
            (write, ~(EXECUTE | MAKE_CHAR | MAKE_BLOCK)),
            (devices, READ_FILE | WRITE_FILE | READ_DIR),
        ):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        linux.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # What is not there need not be allowed.
    try:
        if not _is_directory(place):
            rights &= _OF_FILES
        linux.call("landlock_add_rule", ruleset, 1, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _is_directory(place: int) -> bool:
    return (os.fstat(place).st_mode & 0o170000) == 0o040000
