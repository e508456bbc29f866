"""Ledgers and bundles of other days verify today: those of before manifests named their ledger, and those of since."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from detent.ledger import replay_items, verify_bundle
from detent.ledger.bundle import read_bundle
from detent.scheduling.scheduler import Scheduler
from tests.golden import arrays, operators, packed
from tests.golden.archives import BEFORE_ORIGIN, unpack
from tests.golden.make import FOLDER
from tests.golden.packed import JOBS, STEPS

BEFORE_ROOT = "sha256:4683e39bbeb1f774be093734122f4e5d59d6870ad95698abaf6ce3d402f73bba"

PACKED_ROOT = "sha256:cef920e50f0bb2ff6ecc6d285392b606b8121ff594cb51c5358bbb24d927481b"

ARRAYS_ROOT = "sha256:b6ed82c329c5f23ff4c7da35be19b600ff10316641613b331040cb5c15821c00"


OPERATORS_ROOT = "sha256:18987b3d75e834973626c5ec831ea65e034fba8b3b39df740987458ad72e143f"


@pytest.fixture
def before(tmp_path: Path) -> Path:
    unpack(BEFORE_ORIGIN, tmp_path)
    return tmp_path


def test_a_bundle_whose_manifests_name_their_ledger_verifies() -> None:
    """X-197, X-165"""
    text, root = (FOLDER / "bundle.hex").read_text(encoding="utf-8").split()
    data = bytes.fromhex(text)
    report = verify_bundle(BytesIO(data), root=root)
    assert report.findings == ()
    assert (report.counts["submitted"], report.counts["submitted_without_origin"]) == (1, 0)
    assert "1 job was submitted to this ledger and to no other" in " ".join(report.proved)
    assert "names no ledger" not in " ".join(report.not_proved)
    assert replay_items(read_bundle(BytesIO(data))).ok


@pytest.mark.parametrize(
    ("name", "jobs", "last"), [("all", 7, "job kept in batch"), ("run", 5, "job dropped in batch")]
)
def test_bundles_of_before_verify_and_say_which_jobs_name_no_ledger(
    before: Path, name: str, jobs: int, last: str
) -> None:
    """X-197: old manifests verify as what they are, and the report says so"""
    report = verify_bundle(BytesIO((before / f"{name}.detent").read_bytes()), root=BEFORE_ROOT)
    assert report.findings == ()
    assert report.counts["submitted_without_origin"] == report.counts["submitted"] == jobs
    (said,) = [sentence for sentence in report.not_proved if "names no ledger" in sentence]
    assert said.startswith(f"That {jobs} jobs were submitted to this ledger")
    assert last in said
    assert "to no other" not in " ".join(report.proved)


def test_the_ledger_of_before_replays_to_the_same_bytes(before: Path) -> None:
    """X-165"""
    report = replay_items(read_bundle(BytesIO((before / "all.detent").read_bytes())), make_queue=Scheduler)
    assert (report.ok, report.differences) == (True, ())


@pytest.mark.parametrize(("name", "jobs"), [("all", STEPS + JOBS), ("run", STEPS)])
def test_bundles_whose_manifests_and_reports_share_signatures_verify(tmp_path: Path, name: str, jobs: int) -> None:
    """X-046, JOB-083: the bundle of the run holds none of the other jobs that were signed with it"""
    unpack(packed.ARCHIVE, tmp_path)
    report = verify_bundle(BytesIO((tmp_path / f"{name}.detent").read_bytes()), root=PACKED_ROOT)
    assert report.findings == ()
    assert report.counts["submitted"] == sum(report.executors.values()) == jobs
    assert "TRUST_UNPINNED" not in report.codes


@pytest.mark.parametrize(("name", "jobs", "reports"), [("all", 2, 3), ("run", 1, 2)])
def test_bundles_of_arrays_verify_with_the_report_of_every_attempt(
    tmp_path: Path, name: str, jobs: int, reports: int
) -> None:
    """X-046, X-185: seven elements in two jobs; the run that took an element of another run's array verifies without that job"""
    unpack(arrays.ARCHIVE, tmp_path)
    report = verify_bundle(BytesIO((tmp_path / f"{name}.detent").read_bytes()), root=ARRAYS_ROOT)
    assert report.findings == ()
    assert (report.counts["submitted"], report.counts["step_reused"]) == (jobs, 1)
    assert sum(report.executors.values()) == report.counts["results_signed"] == reports
    assert "TRUST_UNPINNED" not in report.codes


@pytest.mark.parametrize("archive", [packed.ARCHIVE, arrays.ARCHIVE, operators.ARCHIVE])
def test_ledgers_with_shared_signatures_and_with_arrays_replay_to_the_same_bytes(tmp_path: Path, archive: str) -> None:
    """X-165"""
    unpack(archive, tmp_path)
    report = replay_items(read_bundle(BytesIO((tmp_path / "all.detent").read_bytes())), make_queue=Scheduler)
    assert (report.ok, report.differences) == (True, ())


@pytest.mark.parametrize(("name", "actions", "retired"), [("bundle-workers", 3, 1), ("bundle-workers-run", 1, 1)])
def test_bundles_with_operators_and_workers_verify(name: str, actions: int, retired: int) -> None:
    """X-167: the run's bundle holds the certificate that the signature of its result rests on"""
    text, root = (FOLDER / f"{name}.hex").read_text(encoding="utf-8").split()
    report = verify_bundle(BytesIO(bytes.fromhex(text)), root=root)
    assert report.findings == ()
    assert (report.counts["operated"], report.counts["worker_retired"]) == (actions, retired)
    assert [*report.workers.values()] == ["gpu-1"]
    assert [*report.executors.values()] == [1]


@pytest.mark.parametrize(("name", "actions", "workers"), [("all", operators.ACTIONS, 2), ("run", 0, 1)])
def test_a_kept_ledger_with_operators_and_workers_verifies(
    tmp_path: Path, name: str, actions: int, workers: int
) -> None:
    """X-167: and its run alone, with the one worker that it rests on"""
    unpack(operators.ARCHIVE, tmp_path)
    report = verify_bundle(BytesIO((tmp_path / f"{name}.detent").read_bytes()), root=OPERATORS_ROOT)
    assert report.findings == ()
    assert (report.counts.get("operated", 0), report.counts["worker_enrolled"]) == (actions, workers)
    assert sorted(report.workers.values()) == [*operators.WORKERS][:workers]
