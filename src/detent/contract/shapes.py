"""The small checks that the tables of keys are made of. Each takes a value and its place, and gives back what is meant.

A check that finds something wrong reports it and returns ``BAD``; its caller goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from detent.canon.policies import POLICY_HINT, policy_name_fault
from detent.contract.durations import BadDuration, parse_duration
from detent.contract.findings import Spot, path_text
from detent.contract.words import KEY, KEY_HINT, shown
from detent.workflow.limits import TIMEOUT_MS_MIN

BAD: Final[Any] = object()
MAPPING_HINT: Final = "write its keys below it, indented, or in braces: {key: value}"
FLAG_HINT: Final = "write true or false, without quotes"
Check: TypeAlias = Callable[[Any, Spot], Any]


# Keys that mean something in another place, or to another tool: the key that is meant, and how it is written. A spelling
# that is merely near would mislead.
_ELSEWHERE: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("python", "code", "job", "with", "args", "entrypoint"), ("run", "move it into `run:`")),
    **dict.fromkeys(("command", "cmd", "script"), ("run", "write `run: {shell: ...}`")),
    **dict.fromkeys(("depends_on", "after", "dependencies"), ("needs", "write `needs: [...]`")),
    "needs": ("depends_on", "the long form calls it `depends_on`"),
    "timeout_ms": ("timeout", "write `timeout:`, for example `timeout: 90s`"),
    "retry_count": ("retry", "write `retry: 3`"),
    "step_name": ("name", "write `name:`"),
    "step_type": ("type", "write `type:`"),
    "cron": ("schedule", "write `schedule: {cron: ...}`"),
    "every": ("schedule", "write `schedule: {every: ...}`"),
}


def check_keys(value: Mapping[str, Any], table: Mapping[str, Check], spot: Spot, what: str) -> dict[str, Any]:
    """What the checks of a table make of a mapping; unknown keys are reported, bad values left out."""
    result = {}
    for key, item in value.items():
        check = table.get(key)
        if check is None:
            unknown_key(key, table, spot, what)
            continue
        meant = check(item, spot.at(key))
        if meant is not BAD:
            result[key] = meant
    return result


def unknown_key(key: str, known: Mapping[str, object], spot: Spot, what: str) -> None:
    """Report a key that is not one of ``known``, with the nearest that is."""
    meant, hint = _ELSEWHERE.get(key, ("", ""))
    if meant not in known:
        hint = spot.report.nearest(key, known) or f"known keys: {', '.join(known)}"
    spot.at(key).fault(f"unknown key {shown(key)} in {what}", hint, at_key=True)


def keep(value: Any, spot: Spot) -> Any:
    """Accept any value: the model that it goes to checks it."""
    del spot
    return value


def named(spot: Spot) -> str:
    """The key under which a value stands, for the beginning of a message; ``inputs[1]`` in a list."""
    names = [at for at, key in enumerate(spot.path) if type(key) is str]
    return path_text(spot.path[names[-1] :]) if names else "the document"


def mapping(value: Any, spot: Spot) -> Any:
    """A mapping of any content."""
    if type(value) is dict:
        return value
    spot.fault(f"{named(spot)} must be a mapping (key: value), not {shown(value)}", MAPPING_HINT)
    return BAD


def text(value: Any, spot: Spot) -> Any:
    """Text that is not empty and that an operating system can be handed."""
    if type(value) is not str:
        hint = "write it as one text" if type(value) in (list, dict) else "put it in quotes"
        spot.fault(f"{named(spot)} must be text, not {shown(value)}", hint)
    elif not value.strip():
        spot.fault(f"{named(spot)} must not be empty", "write something, or leave the key out")
    elif "\0" in value:
        spot.fault(f"{named(spot)} must not hold the character U+0000", "remove it")
    else:
        return value
    return BAD


def flag(value: Any, spot: Spot) -> Any:
    """True or false."""
    if type(value) is bool:
        return value
    spot.fault(f"{named(spot)} must be true or false, not {shown(value)}", FLAG_HINT)
    return BAD


def key(value: Any, spot: Spot) -> Any:
    """The name of a step."""
    if type(value) is str and KEY.fullmatch(value):
        return value
    spot.fault(f"{named(spot)} cannot be {shown(value)}", KEY_HINT)
    return BAD


def policy(value: Any, spot: Spot) -> Any:
    """The name of a quota, lease or backoff. Which there are is the home's to say: see `step_limits.refuse_unknown_policies`."""
    if fault := policy_name_fault(str(spot.path[-1]), value):
        spot.fault(fault, f"write {POLICY_HINT}")
        return BAD
    return value


def texts(value: Any, spot: Spot) -> Any:
    """One text or a list of them, as a tuple."""
    if type(value) is not list:
        one = text(value, spot)
        return BAD if one is BAD else (one,)
    several = [text(item, spot.at(index)) for index, item in enumerate(value)]
    return BAD if any(item is BAD for item in several) else tuple(several)


def refuse_short_timeout(value: Any, spot: Spot) -> bool:
    """Report a timeout below the least one (WF-075), here because a model stops at it and would say nothing more."""
    if type(value) is not int or value >= TIMEOUT_MS_MIN:
        return False
    spot.fault(f"a timeout must be at least {TIMEOUT_MS_MIN} ms, got {shown(value)}", "leave it out for no limit")
    return True


def duration(value: Any, spot: Spot) -> Any:
    """A wall limit, in milliseconds."""
    try:
        return parse_duration(value)
    except BadDuration as exc:
        spot.fault(f"a timeout {exc}", exc.hint)
        return BAD


def choice(value: Any, spot: Spot, known: tuple[str, ...], what: str) -> Any:
    """One of a few words."""
    if type(value) is str and value in known:
        return value
    spot.fault(f"there is no {what} {shown(value)}", spot.report.nearest(value, known) or f"one of {', '.join(known)}")
    return BAD
