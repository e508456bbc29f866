"""The kinds of fields that envelopes are made of, and how a bad document is refused: by the path of its field.

Models are frozen and strict: ``"30"`` is not a number, ``true`` is not 1. Undeclared fields are kept, because a newer
minor version may have put them there (X-161); like every other value they must be strict JSON (X-170).

Versions of envelopes: ``major.minor``, where a minor only ever adds (X-161).

A reader takes every minor of its own major. An older document is brought up to date by one function per minor; a newer
one is read as it is, and what this reader does not know yet is kept and written back. Another major is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Annotated, Any, Final, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from detent.canon import UINT64_MAX, NotStrictJson, json_decode, json_encode, parse_digest
from detent.canon.late import NamedTuple, pattern
from detent.canon.show import show, step
from detent.errors import InvalidInput, InvariantBroken
from detent.kernel.manifest import id_fault

ERRORS_SHOWN_MAX: Final = 20

_MOMENT = pattern(
    r"(?P<year>[0-9]{4}|\+[0-9]{5,9})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"T(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?(?:Z|\+00:00)"
)


class EnvelopeInvalid(InvalidInput):
    """A payload or result does not fit its schema. ``details["path"]`` names the first field that does not."""

    code = "VALIDATION_ERROR"


class Misplaced(ValueError):
    """A fault found by looking at several fields together; ``path`` says which one to name."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class Part(BaseModel):
    """Any value inside an envelope, and the envelope itself."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow", hide_input_in_errors=True)

    @model_validator(mode="after")
    def _unknown_fields_are_json(self) -> Self:
        for name, value in (self.__pydantic_extra__ or {}).items():
            _check_json(value, name)
        return self

    def document(self) -> Document:
        """The document this was read from, unknown fields included and no default added."""
        return self.model_dump(mode="json", exclude_unset=True)


def moment(text: str) -> tuple[int, int, int, int, int, int, int]:
    """A time in UTC as numbers that compare: year to second, then nanoseconds. Raises ValueError for any other text."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError("must be a time in UTC such as 2026-01-10T10:00:00Z")
    year, month, day, hour, minute, second = (
        int(found[name]) for name in ("year", "month", "day", "hour", "minute", "second")
    )
    # The calendar repeats every 400 years, and the standard library's ends in 9999.
    date(2000 + year % 400, month, day)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("must be a time of day from 00:00:00 to 23:59:59")
    return year, month, day, hour, minute, second, int((found["fraction"] or "").ljust(9, "0"))


def _check_json(value: Any, name: str = "value") -> Any:
    try:
        json_encode(value, name=name)
    except NotStrictJson as exc:
        raise ValueError(str(exc)) from exc
    return value


def _check_id(value: str) -> str:
    if fault := id_fault("an id", value):
        raise ValueError(fault)
    return value


def _check_digest(value: str) -> str:
    try:
        parse_digest(value)
    except InvalidInput as exc:
        raise ValueError(f"{exc}; {exc.hint}") from exc
    return value


def _check_moment(value: str) -> str:
    moment(value)
    return value


Id: TypeAlias = Annotated[str, AfterValidator(_check_id)]
"""An opaque id of the platform's."""
JobId: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
]
"""A UUID as text, in the one canonical spelling (lower case)."""
Digest: TypeAlias = Annotated[str, AfterValidator(_check_digest)]
Moment: TypeAlias = Annotated[str, AfterValidator(_check_moment)]
Nonce: TypeAlias = Annotated[str, StringConstraints(pattern=r"^(?:[0-9a-f]{2}){16,64}$")]
"""Random bytes in hex, at least 16: with them a digest cannot be matched against guesses (X-171)."""
Name: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.+-]{0,63}$")]
"""A word of an open vocabulary: the executor decides what it supports."""
Count: TypeAlias = Annotated[int, Field(ge=0, le=UINT64_MAX)]
Json: TypeAlias = Annotated[Any, AfterValidator(_check_json)]
JsonObject: TypeAlias = Annotated[dict[str, Any], AfterValidator(_check_json)]
VersionText: TypeAlias = Annotated[str, StringConstraints(pattern=r"^(?:0|[1-9][0-9]{0,5})\.(?:0|[1-9][0-9]{0,5})$")]

Read = TypeVar("Read", bound=Part)


def read(model: type[Read], data: bytes | Mapping[str, Any], *, name: str, bytes_max: int, upgrades: Upgrades) -> Read:
    """Read an envelope from strict JSON bytes or from a plain document; refuse it by the path of what is wrong."""
    document = read_document(data, name=name, bytes_max=bytes_max)
    if fault := version_fault(document.get("schema_version")):
        raise EnvelopeInvalid(f"{name}.schema_version {fault}", details={"path": "schema_version"})
    return validate(model, upgrade(document, upgrades), name=name)


def read_document(data: bytes | Mapping[str, Any], *, name: str, bytes_max: int) -> Document:
    """The JSON object in some bytes, or a plain document, as strict JSON has it; its fields are not looked at."""
    try:
        document = json_decode(
            data if isinstance(data, bytes) else _plain(data, name, bytes_max), name=name, bytes_max=bytes_max
        )
    except NotStrictJson as exc:
        path = str(exc.details.get("path", "")).removeprefix(name).removeprefix(".")
        raise EnvelopeInvalid(str(exc), hint=exc.hint, details={"path": path}) from exc
    if not isinstance(document, dict):
        raise EnvelopeInvalid(f"{name} must be a JSON object", details={"path": ""})
    return document


def _plain(data: object, name: str, bytes_max: int) -> bytes:
    return json_encode(dict(data) if isinstance(data, Mapping) else data, name=name, bytes_max=bytes_max)


def validate(model: type[Read], document: Document, *, name: str) -> Read:
    """Build a model, with Pydantic's errors told in our own way."""
    try:
        return model.model_validate(document)
    except ValidationError as exc:
        raise envelope_invalid(exc, document, name) from exc


def envelope_invalid(exc: ValidationError, document: object, name: str) -> EnvelopeInvalid:
    """Our error for one of Pydantic's: it says where, what is wrong, and what else is wrong."""
    errors = []
    for error in exc.errors(include_url=False, include_input=False)[:ERRORS_SHOWN_MAX]:
        path = "".join(map(step, place_of(document, error["loc"]))).removeprefix(".")
        cause = error.get("ctx", {}).get("error")
        if isinstance(cause, Misplaced):
            path = f"{path}.{cause.path}".strip(".")
        errors.append({"path": path, "message": error["msg"].removeprefix("Value error, ")})
    first = errors[0]
    more = f" (and {exc.error_count() - 1} more)" if exc.error_count() > 1 else ""
    place = f"{name}.{first['path']}" if first["path"] else name
    return EnvelopeInvalid(f"{place}: {first['message']}{more}", details={"path": first["path"], "errors": errors})


def place_of(document: object, location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """A field's path in its document: without the names of the alternatives that Pydantic tried."""
    path: list[int | str] = []
    inside = document
    for place, part in enumerate(location):
        if (isinstance(inside, dict) and part in inside) or (isinstance(inside, list) and isinstance(part, int)):
            inside = inside[part]  # type: ignore[index]  # mypy does not join the two cases
        elif place + 1 < len(location):
            continue
        path.append(part)
    return tuple(path)


def unique(values: tuple[Any, ...], path: str) -> None:
    """Refuse a list that names something twice."""
    seen = set()
    for value in values:
        if value in seen:
            raise Misplaced(path, f"names {show(value)} twice")
        seen.add(value)


Document: TypeAlias = dict[str, Any]
Upgrades: TypeAlias = Mapping[int, Callable[[Document], Document]]
"""For each minor the function that makes a document of the next one out of it."""

_VERSION = pattern(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})")


class Version(NamedTuple):
    """A schema version. Compares as a reader expects: 1.10 comes after 1.9."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


SCHEMA_VERSION: Final = Version(1, 0)
"""What this code writes."""
PAYLOAD_UPGRADES: Final[Upgrades] = {}
RESULT_UPGRADES: Final[Upgrades] = {}


def parse_version(text: object) -> Version | None:
    """Read a version; None when the text is none."""
    found = _VERSION.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else Version(int(found[1]), int(found[2]))


def version_fault(text: object, *, current: Version = SCHEMA_VERSION) -> str | None:
    """Say why a document of this version cannot be read here, or nothing."""
    version = parse_version(text)
    if version is None:
        return f"must be a version such as {current}, not {show(text)}"
    if version.major != current.major:
        return f"is {version}; this reader supports major version {current.major}"
    return None


def upgrade(document: Document, upgrades: Upgrades, *, current: Version = SCHEMA_VERSION) -> Document:
    """Bring a document of an older minor to the current one; leave a current or newer one as it is.

    The document has passed `version_fault`. It is not changed; a missing step is our own bug.
    """
    version = parse_version(document["schema_version"])
    if version is None or version.major != current.major:
        raise InvariantBroken("upgrade is asked for documents of the current major version only")
    for minor in range(version.minor, current.minor):
        if minor not in upgrades:
            raise InvariantBroken(f"no upgrade from version {version.major}.{minor}")
        document = {**upgrades[minor](dict(document)), "schema_version": str(Version(version.major, minor + 1))}
    return document
