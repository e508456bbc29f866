"""Says what a file is by its bytes. A name is a claim; a claim that the bytes do not bear out is a fault.

The list is an allow list. What can carry scripts gets a type under which nobody runs them: HTML is text, and so is an SVG
picture with anything active in it. Nothing is unpacked or decoded. JSON is read strictly; SVG and HTML are searched for
what could act, without being parsed; all three up to a size.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from detent.canon import NotStrictJson, json_decode

HEAD_BYTES: Final = 64 * 1024
JSON_BYTES_MAX: Final = 1024 * 1024
SVG_BYTES_MAX: Final = 4 * 1024 * 1024
"""A larger SVG is given as text: it would have to be searched whole."""

HTML_BYTES_MAX: Final = 64 * 1024 * 1024

TEXT_TYPE: Final = "text/plain; charset=utf-8"
SVG_TYPE: Final = "image/svg+xml"
BINARY_TYPE: Final = "application/octet-stream"

CLAIMS: Final[Mapping[str, str]] = {
    ".png": "png",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".gif": "gif",
    ".webp": "webp",
    ".svg": "svg",
    ".pdf": "pdf",
}
"""Endings that viewers act on, with the format they promise."""

_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "png", "image/png"),
    (b"\xff\xd8\xff", "jpeg", "image/jpeg"),
    (b"GIF87a", "gif", "image/gif"),
    (b"GIF89a", "gif", "image/gif"),
    (b"%PDF-", "pdf", "application/pdf"),
    (b"PK\x03\x04", "zip", "application/zip"),
    (b"PK\x05\x06", "zip", "application/zip"),
    (b"\x1f\x8b\x08", "gzip", "application/gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd", "application/zstd"),
)
_HTML = re.compile(rb"\s*+<(?:!doctype\s+html|html|head|body|script|iframe)\b", re.IGNORECASE)
_ACTIVE = re.compile(
    rb"<(?:[^\s<>/:]+:)?(?:script|foreignobject|iframe|embed|object|handler|listener|set|animate[a-z]*)\b"
    rb"|[\s\"'/]on[a-z]+\s*+="
    rb"|javascript:"
    rb"|<!entity|<\?xml-stylesheet|@import"
    rb"|href\s*+=\s*+[\"']?+\s*+(?!\#|data:image/(?:png|jpeg|gif|webp)[;,])"
    rb"|url\s*+\(\s*+[\"']?+\s*+(?!\#)",
    re.IGNORECASE,
)
_ACTIVE_HTML = re.compile(
    rb"<(?:script|iframe|frame|object|embed|applet|base|form|link|meta\s++http-equiv|svg|math|template)\b"
    rb"|[\s\"'/]on[a-z]+\s*+="
    rb"|javascript:"
    rb"|\bsrc(?:set)?\s*+=\s*+[\"']?+\s*+(?!data:image/)"
    rb"|@import|url\s*+\(\s*+[\"']?+\s*+(?!\#|data:image/)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Sniffed:
    """What a file is, under which type it may be handed out, and what else its first bytes say."""

    format: str
    content_type: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    active: bool = False
    """It could run something if it were shown as what it is, so it is not."""


def sniff(path: Path) -> Sniffed:
    """Look at a file that nobody else can change any more."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        size = path.stat().st_size
        for magic, name, content_type in _MAGIC:
            if head.startswith(magic):
                return Sniffed(name, content_type, _png_size(head) if name == "png" else {})
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return Sniffed("webp", "image/webp")
        if not _is_text(head, whole=size <= HEAD_BYTES):
            return Sniffed("binary", BINARY_TYPE)
        if _begins_svg(head):
            return _svg(head + file.read(max(0, SVG_BYTES_MAX + 1 - len(head))))
        if _HTML.match(head):
            data = head + file.read(max(0, HTML_BYTES_MAX + 1 - len(head)))
            return Sniffed("html", TEXT_TYPE, active=len(data) > HTML_BYTES_MAX or bool(_ACTIVE_HTML.search(data)))
        if size <= JSON_BYTES_MAX and _is_json(head + file.read()):
            return Sniffed("json", "application/json")
    return Sniffed("text", TEXT_TYPE)


def claim_fault(name: str, sniffed: Sniffed) -> str | None:
    """Say that a file is not what the ending of its name promises, or nothing."""
    ending = "." + name.rpartition(".")[2].lower() if "." in name else ""
    claimed = CLAIMS.get(ending)
    if claimed is None or claimed == sniffed.format:
        return None
    return f"output file {name!r} is named like {claimed} and is {sniffed.format}"


def _png_size(head: bytes) -> dict[str, int]:
    if head[12:16] != b"IHDR" or len(head) < 24:
        return {}
    return {"width": int.from_bytes(head[16:20]), "height": int.from_bytes(head[20:24])}


def _is_text(head: bytes, *, whole: bool) -> bool:
    if b"\0" in head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=whole)
    except UnicodeDecodeError:
        return False
    return True


def _is_json(data: bytes) -> bool:
    if data.lstrip()[:1] not in {b"{", b"["}:
        return False
    try:
        json_decode(data)
    except NotStrictJson:
        return False
    return True


def _begins_svg(head: bytes) -> bool:
    """Whether the first element is svg, after what may stand before it; one pass, no going back."""
    place = 3 if head.startswith(codecs.BOM_UTF8) else 0
    while True:
        while head[place : place + 1] in {b" ", b"\t", b"\r", b"\n"}:
            place += 1
        for begin, end in ((b"<?xml", b"?>"), (b"<!--", b"-->"), (b"<!DOCTYPE svg", b">")):
            if head.startswith(begin, place):
                found = head.find(end, place)
                if found < 0:
                    return False
                place = found + len(end)
                break
        else:
            return head[place : place + 4] == b"<svg" and head[place + 4 : place + 5] in {
                b" ",
                b"\t",
                b"\r",
                b"\n",
                b">",
            }


def _svg(data: bytes) -> Sniffed:
    if len(data) > SVG_BYTES_MAX or _ACTIVE.search(data):
        return Sniffed("svg", TEXT_TYPE, active=True)
    return Sniffed("svg", SVG_TYPE)
