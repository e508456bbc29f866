"""What goes into a function in a plain process, and what comes out of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from detent.canon import digest_text
from detent.errors import InvalidInput
from detent.jobs.order import Origin
from detent.jobs.values import escaped, result_reference
from tests.executor.plain.rig import BASE, VALUE_BYTES_MAX, Rig, failure, value

USER = "USER_CODE_ERROR"


def test_a_function_gets_its_arguments_and_gives_its_value(rig: Rig) -> None:
    done = rig.run("same", 1, 2.5, None, named={"text": "é", "flag": True})
    assert value(done) == [[1, 2.5, None], {"flag": True, "text": "é"}]
    assert (done.status, done.failure, done.stdout.data, done.stderr.data) == ("SUCCEEDED", None, b"", b"")
    assert not done.lost
    assert 0 < done.started_ms <= done.finished_ms
    assert done.usage.memory_bytes_peak > 1_000_000


def test_a_value_is_strict_json_with_sorted_keys(rig: Rig) -> None:
    """X-170"""
    assert rig.run("same", named={"b": 0.1, "a": "\n"}).value == b'[[],{"a":"\\n","b":0.1}]'


def test_results_of_other_work_stand_in_for_their_references(rig: Rig, tmp_path: Path) -> None:
    first, second = digest_text(b"a" * 32), digest_text(b"b" * 32)
    (tmp_path / "value").write_bytes(b'{"$$deep":[{"$result":"' + first.encode() + b'"}]}')
    given = {"$result": second}
    done = rig.run("same", result_reference(first), given, values={first: b"41", second: tmp_path / "value"})
    assert value(done) == [[41, {"$$deep": [41]}], {}]


def test_a_result_that_did_not_come_along_is_a_dependency_error(rig: Rig) -> None:
    done = rig.run("same", result_reference(digest_text(b"a" * 32)))
    assert failure(done) == ("DEPENDENCY_ERROR", "DEPENDENCY_MISSING")


def test_keys_that_look_like_references_pass_unchanged(rig: Rig) -> None:
    """X-177"""
    plain = {"$file": "no file", "$": 1, "$$x": {"$result": 2}}
    assert value(rig.run("same", escaped(plain))) == escaped([[plain], {}])


def test_arguments_and_values_of_any_size_pass(rig: Rig) -> None:
    text = "x" * 300_000
    assert value(rig.run("double", text)) == text + text
    assert value(rig.run("long_list")) == list(range(100_000))
    assert [path.name for path in rig.live.iterdir() if "task" in path.name] == []


def test_decorated_async_and_nested_functions_are_called(rig: Rig) -> None:
    assert value(rig.run("decorated", 1)) == 2
    assert value(rig.run("later", 21)) == 42
    assert value(rig.run("Tools.inner")) == "inner"
    assert value(rig.run("builtins:sum", [1, 2])) == 3


def test_a_script_is_loaded_by_path_and_not_as_main(rig: Rig) -> None:
    """X-179"""
    _, cwd, loaded_as, main, _ = value(rig.run("work.py:surroundings", "X"))
    assert (cwd, loaded_as, main) == (BASE, "work", "__main__")
    assert value(rig.run("plain/work.py:surroundings", "X", base=str(Path(BASE).parent)))[2] != "__main__"


def test_environment_and_directory_are_the_tasks_own(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    done = rig.run("work.py:surroundings", "MINE", env={"MINE": "1"}, cwd=str(tmp_path / "below"))
    assert value(done)[:2] == ["1", str(tmp_path / "below")]
    assert value(rig.run("surroundings", "MINE"))[:2] == [None, BASE]


def test_what_a_task_does_to_its_environment_ends_with_it(rig: Rig) -> None:
    for _ in range(2):
        rig.run("spoil")
    for _ in range(4):
        assert value(rig.run("surroundings", "SPOILT"))[:2] == [None, BASE]
        assert value(rig.run("surroundings", "HOME"))[0] is not None


def test_a_missing_directory_is_named(rig: Rig) -> None:
    done = rig.run("nothing", cwd="nowhere")
    assert failure(done) == (USER, "DIRECTORY_MISSING")
    assert done.failure is not None
    assert f"{BASE}/nowhere" in done.failure.message


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("nan", "result[0] is nan, which JSON cannot hold"),
        ("key", "result has the key (1, 2), and a tuple cannot be a key in JSON"),
        ("object", "result is an object, which has no JSON form"),
        ("deep", "is nested deeper than 64"),
        ("surrogate", "result is text with a lone surrogate"),
        ("integer", "result is an integer of more than 2048 bits"),
    ],
)
def test_a_value_that_is_not_json_is_refused_by_its_place(rig: Rig, kind: str, said: str) -> None:
    """X-139, X-170"""
    done = rig.run("answer", kind)
    assert failure(done) == (USER, "RESULT_NOT_JSON")
    assert done.failure is not None
    assert said in done.failure.message
    assert "; return " in done.failure.message


def test_a_tuple_comes_back_as_a_list(rig: Rig) -> None:
    """Functions return tuples all the time; their place in a value loses nothing by being a list's."""
    assert value(rig.run("answer", "tuple")) == {"a": [1, {"b": [1, 2]}]}


def test_a_value_that_is_too_large_is_refused_and_told_what_to_do(rig: Rig) -> None:
    done = rig.run("answer", "huge")
    assert failure(done) == ("RESOURCE_LIMIT", "RESULT_TOO_LARGE")
    assert done.failure is not None
    assert f"2000002 bytes as JSON, and {VALUE_BYTES_MAX} are allowed" in done.failure.message
    assert "detent.File" in done.failure.message


def test_files_come_and_go_by_digest(rig: Rig, tmp_path: Path) -> None:
    """X-170"""
    made = value(rig.run("make_files", cwd=str(tmp_path)))
    digest = hashlib.sha256(b"from a path").hexdigest()
    assert made["path"] == {"$file": f"sha256:{digest}", "size": 11, "name": "made.txt", "type": "text/plain"}
    assert (rig.content / digest[:2] / digest[2:]).read_bytes() == b"from a path"
    assert made["$$list"][0]["name"] == "b.bin"
    text, name, size, named, again, kind = value(rig.run("read_file", made["path"]))
    assert (text, name, size, named, again, kind) == (
        "from a path",
        "made.txt",
        11,
        f"sha256:{digest}",
        "from a path",
        "text/plain",
    )
    assert value(rig.run("hand_on", made["path"])) == made["path"]


def test_a_file_that_is_not_there_fails_the_task_that_returns_it(rig: Rig) -> None:
    done = rig.run("missing_file")
    assert failure(done) == (USER, "PYTHON_EXCEPTION")
    assert done.failure is not None
    assert "nowhere.txt" in done.failure.message


def test_declared_outputs_of_a_function_are_kept(rig: Rig, tmp_path: Path) -> None:
    """X-175"""
    outputs = {"all": "sub/*.txt", "one": "sub/ä.txt"}
    rig.run("leave", "sub/b.txt", "b", cwd=str(tmp_path))
    done = rig.run("leave", "sub/ä.txt", "a", cwd=str(tmp_path), outputs=outputs)
    assert [(made.output, made.name, made.size_bytes) for made in done.files] == [
        ("all", "sub/b.txt", 1),
        ("all", "sub/ä.txt", 1),
        ("one", "sub/ä.txt", 1),
    ]
    assert done.files[0].digest == hashlib.sha256(b"b").digest()
    assert value(done) is None


def test_a_declared_output_that_is_missing_fails_the_task(rig: Rig, tmp_path: Path) -> None:
    """X-175"""
    for pattern in ("none.txt", "none*", "."):
        done = rig.run("nothing", cwd=str(tmp_path), outputs={"wanted": pattern})
        assert failure(done) == (USER, "OUTPUT_MISSING")
        assert done.failure is not None
        assert "'wanted'" in done.failure.message


def test_a_content_store_that_fails_is_not_the_tasks_failure(tmp_path: Path) -> None:
    """X-163"""
    rig = Rig(tmp_path, workers=1)
    (tmp_path / "content").write_text("no directory")
    done = rig.run("leave", "x.txt", "x", cwd=str(tmp_path), outputs={"x": "x.txt"})
    assert failure(done) == ("INTERNAL_ERROR", "CONTENT_UNAVAILABLE")
    assert failure(rig.run("make_files", cwd=str(tmp_path))) == ("INTERNAL_ERROR", "CONTENT_UNAVAILABLE")
    rig.pool.close()


def test_the_context_names_run_job_attempt_step_and_token(rig: Rig) -> None:
    origin = Origin(run_id="run-1", step="step", index=0)
    said = value(rig.run("about", job_id="job-1", attempt_id=2, origin=origin))
    assert said == ["job-1", "run-1", 3, "job-1", "step", 0, False]
    with pytest.raises(InvalidInput, match="zero byte"):
        rig.submit("about", job_id="j\0k")
    assert value(rig.run("about", job_id="j")) == ["j", None, 1, "j", None, None, False]


def test_progress_reaches_the_supervisor_and_not_too_often(rig: Rig) -> None:
    number = rig.submit("step_by_step")
    rig.result(number)
    assert [(said.number, said.fraction, said.message) for said in rig.said] == [
        (number, 0.25, "a quarter"),
        (number, 1.0, "all"),
    ]
    assert failure(rig.run("wrong_progress")) == (USER, "PYTHON_EXCEPTION")


def test_output_is_captured_with_the_task_that_wrote_it(rig: Rig) -> None:
    done = rig.run("speak", "öut", "err\n")
    assert (done.stdout.data, done.stderr.data, done.stdout.truncated) == ("öut\n".encode(), b"err\n", False)
    assert rig.run("speak_outside", "from a program").stdout.data == b"from a program\n"
    for _ in range(3):
        assert rig.run("nothing").stdout.data == b""


def test_memory_is_counted_for_each_task(rig: Rig) -> None:
    one = Rig(rig.live.parent / "other", workers=1)
    try:
        before = one.run("nothing").usage.memory_bytes_peak
        assert one.run("use_memory", 200_000_000).usage.memory_bytes_peak > 200_000_000
        one.run("nothing")
        assert one.run("nothing").usage.memory_bytes_peak < before + 100_000_000
    finally:
        one.pool.close()


def test_two_projects_may_have_modules_of_one_name(rig: Rig, tmp_path: Path) -> None:
    one = Rig(tmp_path / "home", workers=1)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(f"import part\ndef which(): return part.NAME + {name!r}\n")
        (tmp_path / name / "part.py").write_text(f"NAME = {name!r}\n")
    try:
        found = [value(one.run("mine:which", base=str(tmp_path / name))) for name in ("a", "b", "a", "b")]
        assert found == ["aa", "bb", "aa", "bb"]
    finally:
        one.pool.close()


def test_a_pool_refuses_work_of_another_kind(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="python and shell"):
        rig.submit("x:y", kind="map")
    assert rig.run("nothing").ok
