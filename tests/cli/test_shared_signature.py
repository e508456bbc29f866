"""One signature for the manifests of many jobs, as `show --raw` and `verify` let a user see it."""

from __future__ import annotations

from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

SIGNATURE_BYTES = 64

WIDE = """\
name: wide
steps:
  - {id: numbers, run: {python: "tasks:numbers", with: {count: 8}}}
  - {id: each, map: {n: {$from: numbers}}, run: {python: "tasks:double"}}
"""


def test_jobs_that_are_submitted_together_share_one_signature_with_a_path_each(project: Project) -> None:
    """X-198: each of them is proved by its path, and a ledger with them verifies."""
    project.run(project.write("wide.yaml", WIDE))
    jobs = [job["job_id"] for job in project.json("list", "--jobs") if job["step"].startswith("each")]
    assert len(jobs) == 8
    signed = [bytes.fromhex(project.json("show", job, "--raw")["records"][0]["evidence"]["sig"]["sig"]) for job in jobs]
    assert {len(each) > SIGNATURE_BYTES for each in signed} == {True}
    assert len({each[:SIGNATURE_BYTES] for each in signed}) < len(jobs)
    assert len(set(signed)) == len(jobs)
    assert project.json("verify")["ok"]
