"""`detent result` and `detent artifacts`: the signed envelope of a platform job, checked, and its files."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from detent.canon import SigningKey, digest_text, parse_digest, sha256
from detent.ledger import SignedResult, sign_result
from tests.cli.project import Project, detent_home, project
from tests.cli.submitted import FILES, draft, needs_sandbox, settings, square, submit
from tests.executor.runners.rig import execute, render
from tests.tamper.test_missing_content import delete

__all__ = ["detent_home", "project"]


@needs_sandbox
def test_a_result_is_the_whole_envelope_of_the_contract_with_its_proof(project: Project) -> None:
    """JOB-021, JOB-049, JOB-050, JOB-051, JOB-052, JOB-053, JOB-084, X-025, X-033, X-151"""
    job = submit(project, draft(render("x^2", "svg", "png")), "--wait")["job_id"]
    told = project.json("result", job)
    result = told["result"]
    assert (told["status"], result["status"], result["job_id"]) == ("succeeded", "SUCCEEDED", job)
    assert result["environment"]["env_version"].startswith("render@1+py")
    assert {"schema_version", "started_at", "finished_at", "duration_ms", "outputs", "logs"} <= result.keys()
    used, counted = result["resource_usage"], project.json("show", job)["usage"]
    assert (used["cpu_ms"], used["memory_mb_peak"] * 2**20) == (counted["cpu_time_ms"], counted["peak_bytes"])
    artifacts = {one["metadata"]["name"]: one for one in result["artifacts"]}
    assert artifacts.keys() == {"formula.svg", "formula.png"}
    picture = artifacts["formula.png"]
    assert (picture["kind"], picture["format"], picture["content_type"]) == ("rendering", "png", "image/png")
    assert {"width", "height"} <= picture["metadata"].keys()
    assert picture["artifact_id"].startswith(f"{job}.")
    assert "uri" not in picture
    assert "nonce" not in result
    records = project.json("show", job)["records"]
    assert told["proof"]["report_digest"] == records[-1]["evidence"]["detail_digest"]
    times = project.json("show", job)["timeline"]
    assert times["history"] == ["pending", "queued", "running", "succeeded"]
    assert times["submitted_at"] <= times["first_started_at"] == times["started_at"] <= times["finished_at"]
    page = project("result", job[:8]).out
    assert "detent verify" in page
    assert re.search(r"signed by +key sha256:[0-9a-f]+…, checked", page)


@needs_sandbox
def test_the_exit_code_of_result_says_whether_the_job_succeeded_failed_or_has_not_ended(project: Project) -> None:
    """JOB-058, JOB-059, JOB-060"""
    waiting = submit(project, square())["job_id"]
    told = project.json("result", waiting, code=4)["error"]
    assert (told["code"], told["retryable"]) == ("RESULT_NOT_READY", True)
    assert f"detent result {waiting} --wait" in told["hint"]
    done = project.json("result", waiting, "--wait")
    assert done["result"]["outputs"] == {
        "result_json": {"y": 49},
        "stdout": "squaring 7\n",
        "stderr": "",
        "truncated": [],
    }
    failed = submit(project, draft(execute("def main():\n    raise KeyError('rome')\n")), "--wait", code=1)
    assert (failed["status"], failed["result"]["error"]["category"]) == ("failed", "USER_CODE_ERROR")
    assert failed["result"]["error"]["details"]["line"] == 2
    slow = draft(execute("def main():\n    while True: pass\n", limits={"timeout_ms": 300}))
    timed_out = submit(project, slow, "--wait", code=1)
    assert (timed_out["status"], timed_out["result"]["error"]["code"]) == ("timed_out", "LIMIT_WALL")


def test_a_job_that_is_not_a_platform_job_has_no_envelope(project: Project) -> None:
    project.write("one.yaml", "name: one\nsteps:\n  - {id: one, run: {python: 'tasks:numbers', with: {count: 1}}}\n")
    run = project.json("show", project.run("one.yaml")["run_id"])
    job = run["step_list"][0]["jobs"][0]["job_id"]
    told = project.json("result", job, code=2)["error"]
    assert told["message"] == f"job {job} is not a platform job"
    assert project.json("result", "no-such-job", code=2)["error"]["code"] == "UNKNOWN_JOB"


@needs_sandbox
def test_what_a_job_prints_and_logs_is_cut_where_limits_and_settings_say(project: Project) -> None:
    """JOB-006, JOB-056, JOB-057, X-147, X-155: the job still succeeds, or fails with the end of its traceback."""
    settings(project, "[jobs]\nmax_log_message_bytes = 20\nmax_error_details_bytes = 256\n")
    flood = draft(execute("def main(): print('x' * 5000)", limits={"max_output_kb": 2}))
    outputs = submit(project, flood, "--wait")["result"]["outputs"]
    assert (len(outputs["stdout"]), outputs["truncated"]) == (2048, ["stdout"])
    deep = "def down(n):\n    return down(n - 1) if n else 1 / 0\n\ndef main():\n    raise ValueError('y' * 100)\n"
    error = submit(project, draft(execute(deep)), "--wait", code=1)["result"]["error"]
    assert len(error["message"].encode()) == 20
    assert len(error["details"].get("traceback", "")) <= 256


@needs_sandbox
def test_artifacts_are_fetched_by_id_into_a_directory_whole_and_checked(project: Project) -> None:
    """JOB-004, JOB-050, JOB-055, JOB-074"""
    job = submit(project, draft(execute(FILES)), "--wait")["job_id"]
    listed = project.json("artifacts", job)["artifacts"]
    assert {one["metadata"]["name"] for one in listed} == {"table.csv", "notes.txt"}
    fetched = project.json("artifacts", job, "--output", "made")["fetched"]
    for one in fetched:
        data = Path(one["path"]).read_bytes()
        assert (digest_text(sha256(data)), len(data)) == (one["digest"], one["size_bytes"])
    chosen = listed[0]
    (alone,) = project.json("artifacts", job, chosen["artifact_id"], "--output", "alone")["fetched"]
    assert [path.name for path in Path("alone").iterdir()] == [chosen["metadata"]["name"]]
    assert alone["artifact_id"] == chosen["artifact_id"]
    assert "has no artifact 'nine'" in project("artifacts", job, "nine").err


@needs_sandbox
def test_fetching_overwrites_nothing_unless_it_is_told_to(project: Project) -> None:
    job = submit(project, draft(execute(FILES)), "--wait")["job_id"]
    made = project.directory / "made"
    made.mkdir()
    (made / "notes.txt").write_text("mine")
    refused = project("artifacts", job, "--output", "made")
    assert refused.code == 2
    assert "--force" in refused.err
    assert [path.name for path in made.iterdir()] == ["notes.txt"]
    assert (made / "notes.txt").read_text() == "mine"
    outside = project.directory / "outside"
    (made / "table.csv").symlink_to(outside)
    assert project("artifacts", job, "--output", "made", "--force").code == 0
    assert (made / "notes.txt").read_text() == "two lines\nof text\n"
    assert not outside.exists()
    assert project("artifacts", job, "--output", "made").code == 0


@needs_sandbox
def test_a_deleted_artifact_and_a_deleted_result_are_reported_as_gone(project: Project) -> None:
    """X-196"""
    project.checked = False
    told = submit(project, draft(execute(FILES)), "--wait")
    (artifact, *_) = told["result"]["artifacts"]
    delete(project, parse_digest(artifact["digest"]))
    gone = project.json("artifacts", told["job_id"], artifact["artifact_id"], "--output", "made", code=1)["error"]
    assert gone["code"] == "CONTENT_GONE"
    assert list((project.directory / "made").iterdir()) == []
    delete(project, parse_digest(told["proof"]["envelope_digest"]))
    assert project.json("result", told["job_id"], code=1)["error"]["code"] == "CONTENT_GONE"


@needs_sandbox
def test_an_erased_job_keeps_no_result_and_the_history_still_verifies(project: Project) -> None:
    """X-171"""
    job = submit(project, square(), "--wait")["job_id"]
    assert project("erase", "--job", job, "--yes").code == 0
    assert project.json("result", job, code=1)["error"]["code"] == "CONTENT_GONE"
    assert project.json("verify")["ok"]


@needs_sandbox
def test_a_result_that_was_exchanged_on_disk_is_not_shown(project: Project) -> None:
    """JOB-083, X-196: the envelope has to have the digest that the signed report names."""
    project.checked = False
    told = submit(project, draft(execute("def main(): return 'x' * 20_000")), "--wait")
    path = project.home.content_files().path(parse_digest(told["proof"]["envelope_digest"]))
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"xxxx", b"yyyy"))
    assert project.json("result", told["job_id"], code=4)["error"]["code"] == "STORE_CORRUPT"


@needs_sandbox
def test_what_is_past_the_retention_of_the_settings_is_erased_and_recorded(project: Project) -> None:
    """X-171: by [jobs] retention_ms. The job's work is done again when it is asked for."""
    unset = project.json("erase", "--expired", "--yes", code=2)["error"]
    assert "retention_ms" in unset["hint"]
    settings(project, "[jobs]\nretention_ms = 86400000\n")
    old = submit(project, draft(execute(FILES)), "--wait")["job_id"]
    assert project.json("erase", "--expired", "--yes")["jobs"] == 0
    assert project.json("result", old)["status"] == "succeeded"
    settings(project, "[jobs]\nretention_ms = 1\n")
    open_job = submit(project, square())["job_id"]
    gone = project.json("erase", "--expired", "--yes")
    assert (gone["jobs"], gone["reason_code"]) == (1, "RETENTION_EXPIRED")
    assert project.json("result", old, code=1)["error"]["code"] == "CONTENT_GONE"
    assert project.json("result", open_job, "--wait")["status"] == "succeeded"
    assert submit(project, draft(execute(FILES)))["deduplicated"] is False


@needs_sandbox
def test_a_report_that_another_key_signed_is_not_shown_as_a_result(project: Project) -> None:
    """JOB-083: even where the ledger's file was rewritten to name it; `detent verify` finds that, too."""
    project.checked = False
    told = submit(project, square(), "--wait")
    real = parse_digest(told["proof"]["report_digest"])
    with closing(apsw.Connection(str(project.home.ledger))) as database:
        row: Any = database.execute("SELECT bytes FROM content WHERE digest = ?", (real,)).fetchall()[0]
        forged = sign_result(SignedResult.parse(row[0]).body, SigningKey(bytes(32))).envelope()
        trigger: Any = database.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'records_are_never_updated'"
        ).fetchall()
        database.execute("DROP TRIGGER records_are_never_updated")
        rows: Any = database.execute("SELECT rowid, evidence FROM records WHERE evidence IS NOT NULL").fetchall()
        ((place, evidence),) = [one for one in rows if real in one[1]]
        changed = (evidence.replace(real, sha256(forged)), place)
        database.execute("UPDATE records SET evidence = ? WHERE rowid = ?", changed)
        database.execute("INSERT INTO content (digest, bytes) VALUES (?, ?)", (sha256(forged), forged))
        database.execute(trigger[0][0])
    shown = project.json("result", told["job_id"], code=4)["error"]
    assert shown["code"] == "STORE_CORRUPT"
    assert "is not trusted" in shown["message"]
    assert project("verify").code == 1


@needs_sandbox
def test_waiting_ends_when_its_time_is_over_and_the_job_stays(project: Project) -> None:
    endless = draft(execute("def main():\n    while True: pass\n", limits={"timeout_ms": 2000}))
    told = submit(project, endless, "--wait", "--timeout", "100ms", code=4)["error"]
    assert told["code"] == "RESULT_NOT_READY"
    job = told["details"]["job_id"]
    assert f"detent result {job} --wait" in told["hint"]
    assert project.json("result", job, "--wait", code=1)["status"] == "timed_out"
