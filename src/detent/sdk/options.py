"""What may be said about a task beside its code, checked where it is written down.

The contract says the same with other words; `Options.keys` is the translation. What only the contract can judge (which names
variables may have) is judged when the flow is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NoReturn, TypedDict

from detent.errors import InvalidInput

RETRIES_MAX: Final = 10
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
ON_ERROR: Final = ("stop", "continue")
POLICIES: Final = ("quota", "lease", "backoff")
"""The kinds of policies that a task may name: the keys of `detent.canon.grammar`, which tasks alone need not load."""

Duration = int | float | str | timedelta


class TaskOptions(TypedDict, total=False):
    """The keyword arguments of `task` and of `Task.options`."""

    name: str | None
    version: str | None
    retries: int | None
    retry_on: str | Sequence[str] | None
    timeout: Duration | None
    cache: bool | None
    inputs: str | Sequence[str] | None
    outputs: Sequence[str] | Mapping[str, str] | None
    env: Mapping[str, Any] | None
    cwd: str | None
    priority: int | str | None
    on_error: str | None
    skip_on_failure: bool
    resources: Mapping[str, int] | None
    pool: str | None
    labels: str | Sequence[str] | None
    quota: str | None
    lease: str | None
    backoff: str | None
    chunk: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a task is to be run. See `detent.task` for what each one means."""

    name: str | None = None
    version: str | None = None
    retries: int | None = None
    retry_on: str | Sequence[str] | None = None
    timeout: Duration | None = None
    cache: bool | None = None
    """None: reused as a step of a flow, run each time a client submits it (X-190)."""
    inputs: str | Sequence[str] | None = None
    outputs: Sequence[str] | Mapping[str, str] | None = None
    env: Mapping[str, Any] | None = None
    cwd: str | None = None
    priority: int | str | None = None
    on_error: str | None = None
    skip_on_failure: bool = False
    resources: Mapping[str, int] | None = None
    pool: str | None = None
    labels: str | Sequence[str] | None = None
    quota: str | None = None
    lease: str | None = None
    backoff: str | None = None
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name, "name")
        _check_type("version", self.version, str)
        _check_type("cwd", self.cwd, str)
        _check_type("cache", self.cache, bool)
        _check_type("skip_on_failure", self.skip_on_failure, bool)
        _check_priority(self.priority)
        _check_type("retries", self.retries, int)
        if self.retries is not None and not 0 <= self.retries <= RETRIES_MAX:
            _wrong("retries", self.retries, f"a number from 0 to {RETRIES_MAX}")
        if self.retry_on is not None and self.retries is None:
            raise InvalidInput("retry_on= says after which failures, but not how often", hint="add retries=, say 3")
        _check_categories(self.retry_on)
        if self.on_error is not None and self.on_error not in ON_ERROR:
            _wrong("on_error", self.on_error, "'stop' or 'continue'")
        check_duration("timeout", self.timeout)
        _check_resources(self.resources)
        check_place(self.pool, self.labels)
        check_policies(self.policies)
        check_chunk(self.chunk)

    def keys(self) -> dict[str, Any]:
        """The options as keys of a step in the short form; those that were not given are left out."""
        keys: dict[str, Any] = {}
        if self.retries is not None:
            on = [self.retry_on] if isinstance(self.retry_on, str) else self.retry_on
            keys["retry"] = self.retries if on is None else {"max": self.retries, "on": list(on)}
        if self.timeout is not None:
            keys["timeout"] = duration(self.timeout)
        if self.cache is False:
            keys["cache"] = False
        for name, given in (("inputs", self.inputs), ("outputs", self.outputs)):
            if given is not None:
                keys[name] = (
                    given if isinstance(given, str) else dict(given) if isinstance(given, Mapping) else [*given]
                )
        if self.env is not None:
            keys["env"] = dict(self.env)
        for name in ("cwd", "priority", "on_error"):
            if getattr(self, name) is not None:
                keys[name] = getattr(self, name)
        if self.skip_on_failure:
            keys["skip_on_failure"] = True
        if self.resources:
            keys["resources"] = dict(self.resources)
        if self.pool is not None:
            keys["pool"] = self.pool
        if self.labels:
            keys["labels"] = labels_of(self.labels)
        return keys | self.policies

    @property
    def policies(self) -> dict[str, str]:
        """The quota, lease and backoff that are named."""
        return {kind: name for kind in POLICIES if (name := getattr(self, kind)) is not None}


def check_name(name: object, what: str) -> None:
    """Names become keys of steps, which files, commands and links must be able to hold."""
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        _wrong(what, name, "a letter or '_', then up to 99 letters, digits, '_', '.' or '-'")


def check_duration(what: str, given: object, **limits: int) -> None:
    """Refuse a value that is not a duration, where it is written: a number of seconds, a text like '5m', or a timedelta."""
    if given is not None:
        milliseconds(what, given, **limits)


def milliseconds(what: str, given: object, **limits: int) -> int:
    """A duration in milliseconds; `bool` is a number to Python alone. Raises `InvalidInput` for anything else."""
    if isinstance(given, bool) or not isinstance(given, int | float | str | timedelta):
        _wrong(what, given, "seconds, a text like '90s' or '5m', or a timedelta")
    from detent.contract.words import BadDuration, parse_duration  # noqa: PLC0415 - most tasks have none

    try:
        return parse_duration(duration(given), **limits)
    except BadDuration as exc:
        raise InvalidInput(f"{what}={given!r:.80} is not allowed: it {exc}", hint=exc.hint) from exc


def waiting_seconds(what: str, given: Duration | None) -> float | None:
    """How long a caller waits, in seconds; 0 or less is not at all, None for ever."""
    if given is None or (isinstance(given, int | float) and not isinstance(given, bool) and given <= 0):
        return given
    return milliseconds(what, given, least_ms=0) / 1000


def not_ended(what: str, seconds: float | None) -> TimeoutError:
    """What is raised when the time that a caller waits is over."""
    return TimeoutError(f"{what} has not ended " + (f"within {seconds} s" if seconds and seconds > 0 else "yet"))


def duration(given: Duration) -> int | float | str:
    """A duration as the contract takes it."""
    return given.total_seconds() if isinstance(given, timedelta) else given


def options_from(given: Mapping[str, Any], what: str) -> Options:
    """`Options` from keyword arguments; an unknown one is named, with the one that was probably meant."""
    known = Options.__dataclass_fields__
    for name in given:
        if name not in known:
            from difflib import get_close_matches  # noqa: PLC0415 - only for a message

            close = get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}=?" if close else f"there are: {', '.join(known)}"
            raise InvalidInput(f"{what} has no option {name!r}", hint=hint)
    return Options(**given)


def _check_categories(given: object) -> None:
    if given is None:
        return
    from detent.contract.bindings import CATEGORIES  # noqa: PLC0415 - most tasks name none

    words = [given] if isinstance(given, str) else list(given) if isinstance(given, Sequence) else [given]
    if not words or any(word not in CATEGORIES for word in words):
        _wrong("retry_on", given, f"one or more of {', '.join(CATEGORIES)}")


def _check_priority(given: object) -> None:
    if given is None:
        return
    from detent.canon.grammar import PRIORITY_HINT, priority_class  # noqa: PLC0415 - tasks alone need none

    if priority_class(given) is None:
        _wrong("priority", given, PRIORITY_HINT)


def _check_resources(given: object) -> None:
    """Names with whole numbers; which names there are, and how much of each, is the home's to say."""
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise InvalidInput(f"resources={given!r:.80} is not allowed", hint="write a dict, such as {'cpu': 2}")
    from detent.canon.grammar import RESOURCE_HINT, amount_fault, name_fault  # noqa: PLC0415 - tasks alone need none

    for name, amount in given.items():
        if fault := name_fault(name):
            raise InvalidInput(f"resources={given!r:.80}: {fault}", hint=RESOURCE_HINT)
        if fault := amount_fault(name, amount):
            raise InvalidInput(f"resources={given!r:.80}: {fault}", hint="say how much one attempt takes: {'cpu': 2}")


def labels_of(given: str | Sequence[str] | None) -> list[str]:
    """The labels that are given: one alone, several, or none."""
    return [given] if isinstance(given, str) else [*(given or ())]


def place_of(pool: object, labels: object, resources: object) -> dict[str, Any]:
    """Where a platform job may run, checked, as `JobOptions` has it."""
    given: dict[str, Any] = {"pool": pool, "labels": labels, "resources": resources}
    checked = Options(**given)
    return {
        "pool": checked.pool,
        "labels": tuple(labels_of(checked.labels)),
        "resources": dict(checked.resources or {}),
    }


def check_place(pool: object, labels: object) -> None:
    """Refuse what cannot name a pool or labels of workers; which there are is their server's to say."""
    if pool is None and labels is None:
        return
    from detent.canon.grammar import LABEL_HINT, LABELS_MAX, label_fault  # noqa: PLC0415 - tasks alone need none

    if pool is not None and label_fault("pool", pool):
        _wrong("pool", pool, f"a name of {LABEL_HINT}")
    named = labels_of(labels) if labels is None or isinstance(labels, str | list | tuple) else [labels]
    if len(named) > LABELS_MAX or any(label_fault("label", one) for one in named):
        _wrong("labels", labels, f"a list of at most {LABELS_MAX} names of {LABEL_HINT}")


def check_chunk(given: object) -> None:
    """Refuse what cannot be the number of elements that share a job."""
    if given is None:
        return
    from detent.canon.grammar import CHUNK_HINT, CHUNK_MAX  # noqa: PLC0415 - tasks alone need none

    if type(given) is not int or not 1 <= given <= CHUNK_MAX:
        raise InvalidInput(f"chunk={given!r:.80} is not allowed", hint=CHUNK_HINT)


def check_policies(names: Mapping[str, str]) -> None:
    """Refuse what cannot name a policy; which there are is the home's to say."""
    if not names:
        return
    from detent.canon.grammar import POLICY_HINT, policy_name_fault  # noqa: PLC0415 - most tasks name none

    for kind, name in names.items():
        if policy_name_fault(kind, name):
            _wrong(kind, name, POLICY_HINT)


def _check_type(name: str, given: object, kind: type) -> None:
    if given is not None and type(given) is not kind:
        _wrong(name, given, {str: "a text", bool: "True or False", int: "a whole number"}[kind])


def _wrong(name: str, given: object, wanted: str) -> NoReturn:
    raise InvalidInput(f"{name}={given!r:.80} is not allowed", hint=f"{name} must be {wanted}")


def refuse_ambiguous(function: Any, given: dict[str, Any]) -> None:
    """Refuse an option of the client's that is also a parameter of the function."""
    import inspect  # noqa: PLC0415 - only where an option is given

    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    for name in given:
        if name in parameters:
            raise InvalidInput(
                f"{name}= is an option of submit and a parameter of {getattr(function, '__name__', function)}",
                hint=f"say which: client.submit_call(function, args, {{'{name}': ...}}, {name}=...)",
            )
