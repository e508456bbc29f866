"""Workers on other machines, as their users have them: `detent worker --connect` beside `detent serve`, killed, drained and cut off."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from detent.executor.own_targets import DELIVER
from detent.inspect.audit import verify_home
from detent.owner.home import Home
from tests.serve.elsewhere import RemoteWorker, ended, enrolment, remote_worker, task
from tests.serve.laboured import Laboured, eventually, project
from tests.serve.served import ANSWER_SECONDS, Served, start
from tests.serve.toxic import Fault, Toxic

pytestmark = pytest.mark.door("detent worker --connect")


@pytest.fixture
def laboured(tmp_path: Path) -> Laboured:
    (tmp_path / "server").mkdir()
    return project(tmp_path / "server")


@pytest.fixture
def proxy() -> Iterator[Toxic]:
    with Toxic() as toxic:
        yield toxic


def serve(laboured: Laboured, proxy: Toxic) -> Served:
    """A server behind the proxy."""
    server = start(
        *(laboured.home.path, laboured.environment, "--project", str(laboured.directory)),
        *("--allow-host", f"127.0.0.1:{proxy.port}"),
    )
    proxy.target = server.port
    return server


@pytest.fixture
def served(laboured: Laboured, proxy: Toxic) -> Iterator[Served]:
    server = serve(laboured, proxy)
    yield server
    if server.process.poll() is None:
        server.stop()
    else:
        server.kill()


@pytest.fixture
def elsewhere(tmp_path: Path, laboured: Laboured) -> Path:
    """The other machine's checkout of the project."""
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    (directory / "tasks.py").write_text((laboured.directory / "tasks.py").read_text())
    return directory


def submit(served: Served, laboured: Laboured, name: str, *words: str) -> list[str]:
    return [task(served, f"tasks:{name}", word, str(laboured.directory)) for word in words]


def verified(laboured: Laboured, worker: RemoteWorker) -> None:
    """The whole ledger verifies, and says that the worker's key signed results."""
    report = verify_home(Home(laboured.home.path), environment=laboured.environment)
    assert report.ok, report.findings
    key_id = worker.key_id[:16]
    assert any(f"by {key_id}" in line or worker.worker_id in line for line in report.proved), report.proved


def test_jobs_run_on_another_machine_over_a_bad_network_and_the_ledger_names_its_key(
    served: Served, laboured: Laboured, elsewhere: Path, proxy: Toxic
) -> None:
    """Nothing is lost, nothing is done twice, whatever happens to the answers."""
    words: list[str] = []
    with remote_worker(served, elsewhere, url=proxy.url) as worker:
        for fault in (None, Fault.DROP, Fault.RESET, Fault.CUT, Fault.DELAY, Fault.BUFFER, Fault.DUPLICATE):
            failed = proxy.failed
            proxy.fail(fault, times=3)
            new = [f"{fault}-{number}" for number in range(5)]
            jobs = submit(served, laboured, "note", *new)
            for job_id in jobs:
                found = ended(served, job_id)
                attempts = served.json(f"/v1/jobs/{job_id}/attempts")["items"]
                assert (found["status"], found["attempt"]) == ("succeeded", 1), (fault, attempts)
            words += new
            assert sorted(line.split()[0] for line in laboured._lines("done.txt")) == sorted(words)
            assert fault is None or proxy.failed > failed
        (shown,) = served.json("/v1/workers")["items"]
        assert (shown["worker_id"], shown["slots"]) == (worker.worker_id, 2)
        assert (worker.state / "key").stat().st_mode & 0o777 == 0o600
        assert worker.end() == 0
    served.stop()
    verified(laboured, worker)


def test_a_network_that_repeats_every_answer_loses_no_report(
    served: Served, laboured: Laboured, elsewhere: Path, proxy: Toxic
) -> None:
    """A repeated answer comes before or behind the next turn: it is never taken for the answer to that one."""
    proxy.fail(Fault.DUPLICATE, times=None)
    with remote_worker(served, elsewhere, url=proxy.url) as worker:
        for round_, proxy.again_seconds in enumerate((0.004, 0.01, 0.02, 0.1)):
            for job_id in submit(served, laboured, "note", *(f"{round_}-{number}" for number in range(10))):
                found = ended(served, job_id)
                assert (found["status"], found["attempt"]) == ("succeeded", 1)
        assert worker.end() == 0
    assert len(laboured.done()) == 40


SHIFTED = """\
import time

_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {seconds}
time.time_ns = lambda: _time_ns() + {seconds} * 1_000_000_000
"""


def test_a_worker_whose_clock_is_a_day_off_does_its_jobs_at_the_servers_time(
    served: Served, laboured: Laboured, elsewhere: Path, tmp_path: Path
) -> None:
    """Leases are durations; requests are signed with the server's time; a report's times lie between its grant and its end."""
    workers: list[RemoteWorker] = []
    for days in (1, -1):
        clock, state = tmp_path / f"clock {days}", elsewhere / f"state {days}"
        clock.mkdir()
        (clock / "sitecustomize.py").write_text(SHIFTED.format(seconds=86_400 * days))
        environment = {**served.environment, "PYTHONPATH": str(clock)}
        worker = RemoteWorker(state, elsewhere, served.told["url"], environment)
        workers.append(worker)
        worker.start(enrolment(served)).wait_for("takes jobs")
        try:
            words = [f"day {days} {number}" for number in range(3)]
            for job_id in submit(served, laboured, "note", *words):
                found = ended(served, job_id)
                assert (found["status"], found["attempt"]) == ("succeeded", 1)
                assert found["submitted_at"] <= found["started_at"] <= found["finished_at"] <= _now()
                (attempt,) = served.json(f"/v1/jobs/{job_id}/attempts")["items"]
                assert found["submitted_at"] <= attempt["started_at"] <= attempt["finished_at"] <= _now()
            assert worker.end() == 0
        finally:
            if worker.process is not None and worker.process.poll() is None:
                worker.end(signal.SIGKILL)
    served.stop()
    verified(laboured, workers[-1])


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.999Z")


@pytest.mark.slow
def test_a_half_open_network_loses_nothing_and_repeats_nothing(
    served: Served, laboured: Laboured, elsewhere: Path, proxy: Toxic
) -> None:
    with remote_worker(served, elsewhere, url=proxy.url) as worker:
        proxy.fail(Fault.STALL, times=4)
        words = [f"word-{number}" for number in range(6)]
        for job_id in submit(served, laboured, "note", *words):
            assert ended(served, job_id)["status"] == "succeeded"
        assert laboured.done() == words
        worker.end()


def test_after_enrolment_the_command_alone_goes_on_and_a_killed_worker_loses_nothing(
    served: Served, laboured: Laboured, elsewhere: Path
) -> None:
    """X-163: the next start gives the leases of the killed one up, so a restart costs no lease time."""
    with remote_worker(served, elsewhere) as worker:
        (job_id,) = submit(served, laboured, "wait", "held")
        eventually(lambda: laboured.begun() == ["held"], "the job runs")
        worker.end(signal.SIGKILL)
        worker.start(alone=True).wait_for("takes jobs")
        eventually(lambda: laboured.begun() == ["held", "held"], "the job runs again")
        laboured.go()
        assert ended(served, job_id)["status"] == "succeeded"
        assert laboured.done() == ["held"]


def test_a_killed_server_finds_its_worker_and_the_result_that_waited(
    served: Served, laboured: Laboured, elsewhere: Path, proxy: Toxic
) -> None:
    with remote_worker(served, elsewhere, url=proxy.url) as worker:
        (job_id,) = submit(served, laboured, "wait", "held")
        eventually(lambda: laboured.begun() == ["held"], "the job runs")
        served.kill()
        laboured.go()
        eventually(lambda: laboured.done() == ["held"], "the job ends while there is no server")
        server = serve(laboured, proxy)
        found = ended(server, job_id)
        assert (found["status"], found["attempt"]) == ("succeeded", 1)
        assert laboured.begun() == ["held"]
        assert worker.end() == 0
        server.stop()
    verified(laboured, worker)


def test_a_cancelled_job_is_ended_there_and_a_drained_worker_finishes_and_ends(
    served: Served, laboured: Laboured, elsewhere: Path
) -> None:
    with remote_worker(served, elsewhere) as worker:
        held, other = submit(served, laboured, "wait", "held", "other")
        eventually(lambda: sorted(laboured.begun()) == ["held", "other"], "both run")
        line = [sys.executable, "-m", "detent", "cancel", "--home", str(laboured.home.path), held]
        subprocess.run(line, env=laboured.environment, check=True, capture_output=True, timeout=ANSWER_SECONDS)
        (third,) = submit(served, laboured, "note", "third")
        assert ended(served, third)["status"] == "succeeded"
        assert served.ask("POST", f"/v1/workers/{worker.worker_id}/drain").status == 200
        laboured.go()
        assert ended(served, other)["status"] == "succeeded"
        assert ended(served, held)["status"] == "cancelled"
        assert worker.ended() == 0
        assert laboured.done() == ["other", "third"]


def test_a_retired_worker_is_told_so_and_ends(served: Served, laboured: Laboured, elsewhere: Path) -> None:
    with remote_worker(served, elsewhere) as worker:
        (job_id,) = submit(served, laboured, "wait", "held")
        eventually(lambda: laboured.begun() == ["held"], "the job runs")
        assert served.ask("POST", f"/v1/workers/{worker.worker_id}/retire").json["state"] == "retired"
        assert worker.ended() == 3
        assert served.json(f"/v1/jobs/{job_id}")["status"] == "running"
    served.stop()
    assert verify_home(Home(laboured.home.path), environment=laboured.environment).ok


def test_other_code_gives_the_job_back_to_a_worker_that_has_the_right_one(
    served: Served, laboured: Laboured, elsewhere: Path, tmp_path: Path
) -> None:
    """X-176: code is compared before it runs."""
    source = (elsewhere / "tasks.py").read_text()
    (elsewhere / "tasks.py").write_text(source.replace("return word\n", "return word * 2\n"))
    right = tmp_path / "right"
    right.mkdir()
    (right / "tasks.py").write_text(source)
    with remote_worker(served, elsewhere):
        (job_id,) = submit(served, laboured, "note", "once")
        with remote_worker(served, right):
            assert ended(served, job_id)["status"] == "succeeded"
        assert laboured.done() == ["once"]


def test_a_delivery_of_a_webhook_stays_beside_the_keys_that_sign_it(
    served: Served, laboured: Laboured, elsewhere: Path
) -> None:
    with remote_worker(served, elsewhere) as worker:
        job_id = task(served, DELIVER)
        (other,) = submit(served, laboured, "note", "other")
        assert ended(served, other)["status"] == "succeeded"
        assert worker.end() == 0
        found = served.json(f"/v1/jobs/{job_id}")
        assert (found["state"], found["attempts"]) == ("queued", 0), "it was never offered"


MAP = """\
name: spread
steps:
  - id: spread
    run: {map: {items: [1, 2, 3], compute: "meet:meet", commit: "jsonl:PLACE/out.jsonl", chunk: 1}}
"""
MEET = """\
import os
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def meet(number):
    open(f"PLACE/met-{number}", "w").close()
    while not all(os.path.exists(f"PLACE/met-{one}") for one in (1, 2, 3)):
        time.sleep(0.01)
    return HERE
"""


def test_items_of_an_ordered_map_whose_code_was_sent_run_on_any_worker(
    laboured: Laboured, elsewhere: Path, tmp_path: Path
) -> None:
    """Three items meet: one worker of the server's own drives and computes, two slots elsewhere compute the others."""
    sent = tmp_path / "sent"
    sent.mkdir()
    (sent / "spread.yaml").write_text(MAP.replace("PLACE", str(tmp_path)))
    (sent / "meet.py").write_text(MEET.replace("PLACE", str(tmp_path)))
    served = start(laboured.home.path, laboured.environment, "--workers", "1")
    with remote_worker(served, elsewhere) as worker:
        line = [sys.executable, "-m", "detent", "run", "spread.yaml", "--connect", served.told["url"], "-q"]
        environment = {**laboured.environment, "DETENT_KEY": served.token}
        ran = subprocess.run(
            line, cwd=sent, env=environment, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
        assert ran.returncode == 0, ran.stderr
        where = [json.loads(text) for text in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert sorted(one.startswith(str(worker.state)) for one in where) == [False, True, True]
        assert worker.end() == 0
    served.stop()
    verified(laboured, worker)
