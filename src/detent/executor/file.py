"""`detent.File`: bytes that travel between tasks by digest: images, tables, models, anything that is not a JSON value (X-170)."""

from __future__ import annotations

import hashlib
import io
import mimetypes
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from detent.errors import DetentError, InvalidInput

if TYPE_CHECKING:
    from detent.store.content import ContentFiles

UNKNOWN_TYPE: Final = "application/octet-stream"
_PREFIX: Final = "sha256:"
NAME_CHARS_MAX: Final = 255


class FileMissing(DetentError):
    """A file that a value names is not in the content store."""

    code = "DEPENDENCY_MISSING"


class FileChanged(DetentError):
    """A file does not have the bytes that it is named for."""

    code = "DEPENDENCY_MISMATCH"


class File:
    """A file as an argument or a result of tasks: ``File("plot.png")``, or `File.from_bytes`.

    The file itself is read when the value is handed on, once; from then on its bytes are in the content store, where nothing
    changes them. A task that is given a `File` reads it with `read_bytes`, `open`, or through `path`, which must not be written
    to. What is read from the store is checked against its digest first.
    """

    __slots__ = ("_content", "_data", "_digest", "_is_checked", "_path", "_size", "name", "type")

    name: str
    """What the file is called; not where it is."""
    type: str
    """Media type, such as ``image/png``; guessed from the name unless it was given."""

    def __init__(self, path: str | os.PathLike[str], *, name: str | None = None, type: str | None = None) -> None:  # noqa: A002
        self._path: Path | None = Path(path)
        self._data: bytes | None = None
        self._digest: bytes | None = None
        self._size: int | None = None
        self._content: Path | None = None
        self._is_checked = False
        self.name = _checked_name(self._path.name if name is None else name)
        self.type = type_of(self.name) if type is None else type

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, *, name: str = "data", type: str | None = None) -> File:  # noqa: A002
        """A file of these bytes, which need not be on any disk yet."""
        file = cls("", name=name, type=type)
        file._path, file._data = None, bytes(data)
        return file

    @classmethod
    def kept(cls, value: Mapping[str, Any], content: str | os.PathLike[str]) -> File:
        """The file that a stored value names (``{"$file": ...}``), in a content store."""
        digest = value.get("$file")
        if type(digest) is not str or not digest.startswith(_PREFIX) or len(digest) != len(_PREFIX) + 64:
            raise InvalidInput(f"$file needs a digest, not {digest!r:.100}")
        file = cls("", name=str(value.get("name") or "data"), type=str(value.get("type") or "application/octet-stream"))
        file._path, file._digest, file._content = None, bytes.fromhex(digest[len(_PREFIX) :]), Path(content)
        size = value.get("size")
        file._size = size if type(size) is int else None
        return file

    @property
    def path(self) -> Path:
        """Where the bytes are, to be read and never written. A `File` made of bytes has none before it is handed on."""
        if self._path is not None:
            return self._path
        if self._content is None:
            raise InvalidInput(f"{self!r} has no path: it was made from bytes", hint="use read_bytes() or open()")
        return self._checked(self._place())

    @property
    def digest(self) -> str:
        """``sha256:`` and 64 hexadecimal digits."""
        if self._digest is not None:
            return _PREFIX + self._digest.hex()
        with self._readable() as file:
            return _PREFIX + hashlib.file_digest(file, "sha256").hexdigest()

    @property
    def size(self) -> int:
        """The number of bytes."""
        if self._data is not None:
            return len(self._data)
        if self._size is None or self._path is not None:
            return (self._path or self.path).stat().st_size
        return self._size

    def read_bytes(self) -> bytes:
        """All of it."""
        return self._data if self._data is not None else self.path.read_bytes()

    def open(self) -> BinaryIO:
        """The bytes as a stream to read from."""
        return io.BytesIO(self._data) if self._data is not None else self.path.open("rb")

    def named(self) -> dict[str, Any]:
        """The stored value that names the bytes as they are now; they are read and not kept."""
        if self._digest is not None:
            return {"$file": self.digest, "size": self.size, "name": self.name, "type": self.type}
        with self._readable() as file:
            digest = hashlib.file_digest(file, "sha256")
            size = file.seek(0, io.SEEK_END)
        return {"$file": _PREFIX + digest.hexdigest(), "size": size, "name": self.name, "type": self.type}

    def keep(self, content: ContentFiles) -> dict[str, Any]:
        """Make the bytes durable in a content store, and give the stored value that names them there."""
        if self._digest is not None and content.has(self._digest):
            digest, size = self._digest, self.size
        else:
            with self._readable() as file:
                digest, size = content.put_from(file, digest=self._digest)
        return {"$file": _PREFIX + digest.hex(), "size": size, "name": self.name, "type": self.type}

    def __repr__(self) -> str:
        where = "" if self._digest is None else f", {_PREFIX}{self._digest.hex()[:12]}..."
        return f"File({self.name!r}{where})"

    def _readable(self) -> io.BytesIO | io.FileIO:
        if self._data is not None:
            return io.BytesIO(self._data)
        try:
            return io.FileIO(self.path)
        except OSError as exc:
            raise InvalidInput(
                f"cannot read the file {self._path}: {exc.strerror}", hint="write the file before you hand it on"
            ) from exc

    def _place(self) -> Path:
        assert self._content is not None
        assert self._digest is not None
        name = self._digest.hex()
        return self._content / name[:2] / name[2:]

    def _checked(self, path: Path) -> Path:
        """The path, once its bytes are known to be the right ones."""
        if self._is_checked:
            return path
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").digest()
        except OSError as exc:
            raise FileMissing(
                f"{self!r} is not in the content store: {exc.strerror}", hint="run the task that made it again"
            ) from exc
        if found != self._digest:
            raise FileChanged(
                f"{path} does not hold the bytes it is named for",
                hint="remove the file and run the task that made it again",
            )
        self._is_checked = True
        return path


def _checked_name(name: str) -> str:
    if len(name) > NAME_CHARS_MAX or "/" in name or "\0" in name:
        raise InvalidInput(
            f"{name!r:.80} cannot be a file's name", hint=f"at most {NAME_CHARS_MAX} characters, no slash"
        )
    return name


@cache
def _types() -> mimetypes.MimeTypes:
    """Python's own table: what the machine has under /etc would make the same file another one elsewhere."""
    return mimetypes.MimeTypes(filenames=())


def type_of(name: str) -> str:
    """The media type that a name suggests."""
    return _types().guess_type(f"file:{os.path.basename(name)}")[0] or UNKNOWN_TYPE  # noqa: PTH119
