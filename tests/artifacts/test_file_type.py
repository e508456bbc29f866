"""What a file is, by its bytes, and under which type it is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.artifacts.content_type import (
    JSON_BYTES_MAX,
    SVG_BYTES_MAX,
    TEXT_HEAD_BYTES,
    Sniffed,
    claim_fault,
    examine,
    sniff,
)

TEXT = "text/plain; charset=utf-8"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><path d="M 0 0"/></svg>'


def of(tmp_path: Path, data: bytes) -> Sniffed:
    path = tmp_path / "file"
    path.write_bytes(data)
    return examine(path)


@pytest.mark.parametrize(
    ("data", "form", "content_type"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDRrest", "png", "image/png"),
        (b"\x89PNG\r\n\x1a\n<script>", "binary", "application/octet-stream"),
        (b"\xff\xd8\xff\xe0rest", "jpeg", "image/jpeg"),
        (b"GIF89a...", "gif", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "webp", "image/webp"),
        (b"%PDF-1.7", "pdf", "application/pdf"),
        (b"PK\x03\x04", "zip", "application/zip"),
        (b"\x1f\x8b\x08\0", "gzip", "application/gzip"),
        (b"", "text", TEXT),
        ("é".encode(), "text", TEXT),
        (b"\xe9", "binary", "application/octet-stream"),
        (b"a\0b", "binary", "application/octet-stream"),
        (b'{"a": 1}', "json", "application/json"),
        (b'{"a": 1, "a": 2}', "text", TEXT),
        (b"[NaN]", "text", TEXT),
        (b"[" * 50_000, "text", TEXT),
        (b"<!DOCTYPE html><p>x", "html", TEXT),
        (b"  <script>x</script>", "html", TEXT),
        (SVG, "svg", "image/svg+xml"),
        (b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- a --><!-- b -->\n' + SVG, "svg", "image/svg+xml"),
        (b'<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "x.dtd">\n' + SVG, "svg", "image/svg+xml"),
        ("<svg>".encode("utf-16"), "binary", "application/octet-stream"),
        (b"<svgx></svgx>", "text", TEXT),
    ],
)
def test_bytes_decide_what_a_file_is(tmp_path: Path, data: bytes, form: str, content_type: str) -> None:
    """JOB-050"""
    found = of(tmp_path, data)
    assert (found.format, found.content_type) == (form, content_type)


@pytest.mark.parametrize(
    "inside",
    [
        b"<script>x()</script>",
        b"<SCRIPT >x()</SCRIPT >",
        b'<x:script xmlns:x="http://www.w3.org/2000/svg">x()</x:script>',
        b'<rect onclick="x()"/>',
        b"<rect\nonload='x()'/>",
        b'<a href="javascript:x()"/>',
        b'<a xlink:href="&#106;avascript:x()"/>',
        b'<image href="https://example.org/beacon.png"/>',
        b"<image href=//example.org/x />",
        b'<use href="data:image/svg+xml;base64,PHN2Zz4="/>',
        b'<rect fill="url(https://example.org/x)"/>',
        b"<style>@import 'x.css'</style>",
        b"<foreignObject><p/></foreignObject>",
        b'<set attributeName="href" to="x"/>',
        b'<animate attributeName="href"/>',
        b"<iframe/>",
        b'<rect fill="u&#114;l(https://example.org/x)"/>',
        b'<rect fill="u&#x0072;l(https://example.org/x)"/>',
        b"<style>rect {fill: u\\72 l(https://example.org/x)}</style>",
        b"<style>rect {fill: \\000075\\r\\l(https://example.org/x)}</style>",
        b"<style>@\\69mport 'x.css'</style>",
        b'<rect style="fill: &#92;75 rl(https://example.org/x)"/>',
        b"<style>rect {background: image-set('https://example.org/x' 1x)}</style>",
        b'<rect to="java\n\tscript:x()"/>',
        b"<scr\x1b(Bipt>x()</scr\x1b(Bipt>",
        b'<use xml:base="https://example.org/x.svg" href="#a"/>',
    ],
)
def test_an_svg_that_could_act_is_text(tmp_path: Path, inside: bytes) -> None:
    """JOB-050"""
    found = of(tmp_path, SVG.replace(b"<path", inside + b"<path"))
    assert (found.format, found.content_type, found.active) == ("svg", TEXT, True)


@pytest.mark.parametrize(
    "before",
    [
        b'<?xml version="1.0" encoding="ISO-2022-JP"?>',
        b"\xef\xbb\xbf<?xml version='1.0' encoding = 'UTF-7'?>",
        b'<!DOCTYPE svg [<!ATTLIST path onload CDATA "x()">]>',
    ],
)
def test_an_svg_that_a_viewer_would_read_in_another_way_is_text(tmp_path: Path, before: bytes) -> None:
    """JOB-050: in another encoding, or with attributes that stand elsewhere."""
    assert of(tmp_path, before + SVG).active


def test_what_could_act_is_found_beyond_the_first_bytes(tmp_path: Path) -> None:
    """JOB-050"""
    late = b"<!--" + b"x" * TEXT_HEAD_BYTES + b"-->"
    assert not of(tmp_path, SVG.replace(b"<path", late + b"<path")).active
    assert of(tmp_path, SVG.replace(b"<path", late + b"<scr\x1b(Bipt>")).active


def test_an_svg_as_plotting_programs_write_it_stays_a_picture(tmp_path: Path) -> None:
    """JOB-050"""
    data = b"""<?xml version="1.0" encoding="utf-8" standalone="no"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN"
  "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="460.8pt" xmlns="http://www.w3.org/2000/svg" version="1.1">
 <metadata><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><cc:Work>
 <dc:type rdf:resource="http://purl.org/dc/dcmitype/StillImage"/></cc:Work></rdf:RDF></metadata>
 <defs><style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style></defs>
 <g clip-path="url(#p1)"><use xlink:href="#m1" style="stroke: #000"/>
 <image xlink:href="data:image/png;base64,iVBORw0KGgo="/></g></svg>"""
    assert of(tmp_path, data).content_type == "image/svg+xml"


def test_a_bomb_is_not_unfolded_and_a_huge_svg_is_not_searched_for_ever(tmp_path: Path) -> None:
    """JOB-050"""
    laughs = b'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><svg>&b;</svg>'
    assert of(tmp_path, laughs).content_type == TEXT
    assert of(tmp_path, SVG + b" " * SVG_BYTES_MAX).content_type == TEXT
    assert of(tmp_path, b"<!--" * (TEXT_HEAD_BYTES // 4)).format == "text"


@pytest.mark.parametrize("name", ["a.png", "a.PNG", "x/a.jpeg", "a.svg", "a.pdf", "a.webp", "a.gif", "a.jpg"])
def test_a_name_that_promises_something_else_is_a_fault(tmp_path: Path, name: str) -> None:
    """JOB-050, JOB-060"""
    fault = claim_fault(name, of(tmp_path, b"<!DOCTYPE html><script>"))
    assert fault is not None
    assert "html" in fault
    assert claim_fault("a.csv", of(tmp_path, b"<html>")) is None
    assert claim_fault("png", of(tmp_path, b"text")) is None


def test_size_of_a_png_is_read_off_its_head(tmp_path: Path) -> None:
    """JOB-050"""
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (640).to_bytes(4) + (480).to_bytes(4)
    assert of(tmp_path, head).metadata == {"width": 640, "height": 480}
    assert of(tmp_path, head[:20]).metadata == {}


@given(st.binary(max_size=200))
def test_any_bytes_have_an_answer_under_an_allowed_type(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """JOB-050"""
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    found = examine(path)
    assert found.content_type.split("/")[0] in {"image", "text", "application"}
    assert not found.content_type.startswith("text/html")


def test_text_that_goes_on_as_something_else_is_no_text(tmp_path: Path) -> None:
    assert of(tmp_path, b"x" * 5000 + b"\0").format == "binary"
    assert of(tmp_path, b"x" * (TEXT_HEAD_BYTES - 1) + "ä".encode()).format == "text", (
        "a character is cut by the end of the head"
    )


def test_json_that_is_too_long_to_be_read_is_text(tmp_path: Path) -> None:
    assert of(tmp_path, b"[1" + b" " * (JSON_BYTES_MAX - 3) + b"]").format == "json"
    assert of(tmp_path, b"[1" + b" " * JSON_BYTES_MAX + b"]").format == "text"


@given(
    st.binary(max_size=100),
    st.sampled_from([b"", b"<svg ", b"<html>", b"{", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"PK\3\4"]),
)
def test_the_record_and_the_answer_to_a_browser_go_back_to_one_decision(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, prefix: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "both"
    path.write_bytes(prefix + data)
    served, recorded = sniff(prefix + data), examine(path)
    assert recorded.format == served.format or (recorded.format, served.format) in {("text", "json"), ("text", "xml")}
    if recorded.content_type not in {TEXT, "application/json"} and not recorded.content_type.startswith("application/"):
        assert recorded.content_type == served.content_type
