"""One story with everything in it, told to an owner: the same commands at the same ticks, whatever the store."""

from __future__ import annotations

from collections.abc import Iterator

from detent.canon import sha256
from detent.kernel import Claim, Erase, ReportUsage, ReuseStep
from tests.owner.rig import GAP_TICKS, Rig, cancel, end_run, fail, finish, heartbeat, start_run, submit

PAYLOAD = b"payload"


def story(rig: Rig) -> Iterator[str]:
    """Play it chapter by chapter; the caller may look, or restart the owner, after each."""
    rig.do(start_run(), submit("in-run", run_id="run-1"), submit("urgent", priority=9, max_retries=0))
    yield "submitted"
    urgent, ordinary = rig.one(Claim(0, "worker-1", 2)).grants
    yield "claimed"
    rig.pass_ms(50)
    rig.do(heartbeat(urgent), heartbeat(ordinary), heartbeat(urgent))
    yield "alive"
    assert rig.one(cancel("nobody")).refusal is not None
    assert rig.one(submit("urgent", priority=1)).status == "CONFLICT"
    yield "refused"
    rig.do(ReportUsage(0, ordinary.job_id, ordinary.lease_id, 0, cpu_time_ms=5))
    rig.one(fail(ordinary))
    yield "failed"
    rig.pass_ms(20)
    (again,) = rig.one(Claim(0, "worker-2")).grants
    yield "retried"
    rig.pass_ms(100)
    assert rig.state("urgent") == "FAILED"
    yield "expired"
    rig.pass_ms(30)
    (third,) = rig.one(Claim(0, "worker-3")).grants
    assert third.attempt_id == again.attempt_id + 1
    assert rig.one(finish(third)).ok
    assert rig.one(finish(third)).status == "DEDUPLICATED"
    answers = rig.do(ReuseStep(0, "run-1", "step-b", "in-run", sha256(b"ingredients")), end_run())
    assert all(answer.ok for answer in answers)
    yield "run ended"
    rig.do(submit("erased", payload_digest=sha256(PAYLOAD)), content=[(sha256(PAYLOAD), PAYLOAD)])
    rig.one(cancel("erased"))
    rig.one(Erase(0, (sha256(PAYLOAD),), 0))
    yield "erased"
    dead, living = rig.start("stalled-1", "dead"), rig.start("stalled-2", "living")
    rig.stall_ms(3_600_000)
    rig.do(heartbeat(living), submit("during-grace"))
    rig.pass_ms(GAP_TICKS)
    assert rig.state("stalled-1") == "RETRYING"
    yield "stalled"
    assert rig.one(finish(dead)).refusal is not None
    rig.do(finish(living), cancel("stalled-1"))
    yield "ended"
