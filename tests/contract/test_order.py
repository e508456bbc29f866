"""Order and tie-breaks, from the file to the plan: the validation tests of the contract that load from YAML (WF-042)."""

from __future__ import annotations

import tomllib
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.contract import Contract, load
from detent.workflow.ordering import get_execution_order

GRAPHS = {
    # Each step with what it needs; the order that waves and declaration demand.
    "two roots crossed": ("A; B; C:B; D:A", "A B C D"),
    "line written backwards": ("C:B; B:A; A", "A B C"),
    "diamond": ("A; B:A; C:A; D:B,C", "A B C D"),
    "diamond, sides exchanged": ("A; C:A; B:A; D:B,C", "A C B D"),
    "many roots": ("C; A; B; D:A,B,C", "C A B D"),
    "isolated last": ("A; B:A; Z", "A Z B"),
    "late root before its dependant": ("B:A; Z; A; C:B", "Z A B C"),
}


def written(graph: str, *, long: bool) -> bytes:
    """The graph as a file: one step on each line, in the order given."""
    steps = [step.strip().partition(":") for step in graph.split(";")]
    if long:
        head = (
            "workflow_coordination:\n  workflow_definition:\n    version: {major: 1, minor: 0, patch: 0}\n"
            "    workflow_metadata: {version: {major: 1, minor: 0, patch: 0}, workflow_name: g, description: '',\n"
            "      workflow_version: {major: 1, minor: 0, patch: 0}}\n"
            "    execution_graph: {version: {major: 1, minor: 0, patch: 0}}\n  steps:\n"
        )
        lines = [f"    - {{step_name: {key}, step_type: compute, depends_on: [{needs}]}}" for key, _, needs in steps]
    else:
        head = "name: g\nsteps:\n"
        lines = [f"  - {{id: {key}, needs: [{needs}], run: {{shell: x}}}}" for key, _, needs in steps]
    return (head + "\n".join(lines)).encode()


def order(contract: Contract) -> str:
    return " ".join(contract.keys[step_id] for step_id in get_execution_order(list(contract.steps)))


@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_file_is_planned_wave_by_wave_and_as_declared(name: str, *, long: bool) -> None:
    """WF-038, WF-042, WF-270, X-097"""
    graph, expected = GRAPHS[name]
    assert order(load(written(graph, long=long))) == expected


@pytest.mark.parametrize("rows", list(permutations(["A", "B:A", "C", "D:C,A"])), ids="-".join)
def test_every_permutation_of_a_file_keeps_its_own_order(rows: tuple[str, ...]) -> None:
    """WF-039, WF-041, WF-042: nothing is sorted; among equals the first written is the first planned"""
    loaded = load(written("; ".join(rows), long=True))
    assert [step.step_name for step in loaded.steps] == [row[0] for row in rows]
    first_wave = [row[0] for row in rows if ":" not in row]
    second_wave = [row[0] for row in rows if ":" in row]
    assert order(loaded) == " ".join(first_wave + second_wave)


@given(st.permutations(["a", "b", "c", "d", "e"]))
def test_dependencies_are_kept_as_written(needs: list[str]) -> None:
    """WF-039, WF-048: the order of depends_on is the file's, and means nothing to the plan"""
    graph = "; ".join(["a", "b", "c", "d", "e", f"last:{','.join(needs)}"])
    for long in (False, True):
        loaded = load(written(graph, long=long))
        assert [loaded.keys[step_id] for step_id in loaded.steps[-1].depends_on] == needs
        assert order(loaded) == "a b c d e last"


@given(st.permutations(["x", "b", "z", "a"]))
def test_the_order_inside_a_step_is_kept(names: list[str]) -> None:
    """WF-039: mappings keep the order of the file"""
    pairs = ", ".join(f"{name}: 1" for name in names)
    data = f"name: n\nparams: {{{pairs}}}\nsteps:\n  - {{id: s, run: {{python: m:f, with: {{{pairs}}}}}, env: {{{pairs}}}}}\n"
    loaded = load(data.encode())
    binding = loaded.bindings[loaded.steps[0].step_id]
    assert list(loaded.params) == list(binding.keywords) == list(binding.env) == names


def test_the_runtime_is_one_whose_mappings_keep_their_order() -> None:
    """WF-040: promised by the language from 3.7 on, and the package asks for more than that"""
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    least = tuple(int(part) for part in project["project"]["requires-python"].removeprefix(">=").split("."))
    assert least >= (3, 7)
