from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import NotStrictJson, json_decode, json_decode_trusted, json_digest, json_encode
from detent.canon.strict_json import INTEGER_BITS_MAX, INTEGER_DIGITS_MAX, JSON_DEPTH_MAX

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**2047), 2**2047)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(VALUES)
def test_decoding_undoes_encoding_exactly(value: Any) -> None:
    """X-170: integers exact, floats to the last bit, 1 and 1.0 and True apart"""
    data = json_encode(value)
    assert repr(_sorted(json_decode(data))) == repr(_sorted(value))
    assert json.loads(data) == value, "any other JSON reader reads the same"
    assert json_encode(json_decode(data)) == data


@given(VALUES)
def test_reading_without_a_check_gives_the_same_value(value: Any) -> None:
    data = json_encode(value)
    assert repr(json_decode_trusted(data)) == repr(json_decode(data))


@given(st.dictionaries(st.text(), st.integers(), max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_insertion_leaves_no_trace(value: dict[str, int], order: Any) -> None:
    """X-170"""
    items = list(value.items())
    order.shuffle(items)
    assert json_encode(dict(items)) == json_encode(value)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ({"lr": 0.001}, b'{"lr":0.001}'),
        ({"b": 1, "a": [True, None]}, b'{"a":[true,null],"b":1}'),
        ([1, 1.0, -0.0, 1e22, 1e-7, 5e-324], b"[1,1.0,-0.0,1e+22,1e-07,5e-324]"),
        (2**64 + 1, b"18446744073709551617"),
        ("é\n\u2028\U0001f600", '"é\\n\u2028\U0001f600"'.encode()),
        ({"\uffff": 1, "\U00010000": 2}, '{"\uffff":1,"\U00010000":2}'.encode()),
    ],
)
def test_known_values_have_known_bytes(value: Any, encoded: bytes) -> None:
    """X-170"""
    assert json_encode(value) == encoded


def test_the_digest_of_a_value_is_stable_and_has_a_label_of_its_own() -> None:
    """X-170: SHA-256 of `detent/json/v1`, a zero byte and the JSON bytes"""
    assert json_digest(json_encode({"lr": 0.001})).hex() == (
        "ed7a95d03ff99a45f8cca59217712c6d3935a5f4dac0956f9368a05543a5cfef"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "^rate is nan"),
        ({"lr": [float("inf")]}, r"^rate\.lr\[0\] is inf"),
        ([1, {"two words": float("-inf")}], r"^rate\[1\]\['two words'\] is -inf"),
        ({1: 2}, "^rate has the key 1; keys must be text"),
        ({"a": {None: 1}}, r"^rate\.a has the key None"),
        ((1, 2), "^rate is a tuple"),
        ([b"x"], r"^rate\[0\] is a bytes"),
        ({"d": Decimal(1)}, r"^rate\.d is a Decimal"),
        ("\ud800", "^rate is text with a lone surrogate"),
        ({"a": ["\ud800"]}, r"^rate\.a\[0\] is text with a lone surrogate"),
        ({"\udfff": 1}, "^rate has the key .* not valid Unicode"),
        (2**INTEGER_BITS_MAX, "^rate is an integer of more than 2048 bits"),
        ([1, -(2**INTEGER_BITS_MAX)], r"^rate\[1\] is an integer of more than 2048 bits"),
        ({10**5000: 1}, "^rate has the key an integer of 16610 bits"),
    ],
)
def test_what_json_cannot_say_is_refused_by_the_name_of_the_place(value: Any, message: str) -> None:
    """X-170"""
    with pytest.raises(NotStrictJson, match=message) as caught:
        json_encode(value, name="rate")
    assert caught.value.code == "NOT_STRICT_JSON"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a":1,"a":1}', "has the key 'a' twice"),
        (b'[{"a":1,"b":2,"\\u0061":3}]', "has the key 'a' twice"),
        (b"NaN", "has NaN"),
        (b"[Infinity]", "has Infinity"),
        (b"-Infinity", "has -Infinity"),
        (b"1e400", "larger than a binary64"),
        (b"1 2", "is not JSON"),
        (b"[1,]", "is not JSON"),
        (b"", "is not JSON"),
        (b"01", "is not JSON"),
        (b"'a'", "is not JSON"),
        (b'"\n"', "is not JSON"),
        (b"\xef\xbb\xbf1", "is not JSON"),
        (b'"\xff"', "is not UTF-8"),
        (b'"\xed\xa0\x80"', "is not UTF-8"),
        (b"1\x000\x00", "is not JSON"),
        (b'"\\ud800"', "lone surrogate"),
        (b'{"\\ud800":1}', "not valid Unicode"),
        (b"9" * (INTEGER_DIGITS_MAX + 1), "integer of more than 2048 bits"),
        (b"-" + b"9" * INTEGER_DIGITS_MAX, "integer of more than 2048 bits"),
        (b"[" * 100_000 + b"]" * 100_000, "nested deeper than 64"),
    ],
)
def test_ambiguous_or_broken_json_is_refused(data: bytes, message: str) -> None:
    """X-170"""
    with pytest.raises(NotStrictJson, match=message):
        json_decode(data)


def test_spacing_order_and_escapes_are_free_when_reading() -> None:
    """X-170"""
    assert json_decode(b' { "b" : 1 ,\n"a":"\\u00e9\\ud83d\\ude00" } ') == {"b": 1, "a": "é\U0001f600"}


def test_nesting_ends_at_the_limit_both_ways() -> None:
    """X-170"""
    value: Any = 0
    for _ in range(JSON_DEPTH_MAX):
        value = [value]
    assert json_decode(json_encode(value)) == value
    with pytest.raises(NotStrictJson) as refused:
        json_encode([value], name="result")
    assert str(refused.value) == f"result{'[0]' * 15}...{'[0]' * 16} is nested deeper than 64"
    assert refused.value.details == {"path": "result" + "[0]" * 64}
    with pytest.raises(NotStrictJson, match="nested deeper than 64"):
        json_decode(b"[" * 65 + b"]" * 65)


def test_a_value_that_contains_itself_is_refused() -> None:
    """X-170"""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotStrictJson, match="nested deeper than 64"):
        json_encode(loop)


def test_sizes_are_limited() -> None:
    assert json_encode("xx", bytes_max=4) == b'"xx"'
    with pytest.raises(NotStrictJson, match="5 bytes as JSON, 4 are allowed"):
        json_encode("xxx", bytes_max=4)
    with pytest.raises(NotStrictJson, match="5 bytes, 4 are allowed"):
        json_decode(b'"xxx"', bytes_max=4)
    with pytest.raises(NotStrictJson, match="expected bytes"):
        json_decode("1")  # type: ignore[arg-type]


def test_the_largest_integer_fits_both_ways() -> None:
    """X-170"""
    largest = 2**INTEGER_BITS_MAX - 1
    assert len(str(largest)) == INTEGER_DIGITS_MAX
    assert json_decode(json_encode([largest, -largest])) == [largest, -largest]


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
