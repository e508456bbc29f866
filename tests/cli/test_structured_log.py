"""`[log] to`: a JSON line for every attempt that is dispatched and every one that is over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from detent.scheduling import LOG_FIELDS
from tests.cli.project import WAIT_SECONDS, Project, detent_home, eventually, project
from tests.cli.test_metrics import WAITS, configure

__all__ = ["detent_home", "project"]

RETRIED = """
name: retried
steps:
  - {id: good, run: {python: "tasks:double", with: {n: 2}}}
  - {id: broken, run: {shell: "exit 3"}, retry: {max: 1, on: [USER_CODE_ERROR]}}
"""


def lines(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(isinstance(line, dict) for line in found)
    return found


def test_every_dispatch_and_finish_is_a_line_with_all_eleven_fields(project: Project) -> None:
    """OC-CORE-1040, X-020: null where a field does not apply to a job without a model."""
    log = project.directory / "log.jsonl"
    configure(project, "log", f'to = "{log}"')
    configure(project, "backoffs", "quick = [0]")
    settings = project.home.path / "config.toml"
    settings.write_text(settings.read_text().replace("default = [1000, 2000, 4000]", "default = [0]"))
    project.run(project.write("retried.yaml", RETRIED), code=1)
    written = lines(log)
    jobs = {job["step"]: job["job_id"] for job in project.json("list", "--jobs")}
    told = [(line["job_id"], line["event"], line["attempt"], line.get("state")) for line in written]
    assert sorted(told) == sorted(
        [
            (jobs["good"], "dispatch", 1, None),
            (jobs["good"], "finish", 1, "succeeded"),
            (jobs["broken"], "dispatch", 1, None),
            (jobs["broken"], "finish", 1, "retrying"),
            (jobs["broken"], "dispatch", 2, None),
            (jobs["broken"], "finish", 2, "failed"),
        ]
    )
    for line in written:
        assert [name for name in line if name in LOG_FIELDS] == list(LOG_FIELDS)
        assert line["run_id"] == project.newest()
        assert line["replica_id"].startswith("local/")
        assert line["queue_time_ms"] >= 0
        unknown = ("session_id", "engine", "pool_id", "model_id", "quant", "ctx", "kv_warmth", "decode_time_ms")
        assert {name: line[name] for name in unknown} == dict.fromkeys(unknown)
    failed = next(line for line in written if line.get("state") == "failed")
    assert (failed["reason_code"], failed["run_time_ms"] >= 0) == ("SHELL_EXIT", True)


def test_the_log_goes_to_standard_error_when_the_settings_say_so(project: Project) -> None:
    configure(project, "log", 'to = "stderr"')
    ended = project.terminal(
        "run",
        project.write("waits.yaml", WAITS.replace("wait", "unclear").replace("}}", ", with: {n: 1}}}")),
        "-w",
        "1",
        "-o",
        "json",
    ).ended()
    assert ended.code == 0, ended.err
    events = [json.loads(line)["event"] for line in ended.err.splitlines() if line.startswith("{")]
    assert events == ["dispatch", "finish"]


def test_a_log_that_was_moved_away_is_begun_anew_under_its_name(project: Project) -> None:
    """As logrotate does it, without a signal to the process."""
    log, moved = project.directory / "log.jsonl", project.directory / "log.jsonl.1"
    configure(project, "log", f'to = "{log}"')
    running = project.terminal("run", project.write("waits.yaml", WAITS), "-w", "1", "-o", "json")
    project.wait_running()
    eventually(lambda: log.exists() and log.read_text().endswith("\n"), "the dispatch was not logged")
    log.rename(moved)
    project.release()
    assert running.ended().code == 0
    assert [line["event"] for line in lines(moved)] == ["dispatch"]
    assert [line["event"] for line in lines(log)] == ["finish"]


def test_a_full_disk_under_the_log_is_told_once_and_stops_nothing(project: Project) -> None:
    configure(project, "log", 'to = "/dev/full"')
    ended = project.terminal(
        "run", project.write("retried.yaml", RETRIED.partition("  - {id: broken")[0]), "-w", "1", "-o", "json"
    ).ended()
    assert (ended.code, ended.document["status"]) == (0, "succeeded")
    assert ended.err.count("the log /dev/full cannot be written: No space left on device") == 1


def test_a_reader_that_takes_no_lines_does_not_keep_the_process_from_ending(project: Project) -> None:
    configure(project, "log", 'to = "stderr"')
    many = """
name: many
steps:
  - {id: numbers, run: {python: "tasks:numbers", with: {count: 200}}}
  - {id: doubled, map: {n: {$from: numbers}}, run: {python: "tasks:double"}}
"""
    running = project.terminal("run", project.write("many.yaml", many), "-w", "1", "-q")
    assert running.process.wait(WAIT_SECONDS) == 0, "more lines than the pipe holds, and nothing has read it"
