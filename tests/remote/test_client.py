"""`detent.Client("http://...")`: jobs at a server, from Python, with the errors and results of a local client."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import detent
from detent.errors import InvalidInput, RequestRefused
from detent.jobs.status import JobStatus
from detent.remote.address import parse_address
from detent.remote.http import Http
from detent.remote.problems import ServerUnreachable
from detent.remote.runs import start_run
from tests.cli.submitted import needs_sandbox, square
from tests.remote.sides import Project, Sides, project, served_project
from tests.serve.served import Served
from tests.serve.toxic import Fault, Toxic

WORK = """\
import time
from pathlib import Path


def square(n):
    return n * n


def fail(word):
    raise ValueError(word)


def read(file):
    return file.read_bytes().decode()


def sleep(seconds):
    time.sleep(seconds)


def nothing():
    return None


def large():
    return "x" * 2_000_000


def length(text):
    return len(text)


def picture(name):
    import detent

    return {"$plain": 1, "picture": detent.File.from_bytes(b"pixels of " + name.encode(), name=f"{name}.txt")}


def album(count):
    import detent

    pages = [{"picture": detent.File.from_bytes(f"page {n}".encode(), name=f"{n}.txt")} for n in range(count)]
    return {"pad": "x" * 20_000, "pages": pages}


def flaky(path):
    if not Path(path).exists():
        raise RuntimeError("not yet")
    return "mended"
"""


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Served, Toxic]]:
    made = project(tmp_path_factory.mktemp("working"))
    (made.directory / "remote_work.py").write_text(WORK)
    made.detent("init")
    with (
        Toxic() as proxy,
        served_project(
            made,
            *("--workers", "2", "--project", str(made.directory), "--allow-host", f"127.0.0.1:{proxy.port}"),
        ) as served,
    ):
        proxy.target = served.port
        yield made, served, proxy


@pytest.fixture
def work(working: tuple[Project, Served, Toxic], monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    import importlib

    monkeypatch.syspath_prepend(str(working[0].directory))
    monkeypatch.chdir(working[0].directory)
    yield importlib.import_module("remote_work")
    sys.modules.pop("remote_work", None)


@pytest.fixture
def client(working: tuple[Project, Served, Toxic]) -> Iterator[detent.Client]:
    _, served, proxy = working
    proxy.fail(None)
    with detent.Client(proxy.url, key=served.token) as made:
        yield made


def test_a_function_runs_at_the_server_and_its_result_comes_back(client: detent.Client, work: ModuleType) -> None:
    handle = client.submit(work.square, 7)
    assert handle.result(timeout="60s") == 49
    assert (handle.done(), handle.status, handle.deduplicated) == (True, JobStatus.SUCCEEDED, False)
    assert client.handle(handle.job_id).result() == 49
    assert client.submit(work.nothing).result(60) is None


def test_many_calls_are_one_request_and_come_back_in_order(client: detent.Client, work: ModuleType) -> None:
    handles = client.submit_many(work.square, [(n,) for n in range(20)])
    assert [handle.result(60) for handle in handles] == [n * n for n in range(20)]
    assert list(client.map(work.square, range(15))) == [n * n for n in range(15)]
    assert list(client.map(work.square, [])) == []
    assert list(client.map(work.square, range(5), chunk=2)) == [n * n for n in range(5)]


def test_a_failure_is_the_same_error_as_beside_a_home(client: detent.Client, work: ModuleType) -> None:
    with pytest.raises(detent.TaskFailed, match="ValueError: no such river") as caught:
        client.submit_call(work.fail, ("no such river",)).result(60)
    assert caught.value.details["category"] == "USER_CODE_ERROR"
    assert "raise ValueError(word)" in str(caught.value.details["traceback"])
    assert caught.value.hint is not None
    assert "detent logs" in caught.value.hint
    failed = client.submit(work.fail, "again")
    assert isinstance(failed.exception(60), detent.TaskFailed)


def test_a_job_that_takes_longer_times_out_and_can_be_cancelled(client: detent.Client, work: ModuleType) -> None:
    handle = client.submit(work.sleep, 600)
    with pytest.raises(TimeoutError, match="has not ended within"):
        handle.result(timeout=0.3)
    assert handle.cancel() is True
    with pytest.raises(detent.TaskCancelled, match="was cancelled"):
        handle.result(60)
    assert handle.cancel() is False


def test_files_travel_by_digest(client: detent.Client, work: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a river")
    assert client.submit(work.read, detent.File(tmp_path / "note.txt")).result(60) == "a river"


def test_a_file_that_a_task_returns_can_be_read_here(working: tuple[Project, Served, Toxic], work: ModuleType) -> None:
    _, served, proxy = working
    with detent.Client(proxy.url, key=served.token) as client:
        given = client.submit(work.picture, "cat").result(60)
        passed_on = client.submit(work.read, given["picture"]).result(60)
    assert (given["$plain"], given["picture"].name, passed_on) == (1, "cat.txt", "pixels of cat")
    assert given["picture"].read_bytes() == b"pixels of cat", "also when the client is closed"


def test_files_in_a_large_result_can_be_read_here(client: detent.Client, work: ModuleType) -> None:
    given = client.submit(work.album, 3).result(60)
    assert len(given["pad"]) == 20_000
    assert [page["picture"].read_bytes() for page in given["pages"]] == [b"page 0", b"page 1", b"page 2"]
    assert client.submit(work.read, given["pages"][1]["picture"]).result(60) == "page 1"


def test_a_salt_and_force_decide_what_answers_for_a_call(
    working: tuple[Project, Served, Toxic], work: ModuleType
) -> None:
    _, served, proxy = working

    def submitted(**options: Any) -> tuple[str, bool]:
        with detent.Client(proxy.url, key=served.token, **options) as client:
            handle = client.submit(work.square, 31, reuse=True)
            assert handle.result(60) == 961
            return handle.job_id, handle.deduplicated

    plain, salted = submitted(), submitted(salt="pepper")
    assert (plain[1], salted[1]) == (False, False)
    assert (submitted(), submitted(salt="pepper")) == ((plain[0], True), (salted[0], True))
    assert submitted(force=True)[1] is False


def test_calls_with_large_arguments_are_sent_in_several_requests(client: detent.Client, work: ModuleType) -> None:
    handles = client.submit_many(work.length, [("x" * 3_000_000,) for _ in range(6)])
    assert [handle.result(60) for handle in handles] == [3_000_000] * 6


def test_a_lost_answer_submits_nothing_twice(
    client: detent.Client, work: ModuleType, working: tuple[Project, Served, Toxic]
) -> None:
    made, _, proxy = working
    before = len(made.detent("list", "--jobs", "-o", "json").document)
    for fault in (Fault.DROP, Fault.RESET, Fault.CUT):
        client.submit(work.square, 1).result(60)
        proxy.fail(fault, 2)
        assert client.submit(work.square, 3).result(60) == 9
    assert len(made.detent("list", "--jobs", "-o", "json").document) == before + 6


def test_a_run_whose_answer_was_lost_is_found_by_the_same_request(
    working: tuple[Project, Served, Toxic], tmp_path: Path
) -> None:
    made, served, proxy = working
    asked = {"contract": "name: lost\nsteps:\n  - {id: hi, run: {shell: echo hi}}\n", "params": {}, "options": {}}
    with Http(parse_address(proxy.url, key=served.token)) as http:
        proxy.fail(Fault.DROP, 1)
        with pytest.raises(ServerUnreachable):
            start_run(http, asked, tmp_path, new=False)
        proxy.fail(None)
        found = start_run(http, asked, tmp_path, new=False)
        assert found.wait().status == "succeeded"
        runs = [run["run_id"] for run in made.detent("list", "-o", "json").document if run["name"] == "lost"]
        assert runs == [found.run_id], "the first request had started it"
        assert start_run(http, asked, tmp_path, new=False).run_id != found.run_id, "it has ended"


def test_the_same_idempotency_key_names_the_same_job(client: detent.Client, work: ModuleType) -> None:
    first = client.submit_call(work.square, (4,), idempotency_key="order-4711")
    again = client.submit_call(work.square, (4,), idempotency_key="order-4711")
    assert again.job_id == first.job_id
    with pytest.raises(InvalidInput) as caught:
        client.submit_call(work.square, (5,), idempotency_key="order-4711")
    assert caught.value.code == "IDEMPOTENCY_KEY_REUSED"


def test_what_a_server_does_not_take_is_told(
    client: detent.Client, work: ModuleType, working: tuple[Project, Served, Toxic], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, served, proxy = working
    with pytest.raises(InvalidInput, match="for a home on this machine"):
        detent.Client(proxy.url, key=served.token, workers=2)
    with pytest.raises(InvalidInput, match="are for servers"):
        detent.Client(key=served.token)
    with pytest.raises(InvalidInput, match="chunk"):
        client.map(work.square, [1], chunk=0)
    with pytest.raises(InvalidInput, match="user_id"):
        client.submit_job({}, user_id="ann")
    with pytest.raises(InvalidInput):
        client.submit_job({"schema_version": "1.0"})
    with pytest.raises(InvalidInput, match="no such job"):
        client.handle("none").result(5)
    monkeypatch.delenv("DETENT_KEY", raising=False)
    with detent.Client(proxy.url) as stranger, pytest.raises(RequestRefused) as caught:
        stranger.submit(work.square, 1)
    assert caught.value.code == "UNAUTHENTICATED"


def test_a_large_result_comes_whole(client: detent.Client, work: ModuleType) -> None:
    assert client.submit(work.large).result(60) == "x" * 2_000_000


def test_a_single_job_is_retried_and_told_as_beside_the_home(
    client: detent.Client,
    work: ModuleType,
    working: tuple[Project, Served, Toxic],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, served, _ = working
    monkeypatch.setenv("XDG_STATE_HOME", made.environment["XDG_STATE_HOME"])
    monkeypatch.setenv("DETENT_KEY", served.token)
    sides = Sides(made, served, capsys)
    failed = client.submit_call(work.flaky, (str(made.directory / "mended"),))
    assert isinstance(failed.exception(60), detent.TaskFailed)
    near, there = sides.here("retry", failed.job_id), sides.there("retry", failed.job_id)
    assert (there.code, _without_ids(there.out)) == (1, _without_ids(near.out))
    assert "retry of  " + failed.job_id in there.out
    assert "RuntimeError: not yet" in there.out
    (made.directory / "mended").write_text("")
    mended = sides.there("retry", failed.job_id, "-o", "json")
    document = mended.document
    assert (mended.code, document["state"], document["result"], document["retry_of"], document["error"]) == (
        *(0, "succeeded", "mended"),
        *(failed.job_id, None),
    )
    assert set(document) == set(sides.here("retry", failed.job_id, "-o", "json").document)
    needless = sides.there("retry", document["job_id"])
    assert needless == sides.here("retry", document["job_id"])
    assert "nothing to run again" in needless.out
    slow = client.submit(work.sleep, 600)
    refused = sides.there("retry", slow.job_id, "-o", "json")
    assert (refused.code, refused.document["error"]["code"]) == (1, "CONFLICT")
    slow.cancel()


@needs_sandbox
def test_a_payload_is_submitted_by_the_command_as_beside_the_home(
    working: tuple[Project, Served, Toxic],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    made, served, _ = working
    monkeypatch.setenv("XDG_STATE_HOME", made.environment["XDG_STATE_HOME"])
    monkeypatch.setenv("DETENT_KEY", served.token)
    monkeypatch.chdir(tmp_path)
    sides = Sides(made, served, capsys)
    for name, number in (("near.json", 7), ("there.json", 8)):
        (tmp_path / name).write_text(json.dumps(square(number, workspace_id="local")))
    near, there = (
        sides.here("submit", "near.json", "--wait", "-o", "json").document,
        sides.there("submit", "there.json", "--wait", "-o", "json").document,
    )
    assert set(near) - {"superseded"} == set(there)
    told = ("status", "job_type", "workspace_id", "plan", "deduplicated")
    assert [there[name] for name in told] == [near[name] for name in told]
    assert there["result"]["outputs"]["result_json"] == {"y": 64}
    with detent.Client(served.told["url"], key=served.token) as client:
        job = client.submit_job((tmp_path / "there.json").read_bytes())
        assert (job.job_id, job.deduplicated, job.submitted.plan) == (there["job_id"], True, there["plan"])
        assert job.outcome(60).to_map() == {name: there[name] for name in job.outcome().to_map()}
        assert client.result_of(job.job_id).ok
        assert (job.fetch(tmp_path / "files"), client.fetch_artifacts(job, tmp_path / "files")) == ([], [])
    again = sides.there("submit", "there.json")
    assert again.out.startswith(f"found job {there['job_id']}  succeeded")
    assert _without_ids(again.out).replace("p_local", "local") == _without_ids(sides.here("submit", "near.json").out)
    user = sides.there("submit", "there.json", "--user", "ann")
    assert (user.code, "the key says who asks" in user.err) == (2, True)
    (tmp_path / "bad.json").write_text("{}")
    assert sides.there("submit", "bad.json").code == sides.here("submit", "bad.json").code


def test_a_client_may_be_awaited(work: ModuleType, working: tuple[Project, Served, Toxic]) -> None:
    _, served, proxy = working

    async def together() -> list[int]:
        async with detent.AsyncClient(proxy.url, key=served.token) as client:
            handles = await asyncio.gather(*(client.submit(work.square, n) for n in range(5)))
            assert await handles[0].done() in {True, False}
            many = await client.submit_many(work.square, [(n,) for n in range(3)])
            mapped = [value async for value in client.map(work.square, [1, 2])]
            return [*await asyncio.gather(*(one.result(60) for one in [*handles, *many])), *mapped]

    assert asyncio.run(together()) == [0, 1, 4, 9, 16, 0, 1, 4, 1, 4]


def _without_ids(text: str) -> str:
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "JOB", text)
    return re.sub(r" in [0-9.]+m?s", " in TIME", text)
