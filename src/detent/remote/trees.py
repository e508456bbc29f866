"""The code of a run on its way to a server: a source tree by digests, never an archive.

A tree is the contract file and the Python files of its directory and below, without hidden directories, caches and virtual environments. The
server says which of them it lacks, and those are sent; code that has not changed travels once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detent.canon import digest_text, sha256
from detent.errors import InvalidInput
from detent.jobs.source_tree import FILES_MAX, TREE_BYTES_MAX, TreeFile, source_tree

if TYPE_CHECKING:
    from detent.remote.http import Http

_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
OCTETS: Final = "application/octet-stream"


def send_tree(http: Http, contract: Path) -> dict[str, Any]:
    """Send the code of a contract file, and give what names it in a run."""
    base = contract.parent
    data = {path.relative_to(base).as_posix(): path.read_bytes() for path in _files(contract)}
    if sum(map(len, data.values())) > TREE_BYTES_MAX:
        raise InvalidInput(
            f"the code below {base} has more than {TREE_BYTES_MAX:,} bytes", hint="move the contract beside its code"
        )
    files = [
        TreeFile(path, sha256(content), len(content), os.access(base / path, os.X_OK)) for path, content in data.items()
    ]
    tree = source_tree(files)
    listed = [
        {
            "path": one.path,
            "digest": digest_text(one.digest),
            "size_bytes": one.size_bytes,
            "executable": one.executable,
        }
        for one in files
    ]
    missing = http.post("/v1/trees:missing", {"files": listed})
    bodies = {digest_text(sha256(content)): content for content in data.values()}
    bodies[digest_text(tree.digest())] = tree.data()
    for digest in missing["missing"]:
        http.ask("PUT", f"/v1/uploads/{digest}", data=bodies[digest], media_type=OCTETS)
    return {"tree": digest_text(tree.digest()), "entry": contract.name}


def _files(contract: Path) -> Iterator[Path]:
    """The contract and the Python files beside and below it, in order."""
    yield contract
    count = 1
    for directory, below, names in os.walk(contract.parent):
        below[:] = sorted(name for name in below if not name.startswith(".") and name not in _LEFT_OUT)
        for name in sorted(names):
            path = Path(directory) / name
            if path.suffix == ".py" and path != contract and path.is_file() and not path.is_symlink():
                count += 1
                if count > FILES_MAX:
                    raise InvalidInput(
                        f"there are more than {FILES_MAX:,} Python files below {contract.parent}",
                        hint="move the contract into the directory of its code",
                    )
                yield path
