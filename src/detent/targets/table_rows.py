"""How values are stored in a table: as JSON text in a column ``value``, or spread over the columns of a table that has none.

A column ``seq`` and a column ``run_id`` are filled if the table has them. Nothing is added to a table that is there already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apsw

from detent.canon.show import a_or_an
from detent.canon.strict_json import JsonValue
from detent.targets.api import Nothing, ValueRefused
from detent.targets.render import json_of, unescaped

_OURS = ("seq", "run_id")
_VALUE = "value"


class TableRows:
    """Inserts the values of one run into one table; ``seqs`` as in `RenderLines`."""

    def __init__(
        self, spec: str, run_id: str, table: str, columns: Sequence[str], seqs: Sequence[int] | None = None
    ) -> None:
        self._seqs = seqs
        self._spec = spec
        self._run_id = run_id
        self._table = table
        spelled = {column.lower(): column for column in columns}
        self._filled = [column for column in _OURS if column in spelled]
        self._is_whole = _VALUE in spelled
        self._columns = {spelled[name] for name in spelled if name not in _OURS}
        self._statements: dict[tuple[str, ...], str] = {}
        self.seq = 0
        """The entry that is being inserted."""

    def insert(self, connection: apsw.Connection, first_seq: int, values: Sequence[JsonValue | Nothing]) -> None:
        """Insert a row for each value; raises `ValueRefused`, and every error of the database."""
        if self._is_whole:
            connection.executemany(self._statement((_VALUE,)), self._whole_rows(first_seq, values))
            return
        for seq, value in enumerate(values, first_seq):
            if not isinstance(value, Nothing):
                self.seq = seq
                fields = self._fields(seq, value)
                connection.execute(self._statement(tuple(fields)), (*self._ours(seq), *fields.values()))

    def _whole_rows(self, first_seq: int, values: Sequence[JsonValue | Nothing]) -> Iterator[tuple[int | str, ...]]:
        has_seq_alone = self._filled == ["seq"]
        for seq, value in enumerate(values, first_seq):
            if not isinstance(value, Nothing):
                self.seq = seq
                text = json_of(self._spec, seq, value).decode()
                yield (self._known(seq), text) if has_seq_alone else (*self._ours(seq), text)

    def _fields(self, seq: int, value: JsonValue) -> dict[str, str | int | float | None]:
        """What goes into which column: texts, numbers and null as they are, anything else as JSON text."""
        if type(value) is not dict:
            raise self._refused(seq, f"returned {a_or_an(type(value))}, but {self._table} has no column {_VALUE}")
        try:
            plain = unescaped(value)
        except ValueError as exc:
            raise self._refused(seq, f"returned a value that is not strict JSON: {exc}") from exc
        strange = [key for key in plain if key not in self._columns]
        if strange:
            raise self._refused(seq, f"has the key {strange[0]!r:.80}, and {self._table} has no such column to fill")
        return {
            key: json_of(self._spec, seq, item).decode() if isinstance(item, dict | list) else item
            for key, item in plain.items()
        }

    def _ours(self, seq: int) -> tuple[int | str, ...]:
        return tuple(self._known(seq) if column == "seq" else self._run_id for column in self._filled)

    def _known(self, seq: int) -> int:
        return seq if self._seqs is None else self._seqs[seq]

    def _statement(self, keys: tuple[str, ...]) -> str:
        known = self._statements.get(keys)
        if known is None:
            names = (*self._filled, *keys)
            columns = (
                f"({', '.join(map(quoted, names))}) VALUES ({', '.join('?' * len(names))})"
                if names
                else "DEFAULT VALUES"
            )
            known = self._statements[keys] = f"INSERT INTO {quoted(self._table)} {columns}"
        return known

    def _refused(self, seq: int, what: str) -> ValueRefused:
        hint = "return mappings whose keys are columns of the table, or give the table a column `value`"
        return ValueRefused(f"seq {seq} {what}", spec=self._spec, seq=seq, hint=hint)


def quoted(name: str) -> str:
    """A name as SQL writes it, with any characters."""
    return '"' + name.replace('"', '""') + '"'
