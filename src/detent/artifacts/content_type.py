"""What kind of content bytes are, judged by the bytes alone. Pure.

A guest's word for its own files is never recorded and never sent to a browser: HTML called ``image/png`` would run where the
platform's pages run. So the type is looked up in the first bytes, in an allow list of our own; what is not on it is
``application/octet-stream`` and is saved, not shown. Markup of any kind is saved too, because it can hold scripts.

Which format bytes have is decided here and nowhere else. What is recorded of a whole file, and what is looked for beyond the
first bytes, is judged below.

The weak spot: bytes can be two things at once (an image with a script behind it). That is harmless where the type that is sent
is the one found here; `headers` tells the browser not to guess.

What a whole file is, for the record. A name is a claim; a claim that the bytes do not bear out is a fault.

The format is `content_type`'s decision. What can carry scripts is recorded under a type that no program runs: HTML and other
markup are text, and so is an SVG picture with anything active in it. Nothing is unpacked or decoded. JSON is read strictly; SVG
and HTML are searched for what could act, without being parsed; all three up to a size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from detent.canon import NotStrictJson, json_decode

HEAD_BYTES: Final = 4096
"""How many of the first bytes are looked at."""
OCTETS: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
INLINE: Final = "inline"
ATTACHMENT: Final = "attachment"


@dataclass(frozen=True, slots=True)
class Kind:
    """What bytes are."""

    content_type: str
    may_inline: bool
    """Whether a browser may show it; otherwise it is saved as a file."""
    format: str = field(default="binary", compare=False)
    """One word for what it is: ``png``, ``svg``, ``text`` and so on."""

    def disposition(self, wanted: str = INLINE) -> str:
        """``inline`` where it is wanted and allowed, else ``attachment``."""
        return INLINE if self.may_inline and wanted == INLINE else ATTACHMENT


def sniff(head: bytes) -> Kind:
    """The kind of content that begins with these bytes. More than `HEAD_BYTES` are not looked at."""
    head = head[:HEAD_BYTES]
    for name, content_type, begins in _MAGIC:
        if begins.match(head):
            return Kind(content_type, content_type != OCTETS, name)
    text = as_text(head, whole=len(head) < HEAD_BYTES)
    if text is None:
        return Kind(OCTETS, may_inline=False)
    if _SVG.match(text):
        return Kind("image/svg+xml", False, "svg")
    if _HTML.match(text):
        return Kind("text/html; charset=utf-8", False, "html")
    if text.lstrip().startswith("<?xml"):
        return Kind("application/xml", False, "xml")
    if _JSON.match(text):
        return Kind("application/json", True, "json")
    return Kind(TEXT, _MARKUP.search(text) is None, "text")


def headers(kind: Kind, name: str, wanted: str = INLINE) -> Mapping[str, str]:
    """What an answer with this content says to a browser: the type, not to guess another, and to run nothing."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:100].lstrip(".") or "artifact"
    encoded = quote(name.encode(errors="replace")[:300], safe="")
    return {
        "Content-Type": kind.content_type,
        "Content-Disposition": f"{kind.disposition(wanted)}; filename=\"{plain}\"; filename*=UTF-8''{encoded}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


_MAGIC: Final = (
    ("png", "image/png", re.compile(rb"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", re.DOTALL)),
    ("gif", "image/gif", re.compile(rb"GIF8[79]a")),
    ("jpeg", "image/jpeg", re.compile(rb"\xff\xd8\xff[\xc0-\xfe]")),
    ("webp", "image/webp", re.compile(rb"RIFF.{4}WEBPVP8[ LX]", re.DOTALL)),
    ("pdf", "application/pdf", re.compile(rb"%PDF-[12]\.[0-9]")),
    ("zip", OCTETS, re.compile(rb"PK(?:\x03\x04|\x05\x06)")),
    ("gzip", OCTETS, re.compile(rb"\x1f\x8b\x08")),
    ("zstd", OCTETS, re.compile(rb"\x28\xb5\x2f\xfd")),
)

_BEFORE: Final = r"(?:\s|<!--.*?-->)*+"
_SVG: Final = re.compile(
    _BEFORE + r"(?:<\?xml[^>]*>)?+" + _BEFORE + r"(?:<!doctype\s+svg|<(?:[a-z]+:)?svg[\s>/])", re.IGNORECASE | re.DOTALL
)
_TAGS: Final = (
    "!doctype|html|head|title|meta|link|base|style|script|body|iframe|frame|frameset|object|embed|applet|form|input|img|"
    "image|svg|math|video|audio|source|a|b|i|p|br|hr|h[1-6]|div|span|table|font|center|marquee|template|details|button|"
    "textarea|select|noscript|xmp|plaintext|portal|isindex"
)
_HTML: Final = re.compile(_BEFORE + rf"<(?:{_TAGS})(?=[\s>/])", re.IGNORECASE | re.DOTALL)
_MARKUP: Final = re.compile(rf"<(?:{_TAGS})(?=[\s>/])|<!--|<\?xml", re.IGNORECASE)
_JSON: Final = re.compile(r'\s*(?:\{\s*(?:"|\}\s*\Z)|\[\s*(?:["{\[\]0-9-]|true|false|null))')
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")


def as_text(head: bytes, *, whole: bool) -> str | None:
    """The bytes as UTF-8 text without control characters, or None. A character that is cut in two by the end is left out,
    unless the bytes are the ``whole`` of it.
    """
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        if exc.reason != "unexpected end of data" or whole:
            return None
        text = head[: exc.start].decode("utf-8-sig", errors="ignore")
    return None if _CONTROLS.search(text) else text


TEXT_HEAD_BYTES: Final = 64 * 1024
"""How many of the first bytes have to be text in what is called text."""
JSON_BYTES_MAX: Final = 1024 * 1024
SVG_BYTES_MAX: Final = 4 * 1024 * 1024
"""A larger SVG is given as text: it would have to be searched whole."""

HTML_BYTES_MAX: Final = 64 * 1024 * 1024

SVG_TYPE: Final = "image/svg+xml"

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

_ARCHIVES: Final = frozenset({"zip", "gzip", "zstd"})
_TEXTUAL: Final = frozenset({"text", "json", "svg", "html", "xml"})
_SCRIPT_URL: Final = rb"\s*+".join(bytes([letter]) for letter in b"javascript") + rb"\s*+:"
"""Browsers leave line ends and tabs out of an address."""
_ACTIVE = re.compile(
    rb"<(?:[^\s<>/:]+:)?(?:script|foreignobject|iframe|embed|object|handler|listener|set|animate[a-z]*)\b"
    rb"|[\s\"'/]on[a-z]+\s*+="
    rb"|" + _SCRIPT_URL + rb"|<!entity|<!attlist|xml:base|<\?xml-stylesheet|@import"
    rb"|href\s*+=\s*+[\"']?+\s*+(?!\#|data:image/(?:png|jpeg|gif|webp)[;,])"
    rb"|url\s*+\(\s*+[\"']?+\s*+(?!\#)"
    rb"|(?:image-set|\bsrc)\s*+\("
    rb"|<\?xml\s[^>]*?\bencoding\s*+=\s*+[\"'](?!(?:utf-8|us-ascii)[\"'])",
    re.IGNORECASE,
)
_ACTIVE_HTML = re.compile(
    rb"<(?:script|iframe|frame|object|embed|applet|base|form|link|meta\s++http-equiv|svg|math|template)\b"
    rb"|[\s\"'/]on[a-z]+\s*+="
    rb"|" + _SCRIPT_URL + rb"|\bsrc(?:set)?\s*+=\s*+[\"']?+\s*+(?!data:image/)"
    rb"|@import|url\s*+\(\s*+[\"']?+\s*+(?!\#|data:image/)",
    re.IGNORECASE,
)
_CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
"""Some encodings switch alphabets with them, so that a viewer leaves out what stands between two letters here."""
_REFERENCE = re.compile(rb"&(?:#(?:x0*([0-9a-f]{1,6})|0*([0-9]{1,7}))|(tab|newline|colon|lpar|rpar));?", re.IGNORECASE)
_NAMED: Final = {b"tab": b"\t", b"newline": b"\n", b"colon": b":", b"lpar": b"(", b"rpar": b")"}
_CSS_ESCAPE = re.compile(rb"\\(?:0*([0-9a-f]{1,6})[ \t\r\n\f]?|\r?\n|(.))", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sniffed:
    """What a file is, under which type it may be handed out, and what else its first bytes say."""

    format: str
    content_type: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    active: bool = False
    """It could run something if it were shown as what it is, so it is not."""


def examine(path: Path) -> Sniffed:
    """Look at a file that no other process can change any more."""
    with path.open("rb") as file:
        head = file.read(TEXT_HEAD_BYTES)
        kind = sniff(head)
        if kind.format in _ARCHIVES:
            return Sniffed(kind.format, f"application/{kind.format}")
        if kind.format not in _TEXTUAL:
            return Sniffed(kind.format, kind.content_type, _png_size(head) if kind.format == "png" else {})
        if as_text(head, whole=len(head) < TEXT_HEAD_BYTES) is None:
            return Sniffed("binary", OCTETS)
        if kind.format == "svg":
            return _svg(head + file.read(max(0, SVG_BYTES_MAX + 1 - len(head))))
        if kind.format == "html":
            data = head + file.read(max(0, HTML_BYTES_MAX + 1 - len(head)))
            return Sniffed("html", TEXT, active=len(data) > HTML_BYTES_MAX or _could_act(data, _ACTIVE_HTML))
        if kind.format == "json" and _is_json(head + file.read(JSON_BYTES_MAX)):
            return Sniffed("json", "application/json")
    return Sniffed("text", TEXT)


def claim_fault(name: str, sniffed: Sniffed) -> str | None:
    """Say that a file is not what the ending of its name promises, or nothing."""
    ending = "." + name.rpartition(".")[2].lower() if "." in name else ""
    claimed = CLAIMS.get(ending)
    if claimed is None or claimed == sniffed.format:
        return None
    return f"output file {name!r} is named like {claimed} and is {sniffed.format}"


def _png_size(head: bytes) -> dict[str, int]:
    return {} if len(head) < 24 else {"width": int.from_bytes(head[16:20]), "height": int.from_bytes(head[20:24])}


def _is_json(data: bytes) -> bool:
    try:
        json_decode(data)
    except NotStrictJson:
        return False
    return len(data) <= JSON_BYTES_MAX


def _svg(data: bytes) -> Sniffed:
    if len(data) > SVG_BYTES_MAX or _could_act(data, _ACTIVE):
        return Sniffed("svg", TEXT, active=True)
    return Sniffed("svg", SVG_TYPE)


def _could_act(data: bytes, active: re.Pattern[bytes]) -> bool:
    """Whether anything active is in markup as it is written, or as a viewer reads it: references resolved, then CSS escapes."""
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return True
    if _CONTROL_BYTES.search(data) or active.search(data):
        return True
    read = _REFERENCE.sub(_referred, data) if b"&" in data else data
    styled = _CSS_ESCAPE.sub(_unescaped, read) if b"\\" in read else read
    return any(one is not data and active.search(one) for one in (read, styled))


def _referred(found: re.Match[bytes]) -> bytes:
    hexadecimal, decimal, name = found.groups()
    if name is not None:
        return _NAMED[name.lower()]
    return _character(int(hexadecimal, 16) if hexadecimal is not None else int(decimal), found[0])


def _unescaped(found: re.Match[bytes]) -> bytes:
    code, plain = found.groups()
    return plain or b"" if code is None else _character(int(code, 16), found[0])


def _character(code: int, written: bytes) -> bytes:
    """An ASCII character by its number; others cannot be part of what is searched for, and stay as they are written."""
    return bytes([code]) if code < 128 else written
