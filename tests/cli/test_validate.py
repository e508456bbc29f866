"""`detent validate`: every finding with its place and what to do, whatever the file is."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detent.cli.app import run
from tests.cli.contracts import SMALL, Desk, desk
from tests.cli.test_page import on_terminal

__all__ = ["desk"]

PLACE = re.compile(r"^pipeline\.yaml:\d+:\d+: ")


def findings(desk: Desk, content: str | bytes) -> list[str]:
    """What is said about a file that is not valid, each finding with its hint; the verdict stands at the end."""
    said = desk("validate", desk.write(content))
    assert (said.code, said.err) == (2, "")
    *lines, verdict = said.out.splitlines()
    assert verdict.startswith("NOT VALID  ")
    return lines


# -- what is valid -------------------------------------------------------------------------------------------------------


def test_a_valid_file_is_said_to_be_one(desk: Desk) -> None:
    said = desk("validate", desk.write(SMALL))
    assert (said.code, said.out, said.err) == (0, "valid  pipeline.yaml: small, 5 steps\n", "")


def test_json_is_a_contract_too(desk: Desk) -> None:
    said = desk("validate", desk.write('{"name": "a", "steps": [{"id": "b", "run": {"shell": "ls"}}]}', "a.json"))
    assert said.out == "valid  a.json: a, 1 step\n"


def test_standard_input_is_read_with_a_dash(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for content, code, out in ((SMALL, 0, "valid  -: small, 5 steps\n"), ("nmae: x", 2, "<stdin>:1:1: ")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        said = desk("validate", "-")
        assert said.code == code
        assert said.out.startswith(out)
    assert "standard input can be read once" in desk("validate", "-", "-").err


def test_outputs_of_a_sandboxed_step_are_refused_with_the_place_that_is_kept(desk: Desk) -> None:
    """They named files of the project, which a sandbox has not; nothing was collected, and nothing said so."""
    text = "name: a\nsteps:\n  - id: b\n    run: {code: 'def main(): ...'}\n    outputs: [log.txt]\n"
    assert findings(desk, text) == [
        "pipeline.yaml:5:5: outputs cannot be used with run code: it runs in the sandbox, which has no files of the project",
        "  hint: remove it: every file that the step leaves in /job/out is kept",
    ]


def test_nothing_of_the_users_is_imported_or_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by `validate` nor by `plan`: the module, the code and the command would all leave a mark."""
    monkeypatch.syspath_prepend(desk.directory)
    mark = desk.directory / "mark"
    desk.write(f"open({str(mark)!r}, 'w')\ndef f(): ...", "marking.py")
    desk.write(
        f"""\
name: traps
steps:
  - id: module
    run: {{python: "marking:f"}}
  - id: file
    run: {{python: "marking.py:f"}}
  - id: code
    run: {{code: "open({str(mark)!r}, 'w')\\ndef main(): ..."}}
  - id: shell
    run: {{shell: "touch {mark}"}}
"""
    )
    assert desk("validate", "pipeline.yaml").code == 0
    assert desk("plan", "pipeline.yaml").code == 0
    assert desk("plan", "pipeline.yaml", "-o", "json").code == 0
    assert "marking" not in sys.modules
    assert not mark.exists()


# -- how it is said ------------------------------------------------------------------------------------------------------


def test_every_finding_has_its_place_and_a_hint_in_the_demanded_order(desk: Desk) -> None:
    """WF-106: structure as written, then dependencies, then cycles."""
    *lines, hint = findings(
        desk,
        """\
name: broken
stpes: []
steps:
  - id: load
    needs: [check]
    run: {shell: ls}
  - id: check
    neds: [load]
    needs: [load, lod]
    run: {python: "a b"}
""",
    )
    assert lines == [
        "pipeline.yaml:2:1: unknown key 'stpes' in the contract",
        "  hint: did you mean 'steps'?",
        "pipeline.yaml:8:5: unknown key 'neds' in step 'check'",
        "  hint: did you mean 'needs'?",
        "pipeline.yaml:10:19: python target 'a b' names no function",
        "  hint: write module:function or path/file.py:function",
        "pipeline.yaml:9:19: step 'check' needs 'lod', which is not a step",
        "  hint: did you mean 'load'?",
        "pipeline.yaml:4:5: steps need one another in a circle: load (line 4) -> check (line 7) -> load (line 4)",
    ]
    assert hint.startswith("  hint: ")


def test_all_files_are_checked_and_the_exit_code_is_of_all(desk: Desk) -> None:
    desk.write(SMALL, "good.yaml")
    desk.write("name: x", "bad.yaml")
    said = desk("validate", "bad.yaml", "good.yaml", "absent.yaml", ".")
    assert said.code == 2
    assert said.out.splitlines() == [
        "bad.yaml:1:1: the contract has no steps",
        "  hint: begin with `name:` and `steps:`, or with `workflow_coordination:`",
        "valid  good.yaml: small, 5 steps",
        "absent.yaml: cannot be read: No such file or directory",
        "  hint: check the path",
        ".: is a directory",
        "  hint: name the files: bad.yaml good.yaml",
        "NOT VALID  3 findings in 3 of 4 files",
    ]


def test_json_is_one_document_for_all_files(desk: Desk) -> None:
    desk.write(SMALL, "good.yaml")
    desk.write("name: x\nsteps: 3\n", "bad.yaml")
    said = desk("validate", "good.yaml", "bad.yaml", "absent.yaml", "-o", "json")
    assert said.code == 2
    assert said.document["ok"] is False
    good, bad, absent = said.document["files"]
    assert good == {
        "file": "good.yaml",
        "ok": True,
        "name": "small",
        "steps": 5,
        "schedule": None,
        "findings": [],
        "findings_total": 0,
        "warnings": [],
    }
    assert bad["findings"] == [
        {
            "file": "bad.yaml",
            "line": 2,
            "column": 8,
            "path": "steps",
            "message": "steps must be a list, not 3",
            "hint": "begin each step with `- id:`",
            "code": "VALIDATION_ERROR",
        }
    ]
    assert (bad["ok"], bad["findings_total"]) == (False, 1)
    assert (absent["findings"][0]["line"], absent["findings"][0]["column"]) == (None, None)


def test_a_python_file_is_told_where_flows_go(desk: Desk) -> None:
    said = desk("validate", desk.write("import detent\n\n@detent.flow\ndef f():\n    ...\n", "flow.py"))
    assert said.code == 2
    assert said.out.startswith("flow.py: is a Python file, not a contract\n  hint: ")
    assert "`detent plan flow.py` shows the steps" in said.out


def test_many_findings_are_counted_not_poured_out(desk: Desk) -> None:
    steps = "".join(f"  - id: s{number}\n    rnu: 1\n" for number in range(300))
    said = desk("validate", desk.write(f"name: x\nsteps:\n{steps}"))
    assert said.out.splitlines()[-2:] == ["... and 500 more findings", "NOT VALID  600 findings"]
    assert len(said.out.splitlines()) <= 202
    document = desk("validate", "pipeline.yaml", "-o", "json").document
    assert (len(document["files"][0]["findings"]), document["files"][0]["findings_total"]) == (100, 600)


def test_control_characters_of_a_file_reach_no_terminal(desk: Desk) -> None:
    said = desk("validate", desk.write('name: x\n"\\e[31m\\u202e": 1\nsteps: []\n'))
    assert said.code == 2
    assert "\x1b" not in said.out
    assert "\u202e" not in said.out


def test_a_terminal_gets_colours_and_a_finding_stays_on_one_line(desk: Desk, tmp_path: Path) -> None:
    desk.write("name: x\n" + "unknown_and_much_too_long_for_a_terminal_of_eighty_columns: 1\nsteps: []\n")
    shown = on_terminal("validate", "pipeline.yaml", home=tmp_path)
    assert "\x1b[31m" in shown
    assert "_of_eighty_columns' in the contract" in shown
    assert "\x1b" not in on_terminal("validate", "pipeline.yaml", home=tmp_path, variables={"NO_COLOR": "1"})


# -- bad input -----------------------------------------------------------------------------------------------------------


def step(text: str) -> str:
    return f"name: x\nsteps:\n  - id: a\n    {text}\n"


BAD: dict[str, tuple[str | bytes, str]] = {
    "empty file": (b"", "empty"),
    "only a comment": ("# nothing\n", "empty"),
    "null": ("null\n", "a contract is a mapping"),
    "a list": ("- a\n- b\n", "a contract is a mapping"),
    "not UTF-8": (b"name: \xff\xfe\n", "UTF-8"),
    "UTF-16": ("name: x".encode("utf-16"), ""),
    "a zip file": (b"PK\x03\x04\x00\x00\x08", ""),
    "binary": (bytes(range(256)), ""),
    "bad indentation": ("name: x\n  steps: []\n", ""),
    "an open bracket": ("name: [x\n", ""),
    "a tab": ("name:\tx\n\tsteps: []\n", ""),
    "two documents": ("name: x\nsteps: []\n---\nname: y\n", "document"),
    "a directive": ("%YAML 1.1\n---\nname: x\nsteps: []\n", "directive"),
    "an anchor": ("name: &a x\nsteps: []\n", "anchor"),
    "an alias": ("name: *a\nsteps: []\n", ""),
    "a tag": ("name: !!python/object:os.system x\nsteps: []\n", "tag"),
    "a merge key": (step("<<: {run: {shell: ls}}"), "<<"),
    "a duplicate key": ("name: x\nname: y\nsteps: []\n", "line 1"),
    "a duplicate id": (step("run: {shell: ls}\n  - id: a\n    run: {shell: ls}"), "'a'"),
    "itself": (step("needs: a\n    run: {shell: ls}"), "needs itself"),
    "an unknown need": (step("needs: b\n    run: {shell: ls}"), "'b', which is not a step"),
    "an unknown reference": (step("run: {python: 'm:f', with: {x: {$from: b}}}"), "'b'"),
    "an unknown param": (step("run: {python: 'm:f', with: {x: {$param: b}}}"), "'b'"),
    "a dollar": (step("run: {python: 'm:f', with: {x: {$form: a}}}"), "did you mean '$from'?"),
    "a conditional mode": ("name: x\nmode: conditional\nsteps: []\n", "reserved"),
    "a streaming mode": ("name: x\nmode: streaming\nsteps: []\n", "reserved"),
    "an unknown mode": ("name: x\nmode: paralel\nsteps: []\n", "did you mean 'parallel'?"),
    "a reserved type": (step("type: conditional\n    run: {shell: ls}"), "reserved"),
    "an unknown type": (step("type: foo\n    run: {shell: ls}"), "'foo'"),
    "timeout 0": (step("run: {shell: ls}\n    timeout: 0"), "at least 100 ms"),
    "timeout 99 ms": (step("run: {shell: ls}\n    timeout: 99ms"), "at least 100 ms"),
    "timeout -1": (step("run: {shell: ls}\n    timeout: -1"), "at least 100 ms"),
    "timeout huge": (step("run: {shell: ls}\n    timeout: 99999999999d"), "longer than"),
    "timeout of text": (step("run: {shell: ls}\n    timeout: soon"), "'soon'"),
    "an empty name": ("name: ''\nsteps: []\n", "empty"),
    "a numeric name": ("name: 3\nsteps: []\n", "must be text"),
    "steps of text": ("name: x\nsteps: many\n", "must be a list"),
    "a step of text": ("name: x\nsteps: [a, b]\n", "must be a mapping"),
    "no run": (step("needs: []"), "has no run"),
    "two kinds": (step("run: {python: 'm:f', shell: ls}"), ""),
    "no kind": (step("run: {}"), ""),
    "a bad target": (step("run: {python: 'os.system(1)'}"), "names no function"),
    "a broken code": (step("run: {code: 'def main(:'}"), "pipeline.yaml:4:"),
    "no entrypoint": (step("run: {code: 'x = 1'}"), "main"),
    "a deep code": (step(f"run: {{code: 'def main(): return {'(' * 900}{')' * 900}'}}"), ""),
    "an empty command": (step("run: {shell: ''}"), "empty"),
    "retry of text": (step("run: {shell: ls}\n    retry: lots"), "retry"),
    "retry 11": (step("run: {shell: ls}\n    retry: 11"), "retry"),
    "an unknown category": (step("run: {shell: ls}\n    retry: {max: 1, on: [USER_ERROR]}"), "USER_CODE_ERROR"),
    "enabled maybe": (step("run: {shell: ls}\n    enabled: maybe"), "enabled"),
    "a mapped pair": (step("run: {python: 'm:f'}\n    map: {a: [1], b: [2]}"), "map"),
    "infinity": (step("run: {python: 'm:f', with: {x: 1e999}}"), ""),
    "deep brackets": ("[" * 5_000 + "]" * 5_000, "deeper than 64"),
    "deep maps": ("{a: " * 5_000 + "1" + "}" * 5_000, "deeper than 64"),
    "deep blocks": ("".join(" " * depth + "a:\n" for depth in range(5_000)), "deeper than 64"),
    "deep dashes": ("- " * 5_000 + "x", "deeper than 64"),
    "open brackets": ("[" * 500_000, "deeper than 64"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gives_findings_with_lines_and_no_traceback(desk: Desk, name: str) -> None:
    content, said = BAD[name]
    lines = findings(desk, content)
    assert PLACE.match(lines[0]) or lines[0].startswith("pipeline.yaml: "), lines[0]
    assert said in "\n".join(lines)
    assert max(map(len, lines)) < 600


def test_a_cycle_is_named_whole_with_its_lines(desk: Desk) -> None:
    content = "name: x\nsteps:\n"
    for name, needs in (("a", "c"), ("b", "a"), ("c", "b"), ("d", "a")):
        content += f"  - id: {name}\n    needs: {needs}\n    run: {{shell: ls}}\n"
    first, *_ = findings(desk, content)
    assert first.startswith("pipeline.yaml:3:5: ")
    assert first.endswith("a (line 3) -> c (line 9) -> b (line 6) -> a (line 3)")


def test_a_long_cycle_crashes_nothing(desk: Desk) -> None:
    steps = "".join(
        f"  - {{id: s{number}, needs: s{(number + 1) % 4_000}, run: {{shell: ls}}}}\n" for number in range(4_000)
    )
    first, *_ = findings(desk, f"name: x\nsteps:\n{steps}")
    assert "s0 (line 3) -> s1 (line 4) -> " in first


def test_a_billion_laughs_are_refused_at_the_first(desk: Desk) -> None:
    bomb = "a: &a [lol, lol, lol, lol]\n" + "".join(
        f"{after}: &{after} [*{before}, *{before}, *{before}, *{before}]\n"
        for before, after in zip("abcdefghijklmnop", "bcdefghijklmnopq", strict=True)
    )
    first, *_ = findings(desk, bomb)
    assert "anchor" in first


def test_a_file_of_fifty_megabytes_is_refused_by_its_size(desk: Desk) -> None:
    desk.write("name: x\n")
    with (desk.directory / "pipeline.yaml").open("r+b") as file:
        file.truncate(50 * 1024 * 1024)
    said = desk("validate", "pipeline.yaml")
    assert said.code == 2
    assert "16 MiB" in said.out or "16,777,216" in said.out or "16777216" in said.out


def test_a_device_without_an_end_does_no_harm(desk: Desk) -> None:
    assert desk("validate", "/dev/zero").code == 2
    assert desk("validate", os.devnull).code == 2


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_never_ends_in_a_traceback(desk: Desk, data: st.DataObject) -> None:
    content = bytearray(SMALL.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["byte", "cut", "twice"])):
            case "byte":
                content[place] = data.draw(st.integers(0, 255))
            case "cut":
                del content[place : place + data.draw(st.integers(1, 20))]
            case "twice":
                content[place:place] = content[max(0, place - 30) : place]
    said = desk("validate", desk.write(bytes(content)))
    assert said.code in {0, 2}
    assert said.out


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.text(alphabet="-:[]{}&*!|>'\"%#@`, \n\tab1$?", max_size=40).map(str.encode))
def test_any_bytes_at_all_give_an_answer(desk: Desk, content: bytes) -> None:
    said = desk("validate", desk.write(content))
    assert said.code in {0, 2}
    assert said.out


def test_bad_usage_is_said(desk: Desk) -> None:
    assert desk("validate").code == 2
    assert "missing argument" in desk("validate").err
    assert desk("validate", "--home", "x", "y").code == 2


def test_a_name_with_a_null_character_is_no_traceback(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "a\0b"]) == 2
    assert "cannot be read" in capsys.readouterr().out


def test_it_works_as_a_process_and_needs_neither_engine_nor_keys(desk: Desk) -> None:
    desk.write(SMALL)
    script = (
        "import sys\nfrom detent.cli.app import run\ncode = run(['validate', 'pipeline.yaml'])\n"
        "heavy = {'apsw', 'rich', 'asyncio', 'detent.owner', 'detent.kernel', 'detent.ledger', 'detent.sdk'}\n"
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else code)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "valid  pipeline.yaml: small, 5 steps\n"), done.stderr


def test_a_comment_cannot_hide_a_step(desk: Desk) -> None:
    """A file of four lines is one of four lines, whatever other readers of old take for the end of a line."""
    step = "  - {id: one, run: {shell: ls}} # off\u2028  - {id: two, run: {shell: ls}}"
    lines = findings(desk, f"name: n\nsteps:\n{step}\n")
    assert lines[0] == "pipeline.yaml:3:38: line separator U+2028 cannot stand outside of quoted text"
    said = desk("validate", desk.write('{"name": "a\u2028b", "steps": []}'), "-o", "json")
    assert said.document["files"][0]["name"] == "a\u2028b"
