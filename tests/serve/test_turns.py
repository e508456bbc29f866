"""The turn, by hand: numbers, repeats, forged and stale requests, workers that lie, and content that only a lease opens."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from detent.access.certificate import Certificate, prove
from detent.access.signature import Said, sign
from detent.access.tokens import read_token
from detent.access.turn import Beat, Ended, Log, Turn, Watch, protocol_of, read_answer
from detent.canon import SigningKey, decode, digest_text, encode, json_digest
from detent.errors import DetentError, InvalidInput
from detent.kernel import Grant
from detent.remote.bench import Machine, RemoteBench
from detent.remote.signed import SignedRequests
from detent.remote.turns import TurnTaker
from detent.serve.fleet import Worker
from detent.store.content import ContentFiles
from tests.serve.elsewhere import HANDS, HandWorker, ended, enrolment, task
from tests.serve.laboured import Laboured, eventually, project
from tests.serve.served import ANSWER_SECONDS, Reply, Served, start
from tests.serve.test_events import stream, until

pytestmark = pytest.mark.door("POST /v1/workers/{worker_id}/turn")


@pytest.fixture(scope="module")
def laboured(tmp_path_factory: pytest.TempPathFactory) -> Laboured:
    return project(tmp_path_factory.mktemp("turns"))


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
    hand = HandWorker(served, tmp_path / "worker")
    yield hand
    served.ask("POST", f"/v1/workers/{hand.enrolled.worker_id}/retire")


def queued(served: Served, laboured: Laboured, word: str = "one") -> str:
    return task(served, "tasks:note", word, str(laboured.directory))


def granted(worker: HandWorker, job_id: str) -> Grant:
    answer = worker.turn(wanted=1)
    (one,) = answer.grants
    grant = Grant(*one.grant)
    assert grant.job_id == job_id
    return grant


def refused(worker: HandWorker, said: Turn) -> str:
    with pytest.raises(DetentError) as caught:
        worker.turn(said)
    return caught.value.code


def posted(served: Served, worker: HandWorker, body: bytes, headers: dict[str, str], path: str | None = None) -> Reply:
    where = path or f"/v1/workers/{worker.enrolled.worker_id}/turn"
    return served.ask("POST", where, body=body, headers={"Content-Type": "application/cbor", **headers}, token=None)


def test_a_job_is_granted_with_its_order_and_closed_by_a_signed_report(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    job_id = queued(served, laboured, "signed")
    answer = worker.turn(wanted=1)
    (one,) = answer.grants
    grant = Grant(*one.grant)
    assert (grant.job_id, grant.replica_id) == (job_id, worker.holder)
    assert one.order is not None
    assert b"tasks:note" in one.order
    answer = worker.turn(reports=(worker.report(grant, b'"value"'),))
    assert answer.results == ((grant.lease_id, "OK"),)
    assert ended(served, job_id)["status"] == "succeeded"


def test_the_same_number_is_the_same_answer_and_a_lower_one_is_stale(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    job_id = queued(served, laboured, "repeat")
    said = worker.say(wanted=1)
    first = worker.turn(said)
    assert worker.turn(said) == first
    (one,) = first.grants
    assert refused(worker, replace(said, turn=said.turn - 1)) == "TURN_STALE"
    grant = Grant(*one.grant)
    reporting = worker.say(reports=(worker.report(grant),))
    assert worker.turn(reporting) == worker.turn(reporting)
    assert ended(served, job_id)["attempt"] == 1


def test_a_grant_whose_answer_was_lost_is_told_again(served: Served, laboured: Laboured, worker: HandWorker) -> None:
    job_id = queued(served, laboured, "lost")
    grant = granted(worker, job_id)
    (again,) = worker.turn(wanted=0).grants
    assert Grant(*again.grant) == grant
    held = worker.turn(beats=(Beat(job_id, grant.lease_id),))
    assert (held.grants, held.revoked) == ((), ())
    worker.turn(reports=(worker.report(grant),))
    assert ended(served, job_id)["status"] == "succeeded"


def test_metrics_count_turns_and_workers_and_say_how_long_the_quietest_was_silent(
    served: Served, worker: HandWorker
) -> None:
    def told(name: str) -> float:
        lines = served.get("/metrics").body.decode().splitlines()
        return float(next(line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")))

    before, never = told("detent_worker_turns_total"), told('detent_workers{state="never"}')
    worker.turn()
    assert told("detent_worker_turns_total") == before + 1
    assert told('detent_workers{state="never"}') == never - 1
    first = told("detent_worker_silence_seconds")
    assert first > 0
    eventually(lambda: told("detent_worker_silence_seconds") > first, "silence grows")


@pytest.mark.door("route GET /v1/events")
def test_workers_are_told_to_the_workspaces_whose_jobs_they_may_run(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path
) -> None:
    """T6"""
    foreign = HandWorker(served, tmp_path / "foreign", enrolment(served, tenants=["another"]))
    foreign.turn()
    seen: list[dict[str, Any]] = []
    with stream(served, "workers") as told:
        worker.turn()

        def hear(**wanted: object) -> None:
            while not seen or {name: seen[-1].get(name) for name in ("worker_id", *wanted)} != {
                "worker_id": worker.enrolled.worker_id,
                **wanted,
            }:
                event, event_id, data = next(told)
                assert event_id is None
                seen.extend([data] if event == "worker" else [])

        hear(slots=4, leases=0)
        grant = granted(worker, queued(served, laboured, "told"))
        hear(leases=1)
        worker.turn(reports=(worker.report(grant),))
        hear(leases=0)
    assert foreign.enrolled.worker_id not in {one["worker_id"] for one in seen}
    served.ask("POST", f"/v1/workers/{foreign.enrolled.worker_id}/retire")


@pytest.mark.parametrize("code", ["CODE_MISMATCH", "ENV_MISMATCH", "KIND_UNSUPPORTED"])
def test_a_job_that_a_worker_gave_back_is_not_granted_to_it_again_with_the_same_turn(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path, code: str
) -> None:
    job_id = queued(served, laboured, code)
    grant = granted(worker, job_id)
    answer = worker.turn(wanted=4, ended=(Ended(job_id, grant.lease_id, code),))
    assert (answer.results, answer.grants) == (((grant.lease_id, "OK"),), ())
    assert worker.turn(wanted=4).grants == ()
    other = HandWorker(served, tmp_path / "other")
    assert other.turn(reports=(other.report(granted(other, job_id)),)).results[0][1] == "OK"


def test_the_pause_before_a_job_is_granted_again_doubles_and_outlives_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("detent.serve.fleet.time", SimpleNamespace(monotonic=lambda: now))
    key = SigningKey(bytes(32))
    worker = Worker(Certificate("origin", "w", key.public_key, None, None, (), 0), key.key_id, b"", b"")
    pauses = []
    for _ in range(9):
        worker.give_back("a", for_good=False)
        worker.begin(f"{now}")
        pauses.append(worker.rest_seconds)
        assert worker.excluded == ("a",)
        now += pauses[-1]
        assert not worker.excluded
        assert worker.rest_seconds == math.inf
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    worker.give_back("b", for_good=True)
    now += 10_000
    assert (worker.excluded, worker.rest_seconds) == (("b",), math.inf)
    worker.begin("with other code")
    assert not worker.excluded


def test_one_worker_that_cannot_begin_a_job_does_not_fail_it(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path
) -> None:
    """X-163: it may have the job again after a pause, which doubles; meanwhile others get it, and the bound of interruptions holds."""
    job_id = queued(served, laboured, "begun elsewhere")
    grant = granted(worker, job_id)
    assert worker.turn(wanted=4, ended=(Ended(job_id, grant.lease_id, "INTERRUPTED"),)).grants == ()
    assert served.json(f"/v1/jobs/{job_id}")["interruptions"] == 1
    again = Grant(*worker.turn(wanted=4, wait_ms=20_000).grants[0].grant)
    assert (again.job_id, again.attempt_id) == (job_id, 1), "there was no other worker"
    worker.turn(ended=(Ended(job_id, again.lease_id, "INTERRUPTED"),))
    other = HandWorker(served, tmp_path / "other")
    assert other.turn(reports=(other.report(granted(other, job_id)),)).results[0][1] == "OK"
    assert served.json(f"/v1/jobs/{job_id}")["interruptions"] == 2


def test_a_new_start_gives_the_leases_of_the_older_one_up(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    job_id = queued(served, laboured, "boot")
    old = granted(worker, job_id)
    worker.boot = "f" * 16
    grants = worker.turn(wanted=1).grants or worker.turn(wanted=1, wait_ms=5_000).grants
    new = Grant(*grants[0].grant)
    assert (new.job_id, new.replica_id) == (job_id, worker.holder)
    late = worker.turn(reports=(worker.report(old),))
    assert late.results[0][1] != "OK"
    assert worker.turn(reports=(worker.report(new),)).results == ((new.lease_id, "OK"),)
    assert ended(served, job_id)["status"] == "succeeded"


def test_a_waiting_turn_gets_the_job_that_comes(served: Served, laboured: Laboured, worker: HandWorker) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        said = worker.say(wanted=1, wait_ms=20_000)
        waiting = pool.submit(worker.turn, said)
        job_id = queued(served, laboured, "waited")
        (one,) = waiting.result(60).grants
    grant = Grant(*one.grant)
    assert grant.job_id == job_id
    worker.turn(reports=(worker.report(grant),))
    assert ended(served, job_id)["status"] == "succeeded"


def test_a_job_is_leased_to_a_worker_that_waits_in_the_commit_that_submits_it(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    """So one job at a worker elsewhere is two commits: this one, and that of its report."""
    from concurrent.futures import ThreadPoolExecutor

    def is_leased_at_once() -> bool:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(worker.turn, worker.say(wanted=1, wait_ms=20_000))
            job_id = queued(served, laboured, f"at-once-{worker.number}")
            (one,) = waiting.result(ANSWER_SECONDS).grants
        grant = Grant(*one.grant)
        assert grant.job_id == job_id
        worker.turn(reports=(worker.report(grant),))
        submitted, leased, ended = served.json(f"/v1/jobs/{job_id}/records")["items"]
        assert leased["batch_no"] < ended["batch_no"]
        return bool(submitted["batch_no"] == leased["batch_no"])

    eventually(is_leased_at_once, "the turn waited when the job came")


def test_a_newer_turn_answers_the_one_that_waits(served: Served, worker: HandWorker) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(worker.turn, worker.say(wanted=0, wait_ms=20_000))
        shown = f"/v1/workers/{worker.enrolled.worker_id}"
        eventually(lambda: served.json(shown)["silent_ms"] is not None, "the turn waits")
        assert worker.turn().turn == worker.number
        assert waiting.result(10).turn == worker.number - 1


def test_a_worker_cannot_end_or_report_the_lease_of_another(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path
) -> None:
    liar = HandWorker(served, tmp_path / "liar")
    job_id = queued(served, laboured, "mine")
    grant = granted(worker, job_id)
    for said in (
        {"ended": (Ended(job_id, grant.lease_id, "WORKER_LOST"),)},
        {"reports": (liar.report(grant, b'"lie"'),)},
        {"reports": (liar.report(grant, worker=worker.holder),)},
        {"reports": (liar.report(grant, lease_id=b"\x02" * 32),)},
    ):
        ((_, code),) = liar.turn(**said).results
        assert code != "OK", said
    assert liar.turn(beats=(Beat(job_id, grant.lease_id),)).revoked == ((grant.lease_id, "LEASE_INVALID"),)
    assert worker.turn(reports=(worker.report(grant, b'"truth"'),)).results == ((grant.lease_id, "OK"),)
    assert ended(served, job_id)["status"] == "succeeded"
    served.ask("POST", f"/v1/workers/{liar.enrolled.worker_id}/retire")


def test_results_of_a_stolen_key_do_not_count_after_it_was_retired(
    served: Served, laboured: Laboured, tmp_path: Path
) -> None:
    thief = HandWorker(served, tmp_path / "thief")
    grant = granted(thief, queued(served, laboured, "stolen"))
    served.ask("POST", f"/v1/workers/{thief.enrolled.worker_id}/retire")
    assert refused(thief, thief.say(reports=(thief.report(grant),))) == "WORKER_RETIRED"


def test_a_worker_gets_no_jobs_of_other_workspaces(served: Served, laboured: Laboured, tmp_path: Path) -> None:
    other = HandWorker(served, tmp_path / "other", enrolment(served, tenants=["another"]))
    queued(served, laboured, "not-theirs")
    assert other.turn(wanted=5).grants == ()
    mine = HandWorker(served, tmp_path / "mine")
    (one,) = mine.turn(wanted=1).grants
    grant = Grant(*one.grant)
    mine.turn(reports=(mine.report(grant),))


@pytest.mark.door("GET /v1/workers/{worker_id}/content/{digest}")
def test_t7_content_is_opened_by_a_live_lease_that_names_it_and_by_nothing_else(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path
) -> None:
    """T4, T7"""
    files = ContentFiles(tmp_path / "content")
    secret = b"of another workspace" * 10_000
    (laboured.home.path / "content").mkdir(exist_ok=True)
    digest = ContentFiles(laboured.home.path / "content").put(secret)
    job_id = queued(served, laboured, "content")
    grant = granted(worker, job_id)
    worker.turn(beats=(Beat(job_id, grant.lease_id),))
    fetched = worker.requests.fetch(grant.payload_digest, grant.lease_id, files)
    assert sha256(fetched.read_bytes()).digest() == grant.payload_digest
    for wanted, lease in ((digest, grant.lease_id), (grant.payload_digest, b"\x01" * 32)):
        with pytest.raises(DetentError, match="no live lease"):
            worker.requests.fetch(wanted, lease, ContentFiles(tmp_path / "else"))
    # A report may not name what its worker never had, though it lies in the home.
    answer = worker.turn(reports=(worker.report(grant, None, value_content=digest, value_digest=digest),))
    assert answer.results == ((grant.lease_id, "CONTENT_MISSING"),)
    assert answer.missing == (digest,)
    own = ContentFiles(tmp_path / "own")
    value = b'"' + b"mine" * 50_000 + b'"'
    mine = own.put(value)
    worker.requests.send(mine, grant.lease_id, own)
    answer = worker.turn(reports=(worker.report(grant, None, value_content=mine, value_digest=json_digest(value)),))
    assert answer.results == ((grant.lease_id, "OK"),)
    assert ended(served, job_id)["status"] == "succeeded"


# -- requests that are not the worker's ---------------------------------------------------------------------------------


def signed(worker: HandWorker, body: bytes, **changes: Any) -> dict[str, str]:
    path = f"/v1/workers/{worker.enrolled.worker_id}/turn"
    said = Said(
        **{
            "method": "POST",
            "path": path,
            "query": "",
            "content_digest": sha256(body).digest(),
            **changes.pop("said", {}),
        }
    )
    said_by = changes.pop("key", worker.key)
    return sign(
        said,
        said_by,
        **{
            "created": worker.requests.now_ms() // 1_000,
            "nonce": b"\x05" * 16,
            "origin": worker.enrolled.origin,
            **changes,
        },
    )


FORGERIES: dict[str, dict[str, Any]] = {
    "another key": {"key": SigningKey(b"\x09" * 32)},
    "another ledger": {"origin": "detent/elsewhere"},
    "another method": {"said": {"method": "PUT"}},
    "another path": {"said": {"path": "/v1/workers/someone/turn"}},
    "a query": {"said": {"query": "x=1"}},
    "another body": {"said": {"content_digest": b"\x01" * 32}},
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_request_is_refused(served: Served, worker: HandWorker, forgery: str) -> None:
    body = worker.say().encode()
    assert posted(served, worker, body, signed(worker, body, **FORGERIES[forgery])).status == 401


@pytest.mark.parametrize("missing", ["signature", "signature-input", "content-digest"])
def test_an_unsigned_request_is_refused(served: Served, worker: HandWorker, missing: str) -> None:
    body = worker.say().encode()
    headers = {name: value for name, value in signed(worker, body).items() if name != missing}
    assert posted(served, worker, body, headers).code == "UNAUTHENTICATED"


@pytest.mark.parametrize("seconds", [-86_400, -301, 301, 86_400])
def test_a_wrong_clock_is_told_the_time_and_set_right(served: Served, worker: HandWorker, seconds: int) -> None:
    body = worker.say().encode()
    created = worker.requests.now_ms() // 1_000 + seconds
    reply = posted(served, worker, body, signed(worker, body, created=created))
    assert reply.code == "CLOCK_SKEW"
    assert abs(int(reply.json["errors"][0]["message"]) // 1_000 - created + seconds) <= 60
    worker.requests._offset_ms = seconds * 1_000
    assert worker.turn().turn == worker.number


def test_an_unknown_worker_and_a_wrong_signature_are_told_alike(served: Served, worker: HandWorker) -> None:
    body = worker.say().encode()
    headers = signed(worker, body, said={"path": "/v1/workers/nobody-00000000/turn"})
    unknown = posted(served, worker, body, headers, "/v1/workers/nobody-00000000/turn")
    wrong = posted(served, worker, body, signed(worker, body, key=SigningKey(b"\x09" * 32)))
    assert {**unknown.json, "instance": ""} == {**wrong.json, "instance": ""}


def test_a_recorded_turn_is_worth_nothing_later(served: Served, laboured: Laboured, worker: HandWorker) -> None:
    """The bytes of forty turns, sent again by another: each is stale, or gets the answer it got."""
    job_id = queued(served, laboured, "recorded")
    recorded = []
    for number in range(40):
        body = worker.say(wanted=0 if number else 1).encode()
        headers = signed(worker, body)
        recorded.append((body, headers, posted(served, worker, body, headers)))
    (one,) = read_answer(recorded[0][2].body).grants
    grant = Grant(*one.grant)
    worker.turn(reports=(worker.report(grant),))
    for body, headers, first in recorded:
        again = posted(served, worker, body, headers)
        assert again.status == 409 or again.body == first.body
    assert ended(served, job_id)["attempt"] == 1


NOT_TURNS: list[bytes] = [
    *(b"", b"{}", b"\xa0", b"\xff", encode([]), encode({"protocol": 1}), encode({"protocol": "1"}), b"\x00" * 64),
]


@pytest.mark.parametrize("body", NOT_TURNS)
def test_what_is_not_a_turn_is_refused(served: Served, worker: HandWorker, body: bytes) -> None:
    assert posted(served, worker, body, signed(worker, body)).status == 400


@pytest.mark.parametrize("protocol", [0, 3, 2**60])
def test_another_protocol_is_told_what_is_spoken(served: Served, worker: HandWorker, protocol: int) -> None:
    body = encode({"protocol": protocol})
    reply = posted(served, worker, body, signed(worker, body))
    assert (reply.status, reply.code) == (426, "PROTOCOL_UNSUPPORTED")
    assert [one["message"] for one in reply.json["errors"]] == ["1", "2"]
    assert "install a version of detent" in reply.json["hint"]


# As the release before wrote it: boot 0123456789abcdef, turn 1763400000000, 1 wanted, 4 slots, gpu=1.
RECORDED_TURN_1 = bytes.fromhex(
    "ae64626f6f747030313233343536373839616263646566646c6f677380647475726e1b0000019a92d4a2006562656174738065656e6465648065736c"
    "6f7473046677616e7465640167636f6e74656e7480677265706f727473806776657273696f6e65302e312e3067776169745f6d730068647261696e69"
    "6e67f46870726f746f636f6c01697265736f7572636573a16367707501"
)
ANSWER_1 = (
    *("directive", "grants", "missing", "now_ms", "protocol", "results", "revoked", "turn", "waited_ms", "watch"),
)


def test_a_worker_of_the_release_before_is_served_in_its_own_protocol(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    job_id = queued(served, laboured)
    reply = posted(served, worker, RECORDED_TURN_1, signed(worker, RECORDED_TURN_1))
    assert reply.status == 200
    fields = decode(reply.body)
    assert isinstance(fields, dict)
    assert tuple(sorted(fields)) == ANSWER_1
    assert (fields["protocol"], fields["watch"]) == (1, [])
    grant = Grant(*read_answer(reply.body).grants[0].grant)
    assert grant.job_id == job_id
    assert served.get(f"/v1/jobs/{job_id}/logs").status == 200, "its output is not seen while it runs"
    old = replace(worker.say(beats=(Beat(job_id, grant.lease_id),)), protocol=1)
    assert decode(worker.requests.turn(old.encode(), 60))["watch"] == []
    worker.turn(reports=(worker.report(grant),))
    assert ended(served, job_id)["status"] == "succeeded"


def test_a_worker_goes_on_in_the_older_protocol_where_its_server_knows_no_other(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path
) -> None:
    """The server of the release before is this one, behind a refusal of what it would not know."""

    class Older(SignedRequests):
        def turn(self, body: bytes, seconds: float) -> bytes:
            if protocol_of(body)[0] != 1:
                raise DetentError("protocol 2 is not spoken here: 1 are", code="PROTOCOL_UNSUPPORTED")
            return super().turn(body, seconds)

    job_id = queued(served, laboured)
    machine = Machine(1, frozenset({"python"}), tmp_path, tmp_path)
    bench = RemoteBench(worker.enrolled.worker_id, worker.key, ContentFiles(tmp_path / "content"), machine)
    told: list[str] = []
    turns = TurnTaker(
        bench, Older(worker.http, worker.enrolled.worker_id, worker.key, worker.enrolled.origin), tell=told.append
    )
    bench.offer(1)
    turns.start()
    try:
        eventually(lambda: bool(told), "the job came, and went back: its code is not here")
        assert f"gave job {job_id} back" in told[0]
        assert turns.failure is None
    finally:
        turns.stop()
        served.ask("POST", f"/v1/jobs/{job_id}/cancel", body=b"{}")
        served.ask("POST", f"/v1/workers/{worker.enrolled.worker_id}/retire")  # Answers the turn that waits.
        for thread in turns._threads:
            thread.join(ANSWER_SECONDS)


def test_output_counts_for_a_watched_lease_of_the_worker_itself_and_once(
    served: Served, laboured: Laboured, worker: HandWorker, tmp_path: Path
) -> None:
    job_id = queued(served, laboured)
    grant = granted(worker, job_id)
    path, beats = f"/v1/jobs/{job_id}/logs", (Beat(job_id, grant.lease_id),)

    def printed(offset: int, data: bytes, **more: Any) -> Log:
        return Log(**{"lease_id": grant.lease_id, "stream": "stdout", "offset": offset, "data": data, **more})

    worker.turn(beats=beats, logs=(printed(0, b"unasked"),))
    assert served.get(path).body == b"", "no client had asked for it"
    assert worker.turn(beats=beats, wait_ms=10_000).watch == (Watch(grant.lease_id, 0, 0),)
    other = HandWorker(served, tmp_path / "other")
    other.turn(logs=(printed(0, b"of another"),))
    pieces = (printed(0, b"one "), printed(2, b"e two "), printed(8, b"three"), printed(99, b"a gap"))
    (watch,) = worker.turn(beats=beats, logs=pieces).watch
    assert watch.stdout_bytes == 13
    assert served.get(path).body == b"one two three"
    worker.turn(reports=(worker.report(grant),))
    assert served.get(path).body == b"", "the report counts"


@pytest.mark.door("route GET /v1/events")
def test_progress_counts_for_a_followed_lease_and_within_its_bounds(
    served: Served, laboured: Laboured, worker: HandWorker
) -> None:
    job_id = queued(served, laboured)
    grant = granted(worker, job_id)
    beats = (Beat(job_id, grant.lease_id),)

    def said(data: bytes) -> Log:
        return Log(grant.lease_id, "progress", 0, data)

    worker.turn(beats=beats, logs=(said(b'[0.1, "unasked"]'),))
    with stream(served, f"job:{job_id}") as told:
        assert next(told)[0] == "hello"
        assert worker.turn(beats=beats, wait_ms=10_000).watch == (Watch.of_progress(grant.lease_id),)
        wrong = (
            b'[2, "over"]',
            b"[0.2]",
            b"not JSON",
            b'[true, ""]',
            b'{"fraction": 0.3}',
            b'[0.3, "' + b"\xff" + b'"]',
        )
        worker.turn(beats=beats, logs=(*map(said, wrong), said(b'[0.5, "' + b"x" * 1_000 + b'"]')))
        data = until(told, "progress")[-1][2]
        assert (data["job_id"], data["fraction"], data["message"]) == (job_id, 0.5, "x" * 500)
        worker.turn(beats=beats, logs=tuple(map(said, wrong)))
        worker.turn(beats=beats, logs=(said(b'[1, "done"]'),))
        assert until(told, "progress")[-1][2]["message"] == "done"
    assert served.get(f"/v1/jobs/{job_id}/logs").body == b""
    worker.turn(reports=(worker.report(grant),))


WRONG: dict[str, Any] = {
    "boot": "short",
    "turn": -1,
    "wanted": 257,
    "wait_ms": 20_001,
    "beats": (("job", b"short"),),
    "reports": ((b"\x01" * 32, "text"),),
    "content": ("text",),
    "ended": (("job", b"\x01" * 32, "MADE_UP"),),
    "logs": ((b"\x01" * 32, "stdin", 0, b""),),
    "pool": "two words",
    "labels": ("",),
    "slots": 1_025,
    "version": "x" * 65,
    "resources": {"gpu": -1},
    "draining": 1,
}


@pytest.mark.parametrize("name", WRONG)
def test_every_field_of_a_turn_is_checked(served: Served, worker: HandWorker, name: str) -> None:
    body = replace(worker.say(), **{name: WRONG[name]}).encode()
    reply = posted(served, worker, body, signed(worker, body))
    assert reply.status == 400
    assert name in reply.json["detail"]


# -- enrolment ----------------------------------------------------------------------------------------------------------


@pytest.mark.door("POST /v1/workers")
def test_a_token_enrols_as_often_as_it_says_and_not_when_it_is_revoked(served: Served, tmp_path: Path) -> None:
    token = enrolment(served, uses=1)
    HandWorker(served, tmp_path / "first", token)
    with pytest.raises(DetentError, match="used 1 of 1 times") as caught:
        HandWorker(served, tmp_path / "second", token)
    assert caught.value.code == "ENROLMENT_REFUSED"
    revoked = enrolment(served, uses=5, labels=["a100"])
    enrolment_id = revoked.split("_")[1]
    assert served.ask("DELETE", f"/v1/enrolments/{enrolment_id}").status == 204
    shown = {one["enrolment_id"]: one for one in served.json("/v1/enrolments")["items"]}
    assert (shown[enrolment_id]["state"], shown[enrolment_id]["labels"]) == ("revoked", ["a100"])
    with pytest.raises(DetentError, match="revoked"):
        HandWorker(served, tmp_path / "third", revoked)
    with pytest.raises(InvalidInput):
        HandWorker(served, tmp_path / "fourth", revoked[:-1] + ("0" if revoked[-1] != "0" else "1"))
    assert revoked not in json.dumps(served.json("/v1/enrolments"))


def asked_to_enrol(served: Served, token: str, key: SigningKey, proved: SigningKey) -> bytes:
    """The body of a request to enrol a key, with the proof of another one."""
    given = read_token(token)
    assert given is not None
    proof = prove(served.json("/v1/version")["origin"], given.digest, b"\x01" * 16, proved)
    return json.dumps(
        {"token": token, "public_key": key.public_key.hex(), "proof": proof.encode().hex(), "name": "host"}
    ).encode()


def enrolled_at_once(served: Served, bodies: list[bytes]) -> list[Reply]:
    with ThreadPoolExecutor(len(bodies)) as threads:
        return list(threads.map(lambda body: served.ask("POST", "/v1/workers", body=body, token=None), bodies))


def test_a_proof_of_another_key_does_not_enrol(served: Served) -> None:
    token = enrolment(served)
    body = asked_to_enrol(served, token, SigningKey(b"\x08" * 32), SigningKey(b"\x07" * 32))
    reply = served.ask("POST", "/v1/workers", body=body, token=None)
    assert reply.code == "ENROLMENT_REFUSED"
    given = read_token(token)
    assert given is not None
    assert digest_text(given.digest) not in reply.body.decode()


def test_an_enrolment_that_is_repeated_while_the_first_is_under_way_gets_the_same_certificate(served: Served) -> None:
    """As through a proxy that repeats an answer: the worker asks again before the server has answered."""
    key = SigningKey(b"\x09" * 32)
    replies = enrolled_at_once(served, [asked_to_enrol(served, enrolment(served, uses=1), key, key)] * 8)
    assert sorted(reply.status for reply in replies) == [200] * 7 + [201]
    assert len({reply.body for reply in replies}) == 1


def test_a_token_for_one_worker_enrols_one_of_several_that_ask_at_once(served: Served) -> None:
    token = enrolment(served, uses=1)
    keys = [SigningKey(bytes([number]) * 32) for number in range(10, 18)]
    replies = enrolled_at_once(served, [asked_to_enrol(served, token, key, key) for key in keys])
    assert sorted(reply.status for reply in replies) == [201] + [403] * 7
    assert {reply.code for reply in replies if reply.status == 403} == {"ENROLMENT_REFUSED"}
