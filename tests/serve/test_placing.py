"""Where jobs run: a task, a step, a call and a payload ask for a pool, labels and resources in the same way.

One server without workers of its own serves all tests; workers are moved by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import detent
from detent.errors import DetentError, RequestRefused
from detent.jobs.order import read_order
from detent.kernel import Grant
from detent.owner.content import open_value
from tests.serve.elsewhere import HANDS, HandWorker, ended, enrolment, task
from tests.serve.laboured import Laboured, eventually, project
from tests.serve.served import ANSWER_SECONDS, Reply, Served, start
from tests.serve.test_jobs_write import CELL
from tests.serve.test_reads import pages

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER_TRACE = TRACE.replace("0af7", "0bf7")
RETRY_TRACE = TRACE.replace("0af7", "0cf7")
GPU = """\
name: train
steps:
  - {id: fit, pool: gpu, labels: [a100], resources: {gpu: 1}, map: {word: [one, two]}, run: {python: "tasks:note", with: {place: "."}}}
  - {id: last, needs: [fit], labels: a100, run: {shell: "true"}}
"""


@pytest.fixture(scope="module")
def laboured(tmp_path_factory: pytest.TempPathFactory) -> Laboured:
    made = project(tmp_path_factory.mktemp("placing"))
    with (made.home.path / "config.toml").open("a") as settings:
        settings.write(
            '\n[pools]\nlater = ["big"]\nshelf = []\n\n[leases.remote]\nttl_ms = 90000\nheartbeat_ms = 90000\n'
        )
        settings.write("\n[workers]\naudit_percent = 100\n")
    return made


@pytest.fixture(scope="module")
def served(laboured: Laboured) -> Iterator[Served]:
    server = start(laboured.home.path, laboured.environment, "--project", str(laboured.directory))
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while HANDS:
        HANDS.pop().http.close()


@pytest.fixture
def worker(served: Served, tmp_path: Path) -> Iterator[HandWorker]:
    """A worker that offers nothing in particular."""
    hand = HandWorker(served, tmp_path / "worker")
    yield hand
    retire(served, hand)


@pytest.fixture
def gpu(served: Served, tmp_path: Path) -> Iterator[HandWorker]:
    """A worker with a GPU, which it has said once."""
    hand = HandWorker(served, tmp_path / "gpu", enrolment(served, labels=["a100", "cuda"], pools=["gpu"]))
    hand.turn(resources={"gpu": 1})
    yield hand
    retire(served, hand)


def retire(served: Served, hand: HandWorker) -> None:
    served.ask("POST", f"/v1/workers/{hand.enrolled.worker_id}/retire")


def post(served: Served, path: str, document: Any) -> Reply:
    return served.ask("POST", path, body=json.dumps(document).encode())


def queued(served: Served, laboured: Laboured) -> str:
    return task(served, "tasks:note", "one", str(laboured.directory))


def taken(worker: HandWorker, **said: Any) -> Grant:
    """The one job that a worker is granted now."""
    (one,) = worker.turn(wanted=1, wait_ms=20_000, **said).grants
    return Grant(*one.grant)


def granted(worker: HandWorker, job_id: str, **said: Any) -> Grant:
    grant = taken(worker, **said)
    assert grant.job_id == job_id
    return grant


def cancelled(served: Served, job_id: str) -> None:
    assert post(served, f"/v1/jobs/{job_id}/cancel", {}).status == 200


def refused_task(served: Served, **more: object) -> tuple[int, str, str]:
    body = {"task": {"target": "tasks:note", "arguments": ["one", "/"], **more}}
    reply = served.ask("POST", "/v1/jobs", body=json.dumps(body).encode())
    return reply.status, reply.code, reply.json["detail"]


@pytest.mark.door("POST /v1/jobs")
def test_a_job_with_labels_goes_to_a_worker_that_has_them_and_holds_up_no_other(
    served: Served, laboured: Laboured, worker: HandWorker, gpu: HandWorker
) -> None:
    place = str(laboured.directory)
    labelled = task(served, "tasks:note", "gpu", place, labels=["a100"], pool="gpu")
    plain = queued(served, laboured)
    worker.turn(reports=(worker.report(granted(worker, plain)),))
    assert worker.turn(wanted=1).grants == (), "it has no labels"
    assert worker.turn(wanted=1, labels=("a100",)).grants == (), "it is in no pool"
    explained = served.json(f"/v1/jobs/{labelled}/explain")
    assert "It waits for a worker elsewhere that offers pool gpu, label a100." in json.dumps(explained)
    grant = granted(gpu, labelled)
    gpu.turn(reports=(gpu.report(grant),))
    assert ended(served, labelled)["status"] == "succeeded"
    served.ask("POST", f"/v1/workers/{gpu.enrolled.worker_id}/retire")
    status, code, detail = refused_task(served, labels=["a100"], pool="gpu")
    assert (status, code) == (422, "NO_FEASIBLE_POOL")
    assert "no worker of this workspace offers pool gpu" in detail


@pytest.mark.door("setting: [pools]")
def test_a_promised_pool_lets_jobs_wait_and_explain_says_what_is_missing(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path
) -> None:
    job_id = task(served, "tasks:note", "later", str(laboured.directory), pool="later", labels=["big"])
    explained = json.dumps(served.json(f"/v1/jobs/{job_id}/explain"))
    assert "is certified for pool later, label big" in explained
    assert refused_task(served, pool="later", labels=["huge"])[1] == "NO_FEASIBLE_POOL"
    certified = HandWorker(served, tmp_path / "late", enrolment(served, pools=["later", "other"], labels=["big"]))
    with pytest.raises(DetentError, match="not certified for pool gpu"):
        certified.turn(pool="gpu")
    assert certified.turn(wanted=1, pool="other").grants == (), "this start works in another pool"
    grant = granted(certified, job_id)
    certified.turn(reports=(certified.report(grant),))
    assert ended(served, job_id)["status"] == "succeeded"
    served.ask("POST", f"/v1/workers/{certified.enrolled.worker_id}/retire")


@pytest.mark.door("GET /v1/jobs", "detent list")
def test_jobs_are_listed_by_pool_and_by_label_however_they_were_submitted(served: Served, gpu: HandWorker) -> None:
    """Work that is never reused is listed as well: payloads, tasks without a result to keep, steps and what repeats them."""
    one = {"target": "tasks:note", "arguments": ["listed", "/"], "pool": "shelf", "reuse": False}
    sent = [
        post(served, "/v1/jobs", {"task": {**one, "label": "listed"}}),
        post(served, "/v1/jobs", {"task": {**one, "label": "listed", "reuse": True, "arguments": ["kept", "/"]}}),
        post(served, "/v1/jobs", {"payload": {**CELL, "document_revision_id": "listed"}, "place": {"pool": "shelf"}}),
    ]
    assert {reply.status for reply in sent} == {202}
    jobs = [str(reply.json["job_id"]) for reply in sent]
    contract = "name: listing\nsteps: [{id: a, pool: shelf, run: {shell: 'true'}}]\n"
    run_id = post(served, "/v1/runs", {"contract": contract}).json["run_id"]
    eventually(lambda: bool(served.json(f"/v1/jobs?run={run_id}")["items"]), "the step is queued")
    step = [str(job["job_id"]) for job in served.json(f"/v1/jobs?run={run_id}")["items"]]
    batch = post(served, "/v1/jobs:batch", {"items": [{"task": {**one, "label": "in a batch"}}], "atomic": True})
    jobs += [*step, str(batch.json["items"][0]["job_id"])]

    def listed(query: str) -> list[str]:
        return [job["job_id"] for job in pages(served, f"/v1/jobs?limit=2&{query}")]

    assert listed("pool=shelf") == jobs[::-1]
    assert listed("label=listed") == jobs[1::-1]
    assert listed("label=listing/a") == step
    assert listed("label=in%20a%20batch") == jobs[-1:]
    assert listed("label=nobody's") == listed("pool=nobody's") == []
    cancelled(served, jobs[0])
    assert listed("label=listed&state=cancelled") == listed("pool=shelf&state=cancelled") == jobs[:1]
    assert listed("pool=shelf&state=queued") == jobs[:0:-1]
    here = [
        "-m",
        "detent",
        "list",
        "--pool",
        "shelf",
        "--state",
        "queued",
        "-o",
        "json",
        "--connect",
        served.told["url"],
    ]
    told = subprocess.run(
        [sys.executable, *here],
        env={**os.environ, "DETENT_KEY": served.token}, capture_output=True, timeout=ANSWER_SECONDS, check=True,
    )  # fmt: skip
    assert [row["job_id"] for row in json.loads(told.stdout)] == jobs[:0:-1]
    for job_id in jobs[1:]:
        cancelled(served, job_id)


def test_a_resource_that_only_a_worker_elsewhere_has_places_a_job_there(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path
) -> None:
    assert refused_task(served, resources={"tpu": 1})[1] == "NO_FEASIBLE_POOL"
    other = HandWorker(served, tmp_path / "tpu")
    other.turn(resources={"tpu": 2})
    assert refused_task(served, resources={"tpu": 3})[1] == "NO_FEASIBLE_POOL"
    job_id = task(served, "tasks:note", "tpu", str(laboured.directory), resources={"tpu": 2})
    assert worker.turn(wanted=1).grants == ()
    (one,) = other.turn(wanted=1, resources={"tpu": 2}).grants
    grant = Grant(*one.grant)
    assert grant.job_id == job_id
    other.turn(reports=(other.report(grant),))
    assert ended(served, job_id)["status"] == "succeeded"
    served.ask("POST", f"/v1/workers/{other.enrolled.worker_id}/retire")


# -- contracts -----------------------------------------------------------------------------------------------------------


@pytest.mark.door("contract: pool, labels, resources")
def test_steps_go_to_the_worker_that_offers_what_they_ask_for(
    served: Served, worker: HandWorker, gpu: HandWorker
) -> None:
    run_id = post(served, "/v1/runs", {"contract": GPU, "params": {}}).json["run_id"]
    first = taken(gpu, resources={"gpu": 1})
    assert worker.turn(wanted=4).grants == (), "it has neither the pool nor the label nor a GPU"
    explained = json.dumps(served.json(f"/v1/runs/{run_id}/explain"))
    assert "Only a worker with pool gpu, label a100 takes it." in explained
    second = Grant(
        *gpu.turn(reports=(gpu.report(first),), wanted=1, wait_ms=20_000, resources={"gpu": 1}).grants[0].grant
    )
    gpu.turn(reports=(gpu.report(second),))
    last = taken(gpu)
    assert len({first.job_id, second.job_id, last.job_id}) == 3
    gpu.turn(reports=(gpu.report(last, b"null"),))
    assert served.json(f"/v1/runs/{run_id}?wait=40")["status"] == "succeeded"


@pytest.mark.door("contract: pool, labels, resources")
@pytest.mark.parametrize(
    ("step", "lacks"),
    [
        ("pool: gpu, labels: [h100], ", "label h100"),
        ("pool: tpu, ", "pool tpu"),
        ("pool: gpu, resources: {gpu: 8}, ", "8 gpu"),
    ],
)
def test_a_run_that_no_worker_could_ever_take_is_refused_before_it_begins(
    served: Served, gpu: HandWorker, step: str, lacks: str
) -> None:
    runs = served.json("/v1/runs")["items"]
    reply = post(served, "/v1/runs", {"contract": f"name: x\nsteps: [{{id: a, {step}run: {{shell: 'true'}}}}]\n"})
    assert (reply.status, reply.code) == (422, "NO_FEASIBLE_POOL")
    assert f"step 'a' can never run: no worker of this workspace offers {lacks}" in reply.json["detail"]
    assert served.json("/v1/runs")["items"] == runs


# -- Python --------------------------------------------------------------------------------------------------------------


@pytest.mark.door("SDK: task(pool=, labels=, resources=), Client")
@pytest.mark.parametrize("at_server", [True, False], ids=["server", "home"])
def test_a_call_is_placed_by_the_options_of_its_task(
    served: Served, laboured: Laboured, gpu: HandWorker, monkeypatch: pytest.MonkeyPatch, at_server: bool
) -> None:
    monkeypatch.syspath_prepend(str(laboured.directory))
    monkeypatch.setenv("XDG_STATE_HOME", laboured.environment["XDG_STATE_HOME"])
    monkeypatch.delitem(sys.modules, "tasks", raising=False)  # Another test of this process may have one of that name.
    import tasks  # type: ignore[import-not-found]

    note = detent.task(pool="gpu", labels=["a100"])(tasks.note)
    where = {"key": served.token} if at_server else {"workers": 1}
    with detent.Client(served.told["url"] if at_server else laboured.home.path, **where) as client:
        call = client.submit(note.options(resources={"gpu": 1}), "far", str(laboured.directory))
        grant = granted(gpu, call.job_id, resources={"gpu": 1})
        gpu.turn(reports=(gpu.report(grant, b'"from afar"'),))
        assert call.result(ANSWER_SECONDS) == "from afar"
        with pytest.raises(RequestRefused, match="no worker of this workspace offers label h100"):
            client.submit(note.options(labels="h100"), "never", str(laboured.directory))


@pytest.mark.door("SDK: task(pool=, labels=), run")
def test_a_home_that_no_server_serves_refuses_at_once_and_says_what_to_do(tmp_path: Path) -> None:
    with detent.Client(tmp_path / ".detent", workers=1) as client, pytest.raises(RequestRefused) as refused:
        client.submit(detent.task(pool="gpu")(os.getpid))
    assert refused.value.code == "NO_FEASIBLE_POOL"
    assert "`detent serve` and `detent worker --connect URL`" in str(refused.value.hint)
    (tmp_path / "train.yaml").write_text(GPU)
    (tmp_path / "cell.json").write_text(json.dumps({**CELL, "workspace_id": "local"}))
    for words in (["run", "train.yaml"], ["submit", "cell.json", "--pool", "gpu", "--label", "a100"]):
        ended = subprocess.run(
            [sys.executable, "-m", "detent", *words],
            cwd=tmp_path, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False,
        )  # fmt: skip
        assert ended.returncode == 3, ended.stderr
        assert "NO_FEASIBLE_POOL" in ended.stderr
        assert "pool gpu" in ended.stderr


# -- payloads ------------------------------------------------------------------------------------------------------------


@pytest.mark.door("POST /v1/jobs")
def test_a_payload_is_placed_and_its_retry_as_well(served: Served, worker: HandWorker, gpu: HandWorker) -> None:
    asked = {"payload": {**CELL, "document_revision_id": "placed"}, "place": {"pool": "gpu", "resources": {"gpu": 1}}}
    first = post(served, "/v1/jobs", asked).json["job_id"]
    assert worker.turn(wanted=1).grants == ()
    granted(gpu, first, resources={"gpu": 1})
    cancelled(served, first)
    again = post(served, f"/v1/jobs/{first}/retry", {}).json["job_id"]
    assert worker.turn(wanted=1).grants == ()
    granted(gpu, again, resources={"gpu": 1})
    cancelled(served, again)
    refused = post(served, "/v1/jobs", {**asked, "place": {"pool": "tpu"}})
    assert (refused.status, refused.code) == (422, "NO_FEASIBLE_POOL")


@pytest.mark.door("POST /v1/jobs")
def test_the_trace_of_a_request_reaches_the_worker_of_a_payload_and_of_its_retry(
    served: Served, worker: HandWorker
) -> None:
    def traced(path: str, document: Any, trace: str) -> tuple[str, str | None]:
        """The job, and the trace in the order that a worker is granted for it."""
        body, headers = json.dumps(document).encode(), {"traceparent": trace, "Idempotency-Key": f"traced {path}"}
        job_id = served.ask("POST", path, body=body, headers=headers).json["job_id"]
        again = served.ask("POST", path, body=body, headers={**headers, "traceparent": OTHER_TRACE})
        assert again.json["job_id"] == job_id, "the trace is no part of what is asked for"
        (one,) = worker.turn(wanted=1, wait_ms=20_000).grants
        assert Grant(*one.grant).job_id == job_id
        assert one.order is not None
        order = read_order(open_value(one.order))
        cancelled(served, job_id)
        return job_id, order.origin.traceparent

    first, trace = traced("/v1/jobs", {"payload": {**CELL, "document_revision_id": "traced"}}, TRACE)
    assert trace == TRACE
    assert traced(f"/v1/jobs/{first}/retry", {}, RETRY_TRACE)[1] == RETRY_TRACE


def cpu_seconds(served: Served) -> float:
    fields = Path(f"/proc/{served.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_job_that_suits_no_worker_leaves_those_that_wait_alone(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path
) -> None:
    """News of it goes round once: workers that passed it over are not woken by each other for ever."""
    other = HandWorker(served, tmp_path / "other")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(hand.turn, wanted=1, wait_ms=4_000) for hand in (worker, other)]
        before = cpu_seconds(served)
        job_id = task(served, "tasks:note", "later", str(laboured.directory), pool="later")
        assert [answer.result(ANSWER_SECONDS).grants for answer in waiting] == [(), ()]
    assert cpu_seconds(served) - before < 0.6, "they looked again and again"
    cancelled(served, job_id)
    retire(served, other)


# -- what stays with the home ---------------------------------------------------------------------------------------------


@pytest.mark.door("contract: run map")
def test_an_ordered_map_is_never_offered_to_a_worker_elsewhere(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    contract = "name: m\nsteps: [{id: m, run: {map: {items: [1], compute: 'tasks:note', commit: 'jsonl:out.jsonl'}}}]\n"
    run_id = post(served, "/v1/runs", {"contract": contract}).json["run_id"]
    eventually(lambda: bool(served.json(f"/v1/jobs?run={run_id}")["items"]), "its job waits")
    plain = queued(served, laboured)
    grant = granted(worker, plain)
    assert worker.turn(reports=(worker.report(grant),), wanted=4).grants == ()
    (job,) = served.json(f"/v1/jobs?run={run_id}")["items"]
    assert (job["status"], job["attempt"]) == ("queued", None), "it was not given back either"
    assert post(served, f"/v1/runs/{run_id}/cancel", {}).status == 200


# -- jobs that are run again --------------------------------------------------------------------------------------------


def audits(served: Served) -> dict[str, float]:
    found = {}
    for line in served.get("/metrics").body.decode().splitlines():
        if line.startswith("detent_worker_audits_total{"):
            found[line.split('"')[1]] = float(line.rpartition(" ")[2])
    return found


@pytest.mark.door("setting: [workers] audit_percent")
def test_a_job_that_may_be_repeated_runs_again_elsewhere_and_a_difference_is_on_record(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path
) -> None:
    other = HandWorker(served, tmp_path / "other")
    other.turn()
    made = post(served, "/v1/webhooks", {"url": "https://93.184.216.34/hook", "events": ["worker.mismatch"]})
    assert made.status == 201, made.body
    hook = made.json["webhook"]
    before = audits(served)
    job_id, again = "", None
    for number, (value, outcome) in enumerate([(b'"one"', "same"), (b'"two"', "different")]):
        job_id = task(served, "tasks:note", f"audited-{number}", str(laboured.directory), reuse=True)
        grant = granted(worker, job_id)
        worker.turn(reports=(worker.report(grant, b'"one"'),))
        again = taken(other)
        assert again.job_id.startswith("audit-")
        assert worker.turn(wanted=4).grants == (), "not to the worker that did it first"
        other.turn(reports=(other.report(again, value),))
        eventually(lambda: audits(served)[outcome] == before[outcome] + 1, "the values are compared")  # noqa: B023
    assert again is not None
    eventually(lambda: bool(mismatches(served)), "the difference is recorded")
    (found,) = mismatches(served)
    assert found["object_id"] == worker.enrolled.worker_id
    said = json.dumps(found)
    assert all(word in said for word in (job_id, again.job_id, other.enrolled.worker_id))
    assert served.json(f"/v1/jobs/{again.job_id}")["retry_of"] == job_id
    # Its delivery waits: there is no worker of the home here.
    eventually(lambda: bool(deliveries(served, hook["hook_id"])), "the difference is told to the hook")
    (delivery,) = deliveries(served, hook["hook_id"])
    assert post(served, f"/v1/jobs/{delivery['job_id']}/cancel", {}).status == 200
    assert served.ask("DELETE", f"/v1/webhooks/{hook['hook_id']}").status == 204
    plain = queued(served, laboured)
    worker.turn(reports=(worker.report(granted(worker, plain)),))
    assert other.turn(wanted=1).grants == (), "a task that does not allow reuse is never repeated"
    retire(served, other)


def deliveries(served: Served, hook_id: str) -> list[dict[str, Any]]:
    """The jobs that bring events to a hook and still wait."""
    queued = served.json("/v1/jobs?state=queued&limit=200")["items"]
    jobs = [served.json(f"/v1/jobs/{quote(one['job_id'], safe='')}") for one in queued]
    return [one for one in jobs if one["label"] == f"webhook {hook_id}"]


def mismatches(served: Served) -> list[dict[str, Any]]:
    return [one for one in served.json("/v1/audit")["items"] if one["action"] == "worker.mismatch"]


# -- leases --------------------------------------------------------------------------------------------------------------


@pytest.mark.door("setting: [leases.remote]")
def test_workers_elsewhere_have_leases_of_their_own(served: Served, laboured: Laboured, worker: HandWorker) -> None:
    job_id = queued(served, laboured)
    answer = worker.turn(wanted=1)
    (one,) = answer.grants
    grant = Grant(*one.grant)
    assert (grant.job_id, one.lease_ms) == (job_id, 90_000)
    left_ms = grant.lease_expiry - answer.now_ms
    assert 60_000 < left_ms <= 90_000, "the kernel counts as the worker does"
    worker.turn(reports=(worker.report(grant),))


# -- a server that is started again --------------------------------------------------------------------------------------


@pytest.mark.door("POST /v1/jobs")
def test_a_server_that_was_killed_knows_what_its_workers_offered(
    laboured: Laboured, served: Served, tmp_path: Path
) -> None:
    other = HandWorker(served, tmp_path / "npu")
    other.turn(resources={"npu": 2})
    untold = queued(served, laboured)
    other.turn(wanted=1, resources={"npu": 2})  # Its answer is lost, so the worker does not know of the lease.
    before = lease_line(served, untold)
    served.process.kill()
    served.process.communicate(timeout=ANSWER_SECONDS)
    again = start(laboured.home.path, laboured.environment, "--project", str(laboured.directory))
    served.process, served.told, served.token = again.process, again.told, again.token
    body = {"task": {"target": "tasks:note", "arguments": ["npu", "/"], "resources": {"npu": 2}}}
    taken = post(served, "/v1/jobs", body)
    assert taken.status == 202, taken.body
    cancelled(served, taken.json["job_id"])
    assert lease_line(served, untold) == before
    other.http.close()
    other.connect(served.told["url"])
    (told,) = other.turn().grants
    assert Grant(*told.grant).job_id == untold
    assert lease_line(served, untold) > before, "the worker counts the whole lease from now, so it has to begin anew"
    retire(served, other)
    assert post(served, "/v1/jobs", body).code == "NO_FEASIBLE_POOL"


def lease_line(served: Served, job_id: str) -> str:
    """Until when the lease of a job holds, as its explanation says it."""
    said = json.dumps(served.json(f"/v1/jobs/{job_id}/explain"))
    return said.partition("Its lease holds until ")[2].partition(";")[0]
