from __future__ import annotations

import hashlib
from typing import Any

import pytest

from detent.canon import digest, digest_text, parse_digest, sha256
from detent.errors import InvalidInput, InvariantBroken

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_sha256_has_its_published_answers() -> None:
    assert sha256(b"").hex() == EMPTY
    assert sha256(b"abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_labelled_digest_hashes_the_label_in_front() -> None:
    assert digest(b"detent/test/v1\0", b"x") == hashlib.sha256(b"detent/test/v1\0x").digest()
    assert digest(b"detent/test/v1\0", b"x") != digest(b"detent/test/v2\0", b"x")


@pytest.mark.parametrize("label", [b"", b"no zero byte", b"\0two\0", b"in\0side"])
def test_a_label_that_could_begin_another_is_a_broken_invariant(label: bytes) -> None:
    with pytest.raises(InvariantBroken):
        digest(label, b"x")


def test_a_digest_is_written_and_read_in_one_way_only() -> None:
    """X-047: `sha256:<hex>`"""
    assert digest_text(sha256(b"")) == f"sha256:{EMPTY}"
    assert parse_digest(f"sha256:{EMPTY}") == sha256(b"")


@pytest.mark.parametrize(
    "text",
    [
        EMPTY,
        f"sha256:{EMPTY.upper()}",
        f"SHA256:{EMPTY}",
        f"sha256:{EMPTY[:-1]}",
        f"sha256:{EMPTY}0",
        f"sha256:{EMPTY}\n",
        f" sha256:{EMPTY}",
        f"md5:{EMPTY}",
        f"sha256:{EMPTY[:-1]}\N{FULLWIDTH DIGIT ONE}",
        "",
        None,
        EMPTY.encode(),
    ],
)
def test_every_other_spelling_of_a_digest_is_refused(text: Any) -> None:
    """X-047"""
    with pytest.raises(InvalidInput, match="not a digest"):
        parse_digest(text)


@pytest.mark.parametrize("value", [b"", b"\0" * 31, b"\0" * 33, "0" * 32, bytearray(32)])
def test_only_32_bytes_are_written_as_a_digest(value: Any) -> None:
    with pytest.raises(InvalidInput):
        digest_text(value)
