"""Blockdoc: what is understood, and how the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest

from detent.executor.runners.execute import BLOCKS_MAX, NotBlockdoc, document_of, source_of

DIGEST = "sha256:" + "a" * 64


def test_a_program_is_its_source_or_its_code_blocks_in_order() -> None:
    """JOB-042"""
    assert source_of({"source": "x = 1"}) == "x = 1"
    blocks = [{"type": "code", "source": "a"}, {"type": "text", "text": "t"}, {"type": "code", "source": "b"}]
    assert source_of({"blocks": blocks}) == "a\nb"
    assert source_of({"blocks": []}) == ""


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("x = 1", "value"),
        ({}, "value.blocks"),
        ({"source": 5}, "value.source"),
        ({"blocks": [{"type": "code"}]}, "value.blocks[0].source"),
    ],
)
def test_a_program_of_another_shape_is_refused_by_its_path(value: Any, path: str) -> None:
    """JOB-060"""
    with pytest.raises(NotBlockdoc) as caught:
        source_of(value)
    assert caught.value.path == path


def test_a_document_has_one_normal_form() -> None:
    """JOB-046"""
    block = {"type": "image", "digest": DIGEST}
    document, pictures = document_of(
        {"title": "T", "blocks": [block, block, {"type": "heading", "text": "h"}]}, notes=False
    )
    picture = {"type": "image", "digest": DIGEST, "alt": ""}
    heading = {"type": "heading", "text": "h", "level": 1}
    assert document == {"title": "T", "slides": [{"title": "", "blocks": [picture, picture, heading], "notes": ""}]}
    assert pictures == (DIGEST,)


def test_notes_are_dropped_unless_wanted() -> None:
    """JOB-046"""
    value = {"slides": [{"blocks": [], "notes": "secret"}]}
    assert document_of(value, notes=False)[0]["slides"][0]["notes"] == ""
    assert document_of(value, notes=True)[0]["slides"][0]["notes"] == "secret"


@pytest.mark.parametrize(
    ("block", "path"),
    [
        (5, ""),
        ({"type": ["text"]}, ".type"),
        ({"type": "marquee"}, ".type"),
        ({"type": "text", "text": None}, ".text"),
        ({"type": "heading", "text": "h", "level": 7}, ".level"),
        ({"type": "heading", "text": "h", "level": True}, ".level"),
        ({"type": "list", "items": ["a", 1]}, ".items"),
        ({"type": "table", "rows": []}, ".rows"),
        ({"type": "table", "rows": [[]]}, ".rows"),
        ({"type": "table", "rows": [["a"], ["b", "c"]]}, ".rows[1]"),
        ({"type": "table", "rows": [["a"] * 200] * 60}, ".rows"),
        ({"type": "image", "digest": "https://example.org/x.png"}, ".digest"),
    ],
)
def test_a_block_of_another_shape_is_refused_by_its_path(block: Any, path: str) -> None:
    """JOB-060, JOB-071"""
    with pytest.raises(NotBlockdoc) as caught:
        document_of({"blocks": [block]}, notes=False)
    assert caught.value.path == f"value.blocks[0]{path}"


def test_the_number_of_blocks_is_bounded() -> None:
    """JOB-060"""
    text = {"type": "text", "text": "x"}
    with pytest.raises(NotBlockdoc, match="at most"):
        document_of({"blocks": [text] * (BLOCKS_MAX + 1)}, notes=False)
    with pytest.raises(NotBlockdoc, match="more than"):
        document_of({"slides": [{"blocks": [text] * 6000}] * 2}, notes=False)
