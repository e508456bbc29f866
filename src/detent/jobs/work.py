"""What came of work: the report of one attempt.

A *report* answers an order (`detent.jobs.order`). The worker's supervisor makes it and signs it with the executor's key: it names
the job, the attempt, the lease and the manifest it answers, so that it fits nowhere else (JOB-083). Reports are content; records
name them by digest only, and they carry a nonce, because what they hold can often be guessed (X-171).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
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
from detent.jobs.category import ErrorCategory
from detent.jobs.status import TERMINAL_STATUSES, TIMEOUT_CODES, JobStatus
from detent.jobs.values import files_named
from detent.kernel.manifest import digest_fault, id_fault

REPORT_VERSION: Final = 1
VALUE_INLINE_BYTES_MAX: Final = 8 * 1024
"""A value up to this size is part of its report; a larger one is stored as content."""
STREAM_INLINE_BYTES_MAX: Final = 2 * 1024
"""The same for what was written to stdout and stderr."""
FILES_MAX: Final = 1000
REPORT_BYTES_MAX: Final = 1024 * 1024
PROCESS: Final = "process"
"""What a report has instead of a sandbox profile when the user's own trusted code ran in a plain process."""


@dataclass(frozen=True, slots=True)
class WorkFile:
    """A file that work left behind: in the content store, by its digest."""

    name: str
    digest: bytes
    size_bytes: int
    content_type: str = "application/octet-stream"
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
class WorkError:
    """Why work failed."""

    category: str
    code: str
    message: str = ""
    type: str | None = None
    traceback: str | None = None
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport:
    """What came of one attempt. Everything but the value, the message and the streams is the supervisor's own word."""

    job_id: str
    attempt_id: int
    lease_id: bytes
    manifest_hash: bytes
    status: str
    nonce: bytes
    value: bytes | None = None
    """The stored value as strict JSON, when it is small; None for none, or for one that is content."""
    value_content: bytes | None = None
    """Digest of the content that holds the value's strict JSON, when it is large."""
    value_digest: bytes | None = None
    """Digest of the value as a value: the same value has the same one, wherever it is stored."""
    error: WorkError | None = None
    stdout: WorkStream = WorkStream()
    stderr: WorkStream = WorkStream()
    files: tuple[WorkFile, ...] = ()
    env_version: str = ""
    sandbox: str = PROCESS
    """Profile of the sandbox, or ``process`` for the user's own trusted code in a plain process."""
    worker: str = ""
    stale: bool = False
    """The source had changed by the end of the attempt: which one ran is unknown, so this result is never reused."""
    started_ms: int = 0
    """By the wall clock of the supervisor, since 1970."""
    finished_ms: int = 0
    cpu_ms: int = 0
    memory_bytes_peak: int = 0
    io_bytes_read: int = 0
    io_bytes_written: int = 0
    envelope: bytes | None = None
    """Digest of the content that holds the contract's result envelope (`JobResult`), of a platform job."""
    gpu_ms: int | None = None
    """None: not measured, which is not the same as none used."""
    unmeasured: tuple[str, ...] = ()
    """Which of the other amounts could not be measured where it ran; they are left out, and count as 0."""

    @property
    def ok(self) -> bool:
        """Whether the work did what it was asked to."""
        return self.status == JobStatus.SUCCEEDED.value

    @property
    def reason_code(self) -> str:
        """The code by which the attempt's end is recorded."""
        return "COMPLETED" if self.error is None else self.error.code

    def body(self) -> bytes:
        """Canonical bytes: what the executor signs."""
        said: dict[str, object] = {"version": REPORT_VERSION}
        for (name, default), value in zip(_REPORT_DEFAULTS.items(), _report_values(self), strict=True):
            if value is default or value == default:
                continue
            if name == "error":
                said[name] = _present(value)
            elif name in {"stdout", "stderr"}:
                said[name] = [value.data, value.content, value.truncated]
            elif name == "files":
                said[name] = [
                    [file.name, file.digest, file.size_bytes, file.content_type, file.output] for file in value
                ]
            else:
                said[name] = list(value) if type(value) is tuple else value
        return encode_trusted(said)

    def contents(self) -> Iterator[bytes]:
        """Digests of the content that belongs to this report: garbage collection must keep it, erasing must find it."""
        for named in (self.value_content, self.stdout.content, self.stderr.content, self.envelope):
            if named is not None:
                yield named
        for file in self.files:
            yield file.digest
        if self.value is not None and b'"$file"' in self.value:
            yield from (parse_digest(named) for named in files_named(json_decode(self.value)))

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
        if unknown := said.keys() - _REPORT_DEFAULTS.keys():
            raise InvalidInput(f"a report has no field {min(unknown)!r:.80}")
        if missing := _REPORT_REQUIRED - said.keys():
            raise InvalidInput(f"the report lacks {min(missing)}")
        try:
            return cls(**{name: _READ[name](value) if name in _READ else value for name, value in said.items()})
        except (TypeError, ValueError, KeyError) as exc:
            raise InvalidInput(f"the report has a field that does not fit: {exc}") from exc

    def fault(self) -> str | None:
        """Say which field is not what it must be, or nothing."""
        if fault := id_fault("job_id", self.job_id) or digest_fault("lease_id", self.lease_id):
            return fault
        if fault := digest_fault("manifest_hash", self.manifest_hash):
            return fault
        for name in ("attempt_id", *_COUNTS, *(() if self.gpu_ms is None else ("gpu_ms",))):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= UINT64_MAX:
                return f"{name} must be an integer from 0 to 2^64-1"
        if type(self.nonce) is not bytes or len(self.nonce) != 16:
            return "nonce must have 16 bytes"
        if self.status not in _ENDED:
            return f"status must be one of {', '.join(sorted(_ENDED))}"
        if (self.error is None) != (self.status in {JobStatus.SUCCEEDED, JobStatus.CANCELLED}):
            return f"error does not fit the status {self.status}"
        if self.error is not None and (fault := _error_fault(self.error, self.status)):
            return fault
        return self._content_fault()

    def _content_fault(self) -> str | None:
        for name in ("value_content", "value_digest", "envelope"):
            if getattr(self, name) is not None and (fault := digest_fault(name, getattr(self, name))):
                return fault
        if (self.value is not None or self.value_content is not None) != (self.value_digest is not None):
            return "value_digest must stand beside a value, and only there"
        if self.value is not None and json_digest(self.value) != self.value_digest:
            return "value_digest is not that of the value"
        if len(self.files) > FILES_MAX:
            return f"files are more than {FILES_MAX}"
        for file in self.files:
            if type(file.name) is not str or digest_fault("digest", file.digest) or type(file.size_bytes) is not int:
                return "files have a name, a digest and a size each"
        for name in ("env_version", "sandbox", "worker"):
            if type(getattr(self, name)) is not str:
                return f"{name} must be text"
        if type(self.stale) is not bool:
            return "stale must be true or false"
        if not set(self.unmeasured) <= MEASURED:
            return f"unmeasured must be among {', '.join(sorted(MEASURED))}"
        return None


MEASURED: Final = frozenset({"cpu_ms", "memory_bytes_peak", "io_bytes"})
"""What is measured of an attempt wherever that is possible; the time of GPUs is a measurement of its own."""
_ENDED: Final = frozenset(status.value for status in TERMINAL_STATUSES)
_COUNTS: Final = ("started_ms", "finished_ms", "cpu_ms", "memory_bytes_peak", "io_bytes_read", "io_bytes_written")
_REPORT_REQUIRED: Final = frozenset({"job_id", "attempt_id", "lease_id", "manifest_hash", "status", "nonce"})
_UNSAID: Final = object()
_REPORT_DEFAULTS: Final[dict[str, Any]] = {
    each.name: _UNSAID if each.name in _REPORT_REQUIRED else each.default for each in fields(WorkReport)
}


_report_values: Final = attrgetter(*_REPORT_DEFAULTS)


def _present(error: WorkError) -> dict[str, object]:
    return {each.name: value for each in fields(error) if (value := getattr(error, each.name)) is not None}


def _error_fault(error: WorkError, status: str) -> str | None:
    if error.category not in {category.value for category in ErrorCategory}:
        return f"error.category {show(error.category)} is unknown"
    if (error.code in TIMEOUT_CODES) != (status == JobStatus.TIMED_OUT.value):
        return f"status {status} does not fit the code {show(error.code)}"
    for name in ("message", "type", "traceback"):
        value = getattr(error, name)
        if value is not None and type(value) is not str:
            return f"error.{name} must be text"
    return None


def _stream(value: Any) -> WorkStream:
    data, content, truncated = value
    if type(data) is not bytes or type(truncated) is not bool or (content is not None and digest_fault("", content)):
        raise ValueError("a stream is bytes, a digest or nothing, and whether it was cut")
    return WorkStream(data, content, truncated)


_READ: Final[dict[str, Any]] = {
    "error": lambda value: WorkError(**value),
    "stdout": _stream,
    "stderr": _stream,
    "files": lambda value: tuple(WorkFile(*file) for file in value),
    "unmeasured": tuple,
}
