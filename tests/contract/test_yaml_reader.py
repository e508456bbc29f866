"""Strict YAML: JSON values and nothing else, with the place of everything that is refused."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from detent.contract.findings import ContractInvalid
from detent.contract.words import BYTES_MAX, DEPTH_MAX
from detent.contract.yaml_reader import read
from tests.contract.contracts import keys, texts, values

BOTH = pytest.mark.parametrize("pure_python", [False, True], ids=["libyaml", "python"])


def outcome(data: bytes, *, pure_python: bool) -> object:
    """What reading gives: the value as JSON text, or the line and message of each finding."""
    try:
        return json.dumps(read(data, pure_python=pure_python).value)
    except ContractInvalid as exc:
        return [(finding.line, finding.message) for finding in exc.findings]


@BOTH
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("null", None),
        ("~", None),
        ("", None),
        ("true", True),
        ("false", False),
        ("12", 12),
        ("-0", 0),
        ("1.5", 1.5),
        ("1e5", 100000.0),
        ("NO", "NO"),
        ("on", "on"),
        ("True", "True"),
        ("Null", "Null"),
        ("010", "010"),
        ("0x1f", "0x1f"),
        ("0o17", "0o17"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        (".5", ".5"),
        ("1.", "1."),
        ("+1", "+1"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("'12'", "12"),
        ('"true"', "true"),
        ('"null"', "null"),
        ('""', ""),
        ("|\n  a\n   b\n", "a\n b\n"),
        (">\n  a\n  b\n", "a b\n"),
        ("[1, two, {three: 3}]", [1, "two", {"three": 3}]),
        ("{}", {}),
        ("=", "="),
    ],
)
def test_a_scalar_is_what_json_calls_it(written: str, meant: object, *, pure_python: bool) -> None:
    """`NO` is text and dates stay text: nothing is guessed"""
    value = read(f"a: {written}".encode(), pure_python=pure_python).value
    assert value == {"a": meant}
    assert type(value["a"]) is type(meant)


@BOTH
@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a: &x 1", 1, 4, "anchors (&name) are not read here"),
        ("a: 1\nb: *x", 2, 4, "aliases (*name) are not read here"),
        ("a: !!str 1", 1, 4, "tags (!name) are not read here"),
        ("a: ! 1", 1, 4, "tags (!name) are not read here"),
        ("a: !mine {}", 1, 4, "tags (!name) are not read here"),
        ("a: {b: 1}\n<<: {c: 2}", 2, 1, "merge keys (<<) are not read here"),
        ("a: 1\nb: 2\na: 3", 3, 1, "key 'a' is written twice, first on line 1"),
        ('{"x": 1, "y": {"x": 2, "x": 3}}', 1, 24, "key 'x' is written twice, first on line 1"),
        ("a: 1\n---\nb: 2", 2, 1, "a second document begins here"),
        ("%YAML 1.1\n---\na: 1", 1, 1, "directives (%YAML, %TAG) are not read here"),
        ("# hello\n\n%TAG ! x\n---\na: 1", 3, 1, "directives (%YAML, %TAG) are not read here"),
        ("%NEW thing\n---\na: 1", 1, 1, "directives (%YAML, %TAG) are not read here"),
        ("1: a", 1, 1, "the key 1 is not text"),
        ("a: {true: b}", 1, 5, "the key true is not text"),
        ("? [a]\n: b", 1, 3, "a key must be text, not a list or mapping"),
        ("", 1, 1, "the file is empty"),
        ("# nothing\n", 1, 1, "the file is empty"),
        ("a:\n\t- b", 2, 1, "a tab cannot indent a line"),
        ("a: @b", 1, 4, "a value cannot begin with '@'"),
        ("a: b: c", 1, 5, "a ':' cannot stand here"),
        ("a: 'b", 1, 4, "this text is never closed"),
        ('a: 1\nb: "c\nd: 2\n', 2, 4, "this text is never closed"),
        ("a: [1, 2\nb: 3", 2, 2, "the list opened by '[' on line 1 is not continued here"),
        ("a: {b: 1\n\nc: 2", 3, 2, "the mapping opened by '{' on line 1 is not continued here"),
        ("- a\nb: 1", 2, 1, "this line does not fit the list begun on line 1"),
        ("a: 1\n- b", 2, 1, "this line does not fit the mapping begun on line 1"),
        ("{a: 1}}", 1, 7, "there is text after the end of the document"),
        ("a: |x\n  b", 1, 5, "this cannot follow '|' or '>'"),
        ('a: "\\ud83d"', 1, 4, "an escape in this text names no Unicode character"),
        ("a: " + "9" * 700, 1, 4, "this number has more than 617 digits"),
        ("a: " + "9" * 617, 1, 4, "this number has more than 2048 bits"),
        ("a: -1e999", 1, 4, "this number is larger than a binary64 can hold"),
    ],
)  # fmt: skip
def test_what_lets_readers_disagree_is_refused_where_it_stands(
    text: str, line: int, column: int, message: str, *, pure_python: bool
) -> None:
    """WF-249"""
    with pytest.raises(ContractInvalid) as caught:
        read(text.encode(), name="f.yaml", pure_python=pure_python)
    first = caught.value.findings[0]
    assert (first.file, first.line, first.column, first.message) == ("f.yaml", line, column, message)
    assert first.code == "VALIDATION_ERROR"


def test_everything_that_can_be_read_past_is_found_at_once() -> None:
    with pytest.raises(ContractInvalid) as caught:
        read(b"a: &x 1\n2: b\na: !t c\nd: *x\n", name="f")
    assert [str(finding) for finding in caught.value.findings] == [
        "f:1:4: anchors (&name) are not read here",
        "f:2:1: the key 2 is not text",
        "f:3:1: key 'a' is written twice, first on line 1",
        "f:3:4: tags (!name) are not read here",
        "f:4:4: aliases (*name) are not read here",
    ]


@pytest.mark.parametrize(
    ("data", "line", "column", "message"),
    [
        (b"a: 1\nb: \xe9\n", 2, 4, "byte 0xe9 is not UTF-8"),
        ("ä: ".encode() + b"\xff", 1, 4, "byte 0xff is not UTF-8"),
        ("a: 1".encode("utf-16"), 1, 1, "the file is UTF-16"),
        (b"a: 1\nb:\x00", 2, 3, "control character U+0000 is not allowed in a contract"),
        (b"a: 1\r\n\r\nb: \x1b[0m", 3, 4, "control character U+001B is not allowed in a contract"),
        (b"x" * (BYTES_MAX + 1), 1, 1, "the file has 16,777,217 bytes, 16,777,216 are allowed"),
    ],
    ids=["latin-1", "no lead byte", "utf-16", "nul", "escape", "too large"],
)
def test_bytes_that_are_no_text_are_refused_by_line(data: bytes, line: int, column: int, message: str) -> None:
    with pytest.raises(ContractInvalid) as caught:
        read(data)
    (finding,) = caught.value.findings
    assert (finding.line, finding.column, finding.message) == (line, column, message)


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert read("\ufeffa: 1".encode()).value == {"a": 1}
    with pytest.raises(ContractInvalid, match="contract:1:1: directives"):
        read("\ufeff%YAML 1.1\n---\na: 1".encode())


@BOTH
def test_json_is_read_as_it_is_with_tabs_and_split_characters(*, pure_python: bool) -> None:
    document = {"emoji": "\U0001f600", "back\\slash": "\\ud83d", "list": [1, {"deep": None}]}
    for written in (json.dumps(document), json.dumps(document, indent="\t"), json.dumps(document, ensure_ascii=False)):
        assert read(written.encode(), pure_python=pure_python).value == document


@BOTH
def test_depth_is_bounded_while_reading(*, pure_python: bool) -> None:
    """The deepest allowed is read; one more, or thousands more, end at the same place"""
    assert read(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX, pure_python=pure_python).value
    for text in ("[" * (DEPTH_MAX + 1), "[" * 5000, "- " * 5000, "{a: " * 5000, '{"a":' * 5000, "? " * 70):
        with pytest.raises(ContractInvalid) as caught:
            read(text.encode(), pure_python=pure_python)
        assert caught.value.findings[0].message in {
            "nested deeper than 64 lists and mappings",
            "a key must be text, not a list or mapping",
        }


def test_the_number_of_nodes_is_bounded_while_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.contract.yaml_reader.NODES_MAX", 1000)
    assert len(read(b"[" + b"a," * 999 + b"]").value) == 999
    with pytest.raises(ContractInvalid, match="more than 1,000 keys and values"):
        read(b"[" + b"a," * 1000 + b"]")


def test_a_billion_laughs_ends_at_the_first_one() -> None:
    lines = ["a0: &a0 [ha, ha]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    with pytest.raises(ContractInvalid) as caught:
        read("\n".join(lines).encode())
    assert caught.value.findings[0].message == "anchors (&name) are not read here"
    assert len(caught.value.findings) == 100
    assert caught.value.more == 30 + 29 * 9 - 100


@BOTH
@given(document=st.dictionaries(keys, values, max_size=4))
def test_any_json_reads_back_equal(document: dict[str, object], *, pure_python: bool) -> None:
    flow, block = json.dumps(document), json.dumps(document, indent=2, ensure_ascii=False)
    assert json.dumps(read(flow.encode(), pure_python=pure_python).value) == flow
    assert json.dumps(read(block.encode(), pure_python=pure_python).value) == flow


# PyYAML writes 0E0 without quotes when it means text, because to YAML 1.1 it is no number.
_wordy = texts.filter(lambda text: text[:1] not in set("-0123456789"))


@given(
    document=st.dictionaries(keys, st.lists(_wordy | st.booleans() | st.none() | st.integers(), max_size=4), max_size=4)
)
def test_what_pyyaml_dumps_reads_back_in_order(document: dict[str, object]) -> None:
    """WF-039: mappings keep the order in which they are written"""
    for style in (False, True):
        data = yaml.safe_dump(document, sort_keys=False, default_flow_style=style, allow_unicode=True).encode()
        assert json.dumps(read(data).value) == json.dumps(document)


_YAML_PARTS = st.sampled_from(
    ["a", "b: ", "- ", "\n", "\n  ", "\n    ", ": ", "[", "]", "{", "}", ", ", "'", '"', "|", ">", "#", " ", "\t", "&x ",
     "*x", "!t ", "? ", "---\n", "...\n", "%", "\\", "\\x", "\\u00e9", "1", "-1.5e3", "~", "null", "<<: ", "é", "\u2028", "\r\n",
     "-", "@", "`"]
)  # fmt: skip


@given(parts=st.lists(_YAML_PARTS, max_size=25))
def test_both_parsers_never_read_two_different_things(parts: list[str]) -> None:
    """One of the two may be stricter in odd corners (`|#`, a tab inside plain text); what both read is the same"""
    data = "".join(parts).encode()
    fast, slow = outcome(data, pure_python=False), outcome(data, pure_python=True)
    if isinstance(fast, str) and isinstance(slow, str):
        assert fast == slow


def test_the_python_parser_steps_in_where_libyaml_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml._yaml", None)
    assert read(b"a: [1, b]").value == {"a": [1, "b"]}


# -- characters that other readers read otherwise ----------------------------------------------------------------------

DOUBTFUL = ("\x85", "\u2028", "\u2029", "\ufeff")


@BOTH
@pytest.mark.parametrize("character", DOUBTFUL, ids=ascii)
@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a: 1 # off➤b: 2\n", 1, 11),
        ("# off➤a: 2\na: 1\n", 1, 6),
        ("a: 1\r\nb: x➤y\r\n", 2, 5),
        ("a: 1\rb➤: y", 2, 2),
        ("a:\n  - 'q'➤\n  - r\n", 2, 8),
        ("a: |\n  x➤y\n", 2, 4),
        ("a: >\n  x➤\n  y\n", 2, 4),
        ("a: [1,➤2]", 1, 7),
        ("a: {b: 1}➤", 1, 10),
        ("a:➤  - b: 1", 1, 3),
        ("---➤\na: 1", 1, 4),
        ("a: 1\n➤b: 2", 2, 1),
        ("a: 1\n...\n# end➤", 3, 6),
    ],
)
def test_a_character_that_ends_a_line_for_some_readers_is_refused_outside_of_quotes(
    text: str, line: int, column: int, character: str, *, pure_python: bool
) -> None:
    data = text.replace("➤", character).encode()
    with pytest.raises(ContractInvalid) as info:
        read(data, name="f.yaml", pure_python=pure_python)
    first = info.value.findings[0]
    assert (first.file, first.line, first.column) == ("f.yaml", line, column)
    assert f"U+{ord(character):04X} cannot stand outside of quoted text" in first.message
    assert "quotes" in first.hint


@BOTH
@pytest.mark.parametrize("character", DOUBTFUL, ids=ascii)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 'x➤y'", {"a": "x➤y"}),
        ('a: "x➤y"', {"a": "x➤y"}),
        ('{"a": "x➤➤y", "b➤": ["➤"]}', {"a": "x➤➤y", "b➤": ["➤"]}),
        ("a: 'x ➤ y'\nb: 2", {"a": "x ➤ y", "b": 2}),
        ("a: 'x ➤\n  y'", {"a": "x ➤ y"}),
        ('a: "\\L\\P\\N\\ufeff➤"', {"a": "\u2028\u2029\x85\ufeff➤"}),
        ("a: '\U000f0000➤\U000f0001'", {"a": "\U000f0000➤\U000f0001"}),
    ],
)
def test_inside_of_quotes_and_json_strings_it_is_kept_as_it_is(
    text: str, value: object, character: str, *, pure_python: bool
) -> None:
    data = text.replace("➤", character).encode()
    assert json.dumps(read(data, pure_python=pure_python).value) == json.dumps(value).replace(
        "\\u27a4", json.dumps(character)[1:-1]
    )


@BOTH
@pytest.mark.parametrize(
    ("text", "column"),
    [("[?x]", 2), ("{?x: 1}", 2), ("[a, ?b]", 5), ("[?x: 1]", 2), ('[?"x"]', 2), ("{?'x': 1}", 2), ("a: [[?x]]", 6)],
)
def test_a_question_mark_that_only_some_readers_take_for_a_key_is_refused(
    text: str, column: int, *, pure_python: bool
) -> None:
    with pytest.raises(ContractInvalid) as info:
        read(text.encode(), pure_python=pure_python)
    first = info.value.findings[0]
    assert (first.line, first.column) == (1, column)
    assert "a ? that marks a key needs a blank behind it" in first.message


@BOTH
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: ?x\n?y: 1", {"a": "?x", "?y": 1}),
        ("{? x : y}", {"x": "y"}),
        ("? x\n: y", {"x": "y"}),
        ("a: http://b?c=d # [?x]", {"a": "http://b?c=d"}),
        ("['?x', \"?y\"]", ["?x", "?y"]),
        ("a: |\n  [?x]\n", {"a": "[?x]\n"}),
    ],
)
def test_other_question_marks_are_read(text: str, value: object, *, pure_python: bool) -> None:
    assert read(text.encode(), pure_python=pure_python).value == value


_PIECES = st.sampled_from(
    [
        *DOUBTFUL,
        *(
            "\n",
            "\r\n",
            " ",
            "  ",
            "a",
            "b: ",
            "- ",
            "'",
            '"',
            "[",
            "]",
            "{",
            "}",
            ", ",
            ": ",
            "? ",
            "#",
            " # ",
            "|\n",
            "x: 'q'",
            '"\\L"',
        ),
        *("\U000f0000", "ä", "1", "--- ", "\\"),
    ]
)


@given(st.lists(_PIECES, max_size=14).map("".join))
def test_both_parsers_agree_wherever_such_characters_stand(text: str) -> None:
    """What both read they read alike, with every such character in it; what one refuses for its sake, both refuse."""
    c, python = (outcome(text.encode(), pure_python=pure) for pure in (False, True))
    if isinstance(c, str) and isinstance(python, str):
        assert c == python
        unescaped = text.replace('"\\L"', "")
        assert all(json.dumps(one)[1:-1] in c for one in DOUBTFUL if one in unescaped.removeprefix("\ufeff"))
    if any("outside of quoted text" in str(found) for found in (c, python)):
        assert isinstance(c, list)
        assert isinstance(python, list)


@BOTH
def test_a_file_made_of_such_characters_is_refused_in_a_moment(*, pure_python: bool) -> None:
    with pytest.raises(ContractInvalid) as info:
        read(("a: 1 #" + "\u2028" * 300_000).encode(), pure_python=pure_python)
    assert len(info.value.findings) + info.value.more == 300_000
