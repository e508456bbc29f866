"""What work used, as its supervisor measured it, stands in the job's own resource ledger."""

from __future__ import annotations

import pytest

from detent.executor.sandbox import Profile, probe, profile_of
from detent.kernel import Job
from tests.runs.rig import Rig

MB = 1024 * 1024


@pytest.mark.skipif(profile_of(probe()).strength < Profile.FULL_ROOTLESS.strength, reason="no sandbox on this machine")
def test_a_sandboxed_steps_processor_time_and_peak_memory_are_on_the_jobs_ledger(rig: Rig) -> None:
    """X-025: measured outside the guest; what was allocated is given back at the end, the peak stays."""
    work = rig.pool()
    result = rig.handle(
        work,
        """
        name: used
        steps:
          - id: cell
            run:
              code: |
                def main():
                    held = bytearray(48 * 1024 * 1024)
                    total = 0
                    for number in range(3_000_000):
                        total += number
                    return [len(held), total]
        result: {$from: cell}
        """,
    ).run()
    assert result.status == "completed"
    (row,) = rig.jobs(result.run_id)
    usage = Job.decode(row.body).usage
    assert usage.cpu_time_ms > 0
    assert 48 * MB <= usage.peak_bytes < 400 * MB
    assert usage.bytes_allocated == 0
    assert work.backend.report_of(row.job_id)[1].result.usage.memory_bytes_peak == usage.peak_bytes  # type: ignore[index]
