"""What is wrong with a ``job:`` payload of a contract, before anything begins: its schema, and what the runners here do not take.

A payload may refer to parameters and to results of steps. A parameter counts as the value that it has; what is not known yet
excuses the field where it stands, and every rule that looks at several fields. The platform fills in the job's id, as it does
when the step runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from detent.canon.strict_json import JsonValue
from detent.contract.findings import Path, path_text
from detent.contract.model import JobFault
from detent.contract.model_fields import in_plain_words
from detent.contract.references import PARAM, replaced
from detent.contract.words import shown
from detent.executor.runners.model import RunnerFailure
from detent.executor.runners.runners import NETWORKED, RUNNERS
from detent.jobs.fields import Misplaced, place_of, version_fault
from detent.jobs.payload import LOCAL_USER, JobPayload, JobType

NETWORK: Final = ("environment", "network_access")
_HINT: Final = "see docs/jobs.md for what a payload holds"
_ANY_JOB: Final = "00000000-0000-8000-8000-000000000000"
_IDS: Final = (("job_id",), ("retry_of",))
"""Fields that hold a UUID in its one spelling."""
_UNKNOWN: Final = "\ue000unknown-"
"""The prefix of a placeholder for a value not known yet: it cannot be a name, digest, number or choice."""


def job_faults(target: Mapping[str, Any], values: Mapping[str, JsonValue]) -> list[JobFault]:
    """Everything that is wrong with a payload as a contract writes it; ``values`` are those of the parameters that have one."""
    count = iter(range(1 << 30))

    def replace(word: str, name: str) -> JsonValue:
        return values[name] if word == PARAM and name in values else f"{_UNKNOWN}{next(count)}"

    document = replaced(dict(target), replace)
    unknown = list(_unknown(document, ()))
    faults, payload = schema_faults(document, unknown)
    if payload is None or unknown:
        return faults
    if payload.requested_by is not None and payload.requested_by.user_id != LOCAL_USER:
        said = f"the user who asks is {LOCAL_USER!r} in every home"
        faults = [JobFault(("requested_by", "user_id"), said, "leave requested_by out")]
    if payload.environment.network_access != "disabled":
        hint = (
            "leave it out, and fetch what is needed in a step before; `detent submit` and POST /v1/jobs take such a job"
        )
        faults = [*faults, JobFault(NETWORK, "a step of a contract gets no network", hint)]
    return [*faults, *(fault for fault in platform_faults(payload) if fault.path != NETWORK)]


def schema_faults(
    document: Mapping[str, Any], unknown: Sequence[Path] = ()
) -> tuple[list[JobFault], JobPayload | None]:
    """The payload of a document, or what its schema says against it; a job's id is the platform's to give."""
    if fault := _type_fault(document):
        return [fault], None
    if ("schema_version",) not in unknown and (said := version_fault(document.get("schema_version"))):
        return [JobFault(("schema_version",), f"schema_version {said}", 'write schema_version: "1.0"')], None
    try:
        return [], JobPayload.model_validate({"job_id": _ANY_JOB, **document})
    except ValidationError as exc:
        return list(_schema_faults(exc, document, unknown)), None


def _type_fault(document: Mapping[str, Any]) -> JobFault | None:
    known = tuple(kind.value for kind in JobType)
    job_type = document.get("job_type")
    if job_type in known:
        return None
    said = f"there is no job type {shown(job_type)}" if "job_type" in document else "job_type is missing"
    return JobFault(("job_type",), said, f"one of {', '.join(known)}")


def _schema_faults(exc: ValidationError, document: Any, unknown: Sequence[Path]) -> Iterator[JobFault]:
    found = []
    for error in exc.errors(include_url=False):
        path = place_of(document, error["loc"])
        cause = error.get("ctx", {}).get("error")
        if isinstance(cause, Misplaced):
            if unknown:
                continue  # A rule about several fields; one of them may not be known.
            path = (*path, *_steps(cause.path))
        if not any(path[: len(one)] == one or one[: len(path)] == path for one in unknown):
            found.append((path, error))
    for path, error in found:
        # A list is also too short for Pydantic when none of its items fits.
        if any(other != path and other[: len(path)] == path for other, _ in found):
            continue
        if path in _IDS and error["type"] == "string_pattern_mismatch":
            error["type"] = "uuid_parsing"
        message, hint = in_plain_words(error, _name(path))
        yield JobFault(path, message, hint if "docs/contract-file.md" not in hint else _HINT)


def _name(path: Path) -> str:
    """The field that a message begins with; ``formats[1]`` in a list."""
    names = [at for at, key in enumerate(path) if type(key) is str]
    return path_text(path[names[-1] :]) if names else "job"


def platform_faults(payload: JobPayload) -> Iterator[JobFault]:
    """What the runners of this machine do not take."""
    if payload.environment.network_access != "disabled" and payload.job_type != NETWORKED:
        yield JobFault(NETWORK, f"only jobs of the type {NETWORKED} get a network", "leave it out")
    prepared = RUNNERS[payload.job_type].prepare(payload)
    if isinstance(prepared, RunnerFailure):
        path = _steps(str(prepared.details.get("path", "")))
        yield JobFault(path, prepared.message.removeprefix("payload."), _HINT)


def _unknown(value: Any, path: Path) -> Iterator[Path]:
    if type(value) is str and value.startswith(_UNKNOWN):
        yield path
    elif type(value) in (dict, list):
        for key, item in value.items() if type(value) is dict else enumerate(value):
            yield from _unknown(item, (*path, key))


def _steps(path: str) -> Path:
    """A path as messages write it, ``object.dependencies[0]``, in its steps."""
    words = path.replace("[", ".[").split(".") if path else []
    return tuple(int(word[1:-1]) if word.startswith("[") else word for word in words if word)
