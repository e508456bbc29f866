"""The threads that read the ledger: four of them, each with a reader of its own, so that no look at it holds up the HTTP loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from detent.owner.home import Home
from detent.owner.wiring import Parts
from detent.serve.tenant_reader import TenantReader

T = TypeVar("T")

READERS: Final = 4


class Readers:
    """Threads that read the ledger, each with a reader of its own."""

    def __init__(self, home: Home, parts: Parts) -> None:
        self._home, self._parts = home, parts
        self._local = threading.local()
        self._opened: list[TenantReader] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(READERS, "detent-read")

    async def read(self, question: Callable[[TenantReader], T]) -> T:
        """Answer a question on one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._ask, question)

    def close(self) -> None:
        """Finish what is asked, and let go of the ledger."""
        self._pool.shutdown()
        for reader in self._opened:
            reader.close()

    def _ask(self, question: Callable[[TenantReader], T]) -> T:
        reader: TenantReader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = TenantReader(self._home, self._parts)
            with self._lock:
                self._opened.append(reader)
        return question(reader)
