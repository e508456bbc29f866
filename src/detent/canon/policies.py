"""Names of the policies that a job is decided by, ``{"quota": "small"}``: one grammar for contracts, settings, tasks and orders.

A home defines policies under ``[quotas.NAME]``, ``[leases.NAME]`` and ``[backoffs.NAME]``; a job names at most one of each kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

POLICY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}")
POLICY_HINT: Final = "1 to 100 letters, digits or ._:/- characters, the first a letter or digit"
POLICY_SECTIONS: Final[Mapping[str, str]] = {"quota": "quotas", "lease": "leases", "backoff": "backoffs"}
"""The kinds of policies that a job may name, each with the section of the settings that defines them."""
POLICY_DEFAULT: Final = "default"
"""The policy of each kind that holds for a job which names none."""


class UnknownPolicy(NamedTuple):
    """A name that the settings do not define: what is wrong, and what to do about it."""

    kind: str
    message: str
    hint: str


def policy_name_fault(kind: str, name: object) -> str | None:
    """Say that this cannot name a policy, or nothing."""
    if type(name) is str and POLICY.fullmatch(name) is not None:
        return None
    return f"{kind} cannot be {name!r:.80}"


def policies_named(given: Mapping[str, str | None]) -> dict[str, str]:
    """The policies that are named among several, in the order of their kinds."""
    return {kind: name for kind in POLICY_SECTIONS if (name := given.get(kind)) is not None}


def unknown_policies(names: Mapping[str, str], known: Mapping[str, Sequence[str]]) -> list[UnknownPolicy]:
    """The names that settings do not define; ``known`` has those of each kind that they do."""
    return [_unknown(kind, name, known[kind]) for kind, name in names.items() if name not in known[kind]]


def _unknown(kind: str, name: str, known: Sequence[str]) -> UnknownPolicy:
    from difflib import get_close_matches  # noqa: PLC0415 - only for a mistake

    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    meant = f"did you mean {close[0]!r}? " if close else ""
    section = POLICY_SECTIONS[kind]
    hint = f"{meant}known: {', '.join(known)}; [{section}.{name}] in config.toml would define it"
    return UnknownPolicy(kind, f"{kind} {name!r:.80} is not configured", hint)
