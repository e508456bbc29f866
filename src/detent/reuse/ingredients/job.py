"""The ingredients of one job: everything that decides whether an earlier result is its result, each under a name.

One flat mapping, kept in the order of the work, so that two of them side by side say what changed:

=========================  ==============================================================================================
``code``                   the digest of the function's code, or of a version that stands for it
``function:helpers:clean``  one part of that code; also ``class:``, ``value:``, ``module:``
``version``                the user's own word for "the code is the same"
``command``, ``shell``     a shell's command line, and the words before it
``payload``                a whole payload
``destination``            where an ordered run's results go
``argument:rows``          an argument by the digest of its value; ``argument:1`` is the first without a name
``env:TOTAL``, ``cwd``     what it runs with
``input:load.sql``         a declared input by its content; null when it is missing
``output:page``            a declared output: the path or glob that is kept
``python``, ``platform``   the interpreter and the machine
``package:numpy``          a distribution that was reached
``runner``                 our own part in what a platform job makes: ``render@1``
``tool:ziamath``           a tool that the runner of a platform job uses, by its version
``salt``                   a text of the user's, to make keys different
=========================  ==============================================================================================

Values count by their digest: the result of a step counts by what it is, not by which job made it, and a file by its
content, not by its name (JOB-023).

``env_version``: what a result depends on besides code and inputs, as one short text (JOB-024, X-176).
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cache, lru_cache
from typing import Any, Final

from detent.canon import digest, digest_text, json_encode
from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.contract.shapes import BASH, SH
from detent.errors import InvalidInput
from detent.jobs.arguments import argument_ingredients, digest_of_plain, digest_of_value
from detent.jobs.dedupe import ExecutionKey, WorkKeysAlike, hash_of_ingredients, work_key
from detent.jobs.order import INPUT, Call, ElementOrder, Order
from detent.jobs.platform_order import is_platform_order
from detent.reuse.ingredients.code import CodeDigest

BINDING_LABEL: Final = b"detent/binding/v1\0"
NO_INPUTS: Final[Mapping[str, str | None]] = {}
PARTS_MAX: Final = 60
"""Parts of the code that are named one by one; of more, each module counts as one."""


def ingredients(
    call: Call,
    value_digest: Callable[[str], bytes],
    *,
    code: CodeDigest | None = None,
    inputs: Mapping[str, str | None] = NO_INPUTS,
    surroundings: Surroundings | None = None,
    salt: str | None = None,
) -> dict[str, JsonValue]:
    """The named ingredients of a call. ``value_digest`` gives the digest of the value of a result, by the result's digest.

    ``code`` is that of ``python``, ``map`` and ``code`` work, ``inputs`` what `inputs_digests` found, ``surroundings`` what it
    runs in: without any, the interpreter with what its code reaches.
    """
    found: dict[str, JsonValue] = {}
    _put_code(found, call, code)
    found.update(argument_ingredients(call.arguments, call.keywords, value_digest))
    found.update(
        {f"env:{name}": digest_of_value(value, value_digest, f"env {name}") for name, value in call.env.items()}
    )
    found.update({f"{INPUT}{name}": content for name, content in inputs.items()})
    found.update({f"output:{name}": pattern for name, pattern in call.outputs.items()})
    found.update({key: said for key, said in (("cwd", call.cwd), ("salt", salt)) if said is not None})
    found.update((surroundings or around(code)).ingredients())
    return dict(sorted(found.items()))


@lru_cache(maxsize=1024)
def around(code: CodeDigest | None) -> Surroundings:
    """The environment of work other than platform jobs: the interpreter, and the packages that its code reaches."""
    distributions = {} if code is None else code.distributions
    return Surroundings(env_version(distributions), distributions)


def binding_digest(call: Call) -> bytes:
    """What work is bound to: the name that is called, not how often it may be tried or how long it may take.

    What the name stands for is said by the ingredients.
    """
    called = call.target["compute"] if call.kind == "map" else call.target if call.kind == "python" else None
    return _binding_digest(call.kind, called, call.entrypoint)


@lru_cache(maxsize=1024)
def _binding_digest(kind: str, called: str | None, entrypoint: str) -> bytes:
    """The same for every step that runs the same function."""
    return digest(BINDING_LABEL, json_encode([kind, called, entrypoint]))


def key_of_work(job_type: str, binding_digest: bytes, ingredients: Mapping[str, Any], env_version: str) -> ExecutionKey:
    """The execution key of a ``task`` or ``action`` job (X-186). It is always computed here, never accepted from a caller (JOB-025)."""
    return work_key(job_type, binding_digest, hash_of_ingredients(ingredients), env_version)


class ArrayKeys:
    """The keys of an array's elements. What they have in common is read and written once."""

    def __init__(self, call: Call, shared: Mapping[str, Any]) -> None:
        """``call`` is the array's, and ``shared`` are its ingredients: all but those of the elements' arguments."""
        self._binding = binding_digest(call)
        self._env_version = env_version_of(shared, None) or ""
        self._shared = shared
        self._alike: dict[tuple[str, ...], WorkKeysAlike] = {}

    def of(self, own: ElementOrder, value_digest: Callable[[str], bytes]) -> ExecutionKey:
        """The key of an element: that of a job of its own."""
        found = argument_ingredients(own.arguments, own.keywords, value_digest)
        names = tuple(found if len(found) == 1 else sorted(found))
        alike = self._alike.get(names)
        if alike is None:
            alike = self._alike[names] = WorkKeysAlike(
                self._binding, self._shared, names, job_type="action", env_version=self._env_version
            )
        return alike.key([found[name] for name in names])


def is_same_work(order: Order, call: Call, ingredients: Mapping[str, Any]) -> bool:
    """Whether an order was made from these ingredients and calls the same: then, and only then, the keys are equal."""
    try:
        return binding_digest(order.call) == binding_digest(call) and order.origin.ingredients == ingredients
    except (TypeError, KeyError):
        return False  # An order that no release has written.


def is_same_request(order: Order, call: Call, value_digest: Callable[[str], bytes]) -> bool:
    """Whether an order calls the same with the same arguments, in any code and environment."""
    try:
        return binding_digest(order.call) == binding_digest(call) and _given(order.origin.ingredients) == _given(
            ingredients(call, value_digest)
        )
    except (TypeError, KeyError):
        return False


def _given(ingredients: Mapping[str, Any]) -> dict[str, Any]:
    return {name: said for name, said in ingredients.items() if name.startswith(("argument:", "env:"))}


def key_of_order(order: Order) -> ExecutionKey | None:
    """The key that an order's own ingredients lead to; None for one that is never reused, or was made from other tools.

    An array has none: its elements do.
    """
    call, made_from = order.call, order.origin.ingredients
    if order.elements:
        return None
    try:
        if is_platform_order(order):
            from detent.jobs.complete import key_of  # noqa: PLC0415 - loads Pydantic, which most work never needs
            from detent.jobs.payload import read_payload  # noqa: PLC0415

            return key_of(read_payload(call.target))
        surroundings = env_version_of(made_from, call.target if call.kind == "job" else None)
        if not made_from or surroundings is None:
            return None
        return key_of_work("action", binding_digest(call), made_from, surroundings)
    except (TypeError, KeyError, InvalidInput):
        return None


def env_version_of(ingredients: Mapping[str, Any], payload: Mapping[str, Any] | None) -> str | None:
    """What work ran in, as its ingredients name it; None where the order of a runner's tools is not known here."""
    python, machine, runner = (ingredients.get(name) for name in ("python", "platform", "runner"))
    if runner is None:
        packages = dict(_listed(ingredients, "package:"))
        return env_version(packages, python=str(python), machine=str(machine))
    from detent.executor.runners import tools  # noqa: PLC0415 - most runs have no platform jobs

    found = dict(_listed(ingredients, "tool:"))
    names = tools.TOOLS.get("" if payload is None else payload.get("job_type", ""), ())
    if found.keys() != set(names) or not str(python).replace(".", "").isdigit():
        return None  # Made by another release, or by an interpreter that runners call by another name.
    return tools.named(str(runner), str(python), {name: found[name] for name in names})


def _listed(ingredients: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    return ((name.removeprefix(prefix), str(said)) for name, said in ingredients.items() if name.startswith(prefix))


def never_reused(call: Call, code: CodeDigest | None = None) -> str | None:
    """Why work is done every time, in words; None for work that may be reused (X-175, X-176)."""
    if not call.cache:
        return "its cache is turned off"
    if call.kind == "shell" and (call.inputs is None or not call.outputs):
        lacking = " and ".join(
            name for name, declared in (("inputs", call.inputs is not None), ("outputs", call.outputs)) if not declared
        )
        return f"a command that declares no {lacking} may depend on anything"
    if code is not None and code.digest is None:
        first = code.unresolved[0]
        more = f" and {len(code.unresolved) - 1} more" if len(code.unresolved) > 1 else ""
        return f"{first.what} ({first.where}) {first.why}{more}; give it a version= to reuse it anyway"
    return None


def _put_code(found: dict[str, JsonValue], call: Call, code: CodeDigest | None) -> None:
    if call.version is not None:
        found["version"] = call.version
    if call.kind == "shell":
        found["command"] = digest_of_plain(call.target, "command")
        if call.shell:
            found["shell"] = shlex.join(call.shell)
    elif call.kind == "job":
        found["payload"] = digest_of_plain(call.target, "job")
    elif call.kind == "map":
        # How far is computed ahead, in which pieces and how often it is tried: what a finished run came to is the same.
        found["destination"] = call.target["commit"]
    if call.entrypoint != "main":
        found["entrypoint"] = call.entrypoint
    if code is not None:
        found.update(_of_code(code))


@lru_cache(maxsize=1024)
def _of_code(code: CodeDigest) -> dict[str, JsonValue]:
    """The same for every step that runs the same function."""
    found: dict[str, JsonValue] = {"code": None if code.digest is None else digest_text(code.digest)}
    return found | _parts(code)


def _parts(code: CodeDigest) -> dict[str, JsonValue]:
    if len(code.parts) <= PARTS_MAX:
        return {f"{code.kinds.get(name, 'value')}:{name}": digest_text(part) for name, part in code.parts.items()}
    modules: dict[str, list[JsonValue]] = {}
    for name, part in sorted(code.parts.items()):
        modules.setdefault(name.rpartition(":")[0], []).append([name, digest_text(part)])
    return {f"module:{name}": digest_of_plain(parts, name) for name, parts in modules.items()}


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
