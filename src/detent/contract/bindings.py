"""``run:`` and what stands beside it: from a step's mapping to its binding. The planner never sees any of this (X-023)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from detent.canon.grammar import (
    CHUNK_HINT,
    CHUNK_MAX,
    LABEL_HINT,
    LABELS_MAX,
    POLICY_SECTIONS,
    RESOURCE_HINT,
    RESOURCES_MAX,
    amount_fault,
    first_alike,
    has_hidden,
    label_fault,
    name_fault,
    policies_named,
)
from detent.contract.findings import Spot
from detent.contract.map_run import map_run, refuse_beside
from detent.contract.model import RETRY_ON_OWN_FAILURES, Binding, Kind, Retry
from detent.contract.references import FROM, PARAM, Reference, argument_names, scan
from detent.contract.shapes import (
    BAD,
    Check,
    check_keys,
    check_source,
    choice,
    duration,
    flag,
    mapping,
    policy,
    shell,
    text,
    texts,
)
from detent.contract.words import ENVIRONMENT_NAME, is_obeyed, is_python_name, python_target_fault, shown

RETRY_MAX: Final = 10
CATEGORIES: Final = (
    "INTERNAL_ERROR",
    "USER_CODE_ERROR",
    "RESOURCE_LIMIT",
    "DEPENDENCY_ERROR",
    "SANDBOX_VIOLATION",
    "VALIDATION_ERROR",
)
_RUN_HINT: Final = "write for example `run: {python: module:function}` or `run: {shell: make}`"


def make_binding(checked: Mapping[str, Any], spot: Spot, found: list[Reference]) -> Binding | None:
    """The binding that the checked keys of a step say; None without a usable ``run``. References go to ``found``."""
    run = checked.get("run")
    if run is None:
        return None
    for place in ("args", "with", "job"):
        if place in run:
            # A list of arguments or a mapping of them does not count as a level of any argument.
            scan(run[place], spot.at("run", place), found, depth=0 if place == "job" else -1)
    if "map" in run:
        for setting, value in run["map"].items():
            scan(value, spot.at("run", "map", setting), found)
        refuse_beside(checked, spot)
    for name, value in checked.get("env", {}).items():
        scan(value, spot.at("env", name), found)
    if "map" in checked:
        _check_map(checked, run, spot)
        scan(checked["map"][1], spot.at("map", checked["map"][0]), found)
    kind = next(key for key in run if key in RUN_KEYS)
    _check_chunk(checked, kind, spot)
    _check_inputs(checked, run, kind, spot)
    _check_env(checked, kind, spot)
    _refuse_meaningless(checked, kind, spot)
    return Binding(
        Kind(kind),
        run[kind],
        arguments=tuple(run.get("args", ())),
        keywords=run.get("with", {}),
        entrypoint=run.get("entrypoint", "main"),
        version=run.get("version"),
        inputs=checked.get("inputs"),
        outputs=checked.get("outputs", {}),
        env=checked.get("env", {}),
        cwd=checked.get("cwd"),
        timeout_ms=checked.get("timeout"),
        retry=checked.get("retry"),
        cache=checked.get("cache", True),
        map=checked.get("map"),
        chunk=checked.get("chunk"),
        resources=checked.get("resources", {}),
        policies=policies_named(checked),
        pool=checked.get("pool"),
        labels=checked.get("labels", ()),
        shell=_shell_of(kind, checked, spot),
    )


def _shell_of(kind: str, checked: Mapping[str, Any], spot: Spot) -> tuple[str, ...]:
    if "shell" in checked and kind != Kind.SHELL:
        hint = "remove it: the shell of a step that runs a command is meant"
        spot.at("shell").fault(f"shell means nothing in a step that runs {kind}", hint, at_key=True)
    words: tuple[str, ...] = checked.get("shell", ())
    return words


def _run(value: Any, spot: Spot) -> Any:
    if type(value) is str:
        kind = "python" if python_target_fault(value) is None else "shell"
        spot.fault(f"run must say how: it is a mapping, not {shown(value)}", f"write `run: {{{kind}: {shown(value)}}}`")
        return BAD
    if mapping(value, spot) is BAD:
        return BAD
    kinds = [key for key in value if key in RUN_KEYS]
    if len(kinds) != 1:
        said = f"has {' and '.join(kinds)}" if kinds else "says nothing to run"
        near = "" if kinds else next(filter(None, (spot.report.nearest(key, RUN_KEYS) for key in value)), "")
        spot.fault(f"run {said}; it needs one of {', '.join(RUN_KEYS)}", near or _RUN_HINT)
        return BAD
    checked = check_keys(value, RUN_KEYS[kinds[0]], spot, f"run with {kinds[0]}")
    if kinds[0] not in checked:
        return BAD
    if kinds[0] == Kind.CODE:
        entrypoint = checked.get("entrypoint") if "entrypoint" in value else "main"
        check_source(checked["code"], entrypoint, spot.at("code"))
    return checked


def _python(value: Any, spot: Spot) -> Any:
    if text(value, spot) is BAD:
        return BAD
    fault = python_target_fault(value)
    if fault is None:
        return value
    spot.fault(f"python target {shown(value)} {fault}", "write module:function or path/file.py:function")
    return BAD


def _job(value: Any, spot: Spot) -> Any:
    if mapping(value, spot) is BAD:
        return BAD
    if type(value.get("job_type")) is str and value["job_type"]:
        return value
    spot.fault("a job needs job_type, as text", "write for example `job: {job_type: ..., ...}`")
    return BAD


def _arguments(value: Any, spot: Spot) -> Any:
    if type(value) is list:
        return value
    spot.fault(f"args must be a list, not {shown(value)}", "write `args: [first, second]`, or names under `with:`")
    return BAD


def _entrypoint(value: Any, spot: Spot) -> Any:
    if type(value) is str and is_python_name(value):
        return value
    spot.fault(f"entrypoint cannot be {shown(value)}", "name a function that the code defines")
    return BAD


def _outputs(value: Any, spot: Spot) -> Any:
    if type(value) is dict:
        named = {name: text(path, spot.at(name)) for name, path in value.items()}
        return BAD if BAD in named.values() or not _can_be_told(named, spot) else named
    paths = texts(value, spot)
    if paths is BAD:
        return BAD
    if len(set(paths)) != len(paths):
        spot.fault("an output is listed twice", "keep one of them")
        return BAD
    named = {path: path for path in paths}
    return named if _can_be_told(named, spot) else BAD


def _can_be_told(outputs: Mapping[str, str], spot: Spot) -> bool:
    """Whether a reader can tell the declared outputs apart, by name and by path."""
    for what, words in (("name", list(outputs)), ("path", list(dict.fromkeys(outputs.values())))):
        if hidden := [word for word in words if has_hidden(word)]:
            spot.fault(f"the {what} of output {shown(hidden[0])} has a character that cannot be seen", "remove it")
            return False
        if alike := first_alike(words):
            spot.fault(
                f"outputs {shown(alike[0])} and {shown(alike[1])} cannot be told apart: their {what}s differ only in case, or in "
                "characters that look alike",
                "rename one of them",
            )
            return False
    return True


def _env(value: Any, spot: Spot) -> Any:
    if mapping(value, spot) is BAD:
        return BAD
    for name, item in value.items():
        if ENVIRONMENT_NAME.fullmatch(name) is None:
            spot.at(name).fault(
                f"{shown(name)} cannot name a variable", "letters, digits and _, no digit first", at_key=True
            )
        if type(item) is dict and len(item) == 1 and (FROM in item or PARAM in item):
            continue
        if type(item) not in (str, int, float, bool):
            hint = "write {$from: step} or {$param: name} for a reference"
            spot.at(name).fault(f"env {name!r:.80} must be text, a number or true/false, not {shown(item)}", hint)
        elif type(item) is str and "\0" in item:
            spot.at(name).fault(f"env {name!r:.80} must not hold the character U+0000", "remove it")
    return value


def _retry(value: Any, spot: Spot) -> Any:
    if type(value) is not dict:
        count = _retry_max(value, spot)
        return BAD if count is BAD else Retry(count)
    checked = check_keys(value, _RETRY_KEYS, spot, "retry")
    if "max" not in value:
        spot.fault("retry lacks max", "write `retry: {max: 3}`, or `retry: 3`")
    return Retry(checked["max"], checked.get("on", RETRY_ON_OWN_FAILURES)) if "max" in checked else BAD


def _retry_max(value: Any, spot: Spot) -> Any:
    if type(value) is int and 0 <= value <= RETRY_MAX:
        return value
    spot.fault(f"retry must be a whole number from 0 to {RETRY_MAX}, not {shown(value)}", "write `retry: 3`")
    return BAD


def _retry_on(value: Any, spot: Spot) -> Any:
    if type(value) is not list or not value:
        spot.fault(
            f"on must be a list of error categories, not {shown(value)}", f"one or more of {', '.join(CATEGORIES)}"
        )
        return BAD
    words = [choice(item, spot.at(index), CATEGORIES, "category") for index, item in enumerate(value)]
    return BAD if any(word is BAD for word in words) else tuple(words)


def _map(value: Any, spot: Spot) -> Any:
    if type(value) is not dict or len(value) != 1:
        spot.fault("map needs exactly one name", "write `map: {item: {$from: step}}` or `map: {item: [1, 2, 3]}`")
        return BAD
    name, items = next(iter(value.items()))
    if not is_python_name(name):
        spot.at(name).fault(f"{shown(name)} cannot name an argument", "use letters, digits and _", at_key=True)
        return BAD
    if type(items) is not list and not (type(items) is dict and len(items) == 1 and (FROM in items or PARAM in items)):
        spot.at(name).fault(
            f"map needs a list to go through, not {shown(items)}", "write {$from: step}, {$param: name} or a list"
        )
        return BAD
    return name, items


def _check_map(checked: Mapping[str, Any], run: Mapping[str, Any], spot: Spot) -> None:
    """An element has to reach what runs: by keyword or, in a shell, by environment variable."""
    name = checked["map"][0]
    if "job" in run:
        spot.at("map").fault("map cannot be used with job", "write one step for each payload", at_key=True)
    elif name in run.get("with", {}) or name in checked.get("env", {}):
        spot.at("map", name).fault(
            f"{name!r:.80} is given twice: by map and by with or env", "give one another name", at_key=True
        )


def _chunk(value: Any, spot: Spot) -> Any:
    if type(value) is int and 1 <= value <= CHUNK_MAX:
        return value
    spot.fault(f"chunk must be a whole number from 1 to {CHUNK_MAX:,}, not {shown(value)}", CHUNK_HINT)
    return BAD


def _check_chunk(checked: Mapping[str, Any], kind: str, spot: Spot) -> None:
    """Elements that share a job have nothing that is limited, counted or looked at for each job."""
    chunk = checked.get("chunk", 1)
    if "chunk" in checked and "map" not in checked:
        spot.at("chunk").fault("chunk means nothing in a step without map", "remove it, or add `map:`", at_key=True)
    elif chunk > 1 and kind != Kind.PYTHON:
        spot.at("chunk").fault(
            f"elements of a step that runs {kind} cannot share a job", "write `chunk: 1`, or remove it", at_key=True
        )
    elif chunk > 1 and (beside := [name for name in _NOT_SHARED if checked.get(name)]):
        spot.at("chunk").fault(
            f"elements that share a job cannot have {beside[0]}",
            f"remove {beside[0]}, or write `chunk: 1`",
            at_key=True,
        )


def _check_env(checked: Mapping[str, Any], kind: str, spot: Spot) -> None:
    """Trusted steps set what they like; untrusted code gets variables for itself alone."""
    for name in checked.get("env", {}) if kind == Kind.CODE else ():
        if is_obeyed(name):
            spot.at("env", name).fault(
                f"env {name!r:.80} cannot be set on a code step: the sandbox sets it, or a loader or interpreter obeys it",
                "give the variable another name, or use a `python` or `shell` step for trusted code",
                at_key=True,
            )


def _refuse_meaningless(checked: Mapping[str, Any], kind: str, spot: Spot) -> None:
    """Refuse a key that would be accepted and do nothing: the author believes that it does something."""
    for name, hint in _MEANINGLESS.get(kind, {}).items():
        if name in checked:
            spot.at(name).fault(f"{name} means nothing in a step that runs {kind}", f"remove it: {hint}", at_key=True)


def _check_inputs(checked: Mapping[str, Any], run: Mapping[str, Any], kind: str, spot: Spot) -> None:
    """An argument that declared inputs name has to be one that the step is given."""
    named = argument_names(checked.get("inputs", ()))
    if not named:
        return
    known = [*checked.get("env", {})] if kind == Kind.SHELL else [*run.get("with", {})]
    known += [str(place + 1) for place in range(len(run.get("args", ())))]
    known += [checked["map"][0]] if "map" in checked else []
    for name in named:
        if name not in known:
            spot.at("inputs").fault(
                f"inputs names {{{name}}}, and the step is given no such argument",
                spot.report.nearest(name, known) or "name an argument of the step; {{ and }} are literal braces",
            )


def _resources(value: Any, spot: Spot) -> Any:
    if mapping(value, spot) is BAD:
        return BAD
    if len(value) > RESOURCES_MAX:
        spot.fault(
            f"a step takes at most {RESOURCES_MAX} kinds of resources, not {len(value):,}", "keep the scarce ones"
        )
        return BAD
    sound = True
    for name, amount in value.items():
        if fault := name_fault(name):
            spot.at(name).fault(fault, RESOURCE_HINT, at_key=True)
            sound = False
        elif fault := amount_fault(name, amount):
            spot.at(name).fault(fault, "write for example `resources: {cpu: 2}`")
            sound = False
    return dict(value) if sound else BAD


def _pool(value: Any, spot: Spot) -> Any:
    if fault := label_fault("pool", value):
        spot.fault(fault, LABEL_HINT)
        return BAD
    return value


def _labels(value: Any, spot: Spot) -> Any:
    labels = texts(value, spot)
    if labels is BAD:
        return BAD
    if len(labels) > LABELS_MAX:
        spot.fault(f"a step asks for at most {LABELS_MAX} labels, not {len(labels):,}", "keep those that matter")
        return BAD
    faults = [fault for label in labels if (fault := label_fault("label", label))]
    if faults:
        spot.fault(faults[0], LABEL_HINT)
        return BAD
    return tuple(sorted(set(labels)))


_MEANINGLESS: Final[Mapping[str, Mapping[str, str]]] = {
    Kind.CODE.value: {"cwd": "code runs in a directory of its own in the sandbox"},
    Kind.JOB.value: {
        "env": "give values in inputs.object.runtime.parameters of the payload",
        "cwd": "a platform job runs in a directory of its own in the sandbox",
    },
}
_NOT_SHARED: Final = ("timeout", "inputs", "outputs", "resources", *POLICY_SECTIONS)
"""What holds for a job, and so not for one element among several."""
_RETRY_KEYS: Final[Mapping[str, Check]] = {"max": _retry_max, "on": _retry_on}
RUN_KEYS: Final[Mapping[str, Mapping[str, Check]]] = {
    Kind.PYTHON.value: {"python": _python, "with": mapping, "args": _arguments, "version": text},
    Kind.CODE.value: {"code": text, "with": mapping, "entrypoint": _entrypoint, "version": text},
    Kind.SHELL.value: {"shell": text, "version": text},
    Kind.JOB.value: {"job": _job},
    Kind.MAP.value: {"map": map_run, "version": text},
}
BINDING_KEYS: Final[Mapping[str, Check]] = {
    "run": _run,
    "inputs": texts,
    "outputs": _outputs,
    "env": _env,
    "cwd": text,
    "timeout": duration,
    "retry": _retry,
    "cache": flag,
    "map": _map,
    "chunk": _chunk,
    "resources": _resources,
    "pool": _pool,
    "labels": _labels,
    **dict.fromkeys(POLICY_SECTIONS, policy),
    "shell": shell,
}
"""What a step may have besides what the planner gets, in both forms."""
