"""Runs that have ended are put together once and told from memory: what is erased is told no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serve.served import serving
from tests.serve.worked import project


@pytest.mark.door("route: GET /v1/runs/{run_id}/steps, POST /v1/jobs/{job_id}/erase")
def test_a_run_that_is_told_from_memory_forgets_what_is_erased(tmp_path: Path) -> None:
    place = project(tmp_path)
    assert place.run("bad.yaml") == 1
    with serving(place.played) as served:
        (run,) = served.json("/v1/runs")["items"]
        path = f"/v1/runs/{run['run_id']}/steps"
        first = served.json(path)["items"]
        assert first[0]["message"] == "ValueError: no such river"
        assert served.json(path)["items"] == first
        (job,) = first[0]["jobs"]
        assert served.ask("POST", f"/v1/jobs/{job['job_id']}/erase", body=b"{}").status == 200
        assert "river" not in str(served.json(path))
