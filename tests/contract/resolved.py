"""Values of a contract with their references filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.contract.references import FROM, PARAM, replaced


def resolved(value: Any, results: Mapping[str, Any], params: Mapping[str, Any]) -> Any:
    """The value with the results of steps and the parameters in the place of references."""
    known = {FROM: results, PARAM: params}
    return replaced(value, lambda word, name: known[word][name])
