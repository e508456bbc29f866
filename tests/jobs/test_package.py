from __future__ import annotations

import subprocess
import sys

import pytest

import detent.jobs


def test_every_name_the_room_shows_is_there() -> None:
    assert [name for name in detent.jobs.__all__ if getattr(detent.jobs, name, None) is None] == []
    assert set(detent.jobs.__all__) <= set(dir(detent.jobs))
    with pytest.raises(AttributeError):
        _ = detent.jobs.no_such_name


def test_a_status_or_a_key_costs_no_model_library() -> None:
    script = (
        "import sys, detent, detent.jobs as jobs; jobs.project_status('QUEUED'); jobs.work_key;"
        "assert 'pydantic' not in sys.modules; jobs.JobPayload; assert 'pydantic' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": ":".join(sys.path)})
