"""Random projects: what a digest covers agrees with plain reachability, and layout is never part of it."""

from __future__ import annotations

import ast
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from detent.reuse.ingredients import CodeReader

SIZE = 8
MODULES = ("alpha", "beta", "pack.gamma")


class Drawn:
    """Functions f0 to f7 spread over modules, each calling some others: as a graph, and as source."""

    def __init__(self, homes: list[int], calls: list[set[int]], styles: list[int]) -> None:
        self.homes, self.calls, self.styles = homes, calls, styles
        self.values = [1] * len(homes)

    def reachable(self, start: int) -> set[int]:
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen.add(each)
                waiting.extend(self.calls[each])
        return seen

    def target(self, function: int) -> str:
        return f"{MODULES[self.homes[function]]}:f{function}"

    def sources(self) -> dict[str, str]:
        found = {}
        for place, module in enumerate(MODULES):
            mine = [each for each, home in enumerate(self.homes) if home == place]
            imports: set[str] = set()
            bodies = [self._body(each, place, imports) for each in mine]
            found[module] = "\n".join([*sorted(imports), *bodies])
        return found

    def _body(self, function: int, place: int, imports: set[str]) -> str:
        terms, inner = [], []
        for callee in sorted(self.calls[function]):
            home = MODULES[self.homes[callee]]
            if self.homes[callee] == place:
                terms.append(f"f{callee}()")
            elif self.styles[callee] == 0:
                imports.add(f"import {home}")
                terms.append(f"{home}.f{callee}()")
            elif self.styles[callee] == 1:
                imports.add(f"from {home} import f{callee} as g{callee}")
                terms.append(f"g{callee}()")
            else:
                inner.append(f"    from {home} import f{callee} as local{callee}")
                terms.append(f"local{callee}()")
        return "\n".join(
            [f"def f{function}():", *inner, f"    return {' + '.join([*terms, str(self.values[function])])}", ""]
        )

    def digests(self, rewrite: bool = False) -> list[bytes | None]:
        with TemporaryDirectory() as directory:
            base = Path(directory)
            (base / "pack").mkdir()
            (base / "pack" / "__init__.py").write_text("")
            for module, source in self.sources().items():
                text = ast.unparse(ast.parse(source)) if rewrite else source
                (base / f"{module.replace('.', '/')}.py").write_text(text)
            reader = CodeReader(base, path=())
            return [reader.digest(self.target(each)).digest for each in range(len(self.homes))]


@st.composite
def projects(draw: st.DrawFn) -> Drawn:
    count = st.integers(0, SIZE - 1)
    return Drawn(
        draw(st.lists(st.integers(0, len(MODULES) - 1), min_size=SIZE, max_size=SIZE)),
        draw(st.lists(st.sets(count, max_size=3), min_size=SIZE, max_size=SIZE)),
        draw(st.lists(st.integers(0, 2), min_size=SIZE, max_size=SIZE)),
    )


@given(projects(), st.integers(0, SIZE - 1))
def test_an_edit_changes_exactly_the_functions_that_reach_it(project: Drawn, edited: int) -> None:
    """X-176"""
    before = project.digests()
    assert None not in before
    project.values[edited] = 2
    after = project.digests()
    changed = {each for each in range(SIZE) if before[each] != after[each]}
    assert changed == {each for each in range(SIZE) if edited in project.reachable(each)}


@given(projects())
def test_writing_a_module_anew_keeps_every_digest(project: Drawn) -> None:
    """X-176: comments and layout do not count"""
    assert project.digests(rewrite=True) == project.digests()


REWRITTEN = [
    path
    for folder in ("kernel", "canon", "sdk", "contract")
    for path in sorted((Path(__file__).resolve().parents[3] / "src" / "detent" / folder).glob("*.py"))
]


@given(st.sampled_from(REWRITTEN))
def test_real_source_written_anew_says_the_same(path: Path) -> None:
    """X-176"""
    from detent.reuse.ingredients.scopes import canonical

    tree = ast.parse(path.read_text(encoding="utf-8"))
    again = ast.parse(ast.unparse(tree))
    assert canonical(again) == canonical(tree)
    # And nothing is lost: two statements that Python tells apart are told apart here.
    dumps = {ast.dump(node) for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.expr)}
    texts = {canonical(node) for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.expr)}
    loads = {dump.replace("ctx=Store()", "ctx=Load()").replace("ctx=Del()", "ctx=Load()") for dump in dumps}
    assert len(texts) == len(loads)
