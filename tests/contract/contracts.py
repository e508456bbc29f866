"""Contracts for the tests: a short way to load one, and documents that hypothesis draws."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from detent.contract import Contract, ContractInvalid, Finding, load
from detent.contract.map_run import NOT_WITH_MAP

NAME = "pipeline.yaml"


def contract(text: str) -> Contract:
    """The contract in an indented text."""
    return load(dedent(text).encode(), name=NAME)


def findings(text: str | bytes) -> list[Finding]:
    """What is wrong with a contract; empty if nothing is."""
    try:
        load(text if isinstance(text, bytes) else dedent(text).encode(), name=NAME)
    except ContractInvalid as exc:
        found = list(exc.findings)
    else:
        return []
    assert found, "an error without a reason"
    assert all(finding.hint for finding in found), "a reason without a way out"
    return found


def only(text: str | bytes) -> Finding:
    """The one thing that is wrong with a contract."""
    found = findings(text)
    assert len(found) == 1, [str(finding) for finding in found]
    return found[0]


def marked(text: str) -> tuple[str, tuple[int, int]]:
    """A text without its mark (➤), and the line and column where the mark stood."""
    before, mark, after = text.partition("➤")
    assert mark, "the row has no mark"
    return before + after, (before.count("\n") + 1, len(before) - before.rfind("\n"))


def one_step(lines: str) -> str:
    """A contract whose only step has these lines."""
    indented = "\n".join(f"    {line}" for line in dedent(lines).strip().splitlines())
    return f"name: one\nsteps:\n  - id: only\n{indented}\n"


FEWER = settings(max_examples=max(15, settings().max_examples // 2))
"""For properties of whole contracts, which take long to draw."""

keys = st.sampled_from("a b c rows path lr _x n1 key_two".split())
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff"), max_size=12)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)


UNUSED = {"map": NOT_WITH_MAP, "code": {"outputs", "cwd"}, "job": {"outputs", "cwd", "env"}}
"""Keys of a step that mean nothing to what it runs, and are refused."""


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A valid contract in the short form, with references that only point backwards."""
    count = draw(st.integers(0, 4))
    params = draw(
        st.dictionaries(
            keys, st.integers() | st.booleans() | texts | st.lists(scalars, max_size=2) | _SETTINGS, max_size=2
        )
    )
    steps: list[dict[str, Any]] = []
    for index in range(count):
        earlier = [step["id"] for step in steps]
        step: dict[str, Any] = {"id": f"s{index}", "run": draw(_runs(earlier, params))}
        if draw(st.booleans()) and earlier:
            step["needs"] = draw(st.lists(st.sampled_from(earlier), max_size=3, unique=True))
        options = draw(_OPTIONS)
        unused = {key for kind in step["run"] for key in UNUSED.get(kind, ())}
        step |= {key: value for key, value in options.items() if key not in unused}
        steps.append(step)
    made: dict[str, Any] = {"name": draw(texts.filter(str.strip)), "steps": steps}
    made |= draw(_HEADS)
    return made | ({"params": params} if params else {})


_SETTINGS = st.sampled_from([3, 200, "jsonl:o", "a/*", "continue", ["b.txt", "c/**"], [1, 2]])
"""Defaults of parameters that may be settings of a map."""
_HEADS = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["sequential", "parallel", "batch"]),
        "description": texts,
        "version": st.sampled_from(["2.1.0", "0.0.1"]),
        "timeout": st.sampled_from(["10m", 60, "1h30m"]),
        "schedule": st.sampled_from(
            [{"every": "15m"}, {"every": 90, "offset": 0}, {"cron": "0 6 * * 1-5", "timezone": "Asia/Tokyo"}]
        ),
    },
)
_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "name": texts.filter(str.strip),
        "type": st.sampled_from(["compute", "effect", "reducer", "custom"]),
        "inputs": st.sampled_from(["a.csv", ["a", "b/*.txt"]]),
        "outputs": st.sampled_from([["x"], {"out": "y"}]),
        "env": st.dictionaries(st.sampled_from(["A", "B_1"]), st.integers() | st.booleans() | texts, max_size=2),
        "cwd": st.just("work"),
        "timeout": st.sampled_from(["500ms", 90, 0.25, "1d"]),
        "retry": st.integers(0, 10) | st.just({"max": 2, "on": ["INTERNAL_ERROR"]}),
        "cache": st.booleans(),
        "enabled": st.booleans(),
        "priority": st.integers(1, 10) | st.sampled_from(["low", "normal", "high"]),
        "on_error": st.sampled_from(["stop", "continue"]),
        "skip_on_failure": st.booleans(),
    },
)


def _runs(earlier: list[str], params: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    references = [st.sampled_from([{"$from": key} for key in earlier])] if earlier else []
    references += [st.sampled_from([{"$param": name} for name in sorted(params)])] if params else []
    arguments = st.dictionaries(keys, st.one_of(values, *references), max_size=3)
    return st.one_of(
        st.fixed_dictionaries(
            {"python": st.just("pkg.mod:run")}, optional={"with": arguments, "args": st.lists(values, max_size=2)}
        ),
        st.fixed_dictionaries(
            {"code": st.just("def main(**given):\n    return given\n")}, optional={"with": arguments}
        ),
        st.fixed_dictionaries({"shell": st.just("make all")}, optional={"version": st.just("3")}),
        st.fixed_dictionaries({"map": _maps(earlier, params)}, optional={"version": st.just("3")}),
        st.fixed_dictionaries({"job": st.fixed_dictionaries({"job_type": st.just("render"), "inputs": values})}),
    )


def _maps(earlier: list[str], params: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    def or_param(written: st.SearchStrategy[Any], fits: Callable[[Any], bool]) -> st.SearchStrategy[Any]:
        named = [{"$param": name} for name, default in sorted(params.items()) if fits(default)]
        return written | st.sampled_from(named) if named else written

    def number(least: int, most: int) -> st.SearchStrategy[Any]:
        return or_param(st.integers(least, most), lambda value: type(value) is int and least <= value <= most)

    def word(*words: str) -> st.SearchStrategy[Any]:
        return or_param(st.sampled_from(words), words.__contains__)

    def is_text(value: Any) -> bool:
        return type(value) is str and bool(value.strip())

    results = st.sampled_from([{"$from": key} for key in earlier]) if earlier else st.nothing()
    items = st.lists(values, max_size=3) | st.just("rows.jsonl") | results
    globs = st.just("a/*.txt") | st.lists(or_param(st.just("b.txt"), is_text), min_size=1, max_size=2)
    sources = st.one_of(
        st.fixed_dictionaries({"files": or_param(globs, is_text)}),
        st.fixed_dictionaries({"items": or_param(items, lambda value: type(value) is list or is_text(value))}),
    )
    said = st.fixed_dictionaries(
        {
            "compute": st.just("pkg.mod:run"),
            "commit": word("append:o", "jsonl:o", "jsonl+seq:o", "sqlite:o#t") | st.just("pkg.mod:keep"),
        },
        optional={
            "filter": st.just("f.py:keep"),
            "window": number(1, 1_000_000),
            "chunk": number(1, 256),
            "on_error": word("stop", "continue"),
            "retries": number(0, 10),
            "item_timeout": st.sampled_from(["500ms", 90, 0.25, "1d"]),
            "commit_timeout": st.sampled_from(["500ms", 90, 0.25, "1d"]),
        },
    )
    return st.tuples(sources, said).map(lambda both: both[0] | both[1])
