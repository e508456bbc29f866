"""The rows of a JSON Lines file as items: checked one by one, so that a bad line is refused by its number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from detent.canon import json_decode, json_encode_trusted
from detent.canon.strict_json import NotStrictJson
from detent.errors import InvalidInput
from detent.jobs.values import escaped


def row_lines(stream: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Each row as one line of strict JSON; empty lines are left out. Raises `InvalidInput` by the number of the line."""
    for number, line in enumerate(stream, 1):
        text = line.strip()
        if not text:
            continue
        try:
            value = json_decode(text)
        except NotStrictJson as exc:
            raise InvalidInput(
                f"{name}:{number}: {exc}", hint="a row is one JSON value on one line", details={"line": number}
            ) from exc
        yield json_encode_trusted(escaped(value) if b'"$' in text else value)
