"""Tree heads that this user has seen of servers: a server that was put back to an older copy, or shows another history, is noticed.

A server could forget, by malice or from a backup, and sign a shorter history that verifies by itself. What a client has seen of it is still
here: one small file for each ledger in the user's state directory. With each first contact, and after each silence of the server, its newest
signed head is compared: it must go on from the one that is kept, by an RFC 6962 consistency proof.

A head is read with a key that has `ledger:read`; for other keys nothing is kept or compared. The file goes by the name of the ledger, which
its root key decides: a server that shows a ledger of another name is another ledger, about which nothing is known yet.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detent.canon.merkle import verify_consistency
from detent.errors import DetentError, HomeError, RolledBack
from detent.ledger.note import NoteInvalid, TreeHead, parse_head, parse_note
from detent.owner.state_directory import KeptHeads, state_directory
from detent.remote.problems import AnswerInvalid

if TYPE_CHECKING:
    from detent.remote.http import Http

PARTITION: Final = 0
_NOT_TOLD: Final = frozenset({"FORBIDDEN", "UNAUTHENTICATED", "NOT_FOUND"})
"""The key may not read heads, or is refused altogether, which the request itself will tell."""


def servers_directory(environment: Mapping[str, str]) -> Path:
    """Where heads of servers are kept: beside those of the homes of this machine, whose owners write theirs themselves."""
    return state_directory(environment).parent / "servers"


def check_head(http: Http) -> None:
    """Compare a server's newest head with the one that is kept, and keep it. Raises `RolledBack`.

    Where nothing can be kept, as in a container without a writable home, nothing is compared either.
    """
    try:
        head = _head(http)
        if head is None:
            return
        note, seen = head
        keeper = KeptHeads(servers_directory(os.environ), seen.origin)
        kept = _kept(keeper)
        if kept is not None and kept.size > seen.size:
            # Another process may have kept a newer head meanwhile; the server knows it, too.
            note, seen = _head(http) or head
        if kept is not None:
            _insist_on_same(http, keeper, kept, seen)
    except DetentError as exc:
        if exc.code in _NOT_TOLD:
            return
        raise
    with suppress(HomeError):
        keeper.keep(PARTITION, seen.size, note)


def _head(http: Http) -> tuple[str, TreeHead] | None:
    note = http.get("/v1/ledger/head", {"partition": PARTITION})["note"]
    if note is None:
        return None  # Nothing was signed yet.
    try:
        return note, parse_head(parse_note(note).text)
    except (NoteInvalid, TypeError) as exc:
        raise AnswerInvalid(f"the tree head of {http.address.url} cannot be read: {exc}") from exc


def _kept(keeper: KeptHeads) -> TreeHead | None:
    found = keeper.heads().get(PARTITION)
    return None if found is None else parse_head(parse_note(found[1]).text)


def _insist_on_same(http: Http, keeper: KeptHeads, kept: TreeHead, seen: TreeHead) -> None:
    if seen.size < kept.size:
        raise _rolled_back(
            http,
            keeper,
            f"its ledger had {kept.size:,} batches when it was last seen from here, and has {seen.size:,} now",
        )
    if seen.size == kept.size:
        same = seen.root == kept.root
    else:
        query = {"partition": PARTITION, "from_size": kept.size, "to_size": seen.size}
        path = _hashes(http.get("/v1/ledger/consistency", query))
        same = verify_consistency(kept.size, kept.root, seen.size, seen.root, path)
    if not same:
        raise _rolled_back(http, keeper, f"its first {kept.size:,} batches are not those that were seen from here")


def _hashes(proof: Any) -> list[bytes]:
    try:
        return [b64decode(one, validate=True) for one in proof["path"]]
    except (KeyError, TypeError, ValueError, binascii.Error) as exc:
        raise AnswerInvalid("the server's consistency proof cannot be read") from exc


def _rolled_back(http: Http, keeper: KeptHeads, what: str) -> RolledBack:
    return RolledBack(
        f"{http.address.url} does not go on from the history that it showed before: {what}",
        hint="an older copy was put in its place, or its history was changed: jobs that you know of may be gone. Ask its operator;"
        f" if that was meant, remove {keeper.path} and repeat the command",
    )
