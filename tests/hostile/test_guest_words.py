"""Whatever a guest says, on whichever descriptor it holds, is at worst a failed attempt of that guest (C1 to C6, X-163).

The words come in at two doors: the result pipe of a jail, and the socket of a plain worker, which a function of the user's own
shares its process with. Neither may end the process that owns the ledger, and a home that such words once stopped goes on.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detent.canon import encode
from detent.executor.plain import wire
from detent.executor.sandbox import Execution, Job, Sandbox, classify
from detent.workers import reports
from tests.cli.project import Project, detent_home, project
from tests.executor.plain.rig import Rig
from tests.hostile.payloads import SMALL
from tests.hostile.rig import run

__all__ = ["detent_home", "project"]

HUGE = 2**64
POISONS = {
    "a syntax error in column 2^64": b'E{"chain":[{"type":"X","frames":[],"syntax":[1,18446744073709551616]}]}\n"m"',
    "a syntax error in line 2^64": b'E{"chain":[{"type":"X","frames":[],"syntax":[18446744073709551616,1]}]}\n"m"',
    "a syntax error in a negative column": b'E{"chain":[{"type":"X","frames":[],"syntax":[1,-99999999999999999999]}]}\n"m"',
    "a place in line 2^64": b'E{"chain":[{"type":"X","frames":[["bad.py",18446744073709551616,1,"f"]]}]}\n"m"',
    "a place in column 2^64": b'E{"chain":[{"type":"X","frames":[["bad.py",1,18446744073709551616,"f"]]}]}\n"m"',
    "a type with half a character": b'E{"chain":[{"type":"\\ud800","frames":[]}]}\n"m"',
    "a message with half a character": b'E{"chain":[{"type":"X","frames":[]}]}\n"\\udfff"',
    "a chain inside a chain": b'E{"chain":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "a value that is no JSON": b'R{"a":NaN}',
}
SPEAKING_JAIL = """\
import os
def main():
    os.write(3, bytes.fromhex({words!r}))
    os._exit(0)
"""
CONTRACT = """\
name: words
steps:
  - id: bad
    run:
      code: |
{code}
"""


def contract(source: str) -> str:
    return CONTRACT.format(code="\n".join(f"        {line}" for line in source.splitlines()))


@pytest.mark.parametrize("words", POISONS.values(), ids=POISONS)
def test_a_guests_words_fail_its_own_attempt_and_the_owner_goes_on(project: Project, words: bytes) -> None:
    """C4, C5: typed, not retried as an internal error, and the second run is like the first."""
    project.write("words.yaml", contract(SPEAKING_JAIL.format(words=words.hex())))
    for _ in range(2):
        document = project.run("words.yaml", code=1)
        (failure,) = document["failures"]
        assert failure["category"] in {"VALIDATION_ERROR", "USER_CODE_ERROR"}, failure
        assert failure["attempts"] == 1
        assert project("explain", failure["job_id"]).code == 0
        assert project("show", failure["job_id"]).code == 0


def test_a_home_that_such_words_stopped_goes_on(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner once ended while it recorded the attempt; the run is taken up and comes to its end."""
    project.write("words.yaml", contract(SPEAKING_JAIL.format(words=POISONS["a syntax error in column 2^64"].hex())))
    with monkeypatch.context() as before:
        before.setattr(classify, "_PLACE_MAX", 2**80)
        before.setattr(reports, "_writable", lambda report: (report, report.body()))
        stopped = project("run", "words.yaml", "-w", "1")
    assert (stopped.code, "INVARIANT_VIOLATION" in stopped.err) == (1, True), stopped.err
    document = project.run("words.yaml", code=1)
    assert document["failures"][0]["code"] == "RESULT_INVALID"


def test_words_that_no_record_can_hold_are_a_failed_attempt_even_if_no_check_knows_them(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line: what passes every check at the door and still cannot be encoded fails the attempt."""
    monkeypatch.setattr(classify, "_PLACE_MAX", 2**80)
    project.write("words.yaml", contract(SPEAKING_JAIL.format(words=POISONS["a syntax error in column 2^64"].hex())))
    document = project.run("words.yaml", code=1)
    error = document["failures"][0]
    assert (error["category"], error["code"]) == ("VALIDATION_ERROR", "RESULT_INVALID")
    assert "cannot be recorded" in error["message"]


NUMBERS = st.integers(-(2**70), 2**70)
TEXTS = st.text(st.characters(), max_size=20)
PLACES = st.lists(st.one_of(TEXTS, NUMBERS, st.none()), max_size=5)
LINKS = st.fixed_dictionaries(
    {"type": st.one_of(TEXTS, NUMBERS), "frames": st.one_of(st.lists(PLACES, max_size=3), st.none())},
    optional={"syntax": st.one_of(st.lists(NUMBERS, min_size=2, max_size=2), NUMBERS, st.none())},
)
ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
STORIES = st.builds(
    lambda chain, message: b"E" + json.dumps({"chain": chain}).encode() + b"\n" + json.dumps(message).encode(),
    st.lists(LINKS, max_size=3),
    ANY_JSON,
)
WORDS = st.one_of(
    st.binary(max_size=200),
    STORIES,
    st.builds(lambda value: b"R" + json.dumps(value).encode(), ANY_JSON),
    st.builds(lambda value: b"E" + json.dumps(value).encode(), ANY_JSON),
)


def recorded(execution_words: classify.Told) -> None:
    """Put what was told into the form of a record; raises if it has none."""
    raised = execution_words.raised
    if raised is not None:
        encode([raised.type, raised.message, raised.traceback, raised.line, raised.column])


@given(words=WORDS)
def test_whatever_a_result_pipe_says_has_a_form_in_a_record(words: bytes) -> None:
    """C5: every story, however it was written, is read or refused, and what was read can be recorded."""
    recorded(classify.read_python(words, source="a\nb\n", filename="main.py"))
    recorded(classify.read_value(words))


SPEAKING_EVERYWHERE = """\
import os
def main(words, status):
    for number in range(20):
        try:
            os.write(number, bytes.fromhex(words))
        except OSError:
            pass
    os._exit(status)
"""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(words=WORDS, status=st.sampled_from((0, 1, 255)))
def test_a_guest_that_writes_to_every_descriptor_it_holds_fails_itself_at_worst(
    supervisor: Sandbox, words: bytes, status: int
) -> None:
    """C5: no word on any descriptor makes an INTERNAL_ERROR."""
    parameters = {"words": words.hex(), "status": status}
    job = Job(source=SPEAKING_EVERYWHERE, entry="main", parameters=parameters, limits=SMALL)
    execution: Execution = run(supervisor, job)
    category = None if execution.category is None else execution.category.value
    assert category in {None, "USER_CODE_ERROR", "VALIDATION_ERROR"}, execution.message


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("home"), workers=1)
    yield rig
    rig.pool.close()


def done(flags: int = 0, *, counts: int = 0, value: bytes = b"", error: bytes = b"", files: bytes = b"") -> bytes:
    """A result as a worker writes it, behind its kind and number."""
    message = wire.write_done(
        (0, flags, counts, counts, counts, counts, counts, counts), (value, error, b"", b"", files)
    )
    return message[wire.SHORT.size :]


ERRORS = st.one_of(
    st.binary(max_size=30),
    st.builds(lambda value: json.dumps(value).encode(), ANY_JSON),
    st.builds(
        lambda more: json.dumps({"category": "USER_CODE_ERROR", "code": "X", "message": "m", **more}).encode(),
        st.fixed_dictionaries(
            {},
            optional={
                name: st.one_of(TEXTS, NUMBERS, st.none())
                for name in ("category", "code", "message", "type", "traceback", "line", "column", "text", "extra")
            },
        ),
    ),
)
FILES = st.one_of(
    st.just(b""),
    st.binary(max_size=30),
    st.builds(lambda rows: json.dumps(rows).encode(), st.lists(st.lists(st.one_of(TEXTS, NUMBERS), max_size=6))),
)
RESULTS = st.builds(
    lambda flags, counts, value, error, files: done(flags, counts=counts, value=value, error=error, files=files),
    st.integers(0, 31),
    st.integers(0, HUGE - 1),
    st.one_of(st.binary(max_size=30), st.builds(lambda value: json.dumps(value).encode(), ANY_JSON)),
    ERRORS,
    FILES,
)
MESSAGES = st.tuples(
    st.one_of(st.none(), st.integers(0, 255), st.just(wire.DONE)),
    st.one_of(st.none(), st.integers(0, HUGE - 1)),
    st.one_of(st.binary(max_size=60), RESULTS, st.builds(lambda number: struct.pack("<d", number), st.floats())),
)


@given(words=st.lists(MESSAGES, min_size=1, max_size=3), knowing=st.booleans())
def test_a_task_that_writes_to_its_own_workers_socket_fails_itself_at_worst(
    plain: Rig, words: list[tuple[int | None, int | None, bytes]], knowing: bool
) -> None:
    """JOB-083, X-179: one end for the task, in a form that a record can hold; the next task runs as ever."""
    ended = plain.run("speak_for_the_worker", [[kind, other, rest.hex()] for kind, other, rest in words], knowing)
    failure = ended.failure
    if failure is not None:
        encode([failure.message, failure.type, failure.traceback, failure.line, failure.column])
        assert not ended.lost
    encode([[made.output, made.name, made.digest, made.size_bytes, made.content_type] for made in ended.files])
    usage = ended.usage
    encode([usage.cpu_ms, usage.wall_ms, usage.memory_bytes_peak, usage.io_bytes_read, usage.io_bytes_written])
    assert plain.run("double", "a").value == b'"aa"'


def test_what_a_task_says_behind_a_forged_end_is_not_the_next_tasks_fault(plain: Rig, tmp_path: Path) -> None:
    """X-179: words that lie unread while the next task runs on the same worker are those of the task that wrote them."""
    plain.restart()
    mark, gate = tmp_path / "begun", tmp_path / "gate"
    forged = done(wire.OK, value=b'"forged"').hex()
    first = plain.submit("speak_for_the_worker", [[wire.DONE, None, forged], [77, None, ""]])
    plain.look(60.0)
    second = plain.submit("mark_and_wait", str(mark), str(gate))
    deadline = time.monotonic() + 20.0
    while first in plain.done and not mark.exists() and time.monotonic() < deadline:
        time.sleep(
            0.01
        )  # The forged end was taken for one: the second task begins while words of the first lie unread.
    plain.look(1.0)
    gate.touch()
    assert plain.result(second).value == b'"on"'
    ended = plain.done[first].failure
    assert ended is not None
    assert ended.code == "CHANNEL_MISUSED"


def test_no_task_ends_another_that_waits_behind_it(plain: Rig, tmp_path: Path) -> None:
    """X-179: the numbers of tasks can be guessed; a guess is no end."""
    plain.restart()
    for _ in range(8):
        plain.run("double", "a")  # Quick tasks, so that the next ones wait in the worker's socket.
    forged = done(wire.OK, value=b'"forged"').hex()
    first = plain.task("speak_for_the_worker", [])
    words = [[wire.DONE, first.number + ahead, forged] for ahead in (1, 2)]
    first = replace(first, order=replace(first.order, call=replace(first.order.call, arguments=(words,))))
    plain.pool.submit(first)
    others = [plain.submit("double", name) for name in ("b", "c")]
    assert [plain.result(one).value for one in others] == [b'"bb"', b'"cc"']


FORGES = '''\
import os
import stat
import struct
import time

FORGED = bytes.fromhex("{forged}")


def double(n):
    """Answer for those that wait behind it."""
    from detent.executor.plain import current

    if n >= 20:
        time.sleep(0.02)  # Long enough that others wait behind it, short enough that they do.
    for ahead in range(1, 5) if n >= 20 else ():
        for name in os.listdir("/proc/self/fd"):
            try:
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    os.write(int(name), struct.pack("<BQ", 3, current.running().number + ahead) + FORGED)
            except OSError:
                pass
    return 2 * n
'''


def test_an_element_that_answers_for_others_changes_none_of_them(project: Project) -> None:
    """X-179: through the command line; every other element has its own value."""
    project.write("forges.py", FORGES.replace("{forged}", done(wire.OK, value=b"-1").hex()))
    project.write(
        "forges.yaml",
        """\
name: forges
params: {numbers: []}
steps:
  - id: double
    map: {n: {$param: numbers}}
    chunk: 1
    on_error: continue
    retry: 0
    run: {python: "forges:double"}
result: {$from: double}
""",
    )
    said = project("run", "forges.yaml", "-w", "1", "-o", "json", "-p", f"numbers={list(range(60))}")
    document = json.loads(said.out)
    failed = {one["index"] for one in document["failures"]}
    assert failed <= set(range(20, 60)), document
    assert {one["code"] for one in document["failures"]} <= {"CHANNEL_MISUSED"}, document
    assert -1 not in (document.get("result") or []), document


MISUSE = '''\
import os
import stat
import struct
import sys


def misuse(kind, words):
    """Answer in the worker's own name, before the worker does."""
    from detent.executor.plain import current

    frame = sys._getframe()
    while not hasattr(frame.f_locals.get("self"), "token"):
        frame = frame.f_back
    token = frame.f_locals["self"].token  # It shares the worker's process, so it finds what the worker knows.
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                message = struct.pack("<BQ", kind, current.running().number) + bytes.fromhex(words)
                os.write(int(name), message + token)
        except OSError:
            pass
'''
BROKEN = {
    "a line of 2^64": (
        wire.DONE,
        done(error=b'{"category":"USER_CODE_ERROR","code":"X","message":"","line":18446744073709551616}'),
    ),
    "a category of its own": (wire.DONE, done(error=b'{"category":"MINE","code":"X","message":""}')),
    "a code that no record takes": (
        wire.DONE,
        done(error=b'{"category":"USER_CODE_ERROR","code":"no code","message":""}'),
    ),
    "a value that is no JSON": (wire.DONE, done(wire.OK, value=b"{")),
    "a value that names no file": (wire.DONE, done(wire.OK, value=b'{"$file":"x"}')),
    "a value that names a result": (wire.DONE, done(wire.OK, value=b'{"$result":"x"}')),
    "half a result": (wire.DONE, b"\x01"),
    "a result in a file that is not there": (wire.DONE_IN_FILE, b""),
    "a message of no kind": (77, b""),
    "a file without a digest": (wire.DONE, done(wire.OK, value=b"1", files=b'[["a","a","",1,"t"]]')),
}


@pytest.mark.parametrize(("kind", "words"), BROKEN.values(), ids=BROKEN)
def test_a_function_that_speaks_for_its_worker_fails_and_the_owner_goes_on(
    project: Project, kind: int, words: bytes
) -> None:
    """X-179: through the command line, twice."""
    project.write("misuse.py", MISUSE)
    contract = f"""\
name: misuse
steps:
  - id: bad
    run: {{python: "misuse:misuse", with: {{kind: {kind}, words: "{words.hex()}"}}}}
"""
    project.write("misuse.yaml", contract)
    for _ in range(2):
        document: dict[str, Any] = project.run("misuse.yaml", code=1)
        error = document["failures"][0]
        assert (error["category"], error["code"]) == ("USER_CODE_ERROR", "CHANNEL_MISUSED"), error


def test_a_number_as_large_as_there_is_is_cut_where_it_enters(project: Project) -> None:
    """What a function says that it used is added up in the ledger: no number makes a sum overflow."""
    words = done(wire.OK, counts=HUGE - 1, value=b"1")
    project.write("misuse.py", MISUSE)
    project.write(
        "misuse.yaml",
        f'name: misuse\nsteps:\n  - id: bad\n    run: {{python: "misuse:misuse", '
        f'with: {{kind: {wire.DONE}, words: "{words.hex()}"}}}}\n',
    )
    document = project.run("misuse.yaml")
    assert document["jobs"]["done"] == 1
