"""object_render: formulas as pictures, and what is wrong with those that cannot be drawn."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from detent.jobs import JobStatus
from tests.executor.runners.rig import Backend, error_of, render
from tests.jobs.envelopes import changed

pytest.importorskip("ziamath")
pytest.importorskip("resvg_py")
from latex2mathml import converter  # may be missing

from detent.executor.runners.inside import formula  # needs the tools
from detent.executor.runners.inside.answers import Fault

FORMULAS = [
    r"\frac{a}{b} + \int_0^1 x^2 \, \mathrm{d}x",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} \neq \binom{n}{\frac{k}{2}}",
    r"\text{50\% of } \sqrt[3]{x_i^2} \le \hat{\theta} \quad \forall i \in \mathbb{N}",
    r"f(x) = \begin{cases} 1 & x > 0 \\ 0 & \text{else} \end{cases}",
    r"\color{red} a < b \left( \sum_{i=1}^{n} i \right] \operatorname{rank} A",
]
REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_formula_becomes_an_svg_and_a_png(here: Backend) -> None:
    """JOB-008, JOB-045, JOB-050"""
    result = here.run(render(FORMULAS[0]))
    assert result.status is JobStatus.SUCCEEDED
    assert [(one.kind, one.format, one.content_type, one.metadata["name"]) for one in result.artifacts] == [
        ("rendering", "png", "image/png", "formula.png"),
        ("rendering", "svg", "image/svg+xml", "formula.svg"),
    ]
    found = here.bytes_of(result)
    svg = found["formula.svg"].decode()
    assert svg.startswith("<svg ")
    assert "<text" not in svg
    width, height = (int(found["formula.png"][place : place + 4].hex(), 16) for place in (16, 20))
    sizes = [one.metadata for one in result.artifacts]
    assert (sizes[0]["width"], sizes[0]["height"]) == (width, height)
    assert (width, height) == pytest.approx((2 * sizes[1]["width"], 2 * sizes[1]["height"]), abs=1)
    assert result.outputs.result_json is None


def test_only_the_formats_asked_for_are_made(here: Backend) -> None:
    """JOB-045"""
    assert [one.format for one in here.run(render("x", "svg")).artifacts] == ["svg"]
    assert [one.format for one in here.run(render("x", "png")).artifacts] == ["png"]


@pytest.mark.parametrize("latex", FORMULAS)
def test_equal_formulas_give_equal_bytes(here: Backend, latex: str) -> None:
    """JOB-008"""
    first, second = (here.run(render(latex)) for _ in range(2))
    assert first.status is JobStatus.SUCCEEDED, first.error
    assert [one.digest for one in first.artifacts] == [one.digest for one in second.artifacts]


OTHER_PROCESS = """
import json, sys, tempfile
from pathlib import Path
from detent.executor.sandbox import Sandbox
from tests.executor.runners.rig import backend, render
with Sandbox() as supervisor, tempfile.TemporaryDirectory() as directory:
    result = backend(supervisor, Path(directory)).run(render(sys.argv[1]))
    print(json.dumps([one.digest for one in result.artifacts]))
"""


def test_another_process_gives_the_same_bytes(here: Backend) -> None:
    """JOB-008"""
    answer = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, FORMULAS[1]],
        env={"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}", "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
        capture_output=True,
        check=True,
    )
    assert json.loads(answer.stdout) == [one.digest for one in here.run(render(FORMULAS[1])).artifacts]


@pytest.mark.parametrize(
    ("latex", "message", "place"),
    [
        (r"a + \foo{b}", r"the macro \foo is not known", (1, 5)),
        ("a\n  + \\nonsense", r"the macro \nonsense is not known", (2, 5)),
        (r"\mathfoo{A}", r"the macro \mathfoo is not known", (1, 1)),
        (r"\left\foo x \right)", r"the macro \foo is not known", (1, 6)),
        (r"\1", r"the macro \1 is not known", (1, 1)),
        (r"x \hfil y", r"the macro \hfil cannot be used like this", (1, 3)),
        (r"\begin{tikzpicture} x \end{tikzpicture}", "the environment tikzpicture is not known", (1, 1)),
        (r"\operatorname{a_b}", r"\operatorname takes a name of letters in braces", (1, 1)),
        (r"\newcommand{\x}{y} \x", r"\newcommand is not available", (1, 1)),
        (r"\def\x{y}\x", r"\def is not available", (1, 1)),
        (r"\href{https://example.org}{x}", r"\href is not available", (1, 1)),
        (r"\text{see \foo}", r"\text takes plain text", (1, 1)),
        (r"\hbox{a $\foo$}", r"\hbox takes plain text", (1, 1)),
        (r"\input{/etc/passwd}", r"the macro \input is not known", (1, 1)),
        ("a & b", "& stands outside a table", (1, 3)),
        (r"\color{url(//x)} y", "a colour is a name", (1, 8)),
        ("x + 日", "no picture of the character 日 (U+65E5)", (1, 5)),
        ("{x", "opened that is not closed", (1, 3)),
        ("x}", "closed that was not opened", (1, 2)),
        ("x^y^z", "the formula is not complete: double superscripts", (None, None)),
        ("", "the formula is not complete", (None, None)),
    ],
)
def test_what_cannot_be_drawn_as_written_is_an_error_at_its_place(
    latex: str, message: str, place: tuple[int | None, int | None]
) -> None:
    """JOB-008, JOB-059: an unknown macro is an error, not text in the picture."""
    fault = formula.main(latex, ["svg"], 10**6)["fault"]
    assert fault["kind"] == "invalid"
    assert message in fault["message"]
    assert (fault.get("line"), fault.get("column")) == place


def test_an_error_of_the_tool_reaches_the_result_with_its_place(here: Backend) -> None:
    """JOB-059, JOB-060"""
    result = here.run(render("a\n + \\nonsense"))
    assert error_of(result) == ("FAILED", "USER_CODE_ERROR", "INPUT_INVALID")
    assert result.error is not None
    assert result.error.message == r"the macro \nonsense is not known"
    assert (result.error.details.line, result.error.details.column) == (2, 4)
    assert result.error.details.traceback is None
    assert result.artifacts == ()


def test_text_stays_text_whatever_is_in_it() -> None:
    """Angle brackets in text would be markup if the formula went through XML as text."""
    svg, _, _ = formula.draw(r"\text{</mtext><mi href=\&'x'>a<b}")
    assert len(re.findall("<use ", svg)) == len("</mtext><mi href=&'x'>a<b")


@pytest.mark.parametrize("step", [25, pytest.param(1, marks=pytest.mark.slow)])
def test_a_macro_that_latex2mathml_would_spell_out_is_never_drawn(step: int) -> None:
    """JOB-008: its own answer for every name in its tables, alone and with arguments, is the judge."""
    names = sorted({*formula.known_macros(), r"\hfil", r"\nonumber", r"\of", r"\foo"})
    drawn = spelled_out = 0
    for text in [f"{name}{rest}" for name in [*names[::step], r"\hfil", r"\foo"] for rest in ("", "{x}{y}")]:
        try:
            spelled = "\\" in converter.convert(text)
        except Exception:  # noqa: BLE001  # not complete, or not for it
            spelled = False
        try:
            formula.draw(text)
            drawn += 1
            assert not spelled, text
        except Fault as fault:
            assert fault.kind == "invalid"  # noqa: PT017
        spelled_out += spelled
    assert drawn * step > 1500
    assert spelled_out >= 4


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("inputs.object.type", "diagram"),
        ("inputs.object.content.format", "mathml"),
        ("inputs.object.content.value", ["x"]),
    ],
)
def test_what_cannot_be_rendered_here_is_refused_by_its_path(here: Backend, path: str, value: object) -> None:
    """JOB-060"""
    result = here.run(changed(render("x"), path, value))
    assert error_of(result) == ("FAILED", "VALIDATION_ERROR", "VALIDATION_ERROR")
    assert result.error is not None
    assert f"payload.{path}: " in result.error.message
