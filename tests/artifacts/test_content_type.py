"""The type of content is read from its bytes: no declared type counts, and nothing that can hold a script is shown."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from detent.artifacts.content_type import HEAD_BYTES, OCTETS, TEXT, Kind, headers, sniff

SHOWN = {"image/png", "image/gif", "image/jpeg", "image/webp", "application/pdf", "application/json", TEXT}
HTML, SVG, XML = "text/html; charset=utf-8", "image/svg+xml", "application/xml"


def picture(form: str) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (3, 2), "red").save(data, form)
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (picture("PNG"), "image/png"),
        (picture("GIF"), "image/gif"),
        (picture("JPEG"), "image/jpeg"),
        (picture("WEBP"), "image/webp"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "application/pdf"),
        (b'{"a": 1}', "application/json"),
        (b" {} ", "application/json"),
        (b'[\n  {"x": [1, 2]}', "application/json"),
        (b"[1, 2", "application/json"),
        (b"[]", "application/json"),
        (json.dumps({"long": "x" * 10_000}).encode(), "application/json"),
        (b"", TEXT),
        (b"hello\tworld\r\n", TEXT),
        ("größer, 中文, 🎉".encode(), TEXT),
        (b"\xef\xbb\xbfwith a mark", TEXT),
        (b"\x1b[31mred\x1b[0m\n", TEXT),
        (b"if a < b: print(a)\n", TEXT),
        (b"{not json", TEXT),
        (b"=cmd()|'/c calc'!A1,2\n", TEXT),
    ],
)
def test_what_may_be_shown_is_recognised(data: bytes, content_type: str) -> None:
    assert sniff(data) == Kind(content_type, may_inline=True)


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b"<!DOCTYPE html><html>", HTML),
        (b"  \n<HTML lang=en>", HTML),
        (b"\xef\xbb\xbf<script>alert(1)</script>", HTML),
        (b"<!-- a comment --><body onload=x>", HTML),
        (b"<img src=x onerror=alert(1)>", HTML),
        (b"<iframe/src=x>", HTML),
        (b"<svg xmlns='http://www.w3.org/2000/svg' onload='x'/>", SVG),
        (b'<?xml version="1.0"?>\n<!-- made by -->\n<svg>', SVG),
        (b"<!DOCTYPE svg PUBLIC", SVG),
        (b"<s:svg xmlns:s='http://www.w3.org/2000/svg'>", SVG),
        (b'<?xml version="1.0"?><?xml-stylesheet href="x.xsl"?><a/>', XML),
        (b'<?xml version="1.0"?><notes/>', XML),
        (b"hello <script>alert(1)</script>", TEXT),
        (b"# Title\n![](http://x)\n<img src=x>", TEXT),
        (b"text </script><!--", TEXT),
        (b"\0\1\2\3", OCTETS),
        (b"MZ\x90\0\3\0\0\0", OCTETS),
        (b"\x80\x04\x95pickle", OCTETS),
        (b"\xff\xfe<\0h\0t\0m\0l\0>\0", OCTETS),
        (b"\xfe\xff\0<\0s\0v\0g", OCTETS),
        (b"+ADw-script+AD4-\x7f", OCTETS),
        (b"PK\3\4", OCTETS),
        (b"\x1f\x8b\x08\0", OCTETS),
        (b"\x89PNG\r\n\x1a\n<script>", OCTETS),
        (b"\xff\xd8\xff<script>", OCTETS),
        (b"RIFF\0\0\0\0WAVEfmt ", OCTETS),
        (b"cut \xe4\xb8", OCTETS),
    ],
)
def test_markup_and_what_is_not_on_the_list_is_saved_and_not_shown(data: bytes, content_type: str) -> None:
    found = sniff(data)
    assert found == Kind(content_type, may_inline=False)
    assert found.disposition("inline") == "attachment"


@given(st.binary(max_size=200))
def test_whatever_comes_the_answer_is_on_the_list_and_markup_is_never_shown(data: bytes) -> None:
    for prefix in (b"", b"<html>", b"<svg ", b"\n\t<script>", b"<?xml ?>"):
        found = sniff(prefix + data)
        assert not found.may_inline or found.content_type in SHOWN
        assert not (prefix and found.may_inline)


def test_only_the_first_bytes_count_and_a_character_may_be_cut() -> None:
    text = "ä" * HEAD_BYTES
    assert sniff(b"x" + text.encode()) == Kind(TEXT, may_inline=True)
    assert sniff(text.encode() + b"\0\0") == Kind(TEXT, may_inline=True)


def test_looking_takes_no_longer_for_bytes_made_to_be_looked_at_for_long() -> None:
    """Patterns that go back over what they read would not come to an end here."""
    for evil in (b"<!--" * 1024, b"<?xml" * 800, b" " * 4000, b"<!-- -->" * 512, b"[" * 4096, b"{ " * 2048):
        assert sniff(evil).content_type


@pytest.mark.parametrize(
    "name", ['a"b\r\nSet-Cookie: x', "</script>", "../../etc/passwd", "ü 🎉.png", "", "\ud800", "x" * 9999]
)
def test_no_name_reaches_beyond_its_header(name: str) -> None:
    said = headers(sniff(picture("PNG")), name)
    assert said["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in said["Content-Security-Policy"]
    disposition = said["Content-Disposition"]
    assert disposition.isascii()
    assert disposition.isprintable()
    assert disposition.startswith('inline; filename="')
    assert disposition.count('"') == 2
    assert "/" not in disposition
    assert len(disposition) < 1_100


def test_markup_is_an_attachment_whatever_is_wanted() -> None:
    assert headers(sniff(b"<html>"), "page.html", "inline")["Content-Disposition"].startswith("attachment;")
    assert headers(sniff(b"text"), "a.txt", "attachment")["Content-Disposition"].startswith("attachment;")
