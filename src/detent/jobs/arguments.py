"""What an argument counts for in the key of equal work: the digest of its value.

The result of a step counts by what it is, not by which job made it, and a file by its content, not by its name (JOB-023).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from detent.canon import digest_text, json_digest, json_encode
from detent.canon.strict_json import JsonValue
from detent.errors import InvariantBroken
from detent.jobs.values import FILE, RESULT, is_file, is_result, results_named

RESULT_BY_VALUE: Final = "$value"
"""What stands for a result inside an argument; no user's key looks like it, theirs have a second ``$``."""
_USUAL: Final = 1 << 63


def argument_ingredients(
    arguments: Sequence[Any], keywords: Mapping[str, Any], value_digest: Callable[[str], bytes]
) -> dict[str, str]:
    """The arguments of a call as ingredients, by their names. ``value_digest`` gives the digest of the value of a result."""
    found = {
        f"argument:{place}": digest_of_value(value, value_digest, f"argument {place}")
        for place, value in enumerate(arguments, 1)
    }
    for name, value in keywords.items():
        found[f"argument:{name}"] = digest_of_value(value, value_digest, name)
    return found


def plain_ingredients(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, str]:
    """The same for those arguments that name no results of other work: what they count for follows from them alone."""
    named = [*enumerate(arguments, 1), *keywords.items()]
    return {
        f"argument:{name}": digest_of_value(value, _no_value, f"argument {name}")
        for name, value in named
        if next(results_named(value), None) is None
    }


def digest_of_value(value: JsonValue, value_digest: Callable[[str], bytes], name: str) -> str:
    """The digest of a stored value, with what it names counted by value and by content."""
    if is_result(value):
        return digest_text(value_digest(value[RESULT]))
    return digest_of_plain(_by_content(value, value_digest), name)


def digest_of_plain(value: JsonValue, name: str) -> str:
    """The digest of a value that names nothing."""
    if type(value) is int and -_USUAL < value < _USUAL:
        return digest_text(json_digest(b"%d" % value))
    return digest_text(json_digest(json_encode(value, name=name)))


def _no_value(named: str) -> bytes:
    raise InvariantBroken(f"the result {named} is not known here")


def _by_content(value: JsonValue, value_digest: Callable[[str], bytes]) -> JsonValue:
    if type(value) is dict:
        if is_result(value):
            return {RESULT_BY_VALUE: digest_text(value_digest(value[RESULT]))}
        if is_file(value):
            return {FILE: value[FILE]}
        return {key: _by_content(item, value_digest) for key, item in value.items()}
    if type(value) is list:
        return [_by_content(item, value_digest) for item in value]
    return value
