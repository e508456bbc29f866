"""The program that stores a file and dies, or is not let do it. Prints what came of it, if it comes to that.

``kill POINT COUNT DIRECTORY FILE``: ends itself with SIGKILL the n-th time the store passes a point, or right after it.
``full BYTES DIRECTORY FILE``: no file of this process may become larger.
``user DIRECTORY FILE DIGEST``: an ordinary user in a directory that is not his: tries to put, then to read a digest.
``memory DIRECTORY FILE``, ``memory s3://BUCKET FILE``: the kilobytes that storing and reading back added to its peak.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path

from detent.artifacts.api import DirectoryStore
from detent.artifacts.choose import open_store
from detent.errors import DetentError
from detent.store.content import ContentFiles
from detent.store.files import DiskFiles, NewFile

USER = 65_534


class DyingFiles(DiskFiles):
    """A disk under a process that ends at a named point."""

    def __init__(self, point: str, count: int) -> None:
        self.point = point
        self.left = count

    def reach(self, point: str) -> None:
        """Die here, if this is the place."""
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def create(self, path: Path, *, streamed: bool = False) -> NewFile:
        file = super().create(path, streamed=streamed)
        self.reach("created")
        return DyingFile(file, self)

    def rename(self, source: Path, target: Path) -> None:
        self.reach("to rename")
        super().rename(source, target)
        self.reach("renamed")

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.reach("directory synced")


class DyingFile:
    """A new file of such a disk."""

    def __init__(self, file: NewFile, files: DyingFiles) -> None:
        self._file = file
        self._files = files

    def write(self, data: bytes | memoryview) -> None:
        half = len(data) // 2
        self._file.write(memoryview(data)[:half])
        self._files.reach("half a piece written")
        self._file.write(memoryview(data)[half:])
        self._files.reach("piece written")

    def sync(self) -> None:
        self._files.reach("to sync")
        self._file.sync()
        self._files.reach("synced")

    def close(self) -> None:
        self._file.close()


def said(work: object) -> str:
    try:
        return repr(work())  # type: ignore[operator]
    except DetentError as exc:
        return exc.code


def peak_kib() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


def main(task: str, *words: str) -> None:
    if task == "kill":
        point, count, directory, file = words
        # The directory is there already, so its making is not counted.
        store = DirectoryStore(ContentFiles(Path(directory), files=DyingFiles(point, int(count))))
        store.put(Path(file))
    elif task == "full":
        limit, directory, file = words
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
        store = DirectoryStore(Path(directory))
        sys.stdout.write(json.dumps({"put": said(lambda: store.put(Path(file)).size_bytes)}))
    elif task == "user":
        directory, file, digest = words
        data = Path(file).read_bytes()
        if os.getuid() == 0:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
        store = DirectoryStore(Path(directory))
        wanted = bytes.fromhex(digest)
        asked = {
            "put": lambda: store.put(data).size_bytes,
            "delete": lambda: store.delete(wanted),
            "read": lambda: store.read_bytes(wanted),
        }
        sys.stdout.write(json.dumps({name: said(work) for name, work in asked.items()}))
    else:
        place, file = words
        kept = open_store(place if place.startswith("s3:") else Path(place))
        kept.put(b"small, so that everything is loaded")
        before = peak_kib()
        stream = kept.open(kept.put(Path(file)).digest)
        assert stream is not None
        size = sum(map(len, iter(stream.read1, b"")))
        sys.stdout.write(json.dumps({"size": size, "added_kib": peak_kib() - before}))


if __name__ == "__main__":
    main(*sys.argv[1:])
