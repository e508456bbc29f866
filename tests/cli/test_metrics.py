"""`detent metrics` and `[metrics] textfile`: the numbers of a home, in the text that Prometheus reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from detent.owner.metrics import FILE
from detent.scheduling.attempts import ALL_FAMILIES
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

MIXED = """
name: mixed
steps:
  - {id: numbers, run: {python: "tasks:numbers", with: {count: 3}}}
  - {id: doubled, map: {n: {$from: numbers}}, run: {python: "tasks:double"}}
  - {id: broken, run: {shell: "exit 3"}, retry: {max: 1, on: [USER_CODE_ERROR]}}
"""
WAITS = """
name: waits
steps:
  - {id: only, run: {python: "tasks:wait"}}
"""


@pytest.fixture(autouse=True)
def _retries_at_once(project: Project) -> None:
    settings = project.home.path / "config.toml"
    settings.write_text(settings.read_text().replace("default = [1000, 2000, 4000]", "default = [0]"))


def configure(project: Project, section: str, line: str) -> None:
    settings = project.home.path / "config.toml"
    settings.write_text(settings.read_text().replace(f"[{section}]\n", f"[{section}]\n{line}\n"))


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample, once, by its name and labels."""
    found: dict[Any, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def value(text: str, name: str, **labels: str) -> float:
    return values(text)[name, tuple(sorted(labels.items()))]


def lint(text: str) -> None:
    """What every exposition has to keep to: one HELP and one TYPE a family, names and units by convention."""
    for word in ("HELP", "TYPE"):
        named = re.findall(rf"^# {word} (\S+) ", text, re.MULTILINE)
        assert named == [family.name for family in ALL_FAMILIES]
    for family in text_string_to_metric_families(text):
        assert family.documentation.endswith(".")
        if family.type == "counter":
            assert all(sample.name == f"{family.name}_total" for sample in family.samples)
        elif family.type == "histogram":
            assert family.name.endswith("_seconds")
        else:
            assert not family.name.endswith(("_total", "_sum", "_count", "_bucket"))
            ratios = [sample.value for sample in family.samples if family.name.endswith("_ratio")]
            assert all(0 <= ratio <= 1 for ratio in ratios)
    assert text.endswith("\n")
    values(text)


def test_metrics_prints_what_the_ledger_holds_when_no_process_owns_the_home(project: Project) -> None:
    """OC-CORE-1041, PIPE-035, PIPE-036: queue depth, success rate and lifecycle counts of a home at rest."""
    project.run(project.write("mixed.yaml", MIXED), code=1)
    text = project("metrics").out
    lint(text)
    assert value(text, "detent_jobs", state="succeeded") == 4
    assert value(text, "detent_jobs", state="failed") == 1
    assert value(text, "detent_job_success_ratio") == 0.8
    assert value(text, "detent_transitions_total", from_state="running", to_state="retrying") == 1
    assert value(text, "detent_job_attempt_seconds_count", outcome="succeeded") == 4
    assert value(text, "detent_job_attempt_seconds_count", outcome="retrying") == 1
    assert value(text, "detent_job_queue_seconds_count") == 6
    assert value(text, "detent_queue_depth", pool_id="", priority="5") == 0
    families = {family["name"]: family for family in project.json("metrics")}
    assert families["detent_jobs"]["type"] == "gauge"


def test_metrics_of_a_home_in_use_show_what_runs_now(project: Project) -> None:
    running = project.terminal("run", project.write("waits.yaml", WAITS), "-w", "1", "-o", "json")
    project.wait_running()
    text = project("metrics").out
    lint(text)
    assert value(text, "detent_jobs", state="running") == 1
    assert value(text, "detent_job_queue_seconds_count") == 1
    project.release()
    assert running.ended().code == 0
    assert value(project("metrics").out, "detent_job_attempt_seconds_count", outcome="succeeded") == 1


def test_counts_go_on_from_what_was_kept_and_are_the_same_without_it(project: Project) -> None:
    file = project.write("mixed.yaml", MIXED)
    project.run(file, code=1)
    project("metrics")
    kept = project.home.path / FILE
    project.run(file, "--force", code=1)
    first = kept.read_bytes()
    text = project("metrics").out
    assert value(text, "detent_job_attempt_seconds_count", outcome="succeeded") == 8
    assert kept.read_bytes() != first
    for damage in (None, b"", b"[]", first[:40], first.replace(b'"version":1', b'"version":2')):
        if damage is None:
            kept.unlink()
        else:
            kept.write_bytes(damage)
        assert project("metrics").out == text


def test_kept_counts_of_another_history_are_not_believed(project: Project) -> None:
    project.run(project.write("waits.yaml", WAITS.replace("wait", "total").replace("}}", ", with: {values: []}}}")))
    text = project("metrics").out
    kept = project.home.path / FILE
    written = kept.read_bytes()
    other = re.sub(rb'"batches":\[\[(\d+),"[0-9a-f]{2}', rb'"batches":[[\1,"00', written)
    kept.write_bytes(other.replace(b'"detent_job_queue_seconds":[[[],[[1', b'"detent_job_queue_seconds":[[[],[[7'))
    assert project("metrics").out == text


def test_the_textfile_has_at_the_end_of_a_run_what_metrics_prints(project: Project) -> None:
    """OC-CORE-1041: for node_exporter's textfile collector, and readable for another user."""
    file = project.directory / "detent.prom"
    configure(project, "metrics", f'textfile = "{file}"')
    for times in (1, 2):
        project.run(project.write("mixed.yaml", MIXED), "--force", code=1)
        text = file.read_text()
        lint(text)
        assert value(text, "detent_jobs", state="succeeded") == 4 * times
        assert value(text, "detent_job_attempt_seconds_count", outcome="failed") == times
        assert text == project("metrics").out
    assert file.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in project.directory.iterdir() if path.name.endswith(".tmp")] == []


def test_a_textfile_named_relatively_lies_beside_the_home(project: Project) -> None:
    configure(project, "metrics", 'textfile = "detent.prom"')
    project.run(project.write("mixed.yaml", MIXED), code=1)
    lint((project.home.path.parent / "detent.prom").read_text())
    checks = project.json("doctor", "--quick")["checks"]
    assert [check["text"] for check in checks if (check["name"], check["status"]) == ("permissions", "wrong")] == []


def test_a_textfile_that_cannot_be_written_is_told_once_and_stops_nothing(project: Project, tmp_path: Path) -> None:
    configure(project, "metrics", f'textfile = "{tmp_path}/missing/detent.prom"')
    ended = project.terminal("run", project.write("mixed.yaml", MIXED), "-w", "1", "-o", "json").ended()
    assert (ended.code, ended.document["status"]) == (1, "failed")
    assert ended.err.count(f"the metrics file {tmp_path}/missing/detent.prom cannot be written") == 1
    assert "No such file or directory. The work goes on without it." in ended.err


def test_a_destination_that_is_no_path_is_refused_by_its_key(project: Project) -> None:
    project.checked = False  # The settings stay wrong.
    settings = project.home.path / "config.toml"
    before = settings.read_text()
    file = project.write("mixed.yaml", MIXED)
    for section, key in (("metrics", "textfile"), ("log", "to")):
        for said in ("1", '""', "[]", '"~nobody-of-this-name/x"', '"a\\u0000b"'):
            settings.write_text(before)
            configure(project, section, f"{key} = {said}")
            refused = project("run", file)
            assert refused.code == 2
            assert f"config.toml: {section}.{key}: " in refused.err
