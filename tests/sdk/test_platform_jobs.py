"""`Client.submit_job`: platform jobs from Python, with their results and artifacts."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import detent
from detent.errors import RequestRefused
from detent.executor.sandbox import Profile, probe, profile_of
from detent.jobs import EnvelopeInvalid, JobStatus
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_home
from tests.cli.submitted import FILES, draft, square
from tests.executor.runners.rig import execute

__all__ = ["detent_home"]

pytestmark = pytest.mark.skipif(
    profile_of(probe()).strength < Profile.FULL_ROOTLESS.strength, reason="no sandbox on this machine"
)


@pytest.fixture
def client(detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch) -> Iterator[detent.Client]:
    for name, value in detent_home.environment.items():
        monkeypatch.setenv(name, value)
    with detent.Client(detent_home.path, workers=1) as made:
        yield made
    assert detent_home.verify().ok


def test_a_payload_is_submitted_run_and_answered_with_its_checked_envelope(client: detent.Client) -> None:
    """JOB-007, JOB-021, JOB-049, JOB-052"""
    job = client.submit_job(square(7, workspace_id="team-a"))
    outcome = job.outcome("60s")
    assert (outcome.ok, job.done(), job.status) == (True, True, JobStatus.SUCCEEDED)
    assert outcome.result is not None
    assert outcome.result["outputs"]["result_json"] == {"y": 49}
    assert outcome.result["environment"]["env_version"].startswith("py-executor@1+py")
    assert client.result_of(job.job_id) == outcome
    again = client.submit_job(json.dumps(square(7, workspace_id="team-a")).encode())
    assert (again.job_id, again.deduplicated) == (job.job_id, True)


def test_a_failure_is_an_outcome_and_not_an_exception(client: detent.Client) -> None:
    """JOB-058"""
    outcome = client.submit_job(draft(execute("def main(): return 1 / 0"))).outcome("60s")
    assert (outcome.ok, outcome.status, outcome.reason_code) == (False, JobStatus.FAILED, "PYTHON_EXCEPTION")


def test_faults_and_refusals_are_typed_and_come_before_any_job(
    client: detent.Client, detent_home: TemporaryHome
) -> None:
    """JOB-034, JOB-038"""
    with pytest.raises(EnvelopeInvalid) as caught:
        client.submit_job({"job_type": "object_execute", "schema_version": "1.0"})
    assert len(caught.value.details["errors"]) >= 5  # type: ignore[arg-type]  # details hold any object
    settings = detent_home.path / "config.toml"
    settings.write_text(settings.read_text() + "\n[plans.default]\nmemory_mb = 100\n")
    with detent.Client(detent_home.path, workers=0) as other, pytest.raises(RequestRefused) as refused:
        other.submit_job(square(limits={"memory_mb": 101}))
    assert refused.value.code == "PLAN_EXCEEDED"


def test_a_waiting_job_is_cancelled_under_the_tenant_that_it_belongs_to(detent_home: TemporaryHome) -> None:
    """JOB-015, JOB-067, JOB-085"""
    with detent.Client(detent_home.path, workers=0) as client:
        job = client.submit_job(square(workspace_id="team-a"))
        assert job.cancel()
        assert job.status is JobStatus.CANCELLED
        assert client.result_of(job).reason_code == "CANCELLED_BY_USER"
        assert not job.cancel()


def test_artifacts_are_fetched_from_python(client: detent.Client, detent_home: TemporaryHome) -> None:
    """JOB-050, JOB-074"""
    job = client.submit_job(draft(execute(FILES)))
    target = detent_home.directory / "made"
    assert {one.path.name for one in job.fetch(target)} == {"table.csv", "notes.txt"}
    (one,) = client.fetch_artifacts(job.job_id, detent_home.directory / "one", ["table.csv"])
    assert one.path.read_text() == "a,b\n1,2\n"


def test_the_same_idempotency_key_gives_the_same_job(client: detent.Client) -> None:
    """JOB-029, JOB-031"""
    first = client.submit_job(square(3), idempotency_key="k")
    assert client.submit_job(square(3), idempotency_key="k").job_id == first.job_id
    with pytest.raises(detent.InvalidInput, match="another body"):
        client.submit_job(square(4), idempotency_key="k")


def test_a_client_that_is_closed_waits_for_the_platform_jobs_that_it_submitted(detent_home: TemporaryHome) -> None:
    with detent.Client(detent_home.path, workers=1) as client:
        jobs = [client.submit_job(square(number)).job_id for number in range(4)]
    with detent.Client(detent_home.path, workers=0) as reader:
        assert [reader.result_of(job).ok for job in jobs] == [True] * 4
    with detent.Client(detent_home.path, workers=0) as client:
        left = client.submit_job(square(9))
        assert client.close().queued == (left.job_id,)
