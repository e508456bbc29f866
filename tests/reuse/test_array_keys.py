"""Keys of an array's elements are those that jobs of their own would have."""

from __future__ import annotations

import pytest

from detent.jobs.order import Call, ElementOrder, Order, Origin, read_order
from detent.reuse.ingredients import ArrayKeys, ingredients, key_of_order
from detent.reuse.work_keys import no_results

CALL = Call(kind="python", target="m:f", keywords={"scale": 2})


@pytest.mark.parametrize(
    "own",
    [
        ElementOrder((1,)),
        ElementOrder((), {"x": 'a\u00e4"\\'}),
        ElementOrder(
            (1, [2, {"a": None}], 3, 4, 5, 6, 7, 8, 9, 10, 11), {"y": 1.5, "b": {"$file": "sha256:f", "name": "n"}}
        ),
        ElementOrder(),
    ],
)
def test_an_element_has_the_key_and_the_ingredients_of_its_own_order(own: ElementOrder) -> None:
    shared = ingredients(CALL, no_results, salt="s")
    array = Order(CALL, "f", origin=Origin(ingredients=shared, again="once more"), elements=(own,))
    element = read_order(array.document()).of_element(0)
    assert element.origin.again == "once more"
    assert element.origin.ingredients == ingredients(element.call, no_results, salt="s")
    assert ArrayKeys(CALL, shared).of(own, no_results) == key_of_order(element)
