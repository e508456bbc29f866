"""What a guest says is read with suspicion."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.executor.sandbox.classify import cut_stream, read_python, read_value
from detent.executor.sandbox.model import Stream

SOURCE = "def main():\n    é = 1; return 1/0\n"


def told(chain: list[dict[str, object]], message: object = "division by zero") -> bytes:
    return b"E" + json.dumps({"chain": chain}).encode() + b"\n" + json.dumps(message).encode()


def test_a_value_is_kept_as_it_was_written() -> None:
    assert read_python(b'R{"b": 1, "a": 2}', source="", filename="main.py").result == b'{"b": 1, "a": 2}'
    assert read_value(b"1.5") == (b"1.5", None, None)
    assert read_value(b"") == (None, None, None)


@pytest.mark.parametrize(
    "data", [b"RNaN", b"R1e400", b'R{"a":1,"a":1}', b'R"\\ud800"', b"R" + b"[" * 70, b"R\x80", b"x", b"R1 2"]
)
def test_what_is_not_strict_json_is_a_fault(data: bytes) -> None:
    """JOB-080"""
    answer = read_python(data, source="", filename="main.py")
    assert answer.result is None
    assert answer.fault


def test_an_exception_is_told_with_the_place_in_the_users_code() -> None:
    """JOB-059"""
    frames = [["main.py", 2, 20, "main"], ["/usr/lib/python3/x.py", 9, 1, "inner"]]
    raised = read_python(
        told([{"type": "ZeroDivisionError", "frames": frames}]), source=SOURCE, filename="main.py"
    ).raised
    assert raised is not None
    # The interpreter counts bytes and é has two; people count characters.
    assert (raised.type, raised.message, raised.line, raised.column) == ("ZeroDivisionError", "division by zero", 2, 19)
    assert raised.traceback == (
        "Traceback (most recent call last):\n"
        '  File "main.py", line 2, in main\n'
        "    é = 1; return 1/0\n"
        '  File "/usr/lib/python3/x.py", line 9, in inner\n'
        "ZeroDivisionError: division by zero"
    )


def test_a_cause_stands_before_what_it_led_to() -> None:
    links: list[dict[str, object]] = [
        {"type": "ValueError", "frames": [["main.py", 1, 1, "a"]]},
        {"type": "KeyError", "frames": [["main.py", 2, 1, "b"]]},
    ]
    raised = read_python(told(links), source=SOURCE, filename="main.py").raised
    assert raised is not None
    assert (
        raised.traceback.index("KeyError")
        < raised.traceback.index("which led to:")
        < raised.traceback.index("ValueError")
    )


def test_message_and_traceback_are_bounded() -> None:
    """JOB-059, X-155"""
    frames = [["main.py", 1, 1, "f" * 900]] * 150
    raised = read_python(
        told([{"type": "E" * 5000, "frames": frames}], "x" * 100_000), source=SOURCE, filename="main.py"
    ).raised
    assert raised is not None
    assert len(raised.message.encode()) <= 4096
    assert len(raised.traceback.encode()) <= 65_536


def test_a_missing_message_is_said_to_be_missing() -> None:
    data = told([{"type": "E", "frames": []}]).partition(b"\n")[0] + b"\n"
    raised = read_python(data, source="", filename="main.py").raised
    assert raised is not None
    assert raised.message.startswith("<no message")


@pytest.mark.parametrize(
    "chain",
    [[], [{}], [{"type": 1, "frames": []}], [{"type": "E", "frames": 1}], [{"type": "E", "frames": [["a", "b", 1, "c"]]}],
     [{"type": "E", "frames": [["a", 1]]}], [{"type": "E", "frames": []}] * 17, [{"type": "E", "frames": [["a", True, 1, "c"]]}]],
)  # fmt: skip
def test_a_story_of_another_shape_is_a_fault(chain: list[dict[str, object]]) -> None:
    assert read_python(told(chain), source="", filename="main.py").fault


@given(st.binary(max_size=60))
def test_no_bytes_a_guest_says_break_the_reader(data: bytes) -> None:
    answer = read_python(data, source=SOURCE, filename="main.py")
    assert [answer.result, answer.raised, answer.fault].count(None) >= 2


@given(st.text(max_size=40), st.integers(0, 60))
def test_a_stream_is_cut_at_the_limit_but_never_inside_a_character(text: str, most: int) -> None:
    """JOB-056, X-147"""
    data = text.encode("utf-8", "ignore")
    stream = cut_stream(data, bytes_max=most, truncated=False)
    assert stream.truncated == (len(data) > most)
    assert data.startswith(stream.data)
    stream.data.decode("utf-8")
    assert min(len(data), most) - len(stream.data) < 4


def test_bytes_that_are_no_text_are_kept_raw() -> None:
    assert cut_stream(b"\xff\xfe\x80", bytes_max=3, truncated=False) == Stream(b"\xff\xfe\x80", truncated=False)
    assert cut_stream(b"ab\xe2\x82", bytes_max=4, truncated=True) == Stream(b"ab", truncated=True)
