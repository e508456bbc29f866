"""object_execute: what code returns, writes, leaves and reads."""

from __future__ import annotations

from typing import Any

import pytest

from detent.executor.sandbox.classify import NOT_INSIDE
from detent.jobs import EnvelopeInvalid, JobStatus
from tests.executor.runners.rig import Backend, error_of, execute
from tests.jobs.envelopes import changed

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x06\x08\x06\0\0\0"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"><rect width="4" height="4"/></svg>'


def test_the_entrypoint_is_called_with_the_parameters_and_its_value_is_the_result(here: Backend) -> None:
    """JOB-007, JOB-042, JOB-049, JOB-052, X-151"""
    source = {
        "source": "import sys\ndef work(x, name):\n    print('out')\n    print('err', file=sys.stderr)\n    return {name: x * x}"
    }
    result = here.run(execute(source, entrypoint="work", parameters={"x": 12, "name": "y"}))
    assert result.status is JobStatus.SUCCEEDED
    assert result.outputs.result_json == {"y": 144}
    assert (result.outputs.stdout, result.outputs.stderr) == ("out\n", "err\n")
    assert result.environment.env_version == here.runners.env_version("object_execute")
    assert result.environment.sandbox == here.supervisor.profile.value
    assert result.resource_usage is not None
    assert result.resource_usage.memory_mb_peak > 0
    assert result.artifacts == ()


def test_the_code_blocks_of_a_blockdoc_are_one_program(here: Backend) -> None:
    """JOB-042"""
    blocks = [
        {"type": "code", "source": "base = 40"},
        {"type": "text", "text": "Now add two."},
        {"type": "code", "source": "def main():\n    return base + 2"},
    ]
    assert here.run(execute({"blocks": blocks})).outputs.result_json == 42


def test_streams_and_json_that_were_not_requested_are_left_out(here: Backend) -> None:
    """JOB-042"""
    draft = execute("def main():\n    print('x' * 5000)\n    return 1", limits={"max_output_kb": 1})
    draft["output_spec"] = {"return_stdout": False, "return_stderr": False, "formats": ["png"]}
    result = here.run(draft)
    assert result.status is JobStatus.SUCCEEDED
    assert (result.outputs.result_json, result.outputs.stdout, result.outputs.truncated) == (None, "", ())
    assert [entry.message for entry in result.logs] == ["no png file was left in the output directory"]


def test_files_left_in_the_output_directory_become_artifacts(here: Backend) -> None:
    """JOB-007, JOB-050, JOB-055, JOB-074, JOB-080"""
    source = """
import os
def main(png, svg):
    os.makedirs('/job/out/plots')
    open('/job/out/plots/b.png', 'wb').write(bytes.fromhex(png))
    open('/job/out/a.svg', 'wb').write(bytes.fromhex(svg))
    open('/job/out/table.csv', 'w').write('x,y\\n1,2\\n')
    open('/job/out/data.json', 'w').write('{"a": [1, 2.5]}')
    open('/job/out/model.bin', 'wb').write(bytes(range(256)))
"""
    result = here.run(execute(source, parameters={"png": PNG.hex(), "svg": SVG.hex()}))
    assert result.status is JobStatus.SUCCEEDED
    assert [
        (one.metadata["name"], one.kind, one.format, one.content_type, one.artifact_id.rpartition(".")[2])
        for one in result.artifacts
    ] == [
        ("a.svg", "figure", "svg", "image/svg+xml", "1"),
        ("data.json", "file", "json", "application/json", "2"),
        ("model.bin", "file", "binary", "application/octet-stream", "3"),
        ("plots/b.png", "figure", "png", "image/png", "4"),
        ("table.csv", "file", "text", "text/plain; charset=utf-8", "5"),
    ]
    assert result.artifacts[3].metadata == {"name": "plots/b.png", "width": 8, "height": 6}
    found = here.bytes_of(result)
    assert (found["a.svg"], found["plots/b.png"], found["model.bin"]) == (SVG, PNG, bytes(range(256)))
    assert all(one.uri == f"content:{one.digest}" for one in result.artifacts)


def test_an_exception_is_told_with_line_and_column_of_the_users_own_code(here: Backend) -> None:
    """JOB-058, JOB-059, JOB-060"""
    source = "import json\n\ndef main():\n    text = 'é'; json.loads('{')\n"
    result = here.run(execute({"source": source}))
    assert error_of(result) == ("FAILED", "USER_CODE_ERROR", "PYTHON_EXCEPTION")
    assert result.error is not None
    details = result.error.details
    assert (details.line, details.column) == (4, 17)
    assert result.error.message.startswith("JSONDecodeError: ")
    assert details.traceback is not None
    assert 'File "main.py", line 4, in main\n    text = ' in details.traceback
    assert "detent" not in details.traceback
    assert result.outputs.result_json is None


def test_what_code_left_before_it_raised_is_kept(here: Backend) -> None:
    """JOB-058"""
    source = "def main():\n    print('so far')\n    open('/job/out/state.txt', 'w').write('half')\n    raise ValueError('no')"
    result = here.run(execute(source))
    assert error_of(result) == ("FAILED", "USER_CODE_ERROR", "PYTHON_EXCEPTION")
    assert here.bytes_of(result) == {"state.txt": b"half"}
    assert result.outputs.stdout == "so far\n"


def test_a_syntax_error_has_its_place_too(here: Backend) -> None:
    """JOB-059"""
    result = here.run(execute("def main():\n    return (1 +\n"))
    assert result.error is not None
    assert result.error.message.startswith("SyntaxError: ")
    assert result.error.details.line == 2


def test_a_missing_entrypoint_is_the_users_error(here: Backend) -> None:
    """JOB-060"""
    result = here.run(execute("x = 1", entrypoint="main"))
    assert error_of(result) == ("FAILED", "USER_CODE_ERROR", "PYTHON_EXCEPTION")
    assert result.error is not None
    assert "'main'" in result.error.message


def with_dependencies(draft: dict[str, Any], datasets: list[str], objects: dict[str, str]) -> dict[str, Any]:
    dependencies = [{"kind": "dataset", "digest": digest, "name": "points.csv"} for digest in datasets]
    dependencies += [{"kind": "object", "id": name} for name in objects]
    snapshots = [{"kind": "object", "id": name, "content_digest": digest} for name, digest in objects.items()]
    draft["inputs"]["object"]["dependencies"] = dependencies
    draft["inputs"]["dependency_snapshots"] = snapshots
    return draft


def test_dependencies_are_files_that_can_be_read_and_nothing_else(here: Backend) -> None:
    """JOB-043, JOB-044, JOB-071, X-159"""
    data, plain, odd = here.put(b"1,2\n"), here.put(b"plain"), here.put(b"odd")
    source = """
import json, os
def main():
    index = json.load(open('/job/inputs/inputs.json'))
    files = {name: open('/job/inputs/' + name).read() for name in os.listdir('/job/inputs') if name != 'inputs.json'}
    try:
        open('/job/inputs/' + index['objects']['../a b']['file'], 'a')
        written = True
    except OSError:
        written = False
    return [index, files, written]
"""
    draft = with_dependencies(execute(source), [data], {"cell-1": plain, "../a b": odd})
    result = here.run(draft)
    assert result.status is JobStatus.SUCCEEDED, result.error
    index, files, written = result.outputs.result_json
    assert index["datasets"] == {data: {"file": data.replace(":", "-"), "name": "points.csv"}}
    assert index["objects"]["cell-1"] == {"file": "object-cell-1", "digest": plain, "runtime": None}
    assert files == {
        data.replace(":", "-"): "1,2\n",
        "object-cell-1": "plain",
        index["objects"]["../a b"]["file"]: "odd",
    }
    assert written is False


def test_a_missing_dependency_fails_before_the_start(here: Backend) -> None:
    """JOB-060, JOB-071"""
    digest = "sha256:" + "0" * 64
    result = here.run(with_dependencies(execute("print('ran')"), [digest], {}))
    assert error_of(result) == ("FAILED", "DEPENDENCY_ERROR", "DEPENDENCY_MISSING")
    assert result.error is not None
    assert digest in result.error.message
    assert (result.outputs.stdout, result.resource_usage) == ("", None)


def test_a_dependency_with_other_bytes_fails_before_the_start(here: Backend) -> None:
    """JOB-060, JOB-071, JOB-074"""
    digest = here.put(b"true bytes")
    hexed = digest.removeprefix("sha256:")
    path = here.store._files.path(bytes.fromhex(hexed))  # type: ignore[attr-defined]  # tampering reaches in
    path.chmod(0o600)
    path.write_bytes(b"other byte")
    result = here.run(with_dependencies(execute("print('ran')"), [digest], {}))
    assert error_of(result) == ("FAILED", "DEPENDENCY_ERROR", "DEPENDENCY_MISMATCH")
    assert result.outputs.stdout == ""


@pytest.mark.parametrize("reference", ["/etc/passwd", "https://example.org/data.csv", "../x", "sha256:abc"])
def test_a_dataset_is_named_by_digest_alone(here: Backend, reference: str) -> None:
    """JOB-071: a path or an address does not even make a payload."""
    with pytest.raises(EnvelopeInvalid, match="digest"):
        here.payload(with_dependencies(execute("x = 1"), [reference], {}))


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("inputs.object.type", "diagram", "inputs.object.type"),
        ("inputs.object.runtime.language", "r", "inputs.object.runtime.language"),
        ("inputs.object.content.format", "notebook", "inputs.object.content.format"),
        ("inputs.object.content.value", 5, "inputs.object.content.value"),
    ],
)
def test_what_cannot_be_executed_here_is_refused_by_its_path(here: Backend, path: str, value: Any, named: str) -> None:
    """JOB-060"""
    result = here.run(changed(execute("x = 1"), path, value))
    assert error_of(result) == ("FAILED", "VALIDATION_ERROR", "VALIDATION_ERROR")
    assert result.error is not None
    assert f"payload.{named}" in result.error.message


def test_a_result_that_is_too_long_is_a_failure_and_a_stream_is_cut(here: Backend) -> None:
    """JOB-056, JOB-037, X-147"""
    long = execute("def main(): return 'x' * 2000", limits={"max_output_kb": 1})
    assert error_of(here.run(long)) == ("FAILED", "RESOURCE_LIMIT", "LIMIT_OUTPUT")
    streams = (
        "import sys\ndef main():\n    print('y' + 'é' * 600, end='')\n    print('z' * 1024, end='', file=sys.stderr)"
    )
    cut = here.run(execute(streams, limits={"max_output_kb": 1}))
    assert cut.status is JobStatus.SUCCEEDED
    assert cut.outputs.stdout == "y" + "é" * 511
    assert (len(cut.outputs.stderr), cut.outputs.truncated) == (1024, ("stdout",))


def test_the_number_of_artifacts_is_exact(here: Backend) -> None:
    """JOB-037, X-147"""
    source = "def main(count):\n    for i in range(count): open(f'/job/out/{i}.txt', 'w').write('x')"
    assert len(here.run(execute(source, parameters={"count": 50})).artifacts) == 50
    beyond = here.run(execute(source, parameters={"count": 51}))
    assert error_of(beyond) == ("FAILED", "RESOURCE_LIMIT", "LIMIT_ARTIFACTS")
    assert beyond.artifacts == ()


@pytest.mark.parametrize(
    ("source", "limits", "expected"),
    [
        ("while True: pass", {"timeout_ms": 10_000, "cpu_ms": 200}, ("TIMED_OUT", "RESOURCE_LIMIT", "LIMIT_CPU")),
        ("import time\ntime.sleep(60)", {"timeout_ms": 200}, ("TIMED_OUT", "RESOURCE_LIMIT", "LIMIT_WALL")),
        ("x = bytearray(b'x') * (200 << 20)", {"memory_mb": 64}, ("FAILED", "RESOURCE_LIMIT", "LIMIT_MEMORY")),
    ],
)
def test_limits_of_the_payload_are_enforced(
    here: Backend, source: str, limits: dict[str, int], expected: tuple[str, str, str]
) -> None:
    """JOB-037, X-146"""
    assert error_of(here.run(execute(source, limits=limits))) == expected


def test_equal_payloads_give_equal_outputs(here: Backend) -> None:
    """The seed of hashes is fixed, so even the order of a set is the same."""
    source = "def main():\n    open('/job/out/a.txt', 'w').write(repr({'a', 'b', 'c', 'd'}))\n    return sorted({'x': hash('y')}.items())"
    first, second = (here.run(execute(source)) for _ in range(2))
    assert first.outputs == second.outputs
    assert [one.digest for one in first.artifacts] == [one.digest for one in second.artifacts]


def test_a_value_that_is_no_json_is_refused(here: Backend) -> None:
    """JOB-060"""
    assert error_of(here.run(execute("def main(): return b'raw'")))[1] == "USER_CODE_ERROR"
    raw = "import os\ndef main():\n    os.write(3, b'R{\"a\": NaN}')\n    os._exit(0)"
    assert error_of(here.run(execute(raw)))[:2] == ("FAILED", "VALIDATION_ERROR")


def test_a_package_that_is_not_in_the_sandbox_is_told_to_be_outside(here: Backend) -> None:
    for module, more in (("pytest", f" ({NOT_INSIDE})"), ("helper_of_mine", "")):
        result = here.run(execute(f"import {module}\ndef main():\n    return 1"))
        assert error_of(result) == ("FAILED", "USER_CODE_ERROR", "PYTHON_EXCEPTION")
        assert result.error is not None
        assert result.error.message == f"ModuleNotFoundError: No module named '{module}'{more}"
