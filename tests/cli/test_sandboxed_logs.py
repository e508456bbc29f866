"""`detent logs` of a sandboxed step that prints more than its sandbox keeps."""

from __future__ import annotations

from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

TALK = """\
name: talk
steps:
  - id: talk
    run:
      code: |
        def main():
            print("x" * 300_000)
            with open("/job/out/whole.txt", "w") as file:
                file.write("x" * 300_000)
"""


def test_output_that_the_sandbox_cut_is_told_with_what_to_do(project: Project) -> None:
    """X-147: the first part is kept; a file in /job/out keeps all of it."""
    run_id = project.run(project.write("talk.yaml", TALK))["run_id"]
    logs = project("logs", "talk")
    assert (logs.code, logs.out) == (0, "x" * 262_144)
    assert "only the first 262,144 bytes of its stdout were kept; the rest was cut at the sandbox's limit" in logs.err
    assert "limits.max_output_kb of a `job` payload, or write long output to a file in /job/out" in logs.err
    (file,) = project.json("show", run_id)["artifacts"]
    assert file["size_bytes"] == 300_000
