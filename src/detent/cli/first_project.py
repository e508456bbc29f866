"""The project that `detent init` leaves in an empty directory: small, quick, and different when it is run again."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PIPELINE: Final = "pipeline.yaml"
TASKS: Final = "tasks.py"

_PIPELINE_TEXT: Final = """\
# Your first pipeline. What it would do:   detent plan pipeline.yaml
#                       Do it:              detent run pipeline.yaml
# Run it twice: the second time nothing is left to do. Then change a function in tasks.py, or type
#   detent run pipeline.yaml -p longest=2
# and only what is affected runs again; `detent explain RUN` says why.

name: words

params:
  longest: {type: integer, default: 3, description: how many of the longest words are kept}

steps:
  - id: lines
    run: {python: "tasks:lines"}

  - id: count                # one job for each line, in parallel
    map: {line: {$from: lines}}
    run: {python: "tasks:count"}

  - id: report               # $from is the result of another step, $param a parameter
    run:
      python: tasks:report
      with: {counts: {$from: count}, longest: {$param: longest}, path: report.txt}
    outputs: {report: report.txt}

result: {$from: report}
"""

_TASKS_TEXT: Final = '''\
"""What pipeline.yaml runs: plain functions. Arguments and results are JSON values; print goes to `detent logs`."""

from pathlib import Path

TEXT = """\\
a detent holds a mechanism in place
until something moves it on
and then it holds again
"""


def lines():
    return TEXT.splitlines()


def count(line):
    words = line.split()
    print(f"{len(words)} words in {line!r}")
    return {"words": len(words), "longest": max(words, key=len)}


def report(counts, longest, path):
    words = sum(each["words"] for each in counts)
    kept = sorted((each["longest"] for each in counts), key=len, reverse=True)[:longest]
    Path(path).write_text(f"{words} words; the longest: {', '.join(kept)}\\n")
    return {"words": words, "longest": kept}
'''


def write_first_project(directory: Path) -> list[str]:
    """Write the project, and say which files; nothing where there is anything that could be the user's own work.

    Files whose names begin with a dot (.git, .venv) do not count, nor does what a new repository has beside them.
    """
    for path in directory.iterdir():
        if not path.name.startswith(".") and not path.name.upper().startswith(("README", "LICENSE", "LICENCE")):
            return []
    for name, text in ((PIPELINE, _PIPELINE_TEXT), (TASKS, _TASKS_TEXT)):
        with (directory / name).open("x") as file:
            file.write(text)
    return [PIPELINE, TASKS]
