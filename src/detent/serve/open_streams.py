"""Answers that are still being sent: they end with the credential that they were begun with.

A stream is judged when it begins and may stay open for days. Whenever access changes, every open one is judged again; one whose credential
was revoked, lowered or logged out ends at once, one whose credential ends by itself ends then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from detent.serve.authenticate import Authenticator, Known


class OpenStreams:
    """The open streams of a server. For the HTTP loop alone."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._open: dict[asyncio.Event, Known] = {}

    @contextmanager
    def watch(self, known: Known | None) -> Iterator[asyncio.Event]:
        """An event that is set when the credential of a stream no longer counts."""
        ended = asyncio.Event()
        timer: asyncio.TimerHandle | None = None
        if known is not None:
            self._open[ended] = known
            left_ms = self._authenticator.left_ms(known)
            if left_ms is not None:
                timer = asyncio.get_running_loop().call_later(left_ms / 1_000, ended.set)
        try:
            yield ended
        finally:
            self._open.pop(ended, None)
            if timer is not None:
                timer.cancel()

    def judge(self) -> None:
        """End every stream whose credential allows less than when it began."""
        for ended, known in self._open.items():
            if not self._authenticator.still(known):
                ended.set()
