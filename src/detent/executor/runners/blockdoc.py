"""Reads ``blockdoc``, the form in which documents and objects come: a list of blocks, each with a type.

The contract leaves the value of a content open. This is what this executor understands of it; anything else is refused
by the path of the block, never guessed at or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from detent.canon import parse_digest
from detent.errors import InvalidInput

BLOCKS_MAX: Final = 10_000
CELLS_MAX: Final = 10_000


class NotBlockdoc(Exception):
    """The value is not a blockdoc this executor understands; ``path`` says where."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


def source_of(value: Any) -> str:
    """The program in a code object: its ``source``, or its code blocks one after the other, each from a new line."""
    document = _object(value, "value")
    if "source" in document:
        return _text(document, "source", "value")
    sources = [
        _text(_object(block, f"value.blocks[{index}]"), "source", f"value.blocks[{index}]")
        for index, block in enumerate(_list(document, "blocks", "value"))
        if isinstance(block, dict) and block.get("type") == "code"
    ]
    return "\n".join(sources)


def document_of(value: Any, *, notes: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A whole document in one normal form, and the digests of the pictures in it.

    A document has ``slides``, each with ``title``, ``blocks`` and ``notes``, or ``blocks`` alone. Notes are dropped here
    when they were not requested, so that no export can hold them by accident.
    """
    document = _object(value, "value")
    if "slides" in document:
        given = [_object(one, f"value.slides[{i}]") for i, one in enumerate(_list(document, "slides", "value"))]
        places = [f"value.slides[{index}]" for index in range(len(given))]
    else:
        given, places = [document | {"title": ""}], ["value"]
    pictures: dict[str, None] = {}
    slides = []
    count = 0
    for slide, place in zip(given, places, strict=True):
        blocks = _list(slide, "blocks", place)
        count += len(blocks) + 1
        if count > BLOCKS_MAX:
            raise NotBlockdoc(place, f"the document has more than {BLOCKS_MAX} blocks and slides")
        slides.append(
            {
                "title": _text(slide, "title", place, ""),
                "blocks": [_block(block, f"{place}.blocks[{i}]", pictures) for i, block in enumerate(blocks)],
                "notes": _text(slide, "notes", place, "") if notes else "",
            }
        )
    return {"title": _text(document, "title", "value", ""), "slides": slides}, tuple(pictures)


def _block(value: Any, place: str, pictures: dict[str, None]) -> dict[str, Any]:
    block = _object(value, place)
    kind = block.get("type")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise NotBlockdoc(f"{place}.type", f"is none of {', '.join(_READERS)}")
    normal = {"type": kind, **read(block, place)}
    if kind == "image":
        pictures[normal["digest"]] = None
    return normal


def _heading(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    level = block.get("level", 1)
    if type(level) is not int or not 1 <= level <= 6:
        raise NotBlockdoc(f"{place}.level", "must be from 1 to 6")
    return {"text": _text(block, "text", place), "level": level}


def _plain(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {"text": _text(block, "text", place)}


def _code(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {"source": _text(block, "source", place), "language": _text(block, "language", place, "")}


def _equation(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {"latex": _text(block, "latex", place)}


def _items(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    items = _list(block, "items", place)
    if not all(isinstance(item, str) for item in items):
        raise NotBlockdoc(f"{place}.items", "must be a list of texts")
    ordered = block.get("ordered", False)
    return {"items": items, "ordered": ordered is True}


def _table(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    rows = _list(block, "rows", place)
    width = len(rows[0]) if rows and isinstance(rows[0], list) else 0
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != width or not all(isinstance(cell, str) for cell in row):
            raise NotBlockdoc(f"{place}.rows[{index}]", f"must be a list of {width} texts, as the first row is")
    if not 0 < width * len(rows) <= CELLS_MAX:
        raise NotBlockdoc(f"{place}.rows", f"must have from 1 to {CELLS_MAX} cells")
    return {"rows": rows, "columns": width}


def _image(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    digest = _text(block, "digest", place)
    try:
        parse_digest(digest)
    except InvalidInput as exc:
        raise NotBlockdoc(f"{place}.digest", f"{exc}; pictures are named by digest, never by path or address") from exc
    return {"digest": digest, "alt": _text(block, "alt", place, "")}


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], str], dict[str, Any]]]] = {
    "heading": _heading,
    "text": _plain,
    "quote": _plain,
    "code": _code,
    "equation": _equation,
    "list": _items,
    "table": _table,
    "image": _image,
}


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NotBlockdoc(place, "must be an object")
    return value


def _list(holder: Mapping[str, Any], name: str, place: str) -> list[Any]:
    value = holder.get(name)
    if not isinstance(value, list) or len(value) > BLOCKS_MAX:
        raise NotBlockdoc(f"{place}.{name}", f"must be a list of at most {BLOCKS_MAX}")
    return value


def _text(holder: Mapping[str, Any], name: str, place: str, default: str | None = None) -> str:
    value = holder.get(name, default)
    if not isinstance(value, str):
        raise NotBlockdoc(f"{place}.{name}", "must be a text")
    return value
