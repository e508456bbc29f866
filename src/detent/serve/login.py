"""Login links: a token that works once, for ten minutes, for a user who can read the home.

A link is a small file in the home with the digest of its token. The server uses one up by removing the file, which exactly one request
can do. So `detent serve --login` needs no way to the running server but the home, and a link made before a restart works after it.

The token is in the fragment of the address: browsers do not send that, so it reaches no log and no proxy.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Final

from detent.access.tokens import ID_BYTES, LOGIN, SECRET_BYTES, Token, make_token
from detent.owner.names import DIRECTORY
from detent.store.files import read_no_follow, replace_no_follow

LOGINS: Final = "logins"
LINK_FILE: Final = "login"
LASTS_MS: Final = 10 * 60_000
LINKS_MAX: Final = 100


def make_login(home: Path, *, now_ms: int) -> Token:
    """A token for one login, known to whatever serves this home."""
    directory = home / DIRECTORY / LOGINS
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    _sweep(directory, now_ms)
    token = make_token(LOGIN, secrets.token_bytes(ID_BYTES + SECRET_BYTES))
    kept = {"digest": token.digest.hex(), "until_ms": now_ms + LASTS_MS}
    replace_no_follow(directory / token.token_id, json.dumps(kept).encode())
    return token


def use_login(home: Path, token: Token, *, now_ms: int) -> bool:
    """Whether a token is good for a login, which uses it up."""
    path = home / DIRECTORY / LOGINS / token.token_id
    kept = _read(path)
    if kept is None or not token.fits(kept[0]) or now_ms >= kept[1]:
        return False
    try:
        path.unlink()
    except OSError:
        return False  # Another request was quicker, or the home cannot be written.
    return True


def link(url: str, token: Token) -> str:
    """The address to open."""
    return f"{url}/login#{token.text}"


def _read(path: Path) -> tuple[bytes, int] | None:
    try:
        kept = json.loads(read_no_follow(path))
        return bytes.fromhex(kept["digest"]), int(kept["until_ms"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sweep(directory: Path, now_ms: int) -> None:
    """Remove links that are over, and the oldest of too many."""
    known = sorted(((_read(path) or (b"", 0))[1], path) for path in directory.iterdir())
    for until_ms, path in known:
        if until_ms <= now_ms or len(known) >= LINKS_MAX:
            path.unlink(missing_ok=True)
