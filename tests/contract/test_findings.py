"""Everything that can be wrong with a contract, each with its place and a way out, in the demanded order."""

from __future__ import annotations

import pytest

from detent.contract import ContractInvalid, load
from detent.contract.findings import FAULTS_MAX, Report, Spot
from detent.contract.words import STEPS_MAX
from tests.contract import golden
from tests.contract.contracts import findings, marked, one_step, only


def test_a_thoroughly_broken_contract_reads_as_it_did() -> None:
    """WF-106, WF-249, WF-250; after a wanted change rewrite tests/contract/broken.txt with `make golden` and review it"""
    assert golden.FINDINGS.read_text(encoding="utf-8") == golden.findings_text()


def test_findings_come_in_the_order_that_the_contract_demands() -> None:
    """WF-106: structure in document order, then references in declaration order, then cycles"""
    text = """\
        name: n
        steps:
          - {id: a, needs: [b, nowhere], run: {shell: x}}
          - {id: b, needs: [a], run: {shell: x}, priority: 0}
          - {id: c, needs: [c, gone], run: {shell: x}, enabled: 1}
        mode: streaming
        """
    assert [str(finding) for finding in findings(text)] == [
        "pipeline.yaml:4:52: priority cannot be 0",
        "pipeline.yaml:5:57: enabled must be true or false, not 1",
        "pipeline.yaml:6:7: execution mode 'streaming' is reserved for a later version",
        "pipeline.yaml:3:24: step 'a' needs 'nowhere', which is not a step",
        "pipeline.yaml:5:21: step 'c' needs itself",
        "pipeline.yaml:5:24: step 'c' needs 'gone', which is not a step",
        "pipeline.yaml:3:5: steps need one another in a circle: a (line 3) -> b (line 4) -> a (line 3)",
    ]


@pytest.mark.parametrize("rows", [("priority: 0", "needs: gone"), ("needs: gone", "priority: 0")])
def test_structure_comes_before_references_however_the_steps_are_placed(rows: tuple[str, str]) -> None:
    """WF-106"""
    text = "name: n\nsteps:\n" + "".join(f"  - {{id: s{i}, run: {{shell: x}}, {row}}}\n" for i, row in enumerate(rows))
    assert ["priority" in finding.message for finding in findings(text)] == [True, False]


STEP = [
    ("run: {python: ➤a.b}", "python target 'a.b' names no function", "write module:function or path/file.py:function"),
    ("run: {python: ➤'a:1b'}", "python target 'a:1b' names '1b', which is not a Python name", "write module:function"),
    ("run: {python: ➤'a-b:f'}", "python target 'a-b:f' names 'a-b', which is neither a module nor a .py file", "write"),
    ("run: {python: ➤'x/.py:f'}", "python target 'x/.py:f' names no file", "write module:function"),
    ("run: {python: ➤5}", "python must be text, not 5", "put it in quotes"),
    ("run: {shell: ➤'  '}", "shell must not be empty", "write something"),
    ("run: {shell: x, ➤with: {a: 1}}", "unknown key 'with' in run with shell", "known keys: shell, version"),
    ("run: ➤{shel: x}", "run says nothing to run; it needs one of python, code, shell, job, map", "did you mean 'shell'?"),
    ("run: ➤{shell: x, python: m:f}", "run has shell and python; it needs one of python, code, shell, job, map", "write"),
    ("run: ➤7", "run must be a mapping (key: value), not 7", "write its keys"),
    ("run: ➤make", "run must say how: it is a mapping, not 'make'", "write `run: {shell: 'make'}`"),
    ("run: ➤pkg.mod:go", "run must say how: it is a mapping, not 'pkg.mod:go'", "write `run: {python: 'pkg.mod:go'}`"),
    ("run: {python: m:f, with: ➤[1]}", "with must be a mapping (key: value), not [1]", "write its keys"),
    ("run: {python: m:f, args: ➤1}", "args must be a list, not 1", "write `args: [first, second]`"),
    ("run: {job: ➤{}}", "a job needs job_type, as text", "write"),
    ("run: {code: ➤'x = ('}", "the code is not valid Python: '(' was never closed (line 1 of the code)", "mind"),
    ("run: {code: ➤'x = 1'}", "the code defines no function 'main'", "name one with `entrypoint: x`"),
    ("run: {code: ➤'def mian(): pass'}", "the code defines no function 'main'", "did you mean 'mian'?"),
    ("run: {code: 'def f(): pass', entrypoint: ➤'a b'}", "entrypoint cannot be 'a b'", "name a function"),
    ("timeout: ➤0\nrun: {shell: x}", "a timeout must be at least 100 ms, got 0", "leave it out for no limit"),
    ("timeout: ➤99ms\nrun: {shell: x}", "a timeout must be at least 100 ms, got '99ms'", "leave it out for no limit"),
    ("timeout: ➤-1\nrun: {shell: x}", "a timeout must be at least 100 ms, got -1", "leave it out for no limit"),
    ("timeout: ➤1e300\nrun: {shell: x}", "a timeout of 1e+300 is longer than 9007199254740992 ms", "leave it out"),
    ("timeout: ➤soon\nrun: {shell: x}", "a timeout cannot be 'soon'", "write it as 500ms, 90s, 5m, 2h, 1d"),
    ("timeout:➤\nrun: {shell: x}", "a timeout cannot be null", "write it as 500ms, 90s, 5m, 2h, 1d"),
    ("retry: ➤11\nrun: {shell: x}", "retry must be a whole number from 0 to 10, not 11", "write `retry: 3`"),
    ("retry: ➤true\nrun: {shell: x}", "retry must be a whole number from 0 to 10, not true", "write `retry: 3`"),
    ("retry: ➤{on: [X]}\nrun: {shell: x}", "retry lacks max", "write `retry: {max: 3}`, or `retry: 3`"),
    ("retry: {max: 1, on: [➤USER_ERROR]}\nrun: {shell: x}", "there is no category 'USER_ERROR'", "did you mean 'USER_CODE_ERROR'?"),
    ("env: {A: ➤[1]}\nrun: {shell: x}", "env 'A' must be text, a number or true/false, not [1]", "write {$from"),
    ("env: {➤'A B': x}\nrun: {shell: x}", "'A B' cannot name a variable", "letters, digits and _, no digit first"),
    ("➤shell: bash\nrun: {python: m:f}", "shell means nothing in a step that runs python", "remove it"),
    ('➤cwd: data\nrun: {code: "def main(): return 1"}', "cwd means nothing in a step that runs code", "remove it"),
    ("➤env: {A: 1}\nrun: {job: {job_type: object_render}}", "env means nothing in a step that runs job", "remove it"),
    ("➤cwd: data\nrun: {job: {job_type: object_render}}", "cwd means nothing in a step that runs job", "remove it"),
    ("shell: ➤{a: 1}\nrun: {shell: x}", "shell must be text or a list of words, not {'a': 1}", "write for example `shell: sh -eu`"),
    ("cache: ➤no\nrun: {shell: x}", "cache must be true or false, not 'no'", "write true or false"),
    ("inputs: [a, ➤5]\nrun: {shell: x}", "inputs[1] must be text, not 5", "put it in quotes"),
    ("outputs: ➤[a, a]\nrun: {shell: x}", "an output is listed twice", "keep one of them"),
    ("map: ➤{a: [1], b: [2]}\nrun: {shell: x}", "map needs exactly one name", "write `map: {item: {$from: step}}`"),
    ("map: {a: ➤5}\nrun: {shell: x}", "map needs a list to go through, not 5", "write {$from: step}"),
    ("map: {➤a: [1]}\nrun: {python: m:f, with: {a: 1}}", "'a' is given twice: by map and by with or env", "give one"),
    ("➤map: {a: [1]}\nrun: {job: {job_type: t}}", "map cannot be used with job", "write one step for each payload"),
    ("➤need: [a]\nrun: {shell: x}", "unknown key 'need' in step 'only'", "did you mean 'needs'?"),
    ("➤depends_on: [a]\nrun: {shell: x}", "unknown key 'depends_on' in step 'only'", "write `needs: [...]`"),
    ("➤with: {a: 1}\nrun: {shell: x}", "unknown key 'with' in step 'only'", "move it into `run:`"),
    ("➤zzz: 1\nrun: {shell: x}", "unknown key 'zzz' in step 'only'", "known keys: id, name, type, needs, run"),
    ("needs: ➤only\nrun: {shell: x}", "step 'only' needs itself", "remove this dependency"),
    ("needs: [➤onyl]\nrun: {shell: x}", "step 'only' needs 'onyl', which is not a step", "did you mean 'only'?"),
    ("needs: ➤{a: 1}\nrun: {shell: x}", "needs must be a list of steps, not {'a': 1}", "write `needs: [first, second]`"),
    ("type: ➤conditional\nrun: {shell: x}", "step type 'conditional' is reserved for a later version", "one of compute"),
    ("type: ➤computed\nrun: {shell: x}", "there is no step type 'computed'", "did you mean 'compute'?"),
    ("on_error: ➤retry\nrun: {shell: x}", "there is no on_error 'retry'", "one of stop, continue"),
    ("➤on_error: stop\nerror_action: stop\nrun: {shell: x}", "on_error and error_action say the same thing", "keep one"),
    ("error_action: ➤explode\nrun: {shell: x}", "error_action cannot be 'explode'", "one of 'stop', 'continue', 'retry' or 'compensate'"),
    ("priority: ➤11\nrun: {shell: x}", "priority cannot be 11", "write a whole number from 1 to 10"),
    ("priority: ➤urgent\nrun: {shell: x}", "priority cannot be 'urgent'", "write a whole number from 1 to 10"),
    ("priority: ➤true\nrun: {shell: x}", "priority cannot be true", "write a whole number from 1 to 10"),
    ("name: ➤[x]\nrun: {shell: x}", "name must be text, not ['x']", "write it as one text"),
    ("run: {python: m:f, with: {a: {➤$form: x}}}", "key '$form' is not a reference", "did you mean '$from'?"),
    ("run: {python: m:f, with: {a: {➤$x: x}}}", "key '$x' is not a reference", "write $$ for a key that begins with one $"),
    ("run: {python: m:f, with: {a: ➤{$from: x, b: 1}}}", "a reference stands alone: {$from: name}", "remove the other"),
    ("run: {python: m:f, with: {a: {$from: ➤5}}}", "$from needs the id of a step, not 5", "write {$from: name}"),
    ("run: {python: m:f, with: {a: {$param: ➤x}}}", "there is no parameter 'x'", "declare it: `params: {x: default}`"),
    ("run: {python: m:f, args: [{$from: ➤only}]}", "step 'only' needs itself", "remove this dependency"),
    ("run: {job: {job_type: t, a: [{$from: ➤b}]}}", "step 'only' needs 'b', which is not a step", "name the id of a step"),
    ("run: {map: ➤{compute: m:f, commit: jsonl:o}}", "map says nothing to go through; it needs one of files, items", "write"),
    ("run: {map: ➤{files: a, items: b, compute: m:f, commit: jsonl:o}}", "map has files and items; it needs one of files, items", "write"),
    ("run: {map: ➤{files: a, commit: jsonl:o}}", "map has no compute", "write `compute: module:function`"),
    ("run: {map: ➤{files: a, compute: m:f}}", "map has no commit", "write append:FILE"),
    ("run: {map: ➤5}", "map must be a mapping (key: value), not 5", "write its keys"),
    ("run: {map: {files: a, compute: m:f, commit: jsonl:o, ➤windows: 3}}", "unknown key 'windows' in map", "did you mean 'window'?"),
    ("run: {map: {files: ➤[], compute: m:f, commit: jsonl:o}}", "files names no file", "write a glob"),
    ("run: {map: {files: [a, ➤5], compute: m:f, commit: jsonl:o}}", "files[1] must be text, not 5", "put it in quotes"),
    ("run: {map: {items: ➤5, compute: m:f, commit: jsonl:o}}", "items needs a list to go through, not 5", "write {$from: step}"),
    ("run: {map: {items: {$from: ➤gone}, compute: m:f, commit: jsonl:o}}", "step 'only' needs 'gone', which is not a step", "name"),
    ("run: {map: {files: a, compute: ➤m, commit: jsonl:o}}", "compute 'm' names no function", "write module:function"),
    ("run: {map: {files: a, compute: m:f, filter: ➤'m:1', commit: jsonl:o}}", "filter 'm:1' names '1', which is not a Python name", "write"),
    ("run: {map: {files: a, compute: m:f, commit: ➤out.txt}}", "the destination 'out.txt' has no kind before a colon", "write append:FILE"),
    ("run: {map: {files: a, compute: m:f, commit: ➤'sqlite:a.db'}}", "the destination 'sqlite:a.db' names no table: sqlite:FILE#TABLE", "write"),
    ("run: {map: {files: a, compute: m:f, commit: ➤s3:b}}", "the destination 's3:b' is of a kind that is not known (s3)", "write"),
    ("run: {map: {files: a, compute: m:f, commit: jsonl:o, window: ➤0}}", "window must be a whole number from 1 to 1,000,000, not 0", "write"),
    ("run: {map: {files: a, compute: m:f, commit: jsonl:o, chunk: ➤257}}", "chunk must be a whole number from 1 to 256, not 257", "write"),
    ("run: {map: {files: a, compute: m:f, commit: jsonl:o, retries: ➤-1}}", "retries must be a whole number from 0 to 10, not -1", "write"),
    ("run: {map: {files: a, compute: m:f, commit: jsonl:o, item_timeout: ➤soon}}", "item_timeout cannot be 'soon'", "write it as"),
    ("run: {map: {files: a, compute: m:f, commit: jsonl:o, commit_timeout: ➤soon}}", "commit_timeout cannot be 'soon'", "write it as"),
    ("run: {map: {files: a, compute: m:f, commit: jsonl:o, on_error: ➤skip}}", "there is no on_error 'skip'", "one of stop, continue"),
    ("➤retry: 3\nrun: {map: {files: a, compute: m:f, commit: jsonl:o}}", "retry cannot be used with run map", "write `retries:` inside map"),
    ("➤map: {x: [1]}\nrun: {map: {files: a, compute: m:f, commit: jsonl:o}}", "map cannot be used with run map", "a map step goes"),
    ("➤outputs: o\nrun: {map: {files: a, compute: m:f, commit: jsonl:o}}", "outputs cannot be used with run map", "the destination is"),
    ("➤env: {A: b}\nrun: {map: {files: a, compute: m:f, commit: jsonl:o}}", "env cannot be used with run map", "set it inside"),
    ("➤cwd: sub\nrun: {map: {files: a, compute: m:f, commit: jsonl:o}}", "cwd cannot be used with run map", "name files from"),
    ("➤resources: {cpu: 2}\nrun: {map: {files: a, compute: m:f, commit: jsonl:o}}", "resources cannot be used with run map", "its items"),
    ("➤pool: gpu\nrun: {map: {files: a, compute: m:f, commit: jsonl:o}}", "pool cannot be used with run map", "only the home's own"),
    ("pool: ➤two words\nrun: {shell: x}", "'two words' cannot name a pool", "letters, digits"),
    ("pool: ➤[gpu]\nrun: {shell: x}", "['gpu'] cannot name a pool", "letters, digits"),
    ("labels: ➤[a100, 'pool:x']\nrun: {shell: x}", "'pool:x' cannot name a label", "letters, digits"),
    ("labels: ➤-x\nrun: {shell: x}", "'-x' cannot name a label", "letters, digits"),
    (f"labels: ➤[{', '.join(['a'] * 33)}]\nrun: {{shell: x}}", "a step asks for at most 32 labels, not 33", "keep those"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "message", "hint"), STEP, ids=[row[0][:40] for row in STEP])
def test_a_bad_step_is_told_where_and_what_to_do(lines: str, message: str, hint: str) -> None:
    """WF-075, WF-080, WF-249, WF-250, X-113, X-177"""
    text, place = marked(one_step(lines))
    finding = next(one for one in findings(text) if one.message == message)
    assert (finding.line, finding.column) == place
    assert finding.hint.startswith(hint)


TOP = [
    ("➤[]", "a contract is a mapping, not []"),
    ("➤hello", "a contract is a mapping, not 'hello'"),
    ("➤nme: a\nsteps: []", "unknown key 'nme' in the contract"),
    ("➤a: 1", "unknown key 'a' in the contract"),
    ("➤steps: []", "the contract has no name"),
    ("➤name: a", "the contract has no steps"),
    ("name: ➤''\nsteps: []", "name must not be empty"),
    ("name: ➤5\nsteps: []", "name must be text, not 5"),
    ("name: a\nsteps: ➤{b: 1}", "steps must be a list, not {'b': 1}"),
    ("name: a\nsteps: [➤x]", "a step must be a mapping (key: value), not 'x'"),
    ("name: a\nsteps: [➤{run: {shell: x}}]", "a step has no id"),
    ("name: a\nsteps: [➤{id: x}]", "step 'x' has no run"),
    ("name: a\nsteps: [➤{id: x, shell: make}]", "step 'x' has no run"),
    ("name: a\nshell: ➤5\nsteps: []", "shell must be text or a list of words, not 5"),
    ("name: a\nshell: ➤[]\nsteps: []", "shell must name a program and its options, not []"),
    ("name: a\nshell: ➤''\nsteps: []", "shell must name a program and its options, not []"),
    ("name: a\nshell: ➤[bash, 1]\nsteps: []", "shell must name a program and its options, not ['bash', 1]"),
    ("name: a\nshell: ➤bash 'x\nsteps: []", 'shell cannot be "bash \'x": no closing quotation'),
    ("name: a\nsteps: [{id: ➤1x, run: {shell: x}}]", "id cannot be '1x'"),
    ("name: a\nmode: ➤conditional\nsteps: []", "execution mode 'conditional' is reserved for a later version"),
    ("name: a\nmode: ➤paralel\nsteps: []", "there is no execution mode 'paralel'"),
    ("name: a\nversion: ➤1.2\nsteps: []", "version cannot be 1.2"),
    ("name: a\nversion: ➤{major: 1, minor: 0}\nsteps: []", "patch is missing"),
    ("name: a\nversion: {major: 1, minor: 0, patch: ➤-1}\nsteps: []", "patch must be at least 0, got -1"),
    ("name: a\nversion: {major: 1, minor: 0, patch: 1, ➤beta: 1}\nsteps: []", "unknown key 'beta' in version"),
    ("name: a\ntimeout: ➤999ms\nsteps: []", "the timeout of a run must be at least 1000 ms, got '999ms'"),
    ("name: a\ndescription: ➤1\nsteps: []", "description must be text, not 1"),
    ("name: a\nparams: ➤[x]\nsteps: []", "params must be a mapping of names to defaults, not ['x']"),
    ("name: a\nparams: {x: {➤tpye: string}}\nsteps: []", "unknown key 'tpye' in parameter 'x'"),
    ("name: a\nparams: {x: {type: ➤int}}\nsteps: []", "there is no type 'int'"),
    ("name: a\nparams: {x: {type: integer, default: ➤a}}\nsteps: []", "the default 'a' is no integer"),
    ("name: a\nparams: {➤'1x': 1}\nsteps: []", "'1x' cannot name a parameter"),
    ("workflow_coordination: ➤5", "workflow_coordination must be a mapping (key: value), not 5"),
    ("workflow_coordination: ➤{steps: []}", "workflow_coordination has no workflow_definition"),
    ("workflow_coordination: {workflow_definition: ➤[]}", "workflow_definition must be a mapping (key: value), not []"),
    ("workflow_coordination: {workflow_definition: {}}\n➤name: x", "unknown key 'name' beside workflow_coordination"),
]


@pytest.mark.parametrize(("written", "message"), TOP, ids=[row[0][:40] for row in TOP])
def test_a_bad_beginning_is_told_where(written: str, message: str) -> None:
    """WF-006, WF-176, WF-219, WF-249, WF-250"""
    text, place = marked(written)
    assert (*place, message) in [(one.line, one.column, one.message) for one in findings(text)]


LONG_HEAD = """\
workflow_coordination:
  workflow_definition:
    version: {major: 1, minor: 0, patch: 0}
    workflow_metadata:
      version: {major: 1, minor: 0, patch: 0}
      workflow_name: w
      workflow_version: {major: 1, minor: 0, patch: 0}
      description: d
    execution_graph: {version: {major: 1, minor: 0, patch: 0}}
"""
LONG = [
    ("      version: {major: 1, minor: 0, patch: 0}\n      workflow_name: w\n", "      ➤version: {major: 1, minor: 0, patch: 0}\n", "workflow_name is missing"),
    ("workflow_name: w", "workflow_name: ➤''", "workflow_name must not be empty"),
    ("workflow_name: w", "workflow_name: ➤' '", "workflow_name must not be empty"),
    ("description: d", "description: ➤5", "description must be text, not 5"),
    ("description: d", "description: d\n      execution_mode: ➤streaming", "execution mode 'streaming' is reserved for a later version"),
    ("description: d", "description: d\n      timeout_ms: ➤99", "a timeout must be at least 100 ms, got 99"),
    ("description: d", "description: d\n      timeout_ms: ➤999", "timeout_ms must be at least 1000, got 999"),
    ("description: d", "description: d\n      timeout_ms: ➤'1000'", "timeout_ms must be a whole number, not '1000'"),
    ("description: d", "➤descripton: d", "unknown key 'descripton' in workflow_metadata"),
    ("patch: 0}}", "patch: ➤x}}", "patch must be a whole number, not 'x'"),
    ("0}}\n", "0}, nodes: [{node_id: ➤1, node_type: t}]}\n", "node_id must be text, not 1"),
    ("  workflow_definition:\n    version: {major: 1,", "  workflow_definition:\n    version: {➤majr: 1,", "unknown key 'majr' in version"),
    ("", "  steps: [➤{step_type: compute}]\n", "step_name is missing"),
    ("", "  steps: [➤{step_name: a}]\n", "step_type is missing"),
    ("", "  steps: [{step_name: a, step_type: ➤conditional}]\n", "step type 'conditional' is reserved for a later version"),
    ("", "  steps: [{step_name: a, step_type: compute, timeout_ms: ➤0}]\n", "a timeout must be at least 100 ms, got 0"),
    ("", "  steps: [{step_name: a, step_type: compute, timeout_ms: ➤-1}]\n", "a timeout must be at least 100 ms, got -1"),
    ("", "  steps: [{step_name: a, step_type: compute, timeout_ms: ➤300001}]\n", "timeout_ms must be at most 300000, got 300001"),
    ("", "  steps: [{step_name: a, step_type: compute, step_id: ➤7}]\n", "step_id must be a UUID, not 7"),
    ("", "  steps: [{step_name: a, step_type: compute, step_id: ➤x}]\n", "step_id must be a UUID, not 'x'"),
    ("", "  steps: [{step_name: a, step_type: compute, ➤saga_pattern: x}]\n", "unknown key 'saga_pattern' in step 'a'"),
    ("", "  steps: [{step_name: a, step_type: compute, checkpoint_required: ➤1}]\n", "checkpoint_required must be true or false, not 1"),
    ("", "  steps: [{step_name: a, step_type: compute, ➤timeout: 5s}]\n", "timeout means nothing without run"),
    ("", "  steps: [{step_name: a, step_type: compute, run: {shell: x}, retry: ➤2, retry_count: 3}]\n", "retry says 2, retry_count 3"),
    ("", "  steps: [{step_name: a, step_type: compute, depends_on: [➤b]}]\n", "step 'a' needs 'b', which is not a step"),
    ("", "  ➤stepz: []\n", "unknown key 'stepz' in workflow_coordination"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), LONG, ids=[f"{row[2]} {row[1]!r}"[:60] for row in LONG])
def test_a_bad_long_form_is_told_where(old: str, new: str, message: str) -> None:
    """WF-006, WF-018, WF-075, WF-176, WF-249, X-113"""
    text, place = marked(LONG_HEAD.replace(old, new, 1) if old else LONG_HEAD + new)
    found = [(one.line, one.column, one.message) for one in findings(text)]
    assert (*place, message) in found
    assert len(found) <= 2


def test_a_good_long_head_has_no_findings() -> None:
    assert findings(LONG_HEAD) == []


def test_equal_step_ids_are_named_with_both_lines() -> None:
    """WF-250"""
    same = "step_id: 00000000-0000-4000-8000-000000000001"
    text = (
        LONG_HEAD
        + f"  steps:\n  - {{step_name: a, step_type: compute, {same}}}\n  - {{step_name: b, step_type: compute, {same}}}\n"
    )
    finding = only(text)
    assert str(finding) == (
        "pipeline.yaml:12:49: step_id 00000000-0000-4000-8000-000000000001 is used twice, first on line 11"
    )


def test_a_cycle_through_references_is_named_whole() -> None:
    """WF-035, WF-086, WF-250, X-177: $from makes dependencies, disabled steps hide no cycle"""
    text = """\
        name: n
        steps:
          - {id: outside, needs: load, run: {shell: x}}
          - {id: load, run: {python: m:f, with: {x: {$from: check}}}}
          - {id: check, needs: [fetch], run: {shell: x}, enabled: false}
          - id: fetch
            run: {shell: x}
            env: {A: {$from: load}}
        """
    finding = only(text)
    assert str(finding) == (
        "pipeline.yaml:4:5: steps need one another in a circle: "
        "load (line 4) -> check (line 5) -> fetch (line 6) -> load (line 4)"
    )


def test_each_knot_of_steps_is_named_once() -> None:
    text = "name: n\nsteps:\n" + "".join(f"  - {{id: s{i}, needs: [s{i ^ 1}], run: {{shell: x}}}}\n" for i in range(6))
    assert [finding.line for finding in findings(text)] == [3, 5, 7]


def test_a_long_cycle_shows_its_beginning_and_its_end() -> None:
    count = 1000
    text = "name: n\nsteps:\n" + "".join(
        f"  - {{id: s{i}, needs: [s{(i + 1) % count}], run: {{shell: x}}}}\n" for i in range(count)
    )
    message = only(text).message
    assert "s0 (line 3) -> s1 (line 4)" in message
    assert message.endswith("s999 (line 1002) -> s0 (line 3)")
    assert "(801 more steps)" in message


def test_code_in_a_block_is_told_by_its_own_line_in_the_file() -> None:
    text = """\
        name: n
        steps:
          - id: a
            run:
              code: |

                def main():
                    return (1
                # never closed
        """
    finding = only(text)
    assert (finding.line, finding.column) == (8, 20)
    assert finding.message == "the code is not valid Python: '(' was never closed (line 3 of the code)"


def test_many_findings_are_shown_up_to_a_limit_and_counted_beyond() -> None:
    text = "name: n\nsteps:\n" + "  - {id: a, run: {shell: x}, zzz: 1, needs: [nope]}\n" * 3000
    with pytest.raises(ContractInvalid) as caught:
        load(text.encode())
    assert len(caught.value.findings) == 100
    assert caught.value.more == 3000 + 3000 + 2999 - 100
    assert str(caught.value).endswith(f"and {caught.value.more} more")


def test_too_many_steps_are_refused_by_number() -> None:
    text = "name: n\nsteps: [" + "1," * (STEPS_MAX + 1) + "]"
    assert only(text).message == "100,001 steps, 100,000 are allowed"


def test_a_hint_is_not_worth_a_search_through_everything() -> None:
    """5,000 unknown names among 5,000 known ones would be minutes of comparing"""
    text = "name: n\nsteps:\n" + "".join(
        f"  - {{id: step_{i}, needs: [stp_{i}], run: {{shell: x}}}}\n" for i in range(5_000)
    )
    found = findings(text)
    assert len(found) == 100
    assert [finding.hint.startswith("did you mean") for finding in found] == [True] * 4 + [False] * 96


def test_faults_beyond_what_is_kept_are_only_counted() -> None:
    report = Report()
    for _ in range(FAULTS_MAX + 5):
        Spot(report).fault("wrong", "mend it")
    assert (len(report.faults), report.count) == (FAULTS_MAX, FAULTS_MAX + 5)
