"""Work that was asked for before: keys of equal work, reuse and join, idempotency keys, superseding.

Whether work that was asked for has been done already: reuse, join, or run (JOB-026 to JOB-028, X-149, X-186).

``input_hash`` and ``execution_key``: two jobs with equal keys do the same work (X-148, X-170, X-186).

A key is found by content, so it lives in an index beside the ledger and never in a record: a reader who guesses an input
could test the guess against it (X-171). Within the index it belongs to its workspace, so that tenants never share
results.

Not to be confused with the kernel's transition key (one request about one job) or with the client's idempotency key (one
HTTP request): see the glossary (X-015).

The client's ``Idempotency-Key``: the same request again gets the same answer, for a while (JOB-029 to JOB-033).

The key protects one HTTP request against being sent twice. It says nothing about equal work (that is the execution key)
and never reaches the kernel (X-015).

The optional rule by which newer work replaces older work that has not ended (X-034).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NewType, TypeAlias

from detent.canon import (
    check_uint64,
    digest,
    digest_text,
    encode_trusted,
    json_encode,
    json_encode_trusted,
    parse_digest,
    sha256,
)
from detent.canon.late import dataclass, pattern
from detent.canon.show import show
from detent.errors import InvalidInput, Refused
from detent.jobs.status import TERMINAL_STATUSES, JobStatus
from detent.kernel.manifest import digest_fault, id_fault

KEY_TAG: Final = "execution_key/v1"
INPUT_LABEL: Final = b"detent/input_hash/v1\0"
TARGETS_MAX: Final = 10_000
"""Objects one job may be about."""

ExecutionKey = NewType("ExecutionKey", str)
"""``sha256:`` and 64 hex digits; the same key means the same work."""


def input_hash(ingredients: Mapping[str, Any], *, name: str = "inputs") -> str:
    """The hash of everything that goes into a job, from the ingredients as strict JSON.

    ``name`` is what an error calls the value in which something has no strict JSON form (NaN, a tuple).
    """
    return digest_text(digest(INPUT_LABEL, json_encode(dict(ingredients), name=name)))


def hash_of_ingredients(ingredients: Mapping[str, Any]) -> str:
    """The same for ingredients that were put together out of checked parts."""
    return digest_text(digest(INPUT_LABEL, json_encode_trusted(ingredients)))


def execution_key(
    job_type: str, document_revision_id: str, target_object_ids: Iterable[str], input_hash: str, env_version: str
) -> ExecutionKey:
    """The key of a platform job. The order and repetition of the object ids do not matter."""
    if isinstance(target_object_ids, str):
        raise InvalidInput("target_object_ids is a list of ids, not one text", details={"path": "target_object_ids"})
    targets = sorted({_text("target_object_ids", value) for value in target_object_ids})
    if len(targets) > TARGETS_MAX:
        raise InvalidInput(f"a job is about at most {TARGETS_MAX} objects", details={"path": "target_object_ids"})
    return _key(
        _text("job_type", job_type),
        _text("document_revision_id", document_revision_id),
        targets,
        _hash(input_hash),
        _text("env_version", env_version),
    )


def work_key(job_type: str, binding_digest: bytes, input_hash: str, env_version: str) -> ExecutionKey:
    """The key of a job without a document: a task or a workflow action, told apart by what it is bound to (X-186).

    It has one part fewer than a platform job's, and bytes where that has text, so the two never meet.
    """
    if fault := digest_fault("binding_digest", binding_digest):
        raise InvalidInput(fault, details={"path": "binding_digest"})
    return _key(_text("job_type", job_type), binding_digest, _hash(input_hash), _text("env_version", env_version))


class WorkKeysAlike:
    """Keys of work that differs in the digests of some ingredients alone: all that it has in common is written once."""

    def __init__(
        self, binding_digest: bytes, shared: Mapping[str, Any], names: Sequence[str], *, job_type: str, env_version: str
    ) -> None:
        """``names`` are those of the ingredients that differ, in their order; ``shared`` has none of them."""
        marks = [f"sha256:{place:064x}" for place in range(len(names))]
        text = json_encode_trusted({**shared, **dict(zip(names, marks, strict=True))}).decode()
        self._between: list[str] = []
        for mark in marks:
            before, _, text = text.partition(mark)
            self._between.append(before)
        self._last = text
        hashed = hash_of_ingredients({})
        whole = encode_trusted([KEY_TAG, _text("job_type", job_type), binding_digest, hashed, env_version])
        self._before, _, self._after = whole.partition(hashed.encode())

    def key(self, digests: Sequence[str]) -> ExecutionKey:
        """What `work_key` gives for these digests under the names."""
        text = "".join([part for pair in zip(self._between, digests, strict=True) for part in pair]) + self._last
        hashed = digest_text(sha256(INPUT_LABEL + text.encode()))
        return ExecutionKey(digest_text(sha256(self._before + hashed.encode() + self._after)))


def _key(*parts: object) -> ExecutionKey:
    return ExecutionKey(digest_text(sha256(encode_trusted([KEY_TAG, *parts]))))


def _text(name: str, value: object) -> str:
    if fault := id_fault(name, value):
        raise InvalidInput(fault, details={"path": name})
    return str(value)


def _hash(value: str) -> str:
    try:
        parse_digest(value)
    except InvalidInput as exc:
        raise InvalidInput(f"input_hash is not a digest: {show(value)}", details={"path": "input_hash"}) from exc
    return value


InFlight: TypeAlias = Literal["new", "join"]
IN_FLIGHT_DEFAULT: Final[InFlight] = "new"


@dataclass(frozen=True, slots=True)
class PriorJob:
    """A job of the index that may answer a request."""

    workspace_id: str
    execution_key: ExecutionKey
    job_id: str
    status: JobStatus
    position: int
    """Ascending with time: of the commit that ended the job, or of its submission while it has not ended."""
    limits: object = None
    """The limits it ran under; only compared."""
    limit_bound: bool = False
    """Other limits might have given another outcome: it failed by RESOURCE_LIMIT, or its output was cut."""
    available: bool = True
    """Its result and artifacts can still be read; an erased result cannot be an answer."""


@dataclass(frozen=True, slots=True)
class DedupeRequest:
    """Work that is asked for, and what the caller accepts instead of running it."""

    workspace_id: str
    execution_key: ExecutionKey
    reuse_failed: bool = False
    in_flight_policy: InFlight = IN_FLIGHT_DEFAULT
    limits: object = None


@dataclass(frozen=True, slots=True)
class Reuse:
    """Answer with an ended job's outcome. No kernel job is made; the answer says ``deduplicated``."""

    job_id: str
    status: JobStatus
    deduplicated: Literal[True] = True


@dataclass(frozen=True, slots=True)
class Join:
    """Wait for a job that is already under way. No kernel job is made; the answer says ``deduplicated``."""

    job_id: str
    deduplicated: Literal[True] = True


@dataclass(frozen=True, slots=True)
class Run:
    """Nothing answers the request: make a job."""

    deduplicated: Literal[False] = False


def dedupe(request: DedupeRequest, prior_jobs: Iterable[PriorJob]) -> Reuse | Join | Run:
    """Decide how a request is answered, given the jobs the index holds under its key.

    A success is always reused, the first committed one if there are several; a failure only when asked for; CANCELLED
    and TIMED_OUT never. Work under way is joined only under the same limits: others may end it otherwise (X-190). Jobs
    of another workspace or key do not count.
    """
    same = sorted(
        (
            job
            for job in prior_jobs
            if (job.workspace_id, job.execution_key) == (request.workspace_id, request.execution_key)
        ),
        key=lambda job: (job.position, job.job_id),
    )
    answers = [job for job in same if job.available and not (job.limit_bound and job.limits != request.limits)]
    reusable = (JobStatus.SUCCEEDED, JobStatus.FAILED) if request.reuse_failed else (JobStatus.SUCCEEDED,)
    for status in reusable:
        for job in answers:
            if job.status is status:
                return Reuse(job.job_id, job.status)
    if request.in_flight_policy == "join":
        for job in same:
            if job.status not in TERMINAL_STATUSES and job.limits == request.limits:
                return Join(job.job_id)
    return Run()


IDEMPOTENCY_WINDOW_MS: Final = 86_400_000
IDEMPOTENCY_KEYS_MAX: Final = 1_000_000
"""Keys that are remembered at once unless the settings say otherwise: more than eleven new ones a second, for a day."""
KEY_CHARS_MAX: Final = 255
BODY_LABEL: Final = b"detent/request_body/v1\0"
SCOPE_LABEL: Final = b"detent/idempotency_scope/v1\0"

ClientIdempotencyKey = NewType("ClientIdempotencyKey", str)

_KEY = pattern(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class IdempotencyScope:
    """Where a key counts. The same key from another workspace, user or endpoint is another key."""

    workspace_id: str
    user_id: str
    endpoint: str
    """Method and route, such as ``POST /v1/jobs``."""
    key: ClientIdempotencyKey

    def digest(self) -> bytes:
        """By which the answer to a request under this key is found."""
        return digest(SCOPE_LABEL, encode_trusted([self.workspace_id, self.user_id, self.endpoint, self.key]))


@dataclass(frozen=True, slots=True)
class IdempotencyLimits:
    """How long a key counts, and how many keys may count at once."""

    window_ms: int = IDEMPOTENCY_WINDOW_MS
    keys_max: int = IDEMPOTENCY_KEYS_MAX


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What the first request under a key was, and the bytes it was answered with."""

    body_digest: bytes
    response: bytes
    """Returned verbatim, also when the job has moved on since: live status is read by a query (X-027)."""
    stored_at_ms: int


@dataclass(frozen=True, slots=True)
class Fresh:
    """The key was not used within the window: do the work and store the answer."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same request came before: send these bytes and do nothing."""

    response: bytes


def parse_idempotency_key(text: object) -> ClientIdempotencyKey:
    """Check the header's value: an opaque text of visible ASCII characters, spaces only inside."""
    if not isinstance(text, str) or len(text) > KEY_CHARS_MAX or not _KEY.fullmatch(text):
        raise InvalidInput(
            f"Idempotency-Key must have 1 to {KEY_CHARS_MAX} printable ASCII characters, not {show(text)}",
            code="VALIDATION_ERROR",
            details={"path": "Idempotency-Key"},
        )
    return ClientIdempotencyKey(text)


def body_digest(body: bytes) -> bytes:
    """What "the same body" means: the same bytes."""
    return digest(BODY_LABEL, body)


def decide_idempotency(
    stored: StoredAnswer | None, *, body_digest: bytes, now_ms: int, window_ms: int = IDEMPOTENCY_WINDOW_MS
) -> Fresh | Repeated | Refused:
    """Decide what a request under a key gets, given what is stored for the key's scope.

    The window ends ``window_ms`` after the answer was stored; from that moment the key is unused. A clock that went back
    does not end it.
    """
    if fault := digest_fault("body_digest", body_digest):
        raise InvalidInput(fault)
    if stored is None or check_uint64("now_ms", now_ms) >= stored.stored_at_ms + window_ms:
        return Fresh()
    if stored.body_digest != body_digest:
        return Refused(
            "IDEMPOTENCY_KEY_REUSED",
            "the Idempotency-Key was used before with another body",
            {"valid_until_ms": stored.stored_at_ms + window_ms},
        )
    return Repeated(stored.response)


SUPERSEDE_DEFAULT: Final = False
SUPERSEDED: Final = "SUPERSEDED"
"""Reason code of the cancellations."""


@dataclass(frozen=True, slots=True)
class Revised:
    """A platform job, and how new the revision is that it is about."""

    workspace_id: str
    job_id: str
    job_type: str
    document_id: str
    object_ids: frozenset[str]
    revision_number: int
    """Position of the revision in its document's history: revision ids do not say which came first."""
    status: JobStatus = JobStatus.PENDING


def superseded_by(new: Revised, jobs: Iterable[Revised], *, enabled: bool = SUPERSEDE_DEFAULT) -> list[str]:
    """The ids of the jobs that a new one replaces, sorted; each is to be cancelled with the reason ``SUPERSEDED``.

    Replaced is what has not ended, does the same to the same objects of the same document, and is about an older
    revision. A second job for the same revision replaces nothing.
    """
    if not enabled:
        return []
    return sorted(
        job.job_id
        for job in jobs
        if _subject(job) == _subject(new)
        and job.revision_number < new.revision_number
        and job.status not in TERMINAL_STATUSES
    )


def _subject(job: Revised) -> tuple[str, str, str, frozenset[str]]:
    return job.workspace_id, job.document_id, job.job_type, job.object_ids
