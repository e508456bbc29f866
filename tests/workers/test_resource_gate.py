"""Resources of a step on their way from the contract to the workers: they decide when it runs, and whether it can."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from detent.errors import RequestRefused
from detent.inspect.explain_job import taken_by
from detent.inspect.explain_run import explain_run
from detent.jobs.order import Call, JobLimits
from detent.owner.content import Content
from detent.owner.views import job_view
from detent.runs.single_jobs import SingleJobs
from detent.runs.submit.calls import JobRequest
from detent.store.sqlite import SqliteStore
from tests.runs.rig import Rig, eventually

STEPS = """
import os, pathlib, time

def alone(place, item):
    '''Fails when another one is inside at the same time.'''
    inside = os.open(place, os.O_CREAT | os.O_EXCL)
    until = time.monotonic() + 0.02
    while time.monotonic() < until: pass
    os.close(inside)
    os.remove(place)
    return item

def waits(place):
    pathlib.Path(place + ".begun").touch()
    while not os.path.exists(place): time.sleep(0.005)
    return 1
"""


def count(rig: Rig, **resources: int) -> None:
    """Give the home something to count."""
    path = rig.home.path / "config.toml"
    path.write_text(path.read_text().partition("[resources]")[0])
    with path.open("a") as file:
        file.write("[resources]\n" + "".join(f"{name} = {amount}\n" for name, amount in resources.items()))


@pytest.mark.parametrize("takes", ["{cpu: 2}", "{gpu: 1}"])
def test_two_that_need_the_same_never_run_at_once(rig: Rig, takes: str) -> None:
    """Issue 6: a step that takes both workers, or the one GPU, has it for itself."""
    rig.write(STEPS)
    count(rig, gpu=1)
    work = rig.pool(workers=2)
    text = f"""
        name: f
        steps:
          - id: alone
            run: {{python: "steps:alone", with: {{place: {rig.project}/inside}}}}
            map: {{item: [1, 2, 3, 4]}}
            resources: {takes}
        result: {{$from: alone}}
        """
    assert rig.handle(work, text).run().value == [1, 2, 3, 4]


def test_what_takes_more_than_there_is_is_refused_before_anything_runs(rig: Rig) -> None:
    """Typed as the scheduler types it: no pool could ever run this."""
    work = rig.work(workers=2)
    with pytest.raises(
        RequestRefused, match=r"step 'big' can never run here: it needs 3 cpu, and only 2 can be had here"
    ) as no:
        rig.handle(
            work,
            """
            name: f
            steps:
              - id: one
                run: {python: "steps:one"}
              - id: big
                run: {python: "steps:one"}
                resources: {cpu: 3}
            """,
        ).run()
    assert no.value.code == "NO_FEASIBLE_POOL"
    one = Call(kind="python", target="steps:one", base=str(rig.project))
    request = JobRequest(one, "one", JobLimits(resources={"gpu": 1}))
    with pytest.raises(RequestRefused, match="a resource that this home does not have") as no:
        SingleJobs(work).submit([request])
    assert no.value.code == "NO_FEASIBLE_POOL"
    assert list(work.backend.reader.jobs()) == []


def test_changed_resources_make_nothing_run_again(rig: Rig) -> None:
    text = """
        name: f
        steps:
          - id: one
            run: {python: "steps:one"}
            resources: {cpu: %d}
        """
    assert [rig.run(text % cpu).view.steps[0].state for cpu in (1, 2)] == ["succeeded", "reused"]


def test_explain_tells_what_a_step_takes_and_that_it_waits_for_it(rig: Rig, tmp_path: Path) -> None:
    rig.write(STEPS)
    count(rig, gpu=1)
    work, gate = rig.pool(workers=2), tmp_path / "gate"
    tasks = SingleJobs(work)

    def call(place: Path) -> JobRequest:
        work = Call(
            kind="python", target="steps:waits", base=str(rig.project), keywords={"place": str(place)}, cache=False
        )
        return JobRequest(work, "waits", JobLimits(resources={"gpu": 1}))

    first, second = tasks.submit([call(gate), call(gate)])
    eventually(lambda: {rig.job(one.job_id).state for one in (first, second)} == {"RUNNING"}, "not claimed")
    eventually(lambda: Path(f"{gate}.begun").exists(), "not begun")

    def told(job_id: str) -> tuple[bool, tuple[str, ...]]:
        with closing(SqliteStore.open_reader(rig.home.home.ledger_file)) as reader:
            view = job_view(reader, job_id)
            assert view is not None
            taken = taken_by(reader, Content(reader, rig.home.home.content_files()), view, rig.home.path)
            assert taken is not None
            assert taken.resources == {"gpu": 1}
            return taken.waiting, taken.lines

    assert sorted(told(one.job_id)[0] for one in (first, second)) == [False, True]
    gate.touch()
    assert tasks.wait(first)
    assert tasks.wait(second)
    assert told(first.job_id)[1][0] == "Each attempt takes 1 gpu of what there is."


def test_explain_of_a_run_tells_what_its_steps_take(rig: Rig) -> None:
    result = rig.run(
        """
        name: f
        steps:
          - id: one
            run: {python: "steps:one"}
            resources: {cpu: 2}
        """
    )
    with closing(SqliteStore.open_reader(rig.home.home.ledger_file)) as reader:
        told = explain_run(reader, Content(reader, rig.home.home.content_files()), result.run_id)
    assert told.steps[0].lines[-1] == "Each attempt takes 2 cpu of what there is."
