"""The code of a run on its way to a server: a source tree by digests, never an archive.

A tree is the contract, the Python files of its directory and below, and the files there that steps declare as `inputs`. Hidden
directories, caches and virtual environments stay here, and so does every other file: `SourceTree.left_out` names them, so that a user
is told before anything is sent. The server says which files it lacks, and those are sent; code that has not changed travels once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detent.canon import digest_text, sha256
from detent.canon.strict_json import JsonValue
from detent.contract.references import argument_names
from detent.errors import InvalidInput
from detent.jobs.source_tree import FILES_MAX, TREE_BYTES_MAX, TreeFile, source_tree
from detent.remote.uploads import Uploads
from detent.words.quantities import count_text, size_text

if TYPE_CHECKING:
    from detent.contract.model import Binding, Contract
    from detent.remote.http import Http

_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
NAMED_MAX: Final = 3
"""Files that are left out and named."""


@dataclass(slots=True)
class Tree:
    """A contract with its code, before it is sent."""

    base: Path
    entry: str
    """The name of the contract in the tree."""
    text: bytes
    files: list[str] = field(default_factory=list)
    """Paths below the base, beside the contract itself."""
    left_out: list[str] = field(default_factory=list)
    """Files that stay here, by path; the first of them."""
    left_out_count: int = 0

    def left_out_text(self) -> str | None:
        """What a user should know of the files that stay here; None when there are none."""
        if not self.left_out_count:
            return None
        named = ", ".join(self.left_out[:NAMED_MAX]) + (", ..." if self.left_out_count > NAMED_MAX else "")
        sent = f"{count_text(len(self.files) + 1, 'file')} of {self.base}"
        stay = "stays" if self.left_out_count == 1 else "stay"
        return (
            f"sending {sent}; {count_text(self.left_out_count, 'other file')} there {stay} here ({named});"
            " name data under `inputs:` of a step to send it"
        )


def tree_of(base: Path, entry: str, text: bytes, contract: Contract, params: Mapping[str, JsonValue]) -> Tree:
    """What goes to a server with a contract: ``text`` is the contract itself, under the name ``entry``."""
    tree = Tree(base, entry, text)
    declared = set(_declared(base, contract, params))
    for path in _walk(base):
        name = path.relative_to(base).as_posix()
        if name == entry:
            continue
        if path.suffix == ".py" or name in declared:
            tree.files.append(name)
        else:
            tree.left_out_count += 1
            tree.left_out += [name] if len(tree.left_out) < NAMED_MAX else []
        if len(tree.files) >= FILES_MAX:
            raise InvalidInput(
                f"there are more than {FILES_MAX:,} files to be sent below {base}",
                hint="move the contract into the directory of its code",
            )
    return tree


def send_tree(http: Http, tree: Tree) -> dict[str, Any]:
    """Send a contract with its code, and give what names it in a run."""
    data = {tree.entry: tree.text}
    size_bytes = 0
    for name in tree.files:
        data[name] = (tree.base / name).read_bytes()
        size_bytes += len(data[name])
        if size_bytes > TREE_BYTES_MAX:
            raise InvalidInput(
                f"the files to be sent below {tree.base} have more than {size_text(TREE_BYTES_MAX)}",
                hint="move the contract beside its code, or pass large data as a detent.File",
            )
    files = [
        TreeFile(path, sha256(content), len(content), path != tree.entry and os.access(tree.base / path, os.X_OK))
        for path, content in data.items()
    ]
    listed = [
        {
            "path": one.path,
            "digest": digest_text(one.digest),
            "size_bytes": one.size_bytes,
            "executable": one.executable,
        }
        for one in files
    ]
    made = source_tree(files)
    missing = http.post("/v1/trees:missing", {"files": listed})["missing"]
    bodies = {digest_text(one.digest): data[one.path] for one in files}
    bodies[digest_text(made.digest())] = made.data()
    uploads = Uploads(http)
    for digest in missing:
        uploads.send(bodies[digest], bytes.fromhex(digest.removeprefix("sha256:")))
    return {"tree": digest_text(made.digest()), "entry": tree.entry}


def _walk(base: Path) -> Iterator[Path]:
    """The files below a directory, in order; links are not followed."""
    for directory, below, names in os.walk(base):
        below[:] = sorted(name for name in below if not name.startswith(".") and name not in _LEFT_OUT)
        for name in sorted(names):
            path = Path(directory) / name
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


def _declared(base: Path, contract: Contract, params: Mapping[str, JsonValue]) -> Iterator[str]:
    """The files below the base that steps declare as inputs, by path; those that an argument names as far as it is known now."""
    for binding in contract.bindings.values():
        for pattern in _patterns(binding, params):
            where = (base / (binding.cwd or "")).resolve()
            if Path(pattern).is_absolute() or not where.is_relative_to(base.resolve()):
                continue
            for found in sorted(where.glob(pattern)):
                below = [found] if found.is_file() else [one for one in _walk(found) if found.is_dir()]
                yield from (
                    one.relative_to(base.resolve()).as_posix() for one in below if one.is_relative_to(base.resolve())
                )


def _patterns(binding: Binding, params: Mapping[str, JsonValue]) -> Iterator[str]:
    for template in binding.inputs or ():
        written = template
        for name in argument_names([template]):
            given = binding.arguments[int(name) - 1] if name.isdigit() else binding.keywords.get(name)
            if isinstance(given, dict) and set(given) == {"$param"}:
                given = params.get(str(given["$param"]))
            if not isinstance(given, str):
                break
            written = written.replace("{" + name + "}", given)
        else:
            if ".." not in Path(written).parts:
                yield written
