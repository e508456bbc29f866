"""GET /v1/jobs at a million jobs: what a page costs the server under every filter (goal: 5 ms).

    python -m bench.big_listing --jobs 1000000            # about an hour on a busy machine; without it a twentieth
    python -m bench.big_listing --keep DIR                # leave the home there, and measure it again the next time

The jobs belong to the workspace of the server's own token, in runs of 500; one in a hundred failed, one in a hundred was cancelled, and some
run. Another workspace has a tenth as many jobs, all of which wait: filters by state must not look at those. Printed is the CPU time of
the server for a request, HTTP and all, beside that of a request which reads nothing (`/healthz`).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

from bench.owner_rate import open_bench_home
from detent.canon import SigningKey, sha256
from detent.kernel import Cancel, Claim, EndRun, Finish, Grant, Manifest, StartRun, Submit, VerifiedManifest
from detent.kernel.policy import UNLIMITED_QUOTA
from detent.ledger import sign_manifest
from detent.owner.owner import Owner
from detent.owner.turn import Make
from detent.store.api import NEVER_REUSED, WorkRow
from tests.serve.served import ANSWER_SECONDS, RATES, Served, read_reply, start

BATCH = 500
OWN, OTHER = "local", "crowd"
LABEL, MOST, POOL = "bench/noop", "bench/never reused", "gpu"
REQUESTS = 40
GOAL_MS = 5.0


def signed(key: SigningKey, origin: str, tenant: str, first: int, count: int) -> list[VerifiedManifest]:
    """Manifests of jobs, signed."""
    quota = UNLIMITED_QUOTA.hash()
    return [
        sign_manifest(Manifest(tenant, f"{tenant}-{number:08d}", "task", bytes(32), 5, quota, 0, origin=origin), key)
        for number in range(first, first + count)
    ]


def build(directory: Path, jobs: int) -> None:
    """Make the home."""
    owned, key = open_bench_home(directory)
    owner, origin = owned.owners[0], owned.trust.origin
    for first in range(0, jobs, BATCH):
        _batch(
            owner, signed(key, origin, OWN, first, min(BATCH, jobs - first)), f"run-{first:08d}", first + BATCH >= jobs
        )
        if first % 100_000 == 0:
            sys.stderr.write(f"  {first:,} jobs\n")
    for first in range(0, jobs // 10, BATCH):
        manifests = signed(key, origin, OTHER, first, BATCH)
        names = [one.manifest.job_id for one in manifests]
        owner.call([_submit(one, None) for one in manifests], work=_work(OTHER, names))
    owned.close()


def _work(tenant: str, names: Sequence[str]) -> list[WorkRow]:
    """Labels and pools: one job in ten can be reused and has a label of its own, one in three is for a pool."""
    return [
        WorkRow(tenant, sha256(name.encode()) if place % 10 == 0 else NEVER_REUSED, name, LABEL if place % 10 == 0 else MOST,
                pool=POOL if place % 3 == 0 else None)
        for place, name in enumerate(names)
    ]  # fmt: skip


def _batch(owner: Owner, manifests: Sequence[VerifiedManifest], run_id: str, last: bool) -> None:
    """A run whose jobs end, except for some of the last."""
    digest = sha256(run_id.encode())
    owner.call([lambda tick: StartRun(tick, OWN, run_id, "bench", digest, digest, digest, run_id)])
    names = [one.manifest.job_id for one in manifests]
    owner.call([_submit(one, run_id) for one in manifests], work=_work(OWN, names))
    grants = owner.call([lambda tick: Claim(tick, "bench-worker", BATCH)])[0].grants
    left = grants[: len(grants) - 50] if last else grants
    owner.call([_end(grant, number) for number, grant in enumerate(left)])
    if not last:
        owner.call([lambda tick: EndRun(tick, run_id, "completed", None)])


def _submit(manifest: VerifiedManifest, run_id: str | None) -> Make:
    return lambda tick: Submit(tick, manifest, run_id=run_id)


def _end(grant: Grant, number: int) -> Make:
    if number % 100 == 1:
        return lambda tick: Cancel(tick, OWN, grant.job_id, "CANCELLED_BY_USER")
    if number % 100 == 0:
        fault = {"ok": False, "reason_code": "TASK_FAILED", "category": "VALIDATION_ERROR"}
        return lambda tick: Finish(tick, grant.job_id, grant.lease_id, **fault)  # type: ignore[arg-type]
    return lambda tick: Finish(tick, grant.job_id, grant.lease_id)


def questions(jobs: int) -> dict[str, str]:
    """Every filter, and those together that may be given together."""
    middle = f"run-{jobs // 2 // BATCH * BATCH:08d}"
    hour = "2099-01-01T00:00:00Z"
    return {
        "nothing (/healthz)": "/healthz",
        "no filter": "/v1/jobs",
        "limit=200": "/v1/jobs?limit=200",
        **{
            f"state={state}": f"/v1/jobs?state={state}"
            for state in ("queued", "running", "succeeded", "failed", "cancelled")
        },
        "run": f"/v1/jobs?run={middle}",
        "run and state": f"/v1/jobs?run={middle}&state=failed",
        "label": f"/v1/jobs?label={quote(LABEL)}",
        "label of most jobs": f"/v1/jobs?label={quote(MOST)}",
        "label of none": "/v1/jobs?label=none",
        "label and state": f"/v1/jobs?label={quote(MOST)}&state=cancelled",
        "label, none so": f"/v1/jobs?label={quote(MOST)}&state=retrying",
        "pool": f"/v1/jobs?pool={POOL}",
        "pool and state": f"/v1/jobs?pool={POOL}&state=failed",
        "q": f"/v1/jobs?q={OWN}-000",
        "q of one job": f"/v1/jobs?q={OWN}-{jobs // 2:08d}",
        "q and state": f"/v1/jobs?q={OWN}-000&state=succeeded",
        "worker": "/v1/jobs?worker=bench-worker&state=running",
        "since": "/v1/jobs?since=2000-01-01T00:00:00Z",
        "until": f"/v1/jobs?until={hour}",
        "since, in the future": f"/v1/jobs?since={hour}",
    }


def measure(served: Served, path: str) -> tuple[float, int]:
    """Milliseconds of CPU that the server takes for a request, and how many jobs it answers with."""
    connection = HTTPConnection("127.0.0.1", served.port, timeout=ANSWER_SECONDS)
    headers = {"Authorization": f"Bearer {served.token}"}

    def ask() -> int:
        connection.request("GET", path, headers=headers)
        reply = read_reply(connection)
        assert reply.status == 200, (path, reply.status, reply.body[:300])
        return len(reply.json.get("items", ()))

    rows = ask()
    before = _cpu_ms(served.process.pid)
    for _ in range(REQUESTS):
        ask()
    took = (_cpu_ms(served.process.pid) - before) / REQUESTS
    connection.close()
    return took, rows


def _cpu_ms(pid: int) -> float:
    """Of all its threads, by the kernel's own clock of nanoseconds."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--keep", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("DETENT_BENCH_DIR")) as place:
        directory: Path = given.keep or Path(place)
        if not (directory / ".detent").exists():
            begun = time.monotonic()
            directory.mkdir(parents=True, exist_ok=True)
            build(directory, given.jobs)
            (directory / ".detent" / "config.toml").open("a").write(RATES)
            sys.stderr.write(f"  built in {time.monotonic() - begun:.0f} s\n")
        environment = {**os.environ, "XDG_STATE_HOME": str(directory / "state")}
        begun = time.monotonic()
        served = start(directory / ".detent", environment)
        size = (directory / ".detent" / "ledger.db").stat().st_size / 2**20
        print(
            f"GET /v1/jobs at {given.jobs:,} jobs ({size:,.0f} MiB, served after {time.monotonic() - begun:.1f} s), CPU a request:"
        )
        over = []
        for name, path in questions(given.jobs).items():
            took, rows = measure(served, path)
            over += [name] if took > GOAL_MS else []
            print(f"  {name:<22} {took:7.2f} ms  {rows:>4} jobs")
        print(f"  above {GOAL_MS:g} ms: {', '.join(over) or 'none'}")
        served.stop()


if __name__ == "__main__":
    main()
