"""A server whose ledger another machine owns: it passes requests on, asks again, and takes over when the owner has ended or is silent.

Only a ledger in a database that several machines share can be owned elsewhere. A database that is restarted meanwhile is waited for as
well. Requests go to the address that the owner itself has signed (`owner/owner_address.py`), and to none else.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from detent.errors import DetentError, StoreUnavailable
from detent.owner.home import Home
from detent.owner.owner_address import Address, holder_of, is_signed_address, parse_address
from detent.owner.routing import FIRST
from detent.owner.session import Session
from detent.owner.wiring import Parts, load_trust
from detent.runs.ending import Ending
from detent.serve.listening import Listening, bound_to, link_advertised
from detent.serve.passing_on import PassingOn
from detent.store.api import LedgerReader

if TYPE_CHECKING:
    from detent.owner.holdings import Holdings

ASK_SECONDS: Final = 0.2
"""How often a server that stands by asks for the ledger, and who owns it."""


class OwnerFinder:
    """Finds the server that owns the first partition, by an address that a key of the ledger has signed."""

    def __init__(self, home: Home, parts: Parts) -> None:
        self._home, self._parts = home, parts
        self._reader: LedgerReader | None = None
        self._signed: tuple[int, str, bytes] | None = None
        """The epoch, address and proof that were found to be signed last."""

    def find(self) -> Address | None:
        """Where the owner takes requests now; None where no server owns the ledger, or none that can be reached from here."""
        if isinstance(self._home.ledger, Path):
            return None
        try:
            if self._reader is None:
                self._reader = self._parts.read_ledger(self._home.ledger)
            return self._found(self._reader)
        except DetentError:  # The database is away, or the ledger not in order: nothing is passed on.
            self.close()
            return None

    def close(self) -> None:
        """Let go of the ledger."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _found(self, reader: LedgerReader) -> Address | None:
        holder = holder_of(reader, FIRST)
        address = None if holder is None else parse_address(holder.address)
        if holder is None or address is None or (_is_loopback(address) and holder.host != socket.gethostname()):
            return None
        said = (holder.epoch, holder.address, holder.proof)
        if said != self._signed:
            trust, position = load_trust(reader, self._home.settings(), FIRST), reader.head(FIRST).size
            if not is_signed_address(trust, position, FIRST, *said):
                return None
            self._signed = said
        return address


class ToldToEnd(KeyboardInterrupt):
    """A signal came while a server stood by."""

    def __init__(self, number: int) -> None:
        self.signal = number


class StandBy:
    """Waits, passes requests on meanwhile, and says once for each owner whose end it waits for.

    A server that has worked already does not wait: it ends. While it stands by, a signal is looked at between two questions to the
    database, never in the middle of one.
    """

    def __init__(
        self, note: Callable[[str], None], finder: OwnerFinder, begin: Callable[[], PassingOn], standing: ExitStack
    ) -> None:
        """``begin`` starts to pass requests on; ``standing`` ends what goes on only while the server stands by."""
        self._note, self._finder, self._begin, self._standing = note, finder, begin, standing
        self._ending = Ending()
        self._passing: PassingOn | None = None
        self._told: set[str] = set()
        self.over = False
        """Whether the server has owned the ledger."""

    @property
    def stood(self) -> bool:
        """Whether it has waited at all."""
        return self._passing is not None

    def __call__(self, refusal: StoreUnavailable) -> None:
        """Wait until it is worth asking again."""
        if self.over:
            raise refusal
        if self._passing is None:
            self._standing.enter_context(self._ending.caught())
            self._standing.callback(self._finder.close)
            self._passing = self._begin()
            self._standing.callback(self._passing.close)
        owner = self._finder.find()
        self._passing.to(owner)
        self._say({f"standing by: {refusal}", *([] if owner is None else [f"requests are passed on to {owner}"])})
        self._ending.asked.wait(ASK_SECONDS)
        self.insist_on_going_on()

    def insist_on_going_on(self) -> None:
        """Raise if a signal has come since it began to stand by."""
        if self._ending.asked.is_set():
            raise ToldToEnd(self._ending.signal)

    def _say(self, now: set[str]) -> None:
        for text in sorted(now - self._told, reverse=True):
            self._note(text)
        self._told = now


@contextmanager
def shared_partitions(home: Home, parts: Parts, listening: Listening) -> Iterator[Holdings | None]:
    """What this server owns of a ledger whose partitions servers share; None where one process owns all."""
    if isinstance(home.ledger, Path):
        yield None
        return
    with parts.open_reader(home.ledger) as reader:
        partitions = reader.partitions
    if partitions == 1:
        yield None
        return
    from detent.owner.holdings import Holdings  # noqa: PLC0415 - needs psycopg

    own = parse_address(parts.address)
    assert own is not None
    taken = "another program may use the port; --link-port 0 takes a free one"
    with bound_to(listening.host, listening.link_port, taken) as listener:
        address = link_advertised(listening, own, listener.getsockname()[1])
        holdings = Holdings(home, parts, listener, address, os.environ)
        try:
            yield holdings
        finally:
            holdings.close()


def owning_session(
    home: Home,
    parts: Parts,
    on_failed: Callable[[BaseException | None], None],
    note: Callable[[str], None],
    pass_on: Callable[[], PassingOn],
) -> Session:
    """Open a home for a server, as soon as no other machine owns its ledger. Raises `ToldToEnd` if a signal comes before that.

    Until then ``pass_on`` is begun and told the owner.
    """
    with ExitStack() as standing:
        stand_by = StandBy(note, OwnerFinder(home, parts), pass_on, standing)
        while True:
            try:
                session = Session(home, replace(parts, stand_by=stand_by), on_failed=on_failed)
            except StoreUnavailable as exc:
                if not stand_by.stood or not exc.retryable:
                    raise
                stand_by(exc)
                continue
            stand_by.over = True
            try:
                stand_by.insist_on_going_on()
            except ToldToEnd:
                session.close()
                raise
            return session


def _is_loopback(address: Address) -> bool:
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return address.host == "localhost"
