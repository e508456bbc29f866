"""Rules of the kernel, shown where callers and workers of a server meet them: conflicts, leases, results, claims and evictions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from detent.access.turn import Beat
from detent.canon import json_digest
from detent.jobs.work import FAILED, Failure, Result
from detent.kernel import Grant
from tests.serve.elsewhere import HANDS, HandWorker, ended, task
from tests.serve.laboured import Laboured, eventually, project
from tests.serve.served import Reply, Served, start
from tests.serve.test_jobs_write import CELL

CANCEL = pytest.mark.door("route POST /v1/jobs/{job_id}/cancel")
TURN = pytest.mark.door("route POST /v1/workers/{worker_id}/turn")
SUBMIT = pytest.mark.door("route POST /v1/jobs")
SETTINGS = """
[leases.remote]
ttl_ms = 300
heartbeat_ms = 300

[leases.brief]
ttl_ms = 300
heartbeat_ms = 300

[leases.short]
ttl_ms = 3000
heartbeat_ms = 90000

[backoffs.patient]
delays_ms = [1500, 3000, 9000]
"""


@pytest.fixture(scope="module")
def laboured(tmp_path_factory: pytest.TempPathFactory) -> Laboured:
    found = project(tmp_path_factory.mktemp("rules"))
    with (found.home.path / "config.toml").open("a") as settings:
        settings.write(SETTINGS)
    return found


@pytest.fixture(scope="module")
def served(laboured: Laboured) -> Iterator[Served]:
    server = start(laboured.home.path, laboured.environment, "--project", str(laboured.directory))
    yield server
    server.stop()


@pytest.fixture
def worker(served: Served, tmp_path: Path) -> Iterator[HandWorker]:
    hand = HandWorker(served, tmp_path / "worker")
    yield hand
    served.ask("POST", f"/v1/workers/{hand.enrolled.worker_id}/retire")
    while HANDS:
        HANDS.pop().http.close()


def post(served: Served, path: str, document: object, **headers: str) -> Reply:
    return served.ask("POST", path, body=json.dumps(document).encode(), headers=headers)


def queued(served: Served, laboured: Laboured, word: str, **more: object) -> str:
    return task(served, "tasks:note", word, str(laboured.directory), **more)


def granted(worker: HandWorker, job_id: str) -> Grant:
    (one,) = worker.turn(wanted=1).grants
    grant = Grant(*one.grant)
    assert grant.job_id == job_id
    return grant


def cancelled(served: Served, job_id: str, **asked: object) -> Reply:
    return post(served, f"/v1/jobs/{job_id}/cancel", asked)


def moves(served: Served, job_id: str) -> list[dict[str, Any]]:
    """The transitions of a job, as its records have them."""
    records = served.json(f"/v1/jobs/{job_id}/records")["items"]
    return [one["fields"] for one in records if one["kind"] == "transition"]


def failed(worker: HandWorker, grant: Grant, category: str = "INTERNAL_ERROR") -> tuple[bytes, bytes]:
    failure = Failure(category, "TASK_FAILED" if category == "INTERNAL_ERROR" else category, "it broke")
    result = Result(status=FAILED, failure=failure, started_ms=1, finished_ms=2)
    return worker.report(grant, None, result=result)


# -- conflicts ----------------------------------------------------------------------------------------------------------


@CANCEL
def test_a_cancel_counts_only_where_the_caller_has_seen_the_job(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    """PIPE-064, PIPE-067: stored-1 and stored+1 are conflicts that say where the job stands, and only stored commits."""
    job_id = queued(served, laboured, "seen")
    grant = granted(worker, job_id)
    for expected in (0, 2):
        for _ in "ab":  # The same bad request gets the same answer.
            refused = cancelled(served, job_id, transition_seq=expected)
            assert (refused.status, refused.code) == (409, "CONFLICT")
            told = {name: refused.json[name] for name in refused.json if name.endswith(("_seq", "_state"))}
            assert told == {
                "expected_transition_seq": expected,
                "stored_transition_seq": 1,
                "committed_state": "running",
            }
    assert worker.turn(beats=(Beat(job_id, grant.lease_id),)).revoked == ()
    assert served.json(f"/v1/jobs/{job_id}")["transition_seq"] == 1
    done = cancelled(served, job_id, transition_seq=1)
    assert (done.status, done.json["state"], done.json["transition_seq"]) == (200, "cancelled", 2)


@CANCEL
def test_of_many_cancels_of_one_moment_one_writes(served: Served, laboured: Laboured) -> None:
    """PIPE-064, PIPE-065: they race with the same number, and the job has moved once."""
    job_id = queued(served, laboured, "race")
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: cancelled(served, job_id, transition_seq=0), range(8)))
    assert {reply.status for reply in replies} == {200}  # To cancel what is cancelled is the same answer.
    assert [(one["from_state"], one["to_state"]) for one in moves(served, job_id)] == [
        ("QUEUED", "RUNNING"),
        ("RUNNING", "CANCELED"),
    ]
    assert len({one["batch_no"] for one in served.json(f"/v1/jobs/{job_id}/records")["items"][1:]}) == 1


@CANCEL
def test_a_caller_in_conflict_is_told_to_wait_as_the_jobs_backoff_says(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    """PIPE-068, X-066: the first three conflicts at one place give the first three delays; a move begins anew."""
    job_id = queued(served, laboured, "patience", backoff="patient")
    told = [cancelled(served, job_id, transition_seq=7).json["retry_after_ms"] for _ in range(4)]
    assert told == [1500, 3000, 9000, 9000]
    granted(worker, job_id)
    assert cancelled(served, job_id, transition_seq=7).json["retry_after_ms"] == 1500
    assert cancelled(served, job_id).status == 200


@CANCEL
def test_of_two_faults_of_a_cancel_the_earlier_check_decides(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    """PIPE-071, X-056: arguments (1), then the job (3), then its end (2), then where it stands (6)."""
    job_id = queued(served, laboured, "order")
    worker.turn(reports=(worker.report(granted(worker, job_id)),))
    open_id = queued(served, laboured, "order, open")
    for name, asked, code in (
        ("absent", {"transition_seq": -1}, "VALIDATION_ERROR"),
        (open_id, {"transition_seq": "9"}, "VALIDATION_ERROR"),
        ("absent", {"transition_seq": 9}, "UNKNOWN_JOB"),
        (job_id, {"transition_seq": 9}, "CONFLICT"),
        (open_id, {"transition_seq": 9}, "CONFLICT"),
    ):
        assert cancelled(served, name, **asked).code == code, (name, asked)
    over = cancelled(served, job_id, transition_seq=9).json
    assert (over["committed_state"], "expected_transition_seq" in over) == ("succeeded", False)
    assert cancelled(served, open_id).status == 200


# -- results ------------------------------------------------------------------------------------------------------------


@TURN
def test_of_two_faults_of_a_report_the_earlier_check_decides(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path
) -> None:
    """PIPE-071, X-056: what a report is (1), its signer (4), its job (3), its attempt (7), its lease (9)."""
    other = HandWorker(served, tmp_path / "other")
    job_id = queued(served, laboured, "faults")
    grant = granted(worker, job_id)
    wrong = {"job_id": "absent", "manifest_hash": b"\x01" * 32, "attempt_id": 7, "lease_id": b"\x02" * 32}

    def code(*names: str, by: HandWorker = worker, value: bytes = b"1") -> str:
        changes = {name: wrong[name] for name in names}
        lease_id, envelope = by.report(grant, value, **changes)
        return by.turn(reports=((lease_id, envelope),)).results[0][1]

    assert code(*wrong, by=other, value=b"no json") == "REPORT_INVALID"
    assert code(*wrong) == "UNKNOWN_JOB"
    assert code("manifest_hash", "attempt_id", "lease_id", by=other) == "REPORT_MISMATCH"
    assert code("manifest_hash", "attempt_id", "lease_id") == "REPORT_MISMATCH"
    assert code("attempt_id") == "REPORT_MISMATCH"
    assert code("attempt_id", "lease_id") == "LEASE_INVALID"
    assert code("lease_id") == "LEASE_INVALID"
    assert code(by=other) == "REPORT_SIGNATURE_INVALID"
    assert served.json(f"/v1/jobs/{job_id}")["transition_seq"] == 1
    assert code() == "OK"


@TURN
def test_a_repeated_result_is_the_same_record_and_another_one_is_too_late(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    """X-035, PIPE-066, PIPE-067: success and failure of one attempt race; the first counts, its repeat is known, the other is refused."""
    for word, first_fails in (("success first", False), ("failure first", True)):
        job_id = queued(served, laboured, word, retries=0)
        grant = granted(worker, job_id)
        good, bad = worker.report(grant), failed(worker, grant)
        first, second = (bad, good) if first_fails else (good, bad)
        codes = [worker.turn(reports=(one,)).results[0][1] for one in (first, first, second, first)]
        assert codes == ["OK", "OK", "LEASE_INVALID", "OK"]
        assert [one["to_state"] for one in moves(served, job_id)] == [
            "RUNNING",
            "FAILED" if first_fails else "SUCCEEDED",
        ]
        assert ended(served, job_id)["status"] == ("failed" if first_fails else "succeeded")


@TURN
@pytest.mark.parametrize("value", [b"not json" * 20_000, b"{'small': 1}", b"[NaN]", b"\xff\xfe"])
def test_a_value_that_is_not_json_is_refused_and_its_job_can_be_read(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path, value: bytes
) -> None:
    """A lying worker's bytes never come to those who read results."""
    from detent.store.content import ContentFiles

    job_id = queued(served, laboured, f"lie {len(value)}")
    grant = granted(worker, job_id)
    large: dict[str, Any] = {}
    if len(value) > 64 * 1024:
        own = ContentFiles(tmp_path / "own")
        digest = own.put(value)
        worker.requests.send(digest, grant.lease_id, own)
        large = {"value_content": digest, "value_digest": json_digest(value)}
    report = worker.report(grant, None if large else value, **large)
    assert worker.turn(reports=(report,)).results == ((grant.lease_id, "REPORT_INVALID"),)
    assert served.json(f"/v1/jobs/{job_id}")["value"] is None
    assert served.get(f"/v1/pages/show?id={job_id}").status == 200
    again = worker.turn(wanted=1, beats=(Beat(job_id, grant.lease_id),))
    assert again.grants == (), "the attempt goes on"
    assert worker.turn(reports=(worker.report(grant),)).results == ((grant.lease_id, "OK"),)


# -- leases -------------------------------------------------------------------------------------------------------------


@TURN
def test_a_heartbeat_moves_the_end_of_a_lease_and_nothing_else(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path
) -> None:
    """PIPE-074, X-057: two equal leases, and the older one outlives the other by its heartbeat; its job's sequence stays."""
    silent = HandWorker(served, tmp_path / "silent")
    alive = queued(served, laboured, "alive", lease="short")
    grant = granted(worker, alive)
    worker.turn()  # A lease that was never named is told again, and extended whatever its age.
    mute = queued(served, laboured, "mute", lease="short", backoff="patient")
    granted(silent, mute)
    eventually(lambda: served.json(f"/v1/jobs/{mute}")["detail"] == "retrying", "the silent one's lease has ended")
    job = served.json(f"/v1/jobs/{alive}")
    assert (job["state"], job["transition_seq"]) == ("running", 1)
    assert len(moves(served, alive)) == 1
    assert worker.turn(reports=(worker.report(grant),)).results == ((grant.lease_id, "OK"),)
    assert cancelled(served, mute).status == 200


@TURN
def test_a_lease_that_its_worker_gave_up_ends(served: Served, laboured: Laboured, worker: HandWorker) -> None:
    """A worker gives a lease up by its own clock. Its later turns neither extend it nor are told of it again, so the job is retried."""
    job_id = queued(served, laboured, "given up", lease="short", backoff="patient")
    grant = granted(worker, job_id)
    worker.turn(beats=(Beat(job_id, grant.lease_id),))

    def retried() -> bool:
        assert worker.turn().grants == ()
        return bool(served.json(f"/v1/jobs/{job_id}")["detail"] == "retrying")

    eventually(retried, "the lease has ended though its worker takes turns")
    assert cancelled(served, job_id).status == 200


@TURN
def test_a_heartbeat_after_the_end_of_its_lease_is_refused(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    """PIPE-074, X-057: the attempt is over, and neither a sign of life nor a result brings it back."""
    job_id = queued(served, laboured, "late", lease="brief", backoff="patient")
    grant = granted(worker, job_id)
    eventually(lambda: served.json(f"/v1/jobs/{job_id}")["detail"] == "retrying", "the lease has ended")
    late = worker.turn(beats=(Beat(job_id, grant.lease_id),))
    assert late.revoked == ((grant.lease_id, "LEASE_INVALID"),)
    assert worker.turn(reports=(worker.report(grant),)).results == ((grant.lease_id, "LEASE_INVALID"),)
    assert [(one["to_state"], one["reason_code"]) for one in moves(served, job_id)][:2] == [
        ("RUNNING", "DISPATCHED"),
        ("RETRYING", "LEASE_EXPIRED"),
    ]
    assert cancelled(served, job_id).status == 200


@TURN
def test_a_job_that_is_fetched_and_one_that_is_handed_out_have_the_same_record(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    """X-007: one worker asks for a job that waits, and waits for a job that comes."""
    fetched = queued(served, laboured, "fetched")
    grant = granted(worker, fetched)
    worker.turn(reports=(worker.report(grant),))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(worker.turn, worker.say(wanted=1, wait_ms=20_000))
        shown = f"/v1/workers/{worker.enrolled.worker_id}"
        eventually(lambda: served.json(shown)["silent_ms"] is not None, "the turn waits")
        handed = queued(served, laboured, "handed")
        (one,) = waiting.result(60).grants
    worker.turn(reports=(worker.report(Grant(*one.grant)),))
    own = {
        "job_id",
        "tick",
        "lease_id",
        "idempotency_key",
        "request_digest",
        "evidence_ref",
        "previous",
        "manifest_hash",
    }
    logs = [
        [{name: value for name, value in body.items() if name not in own} for body in moves(served, job_id)]
        for job_id in (fetched, handed)
    ]
    assert [body["to_state"] for body in logs[0]] == ["RUNNING", "SUCCEEDED"]
    assert [body.keys() for body in logs[0]] == [body.keys() for body in logs[1]]
    same = [
        {name: one[name] for name in one if one[name] == two[name]} for one, two in zip(logs[0], logs[1], strict=True)
    ]
    assert {"from_state", "to_state", "reason_code", "dispatch", "attempt_id", "transition_seq"} <= same[0].keys()


# -- submitting ---------------------------------------------------------------------------------------------------------


@SUBMIT
def test_a_repeated_request_gets_the_answer_of_its_first_time_and_a_query_the_present(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    """X-027: the stored bytes say `queued`, long after the job has succeeded."""
    asked = {"task": {"target": "tasks:note", "arguments": ["kept", str(laboured.directory)]}}
    first = post(served, "/v1/jobs", asked, **{"Idempotency-Key": "kept"})
    job_id = first.json["job_id"]
    assert worker.turn(reports=(worker.report(granted(worker, job_id)),)).results[0][1] == "OK"
    assert ended(served, job_id)["status"] == "succeeded"
    again = post(served, "/v1/jobs", asked, **{"Idempotency-Key": "kept"})
    assert (again.status, again.body, again.json["status"]) == (202, first.body, "queued")
    assert again.headers["detent-replayed"] == "true"


@SUBMIT
@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"target": None}, "body.task.target"),
        ({"priority": "urgent"}, "body.task.priority"),
        ({"priority": 9}, "body.task.priority"),
        ({"retries": -1}, "body.task.retries"),
        ({"retries": "2"}, "body.task.retries"),
        ({"retries": 2**64}, "body.task.retries"),
        ({"max_retries": 2}, "body.task.max_retries"),
        ({"tenant_id": "another"}, "body.task.tenant_id"),
        ({"manifest_hash": "00"}, "body.task.manifest_hash"),
        ({"lease": 5}, "body.task.lease"),
        ({"quota": ["small"]}, "body.task.quota"),
        ({"timeout_ms": 0}, "body.task.timeout_ms"),
    ],
)
def test_what_a_manifest_would_be_made_of_is_checked_and_makes_no_job(
    served: Served, laboured: Laboured, changes: dict[str, Any], path: str
) -> None:
    """PIPE-030: a field that is missing, unknown, of a wrong type or out of its range is refused by its name."""
    before = served.json("/v1/counts")["jobs"]
    said = {"target": "tasks:note", "arguments": ["no", str(laboured.directory)], **changes}
    refused = post(served, "/v1/jobs", {"task": {name: value for name, value in said.items() if value is not None}})
    assert (refused.status, refused.code) == (400, "VALIDATION_ERROR")
    assert path in {one["path"] for one in refused.json["errors"]}
    assert served.json("/v1/counts")["jobs"] == before


@SUBMIT
def test_a_policy_that_does_not_exist_makes_no_manifest(served: Served, laboured: Laboured) -> None:
    """PIPE-030"""
    for name in ("lease", "backoff", "quota"):
        said = {"target": "tasks:note", "arguments": ["no", str(laboured.directory)], name: "absent"}
        assert post(served, "/v1/jobs", {"task": said}).code == "POLICY_UNKNOWN"


@pytest.mark.door("setting [queue] admission_policy")
@SUBMIT
def test_a_job_that_a_full_queue_gives_up_ends_cancelled_for_its_reason(tmp_path: Path) -> None:
    """CORE-X018, X-082: the oldest of its class (`drop-lru`), then one of a lower class (`shed-low-priority`)."""
    laboured = project(tmp_path)
    config = laboured.home.path / "config.toml"
    lines = config.read_text().replace("capacity_per_class = 256", "capacity_per_class = 2")
    lines = lines.replace("capacity_total = 2560", "capacity_total = 2")

    def cell(served: Served, name: str, priority: str) -> str:
        reply = post(served, "/v1/jobs", {"payload": {**CELL, "document_id": name, "priority": priority}})
        assert reply.status == 202, reply.body
        return str(reply.json["job_id"])

    kept: list[str] = []
    for policy, reason in (("drop-lru", "DROPPED_LRU"), ("shed-low-priority", "SHED_LOW_PRIORITY")):
        config.write_text(lines.replace('admission_policy = "reject"', f'admission_policy = "{policy}"'))
        served = start(laboured.home.path, laboured.environment, "--project", str(laboured.directory))
        try:
            if not kept:
                gone, *kept = [cell(served, name, "low") for name in ("one", "two", "three")]
            else:
                newest = cell(served, "four", "high")
                (gone,) = [one for one in kept if served.json(f"/v1/jobs/{one}")["status"] == "cancelled"]
                kept = [one for one in kept if one != gone] + [newest]
            job = served.json(f"/v1/jobs/{gone}")
            assert (job["status"], job["state"], job["reason_code"]) == ("cancelled", "cancelled", reason)
            assert moves(served, gone)[-1]["to_state"] == "CANCELED"
            assert [served.json(f"/v1/jobs/{one}")["status"] for one in kept] == ["queued", "queued"]
        finally:
            served.stop()
