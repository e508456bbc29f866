"""How values and their types are written in messages."""

from __future__ import annotations

from uuid import UUID

import pytest

from detent.canon.show import PLACE_ENDS, a_or_an, place


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (int, "an int"),
        (object, "an object"),
        (list, "a list"),
        (UUID, "a UUID"),
        ("array", "an array"),
        ("EnumMode", "an EnumMode"),
        ("owner", "an owner"),
        ("upper", "an upper"),
        ("union", "a union"),
        ("UserDict", "a UserDict"),
        ("job", "a job"),
    ],
)
def test_a_noun_has_the_article_that_it_is_spoken_with(what: str | type, said: str) -> None:
    assert a_or_an(what) == said


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("", ""),
        (".rows[3]", ".rows[3]"),
        ("[0]" * 64, "[0]" * 15 + "..." + "[0]" * 16),
        (".alpha" + ".middle" * 20 + ".omega", ".alpha" + ".middle" * 5 + "..." + ".middle" * 6 + ".omega"),
        ("['" + "a" * 200 + "']", "['" + "a" * 46 + "..." + "a" * 46 + "']"),
    ],
)
def test_a_long_place_is_cut_in_the_middle_between_two_steps(path: str, shown: str) -> None:
    assert place(path) == shown
    assert len(shown) <= 2 * PLACE_ENDS + 3
