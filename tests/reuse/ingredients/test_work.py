"""The ingredients of a job, its key, and when there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from detent.canon import NotStrictJson, digest_text, json_digest, json_encode
from detent.jobs import input_hash, work_key
from detent.jobs.order import Call
from detent.jobs.values import result_reference
from detent.reuse.ingredients import (
    CodeDigest,
    Unresolved,
    binding_digest,
    changed,
    describe,
    env_version,
    ingredients,
    key_of_work,
    never_reused,
    platform_name,
    python_version,
    version_digest,
)
from detent.reuse.ingredients import job as work_module

VALUES = {"sha256:first": b"\1" * 32, "sha256:second": b"\1" * 32, "sha256:third": b"\3" * 32}
CODE = CodeDigest(b"\7" * 32, {"lib:f": b"\10" * 32}, {"numpy": "2.1"}, (), {"lib:f": "function"})
INPUTS = {"load.sql": "sha256:aa", "absent": None}


@dataclass(frozen=True)
class Work:
    """A call with what was read for it."""

    call: Call
    code: CodeDigest | None = None
    inputs: Mapping[str, str | None] = field(default_factory=dict)
    salt: str | None = None

    def with_other(self, **different: Any) -> Work:
        own = {name: value for name, value in different.items() if name in {"code", "inputs", "salt"}}
        call = {name: value for name, value in different.items() if name not in own}
        return replace(self, call=replace(self.call, **call), **own)


PYTHON = Work(Call(kind="python", target="lib:f", keywords={"rows": [1, 2]}), CODE)
SHELL = Work(
    Call(
        kind="shell",
        target="make report",
        env={"TOTAL": 3},
        cwd="site",
        inputs=tuple(INPUTS),
        outputs={"page": "out/report.html"},
    ),
    inputs=INPUTS,
    salt="again",
)


def made(work: Work) -> dict[str, Any]:
    return ingredients(work.call, VALUES.__getitem__, code=work.code, inputs=work.inputs, salt=work.salt)


def key(work: Work) -> str:
    distributions = {} if work.code is None else work.code.distributions
    return key_of_work("action", binding_digest(work.call), made(work), env_version(distributions))


def value(plain: Any) -> str:
    return digest_text(json_digest(json_encode(plain)))


def test_everything_that_decides_stands_under_a_name_of_its_own() -> None:
    """JOB-021, X-175, X-176"""
    assert made(PYTHON) == {
        "argument:rows": value([1, 2]),
        "code": digest_text(b"\7" * 32),
        "function:lib:f": digest_text(b"\10" * 32),
        "package:numpy": "2.1",
        "platform": platform_name(),
        "python": python_version(),
    }
    assert made(SHELL) == {
        "command": value("make report"),
        "cwd": "site",
        "env:TOTAL": value(3),
        "input:absent": None,
        "input:load.sql": "sha256:aa",
        "output:page": "out/report.html",
        "platform": platform_name(),
        "python": python_version(),
        "salt": "again",
    }


CHANGES: list[tuple[Work, dict[str, Any], list[str]]] = [
    (PYTHON, {"code": replace(CODE, digest=b"\6" * 32, parts={"lib:f": b"\5" * 32})}, ["function lib:f changed"]),
    (PYTHON, {"code": replace(CODE, digest=b"\6" * 32)}, ["code changed"]),
    (PYTHON, {"code": replace(CODE, distributions={"numpy": "2.2"})}, ["package numpy 2.1 -> 2.2"]),
    (PYTHON, {"keywords": {"rows": [1, 3]}}, ["argument rows changed"]),
    (PYTHON, {"keywords": {}, "arguments": ([1, 2],)}, ["argument 1 is new", "argument rows is gone"]),
    (PYTHON, {"salt": "x"}, ["salt is new"]),
    (PYTHON, {"env": {"A": "1"}}, ["environment variable A is new"]),
    (SHELL, {"target": "make all"}, ["command changed"]),
    (SHELL, {"env": {"TOTAL": 4}}, ["environment variable TOTAL changed"]),
    (SHELL, {"cwd": "page"}, ["working directory site -> page"]),
    (SHELL, {"inputs": {**INPUTS, "load.sql": "sha256:bb"}}, ["input load.sql changed"]),
    (SHELL, {"inputs": {**INPUTS, "load.sql": None}}, ["input load.sql is missing"]),
    (SHELL, {"inputs": {**INPUTS, "absent": "sha256:bb"}}, ["input absent is there now"]),
    (SHELL, {"outputs": {"page": "out/new.html"}}, ["output page out/report.html -> out/new.html"]),
    (SHELL, {"salt": "once more"}, ["salt changed"]),
    (SHELL, {"version": "2"}, ["version is new"]),
]


@pytest.mark.parametrize(("work", "different", "said"), CHANGES, ids=[said[0] for _, _, said in CHANGES])
def test_each_ingredient_changes_the_key_and_is_named(work: Work, different: dict[str, Any], said: list[str]) -> None:
    """JOB-023, JOB-024, X-186"""
    other = work.with_other(**different)
    assert key(other) != key(work)
    assert [describe(change) for change in changed(made(work), made(other))] == said


def test_the_key_is_that_of_the_work_and_its_binding() -> None:
    """X-148, X-186"""
    assert key(PYTHON) == work_key(
        "action", binding_digest(PYTHON.call), input_hash(made(PYTHON)), env_version({"numpy": "2.1"})
    )
    assert key(PYTHON) == key(PYTHON.with_other())
    assert key_of_work("task", binding_digest(PYTHON.call), made(PYTHON), "e") != key_of_work(
        "action", binding_digest(PYTHON.call), made(PYTHON), "e"
    )
    assert binding_digest(PYTHON.call) != binding_digest(replace(PYTHON.call, target="lib:g"))


def test_a_result_counts_by_its_value_not_by_the_job_that_made_it() -> None:
    """JOB-023"""
    first, second, third = (PYTHON.with_other(keywords={"rows": result_reference(name)}) for name in VALUES)
    assert made(first)["argument:rows"] == digest_text(b"\1" * 32)
    assert key(first) == key(second)
    assert key(first) != key(third)
    nested = [PYTHON.with_other(keywords={"rows": {"a": [result_reference(name)]}}) for name in VALUES]
    assert key(nested[0]) == key(nested[1])
    assert key(nested[0]) != key(nested[2])
    literal = PYTHON.with_other(keywords={"rows": {"a": [{"$$value": digest_text(b"\1" * 32)}]}})
    assert key(nested[0]) != key(literal)


def test_a_step_that_gives_what_was_written_before_is_the_same_argument() -> None:
    literal = PYTHON.with_other(keywords={"rows": [1, 2]})
    call = replace(PYTHON.call, keywords={"rows": result_reference("sha256:x")})
    given = ingredients(call, lambda _: json_digest(json_encode([1, 2])), code=CODE)
    assert given == made(literal)


def test_a_file_counts_by_its_content_not_by_its_name() -> None:
    """JOB-023: change a file name only, the hash stays"""
    file = {"$file": "sha256:aa", "size": 3, "name": "a.txt", "type": "text/plain"}
    first = PYTHON.with_other(keywords={"rows": [file]})
    renamed = PYTHON.with_other(keywords={"rows": [{**file, "name": "b.txt"}]})
    changed_file = PYTHON.with_other(keywords={"rows": [{**file, "$file": "sha256:bb"}]})
    assert key(first) == key(renamed)
    assert key(first) != key(changed_file)


def test_floats_and_integers_are_different_values() -> None:
    """X-170"""
    assert made(PYTHON.with_other(keywords={"x": 1})) != made(PYTHON.with_other(keywords={"x": 1.0}))
    with pytest.raises(NotStrictJson, match="x is nan"):
        made(PYTHON.with_other(keywords={"x": float("nan")}))


def test_code_of_many_parts_is_named_by_modules() -> None:
    many = {f"m{index % 3}:f{index}": bytes([index]) * 32 for index in range(work_module.PARTS_MAX + 1)}
    found = made(PYTHON.with_other(code=CodeDigest(b"\7" * 32, many)))
    assert [name for name in found if name.startswith(("module:", "function:", "value:"))] == [
        "module:m0",
        "module:m1",
        "module:m2",
    ]
    other = made(PYTHON.with_other(code=CodeDigest(b"\6" * 32, {**many, "m1:f1": bytes(32)})))
    assert [describe(change) for change in changed(found, other)] == ["module m1 changed"]


def test_work_that_is_never_reused_says_why() -> None:
    """X-175, X-176"""
    doubt = CodeDigest(None, unresolved=(Unresolved("eval", "a.py:3", "runs code that is made at run time"),))
    python, shell = PYTHON.call, SHELL.call
    assert never_reused(python, CODE) is None
    assert never_reused(shell) is None
    assert never_reused(replace(shell, inputs=())) is None
    assert never_reused(replace(python, cache=False), CODE) == "its cache is turned off"
    assert never_reused(replace(shell, inputs=None)) == "a command that declares no inputs may depend on anything"
    assert never_reused(replace(shell, inputs=None, outputs={})) == (
        "a command that declares no inputs and outputs may depend on anything"
    )
    assert never_reused(python, doubt) == (
        "eval (a.py:3) runs code that is made at run time; give it a version= to reuse it anyway"
    )
    assert never_reused(python, version_digest("lib:f", "1")) is None
