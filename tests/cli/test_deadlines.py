"""Time limits at the command line: what they end is called by its name, in the answer and on the ledger."""

from __future__ import annotations

from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

WAITING = """\
name: slow
steps:
  - id: a
    run: {python: "tasks:wait"}
"""


def limit_attempts(project: Project, wall_ms: int) -> None:
    """Have the operator's own limit end every attempt."""
    path = project.home.path / "config.toml"
    text = path.read_text()
    line = 'placement_order = "least-loaded"\n'
    assert line in text
    path.write_text(text.replace(line, f"{line}watchdog_wall_ms = {wall_ms}\n"))


def test_an_attempt_over_the_operators_limit_is_a_resource_limit_and_timed_out(project: Project) -> None:
    """X-146: its worker reports nothing, so the code alone says what it was; it used to be called INTERNAL_ERROR."""
    limit_attempts(project, 300)
    document = project.run(project.write("slow.yaml", WAITING), code=1)
    (failure,) = document["failures"]
    assert (failure["category"], failure["code"]) == ("RESOURCE_LIMIT", "WATCHDOG_WALL")
    assert "longer than the time an attempt may take" in failure["message"]
    shown = project.json("show", failure["job_id"])
    assert (shown["status"], shown["category"], shown["reason_code"]) == (
        "TIMED_OUT",
        "RESOURCE_LIMIT",
        "WATCHDOG_WALL",
    )
    assert "WATCHDOG_WALL (RESOURCE_LIMIT)" in project("show", failure["job_id"]).out
