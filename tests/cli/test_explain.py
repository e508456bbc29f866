"""`detent explain`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Cli
from tests.cli.project import Project, detent_home, project
from tests.inspect.explained import Stage
from tests.owner.processes import surroundings
from tests.scheduling.fleets import needs, replica

__all__ = ["detent_home", "project"]

KEYS = ["job_id", "state", "as_of", "now", "waiting", "head", "ahead", "ahead_total", "story", "reuse", "reason"]
KEYS += ["resources", "limits", "ledger"]
CHAPTER_KEYS = [
    *("tick", "at", "what", "why", "attempt", "records", "times"),
    *("decision_digest", "decision_content", "decision", "replicas"),
]


def test_a_page_says_first_what_a_job_waits_for_and_then_how_it_came_there(cli: Cli) -> None:
    assert cli("explain", "waiting").out == (
        "job waiting  queued  as of 2023-11-14 22:14:00.000 UTC\n"
        "  It waits for a worker: the next one that asks gets it.\n"
        "  It is next: number 1 of class 5, with no jobs before it.\n"
        "  No process is working on this home; nothing moves until one opens it.\n"
        "\n"
        "2023-11-14 22:14:00.000  submitted\n"
        "    It was admitted: no replica is registered, so the first worker to ask takes it.\n"
        "    It was number 1 in class 5, with no jobs before it.\n"
    )


def test_a_long_life_is_told_in_order_with_times_and_no_ticks(cli: Cli) -> None:
    out = cli("explain", "slow").out
    assert out.startswith("job slow  succeeded")
    assert "It succeeded at attempt 2, at 2023-11-14 22:14:00.000 UTC." in out
    assert "2023-11-14 22:13:50.000  running -> retrying\n    worker-a gave no sign of life in time" in out
    assert "queued -> running, attempt 2\n    It was given to worker-a: it asked first" in out
    assert "tick" not in out
    assert "\x1b" not in out


def test_what_ended_is_told_with_its_reason(cli: Cli) -> None:
    assert "(BAD_INPUT, VALIDATION_ERROR)" in cli("explain", "broken").out
    assert "while it waited in the queue (CANCELLED_BY_USER: cancelled on request)" in cli("explain", "dropped").out


def test_json_is_one_document_with_the_same_keys_for_every_state(cli: Cli) -> None:
    documents = {name: cli.json("explain", name) for name in ("waiting", "slow", "broken", "dropped", "done")}
    for name, document in documents.items():
        assert list(document) == KEYS
        assert document["job_id"] == name
        assert all(list(chapter) == CHAPTER_KEYS for chapter in document["story"])
    waiting = documents["waiting"]
    assert waiting["waiting"]["reason"] == "ANY_WORKER"
    assert waiting["as_of"] == "2023-11-14T22:14:00.000Z"
    (chapter,) = waiting["story"]
    assert chapter["decision"]["kind"] == "admitted"
    assert chapter["decision_content"] == "here"
    assert chapter["decision_digest"].startswith("sha256:")
    assert documents["slow"]["waiting"] is None


def test_an_unknown_job_is_bad_input_with_a_hint(cli: Cli) -> None:
    result = cli("explain", "nix", "-o", "json")
    assert (result.code, result.document["error"]["code"]) == (2, "UNKNOWN_JOB")
    assert "there is no job, run or step 'nix'" in result.err
    assert "`detent list --jobs` show all" in result.err
    result = cli("explain", "run-1")
    assert result.code == 2
    assert "what run 'run-1' was started with was never stored here, so its steps cannot be told" in result.err
    assert "`detent show run-1` lists its jobs" in result.err


def test_a_refused_job_is_explained_as_refused(cli: Cli, tmp_path: Path) -> None:
    """X-182"""
    with Stage(tmp_path / "full", "capacity_per_class = 1") as stage:
        stage.submit("first")
        for _ in range(3):
            stage.refuse("second")
    home = str(stage.home.path)
    out = cli("explain", "second", "--home", home).out
    assert out.startswith("job second  refused")
    assert "submission refused, 3 times in a row\n    It was refused (QUEUE_FULL): the queue has no room" in out
    document = cli.json("explain", "second", "--home", home)
    assert (document["state"], document["story"][0]["times"]) == (None, 3)
    assert document["story"][0]["decision"]["facts"]["waiting_in_class"] == 1


def test_a_job_is_explained_while_another_process_owns_the_home(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.submit("first", "second")
        stage.claim()
        found = subprocess.run(
            [sys.executable, "-m", "detent", "explain", "second", "--home", str(stage.home.path), "-o", "json"],
            env=surroundings(),
            capture_output=True,
            check=True,
            timeout=60,
        )
        stage.submit("third")
    document = json.loads(found.stdout)
    assert document["now"] == [
        "It waits for a worker: the next one that asks gets it.",
        "It is next: number 1 of class 5, with no jobs before it.",
    ]


def test_long_lists_are_cut_on_the_page_and_whole_in_json(cli: Cli, tmp_path: Path) -> None:
    with Stage(tmp_path / "long") as stage:
        stage.submit("job", max_retries=20)
        for _ in range(10):
            stage.fail(stage.claim())
            stage.pass_ms(4_000)
        stage.submit(*(f"other-{number:02}" for number in range(15)))
        stage.submit("last")
    home = str(stage.home.path)
    out = cli("explain", "job", "--home", home).out
    assert "... 19 events between: `-o json` has all\n" in out
    assert out.count("running -> retrying") == 4
    assert len(cli.json("explain", "job", "--home", home)["story"]) == 31
    out = cli("explain", "last", "--home", home).out
    assert "  Before it: job, other-00, other-01, " in out
    assert ", other-08 and 6 more.\n" in out


def test_every_replica_is_listed_when_asked_for(cli: Cli, tmp_path: Path) -> None:
    """CORE-X012, CORE-X019, X-181"""
    with Stage(tmp_path / "fleet") as stage:
        stage.register(replica("a"), replica("b"), replica("far", pool_id="pool-b"), replica("off", ready=False))
        stage.submit("job", asks={"requirements": needs()})
        stage.dispatch()
    home = str(stage.home.path)
    assert "All that was looked at" not in cli("explain", "job", "--home", home).out
    out = cli("explain", "job", "--replicas", "--home", home).out
    assert out.endswith(
        "    All that was looked at, in order:\n"
        "      1. a: 1000 MB free, 0 slots taken, chosen\n"
        "      2. b: 1000 MB free, 0 slots taken, lost by name\n"
        "      3. far: 1000 MB free, 0 slots taken, in another pool\n"
        "      4. off: 1000 MB free, 0 slots taken, not ready\n"
    )
    placed = cli.json("explain", "job", "--replicas", "--home", home)["story"][1]
    assert placed["replicas"][2] == {
        "replica_id": "far",
        "free_vram_mb": 1000,
        "active_slots": 0,
        "removed_by": "pin",
    }


def test_the_page_in_the_documentation_is_what_is_printed(cli: Cli, tmp_path: Path) -> None:
    with Stage(tmp_path / "documented") as stage:
        stage.register(
            replica("gpu-a", free_vram_mb=24_000, max_slots=1),
            replica("gpu-b", free_vram_mb=16_000, max_slots=1),
            replica("gpu-c", ready=False),
            replica("gpu-d", ctx_max_supported=1_024),
        )
        stage.submit("summary-1", "summary-2", "summary-3", "summary-4", asks={"requirements": needs()})
        stage.clock.jump(250)
        stage.dispatch()
        page = (Path(__file__).parents[2] / "docs" / "explain.md").read_text()
        for name in ("summary-4", "summary-1"):
            shown = f"$ detent explain {name}\n{cli('explain', name, '--home', str(stage.home.path)).out}"
            assert f"```console\n{shown}```" in page, shown


WAITING = """\
name: waiting
steps:
  - {id: first, run: {python: "tasks:wait"}}
  - {id: last, needs: [first], run: {python: "tasks:numbers", with: {count: 1}}}
"""


def test_a_step_that_has_not_begun_is_found_by_its_name(project: Project) -> None:
    """It has no job yet; the contract that the run was started with knows it."""
    project.write("waiting.yaml", WAITING)
    terminal = project.terminal("run", "waiting.yaml", "-w", "1")
    project.wait_running()
    out = project("explain", "last").out
    assert out.endswith("last  waiting\n    It waits for first.\n")
    assert project("show", "last").out.startswith(f"run {project.newest()}  running\n")
    logs = project("logs", "last")
    assert (logs.code, logs.out) == (0, "")
    assert (
        logs.err == f"step 'last' of run {project.newest()} has no jobs yet: `detent explain` says what it waits for\n"
    )
    project.release()
    assert terminal.ended().code == 0
