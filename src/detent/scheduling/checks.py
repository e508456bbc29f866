"""The checks that every value of this room passes when it is made, each naming the field it speaks of.

Priority classes: the integers 1 to 10, ten first, and the names people give three of them (X-010).
"""

from __future__ import annotations

from collections.abc import Iterable

from detent.canon import check_uint64
from detent.canon.grammar import PRIORITY_MAX, PRIORITY_MIN, PRIORITY_NAMES
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.kernel.manifest import id_fault

NAMES_MAX = 64
"""Features of a replica, extensions of a model, devices of a mask."""


def check_id(name: str, value: object) -> str:
    """Accept an id as manifests do; refuse anything else by the name of its field."""
    if fault := id_fault(name, value):
        raise InvalidInput(fault, details={"argument": name})
    return value  # type: ignore[return-value]


def check_names(name: str, value: object) -> tuple[str, ...]:
    """Accept a list of different names; gives them in order."""
    if not isinstance(value, list | tuple) or len(value) > NAMES_MAX:
        raise InvalidInput(f"{name} must be a list of at most {NAMES_MAX} names, not {show(value)}")
    for item in value:
        check_id(f"a name in {name}", item)
    if len(set(value)) != len(value):
        raise InvalidInput(f"{name} must not name anything twice: {show(value)}")
    return tuple(sorted(value))


def check_mask(value: object) -> str | None:
    """Accept a device mask, a text of device names separated by commas; gives the names in order."""
    if value is None:
        return None
    devices = check_id("device_mask", value).split(",")
    if any(not device or device != device.strip() for device in devices):
        raise InvalidInput(f"device_mask must be device names separated by single commas, not {show(value)}")
    return ",".join(check_names("device_mask", devices))


def devices_of(mask: str | None) -> frozenset[str]:
    """The devices a checked mask names."""
    return frozenset() if mask is None else frozenset(mask.split(","))


def exact_fields(what: str, value: object, names: Iterable[str]) -> dict[str, object]:
    """Accept a map of exactly these fields; refuse one that lacks any or has others, naming them."""
    wanted = tuple(names)
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be a map with the fields {', '.join(wanted)}, not {show(value)}")
    if missing := [name for name in wanted if name not in value]:
        raise InvalidInput(f"{what} lacks {', '.join(missing)}")
    if unknown := sorted(str(name) for name in value if name not in wanted):
        raise InvalidInput(f"{what} has unknown fields: {show(', '.join(unknown))}")
    return value


def check_optional_id(name: str, value: object) -> None:
    """Accept an id or nothing."""
    if value is not None:
        check_id(name, value)


def check_bool(name: str, value: object) -> None:
    """Accept true or false and nothing that merely counts as one of them."""
    if type(value) is not bool:
        raise InvalidInput(f"{name} must be true or false, not {show(value)}", details={"argument": name})


def check_positive(name: str, value: object) -> int:
    """Accept an integer from 1 to 2**64-1."""
    if check_uint64(name, value) == 0:  # type: ignore[arg-type]
        raise InvalidInput(f"{name} must be at least 1", details={"argument": name})
    return value  # type: ignore[return-value]


CLASSES = tuple(range(PRIORITY_MAX, PRIORITY_MIN - 1, -1))
"""All classes in the order they are served."""


def check_priority(value: object) -> int:
    """Accept a class; refuse anything that is not exactly an integer from 1 to 10 (`True` and ``"5"`` are not)."""
    if type(value) is not int or not PRIORITY_MIN <= value <= PRIORITY_MAX:
        raise InvalidInput(
            f"priority must be an integer from {PRIORITY_MIN} to {PRIORITY_MAX}, not {show(value)}",
            hint=f"the names are {', '.join(f'{name} = {number}' for name, number in PRIORITY_NAMES.items())}",
        )
    return value


def workflow_priority(action_priority: int, workflow_priority_cap: int) -> int:
    """The class of a workflow's action: its own priority, lowered to what the operator allows workflows."""
    return min(check_priority(action_priority), check_priority(workflow_priority_cap))
