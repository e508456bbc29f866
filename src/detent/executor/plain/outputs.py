"""Keeps what a task leaves behind: declared outputs and `detent.File`, by digest, durable before anything names them."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from typing import Any, Final

from detent.canon import digest_text
from detent.errors import StoreUnavailable
from detent.executor.file import type_of
from detent.executor.plain.stored import Unfit, unavailable
from detent.jobs.values import escaped_key, file_reference
from detent.store.content import content_store

FILES_MAX: Final = 1000


def collect(outputs: Mapping[str, str], content: str) -> tuple[list[list[Any]], dict[str, Any]]:
    """The declared outputs, found from the working directory: as a list of what was made, and as stored values by name.

    A glob gives a list, in the order of the names' bytes; it must match something.
    """
    made: list[list[Any]] = []
    values: dict[str, Any] = {}
    for name, pattern in outputs.items():
        is_glob = glob.has_magic(pattern)
        paths = sorted(glob.glob(pattern, recursive=True), key=os.fsencode) if is_glob else [pattern]  # noqa: PTH207
        paths = [path for path in paths if not is_glob or os.path.isfile(path)]  # noqa: PTH113
        if not paths or not all(os.path.isfile(path) for path in paths):  # noqa: PTH113
            raise _missing(name, pattern)
        if len(made) + len(paths) > FILES_MAX:
            raise Unfit(
                "RESOURCE_LIMIT", "LIMIT_ARTIFACTS", f"output {name!r} ({pattern}): more than {FILES_MAX} files in all"
            )
        kept = [_kept(name, path, content) for path in paths]
        made += kept
        values[escaped_key(name)] = [_value(one) for one in kept] if is_glob else _value(kept[0])
    return made, values


def _missing(name: str, pattern: str) -> Unfit:
    what = "is a directory; name a glob such as DIRECTORY/**" if os.path.isdir(pattern) else "is not there"  # noqa: PTH112
    return Unfit("USER_CODE_ERROR", "OUTPUT_MISSING", f"output {name!r}: {pattern} {what} (in {os.getcwd()})")  # noqa: PTH109


def _kept(name: str, path: str, content: str) -> list[Any]:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - the path is the user's own text
            digest, size = content_store(content).put_from(file)
    except OSError as exc:
        raise Unfit("USER_CODE_ERROR", "OUTPUT_MISSING", f"output {name!r}: {path}: {exc.strerror}") from exc
    except StoreUnavailable as exc:
        raise unavailable(exc) from exc
    shown = os.fsencode(path).decode("utf-8", "replace")
    return [name, shown, digest.hex(), size, type_of(shown)]


def _value(made: list[Any]) -> dict[str, Any]:
    name = os.path.basename(made[1])  # noqa: PTH119
    return file_reference(digest_text(bytes.fromhex(made[2])), size=made[3], name=name, content_type=made[4])
