"""document_export: documents as PDF, HTML and a bundle."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import Any

import pytest

from detent.jobs import JobStatus
from tests.executor.runners.rig import Backend, error_of, export
from tests.executor.runners.test_execute import SVG
from tests.jobs.envelopes import EXPORT

pytest.importorskip("typst")

SLIDES: dict[str, Any] = {
    "title": "A talk",
    "slides": [
        {
            "title": "First",
            "notes": "say hello slowly",
            "blocks": [
                {"type": "heading", "text": "Why", "level": 2},
                {"type": "text", "text": 'Not markup: #read("/etc/passwd") $x$ *b* <b>&'},
                {"type": "equation", "latex": r"\frac{a}{b}"},
                {"type": "code", "source": "def f(): pass", "language": "python"},
                {"type": "list", "items": ["one", "two"]},
                {"type": "list", "items": ["one", "two"], "ordered": True},
                {"type": "table", "rows": [["a", "b"], ["c", "d"]]},
                {"type": "quote", "text": "Less is more."},
            ],
        },
        {"title": "Second", "blocks": [{"type": "text", "text": "The end"}]},
    ],
}


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_document_becomes_pdf_html_and_a_bundle(here: Backend) -> None:
    """JOB-009, JOB-046, JOB-050"""
    result = here.run(export(SLIDES, "pdf", "html", "bundle"))
    assert result.status is JobStatus.SUCCEEDED, result.error
    assert [(one.kind, one.format, one.content_type, one.metadata["name"]) for one in result.artifacts] == [
        ("export", "html", "text/html; charset=utf-8", "document.html"),
        ("export", "pdf", "application/pdf", "document.pdf"),
        ("export", "zip", "application/zip", "document.zip"),
    ]
    found = here.bytes_of(result)
    html = found["document.html"].decode()
    assert "<title>A talk</title>" in html
    assert 'Not markup: #read("/etc/passwd") $x$ *b* &lt;b>&amp;' in html
    for part in (
        "<h2>First</h2>",
        "<code",
        "<ul><li>one</li>",
        "<ol><li>one</li>",
        "<td>d</td>",
        "<blockquote>",
        "<img",
    ):
        assert part in html
    assert found["document.pdf"].startswith(b"%PDF-")
    inside = members(found["document.zip"])
    assert sorted(inside) == [
        "document.html",
        "document.json",
        "document.pdf",
        "manifest.json",
        "pictures/formula-1.svg",
    ]
    assert (inside["document.pdf"], inside["document.html"]) == (found["document.pdf"], found["document.html"])
    manifest = json.loads(inside.pop("manifest.json"))
    assert manifest == {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in inside.items()
    }


def test_only_the_formats_asked_for_are_made(here: Backend) -> None:
    """JOB-046"""
    assert [one.format for one in here.run(export(SLIDES, "html")).artifacts] == ["html"]


@pytest.mark.parametrize("formats", [("pdf", "html", "bundle")])
def test_equal_documents_give_equal_bytes(here: Backend, formats: tuple[str, ...]) -> None:
    """JOB-009"""
    first, second = (here.run(export(SLIDES, *formats)) for _ in range(2))
    assert [one.digest for one in first.artifacts] == [one.digest for one in second.artifacts]
    archive = here.bytes_of(first)["document.zip"]
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        assert {entry.date_time for entry in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert opened.namelist() == sorted(opened.namelist())


def test_speaker_notes_are_in_no_export_unless_asked_for(here: Backend) -> None:
    """JOB-046: not in the HTML, and not in what a bundle was made of either."""
    secret = b"say hello slowly"
    without = members(here.bytes_of(here.run(export(SLIDES, "bundle")))["document.zip"])
    assert not any(secret in data for data in without.values())
    given = here.run(export(SLIDES, "bundle", include_speaker_notes=True))
    found = members(here.bytes_of(given)["document.zip"])
    assert secret in found["document.html"]
    assert secret in found["document.json"]
    assert len(found["document.pdf"]) > len(without["document.pdf"])


def test_slides_are_pages_and_a_document_flows(here: Backend) -> None:
    """JOB-046"""
    pages = {}
    for view_mode in ("slide", "document"):
        data = here.bytes_of(here.run(export(SLIDES, "pdf", view_mode=view_mode)))["document.pdf"]
        pages[view_mode] = data.count(b"/Type/Page\n") + data.count(b"/Type/Page/") + data.count(b"/Type /Page\n")
    assert pages["slide"] > pages["document"] == 1


def test_pictures_come_by_digest_and_go_into_the_bundle(here: Backend) -> None:
    """JOB-046, JOB-071"""
    digest = here.put(SVG)
    document = {"blocks": [{"type": "image", "digest": digest, "alt": "a square"}]}
    found = here.bytes_of(here.run(export(document, "bundle", "html")))
    assert b'alt="a square"' in found["document.html"]
    assert members(found["document.zip"])[f"pictures/{digest.replace(':', '-')}"] == SVG
    missing = {"blocks": [{"type": "image", "digest": "sha256:" + "0" * 64}]}
    assert error_of(here.run(export(missing))) == ("FAILED", "DEPENDENCY_ERROR", "DEPENDENCY_MISSING")


def test_typst_source_is_typeset_and_its_errors_have_a_place(here: Backend) -> None:
    """JOB-009, JOB-059"""
    result = here.run(export("= Title\n\n$ x^2 $ #datetime.today().display()", "html"))
    assert result.status is JobStatus.SUCCEEDED, result.error
    assert b"1970-01-01" in here.bytes_of(result)["document.html"]
    wrong = here.run(export("= Title\n\n#nonsense(1)"))
    assert error_of(wrong) == ("FAILED", "USER_CODE_ERROR", "INPUT_INVALID")
    assert wrong.error is not None
    assert "unknown variable: nonsense" in wrong.error.message
    assert (wrong.error.details.line, wrong.error.details.column) == (3, 2)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"blocks": [{"type": "video"}]}, "inputs.content.value.blocks[0].type"),
        ({"slides": [{"blocks": [{"type": "text"}]}]}, "inputs.content.value.slides[0].blocks[0].text"),
        ({"blocks": [{"type": "image", "digest": "/etc/passwd"}]}, "inputs.content.value.blocks[0].digest"),
        (5, "inputs.content.value"),
    ],
)
def test_a_document_that_is_not_understood_is_refused_by_the_path(here: Backend, document: Any, path: str) -> None:
    """JOB-060, JOB-071"""
    result = here.run(export(document))
    assert error_of(result) == ("FAILED", "VALIDATION_ERROR", "VALIDATION_ERROR")
    assert result.error is not None
    assert result.error.message.startswith(f"payload.{path}: ")


def test_an_export_without_a_document_and_an_unknown_view_are_refused(here: Backend) -> None:
    """JOB-009, JOB-043, JOB-060: the platform is not called back for what the payload lacks."""
    bare = here.run(EXPORT)
    assert bare.error is not None
    assert bare.error.message.startswith("payload.inputs.content: is missing")
    view = here.run(export(SLIDES, view_mode="immersive"))
    assert error_of(view) == ("FAILED", "VALIDATION_ERROR", "VALIDATION_ERROR")


def test_a_formula_that_cannot_be_drawn_fails_the_export(here: Backend) -> None:
    """JOB-060"""
    result = here.run(export({"blocks": [{"type": "equation", "latex": r"\foo"}]}))
    assert error_of(result) == ("FAILED", "USER_CODE_ERROR", "INPUT_INVALID")
    assert result.error is not None
    assert r"\foo" in result.error.message
