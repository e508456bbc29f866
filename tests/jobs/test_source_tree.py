"""Source trees: which lists can be laid out, which are refused, and that the digest names the list."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.canon import digest_text, sha256
from detent.errors import DetentError, InvalidInput, StoreCorrupt
from detent.jobs import source_tree as trees
from detent.jobs.order import Call, Order, read_order
from detent.jobs.source_tree import (
    TreeFile,
    base_below,
    base_in,
    place_below,
    read_base,
    read_tree,
    source_tree,
    stored_base,
    tree_of,
)
from detent.store.content import ContentFiles
from detent.store.streams import VerifiedStream
from detent.store.trees import laid_out

EMPTY = sha256(b"")
TRAVERSING = [
    *("", ".", "..", "/", "/etc/passwd", "//etc/passwd", "../x", "a/../b", "a/..", "a/./b", "./a", "a//b", "a/"),
    *(
        "..\\x",
        "a\\b",
        "C:\\x",
        "a\0b",
        "a\nb",
        "a\x7f",
        "\x1b[0m",
        "a/../../b",
        "\ud800",
        "x" * 256,
        "/".join("x" * 600),
    ),
    *("...//..", "..//", "a/b/../../..", "\t", "a/\r", "a/b/.", ".//.", "../", "/..", "/.", "a\x00/../b"),
    *(None, 3, b"a", ["a"]),
]


def file(path: object, data: bytes = b"", **more: bool) -> TreeFile:
    return TreeFile(path, sha256(data), len(data), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", TRAVERSING, ids=repr)
def test_a_path_that_is_not_plain_is_refused(path: object) -> None:
    with pytest.raises((InvalidInput, TypeError)) as raised:
        source_tree([file(path)])
    assert getattr(raised.value, "code", "TREE_INVALID") == "TREE_INVALID"


@pytest.mark.parametrize(
    "path", ["a", "a/b.py", "...", "..a", "a b", "ü/é.py", ".hidden", "a..b", "-rf", "~", "$HOME", "%2e%2e"]
)
def test_a_plain_path_is_taken_as_it_is(path: str) -> None:
    assert source_tree([file(path)]).files[0].path == path


def test_a_tree_is_named_by_its_list_in_whatever_order_it_is_said() -> None:
    one, other = file("a.py", b"1"), file("b/c.py", b"2", executable=True)
    tree = source_tree([other, one])
    assert tree == source_tree([one, other])
    assert tree.data() == (
        b'{"files":[["a.py",0,"sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",1],'
        b'["b/c.py",1,"sha256:d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35",1]],"version":1}'
    )
    assert read_tree(tree.data()) == tree


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        (("a", "a"), "there twice"),
        (("a", "a/b"), "a file and a directory"),
        (("a/b/c", "a/b"), "a file and a directory"),
    ],
)
def test_a_tree_that_cannot_be_laid_out_is_refused(paths: tuple[str, ...], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        source_tree([file(path) for path in paths])


def test_a_tree_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "FILES_MAX", 2)
    with pytest.raises(InvalidInput, match="at most 2 files, not 3"):
        source_tree([file(name) for name in "abc"])
    monkeypatch.setattr(trees, "TREE_BYTES_MAX", 5)
    with pytest.raises(InvalidInput, match="at most 5 bytes, not 6"):
        source_tree([file("a", b"123"), file("b", b"456")])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"files":[],"version":2}',
        b'{"files":[["a",0]],"version":1}',
        b'{"files": [],"version":1}',
        b'{"files":[["a",2,"sha256:' + b"0" * 64 + b'",0]],"version":1}',
        b'{"files":[["a",0,"sha256:' + b"0" * 64 + b'",-1]],"version":1}',
        b'{"files":[["../a",0,"sha256:' + b"0" * 64 + b'",0]],"version":1}',
    ],
)
def test_a_list_that_is_not_one_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        read_tree(data)


def test_a_tree_is_laid_out_once_read_only_and_checked(tmp_path: Path) -> None:
    content = ContentFiles(tmp_path / "content")
    for data in (b"one", b"two"):
        content.put(data)
    tree = source_tree([file("a.py", b"one"), file("b/run.sh", b"two", executable=True)])
    place = laid_out(tmp_path, tree, content)
    assert place == laid_out(tmp_path, tree, content)
    assert [(place / name).read_bytes() for name in ("a.py", "b/run.sh")] == [b"one", b"two"]
    assert [(place / name).stat().st_mode & 0o777 for name in ("a.py", "b/run.sh")] == [0o444, 0o555]
    assert [path.name for path in (tmp_path / "trees").iterdir()] == [tree.digest().hex()]


def test_a_tree_that_another_laid_out_meanwhile_stays_in_its_place(tmp_path: Path) -> None:
    """Jobs may run in it: two threads of a worker that fetch the same tree must not take it away from under them."""
    tree = source_tree([file("a.py", b"first"), file("b.py", b"second")])
    inodes: list[int] = []

    class Overtaken(ContentFiles):
        def stream(self, digest: bytes) -> VerifiedStream | None:
            if not inodes:
                inodes.append(laid_out(tmp_path, tree, ContentFiles(tmp_path / "content")).stat().st_ino)
            return super().stream(digest)

    content = Overtaken(tmp_path / "content")
    content.put(b"first")
    content.put(b"second")
    assert [laid_out(tmp_path, tree, content).stat().st_ino] == inodes


def test_a_tree_with_wrong_or_missing_bytes_is_not_laid_out(tmp_path: Path) -> None:
    content = ContentFiles(tmp_path / "content")
    with pytest.raises(InvalidInput, match="not stored here"):
        laid_out(tmp_path, source_tree([file("a", b"gone")]), content)
    content.put(b"long")
    with pytest.raises(StoreCorrupt, match="says 1"):
        laid_out(tmp_path, source_tree([TreeFile("a", sha256(b"long"), 1)]), content)
    stored = content.path(sha256(b"long"))
    stored.chmod(0o600)
    stored.write_bytes(b"lies")
    with pytest.raises(StoreCorrupt):
        laid_out(tmp_path, source_tree([file("a", b"long")]), content)
    assert list((tmp_path / "trees").iterdir()) == []


TREE = bytes(range(32))


@pytest.mark.parametrize("path", ["", "lib", "lib/deep"])
def test_a_base_in_a_tree_is_stored_as_the_tree_and_placed_where_trees_are(path: str) -> None:
    base = base_in(TREE, path)
    place = f"/home/trees/{TREE.hex()}" + (f"/{path}" if path else "")
    assert tree_of(base) == (TREE, path)
    assert read_base(stored_base(base)) == base
    assert stored_base(base)["$tree"] == digest_text(TREE)
    assert place_below("/home/trees/", base) == place
    assert base_below("/home/trees/", place) == base
    order = Order(Call(kind="python", target="m:f", base=base), "f")
    assert order.document()["base"] == stored_base(base)
    assert read_order(order.document()) == order


@pytest.mark.parametrize("base", [None, "/srv/project", "/home/trees/short", f"/other/trees/{TREE.hex()}"])
def test_a_directory_of_a_machine_stays_one(base: str | None) -> None:
    assert tree_of(base) is None
    assert place_below("/home/trees/", base) == base
    assert base is None or base_below("/home/trees/", base) == base


@pytest.mark.parametrize(
    "stored",
    [
        *({}, {"$tree": "sha256:00"}, {"$tree": digest_text(TREE), "path": "../up"}, {"path": "lib"}, [], 7),
        {"$tree": digest_text(TREE), "more": 1},
    ],
)
def test_what_is_not_a_base_is_refused(stored: object) -> None:
    with pytest.raises(DetentError):
        read_order({"version": 1, "kind": "python", "target": "m:f", "label": "f", "base": stored})
