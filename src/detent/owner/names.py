"""Names of people and of keys, beside the ledger.

The ledger knows principals and keys by opaque ids, for good. What they are called lies in one file of the home that only its user can
read, and can be changed or forgotten without touching the history.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from detent.errors import HomeError, InvalidInput
from detent.store.files import open_no_follow, read_no_follow, replace_no_follow

DIRECTORY: Final = "serve"
TOKEN_FILE: Final = "token"  # noqa: S105 - the name of a file, which holds the home's own token
NAMES_FILE: Final = "names.json"
LOCK_FILE: Final = "names.lock"
NAME_CHARS_MAX: Final = 100
NAME_PATTERN: Final = r"^[^\x00-\x20\x7f-\xa0](?:[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\xa0])?$"
NAMES_MAX: Final = 50_000


def name_fault(name: object) -> str | None:
    """Say what keeps a text from being a name, or nothing."""
    if not isinstance(name, str) or len(name) > NAME_CHARS_MAX or not re.search(NAME_PATTERN, name):
        return f"a name has 1 to {NAME_CHARS_MAX} characters, no control characters, and no space at its ends"
    return None


def read_names(home: Path) -> dict[str, str]:
    """What principals and keys are called, by their ids."""
    path = home / DIRECTORY / NAMES_FILE
    try:
        names = json.loads(read_no_follow(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise HomeError(
            f"{path} cannot be read: {exc}", hint="restore it, or remove it: ids count without names"
        ) from exc
    if not isinstance(names, dict):
        raise HomeError(f"{path} is not a table of names", hint="restore it, or remove it: ids count without names")
    return {str(known): name for known, name in names.items() if name_fault(name) is None}


def put_names(home: Path, given: Mapping[str, str | None]) -> None:
    """Call ids by names, or forget them (None). Safe for several processes."""
    for name in given.values():
        if name is not None and (fault := name_fault(name)):
            raise InvalidInput(fault, code="VALIDATION_ERROR")
    directory = home / DIRECTORY
    directory.mkdir(mode=0o700, exist_ok=True)
    with _locked(directory / LOCK_FILE):
        names = read_names(home)
        for known, name in given.items():
            names.pop(known, None)
            if name is not None:
                names[known] = name
        while len(names) > NAMES_MAX:
            del names[next(iter(names))]
        replace_no_follow(directory / NAMES_FILE, json.dumps(names, indent=0).encode())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = open_no_follow(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
