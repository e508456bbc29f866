"""The three kinds of "no", and the one registry of their codes.

* A *refusal* is a normal answer: a ``Refused`` value that is returned, never raised.
* An *error* means that the world failed: an exception under ``DetentError`` that knows whether to try again.
* A *broken invariant* is our own bug: ``InvariantBroken``. It stands outside ``DetentError`` so that no handler of
  expected failures can swallow it, and outside ``AssertionError`` so that no test helper can.

Every code stands once in ``CODES``, with its exit code and HTTP status, and is never reused for another meaning.
Using a code that is not there is itself a broken invariant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Final

EXIT_FAILED: Final = 1
"""The work failed, or ``verify`` found something."""
EXIT_INVALID: Final = 2
"""Bad usage or invalid input."""
EXIT_REFUSED: Final = 3
"""Refused: quota, queue, budget."""
EXIT_UNAVAILABLE: Final = 4
"""The store or a service is unavailable."""
EXIT_INTERRUPTED: Final = 130
"""Ended by a signal of the user's."""


@dataclass(frozen=True, slots=True)
class Code:
    """What one code means and how each border shows it."""

    layer: str
    meaning: str
    exit_code: int
    http_status: int
    """Status of a request answered with this code; 200 where the code is only ever part of a job that is shown."""
    retryable: bool
    """True when the same request, or the same job, may succeed if it is tried again unchanged."""
    category: str | None
    """Error category of a platform job that ends with this code; None where it never ends a job."""


_INTERNAL: Final = "INTERNAL_ERROR"
_VALIDATION: Final = "VALIDATION_ERROR"
_RESOURCE: Final = "RESOURCE_LIMIT"
_VIOLATION: Final = "SANDBOX_VIOLATION"
_DEPENDENCY: Final = "DEPENDENCY_ERROR"

CODES: Final[Mapping[str, Code]] = MappingProxyType(
    {
        # Kernel: the request is refused and nothing is written.
        "CONTRACT_VIOLATION": Code("kernel", "the transition is not legal", EXIT_FAILED, 409, False, _INTERNAL),
        "CONFLICT": Code("kernel", "the job has moved on since the caller looked", EXIT_FAILED, 409, False, _INTERNAL),
        "NOT_PARTITION_OWNER": Code(
            "kernel", "another owner writes this partition", EXIT_FAILED, 409, False, _INTERNAL
        ),
        "UNKNOWN_JOB": Code("kernel", "the tenant has no such job", EXIT_INVALID, 404, False, _INTERNAL),
        "UNKNOWN_RUN": Code("kernel", "there is no such open run", EXIT_INVALID, 404, False, _INTERNAL),
        "ENROLMENT_REFUSED": Code(
            "access",
            "the worker may not be enrolled: its certificate, proof or token does not hold",
            EXIT_INVALID,
            403,
            False,
            _INTERNAL,
        ),
        "UNKNOWN_WORKER": Code("kernel", "no such worker is enrolled", EXIT_INVALID, 404, False, _INTERNAL),
        "RUN_NOT_DONE": Code("kernel", "the run has jobs that have not ended", EXIT_FAILED, 409, False, _INTERNAL),
        "LEASE_INVALID": Code("kernel", "the lease is not the active one", EXIT_FAILED, 409, False, _INTERNAL),
        "RETRIES_EXHAUSTED": Code("kernel", "no retry is left", EXIT_FAILED, 409, False, _INTERNAL),
        "NOT_RETRYABLE": Code("kernel", "the reason does not allow a retry", EXIT_FAILED, 409, False, _INTERNAL),
        "MANIFEST_SIGNATURE_INVALID": Code(
            "kernel", "no trusted key signed the manifest", EXIT_INVALID, 403, False, _VALIDATION
        ),
        "MANIFEST_SCHEMA_INVALID": Code(
            "kernel", "the manifest does not fit its schema", EXIT_INVALID, 400, False, _VALIDATION
        ),
        "MANIFEST_ORIGIN_MISSING": Code(
            "kernel", "the manifest does not name the ledger it is for", EXIT_INVALID, 400, False, _VALIDATION
        ),
        "MANIFEST_ORIGIN_WRONG": Code(
            "kernel", "the manifest was signed for another ledger", EXIT_INVALID, 403, False, _VALIDATION
        ),
        # Reports of workers: discarded, and kept by digest in the decision log.
        "REPORT_SIGNATURE_INVALID": Code("engine", "no trusted key signed the report", EXIT_INVALID, 403, False, None),
        "REPORT_INVALID": Code("engine", "the report does not fit its form", EXIT_INVALID, 400, False, None),
        "REPORT_MISMATCH": Code("engine", "the report is about another job or attempt", EXIT_FAILED, 409, False, None),
        # Kernel: how an attempt or a job ends.
        "LEASE_EXPIRED": Code("kernel", "no heartbeat came in time", EXIT_FAILED, 200, True, _INTERNAL),
        "QUOTA_GPU_TIME": Code("kernel", "the GPU time budget is spent", EXIT_REFUSED, 403, False, _RESOURCE),
        "QUOTA_CPU_TIME": Code("kernel", "the CPU time budget is spent", EXIT_REFUSED, 403, False, _RESOURCE),
        "QUOTA_IO_BYTES": Code("kernel", "the I/O budget is spent", EXIT_REFUSED, 403, False, _RESOURCE),
        "QUOTA_MEMORY_BYTES": Code("kernel", "the memory budget is exceeded", EXIT_REFUSED, 403, False, _RESOURCE),
        # Admission: no job is made.
        "INVALID_PARAMS": Code("sched", "an argument has a wrong type or range", EXIT_INVALID, 400, False, None),
        "POOL_UNREADY": Code("sched", "the pool is not ready yet", EXIT_REFUSED, 503, True, None),
        "QUEUE_FULL": Code("sched", "the queue has no room", EXIT_REFUSED, 429, True, None),
        "LIMIT_TENANT": Code(
            "sched", "the workspace has as many waiting jobs as it may", EXIT_REFUSED, 429, True, None
        ),
        "NO_FEASIBLE_POOL": Code("sched", "no pool could ever run this", EXIT_REFUSED, 422, False, None),
        "CTX_TOO_LONG": Code("sched", "the context is longer than the model's", EXIT_REFUSED, 422, False, None),
        "TOKEN_BUDGET_EXCEEDED": Code("sched", "the request asks for too many tokens", EXIT_REFUSED, 422, False, None),
        "SESSION_BUDGET_EXCEEDED": Code("sched", "the session's budget is spent", EXIT_REFUSED, 429, False, None),
        # Reasons of a cancellation.
        "DROPPED_LRU": Code("reason", "dropped to make room, oldest first", EXIT_REFUSED, 200, False, None),
        "SHED_LOW_PRIORITY": Code("reason", "shed in favour of a higher class", EXIT_REFUSED, 200, False, None),
        "CANCELLED_BY_USER": Code("reason", "cancelled on request", EXIT_FAILED, 200, False, None),
        "SUPERSEDED": Code("reason", "replaced by a newer job", EXIT_FAILED, 200, False, None),
        "RUN_TIMEOUT": Code("reason", "the run reached its time limit", EXIT_FAILED, 200, False, _RESOURCE),
        "WORKFLOW_CANCELLED": Code("reason", "the workflow was cancelled", EXIT_FAILED, 200, False, None),
        # Deadlines and limits of an execution.
        "WATCHDOG_WALL": Code("sched", "ran longer than its wall limit", EXIT_FAILED, 200, False, _RESOURCE),
        "WATCHDOG_IDLE": Code("sched", "made no progress for too long", EXIT_FAILED, 200, False, _RESOURCE),
        "LIMIT_WALL": Code("executor", "used up its wall time", EXIT_FAILED, 200, False, _RESOURCE),
        "LIMIT_CPU": Code("executor", "used up its CPU time", EXIT_FAILED, 200, False, _RESOURCE),
        "LIMIT_MEMORY": Code("executor", "asked for more memory than allowed", EXIT_FAILED, 200, False, _RESOURCE),
        "LIMIT_OUTPUT": Code("executor", "wrote more output than allowed", EXIT_FAILED, 200, False, _RESOURCE),
        "LIMIT_ARTIFACTS": Code("executor", "made more artifacts than allowed", EXIT_FAILED, 200, False, _RESOURCE),
        "LIMIT_DISK": Code("executor", "wrote more to files than allowed", EXIT_FAILED, 200, False, _RESOURCE),
        "LIMIT_PROCESSES": Code("executor", "started more processes than allowed", EXIT_FAILED, 200, False, _RESOURCE),
        # The sandbox.
        "SANDBOX_VIOLATION": Code("executor", "tried what the sandbox forbids", EXIT_FAILED, 200, False, _VIOLATION),
        "SANDBOX_UNAVAILABLE": Code(
            "executor", "the sandbox of this machine is too weak for untrusted code", EXIT_REFUSED, 503, False, None
        ),
        "SANDBOX_FAILED": Code(
            "executor", "the sandbox could not be built or was lost", EXIT_FAILED, 200, True, _INTERNAL
        ),
        "SANDBOX_LOST": Code(
            "executor", "the first process of its jail ended while the job ran", EXIT_FAILED, 200, False, _RESOURCE
        ),
        "DEPENDENCY_MISSING": Code("executor", "an input cannot be read", EXIT_FAILED, 200, False, _DEPENDENCY),
        "SHELL_NOT_FOUND": Code("executor", "the step's shell is not installed", EXIT_FAILED, 200, False, _DEPENDENCY),
        "DEPENDENCY_MISMATCH": Code(
            "executor", "an input does not match its digest", EXIT_FAILED, 200, False, _DEPENDENCY
        ),
        # Borders.
        "VALIDATION_ERROR": Code(
            "workflow", "the contract, payload or request is not valid", EXIT_INVALID, 400, False, _VALIDATION
        ),
        "CONTRACT_INVALID": Code("serve", "the contract has findings", EXIT_INVALID, 422, False, _VALIDATION),
        "TREE_INVALID": Code("jobs", "the source tree cannot be laid out", EXIT_INVALID, 422, False, _VALIDATION),
        "CONTRACT_TOO_COSTLY": Code(
            "serve", "looking at the contract takes too much time or memory", EXIT_INVALID, 422, False, _VALIDATION
        ),
        "POLICY_UNKNOWN": Code(
            "engine", "the settings define no such quota, lease or backoff", EXIT_INVALID, 422, False, _VALIDATION
        ),
        "URL_INVALID": Code("artifacts", "the signed URL is not valid", EXIT_REFUSED, 403, False, None),
        "IDEMPOTENCY_KEY_REUSED": Code(
            "jobs", "the idempotency key was used before with another body", EXIT_INVALID, 422, False, None
        ),
        "PLAN_EXCEEDED": Code(
            "jobs", "the payload asks for more than its workspace's plan allows", EXIT_REFUSED, 403, False, None
        ),
        "RESULT_NOT_READY": Code("jobs", "the job has not ended yet", EXIT_UNAVAILABLE, 409, True, None),
        "NO_STEPS": Code("jobs", "the run is a map, which has no steps", EXIT_INVALID, 409, False, None),
        "CONTENT_GONE": Code("jobs", "the content was erased or is not stored here", EXIT_FAILED, 404, False, None),
        "IDEMPOTENCY_KEY_DECIDED": Code(
            "jobs", "another request under the idempotency key was decided first", EXIT_REFUSED, 409, True, None
        ),
        "IDEMPOTENCY_KEYS_FULL": Code("jobs", "too many idempotency keys are stored", EXIT_REFUSED, 429, True, None),
        # Bytes and keys.
        "NOT_CANONICAL": Code("canon", "not deterministic CBOR of our profile", EXIT_INVALID, 400, False, _VALIDATION),
        "NOT_STRICT_JSON": Code("canon", "not a strict JSON value", EXIT_INVALID, 400, False, _VALIDATION),
        "KEY_INVALID": Code("canon", "not a usable Ed25519 public key", EXIT_INVALID, 400, False, None),
        "TRACE_INVALID": Code("inspect", "the trace is damaged or not a trace", EXIT_INVALID, 400, False, None),
        "NOT_COMPARABLE": Code("inspect", "the two histories have different origins", EXIT_INVALID, 409, False, None),
        "NOTE_INVALID": Code("ledger", "the signed note is not valid", EXIT_FAILED, 400, False, None),
        # Trust, home, store, owner.
        "TRUST_INVALID": Code("ledger", "the trust configuration is not valid", EXIT_INVALID, 500, False, None),
        "LEDGER_ROLLED_BACK": Code(
            "ledger", "the ledger is older than a tree head kept elsewhere", EXIT_UNAVAILABLE, 503, False, None
        ),
        "HOME_COPIED": Code("engine", "the home is a copy of another one", EXIT_REFUSED, 409, False, None),
        "EMBEDDED_REFUSED": Code(
            "engine", "a server has the home, for several workspaces", EXIT_REFUSED, 409, False, None
        ),
        "HOME_UNTRUSTED": Code(
            "engine", "the home, or a file of it, may be the work of another user", EXIT_REFUSED, 403, False, None
        ),
        "HOME_INVALID": Code("engine", "the home cannot be used", EXIT_INVALID, 500, False, None),
        "STORE_UNAVAILABLE": Code("store", "the store cannot be reached", EXIT_UNAVAILABLE, 503, True, None),
        "STORE_CORRUPT": Code("store", "the store's contents are damaged", EXIT_UNAVAILABLE, 500, False, None),
        "OUTCOME_UNKNOWN": Code(
            "engine", "the commit may or may not be durable; repeating is safe", EXIT_UNAVAILABLE, 503, True, None
        ),
        "EPOCH_LOST": Code("engine", "another owner has taken over", EXIT_UNAVAILABLE, 503, False, None),
        "WORK_FAILED": Code("sdk", "a task did not succeed", EXIT_FAILED, 409, False, None),
        "WORK_CANCELLED": Code("sdk", "a task was cancelled", EXIT_FAILED, 409, False, None),
        "DOWNSTREAM_WRITE_FAILED": Code(
            "ordered", "the destination stopped accepting items", EXIT_UNAVAILABLE, 503, False, None
        ),
        "COMMIT_TIMEOUT": Code(
            "ordered", "the destination did not answer within its time limit", EXIT_UNAVAILABLE, 503, False, None
        ),
        "DESTINATION_NOT_EMPTY": Code(
            "ordered", "the destination already holds something else", EXIT_INVALID, 409, False, None
        ),
        "RUN_FAILED": Code("engine", "a run did not succeed", EXIT_FAILED, 409, False, None),
        "INBOX_FULL": Code("engine", "the owner's inbox is full", EXIT_REFUSED, 429, True, None),
        "IO_ERROR": Code("cli", "a file could not be read or written", EXIT_UNAVAILABLE, 500, False, None),
        "COMMAND_INTERRUPTED": Code("cli", "the command was interrupted", EXIT_INTERRUPTED, 503, True, None),
        # The server: requests, and starting it.
        "REQUEST_INVALID": Code("serve", "the request is not valid HTTP/1.1", EXIT_INVALID, 400, False, None),
        "UNAUTHENTICATED": Code("access", "the request has no valid credential", EXIT_REFUSED, 401, False, None),
        "FORBIDDEN": Code("access", "the credential lacks the scope", EXIT_REFUSED, 403, False, None),
        "CSRF_REFUSED": Code("access", "the request may come from a foreign page", EXIT_REFUSED, 403, False, None),
        "ACCESS_FULL": Code(
            "access", "as many keys, members or workspaces exist as may be", EXIT_REFUSED, 409, False, None
        ),
        "WORKSPACE_MISMATCH": Code(
            "access", "the request names another workspace than its credential", EXIT_REFUSED, 403, False, None
        ),
        "NOT_FOUND": Code("serve", "there is nothing at this address", EXIT_INVALID, 404, False, None),
        "METHOD_NOT_ALLOWED": Code("serve", "the address does not take this method", EXIT_INVALID, 405, False, None),
        "NOT_ACCEPTABLE": Code("serve", "no accepted media type is available", EXIT_INVALID, 406, False, None),
        "REQUEST_TIMEOUT": Code("serve", "the request arrived too slowly", EXIT_UNAVAILABLE, 408, True, None),
        "BODY_TOO_LARGE": Code("serve", "the body is larger than the route takes", EXIT_INVALID, 413, False, None),
        "UNSUPPORTED_MEDIA_TYPE": Code("serve", "the body has another media type", EXIT_INVALID, 415, False, None),
        "HOST_REFUSED": Code("access", "the server does not answer for this host", EXIT_REFUSED, 421, False, None),
        "CLOCK_SKEW": Code("access", "the request was signed at another time", EXIT_REFUSED, 401, True, None),
        "WORKER_RETIRED": Code("access", "the worker was retired", EXIT_REFUSED, 403, False, None),
        "TURN_STALE": Code("serve", "the worker has taken a later turn already", EXIT_FAILED, 409, False, None),
        "PROTOCOL_UNSUPPORTED": Code(
            "serve", "the server does not speak this version of the protocol", EXIT_UNAVAILABLE, 426, False, None
        ),
        "CODE_MISMATCH": Code("workers", "the worker has other code than the job names", EXIT_FAILED, 409, True, None),
        "ENV_MISMATCH": Code(
            "workers", "the worker has other packages than the job names", EXIT_FAILED, 409, True, None
        ),
        "RESOURCES_SHORT": Code("workers", "the worker has less than the job takes", EXIT_FAILED, 409, True, None),
        "KIND_UNSUPPORTED": Code("workers", "the worker cannot run this kind of job", EXIT_FAILED, 409, True, None),
        "CONTENT_MISSING": Code("workers", "the report names content that was not sent", EXIT_FAILED, 409, True, None),
        "RATE_LIMITED": Code("access", "too many requests in a short time", EXIT_REFUSED, 429, True, None),
        "CONTENT_UNKNOWN": Code(
            "store", "the workspace has not uploaded this content", EXIT_INVALID, 422, False, _VALIDATION
        ),
        "DIGEST_MISMATCH": Code(
            "store", "the bytes do not have the digest they were announced with", EXIT_INVALID, 422, False, None
        ),
        "RANGE_UNSATISFIABLE": Code("serve", "the content does not have this range", EXIT_INVALID, 416, False, None),
        "UPLOAD_OFFSET": Code("store", "the upload goes on at another offset", EXIT_FAILED, 409, False, None),
        "UPLOADS_FULL": Code("access", "as many uploads are under way as may be", EXIT_REFUSED, 429, True, None),
        "UPLOAD_QUOTA": Code("access", "the workspace has uploaded as much as it may", EXIT_REFUSED, 429, True, None),
        "STREAMS_FULL": Code("serve", "as many streams are open as may be", EXIT_REFUSED, 429, True, None),
        "HEADERS_TOO_LARGE": Code(
            "serve", "the request has too many or too large headers", EXIT_INVALID, 431, False, None
        ),
        "CONNECTIONS_FULL": Code("serve", "the server has no room for a connection", EXIT_UNAVAILABLE, 503, True, None),
        "NOT_READY": Code("serve", "the server cannot work on its home now", EXIT_UNAVAILABLE, 503, True, None),
        "DRAINING": Code("serve", "the server is stopping", EXIT_UNAVAILABLE, 503, True, None),
        "ADDRESS_UNUSABLE": Code("serve", "the server cannot listen there", EXIT_UNAVAILABLE, 500, False, None),
        "ADDRESS_EXPOSED": Code("serve", "the address is reachable without TLS", EXIT_REFUSED, 500, False, None),
        "SERVER_RUNNING": Code("serve", "another server serves this home", EXIT_REFUSED, 409, False, None),
        "SERVER_UNREACHABLE": Code("remote", "no answer came from the server", EXIT_UNAVAILABLE, 503, True, None),
        "SERVER_UNTRUSTED": Code(
            "remote", "the server cannot prove that it is the one", EXIT_REFUSED, 500, False, None
        ),
        "ANSWER_INVALID": Code("remote", "the server's answer cannot be used", EXIT_UNAVAILABLE, 500, False, None),
        "URL_REFUSED": Code("access", "the server sends no requests to this address", EXIT_INVALID, 422, False, None),
        "WEBHOOK_FAILED": Code("serve", "a webhook did not take an event", EXIT_FAILED, 500, True, None),
        "EXTRA_MISSING": Code("serve", "an optional part is not installed", EXIT_REFUSED, 500, False, None),
        # Our own bug.
        "INVARIANT_VIOLATION": Code("kernel", "an internal invariant is broken", EXIT_FAILED, 500, False, _INTERNAL),
    }
)


class InvariantBroken(Exception):
    """Our own bug. Nothing below the wiring catches it; the process stops."""

    code: ClassVar[str] = "INVARIANT_VIOLATION"

    def __init__(self, message: str, *, details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.details: dict[str, object] = dict(details or {})


class DetentError(Exception):
    """The world failed. Says what was wrong, under which code, whether to try again, and what to do.

    ``layer`` comes from the registry, and so does ``retryable`` unless the place that raises knows better.
    """

    code: str = ""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        details: Mapping[str, object] | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        entry = registered(self.code)
        self.layer: str = entry.layer
        self.retryable: bool = entry.retryable if retryable is None else retryable
        self.hint: str | None = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")  # A plain traceback shows it, too.
        self.details: dict[str, object] = dict(details or {})


class InvalidInput(DetentError):
    """An argument or a document is not what it must be."""

    code = "INVALID_PARAMS"


class StoreUnavailable(DetentError):
    """The store cannot be reached or written right now."""

    code = "STORE_UNAVAILABLE"


class StoreCorrupt(DetentError):
    """What the store holds contradicts itself or cannot be read."""

    code = "STORE_CORRUPT"


class OutcomeUnknown(DetentError):
    """A commit failed in a way that leaves open whether it is durable. Repeating the same request is safe."""

    code = "OUTCOME_UNKNOWN"


class EpochLost(DetentError):
    """Another owner has a higher epoch; this one may write nothing any more."""

    code = "EPOCH_LOST"


class RequestRefused(DetentError):
    """A request that is in order was refused: by a limit, by the state of things, or by what this machine offers.

    Unlike `InvalidInput`, nothing about the request has to be mended; ``retryable`` says whether the same one may succeed later.
    """

    code = "CONFLICT"


class QueueFull(RequestRefused):
    """The queue had no room for a job; wait for results, then submit again."""

    code = "QUEUE_FULL"


NO_ROOM: Final = frozenset({"QUEUE_FULL", "LIMIT_TENANT"})
"""Refusals of a submission that may be made again when something has left the queue."""


class InboxFull(RequestRefused):
    """The owner has as many commands waiting as it will hold."""

    code = "INBOX_FULL"


class IdempotencyKeysFull(RequestRefused):
    """As many idempotency keys are remembered as may be at once; known ones are still answered."""

    code = "IDEMPOTENCY_KEYS_FULL"


class TrustError(DetentError):
    """A key, role, scope or trust configuration does not hold."""

    code = "TRUST_INVALID"


class HomeError(DetentError):
    """The home directory cannot be used as it is."""

    code = "HOME_INVALID"


class HomeCopied(DetentError):
    """The home is a copy of another one, and has no identity of its own to write under."""

    code = "HOME_COPIED"


class HomeUntrusted(DetentError):
    """The home belongs to another user and is not listed as safe, or a file of it is a link."""

    code = "HOME_UNTRUSTED"


class RolledBack(DetentError):
    """The ledger is older than a tree head kept outside it; nothing may be signed on top of it."""

    code = "LEDGER_ROLLED_BACK"


@dataclass(frozen=True, slots=True)
class Refused:
    """A normal "no": returned, never raised. ``details`` holds the numbers that make the answer useful."""

    code: str
    message: str
    details: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        registered(self.code)


def error_of(refusal: Refused, *, hint: str | None = None) -> DetentError:
    """A refusal as the error that a caller is given: of its own class where it has one, else by what its exit code says."""
    details = dict(refusal.details)
    hint = hint or _HINTS.get(refusal.code)
    own = _REFUSALS.get(refusal.code)
    if own is not None:
        return own(refusal.message, hint=hint, details=details)
    kind = InvalidInput if registered(refusal.code).exit_code == EXIT_INVALID else RequestRefused
    return kind(refusal.message, code=refusal.code, hint=hint, details=details)


_REFUSALS: Final = {kind.code: kind for kind in (QueueFull, InboxFull, IdempotencyKeysFull)}

_HINTS: Final = dict.fromkeys(
    ("NO_FEASIBLE_POOL", "POOL_UNREADY"),
    "`detent replicas` lists the registered replicas; while there is one, only registered replicas get jobs",
)


def registered(code: str) -> Code:
    """The registry's entry for a code; an unregistered code is a broken invariant."""
    entry = CODES.get(code)
    if entry is None:
        raise InvariantBroken(f"code {code!r} is not registered in detent.errors.CODES")
    return entry
