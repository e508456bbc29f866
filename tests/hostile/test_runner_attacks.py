"""Attacks through payloads, tools and outputs of platform jobs, in every profile that contains untrusted code.

Each is run twice, those that need a slow tool in `make soak`, and must end alike. None may end as an error of ours, leave anything behind, or get a file handed out
under a type that a viewer would act on.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.executor.runners import missing_tools
from detent.executor.runners.tool_jobs import judge_tool
from detent.executor.sandbox import Execution, OutputFile, Profile, Sandbox
from detent.jobs import JobResult, JobStatus
from tests.executor.runners.rig import Backend, backend, error_of, execute, export, render, thumbnail
from tests.hostile.as_user import REPOSITORY
from tests.hostile.rig import CONTAINED, traces

LIMITS = {"timeout_ms": 10_000, "cpu_ms": 10_000, "memory_mb": 256, "max_output_kb": 16}
TOOL_RUNS = 1
QUICK = {"timeout_ms": 1500, "cpu_ms": 1500, "memory_mb": 256}


@pytest.fixture(autouse=True)
def every_job_type_twice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make soak`, which leaves no test out, also repeats what needs a slow tool."""
    monkeypatch.setitem(globals(), "TOOL_RUNS", 2 if request.config.option.markexpr == "" else 1)


@pytest.fixture
def here(contained: Sandbox, tmp_path: Path) -> Iterator[Backend]:
    before = set(
        contained.staging.iterdir()
    )  # Other tests may keep what their jobs left, for as long as they look at it.
    yield backend(contained, tmp_path / "content")
    assert traces(contained) == []
    assert set(contained.staging.iterdir()) <= before


def twice(here: Backend, draft: dict[str, Any]) -> JobResult:
    """Run a draft twice; both ends must be of one kind, and none of them ours."""
    results = [here.run(draft) for _ in range(2 if draft["job_type"] == "object_execute" else TOOL_RUNS)]
    ends = {(one.status, one.error and one.error.category, one.error and one.error.code) for one in results}
    assert len(ends) == 1
    assert results[0].error is None or results[0].error.category.value != "INTERNAL_ERROR"
    return results[0]


def png(width: int, height: int, data: bytes) -> bytes:
    """A picture whose header says what it likes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


# Files of executed code.


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("plot.png", b"<html><script>x()</script>"),
        ("plot.png", b'<svg xmlns="http://www.w3.org/2000/svg"><script>x()</script></svg>'),
        ("plot.svg", b"<!DOCTYPE html><script>x()</script>"),
        ("plot.svg", b"\xff\xfe<\0s\0v\0g\0>\0"),
        ("plot.jpeg", b"\x89PNG\r\n\x1a\n"),
        ("paper.pdf", b"PK\x03\x04"),
        ("PLOT.PNG", b"MZ\x90\0"),
    ],
)
def test_a_file_that_is_not_what_its_name_promises_is_refused(here: Backend, name: str, data: bytes) -> None:
    """JOB-060"""
    source = "def main(name, data): open('/job/out/' + name, 'wb').write(bytes.fromhex(data))"
    result = twice(here, execute(source, parameters={"name": name, "data": data.hex()}, limits=LIMITS))
    assert error_of(result) == ("FAILED", "VALIDATION_ERROR", "ARTIFACT_TYPE_INVALID")
    assert result.artifacts == ()


def test_what_could_act_is_never_typed_as_that(here: Backend) -> None:
    """JOB-050"""
    source = """
def main():
    bomb = '<!DOCTYPE svg [' + ''.join(f'<!ENTITY a{i} "{"&a%d;" % (i - 1) * 10}">' for i in range(1, 10)) + ']><svg>&a9;</svg>'
    for name, text in {
        'a.svg': '<svg onload="x()"></svg>',
        'page': '<html><script>x()</script>',
        'page.html': '<!doctype html><iframe src=//x>',
        'bomb.xml': bomb,
        'long.txt': '<svg>' + '<g>' * 200_000,
    }.items():
        open('/job/out/' + name, 'w').write(text)
"""
    result = twice(here, execute(source, limits=LIMITS))
    assert result.status is JobStatus.SUCCEEDED, result.error
    assert {one.metadata["name"]: one.content_type for one in result.artifacts} == {
        "a.svg": "text/plain; charset=utf-8",
        "bomb.xml": "text/plain; charset=utf-8",
        "long.txt": "image/svg+xml",
        "page": "text/plain; charset=utf-8",
        "page.html": "text/plain; charset=utf-8",
    }


@pytest.mark.parametrize(
    ("make", "category"),
    [
        ("open('/job/out/a\\nb', 'w')", "VALIDATION_ERROR"),
        ("open('/job/out/-rf', 'w')", "VALIDATION_ERROR"),
        ("open('/job/out/.hidden', 'w')", "VALIDATION_ERROR"),
        ("open('/job/out/con.txt', 'w')", "VALIDATION_ERROR"),
        ("open('/job/out/a.txt ', 'w')", "VALIDATION_ERROR"),
        ("open('/job/out/a\\\\b', 'w')", "VALIDATION_ERROR"),
        ("open('/job/out/..\\\\b', 'w')", "SANDBOX_VIOLATION"),
        ("open('/job/out/\\u202egnp.exe', 'w')", "VALIDATION_ERROR"),
        ("open(b'/job/out/\\xff', 'w')", "VALIDATION_ERROR"),
        ("os.symlink('/etc/passwd', '/job/out/a.png')", "SANDBOX_VIOLATION"),
        ("os.symlink('/job/inputs', '/job/out/all')", "SANDBOX_VIOLATION"),
        ("os.mkfifo('/job/out/a.png')", "SANDBOX_VIOLATION"),
        ("os.rmdir('/job/out'); os.symlink('/usr', '/job/out')", "SANDBOX_VIOLATION"),
    ],
)
def test_tricks_with_names_and_links_leave_no_artifact(here: Backend, make: str, category: str) -> None:
    """JOB-060, JOB-073, JOB-074"""
    result = twice(here, execute(f"import os\ndef main():\n    {make}", limits=LIMITS))
    assert error_of(result)[1] == category
    assert result.artifacts == ()
    assert list(here.store.digests()) == []


def test_one_artifact_too_many_keeps_none(here: Backend) -> None:
    """JOB-037, X-147"""
    source = "def main():\n    for i in range(51): open(f'/job/out/{i}', 'w').write(str(i))"
    result = twice(here, execute(source, limits={**LIMITS, "max_artifacts": 50}))
    assert error_of(result) == ("FAILED", "RESOURCE_LIMIT", "LIMIT_ARTIFACTS")
    assert list(here.store.digests()) == []


def test_a_result_that_claims_to_be_another_jobs_is_only_a_value(here: Backend) -> None:
    """JOB-049, JOB-080"""
    claim = {
        "schema_version": "1.0",
        "job_id": "0b5f7a52-6f0e-4c1d-9d6a-2f6f5f6d7c99",
        "status": "SUCCEEDED",
        "resource_usage": {"cpu_ms": 0},
        "artifacts": [{"digest": "sha256:" + "0" * 64, "uri": "file:///etc/passwd"}],
        "error": None,
    }
    source = f"import json\ndef main():\n    open('/job/out/result.json', 'w').write({json.dumps(claim)!r})\n    return json.loads({json.dumps(claim)!r})"
    result = twice(here, execute(source, limits=LIMITS))
    assert result.status is JobStatus.SUCCEEDED
    assert result.job_id != claim["job_id"]
    assert result.outputs.result_json == claim
    assert [one.metadata["name"] for one in result.artifacts] == ["result.json"]
    failing = execute(source.replace("return", "raise SystemExit(3) #"), limits=LIMITS)
    assert error_of(twice(here, failing)) == ("FAILED", "USER_CODE_ERROR", "EXITED")


def test_nothing_of_the_platform_is_within_reach(here: Backend) -> None:
    """JOB-070: no key, no environment, no module of ours, no other file of the store."""
    secret = here.put(b"somebody else's data")
    source = """
import gc, os, sys
def main(digest):
    seen = [k for k in sys.modules if k.startswith('detent')]
    seen += [k for k in os.environ if 'KEY' in k or 'TOKEN' in k or 'SECRET' in k]
    seen += [p for p in ('/job/inputs/' + digest, '/proc/1/environ', '/job/inputs/inside') if os.path.exists(p)]
    seen += [repr(o)[:80] for o in gc.get_objects() if type(o).__module__.startswith('detent')]
    return seen
"""
    draft = execute(source, parameters={"digest": secret.replace(":", "-")}, limits=LIMITS)
    assert twice(here, draft).outputs.result_json == []


def test_network_and_writing_elsewhere_are_violations_with_their_evidence(here: Backend) -> None:
    """JOB-072, JOB-073"""
    for source, seen in (
        ("import socket\nsocket.create_connection(('1.1.1.1', 53))", "network"),
        ("open('/var/lib/x', 'w')", "/var/lib/x"),
    ):
        result = twice(here, execute(source, limits=LIMITS))
        assert error_of(result) == ("FAILED", "SANDBOX_VIOLATION", "SANDBOX_VIOLATION")
        assert seen in result.logs[0].message


def test_a_payload_at_the_edge_of_its_size_is_answered(here: Backend) -> None:
    """JOB-060: too much source is the payload's fault, not the jail's."""
    result = here.run(execute("#" + "é" * (5 << 20), limits=LIMITS))
    assert error_of(result)[1] == "VALIDATION_ERROR"


# Formulas.


@pytest.mark.parametrize(
    ("latex", "category"),
    [
        ("{" * 5000 + "x" + "}" * 5000, "USER_CODE_ERROR"),
        (r"\sqrt " * 1600 + "x", "USER_CODE_ERROR"),
        (r"\frac{" * 41 + "x" + "}{y}" * 41, "USER_CODE_ERROR"),
        (r"\left(" * 1000, "USER_CODE_ERROR"),
        ("x" * 100_000, "USER_CODE_ERROR"),
        (r"\hspace{99999999em} x", "RESOURCE_LIMIT"),
        (r"\rule{99999em}{99999em}", "RESOURCE_LIMIT"),
        (r"\def\a{\a\a}\a", "USER_CODE_ERROR"),
        ("\x00\x01\ufffe", "USER_CODE_ERROR"),
        (r"\text{&lt;script&gt;}\input{/etc/passwd}", "USER_CODE_ERROR"),
    ],
)
def test_a_formula_that_is_a_bomb_is_refused_or_limited(here: Backend, latex: str, category: str) -> None:
    """JOB-060"""
    pytest.importorskip("ziamath")
    result = twice(here, render(latex, limits=LIMITS))
    assert error_of(result)[1] == category, result.error
    assert result.artifacts == ()


def test_a_formula_that_takes_too_long_meets_its_limit(here: Backend) -> None:
    """JOB-037, X-146"""
    pytest.importorskip("ziamath")
    rows = r"\begin{matrix}" + r"a & b & c \\ " * 500 + r"\end{matrix}"
    result = twice(here, render(rows, limits={**LIMITS, "cpu_ms": 300}))
    assert error_of(result) == ("TIMED_OUT", "RESOURCE_LIMIT", "LIMIT_CPU")


# Documents.


@pytest.mark.parametrize(
    ("source", "category"),
    [
        ('#read("/etc/passwd")', "USER_CODE_ERROR"),
        ('#read("../../etc/passwd")', "USER_CODE_ERROR"),
        ('#include "/../inputs/inside/document.py"', "USER_CODE_ERROR"),
        ('#image("https://example.org/x.png")', "USER_CODE_ERROR"),
        ('#plugin("/usr/lib/x.wasm")', "USER_CODE_ERROR"),
        ('#import "@preview/cetz:0.3.4": canvas', "SANDBOX_VIOLATION"),
        ('#import "@local/x:0.1.0"', "USER_CODE_ERROR"),
        ("#while true {}", "USER_CODE_ERROR"),
        ("#let f(n) = f(n + 1)\n#f(0)", "USER_CODE_ERROR"),
        ("(" * 20_000, None),
        ("#" + "(" * 20_000, "USER_CODE_ERROR"),
    ],
)
def test_a_document_reaches_nothing_but_itself(here: Backend, source: str, category: str | None) -> None:
    """JOB-060, JOB-072"""
    pytest.importorskip("typst")
    result = twice(here, export(source, limits=LIMITS))
    assert (None if result.error is None else error_of(result)[1]) == category, result.error


@pytest.mark.parametrize(
    "source",
    [
        "#let s = 0\n#for i in range(40000000) { s += i }\n#s",
        '#let x = "a"\n#for i in range(40) { x = x + x }\n#x.len()',
    ],
)
def test_a_document_that_never_ends_or_grows_meets_its_limits(here: Backend, source: str) -> None:
    """JOB-037, X-146"""
    pytest.importorskip("typst")
    result = twice(here, export(source, limits=QUICK))
    assert error_of(result)[1] == "RESOURCE_LIMIT", result.error


def test_html_that_could_act_is_given_as_text(here: Backend) -> None:
    """JOB-050"""
    pytest.importorskip("typst")
    result = twice(here, export('#html.elem("script", "x()")', "html", limits=LIMITS))
    assert [one.content_type for one in result.artifacts] == ["text/plain; charset=utf-8"]


def test_a_title_or_text_of_a_document_is_never_code(here: Backend) -> None:
    """JOB-009"""
    pytest.importorskip("typst")
    trick = '"]) #read("/etc/passwd") #panic()'
    document = {
        "title": trick,
        "slides": [{"title": trick, "notes": trick, "blocks": [{"type": "text", "text": trick}]}],
    }
    result = twice(here, export(document, "html", include_speaker_notes=True, limits=LIMITS))
    assert result.status is JobStatus.SUCCEEDED, result.error
    assert here.bytes_of(result)["document.html"].count(b"#read(") >= 4


# Pictures.


def picture_bombs() -> dict[str, tuple[bytes, str]]:
    pixels = zlib.compress(bytes(1000), 9)
    jpeg = b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01\xff\xd9"
    gif = b"GIF89a" + struct.pack("<HH", 65535, 65535) + b"\x80\0\0" + bytes(6)
    gif += b"," + struct.pack("<HHHH", 0, 0, 65535, 65535) + b"\0\x02\x02L\x01\0;"
    laughs = b'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a "hahahahaha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
    laughs += b'<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;"><!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;">]>'
    laughs += b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text>&d;</text></svg>'
    return {
        "a header with 2^31 pixels a side": (png(2**31 - 1, 2**31 - 1, pixels), "RESOURCE_LIMIT"),
        "more pixels than memory": (png(20_000, 20_000, pixels), "RESOURCE_LIMIT"),
        "somewhat more pixels than memory": (png(5000, 5000, pixels), "RESOURCE_LIMIT"),
        "a header that lies about its data": (png(300, 300, pixels), "USER_CODE_ERROR"),
        "no pixels": (png(0, 0, pixels), "VALIDATION_ERROR"),
        "jpeg of 65535 a side": (jpeg, "RESOURCE_LIMIT"),
        "gif of 65535 a side": (gif, "RESOURCE_LIMIT"),
        "svg of laughs": (laughs, "ANY"),
        "svg that is deep": (
            b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">' + b"<g>" * 200_000,
            "ANY",
        ),
        "svg that reads files": (
            b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><image href="/etc/passwd" width="9" height="9"/></svg>',
            "ANY",
        ),
        "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file", "VALIDATION_ERROR"),
    }


@pytest.mark.parametrize("name", picture_bombs())
def test_a_picture_that_is_a_bomb_is_refused_or_limited(here: Backend, name: str) -> None:
    """JOB-010, JOB-060"""
    pytest.importorskip("PIL")
    data, category = picture_bombs()[name]
    result = twice(here, thumbnail(here.put(data), "png", "jpeg", "webp", limits=LIMITS))
    if category != "ANY":
        assert error_of(result)[1] == category, result.error
        assert result.artifacts == ()


def test_a_huge_thumbnail_of_a_small_drawing_is_limited(here: Backend) -> None:
    """JOB-010, JOB-060"""
    pytest.importorskip("PIL")
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
    result = twice(here, thumbnail(here.put(svg), width=16384, height=16384, limits=LIMITS))
    assert error_of(result) == ("FAILED", "RESOURCE_LIMIT", "LIMIT_MEMORY")
    assert result.error is not None
    assert "16384 x 16384 pixels" in result.error.message


def test_a_picture_that_takes_too_long_meets_its_limit(here: Backend) -> None:
    """JOB-037, X-146"""
    pytest.importorskip("PIL")
    data = png(5500, 5500, zlib.compress(bytes(5501 * 5500), 1))
    result = twice(here, thumbnail(here.put(data), limits={**LIMITS, "memory_mb": 512, "cpu_ms": 150}))
    assert error_of(result) == ("TIMED_OUT", "RESOURCE_LIMIT", "LIMIT_CPU")


# A tool that was taken over says what it likes.


@pytest.mark.parametrize(
    ("told", "files", "category"),
    [
        ({"fault": {"kind": "INTERNAL_ERROR", "message": "retry me"}}, {}, "VALIDATION_ERROR"),
        ({"fault": {"kind": "invalid", "message": 5}}, {}, "VALIDATION_ERROR"),
        ({"fault": {"kind": ["invalid"], "message": "x"}}, {}, "VALIDATION_ERROR"),
        ({"fault": {"kind": "invalid", "message": "x", "line": -5, "column": "9"}}, {}, "USER_CODE_ERROR"),
        ({"made": {"formula.svg": {}}}, {}, "VALIDATION_ERROR"),
        ({"made": {"formula.svg": {}, "x": {}}}, {"formula.svg": b"<svg></svg>", "x": b""}, "VALIDATION_ERROR"),
        ({"made": {"formula.svg": {}}}, {"formula.svg": b"<svg onload='x()'></svg>"}, "VALIDATION_ERROR"),
        ({"made": {"formula.svg": {}}}, {"formula.svg": b"\x89PNG\r\n\x1a\n"}, "VALIDATION_ERROR"),
        ([], {}, "VALIDATION_ERROR"),
        (None, {}, "VALIDATION_ERROR"),
    ],
)
def test_a_tool_that_was_taken_over_cannot_choose_how_it_is_read(
    tmp_path: Path, told: Any, files: dict[str, bytes], category: str
) -> None:
    """JOB-060"""
    kept = []
    for number, (name, data) in enumerate(files.items()):
        path = tmp_path / str(number)
        path.write_bytes(data)
        kept.append(OutputFile(name, len(data), b"", path))
    execution = Execution(
        Profile.FULL, Profile.FULL, None, None, "done", result=json.dumps(told).encode(), files=tuple(kept)
    )
    outcome = judge_tool(execution, {"formula.svg": "svg"}, "rendering")
    assert outcome.failure is not None
    assert outcome.failure.category.value == category
    assert outcome.made == ()
    assert "line" not in outcome.failure.details


AS_USER = """
import json, os, sys, tempfile
from pathlib import Path
from tests.hostile import as_user
from detent.executor.runners import missing_tools
from detent.executor.sandbox import Sandbox
from tests.executor.runners.rig import backend, execute, export, render, thumbnail

if os.geteuid() == 0:
    as_user.become_user(as_user.USER)
with tempfile.TemporaryDirectory(prefix="detent-as-user-") as directory:
    tempfile.tempdir = directory
    with Sandbox(warm=1) as supervisor:
        at = backend(supervisor, Path(directory) / "content")
        picture = at.put(b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
        drafts = [
            execute("def main(): return 1"),
            execute("import socket\\nsocket.socket()"),
            render("x^2"),
            render(r"\\foo"),
            export({"blocks": [{"type": "image", "digest": picture}]}),
            export('#import "@preview/cetz:0.3.4": canvas'),
            thumbnail(picture),
            thumbnail(at.put(b"no picture")),
        ]
        ends = []
        for draft in drafts:
            if not missing_tools(draft["job_type"]):
                result = at.run(draft)
                ends.append([draft["job_type"], result.error.category if result.error else None])
        print(json.dumps({"ends": ends, "uid": os.getuid()}))
"""


def test_every_job_type_runs_and_is_contained_for_an_ordinary_user() -> None:
    """JOB-007..JOB-010, JOB-072"""
    if not CONTAINED:
        pytest.skip("no profile here contains untrusted code")
    answer = subprocess.run(
        [sys.executable, "-c", AS_USER],
        env={"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"},
        capture_output=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr.decode()
    found = json.loads(answer.stdout)
    assert found["uid"] != 0
    expected: list[list[str | None]] = [
        ["object_execute", None],
        ["object_execute", "SANDBOX_VIOLATION"],
        ["object_render", None],
        ["object_render", "USER_CODE_ERROR"],
        ["document_export", None],
        ["document_export", "SANDBOX_VIOLATION"],
        ["thumbnail_generate", None],
        ["thumbnail_generate", "VALIDATION_ERROR"],
    ]
    assert found["ends"] == [end for end in expected if not missing_tools(str(end[0]))]
