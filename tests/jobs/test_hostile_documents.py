"""Whatever a document says, reading it ends in a model or in one typed error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import json_encode
from detent.errors import DetentError
from detent.jobs import EnvelopeInvalid, read_payload, read_result
from tests.jobs.envelopes import EXECUTE, EXPORT, FAILED, RENDER, SUCCEEDED, THUMBNAIL, changed, payload

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["CANCELED", "1.0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = (EXECUTE, RENDER, EXPORT, THUMBNAIL, payload().document(), SUCCEEDED, FAILED)


def places(value: Any, path: str = "") -> list[str]:
    """The path of everything inside a document."""
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [found for key, inner in items for found in (f"{path}{key}", *places(inner, f"{path}{key}."))]


def reader(document: dict[str, Any]) -> Callable[[Any], Any]:
    return read_result if "status" in document else read_payload


@given(st.data())
def test_a_document_with_anything_anywhere_is_read_or_refused_by_a_path(data: st.DataObject) -> None:
    """JOB-060: the schema check answers VALIDATION_ERROR, never with an error of ours."""
    document = data.draw(st.sampled_from(DOCUMENTS))
    path = data.draw(st.sampled_from(places(document)))
    mutant = changed(document, path, data.draw(VALUES))
    try:
        read = reader(document)(mutant)
    except EnvelopeInvalid as exc:
        refused_at = exc.details["path"]
    else:
        refused_at = ""
        assert read.document() == mutant
        assert reader(document)(json_encode(mutant)) == read
    assert isinstance(refused_at, str)


@given(st.binary(max_size=30) | VALUES)
def test_anything_at_all_is_refused_with_a_typed_error(value: Any) -> None:
    """X-170"""
    for read in (read_payload, read_result):
        with pytest.raises(DetentError) as caught:
            read(value)
        assert caught.value.code == "VALIDATION_ERROR"


@pytest.mark.parametrize("name", ["document", "model_dump", "model_extra", "__class__", "tenant_id", "ids", "_x", ""])
def test_an_unknown_field_cannot_stand_in_for_a_part_of_the_model(name: str) -> None:
    """X-161"""
    hostile = {**payload().document(), name: "hostile"}
    read = read_payload(hostile)
    assert read.document() == hostile
    assert (read.tenant_id, read.object_ids) == ("workspace-1", ("obj-a",))


def test_a_deep_or_large_document_is_refused_before_it_is_understood() -> None:
    """JOB-006"""
    deep = b'{"a":' * 100_000
    with pytest.raises(EnvelopeInvalid, match="payload"):
        read_payload(deep)
    with pytest.raises(EnvelopeInvalid, match="bytes"):
        read_payload({**EXECUTE, "blob": "x" * 17 * 1024 * 1024})
