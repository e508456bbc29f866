"""Job contracts: what a platform sends an executor, what it gets back, and what it shows of the job meanwhile.

Pure: payloads and results as models, keys of equal work, the status as a projection of the kernel, and the decisions
about reuse. Start reading at `status`, then `payload` and `result`. Work of the user's own has no payload of the contract: `order`
has what is asked of a worker, `work` what came of it. The models need Pydantic, which is loaded when the
first of them is asked for; a status or a key costs nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.jobs.dedupe import (
    IDEMPOTENCY_WINDOW_MS,
    ClientIdempotencyKey,
    DedupeRequest,
    ExecutionKey,
    Fresh,
    IdempotencyScope,
    Join,
    PriorJob,
    Repeated,
    Reuse,
    Revised,
    Run,
    StoredAnswer,
    body_digest,
    decide_idempotency,
    dedupe,
    execution_key,
    input_hash,
    parse_idempotency_key,
    superseded_by,
    work_key,
)
from detent.jobs.status import (
    STATUS_MOVES,
    TERMINAL_STATUSES,
    TIMEOUT_CODES,
    ErrorCategory,
    JobStatus,
    StatusView,
    Timeline,
    category_of,
    project_job,
    project_status,
    timeline,
)

if TYPE_CHECKING:
    from detent.jobs.bounds import Bounds, bound_error, bound_logs, bound_result, bound_text, limit_code
    from detent.jobs.complete import (
        complete_payload,
        ingredients,
        key_of,
        read_complete_payload,
    )
    from detent.jobs.fields import EnvelopeInvalid
    from detent.jobs.payload import (
        DocumentExport,
        Environment,
        JobPayload,
        JobType,
        Limits,
        ObjectExecute,
        ObjectRender,
        ThumbnailGenerate,
        read_payload,
    )
    from detent.jobs.plans import Plan, check_plan
    from detent.jobs.result import (
        Artifact,
        JobError,
        JobResult,
        LogEntry,
        Outputs,
        ResourceUsage,
        answer_fault,
        encode_result,
        payload_schema,
        public_result,
        read_result,
        result_schema,
        usage_of,
    )

__all__ = [
    "IDEMPOTENCY_WINDOW_MS",
    "STATUS_MOVES",
    "TERMINAL_STATUSES",
    "TIMEOUT_CODES",
    "Artifact",
    "Bounds",
    "ClientIdempotencyKey",
    "DedupeRequest",
    "DocumentExport",
    "EnvelopeInvalid",
    "Environment",
    "ErrorCategory",
    "ExecutionKey",
    "Fresh",
    "IdempotencyScope",
    "JobError",
    "JobPayload",
    "JobResult",
    "JobStatus",
    "JobType",
    "Join",
    "Limits",
    "LogEntry",
    "ObjectExecute",
    "ObjectRender",
    "Outputs",
    "Plan",
    "PriorJob",
    "Repeated",
    "ResourceUsage",
    "Reuse",
    "Revised",
    "Run",
    "StatusView",
    "StoredAnswer",
    "ThumbnailGenerate",
    "Timeline",
    "answer_fault",
    "body_digest",
    "bound_error",
    "bound_logs",
    "bound_result",
    "bound_text",
    "category_of",
    "check_plan",
    "complete_payload",
    "decide_idempotency",
    "dedupe",
    "encode_result",
    "execution_key",
    "ingredients",
    "input_hash",
    "key_of",
    "limit_code",
    "parse_idempotency_key",
    "payload_schema",
    "project_job",
    "project_status",
    "public_result",
    "read_complete_payload",
    "read_payload",
    "read_result",
    "result_schema",
    "superseded_by",
    "timeline",
    "usage_of",
    "work_key",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from detent.jobs import bounds, complete, fields, payload, plans, result  # noqa: PLC0415

        for module in (bounds, complete, fields, payload, plans, result):
            if name in vars(module):
                globals()[name] = vars(module)[name]
                return globals()[name]
    raise AttributeError(f"module 'detent.jobs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
