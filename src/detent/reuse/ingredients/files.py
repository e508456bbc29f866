"""Files by content: digests, and the declared inputs and outputs of a step.

Digests of files by content, remembered as long as a file looks the same.

A file looks the same while its times, size and inode are. A file that is changed twice within one tick of its clock looks
the same after both, so what was hashed within two seconds of its last change is not remembered (git has the same rule).

A path that is not a file (a pipe, a device) is refused without waiting, and so is a file that keeps changing while it is
read. Links are followed: it is the content that counts.

Declared inputs and outputs of a step: from paths, directories and globs to digests by content (X-175).

A path that is a directory stands for every file below it, hidden ones too; links to directories inside it count as links
and are not entered. A glob is Python's: ``*`` stays within a directory, ``**`` does not, hidden files are not matched.
"""

from __future__ import annotations

import glob
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from detent.canon import digest, digest_text, json_encode, sha256
from detent.canon.late import NamedTuple
from detent.errors import DetentError, InvalidInput
from detent.jobs.order import GLOB

RACY_NS: Final = 2_000_000_000
TRIES: Final = 3
"""How often a file is read again that changed meanwhile."""
_CHUNK_BYTES: Final = 1 << 20


class FileUnreadable(DetentError):
    """A file that is there cannot be hashed: no permission, no regular file, or a failing disk."""

    code = "DEPENDENCY_MISSING"


class FileUnsettled(FileUnreadable):
    """A file changes while it is read. Once its writer is done, trying again works."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} changes while it is read",
            hint="wait until its writer has finished, or declare it as an output of the step that writes it",
            details={"path": path},
            retryable=True,
        )


class _Look(NamedTuple):
    """How a file looks from outside."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    device: int


class FileDigests:
    """SHA-256 of files. ``now_ns`` is the wall clock, which the times of files are compared with."""

    def __init__(self, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._known: dict[str, tuple[_Look, bytes]] = {}
        self.hashed = 0
        """How many files were read so far."""

    def digest(self, path: str | os.PathLike[str]) -> bytes | None:
        """The digest of a file's bytes; None when there is no such file, or a link that leads nowhere.

        Raises `FileUnreadable` for what is there and cannot be hashed.
        """
        name = os.path.abspath(path)  # noqa: PTH100
        try:
            known = self._known.get(name)
            if known is not None and known[0] == _look(os.stat(name)):  # noqa: PTH116 - thousands of texts, no paths are made of them
                return known[1]
            return self._hash(name)
        except (FileNotFoundError, NotADirectoryError):
            self._known.pop(name, None)
            return None
        except OSError as exc:
            raise FileUnreadable(
                f"{name} cannot be read: {exc.strerror or exc}",
                hint="check its permissions",
                details={"path": name, "errno": exc.errno},
            ) from exc
        except ValueError as exc:  # A path with a zero byte.
            raise FileUnreadable(f"{name!r:.80} is not a path: {exc}", details={"path": name}) from exc

    def _hash(self, name: str) -> bytes:
        self._known.pop(name, None)
        for _ in range(TRIES):
            # Opening a pipe would otherwise wait for a writer.
            handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with open(handle, "rb", buffering=0) as file:  # noqa: PTH123
                before = os.fstat(handle)
                if not stat.S_ISREG(before.st_mode):
                    raise FileUnreadable(
                        f"{name} is {_kind(before.st_mode)}, not a file", details={"path": name}, hint="name files only"
                    )
                begun_ns = self._now_ns()
                found, size = _read(file.readinto)
                look = _look(before)
                self.hashed += 1
                if size == before.st_size and look == _look(os.fstat(handle)):
                    if max(look.mtime_ns, look.ctime_ns) < begun_ns - RACY_NS:
                        self._known[name] = (look, found)
                    return found
        raise FileUnsettled(name)


def _read(read_into: Callable[[memoryview], int | None]) -> tuple[bytes, int]:
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    digest = hashlib.sha256()
    size = 0
    while count := read_into(buffer):
        digest.update(buffer[:count])
        size += count
    return digest.digest(), size


def _look(found: os.stat_result) -> _Look:
    return _Look(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)


def _kind(mode: int) -> str:
    names = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return names.get(stat.S_IFMT(mode), "a device")


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
