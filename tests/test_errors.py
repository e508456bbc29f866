from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import detent.errors
from detent.errors import (
    CODES,
    EXIT_INVALID,
    DetentError,
    EpochLost,
    HomeError,
    InboxFull,
    InvalidInput,
    InvariantBroken,
    OutcomeUnknown,
    QueueFull,
    Refused,
    RequestRefused,
    RolledBack,
    StoreCorrupt,
    StoreUnavailable,
    TrustError,
    error_of,
)
from detent.jobs import ErrorCategory

SOURCE = Path(detent.errors.__file__).parent

# Table A.8, row by row, with LIMIT_* spelled out as in A.6.
A_8 = [
    *(
        "CONTRACT_VIOLATION",
        "CONFLICT",
        "NOT_PARTITION_OWNER",
        "UNKNOWN_JOB",
        "LEASE_INVALID",
        "RETRIES_EXHAUSTED",
        "NOT_RETRYABLE",
    ),
    *("MANIFEST_SIGNATURE_INVALID", "MANIFEST_SCHEMA_INVALID", "LEASE_EXPIRED"),
    *("QUOTA_GPU_TIME", "QUOTA_CPU_TIME", "QUOTA_IO_BYTES", "QUOTA_MEMORY_BYTES"),
    *(
        "INVALID_PARAMS",
        "POOL_UNREADY",
        "QUEUE_FULL",
        "NO_FEASIBLE_POOL",
        "CTX_TOO_LONG",
        "TOKEN_BUDGET_EXCEEDED",
        "SESSION_BUDGET_EXCEEDED",
    ),
    *("DROPPED_LRU", "SHED_LOW_PRIORITY", "CANCELLED_BY_USER", "SUPERSEDED", "WORKFLOW_CANCELLED"),
    *("WATCHDOG_WALL", "WATCHDOG_IDLE", "LIMIT_WALL", "LIMIT_CPU", "LIMIT_MEMORY", "LIMIT_OUTPUT", "LIMIT_ARTIFACTS"),
    *("VALIDATION_ERROR", "INVARIANT_VIOLATION", "IDEMPOTENCY_KEY_REUSED"),
]


@pytest.mark.parametrize(
    ("kind", "code", "retryable"),
    [
        (InvalidInput, "INVALID_PARAMS", False),
        (StoreUnavailable, "STORE_UNAVAILABLE", True),
        (StoreCorrupt, "STORE_CORRUPT", False),
        (OutcomeUnknown, "OUTCOME_UNKNOWN", True),
        (EpochLost, "EPOCH_LOST", False),
        (InboxFull, "INBOX_FULL", True),
        (QueueFull, "QUEUE_FULL", True),
        (RequestRefused, "CONFLICT", False),
        (TrustError, "TRUST_INVALID", False),
        (HomeError, "HOME_INVALID", False),
        (RolledBack, "LEDGER_ROLLED_BACK", False),
    ],
)
def test_each_error_knows_its_code_and_whether_to_try_again(
    kind: type[DetentError], code: str, retryable: bool
) -> None:
    """X-021, X-173"""
    error = kind("what was wrong")
    assert isinstance(error, DetentError)
    assert (error.code, error.retryable, error.layer) == (code, retryable, CODES[code].layer)
    assert (str(error), error.hint, error.details) == ("what was wrong", None, {})


def test_the_place_that_raises_may_say_more_than_the_registry() -> None:
    """X-021"""
    error = StoreUnavailable("disk full", hint="free some space", details={"path": "ledger.db"}, retryable=False)
    assert (error.hint, error.details, error.retryable) == ("free some space", {"path": "ledger.db"}, False)
    assert DetentError("full", code="QUEUE_FULL").retryable is True
    assert InvalidInput("bad", code="VALIDATION_ERROR").layer == "workflow"


def test_an_unregistered_code_is_a_broken_invariant() -> None:
    """X-021"""
    with pytest.raises(InvariantBroken, match="NO_SUCH_CODE"):
        DetentError("x", code="NO_SUCH_CODE")
    with pytest.raises(InvariantBroken):
        DetentError("the base class has no code of its own")
    with pytest.raises(InvariantBroken, match="NO_SUCH_CODE"):
        Refused("NO_SUCH_CODE", "x")


def test_a_broken_invariant_is_caught_neither_as_an_error_nor_as_an_assertion() -> None:
    assert not issubclass(InvariantBroken, DetentError | AssertionError)
    broken = InvariantBroken("seq went back", details={"seq": 3})
    assert (broken.code, broken.details) == ("INVARIANT_VIOLATION", {"seq": 3})
    assert broken.code in CODES


def test_a_refusal_is_a_value_that_cannot_be_raised_or_changed() -> None:
    refused = Refused("QUEUE_FULL", "no room", {"capacity": 256})
    assert refused == Refused("QUEUE_FULL", "no room", {"capacity": 256})
    assert refused != Refused("QUEUE_FULL", "no room", {"capacity": 255})
    assert hash(refused) == hash(Refused("QUEUE_FULL", "no room"))
    assert not isinstance(refused, BaseException)
    with pytest.raises(dataclasses.FrozenInstanceError):
        refused.code = "CONFLICT"  # type: ignore[misc]


def test_the_registry_holds_every_code_of_the_contracts() -> None:
    """X-021: table A.8"""
    assert [code for code in A_8 if code not in CODES] == []


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_maps_to_a_known_exit_code_status_and_category(code: str) -> None:
    entry = CODES[code]
    assert re.fullmatch("[A-Z]+(_[A-Z]+)*", code)
    assert entry.exit_code in {1, 2, 3, 4, 130}
    assert entry.http_status in {
        200,
        400,
        401,
        403,
        404,
        405,
        406,
        408,
        409,
        413,
        415,
        416,
        421,
        422,
        426,
        429,
        431,
        500,
        503,
    }
    assert entry.category is None or entry.category in set(ErrorCategory)
    assert entry.layer
    assert entry.meaning


def test_the_registry_cannot_be_changed_at_run_time() -> None:
    with pytest.raises(TypeError):
        CODES["NEW"] = CODES["CONFLICT"]  # type: ignore[index]


def test_every_code_in_the_source_is_registered() -> None:
    """X-021"""
    used = {
        f"{path.relative_to(SOURCE)}:{line}": code
        for path in sorted(SOURCE.rglob("*.py"))
        for line, code in codes_in(path.read_text())
    }
    assert len(used) > 10, "the scan finds nothing, so it proves nothing"
    assert {place: code for place, code in used.items() if code not in CODES} == {}


def test_the_scan_sees_every_way_to_write_a_code() -> None:
    """X-021"""
    source = """
raise StoreUnavailable("x", code="KEYWORD")
return Refused("FIRST", "x")
return errors.Refused("ATTRIBUTE", "x")
class NoteInvalid(TrustError):
    code = "CLASS"
class Other(TrustError):
    code: str = "ANNOTATED"
code = "not a class attribute"
raise Other("the message")
"""
    assert [code for _, code in codes_in(source)] == ["KEYWORD", "FIRST", "ATTRIBUTE", "CLASS", "ANNOTATED"]


def codes_in(source: str) -> Iterator[tuple[int, str]]:
    """Every literal error code in a module, with its line."""
    if not re.search(r"\bcode\b|\bRefused\b", source):
        return
    found: list[tuple[int, ast.expr | None]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            found += [(keyword.value.lineno, keyword.value) for keyword in node.keywords if keyword.arg == "code"]
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == "Refused" and node.args:
                found.append((node.lineno, node.args[0]))
        elif isinstance(node, ast.ClassDef):
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
                if any(isinstance(target, ast.Name) and target.id == "code" for target in targets):
                    assert isinstance(statement, ast.Assign | ast.AnnAssign)
                    found.append((statement.lineno, statement.value))
    for line, value in sorted(found, key=lambda pair: pair[0]):
        # The empty text is DetentError's own: a base class without a code.
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
            yield line, value.value


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_refusal_is_raised_as_bad_input_only_where_the_input_is_bad(code: str) -> None:
    """X-187: who is told that the queue is full has nothing to mend in the request."""
    error = error_of(Refused(code, "no", {"left": 0}), hint="wait")
    assert isinstance(error, InvalidInput) is (CODES[code].exit_code == EXIT_INVALID)
    assert isinstance(error, RequestRefused) is not isinstance(error, InvalidInput)
    assert isinstance(error, QueueFull) is (code == "QUEUE_FULL")
    assert (error.code, error.retryable, error.details) == (code, CODES[code].retryable, {"left": 0})
    assert (str(error), error.hint) == ("no", "wait")
