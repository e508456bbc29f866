"""``env_version``: what a result depends on besides code and inputs, as one short text (JOB-024, X-176)."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import field
from functools import cache, lru_cache
from typing import Final

from detent.canon import digest, json_encode
from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.contract.shells import BASH, SH

ENV_VERSION_BYTES_MAX: Final = 200
_LABEL: Final = b"detent/environment/v1\0"
_NAMED: Final = ("python", "platform", "runner")
_PREFIXES: Final = ("package:", "tool:")


@cache
def python_version() -> str:
    """The interpreter that runs the work, to the last digit: ``3.11.7``, or another implementation by its name."""
    implementation = sys.implementation
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info.releaselevel != "final":
        version += f"{sys.version_info.releaselevel}{sys.version_info.serial}"
    return version if implementation.name == "cpython" else f"{implementation.name} {version}"


@cache
def platform_name() -> str:
    """System and machine: numbers computed by compiled code may differ between machines in their last digits."""
    return f"{sys.platform}-{os.uname().machine}"


def default_shell() -> tuple[str, ...]:
    """The words before the command line of a step that chooses no shell: bash where it is found, else sh (X-189)."""
    return _default_shell(os.environ.get("PATH"))


@lru_cache(maxsize=8)
def _default_shell(path: str | None) -> tuple[str, ...]:
    return SH if shutil.which(BASH[0], path=path) is None else BASH


def env_version(distributions: Mapping[str, str], *, python: str | None = None, machine: str | None = None) -> str:
    """Interpreter, machine and the distributions that were reached; here and now unless the first two are given.

    A list that is too long is named by its digest; the whole list stands among the ingredients.
    """
    text = f"python-{(python or python_version()).replace(' ', '-')}-{machine or platform_name()}"
    if not distributions:
        return text
    listed = ",".join(f"{name}-{distributions[name]}" for name in sorted(distributions))
    if len(f"{text}+{listed}".encode()) <= ENV_VERSION_BYTES_MAX and listed.isprintable():
        return f"{text}+{listed}"
    return f"{text}+{digest(_LABEL, json_encode(dict(distributions))).hex()}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What work runs in: the interpreter and the machine, and either packages that its code reaches or a runner's tools."""

    env_version: str
    distributions: Mapping[str, str] = field(default_factory=dict)
    runner: str | None = None
    """What runs a platform job, with the revision of our own part in it: ``render@1``."""
    tools: Mapping[str, str] = field(default_factory=dict)
    """The tools of that runner, each with its version."""

    def ingredients(self) -> dict[str, JsonValue]:
        """What of it decides about reuse, each under its name."""
        found: dict[str, JsonValue] = {"python": python_version(), "platform": platform_name()}
        found.update({f"package:{name}": version for name, version in self.distributions.items()})
        found.update({f"tool:{name}": version for name, version in self.tools.items()})
        return found if self.runner is None else {**found, "runner": self.runner}


def of_surroundings(ingredients: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Those of a job's ingredients that say what it runs in."""
    return {name: value for name, value in ingredients.items() if name in _NAMED or name.startswith(_PREFIXES)}
