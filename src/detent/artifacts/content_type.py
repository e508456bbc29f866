"""What kind of content bytes are, judged by the bytes alone. Pure.

A guest's word for its own files is never recorded and never sent to a browser: HTML called ``image/png`` would run where the
platform's pages run. So the type is looked up in the first bytes, in an allow list of our own; what is not on it is
``application/octet-stream`` and is saved, not shown. Markup of any kind is saved too, because it can hold scripts.

Which format bytes have is decided here and nowhere else. What is recorded of a whole file, and what is looked for beyond the
first bytes, is `file_type`'s.

The weak spot: bytes can be two things at once (an image with a script behind it). That is harmless where the type that is sent
is the one found here; `headers` tells the browser not to guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from detent.canon.show import show
from detent.errors import Refused

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


def judge(claimed: str | None, head: bytes) -> Kind | Refused:
    """The kind to record for content with a claimed type.

    Refuses a picture or a document that is none: such a claim is an attack or a mistake, and either way the job's. Any
    other claim is passed over in favour of what the bytes say.
    """
    found = sniff(head)
    bare = "" if claimed is None else claimed.partition(";")[0].strip().lower()
    if bare in _EXACT and bare != found.content_type:
        return Refused(
            "VALIDATION_ERROR",
            f"content that is said to be {show(claimed)} is {found.content_type}",
            {"claimed": bare, "found": found.content_type},
        )
    return found


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
_EXACT: Final = frozenset(content_type for _, content_type, _ in _MAGIC) - {OCTETS}

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
