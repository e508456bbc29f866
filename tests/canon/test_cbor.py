from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import cbor2
import libipld
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detent.canon import MAX_DEPTH, RECORD_BYTES_MAX, NotCanonical, cbor, decode, encode, encode_trusted, sha256

INTEGERS = st.integers(-(2**63), 2**64 - 1) | st.integers(-300, 300)
DIGESTS = st.binary(min_size=32, max_size=32)
# Bytes that libipld takes for a content id: version 1 with any codec, hash and a length that fits, or version 0.
CID_LIKE = st.builds(
    lambda codec, code, size, tail: bytes((1, codec, code, size)) + tail.ljust(size, b"\7"),
    st.integers(0, 127),
    st.integers(0, 127),
    st.integers(0, 28),
    st.binary(max_size=28),
) | st.builds(lambda digest: b"\x12\x20" + digest, DIGESTS)
SCALARS = st.none() | st.booleans() | INTEGERS | st.text(max_size=30) | st.binary(max_size=40) | DIGESTS | CID_LIKE
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=30), inner, max_size=4),
    max_leaves=12,
)
CID_DIGEST = b"\1" * 32


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        # RFC 8949, appendix A, as far as the profile goes.
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (255, "18ff"),
        (256, "190100"),
        (65536, "1a00010000"),
        (4294967296, "1b0000000100000000"),
        (18446744073709551615, "1bffffffffffffffff"),
        (-1, "20"),
        (-100, "3863"),
        (-(2**63), "3b7fffffffffffffff"),
        (False, "f4"),
        (True, "f5"),
        (None, "f6"),
        (b"\1\2\3\4", "4401020304"),
        ("", "60"),
        ("\u6c34", "63e6b0b4"),
        ([1, [2, 3], [4, 5]], "8301820203820405"),
        ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
        # PIPE-063 gives these bytes for its key.
        (["tenant-a", "job-1", 0, 0], "846874656e616e742d61656a6f622d310000"),
        # Keys are ordered by their encoded bytes: the shorter first, whatever the alphabet says.
        ({"aa": 1, "b": 2}, "a261620262616101"),
    ],
)
def test_known_values_have_their_published_bytes(value: Any, encoded: str) -> None:
    """X-047, PIPE-063"""
    assert encode(value).hex() == encoded
    assert encode_trusted(value).hex() == encoded
    assert decode(bytes.fromhex(encoded)) == value


@given(VALUES)
@example([CID_DIGEST])
@example({"k": b"\x12\x20" + bytes(32)})
def test_encoding_agrees_with_an_independent_canonical_encoder(value: Any) -> None:
    """X-047"""
    expected = cbor2.dumps(value, canonical=True)
    assert encode(value) == expected
    assert encode_trusted(value) == expected


@given(VALUES)
def test_the_plain_encoder_agrees_with_it_too(value: Any) -> None:
    """X-047"""
    assert b"".join(cbor._plain_parts(value)) == cbor2.dumps(value, canonical=True)


@given(VALUES)
def test_decoding_undoes_encoding(value: Any) -> None:
    """X-047"""
    decoded = decode(encode(value))
    assert decoded == value
    assert repr(decoded) == repr(_sorted(value)), "1 and True are equal, but not the same value"


@pytest.mark.parametrize(
    "content_id",
    [
        CID_DIGEST,
        b"\x01\x71\x12\x1c" + bytes(28),
        b"\x12\x20" + bytes(32),
        b"\x01\x55\x12\x20" + sha256(b"x"),
        b"\x01\x00\x00\x00",
    ],
)
def test_bytes_that_look_like_a_content_id_stay_bytes(content_id: bytes) -> None:
    """X-047: a digest must never turn into a tag because of how it happens to begin."""
    assert libipld.encode_dag_cbor(content_id)[:2] == b"\xd8\x2a", "the trap is gone; this test guards nothing any more"
    value = {"digest": content_id, "list": [content_id]}
    for encoder in (encode, encode_trusted):
        data = encoder(value)
        assert data == cbor2.dumps(value, canonical=True)
        assert decode(data) == value


def test_a_real_tag_42_is_refused() -> None:
    """X-047"""
    with pytest.raises(NotCanonical):
        decode(libipld.encode_dag_cbor([b"\x12\x20" + bytes(32)]))


def test_ordinary_records_never_take_the_slow_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """X-047: the slow path is for the two bytes D8 2A side by side, and for nothing else."""

    def unexpected(_: object) -> list[bytes]:
        raise AssertionError("slow encoder used")

    monkeypatch.setattr(cbor, "_plain_parts", unexpected)
    record = {"kind": "transition", "tag byte alone": b"\xd8\x00\x2a", "asterisks": "**", "tick": 0xD8}
    assert encode_trusted(record) == cbor2.dumps(record, canonical=True)
    with pytest.raises(AssertionError, match="slow encoder used"):
        encode_trusted(CID_DIGEST)


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.5, "value is a float"),
        ({"lr": [0.0]}, r"value\.lr\[0\] is a float"),
        (2**64, r"value is an integer outside -2\*\*63"),
        ([-(2**63) - 1], r"value\[0\] is an integer outside"),
        ([-(2**64)], r"value\[0\] is an integer outside"),
        ({"two words": 10**5000}, r"value\['two words'\] is an integer outside"),
        ({1: 2}, "value has a key that is not text"),
        ({"a": {b"k": 1}}, r"value\.a has a key that is not text"),
        ((1, 2), "value is a tuple"),
        ([bytearray(b"x")], r"value\[0\] is a bytearray"),
        ({"a": {1, 2}}, r"value\.a is a set"),
        (Colour.RED, "value is a Colour"),
        ([OrderedDict(a=1)], r"value\[0\] is an OrderedDict"),
        ("\ud800", "not valid Unicode"),
        ({"\ud800": 1}, "not valid Unicode"),
    ],
)
def test_encoding_refuses_what_the_profile_lacks_and_names_the_place(value: Any, message: str) -> None:
    """X-047, PIPE-018"""
    with pytest.raises(NotCanonical, match=message) as caught:
        encode(value)
    assert caught.value.code == "NOT_CANONICAL"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("1800", "0 in two bytes"),
        ("1817", "23 in two bytes"),
        ("1900ff", "255 in three bytes"),
        ("1a0000ffff", "65535 in five bytes"),
        ("1b00000000ffffffff", "2**32-1 in nine bytes"),
        ("3800", "-1 in two bytes"),
        ("580161", "long head of a byte string"),
        ("780161", "long head of a text"),
        ("9801f6", "long head of a list"),
        ("b801616101", "long head of a map"),
        ("a178016101", "long head of a key"),
        ("5f4161ff", "indefinite bytes"),
        ("7f6161ff", "indefinite text"),
        ("9f01ff", "indefinite list"),
        ("bf616101ff", "indefinite map"),
        ("a2616101616102", "duplicate key"),
        ("a2616201616101", "keys out of order"),
        ("a262616101616202", "longer key first"),
        ("a10102", "integer key"),
        ("a1416101", "bytes key"),
        ("f93c00", "half float"),
        ("fa3f800000", "single float"),
        ("fb3ff8000000000000", "double float"),
        ("fb7ff8000000000000", "NaN"),
        ("f7", "undefined"),
        ("e0", "simple value 0"),
        ("f820", "simple value 32"),
        ("f814", "false in two bytes"),
        ("c000", "tag 0"),
        ("c249010000000000000000", "bignum"),
        ("d9d9f700", "self-described CBOR"),
        ("3b8000000000000000", "-2**63-1"),
        ("3bffffffffffffffff", "-2**64"),
        ("", "nothing"),
        ("0000", "two values"),
        ("8201", "list cut short"),
        ("a1", "map cut short"),
        ("61", "text cut short"),
        ("61ff", "text that is not UTF-8"),
        ("63eda080", "a surrogate in UTF-8"),
        ("9bffffffffffffffff", "a list longer than the input"),
        ("5bffffffffffffffff", "bytes longer than the input"),
        ("1c", "reserved head"),
        ("ff", "break alone"),
    ],
)
def test_decoding_refuses_every_other_spelling(data: str, why: str) -> None:
    """X-047: non-canonical CBOR with the same meaning is refused, and so is what the profile lacks."""
    with pytest.raises(NotCanonical):
        decode(bytes.fromhex(data))


@given(VALUES, st.data())
def test_any_sloppy_spelling_of_a_value_is_refused(value: Any, data: st.DataObject) -> None:
    """X-047"""
    sloppy = _sloppy(value, lambda: data.draw(st.integers(0, 3)))
    if sloppy == encode(value):
        assert decode(sloppy) == value
    else:
        with pytest.raises(NotCanonical):
            decode(sloppy)


@given(VALUES, st.data())
def test_a_flipped_bit_never_gives_a_second_spelling(value: Any, data: st.DataObject) -> None:
    """X-047: whatever decodes at all is the one encoding of what it decodes to."""
    damaged = bytearray(encode(value))
    place = data.draw(st.integers(0, len(damaged) * 8 - 1))
    damaged[place // 8] ^= 1 << place % 8
    try:
        decoded = decode(bytes(damaged))
    except NotCanonical:
        return
    assert cbor2.dumps(decoded, canonical=True) == bytes(damaged)
    assert repr(decoded) != repr(_sorted(value))


@given(st.binary(max_size=60))
def test_arbitrary_bytes_decode_or_are_refused_and_nothing_else_happens(data: bytes) -> None:
    """X-047"""
    try:
        value = decode(data)
    except NotCanonical:
        return
    assert encode(value) == data


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"k": inner}], ids=["list", "map"])
def test_sixteen_containers_nest_and_seventeen_do_not(wrap: Callable[[Any], Any]) -> None:
    """X-047"""
    value: Any = 0
    for _ in range(MAX_DEPTH):
        value = wrap(value)
    assert decode(encode(value)) == value
    deeper = wrap(value)
    with pytest.raises(NotCanonical, match="nested deeper than 16"):
        encode(deeper)
    with pytest.raises(NotCanonical, match="nested deeper than 16"):
        decode(cbor2.dumps(deeper))


def test_absurd_nesting_is_refused_without_a_crash() -> None:
    """X-047"""
    for head in (b"\x81", b"\xa1\x60"):
        with pytest.raises(NotCanonical):
            decode(head * 1_000_000 + b"\0")


def test_sizes_are_limited_where_the_caller_says_so() -> None:
    fits = bytes(RECORD_BYTES_MAX - 3)
    assert RECORD_BYTES_MAX == 60 * 1024
    data = encode(fits, bytes_max=RECORD_BYTES_MAX)
    assert len(data) == RECORD_BYTES_MAX
    assert decode(data, bytes_max=RECORD_BYTES_MAX) == fits
    with pytest.raises(NotCanonical, match="61441 bytes, 61440 are allowed"):
        encode(fits + b"\0", bytes_max=RECORD_BYTES_MAX)
    with pytest.raises(NotCanonical, match="61441 bytes, 61440 are allowed"):
        decode(encode(fits + b"\0"), bytes_max=RECORD_BYTES_MAX)


@pytest.mark.parametrize("data", [bytearray(b"\0"), memoryview(b"\0"), "00", None])
def test_only_bytes_are_decoded(data: Any) -> None:
    with pytest.raises(NotCanonical, match="expected bytes"):
        decode(data)


def _sorted(value: Any) -> Any:
    """The value with its keys in the order in which a decoder meets them."""
    if isinstance(value, dict):
        ordered = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return {key: _sorted(value[key]) for key in ordered}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _sloppy(value: Any, choose: Callable[[], int]) -> bytes:
    """An encoding that means the same, with heads as long and keys in whatever order ``choose`` likes."""
    if value is None or isinstance(value, bool):
        return cbor2.dumps(value)
    if isinstance(value, int):
        return _head(0 if value >= 0 else 1, value if value >= 0 else -1 - value, choose())
    if isinstance(value, bytes):
        return _head(2, len(value), choose()) + value
    if isinstance(value, str):
        return _head(3, len(value.encode()), choose()) + value.encode()
    if isinstance(value, list):
        return _head(4, len(value), choose()) + b"".join(_sloppy(item, choose) for item in value)
    keys = list(value) if choose() else list(_sorted(value))
    return _head(5, len(value), choose()) + b"".join(_sloppy(key, choose) + _sloppy(value[key], choose) for key in keys)


def _head(major: int, argument: int, longer: int) -> bytes:
    """A CBOR head, ``longer`` steps longer than it has to be."""
    sizes = (0, 1, 2, 4, 8)
    least = next(place for place, size in enumerate(sizes) if argument < (24 if size == 0 else 256**size))
    place = min(least + longer, 4)
    if place == 0:
        return bytes((major << 5 | argument,))
    return bytes((major << 5 | 23 + place,)) + argument.to_bytes(sizes[place], "big")
