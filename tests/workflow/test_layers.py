"""What the room is made of: whom it imports, what it does not contain, and what its page says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "src" / "detent" / "workflow"
PAGE = ROOT / "docs" / "workflow-names.md"


def trees() -> dict[str, ast.Module]:
    return {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOM.rglob("*.py"))}


def imported() -> set[str]:
    found = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
    return found


def test_the_reading_reaches_the_modules() -> None:
    assert {"executor.py", "models.py", "facade.py"} <= set(trees())
    assert "detent.canon" in imported()


def test_the_core_imports_canon_errors_pydantic_and_the_standard_library() -> None:
    """WF-004, WF-070, WF-072, WF-108, WF-119, WF-121, X-012, X-134"""
    standard = "__future__ collections datetime enum hashlib itertools logging typing uuid dataclasses".split()
    allowed = {*standard, "detent", "pydantic"}
    assert {name.split(".")[0] for name in imported()} <= allowed
    rooms = {name.split(".")[1] for name in imported() if name.startswith("detent.")}
    assert rooms == {"workflow", "canon", "errors"}


def test_nothing_parses_or_evaluates_an_expression() -> None:
    """WF-082, WF-212"""
    banned = {"eval", "exec", "compile", "ast", "literal_eval", "EnumBranchCondition"}
    for name, tree in trees().items():
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not used & banned, name


@pytest.mark.parametrize("word", ["gather", "create_task", "Thread", "Lock", "sleep", "retry_delay_ms", "max_retries"])
def test_no_concurrency_and_no_retry_logic_is_written(word: str) -> None:
    """WF-070, WF-071, WF-100, WF-263, WF-264, X-099"""
    users = [
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id == word and isinstance(node.ctx, ast.Load))
        or (isinstance(node, ast.Attribute) and node.attr == word)
    ]
    assert users == []


def test_nothing_reads_a_reserved_field() -> None:
    """WF-017, WF-020, WF-029, WF-221"""
    reserved = {
        *("execution_graph", "compensation_enabled", "saga_pattern", "checkpoint_enabled"),
        *("synchronization_points", "max_retries", "retry_delay_ms", "failure_recovery_strategy"),
        *("compensation_action", "checkpoint_required", "idempotency_key", "load_balancing_enabled"),
    }
    for name, tree in trees().items():
        read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not read & reserved, name


def test_no_example_contract_is_in_the_core() -> None:
    """WF-109, WF-110"""
    assert {path.suffix for path in ROOM.rglob("*") if path.is_file() and "__pycache__" not in path.parts} == {".py"}


def test_the_only_lock_free_face_is_never_called_pure() -> None:
    """WF-114"""
    text = (ROOM / "facade.py").read_text(encoding="utf-8")
    assert "Not pure" in text
    for path in (ROOM / "facade.py", PAGE):
        for sentence in re.split(r"(?<=[.:;])\s", path.read_text(encoding="utf-8")):
            if re.search(r"\b(NodeOrchestrator|process\(\))", sentence) and re.search(r"\bpure\b", sentence):
                assert re.search(r"\b(not|never|around|over|face)\b", sentence), sentence


def test_the_page_maps_every_path_of_the_contract_to_one_that_exists() -> None:
    """WF-119, WF-120"""
    import importlib

    rows = re.findall(r"^\| `(omnibase_[\w.]+)` \| `(detent[\w.]*)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) >= 6
    for _, target in rows:
        importlib.import_module(target)
    assert {source.split(".")[0] for source, _ in rows} == {"omnibase_core", "omnibase_spi", "omnibase_infra"}


def test_the_page_says_what_the_contract_wants_documented() -> None:
    """WF-114, WF-118, WF-245, WF-263"""
    page = PAGE.read_text(encoding="utf-8")
    for words in ("Pattern A", "Pattern B", "Pattern C", "ModelIntent", "single thread", "order of emitted actions"):
        assert words in page
