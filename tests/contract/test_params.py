"""Parameters: declared with a default or a type, and checked when a run binds them."""

from __future__ import annotations

from typing import Any

import pytest

from detent.contract import Contract, Param, ParamsInvalid, from_document, params, parse_assignment

DECLARED: dict[str, Any] = {
    "rows": 10,
    "rate": 0.5,
    "source": "a",
    "dry": False,
    "files": ["x"],
    "token": None,
    "anything": {"default": None},
    "options": {"type": "object", "default": {"a": 1}, "description": "how"},
    "count": {"type": "integer"},
}


@pytest.fixture
def contract() -> Contract:
    return from_document({"name": "n", "params": DECLARED, "steps": []})


def test_a_default_tells_the_type_and_a_declaration_says_it(contract: Contract) -> None:
    """X-177"""
    assert list(contract.params.values()) == [
        Param("rows", "integer", 10),
        Param("rate", "number", 0.5),
        Param("source", "string", "a"),
        Param("dry", "boolean", False),
        Param("files", "list", ["x"]),
        Param("token", "any", required=True),
        Param("anything", "any", None),
        Param("options", "object", {"a": 1}, description="how"),
        Param("count", "integer", required=True),
    ]


def test_binding_fills_defaults_in_declared_order(contract: Contract) -> None:
    bound = params.bind(contract, {"count": 2, "token": [1], "rows": 7})
    assert bound == {
        "rows": 7,
        "rate": 0.5,
        "source": "a",
        "dry": False,
        "files": ["x"],
        "token": [1],
        "anything": None,
        "options": {"a": 1},
        "count": 2,
    }
    assert list(bound) == list(DECLARED)


def test_everything_wrong_with_given_values_is_told_at_once(contract: Contract) -> None:
    with pytest.raises(ParamsInvalid) as caught:
        params.bind(contract, {"rows": 1.5, "rwos": 1, "dry": 1, "options": [], "token": float("nan"), "rate": "x"})
    assert caught.value.details["errors"] == [
        "the contract has no parameter 'rwos'; did you mean 'rows'?",
        "parameter 'rows' is of type integer, not 1.5",
        "parameter 'rate' is of type number, not 'x'",
        "parameter 'dry' is of type boolean, not 1",
        "token is nan, which JSON cannot hold",
        "parameter 'options' is of type object, not []",
        "parameter 'count' is required; give it as -p count=VALUE",
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("rows=12", 12),
        ("rate=2", 2),
        ("rate=1e-3", 0.001),
        ("source=10", "10"),
        ("source=a=b", "a=b"),
        ("source=", ""),
        ("dry=true", True),
        ("files=[1, 2]", [1, 2]),
        ('options={"b": null}', {"b": None}),
        ("token=12", 12),
        ("token=abc", "abc"),
        ("token={broken", "{broken"),
    ],
)
def test_an_assignment_is_read_as_its_declared_type(text: str, value: object, contract: Contract) -> None:
    """X-177: -p name=value"""
    name, parsed = parse_assignment(text, contract)
    assert name == text.split("=", maxsplit=1)[0]
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows", "'rows' is not an assignment"),
        ("rows=ten", "parameter 'rows' is of type integer, not 'ten'"),
        ("rows=1.0", "parameter 'rows' is of type integer, not 1.0"),
        ("dry=yes", "parameter 'dry' is of type boolean, not 'yes'"),
        ("files=a", "parameter 'files' is of type list, not 'a'"),
        ("fils=[]", "the contract has no parameter 'fils'; did you mean 'files'?"),
        (
            "zzzz=1",
            "the contract has no parameter 'zzzz'; it has rows, rate, source, dry, files, token, anything, options",
        ),
        ("rate=NaN", "parameter 'rate' is of type number, not 'NaN'"),
    ],
)
def test_an_assignment_that_does_not_fit_is_refused(text: str, message: str, contract: Contract) -> None:
    with pytest.raises(ParamsInvalid) as caught:
        parse_assignment(text, contract)
    assert str(caught.value) == message
