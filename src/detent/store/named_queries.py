"""How a reader asks: by the names of queries, which each database defines in a ``queries.sql`` of its own.

What is asked is the same for every database, so it is written once (`ledger_reader.py`, `beside_reader.py`, `tenant_pages.py`);
how a query is run, and what one moment means, is the database's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

_Row = TypeVar("_Row")

Binding = int | str | bytes | Sequence[object] | None
"""What a query is given: a value, or a list as one parameter."""


class NamedQueries(ABC):
    """The queries of one open ledger; the parts of a reader ask through it."""

    @abstractmethod
    def _rows(self, make: Callable[[tuple[Any, ...]], _Row], name: str, *bindings: Binding) -> Iterator[_Row]:
        """The rows of a query as they are at the moment of the call."""

    @abstractmethod
    def _one(self, make: Callable[[tuple[Any, ...]], _Row], name: str, *bindings: Binding) -> _Row | None:
        """The first row of a query, or None."""

    def _knows(self, schema: int) -> bool:  # noqa: ARG002 - for a database whose ledgers may be older than its reader
        """Whether the tables that a schema brought are there."""
        return True


def first_column(row: tuple[Any, ...]) -> Any:
    """The only value of a row, or the one that it is sorted by."""
    return row[0]
