"""Source trees: the code of a run as a list of files by digest, so that code travels as content and never as an archive.

A tree is a canonical list of (path, whether it can be executed, digest, size), in the order of its paths. The list is content itself, and
its digest names the tree. Paths are plain components: nothing in a tree can leave the directory that it is laid out in, be there
twice, or be a file and a directory at once. Nothing is normalised: a path that is not plain is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from detent.canon import DIGEST_BYTES, digest_text, json_decode, json_encode, parse_digest, sha256
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput

FILES_MAX: Final = 20_000
TREE_BYTES_MAX: Final = 1024**3
LIST_BYTES_MAX: Final = 16 * 1024 * 1024
PATH_BYTES_MAX: Final = 1_024
NAME_BYTES_MAX: Final = 255
VERSION: Final = 1
BASE: Final = "tree:"
"""How the base of work begins whose code is a source tree, before it is laid out: ``tree:DIGEST`` or ``tree:DIGEST/PATH``."""
NAMED: Final = "$tree"
_HEX: Final = frozenset("0123456789abcdef")
_FIRST_PRINTABLE: Final = 0x20
_DELETE: Final = 0x7F


@dataclass(frozen=True, slots=True)
class TreeFile:
    """One file of a tree."""

    path: str
    digest: bytes
    size_bytes: int
    executable: bool = False


@dataclass(frozen=True, slots=True)
class SourceTree:
    """A tree, checked; its files are in the order of their paths."""

    files: tuple[TreeFile, ...]

    def data(self) -> bytes:
        """The canonical list: what is stored, and what the digest of the tree is made of."""
        rows = [[one.path, int(one.executable), digest_text(one.digest), one.size_bytes] for one in self.files]
        return json_encode({"version": VERSION, "files": rows}, name="tree", bytes_max=LIST_BYTES_MAX)

    def digest(self) -> bytes:
        """What the tree is named by."""
        return sha256(self.data())


def source_tree(files: Iterable[TreeFile]) -> SourceTree:
    """A tree of these files; refuses with `InvalidInput` what cannot be laid out as it says."""
    listed = sorted(files, key=lambda one: one.path)
    if len(listed) > FILES_MAX:
        raise InvalidInput(f"a source tree has at most {FILES_MAX:,} files, not {len(listed):,}", code="TREE_INVALID")
    total, seen = 0, set[str]()
    for one in listed:
        if fault := path_fault(one.path):
            raise InvalidInput(
                f"the path {show(one.path)} {fault}",
                code="TREE_INVALID",
                hint="write paths as plain/components.py, from the top of the tree",
            )
        if one.path in seen:
            raise InvalidInput(f"the path {show(one.path)} is there twice", code="TREE_INVALID")
        seen.add(one.path)
        total += one.size_bytes
    if total > TREE_BYTES_MAX:
        raise InvalidInput(f"a source tree has at most {TREE_BYTES_MAX:,} bytes, not {total:,}", code="TREE_INVALID")
    for path in seen:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            if (above := "/".join(parts[:depth])) in seen:
                raise InvalidInput(f"{show(above)} is a file and a directory of the tree", code="TREE_INVALID")
    return SourceTree(tuple(listed))


def path_fault(path: object) -> str | None:
    """Why a path cannot be one of a tree, in words; None when it can."""
    if type(path) is not str or not path:
        return "is not a text"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "is not Unicode"
    if size > PATH_BYTES_MAX:
        return f"is longer than {PATH_BYTES_MAX:,} bytes"
    if "\\" in path or any(ord(character) < _FIRST_PRINTABLE or ord(character) == _DELETE for character in path):
        return "has a backslash or a control character"
    for name in path.split("/"):
        if name in {"", ".", ".."}:
            return "is not made of plain components"
        if len(name.encode()) > NAME_BYTES_MAX:
            return f"has a component of more than {NAME_BYTES_MAX} bytes"
    return None


def base_in(tree: bytes, path: str = "") -> str:
    """The base of work whose code is in a directory of a tree."""
    return f"{BASE}{digest_text(tree)}{'/' if path else ''}{path}"


def tree_of(base: str | None) -> tuple[bytes, str] | None:
    """The tree that a base names, and the directory in it; None for a base that is a directory of a machine."""
    if base is None or not base.startswith(BASE):
        return None
    digest, _, path = base.removeprefix(BASE).partition("/")
    if path and (fault := path_fault(path)):
        raise InvalidInput(f"the directory {show(path)} of a source tree {fault}", code="TREE_INVALID")
    return parse_digest(digest), path


def base_below(trees: str, base: str) -> str:
    """A directory below the place where trees are laid out, as the tree and the directory in it; any other one as it is."""
    name, _, path = base.removeprefix(trees).partition("/")
    if not base.startswith(trees) or len(name) != 2 * DIGEST_BYTES or not set(name) <= _HEX:
        return base
    return base_in(bytes.fromhex(name), path)


def place_below(trees: str, base: str | None) -> str | None:
    """What `base_below` was made from, on the machine that has its trees there."""
    named = tree_of(base)
    if named is None:
        return base
    return f"{trees}{named[0].hex()}{'/' if named[1] else ''}{named[1]}"


def stored_base(base: str) -> dict[str, str]:
    """The same as an order holds it: ``{"$tree": DIGEST, "path": PATH}``."""
    digest, _, path = base.removeprefix(BASE).partition("/")
    return {NAMED: digest, "path": path} if path else {NAMED: digest}


def read_base(stored: object) -> str:
    """A base from what `stored_base` made."""
    if not isinstance(stored, dict) or not {NAMED} <= stored.keys() <= {NAMED, "path"}:
        raise InvalidInput(f"the base of a work order is a text or a source tree, not {show(stored)}")
    base = base_in(parse_digest(stored[NAMED]), str(stored.get("path", "")))
    tree_of(base)
    return base


def read_tree(data: bytes) -> SourceTree:
    """The tree in a stored list; `InvalidInput` for anything that `SourceTree.data` did not write."""
    document: Any = json_decode(data, name="tree", bytes_max=LIST_BYTES_MAX)
    if not isinstance(document, Mapping) or document.keys() != {"version", "files"} or document["version"] != VERSION:
        raise InvalidInput("the content is not the list of a source tree", code="TREE_INVALID")
    tree = source_tree([_row(row) for row in document["files"]] if isinstance(document["files"], list) else [])
    if tree.data() != data:
        raise InvalidInput("the list of the source tree is not canonical", code="TREE_INVALID")
    return tree


def _row(row: object) -> TreeFile:
    if not isinstance(row, Sequence) or len(row) != 4:
        raise InvalidInput(
            "a file of a source tree is a list of path, executable, digest and size", code="TREE_INVALID"
        )
    path, executable, digest, size_bytes = row
    if executable not in {0, 1} or type(size_bytes) is not int or not 0 <= size_bytes <= TREE_BYTES_MAX:
        raise InvalidInput(f"the file {show(path)} of a source tree has a wrong mode or size", code="TREE_INVALID")
    return TreeFile(path, parse_digest(digest), size_bytes, executable == 1)
