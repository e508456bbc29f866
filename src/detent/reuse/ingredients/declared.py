"""Declared inputs and outputs of a step: from paths, directories and globs to digests by content (X-175).

A path that is a directory stands for every file below it, hidden ones too; links to directories inside it count as links
and are not entered. A glob is Python's: ``*`` stays within a directory, ``**`` does not, hidden files are not matched.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from detent.canon import digest, digest_text, json_encode, sha256
from detent.errors import InvalidInput
from detent.jobs.order import GLOB
from detent.reuse.ingredients.files import FileDigests, FileUnreadable

FILES_MAX: Final = 100_000
"""Files that one pattern may stand for."""
LISTED_MAX: Final = 100
"""Files of one pattern that are named one by one; more of them count as one list."""
LIST_LABEL: Final = b"detent/files/v1\0"
_LINK_LABEL: Final = b"detent/link/v1\0"


class OutputFault(NamedTuple):
    """A declared output that is not as it was left: ``missing`` or ``changed``."""

    name: str
    path: str
    fault: str


def inputs_digests(patterns: Iterable[str], directory: str, files: FileDigests) -> dict[str, str | None]:
    """The content of declared inputs by path, relative to ``directory``; None for what is missing.

    In the order of the bytes of their names. A pattern that stands for many files is one entry, under the pattern.
    """
    found: dict[str, str | None] = {}
    for pattern in sorted(set(patterns), key=os.fsencode):
        matched = content_of(pattern, directory, files)
        if not matched:
            found[_shown(pattern)] = None
        elif len(matched) > LISTED_MAX:
            found[_shown(pattern)] = list_digest(matched)
        else:
            found |= {_shown(path): digest_text(each) for path, each in matched.items()}
    return found


def outputs_digests(outputs: Mapping[str, str], directory: str, files: FileDigests) -> dict[str, dict[str, str]]:
    """The content of declared outputs: for each name its files by path, with their digests."""
    return {
        name: {_shown(path): digest_text(each) for path, each in content_of(pattern, directory, files).items()}
        for name, pattern in outputs.items()
    }


def outputs_match(
    recorded: Mapping[str, Mapping[str, str]], outputs: Mapping[str, str], directory: str, files: FileDigests
) -> list[OutputFault]:
    """Which declared outputs are no longer as an earlier run left them; none: a reuse may count on them.

    ``recorded`` is what `outputs_digests` gave then. A file that a glob matches now and did not match then is a change.
    """
    now = outputs_digests(outputs, directory, files)
    faults: list[OutputFault] = []
    for name in sorted({*recorded, *now}):
        before, after = recorded.get(name), now.get(name, {})
        pattern = _shown(outputs.get(name, name))
        if not before:
            faults.append(OutputFault(name, pattern, "changed" if after else "missing"))
            continue
        for path in sorted({*before, *after}):
            if path not in after:
                faults.append(OutputFault(name, path, "missing"))
            elif before.get(path) != after[path]:
                faults.append(OutputFault(name, path, "changed"))
    return faults


def content_of(pattern: str, directory: str, files: FileDigests) -> dict[str, bytes]:
    """Every file that a path, directory or glob stands for, by its path, with its digest; empty when there is none."""
    if not pattern or "\0" in pattern:
        raise InvalidInput(f"{pattern!r:.80} is not a path", hint="name a file, a directory or a glob")
    paths: Sequence[str] = [pattern]
    if GLOB & set(pattern) and not os.path.lexists(os.path.join(directory, pattern)):  # noqa: PTH118
        paths = sorted(glob.iglob(pattern, root_dir=directory, recursive=True), key=os.fsencode)  # noqa: PTH207 - of texts
    found: dict[str, bytes] = {}
    for path in paths:
        for each, content in _below(path, directory, files):
            found[each] = content
            if len(found) > FILES_MAX:
                raise InvalidInput(
                    f"{pattern!r:.80} stands for more than {FILES_MAX:,} files",
                    hint="name fewer, or an archive of them",
                )
    return dict(sorted(found.items(), key=lambda item: os.fsencode(item[0])))


def _below(path: str, directory: str, files: FileDigests) -> Iterator[tuple[str, bytes]]:
    whole = os.path.join(directory, path)  # noqa: PTH118
    if not os.path.isdir(whole):  # noqa: PTH112
        content = files.digest(whole)
        if content is not None:
            yield os.path.normpath(path), content
        return
    for root, directories, names in os.walk(whole, onerror=_refuse):
        for name in [*directories, *names]:
            inner = os.path.join(root, name)  # noqa: PTH118
            shown = os.path.normpath(os.path.join(path, os.path.relpath(inner, whole)))  # noqa: PTH118
            is_link = stat.S_ISLNK(os.lstat(inner).st_mode)
            if is_link and (name in directories or not os.path.exists(inner)):  # noqa: PTH110
                yield shown, digest(_LINK_LABEL, os.fsencode(os.readlink(inner)))  # noqa: PTH115
            elif name not in directories and (content := files.digest(inner)) is not None:
                yield shown, content


def _refuse(error: OSError) -> None:
    raise FileUnreadable(
        f"{error.filename} cannot be read: {error.strerror or error}",
        hint="check its permissions",
        details={"path": str(error.filename), "errno": error.errno},
    ) from error


def list_digest(content: Mapping[str, bytes]) -> str:
    """One digest for many files: their paths and what is in them."""
    listed = [[_shown(path), digest_text(each)] for path, each in content.items()]
    return digest_text(digest(LIST_LABEL, sha256(json_encode(listed))))


def _shown(path: str) -> str:
    """A path as JSON can hold it: bytes that are not text are written as escapes."""
    return path if path.isprintable() and path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")
