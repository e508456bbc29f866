"""What people call the jobs of a run: as its own contract does, also where another run did the work."""

from __future__ import annotations

from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

OTHER = """\
name: other
steps:
  - {id: twice, run: {python: "tasks:double", with: {n: 3}}}
  - {id: each, map: {n: [7, 3]}, run: {python: "tasks:double"}}
"""


def test_what_was_taken_over_is_called_as_the_run_calls_it(project: Project) -> None:
    """The step that did the work had another name, and no list."""
    project.write("first.yaml", 'name: first\nsteps: [{id: double, run: {python: "tasks:double", with: {n: 3}}}]')
    project.run("first.yaml")
    project.write("other.yaml", OTHER)
    assert project.run("other.yaml")["jobs"]["reused"] == 2
    run_id = project.newest()
    assert project("logs", "twice").out == "doubling 3\n"
    assert project("explain", "twice").code == 0
    headers = [line.split()[1] for line in project("logs", run_id).out.splitlines() if line.startswith("---")]
    assert sorted(headers) == ["each[0]", "each[1]", "twice"]
    assert project("logs", "double", "--run", run_id).code == 2
