"""How values are written: as text or JSON in a file, and as rows of a table.

How values are written to a file: as text and bytes (``append:``), or as one line of JSON each (``jsonl:``).

A whole batch is looked at before its first byte is written, so a value that cannot be written leaves nothing behind.

How values are stored in a table: as JSON text in a column ``value``, or spread over the columns of a table that has none.

A column ``seq`` and a column ``run_id`` are filled if the table has them. Nothing is added to a table that is there already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from detent.canon.show import a_or_an
from detent.canon.strict_json import JsonValue, json_encode_trusted
from detent.errors import DetentError, InvalidInput
from detent.jobs.values import FILE, is_file, restored
from detent.store.content import ContentFiles
from detent.store.streams import PIECE_BYTES
from detent.targets.api import CommitFailed, Nothing, ValueRefused

if TYPE_CHECKING:
    import apsw

_DIGEST_PREFIX = "sha256:"


class Render(Protocol):
    """Makes the bytes of a batch."""

    def __call__(self, first_seq: int, values: Sequence[JsonValue | Nothing]) -> Iterable[bytes]:
        """The pieces in order; raises `ValueRefused` at once, and `CommitFailed` while content is being read."""


class RenderText:
    """Text as UTF-8, on lines of its own: it ends with a newline or gets one. A file's bytes as they are. Nothing else."""

    def __init__(self, spec: str, content: ContentFiles | None) -> None:
        self._spec = spec
        self._content = content

    def __call__(self, first_seq: int, values: Sequence[JsonValue | Nothing]) -> Iterable[bytes]:
        pieces: list[bytes | tuple[int, bytes]] = []
        text: list[str] = []
        for seq, value in enumerate(values, first_seq):
            if type(value) is str:
                text.append(value if value[-1:] == "\n" else value + "\n")
            elif type(value) is dict and is_file(value):
                pieces += [self._encoded(text, first_seq, values), (seq, self._digest(seq, value))]
                text = []
            elif not isinstance(value, Nothing):
                raise ValueRefused(
                    f"seq {seq} returned {_kind(value)}, but {self._spec} holds text and files",
                    spec=self._spec,
                    seq=seq,
                    hint="return text or a File, or use jsonl: for other values",
                )
        pieces.append(self._encoded(text, first_seq, values))
        return self._streamed([piece for piece in pieces if piece])

    def _encoded(self, text: list[str], first_seq: int, values: Sequence[JsonValue | Nothing]) -> bytes:
        try:
            return "".join(text).encode()
        except UnicodeEncodeError as exc:
            raise _unencodable(self._spec, first_seq, values) from exc

    def _digest(self, seq: int, value: JsonValue) -> bytes:
        """The digest of a file that is in the content store."""
        try:
            prefix, digest = value[FILE][: len(_DIGEST_PREFIX)], bytes.fromhex(value[FILE][len(_DIGEST_PREFIX) :])
        except (TypeError, ValueError):
            prefix, digest = "", b""
        if prefix != _DIGEST_PREFIX or len(digest) != 32:
            raise ValueRefused(f"seq {seq} names a file without a digest", spec=self._spec, seq=seq)
        if self._content is None or not self._content.has(digest):
            raise ValueRefused(
                f"seq {seq} returned a file that is not in the content store ({value[FILE]})",
                spec=self._spec,
                seq=seq,
                hint="`detent retry` computes it again",
            )
        return digest

    def _streamed(self, pieces: list[bytes | tuple[int, bytes]]) -> Iterator[bytes]:
        for piece in pieces:
            if isinstance(piece, bytes):
                yield piece
                continue
            seq, digest = piece
            assert self._content is not None
            try:
                stream = self._content.stream(digest)
                if stream is None:
                    raise InvalidInput("it was removed a moment ago", code="DEPENDENCY_MISSING")
                with stream:
                    while data := stream.read1(PIECE_BYTES):
                        yield data
            except DetentError as exc:
                raise CommitFailed(
                    f"the file of seq {seq} cannot be read: {exc}",
                    spec=self._spec,
                    seq=seq,
                    hint=exc.hint,
                    retryable=exc.retryable,
                ) from exc


class RenderLines:
    """One line of strict JSON for each value; with ``numbered``, as ``{"seq":7,"value":...}``.

    ``seqs`` are those that the entries are known by, where they are not counted from 0: those of a retry have old ones.
    """

    def __init__(self, spec: str, *, numbered: bool, seqs: Sequence[int] | None = None) -> None:
        self._spec = spec
        self._numbered = numbered
        self._seqs = seqs

    def __call__(self, first_seq: int, values: Sequence[JsonValue | Nothing]) -> Iterable[bytes]:
        if not self._numbered:
            data = _plain_lines(values)
            if data is not None:
                return [data]
        lines = []
        for seq, value in enumerate(values, first_seq):
            if not isinstance(value, Nothing):
                line = json_of(self._spec, seq, value)
                known = seq if self._seqs is None else self._seqs[seq]
                lines.append(b'{"seq":%d,"value":%b}\n' % (known, line) if self._numbered else line + b"\n")
        return [b"".join(lines)]


def json_of(spec: str, seq: int, value: JsonValue) -> bytes:
    """A stored value as the JSON that its user wrote; a file in it stays the mapping that names it."""
    try:
        data = json_encode_trusted(value)
        # Only a key can be escaped, and most values have no $ at all: they are written as they are stored.
        return data if b"$" not in data else json_encode_trusted(unescaped(value))
    except (TypeError, ValueError, RecursionError) as exc:
        raise ValueRefused(f"seq {seq} returned a value that is not strict JSON: {exc}", spec=spec, seq=seq) from exc


def _plain_lines(values: Sequence[JsonValue | Nothing]) -> bytes | None:
    """The lines of values that need no individual check; None when one does. Saves a sixth of the time."""
    try:
        data = b"\n".join([json_encode_trusted(value) for value in values])
    except (TypeError, ValueError, RecursionError):
        return None
    return None if b"$" in data else data + b"\n"


def unescaped(value: JsonValue) -> JsonValue:
    """A stored value without its escapes, files as the mappings that name them."""
    return restored(value, _no_result, lambda file: file)


def _no_result(digest: str) -> JsonValue:
    raise ValueError(f"the result {digest} was not resolved")


def _unencodable(spec: str, first_seq: int, values: Sequence[JsonValue | Nothing]) -> ValueRefused:
    seqs = (seq for seq, value in enumerate(values, first_seq) if type(value) is str and not _is_utf8(value))
    seq = next(seqs, first_seq)
    return ValueRefused(
        f"seq {seq} returned text with a lone surrogate, which UTF-8 cannot hold",
        spec=spec,
        seq=seq,
        hint="return the bytes as a File",
    )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: JsonValue) -> str:
    return "nothing (null)" if value is None else a_or_an(type(value))


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
