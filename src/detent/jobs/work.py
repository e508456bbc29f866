"""What came of work: the result of one attempt, and the report that binds it to that attempt.

A *result* is made where the work ran and goes as it is through the pool, the executor and the supervisor into the *report*, the
answer to an order (`detent.jobs.order`). The supervisor makes the report and signs it with the executor's key: it names the job,
the attempt, the lease and the manifest it answers, so that it fits nowhere else (JOB-083). Reports are content; records name
them by digest only, and they carry a nonce, because what they hold can often be guessed (X-171).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Final

from detent.canon import (
    UINT64_MAX,
    NotCanonical,
    decode,
    decode_trusted,
    encode_trusted,
    json_decode,
    json_digest,
    parse_digest,
)
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.jobs import elements as array
from detent.jobs.elements import Elements
from detent.jobs.status import TERMINAL_STATUSES, TIMEOUT_CODES, ErrorCategory, JobStatus
from detent.jobs.values import FILE, files_named, files_told
from detent.kernel.manifest import digest_fault, id_fault

REPORT_VERSION: Final = 1
VALUE_INLINE_BYTES_MAX: Final = 8 * 1024
"""A value up to this size is part of its report; a larger one is stored as content."""
STREAM_INLINE_BYTES_MAX: Final = 2 * 1024
"""The same for what was written to stdout and stderr."""
FILES_MAX: Final = 1000
REPORT_BYTES_MAX: Final = 1024 * 1024
UNKNOWN_TYPE: Final = "application/octet-stream"
PROCESS: Final = "process"
"""What a result has instead of a sandbox profile when the user's own trusted code ran in a plain process."""
SUCCEEDED: Final = JobStatus.SUCCEEDED.value
FAILED: Final = JobStatus.FAILED.value
TIMED_OUT: Final = JobStatus.TIMED_OUT.value
CANCELLED: Final = JobStatus.CANCELLED.value


@dataclass(frozen=True, slots=True)
class WorkFile:
    """A file that work left behind: in the content store, by its digest."""

    name: str
    digest: bytes
    size_bytes: int
    content_type: str = UNKNOWN_TYPE
    output: str | None = None
    """The name under which it was declared; None for an undeclared file."""


@dataclass(frozen=True, slots=True)
class WorkStream:
    """What was written to stdout or stderr: in the report when it is small, else as content."""

    data: bytes = b""
    content: bytes | None = None
    """Digest of the content that holds it, when `data` does not."""
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """Why work failed. ``line`` and ``column`` are places in the user's code, from 1."""

    category: str
    code: str
    message: str = ""
    type: str | None = None
    traceback: str | None = None
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What an attempt used: as its process counted it, its sandbox, or the kernel when the process was lost."""

    cpu_ms: int = 0
    """Of the process and of the children that it waited for; in a sandbox, of the whole tree."""
    wall_ms: int = 0
    """Not part of a report, which says when the attempt began and ended."""
    memory_bytes_peak: int = 0
    """Of a plain process alone exactly, of its whole tree by looks at it; in a sandbox, of the whole tree."""
    io_bytes_read: int = 0
    """By system calls, like the next: files, pipes and terminals, whether a device had to move for it or not."""
    io_bytes_written: int = 0
    unmeasured: tuple[str, ...] = ()
    """Which of these amounts could not be measured where it ran (`MEASURED`); they are 0 for that reason alone."""
    gpu_ms: int | None = None
    """None: not measured, which is not the same as none used."""


EMPTY: Final = WorkStream()
NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one attempt: from the process that made it, through its executor, into the report."""

    status: str
    value: bytes | None = None
    """The stored value as strict JSON; None unless it succeeded, and in a report also for a value that is content."""
    failure: Failure | None = None
    """None exactly when it succeeded or was cancelled."""
    stdout: WorkStream = EMPTY
    stderr: WorkStream = EMPTY
    files: tuple[WorkFile, ...] = ()
    usage: Usage = NO_USAGE
    sandbox: str = PROCESS
    """Profile of the sandbox, or ``process`` for the user's own trusted code in a plain process."""
    started_ms: int = 0
    """Since 1970; 0 when it never began."""
    finished_ms: int = 0
    env_version: str | None = None
    """What it ran in, where its executor says so itself; None: what its code reaches, which the report says."""
    envelope: bytes | None = None
    """The contract's result envelope of a platform job; its report names the content that holds it."""
    process: str = ""
    """Name of the pool's process that had it; empty when none did. Not part of a report."""
    lost: bool = False
    """The worker was ended from outside while it had this: not a failure of the work, which is retried (X-163)."""
    elements: Elements | None = None
    """Of an array: how each of its elements ended."""

    @property
    def ok(self) -> bool:
        """Whether the work did what it was asked to."""
        return self.status == SUCCEEDED

    @property
    def is_told(self) -> bool:
        """Whether there is something to report: not when its worker was lost, unless some elements of an array had ended."""
        return not self.lost or (self.elements is not None and any(self.elements.codes))


def failed(failure: Failure, now_ms: int, *, lost: bool = False) -> Result:
    """The result of an attempt that failed where nothing of it ran, or nothing more is known."""
    return Result(status=status_after(failure), failure=failure, started_ms=now_ms, finished_ms=now_ms, lost=lost)


def status_after(failure: Failure) -> str:
    """How an attempt ended that failed for this reason."""
    return TIMED_OUT if failure.code in TIMEOUT_CODES else FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport:
    """A result bound to its attempt. All but the value, the failure's text and the streams is the supervisor's own word."""

    job_id: str
    attempt_id: int
    lease_id: bytes
    manifest_hash: bytes
    nonce: bytes
    result: Result
    value_content: bytes | None = None
    """Digest of the content that holds the value's strict JSON, when it is large."""
    value_digest: bytes | None = None
    """Digest of the value as a value: the same value has the same one, wherever it is stored."""
    env_version: str = ""
    worker: str = ""
    stale: bool = False
    """The source had changed by the end of the attempt: which one ran is unknown, so this result is never reused."""
    envelope: bytes | None = None
    """Digest of the content that holds the contract's result envelope (`JobResult`), of a platform job."""
    elements_root: bytes | None = None
    """Of an array: the Merkle root over its elements."""

    @property
    def ok(self) -> bool:
        """Whether the work did what it was asked to."""
        return self.result.ok

    @property
    def reason_code(self) -> str:
        """The code by which the attempt's end is recorded."""
        return "COMPLETED" if self.result.failure is None else self.result.failure.code

    def body(self) -> bytes:
        """Canonical bytes: what the executor signs."""
        said: dict[str, object] = {"version": REPORT_VERSION}
        for (name, default), value in zip(_STORED.items(), _values(self), strict=True):
            if value is default or value == default:
                continue
            if name == "error":
                said[name] = failure_parts(value)
            elif name in {"stdout", "stderr"}:
                said[name] = stream_parts(value)
            elif name == "elements":
                said[name] = value.stored()
            elif name == "files":
                said[name] = [
                    [file.name, file.digest, file.size_bytes, file.content_type, file.output] for file in value
                ]
            else:
                said[name] = list(value) if type(value) is tuple else value
        return encode_trusted(said)

    def contents(self) -> Iterator[bytes]:
        """Digests of the content that belongs to this report: garbage collection must keep it, erasing must find it."""
        result = self.result
        for named in (self.value_content, result.stdout.content, result.stderr.content, self.envelope):
            if named is not None:
                yield named
        for file in result.files:
            yield file.digest
        if result.elements is not None:
            for place in range(len(result.elements)):
                if (element := self.of_element(place)) is not None:
                    yield from element.contents()
        if result.value is not None and b'"$file"' in result.value:
            yield from (parse_digest(named) for named in files_named(json_decode(result.value)))

    def carried(self) -> Elements | None:
        """How the elements of an array ended so far, for its next attempt."""
        elements = self.result.elements
        if elements is None:
            return None
        settled = (place for place, code in enumerate(elements.codes) if code != array.OPEN)
        return replace(elements, attempts={place: elements.attempts.get(place, self.attempt_id) for place in settled})

    def of_element(self, place: int) -> WorkReport | None:
        """What the report of an element would say if it were a job of its own; None for one that is not there, or has no outcome."""
        elements = self.result.elements
        if elements is None or not 0 <= place < len(elements) or elements.codes[place] == array.OPEN:
            return None
        failure, streams = elements.failures.get(place), elements.streams.get(place)
        value, content = elements.values[place], elements.contents.get(place)
        stdout, stderr = (EMPTY, EMPTY) if streams is None else map(_stream, streams)
        started_ms = elements.started_ms[place]
        return replace(
            self,
            attempt_id=elements.attempts.get(place, self.attempt_id),
            value_content=None if content is None else content[0],
            value_digest=elements.value_digest(place),
            elements_root=None,
            result=Result(
                status=_STATUS[elements.codes[place]],
                value=value,
                failure=None if failure is None else Failure(**failure),
                stdout=stdout,
                stderr=stderr,
                sandbox=self.result.sandbox,
                started_ms=started_ms,
                finished_ms=started_ms + elements.wall_us[place] // 1000,
            ),
        )

    @classmethod
    def parse(cls, body: bytes) -> WorkReport:
        """Read a report's bytes; raises `InvalidInput` by field for what is none."""
        if len(body) > REPORT_BYTES_MAX:
            raise InvalidInput(f"a report has at most {REPORT_BYTES_MAX} bytes, not {len(body)}")
        try:
            said = decode(body)
        except NotCanonical as exc:
            raise InvalidInput(f"the report is not canonical CBOR: {exc}") from exc
        report = cls._of(said)
        if fault := report.fault():
            raise InvalidInput(f"the report's {fault}")
        return report

    @classmethod
    def read(cls, body: bytes) -> WorkReport:
        """Read a report that was judged when it was accepted, out of content whose digest was checked."""
        return cls._of(decode_trusted(body))

    @classmethod
    def _of(cls, said: object) -> WorkReport:
        if not isinstance(said, dict) or said.pop("version", None) != REPORT_VERSION:
            raise InvalidInput(f"a report is a map of version {REPORT_VERSION}")
        if unknown := said.keys() - _STORED.keys():
            raise InvalidInput(f"a report has no field {min(unknown)!r:.80}")
        if missing := _REQUIRED - said.keys():
            raise InvalidInput(f"the report lacks {min(missing)}")
        parts: dict[str, dict[str, Any]] = {"": {}, "result": {}, "result.usage": {}}
        try:
            for name, value in said.items():
                part, own = _SPLIT[name]
                parts[part][own] = _READ[name](value) if name in _READ else value
            usage = Usage(**parts["result.usage"]) if parts["result.usage"] else NO_USAGE
            return cls(result=Result(usage=usage, **parts["result"]), **parts[""])
        except (TypeError, ValueError, KeyError) as exc:
            raise InvalidInput(f"the report has a field that does not fit: {exc}") from exc

    def fault(self) -> str | None:
        """Say which field is not what it must be, or nothing."""
        if fault := id_fault("job_id", self.job_id) or digest_fault("lease_id", self.lease_id):
            return fault
        if fault := digest_fault("manifest_hash", self.manifest_hash):
            return fault
        for name, value in zip(_COUNTS, _counts(self), strict=True):
            if value is None and name == "gpu_ms":
                continue
            if type(value) is not int or not 0 <= value <= UINT64_MAX:
                return f"{name} must be an integer from 0 to 2^64-1"
        if type(self.nonce) is not bytes or len(self.nonce) != 16:
            return "nonce must have 16 bytes"
        status, failure = self.result.status, self.result.failure
        if status not in _ENDED:
            return f"status must be one of {', '.join(sorted(_ENDED))}"
        if (failure is None) != (status in {SUCCEEDED, CANCELLED}):
            return f"error does not fit the status {status}"
        if failure is not None and (fault := _failure_fault(failure, status)):
            return fault
        return self._elements_fault() or self._content_fault()

    def _elements_fault(self) -> str | None:
        elements = self.result.elements
        if elements is None:
            return None if self.elements_root is None else "elements_root must stand beside elements, and only there"
        if fault := elements.fault():
            return fault
        for place in range(len(elements)):
            try:
                element = self.of_element(place)
            except (TypeError, ValueError) as exc:
                return f"element {place} does not fit: {exc}"
            if element is not None and (fault := element.fault()):
                return f"element {place}: {fault}"
        return None if elements.root() == self.elements_root else "elements_root is not the root over its elements"

    def _content_fault(self) -> str | None:
        result = self.result
        for name in ("value_content", "value_digest", "envelope"):
            if getattr(self, name) is not None and (fault := digest_fault(name, getattr(self, name))):
                return fault
        if (result.value is not None or self.value_content is not None) != (self.value_digest is not None):
            return "value_digest must stand beside a value, and only there"
        if result.value is not None and json_digest(result.value) != self.value_digest:
            return "value_digest is not that of the value"
        if len(result.files) > FILES_MAX:
            return f"files are more than {FILES_MAX}"
        for file in result.files:
            if type(file.name) is not str or digest_fault("digest", file.digest) or type(file.size_bytes) is not int:
                return "files have a name, a digest and a size each"
        for name, text in (("env_version", self.env_version), ("sandbox", result.sandbox), ("worker", self.worker)):
            if type(text) is not str:
                return f"{name} must be text"
        if type(self.stale) is not bool:
            return "stale must be true or false"
        if not set(self.result.usage.unmeasured) <= MEASURED:
            return f"unmeasured must be among {', '.join(sorted(MEASURED))}"
        return None


MEASURED: Final = frozenset({"cpu_ms", "memory_bytes_peak", "io_bytes"})
"""What is measured of an attempt wherever that is possible; the time of GPUs is a measurement of its own."""
_ENDED: Final = frozenset(status.value for status in TERMINAL_STATUSES)
_REQUIRED: Final = frozenset({"job_id", "attempt_id", "lease_id", "manifest_hash", "status", "nonce"})
_STATUS: Final = {array.SUCCEEDED: SUCCEEDED, array.FAILED: FAILED, array.TIMED_OUT: TIMED_OUT}
_UNSAID: Final = object()
_USED: Final = ("cpu_ms", "memory_bytes_peak", "io_bytes_read", "io_bytes_written")
_PLACES: Final[dict[str, str]] = {
    **{name: name for name in ("job_id", "attempt_id", "lease_id", "manifest_hash", "nonce")},
    **{name: name for name in ("value_content", "value_digest", "env_version", "worker", "stale", "envelope")},
    "elements_root": "elements_root",
    **{name: f"result.{name}" for name in ("status", "value", "stdout", "stderr", "files", "sandbox", "elements")},
    "error": "result.failure",
    "started_ms": "result.started_ms",
    "finished_ms": "result.finished_ms",
    **{name: f"result.usage.{name}" for name in (*_USED, "gpu_ms", "unmeasured")},
}
"""Where each field of a stored report is kept: a report is one flat map, whatever its parts are called here."""
_DEFAULTS: Final[dict[str, Any]] = {
    each.name: each.default for each in (*fields(WorkReport), *fields(Result), *fields(Usage))
}
_STORED: Final[dict[str, Any]] = {
    name: _UNSAID if name in _REQUIRED else _DEFAULTS[place.rpartition(".")[2]] for name, place in _PLACES.items()
} | {"env_version": ""}
"""The fields of a stored report, each with the default that is not written."""
_SPLIT: Final = {name: place.rpartition(".")[::2] for name, place in _PLACES.items()}
"""The same, each as the part that has it and its name there."""
_values: Final = attrgetter(*_PLACES.values())
_COUNTS: Final = ("attempt_id", "started_ms", "finished_ms", *_USED, "gpu_ms")
_counts: Final = attrgetter(*(_PLACES[name] for name in _COUNTS))


def failure_parts(failure: Failure) -> dict[str, object]:
    """A failure as a report stores it."""
    return {each.name: value for each in fields(failure) if (value := getattr(failure, each.name)) is not None}


def _failure_fault(failure: Failure, status: str) -> str | None:
    if failure.category not in {category.value for category in ErrorCategory}:
        return f"error.category {show(failure.category)} is unknown"
    if (failure.code in TIMEOUT_CODES) != (status == TIMED_OUT):
        return f"status {status} does not fit the code {show(failure.code)}"
    for name in ("message", "type", "traceback"):
        value = getattr(failure, name)
        if value is not None and type(value) is not str:
            return f"error.{name} must be text"
    return None


def stream_parts(stream: WorkStream) -> list[object]:
    """A stream as a report stores it."""
    return [stream.data, stream.content, stream.truncated]


def _stream(value: Any) -> WorkStream:
    data, content, truncated = value
    if type(data) is not bytes or type(truncated) is not bool or (content is not None and digest_fault("", content)):
        raise ValueError("a stream is bytes, a digest or nothing, and whether it was cut")
    return WorkStream(data, content, truncated)


_READ: Final[dict[str, Any]] = {
    "error": lambda value: Failure(**value),
    "stdout": _stream,
    "stderr": _stream,
    "files": lambda value: tuple(WorkFile(*file) for file in value),
    "elements": Elements.read,
    "unmeasured": tuple,
}


def returned_files(value: bytes | None) -> list[WorkFile]:
    """The files in a value, as it is stored."""
    if value is None or b'"$file"' not in value:
        return []
    given = {str(one[FILE]): one for one in files_told(json_decode(value))}
    return [
        WorkFile(
            str(one.get("name", "data")),
            parse_digest(named),
            one.get("size", 0),
            str(one.get("type", UNKNOWN_TYPE)),
        )
        for named, one in given.items()
    ]
