"""Forged, replayed and foreign results: what a guest says is a value, and only its supervisor reports (JOB-083).

The guests here run in the real sandbox and are given what they would need to lie: a report of another job that was really
signed, the ids of another attempt, the home's path. What reaches the ledger is the supervisor's own word about the attempt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.canon import decode, json_digest, sha256
from detent.executor.sandbox import Execution, Job, Sandbox
from detent.jobs.work import Failure
from detent.kernel import Cancel, Claim, Evidence, Grant
from detent.kernel import Job as KernelJob
from detent.owner.acceptance import VerifiedReport
from detent.owner.session import Session
from detent.owner.wiring import signing_key
from tests.flat_reports import flat_report
from tests.hostile.payloads import SMALL
from tests.hostile.rig import run
from tests.kernel.builders import TENANT
from tests.owner.homes import House
from tests.owner.reports import signed


class Plant:
    """A home, its executor's key, and a second process's way in: what a supervisor has and a guest has not."""

    def __init__(self, directory: Path) -> None:
        self.house = House(directory)
        self.owner = self.house.session()
        self.worker = self.house.session()
        self.key = signing_key(self.house.home, self.house.trust(), "result", 1)

    def start(self, job_id: str) -> Grant:
        self.owner.ask([self.house.submit(job_id)])
        ((grant,),) = [answer.grants for answer in self.worker.ask([Claim(0, "worker-1")])]
        assert grant.job_id == job_id
        return grant

    def report(self, grant: Grant, execution: Execution) -> VerifiedReport:
        """The supervisor's report: who and how much comes from the grant and from outside, the value from the guest."""
        error = None
        if not execution.ok:
            error = Failure(str(execution.category), str(execution.code), execution.message)
        value = execution.result if execution.ok else None
        return signed(
            flat_report(
                job_id=grant.job_id,
                attempt_id=grant.attempt_id,
                lease_id=grant.lease_id,
                manifest_hash=grant.job_manifest_hash,
                status="SUCCEEDED" if error is None else "FAILED",
                nonce=bytes(16),
                value=value,
                value_digest=None if value is None else json_digest(value),
                error=error,
                sandbox=execution.profile.value,
                cpu_ms=execution.usage.cpu_ms,
            ),
            self.key,
        )

    def job(self, job_id: str) -> KernelJob:
        with self.house.reader() as reader:
            row = reader.job(job_id)
        assert row is not None
        return KernelJob.decode(row.body)

    def refusals(self) -> list[tuple[str | None, str, bytes | None]]:
        with self.house.reader() as reader:
            return [
                (row.job_id, row.code, decode(row.body)["diagnostics"].get("details", {}).get("result_digest"))
                for row in reader.refusals()
            ]


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    made = Plant(tmp_path)
    yield made
    made.worker.close()
    made.owner.close()


def guest(source: str, **arguments: Any) -> Job:
    head = "\n".join(f"{name} = {value!r}" for name, value in arguments.items())
    return Job(source=f"{head}\n{source}", entry="main", limits=SMALL)


def test_a_result_that_names_another_job_attempt_or_tenant_is_only_a_value(supervisor: Sandbox, plant: Plant) -> None:
    """JOB-083: row "result with other job_id, attempt, tenant, forged resource usage"."""
    victim, mine = plant.start("victim"), plant.start("mine")
    claim = {
        "job_id": "victim",
        "attempt_id": 7,
        "tenant": "other",
        "status": "SUCCEEDED",
        "resource_usage": {"cpu_ms": 0},
    }
    execution = run(supervisor, guest("def main():\n    sum(range(3_000_000))\n    return claim", claim=claim))
    assert plant.worker.report(plant.report(mine, execution).envelope).ok
    assert plant.house.state("mine") == "SUCCEEDED"
    assert plant.house.state("victim") == "RUNNING"
    assert plant.job("mine").usage.cpu_time_ms == execution.usage.cpu_ms > 0
    assert plant.job("victim").lease_id == victim.lease_id


def test_a_signed_result_that_a_guest_got_hold_of_ends_nothing_else(supervisor: Sandbox, plant: Plant) -> None:
    """Row "replays an old result": it returns, prints and leaves the envelope of an earlier job, whole and altered."""
    old = plant.start("old")
    envelope = plant.report(old, run(supervisor, guest("def main(): return 1"))).envelope
    assert plant.worker.report(envelope).ok
    mine = plant.start("new")
    source = "def main():\n    print(stolen.hex())\n    open('result', 'wb').write(stolen)\n    return stolen.hex()"
    execution = run(supervisor, guest(source, stolen=envelope))
    stolen = bytes.fromhex(json.loads(execution.result or b'""'))
    assert stolen == envelope
    assert plant.worker.report(stolen).status == "DEDUPLICATED"  # About the old job, as before; nothing is recorded.
    swapped = stolen.replace(b"old", b"new").replace(old.lease_id, mine.lease_id)
    swapped = swapped.replace(old.job_manifest_hash, mine.job_manifest_hash)
    answer = plant.worker.report(swapped)
    assert answer.refusal is not None
    assert answer.refusal.code == "REPORT_SIGNATURE_INVALID"
    assert plant.house.state("new") == "RUNNING"
    assert plant.refusals() == [("new", "REPORT_SIGNATURE_INVALID", sha256(swapped))]


def test_the_executors_key_and_the_home_are_nowhere_a_guest_can_look(supervisor: Sandbox, plant: Plant) -> None:
    """Row "guest writes the executor's signature or lease file": neither the files nor the bytes are in its world."""
    home = plant.house.home.path
    paths = [str(path) for path in sorted(home.rglob("*")) if path.is_file()]
    assert any("key" in path for path in paths)
    source = """def main():
    import os
    found = []
    for path in paths:
        for mode in ('rb', 'ab'):
            try:
                open(path, mode).close()
                found.append(path)
            except OSError:
                pass
    return found + [value for value in os.environ.values() if value.startswith(home)]"""
    execution = run(supervisor, guest(source, paths=paths, home=str(home)))
    assert execution.category is None or execution.code == "SANDBOX_VIOLATION", execution.message
    assert json.loads(execution.result or b"[]") == []


def test_success_after_the_kill_is_late_whatever_it_says(supervisor: Sandbox, plant: Plant) -> None:
    """JOB-069, X-157: row "SUCCEEDED after kill"."""
    grant = plant.start("mine")
    execution = run(supervisor, guest("def main(): return 'I made it'"))
    report = plant.report(grant, execution)
    plant.owner.ask([Cancel(0, TENANT, "mine")])
    answer = plant.worker.report(report.envelope)
    assert answer.refusal is not None
    assert answer.refusal.code == "LEASE_INVALID"
    assert plant.house.state("mine") == "CANCELED"
    assert plant.refusals() == [("mine", "LEASE_INVALID", report.digest)]
    with plant.house.reader() as reader:
        assert reader.content(report.digest) is None
        ends = [row for row in reader.records_of_job("mine") if row.kind == "transition"]
        assert Evidence.decode(ends[-1].evidence or b"").kind == "cancel"


@pytest.mark.parametrize(
    "body",
    [
        b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins\x94\x8c\x04eval\x94\x93\x94.",
        b"cos\nsystem\n(S'true'\ntR.",
        b'{"__reduce__": ["os.system", ["true"]]}',
    ],
    ids=["pickle 4", "pickle 0", "json"],
)
def test_what_is_handed_in_as_a_result_is_never_unpickled(plant: Plant, body: bytes) -> None:
    """Row "result.json is a pickle": there is one form, and it is strict."""
    plant.start("mine")
    session: Session = plant.worker
    answer = session.report(body)
    assert answer.refusal is not None
    assert answer.refusal.code == "REPORT_INVALID"
    assert plant.house.state("mine") == "RUNNING"
