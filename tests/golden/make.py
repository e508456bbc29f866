"""Make the kernel's golden files: short lives of jobs, byte for byte.

`make golden` runs this; the diff is reviewed as code, because every changed byte is a ledger that no longer replays or
verifies as it did. A file has one item on each line: a name for people, then the bytes in hex.

`bundle.hex` is a whole ledger of one job, with the digest to pin, as strangers verify it; `bundle-workers.hex` one with operators'
actions and workers of other machines, and `bundle-workers-run.hex` its run alone. `placed.txt` is the life of a job that asks for a
pool, labels and a resource, with its order and with the turn of a worker that offers them. Some files beside them are not made
here. `transitions.json` states what the contract wants, not what the kernel does. `before-origin.tar.gz` is a home and two bundles
that a version wrote whose manifests did not name their ledger: they are never made again, and verify for ever. `packed.tar.gz` is the same
from the first version that shares signatures, keeps decisions by the commit and stores records in less room (`tests/golden/packed.py`),
`arrays.tar.gz` from the first whose mapped steps share jobs (`tests/golden/arrays.py`), and `operators.tar.gz` from the first that records
operators' actions and enrols workers (`tests/golden/operators.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from detent.access.turn import Turn
from detent.canon import encode, sha256
from detent.jobs.order import Call, JobLimits, Order
from detent.jobs.placing import wanted_by
from detent.kernel import (
    ChangeTrust,
    Claim,
    EndRun,
    EnrollWorker,
    Erase,
    Finish,
    Heartbeat,
    IterEvent,
    Kernel,
    LeasePolicy,
    MemoryHistory,
    Operate,
    RaiseEpoch,
    Record,
    Resume,
    RetireWorker,
    ReuseRun,
    ReuseStep,
    StartRun,
    Submit,
    checkpoint,
    checkpoint_digest,
    encode_commands,
    run_end,
    run_header,
    transition_log_hash,
)
from detent.kernel.policy import RULE_LE_ALL_RETRY
from detent.ledger import sign_result, write_bundle
from detent.owner.content import seal_trusted
from detent.scheduling.orders import write_request
from detent.scheduling.scheduler import Scheduler
from tests.flat_reports import flat_report
from tests.kernel.builders import (
    LEASE,
    NO_LEASE,
    OWNER_KEY_ID,
    TENANT,
    Scene,
    body_of,
    config,
    manifest,
    queue_of,
    quota,
    verified,
)
from tests.ledger.build import ORIGIN, Builder, key

FOLDER = Path(__file__).resolve().parent
BUDGET = quota(cpu_time_budget_ms=50)
BUDGET_WITH_RETRY = quota(cpu_time_budget_ms=50, evaluation_rule_id=RULE_LE_ALL_RETRY)
DETAIL = bytes(range(32, 64))


def succeeded() -> Scene:
    """One job runs, beats, reports what it used, and succeeds; the result comes twice."""
    scene = Scene()
    grant = scene.start()
    scene.tick = 40
    scene.heartbeat(grant)
    scene.usage(grant, cpu_time_ms=12, bytes_allocated=4096, io_bytes_read=100)
    scene.tick = 90
    for _ in range(2):
        scene.finish(grant, detail_digest=DETAIL)
    return scene


def retried() -> Scene:
    """A lease is lost, a worker is lost, an attempt fails, and the last failure ends the job."""
    scene = Scene()
    scene.submit(max_retries=2)
    scene.claim()
    scene.at(100)
    scene.at(110)
    (grant,) = scene.claim()
    scene.fail(grant, kind="worker_lost", reason_code="WORKER_LOST", category=None)
    for _ in range(2):
        (grant,) = scene.claim()
        scene.fail(grant)
        scene.at(scene.tick + 20)
    return scene


def canceled() -> Scene:
    """Jobs are canceled while queued, running and retrying, and once more after that; one fills the queue meanwhile."""
    scene = Scene(config(queue=queue_of(2, 2)))
    running, retrying = scene.start("running"), scene.start("retrying")
    scene.submit("queued")
    scene.submit("waiting", priority=9)
    scene.fail(retrying)
    scene.at(10)
    scene.cancel("retrying", reason_code="SUPERSEDED")
    scene.cancel("queued", detail_digest=DETAIL)
    scene.cancel("running", expected_transition_seq=1)
    scene.cancel("queued")
    scene.finish(running)
    return scene


def denied() -> Scene:
    """Budgets end an attempt, deny the retry its start, and let a cancel pass."""
    scene = Scene(config(BUDGET, BUDGET_WITH_RETRY))
    final = scene.start("final", quota=BUDGET)
    scene.usage(final, cpu_time_ms=50)
    scene.usage(final, cpu_time_ms=1)
    again = scene.start("again", quota=BUDGET_WITH_RETRY)
    scene.usage(again, cpu_time_ms=51)
    scene.at(10)
    scene.claim()
    return scene


def refused() -> Scene:
    """Every way to be told no, and a request that is repeated."""
    scene = Scene()
    grant = scene.start()
    scene.transition("job-1", "QUEUED", "CANCELED")
    scene.transition("job-1", "RUNNING", "FAILED", expected_transition_seq=5)
    scene.transition("job-1", "RUNNING", "FAILED", attempt_id=3)
    scene.transition("job-1", "QUEUED", "RUNNING")
    scene.transition("job-1", "QUEUED", "RUNNING", expected_transition_seq=0)
    scene.apply(Finish(0, "job-1", NO_LEASE))
    scene.apply(Claim(0, "", 1))
    scene.submit(priority=6)
    scene.finish(grant)
    scene.transition("job-1", "RUNNING", "SUCCEEDED", expected_transition_seq=1)
    scene.cancel()
    return scene


def stale() -> Scene:
    """Results that come too late, or contradict the one that counts, under the rules that trace them."""
    scene = Scene(config(rules=2))
    closed, lost = scene.start("closed"), scene.start("lost")
    scene.finish(closed)
    scene.fail(closed)
    scene.at(100)
    scene.finish(lost)
    scene.finish(closed)
    return scene


def run() -> Scene:
    """An owner takes over, trust changes, a run reuses one step and runs two, the owner stalls, content is erased."""
    scene = Scene()
    scene.apply(RaiseEpoch(1, 1, OWNER_KEY_ID, scene.kernel.config.encode()))
    scene.apply(ChangeTrust(1, 1, sha256(b"trust"), b"trust"))
    scene.tick = 2
    scene.finish(scene.start("old"))
    digests = (sha256(b"contract"), sha256(b"bindings"), sha256(b"inputs"))
    scene.apply(StartRun(3, TENANT, "run-1", "nightly", *digests, "operation-1"))
    scene.apply(ReuseStep(3, "run-1", "extract", "old", sha256(b"ingredients")))
    scene.submit("transform", run_id="run-1", job_kind="action")
    scene.submit("löad", run_id="run-1", job_kind="action")
    one, two = scene.claim(2)
    scene.tick = 1_000
    scene.apply(Resume(1_000, ((one.job_id, one.lease_id), (two.job_id, two.lease_id))))
    for grant in (two, one):
        scene.finish(grant)
    scene.apply(EndRun(1_001, "run-1", "completed"))
    scene.apply(Erase(1_002, (sha256(b"payload"),), 0))
    scene.submit("left-over", priority=1)
    return scene


def reused() -> Scene:
    """A run takes the results of an earlier one, but for one step, which it takes from a single job."""
    scene = Scene()
    scene.finish(scene.start("old"))
    digests = (sha256(b"contract"), sha256(b"bindings"), sha256(b"inputs"))
    scene.apply(StartRun(1, TENANT, "run-1", "nightly", *digests, "operation-1"))
    scene.tick = 1
    for job_id in ("extract", "transform", "load"):
        scene.finish(scene.start(job_id, run_id="run-1", job_kind="action"))
    scene.apply(EndRun(2, "run-1", "completed"))
    scene.apply(StartRun(3, TENANT, "run-2", "nightly", *digests, "operation-2"))
    scene.apply(ReuseRun(3, "run-2", "run-1", ("transform",), sha256(b"ingredients")))
    scene.apply(ReuseStep(3, "run-2", "transform", "old", sha256(b"ingredients")))
    scene.apply(EndRun(4, "run-2", "completed"))
    scene.apply(StartRun(5, TENANT, "run-3", "nightly", *digests, "operation-3"))
    scene.apply(ReuseRun(5, "run-3", "run-1", (), sha256(b"ingredients")))
    return scene


def operated() -> Scene:
    """Operators act, with and without evidence; workers are enrolled, one of them twice and one with another's key, and retired."""
    scene = Scene()
    scene.submit("job-1")
    evidence = encode({"request_id": "req-1", "route": "POST /v1/jobs/{id}/cancel", "reason": "too slow"})
    who = ("p_ann", "dtk_7ab")
    scene.cancel("job-1")
    scene.apply(Operate(1, *who, "job.cancel", "job", "job-1", "OK", sha256(b"1"), TENANT, evidence))
    scene.apply(Operate(1, *who, "job.cancel", "job", "job-2", "UNKNOWN_JOB", sha256(b"2"), TENANT))
    scene.apply(Operate(2, "p_local", "local", "server.started", "server", "here", "OK", sha256(b"3")))
    scene.apply(Operate(2, *who, "Job Cancel", "job", "job-1", "OK", sha256(b"4")))
    for worker_id, number in (("gpu-1", 1), ("gpu-2", 2), ("gpu-1", 1), ("gpu-3", 1)):
        certificate = f"certificate of {worker_id}".encode()
        both = encode({"certificate": certificate, "proof": b"proof"})
        scene.apply(EnrollWorker(3, worker_id, bytes((number,)) * 32, sha256(certificate), both))
    for worker_id, reason in (("gpu-1", "KEY_LOST"), ("gpu-1", "KEY_LOST"), ("gpu-1", "OTHER"), ("gpu-9", "KEY_LOST")):
        scene.apply(RetireWorker(4, worker_id, reason))
    return scene


STORIES: dict[str, Callable[[], Scene]] = {
    story.__name__: story for story in (succeeded, retried, canceled, denied, refused, stale, run, reused, operated)
}


PLACED = Order(
    Call(kind="python", target="tasks:fit", base="/project"),
    "fit",
    JobLimits(pool="gpu", labels=("a100", "cuda"), resources={"gpu": 2, "memory_mb": 4096}),
)
OFFERED = Turn(
    "0123456789abcdef",
    7,
    wanted=1,
    slots=4,
    version="0.1.0",
    resources={"gpu": 2, "memory_mb": 8192},
    pool="gpu",
    labels=("a100", "cuda"),
)


def placed() -> Scene:
    """A job waits behind a claim that offers nothing and one that offers less, and is leased to the worker that has what it asks for."""
    leases = (LEASE, LeasePolicy("remote", 300, 300))
    history = MemoryHistory()
    scene = Scene(kernel=Kernel(config(lease_policies=leases), make_queue=Scheduler, history=history))
    scene.history = history
    asked = wanted_by(PLACED.limits, {"cpu": 8})
    payload = sha256(seal_trusted(PLACED.document(), bytes(16)))
    scene.apply(Submit(0, verified("placed", payload_digest=payload), None, write_request(labels=list(asked))))
    scene.submit("plain")
    scene.claim(2, "local/1")
    own = (TENANT,), ("task",), None
    scene.apply(Claim(1, "gpu-1/boot", 1, *own, ("a100", "pool:gpu"), "remote"))
    (grant,) = scene.apply(Claim(2, "gpu-2/boot", 1, (TENANT,), ("task",), ("plain",), asked, "remote")).grants
    scene.tick = 150
    scene.apply(Heartbeat(150, grant.job_id, grant.lease_id, lease="remote"))
    scene.finish(grant, detail_digest=DETAIL)
    return scene


def render_placed() -> str:
    """The golden file of a placed job."""
    said = [("order", seal_trusted(PLACED.document(), bytes(16))), ("turn", OFFERED.encode())]
    return "".join(f"{name}\t{data.hex()}\n" for name, data in (*said, *lines_of(placed())))


def lines_of(scene: Scene) -> Iterator[tuple[str, bytes]]:
    """Everything a story leaves behind, named: commands, records with their evidence, trace, errors, checkpoint."""
    yield "config", scene.kernel.config.encode()
    yield "commands", encode_commands(scene.commands)
    for record in scene.records:
        yield f"record {_name_of(record)}", record.body
        if record.evidence is not None:
            yield "evidence", record.evidence
    yield from _trace_of(scene)
    for outcome in scene.outcomes:
        if outcome.error is not None:
            yield f"error {outcome.error.failure_code} t={outcome.error.t}", outcome.error.encode()
    yield "checkpoint", checkpoint(scene.kernel)
    yield "checkpoint digest", checkpoint_digest(checkpoint(scene.kernel))


def log_hash_of(scene: Scene) -> bytes:
    """The transition log hash over all jobs of a scene, ended or alive."""
    jobs = sorted({**scene.history.jobs, **scene.kernel.jobs}.items())
    return transition_log_hash(len(jobs), [(job_id, job.transition_seq, job.head) for job_id, job in jobs])


def render(story: str) -> str:
    """A golden file of a story."""
    return "".join(f"{name}\t{data.hex()}\n" for name, data in lines_of(STORIES[story]()))


def render_manifest(origin: str | None = None) -> str:
    """The golden manifest, signed for a ledger or for none, and its hash."""
    body = manifest("job-1", origin=origin).body()
    return f"{body.hex()}\n{sha256(body).hex()}\n"


def render_bundle() -> str:
    """A ledger on which one job was submitted, leased and finished, and its root."""
    ledger = Builder()
    ledger.submit("job-1")
    ledger.claim()
    ledger.finish("job-1", detail_digest=DETAIL)
    ledger.commit()
    ledger.keep_head()
    return f"{ledger.bundle().hex()}\n{ledger.root}\n"


def render_worker_bundle(run_id: str | None) -> str:
    """A ledger with operators' actions, a worker that reported a result and was retired, and one that stayed; or its run alone."""
    ledger = Builder()
    ledger.allow_enrolment()
    for worker_id in ("gpu-1", "gpu-2"):
        ledger.enroll(worker_id)
    ledger.operate("key.create", "dtk_ann", object_kind="key", evidence=encode({"parameters": {"role": "operator"}}))
    ledger.commit()
    ledger.tick = 10
    ledger.start_run("run-1")
    ledger.submit("job-1", run_id="run-1")
    ledger.claim(1, "gpu-1/boot-1")
    ledger.commit()
    ledger.tick = 20
    grant = ledger.grants["job-1"]
    report = flat_report(
        job_id="job-1",
        attempt_id=grant.attempt_id,
        lease_id=grant.lease_id,
        manifest_hash=grant.job_manifest_hash,
        status="SUCCEEDED",
        nonce=bytes(16),
    )
    signed = sign_result(report.body(), key("gpu-1")).envelope()
    ledger.finish("job-1", detail_digest=ledger.content(signed))
    ledger.end_run("run-1")
    ledger.operate("run.cancel", "run-1", object_kind="run", outcome_code="CONFLICT")
    ledger.commit()
    ledger.retire("gpu-1")
    ledger.operate("worker.retire", "gpu-1", object_kind="worker", tenant_id=None)
    ledger.commit()
    ledger.keep_head()
    items = ledger.items() if run_id is None else ledger.run_items(run_id)
    return f"{b''.join(write_bundle(items)).hex()}\n{ledger.root}\n"


def files() -> dict[str, str]:
    """Every golden file made here, by name."""
    made = {
        "manifest.hex": render_manifest(),
        "manifest-origin.hex": render_manifest(ORIGIN),
        "bundle.hex": render_bundle(),
        "bundle-workers.hex": render_worker_bundle(None),
        "bundle-workers-run.hex": render_worker_bundle("run-1"),
        "placed.txt": render_placed(),
    }
    return made | {f"lifecycle-{story}.txt": render(story) for story in STORIES}


def main() -> None:
    """Write the files."""
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def _name_of(record: Record) -> str:
    body = body_of(record)
    if record.kind == "transition":
        return f"{record.job_id} {record.transition_seq} {body['from_state']}->{body['to_state']}"
    return " ".join(filter(None, (record.kind, record.run_id, record.job_id)))


def _trace_of(scene: Scene) -> Iterator[tuple[str, bytes]]:
    settings = scene.kernel.config
    yield "trace run_header", encode(run_header(settings))
    for event in scene.events:
        yield f"trace {_event_name(event)}", encode(event.to_map())
    yield "trace run_end", encode(run_end(settings, len(scene.events), log_hash_of(scene)))


def _event_name(event: IterEvent) -> str:
    return f"{event.t} {event.job_id} {event.from_state}->{event.to_state} {event.status}"


if __name__ == "__main__":
    main()
