"""Small projects on disk for the tests of code digests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from detent.reuse.ingredients import CodeDigest, CodeReader


def write(base: Path, files: Mapping[str, str]) -> Path:
    """Write files under a directory, folders made as needed, indentation of the test taken off."""
    for name, text in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return base


def edit(base: Path, name: str, old: str, new: str) -> None:
    """Replace a piece of a file that is there exactly once."""
    text = (base / name).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {name}"
    (base / name).write_text(text.replace(old, new), encoding="utf-8")


def look(base: Path, target: str = "pipeline:step", path: tuple[str, ...] = ()) -> CodeDigest:
    """A fresh look, which finds nothing but the project and Python itself."""
    return CodeReader(base, path=path).digest(target)


def resolved(base: Path, target: str = "pipeline:step", path: tuple[str, ...] = ()) -> bytes:
    """The digest of a target that can be read whole."""
    code = look(base, target, path)
    assert code.unresolved == ()
    assert code.digest is not None
    return code.digest
