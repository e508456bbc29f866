"""A workspace that floods a server with a hundred times its share: the others' jobs go through (`[queue] capacity_per_tenant`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.laboured import Laboured, eventually, project
from tests.serve.served import RATES, Reply, Served, start

pytestmark = pytest.mark.door("setting [queue] capacity_per_tenant")
SHARE = 10
WORKERS = 2
FLOOD = 100 * SHARE
CAPACITY = 3 * SHARE
"""Room for all workspaces together: without a bound of its own, the flood would take all of it."""
STEP = '  - {{id: s{0}, cache: false, run: {{python: "tasks:note", with: {{word: "s{0}", place: {{$param: place}}}}}}}}'
WIDE = "\n".join(
    ["name: wide", "params: {place: {type: string}}", "steps:", *(STEP.format(number) for number in range(4 * SHARE))]
)


class Flooded:
    """A server with two workspaces, and a key for each."""

    def __init__(self, laboured: Laboured, served: Served) -> None:
        self.laboured, self.served = laboured, served
        self.keys: dict[str, str] = {}
        for workspace in ("calm", "flood"):
            assert self._admin("/v1/workspaces", {"workspace": workspace}).status == 201
            made = self._admin("/v1/keys", {"name": workspace, "role": "operator"}, workspace)
            self.keys[workspace] = made.json["secret"]

    def _admin(self, path: str, body: Any, workspace: str | None = None) -> Reply:
        headers = {} if workspace is None else {"Detent-Workspace": workspace}
        return self.served.ask("POST", path, body=json.dumps(body).encode(), headers=headers)

    def post(self, workspace: str, path: str, body: Any) -> Reply:
        return self.served.ask("POST", path, body=json.dumps(body).encode(), token=self.keys[workspace])

    def task(self, name: str, word: str) -> dict[str, Any]:
        return {"task": {"target": f"tasks:{name}", "arguments": [word, str(self.laboured.directory)]}}

    def states(self, workspace: str, kind: str = "jobs") -> dict[str, int]:
        found: dict[str, int] = self.served.get("/v1/counts", token=self.keys[workspace]).json[kind]
        return {state: count for state, count in found.items() if count}


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flooded]:
    laboured = project(tmp_path_factory.mktemp("flooded"))
    config = laboured.home.path / "config.toml"
    bounds = f"capacity_per_class = {CAPACITY}\ncapacity_total = {CAPACITY}\ncapacity_per_tenant = {SHARE}\n"
    text = config.read_text().replace("capacity_per_class = 256\ncapacity_total = 2560\n", bounds)
    config.write_text(text + RATES)
    options = ("--project", str(laboured.directory), "--workers", str(WORKERS))
    served = start(laboured.home.path, laboured.environment, *options)
    try:
        yield Flooded(laboured, served)
    finally:
        laboured.go()
        assert served.stop() == 0


def test_a_workspace_at_its_bound_is_refused_and_the_others_go_on(flooded: Flooded) -> None:
    """X-031: a full queue is told, with the time to come back; here it is full for one workspace alone."""
    items = [flooded.task("wait", f"f{number}") for number in range(FLOOD)]
    taken = flooded.post("flood", "/v1/jobs:batch", {"items": items}).json["items"]
    codes = [item.get("problem", {}).get("code") for item in taken]
    assert SHARE <= codes.count(None) <= SHARE + WORKERS, "the workers may have begun two of them meanwhile"
    assert set(codes) - {None} == {"LIMIT_TENANT"}
    eventually(lambda: flooded.states("flood").get("running") == WORKERS, "the workers are busy with the flood")
    accepted = codes.count(None)
    for number in range(WORKERS):  # What they have begun since the batch left room.
        if accepted < SHARE + WORKERS:
            accepted += flooded.post("flood", "/v1/jobs", flooded.task("wait", f"m{number}")).status == 202
    assert accepted == SHARE + WORKERS
    refused = flooded.post("flood", "/v1/jobs", flooded.task("note", "one-more"))
    assert (refused.status, refused.code) == (429, "LIMIT_TENANT")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    whole = flooded.post("flood", "/v1/jobs:batch", {"items": items[:2], "atomic": True})
    assert (whole.status, whole.code) == (429, "LIMIT_TENANT")

    calm = [flooded.post("calm", "/v1/jobs", flooded.task("note", f"c{number}")) for number in range(SHARE)]
    assert [reply.status for reply in calm] == [202] * SHARE, "there is room for a workspace that has its share"
    flooded.laboured.go()
    eventually(lambda: flooded.states("calm") == {"succeeded": SHARE}, "all jobs of the other workspace succeeded")
    eventually(lambda: flooded.states("flood") == {"succeeded": accepted}, "the flood is over")
    again = flooded.post("flood", "/v1/jobs", flooded.task("note", "one-more"))
    assert again.status == 202, "there is room again"


def test_a_run_that_is_wider_than_the_bound_holds_its_jobs_back_and_succeeds(flooded: Flooded) -> None:
    """X-031: work of a run waits for room instead of failing."""
    flooded.laboured.go()
    eventually(lambda: flooded.states("flood").keys() <= {"succeeded"}, "nothing else is under way")
    before = flooded.states("flood")["succeeded"] if flooded.states("flood") else 0
    body = {"contract": WIDE, "params": {"place": str(flooded.laboured.directory)}}
    assert flooded.post("flood", "/v1/runs", body).status == 202
    eventually(lambda: flooded.states("flood", "runs") == {"succeeded": 1}, "the run succeeded")
    assert flooded.states("flood") == {"succeeded": before + 4 * SHARE}
