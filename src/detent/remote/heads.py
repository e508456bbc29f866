"""Tree heads that this user has seen of servers: a server that was put back to an older copy, or shows another history, is noticed.

A server could forget, by malice or from a backup, and sign a shorter history that verifies by itself. What a client has seen of it is still
here: one small file for each ledger in the user's state directory. With each first contact, and after each silence of the server, its newest
signed head is compared: it must go on from the one that is kept, by an RFC 6962 consistency proof.

Every key may read heads, and so may every worker (`ToClient`, `SignedRequests`). The file goes by the name of the ledger, which its root key decides: a server that shows a ledger of another name
is another ledger, about which nothing is known yet.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from detent.canon.merkle import verify_consistency
from detent.errors import DetentError, HomeError, RolledBack
from detent.ledger.batch import tree_origin
from detent.ledger.note import NoteInvalid, TreeHead, parse_head, parse_note
from detent.owner.state_directory import KeptHeads, state_directory
from detent.remote.problems import AnswerInvalid

if TYPE_CHECKING:
    from detent.remote.http import Http

PARTITION: Final = 0
_NOT_TOLD: Final = frozenset({"FORBIDDEN", "UNAUTHENTICATED"})
"""A server of an older version, which told heads to few; or the key is refused altogether, which the request itself will tell."""


def servers_directory(environment: Mapping[str, str]) -> Path:
    """Where heads of servers are kept: beside those of the homes of this machine, whose owners write theirs themselves."""
    return state_directory(environment).parent / "servers"


class Teller(Protocol):
    """Who tells the heads of a ledger: a server, to a client or to a worker."""

    @property
    def url(self) -> str:
        """Where it is."""

    def newest(self) -> object:
        """The note of the newest head; None where none was signed yet, or where it is not told."""

    def proof(self, first: int, second: int) -> object:
        """A document whose `path` proves that the first ``second`` batches go on from the first ``first``."""


class ToClient:
    """A server that tells heads to everyone with a key."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self.url = http.address.url

    def newest(self) -> object:
        """The note of the newest head."""
        try:
            return self._http.get("/v1/ledger/head", {"partition": PARTITION})["note"]
        except DetentError as exc:
            if exc.code in _NOT_TOLD:
                return None
            raise

    def proof(self, first: int, second: int) -> object:
        """That one head continues another."""
        query = {"partition": PARTITION, "from_size": first, "to_size": second}
        return self._http.get("/v1/ledger/consistency", query)


def check_head(http: Http) -> None:
    """Compare a server's newest head with the one that is kept, and keep it. Raises `RolledBack`."""
    compare_head(ToClient(http))


def compare_head(teller: Teller) -> None:
    """The same, from whichever side the server is asked.

    Where nothing can be kept, as in a container without a writable home, nothing is compared either.
    """
    head = _newest(teller)
    if head is None:
        return
    keeper = KeptHeads(servers_directory(os.environ), head.of.origin)
    kept = _kept(keeper)
    if kept is not None and kept.of.size > head.of.size:
        # Another process may have kept a newer head meanwhile; the server knows it, too.
        head = _newest(teller) or head
    if kept is not None:
        _insist_on_same(teller, keeper, kept.of, head.of)
    _keep(keeper, head)


@dataclass(frozen=True, slots=True)
class Seen:
    """A tree head as it is signed, and as it reads."""

    note: str
    of: TreeHead

    @classmethod
    def read(cls, note: object, url: str) -> Seen:
        """A note of a server; `AnswerInvalid` where it is not one."""
        try:
            return cls(str(note), parse_head(parse_note(str(note)).text))
        except NoteInvalid as exc:
            raise AnswerInvalid(f"the tree head of {url} cannot be read: {exc}") from exc

    def insist_on(self, http: Http, note: str) -> int:
        """Insist that a head, which a bundle leads to, is of one history with this one, which is kept. Gives the size of this one.

        A bundle may lead to an older head than the kept one. That the server did not go back is checked with each first contact
        (`compare_head`).
        """
        keeper = KeptHeads(servers_directory(os.environ), self.of.origin)
        older, newer = sorted((self.of, Seen.read(note, http.address.url).of), key=lambda head: head.size)
        _insist_on_same(ToClient(http), keeper, older, newer)
        return self.of.size


def kept_head(origin: str) -> Seen | None:
    """What is kept of a ledger by its name."""
    return _kept(KeptHeads(servers_directory(os.environ), tree_origin(origin, PARTITION)))


def _keep(keeper: KeptHeads, head: Seen) -> None:
    with suppress(HomeError):
        keeper.keep(PARTITION, head.of.size, head.note)


def _newest(teller: Teller) -> Seen | None:
    note = teller.newest()
    return None if note is None else Seen.read(note, teller.url)


def _kept(keeper: KeptHeads) -> Seen | None:
    found = keeper.heads().get(PARTITION)
    return None if found is None else Seen(found[1], parse_head(parse_note(found[1]).text))


def _insist_on_same(teller: Teller, keeper: KeptHeads, kept: TreeHead, seen: TreeHead) -> None:
    if seen.size < kept.size:
        raise _rolled_back(
            teller,
            keeper,
            f"its ledger had {kept.size:,} batches when it was last seen from here, and has {seen.size:,} now",
        )
    if seen.size == kept.size:
        same = seen.root == kept.root
    else:
        path = _hashes(teller.proof(kept.size, seen.size))
        same = verify_consistency(kept.size, kept.root, seen.size, seen.root, path)
    if not same:
        raise _rolled_back(teller, keeper, f"its first {kept.size:,} batches are not those that were seen from here")


def _hashes(proof: Any) -> list[bytes]:
    try:
        return [b64decode(one, validate=True) for one in proof["path"]]
    except (KeyError, TypeError, ValueError, binascii.Error) as exc:
        raise AnswerInvalid("the server's consistency proof cannot be read") from exc


def _rolled_back(teller: Teller, keeper: KeptHeads, what: str) -> RolledBack:
    return RolledBack(
        f"{teller.url} does not go on from the history that it showed before: {what}",
        hint="an older copy was put in its place, or its history was changed: jobs that you know of may be gone. Ask its operator;"
        f" if that was meant, remove {keeper.path} and repeat the command",
    )
