"""Quotas, leases and backoffs by name: defined in the home's settings, named by steps of contracts, seen at the command line."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.cli.project import Project, detent_home, project
from tests.cli.submitted import draft, needs_sandbox
from tests.executor.runners.rig import execute

__all__ = ["detent_home", "project"]

BURN = """
import time

def burn(ms=230):
    end = time.process_time() + ms / 1000
    while time.process_time() < end:
        pass
    return "burnt"
"""
TINY = "\n[quotas.tiny]\ncpu_time_budget_ms = 1\n"
BURNING = """\
name: burning
steps:
  - id: burn
    run: {python: "burn:burn"}
    quota: tiny
"""


def configured(project: Project, text: str) -> None:
    """Add to the settings of the home."""
    path = project.home.path / "config.toml"
    path.write_text(path.read_text() + text)


def burning(project: Project, contract: str = BURNING) -> str:
    """A project with a step that uses 230 ms of CPU time; the contract's file."""
    project.write("burn.py", BURN)
    return project.write("burning.yaml", contract)


def job_of(project: Project, name: str) -> Any:
    """What `show` says of the job of a step."""
    (job,) = [one for one in project.json("list", "--jobs") if one["step"] == name]
    return project.json("show", job["job_id"])


def test_a_budget_of_1_ms_of_cpu_ends_a_step_that_uses_230_ms(project: Project) -> None:
    """PIPE-099, PIPE-101, PIPE-103, PIPE-104, PIPE-106, X-049: typed code, no retry, and a history that verifies and replays."""
    configured(project, TINY)
    project.run(burning(project), code=1)
    job = job_of(project, "burn")
    assert (job["state"], job["reason_code"], job["category"]) == ("failed", "QUOTA_CPU_TIME", "RESOURCE_LIMIT")
    assert job["attempts"] == 1
    assert project("replay").code == 0


def test_show_has_the_ledger_of_a_job_and_explain_the_line_of_the_quota_that_decided(project: Project) -> None:
    """PIPE-097, PIPE-102, PIPE-105"""
    configured(project, TINY)
    project.run(burning(project), code=1)
    job = job_of(project, "burn")
    used = job["usage"]
    assert 1 < used["cpu_time_ms"] < 5000
    assert used.keys() == {
        *("bytes_allocated", "peak_bytes", "io_bytes_read", "io_bytes_written", "gpu_time_ms", "cpu_time_ms")
    }
    assert (job["quota"]["name"], job["quota"]["by"]) == ("tiny", "named by the step")
    assert (job["quota"]["cpu_time_budget_ms"], job["quota"]["verdict"]) == (1, "QUOTA_CPU_TIME")
    page = project("show", job["job_id"]).out
    assert f"{used['cpu_time_ms']} ms of CPU time" in page
    assert "tiny (named by the step, QUOTA_CPU_TIME)" in page
    told = " ".join(project("explain", job["job_id"]).out.split())
    where = f"[quotas.tiny] in {project.home.path}/config.toml, named by the step"
    assert f"cpu_time_budget_ms = 1 of {where} decided: {used['cpu_time_ms']} ms of 1 ms of CPU time used" in told


def test_a_job_keeps_the_quota_that_the_settings_have_changed_since(project: Project) -> None:
    """PIPE-100, X-048: its manifest names a policy by what it allows, and the ledger has that."""
    configured(project, TINY)
    project.run(burning(project), code=1)
    settings = project.home.path / "config.toml"
    settings.write_text(settings.read_text().replace("cpu_time_budget_ms = 1", "cpu_time_budget_ms = 2"))
    quota = job_of(project, "burn")["quota"]
    assert (quota["name"], quota["cpu_time_budget_ms"]) == (None, 1)


def test_a_budget_that_is_not_reached_changes_nothing(project: Project) -> None:
    """PIPE-106, X-049: what is left out of a quota is unlimited."""
    configured(project, "\n[quotas.tiny]\ncpu_time_budget_ms = 60000\n")
    project.run(burning(project))
    assert job_of(project, "burn")["state"] == "succeeded"


def test_a_tenant_and_the_home_have_a_quota_for_steps_that_name_none(project: Project) -> None:
    """PIPE-099: the step's own name comes first, then the tenant's, then the default."""
    file = burning(project, BURNING.replace("    quota: tiny\n", ""))
    configured(project, TINY + "[tenants.local]\nquota = 'tiny'\n")
    project.run(file, code=1)
    assert job_of(project, "burn")["reason_code"] == "QUOTA_CPU_TIME"
    burning(project, BURNING.replace("tiny", "default"))
    project.run(file)
    settings = project.home.path / "config.toml"
    settings.write_text(
        settings.read_text().replace("[tenants.local]\nquota = 'tiny'\n", "[quotas.default]\nio_bytes_budget = 0\n")
    )
    burning(project, BURNING.replace("    quota: tiny\n", ""))
    project.run(file, "--force", code=1)  # Its own source has to be read.
    (newest, *_) = project.json("list", "--jobs")
    assert newest["reason_code"] == "QUOTA_IO_BYTES"


@pytest.mark.parametrize("command", ["validate", "plan", "run"])
@pytest.mark.parametrize(
    ("kind", "name", "known"),
    [("quota", "tinny", "default, tiny"), ("lease", "tiny", "default, fast"), ("backoff", "fast", "default, slow")],
)
def test_an_unknown_name_is_refused_with_its_line_and_the_known_names(
    project: Project, command: str, kind: str, name: str, known: str
) -> None:
    """PIPE-086, PIPE-092, PIPE-099"""
    configured(project, TINY + "[leases.fast]\nttl_ms = 5000\nheartbeat_ms = 5000\n[backoffs.slow]\ndelays_ms = [1]\n")
    file = burning(project, BURNING.replace("quota: tiny", f"{kind}: {name}"))
    result = project(command, file)
    assert result.code == 2
    said = result.out + result.err
    assert f"{file}:5:" in said
    assert f"step 'burn': {kind} '{name}' is not configured" in said
    assert f"known: {known}" in said
    assert project.json("list", "--jobs") == []


def test_a_misspelt_key_is_told_with_the_one_that_is_meant(project: Project) -> None:
    result = project("validate", burning(project, BURNING.replace("quota:", "quotta:")))
    assert result.code == 2
    assert "did you mean 'quota'?" in result.out


def test_a_name_that_no_policy_can_have_is_refused_without_a_home(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETENT_HOME", str(project.directory / "none"))
    assert project("validate", burning(project)).code == 0  # There is nothing to compare the name with.
    result = project("validate", burning(project, BURNING.replace("tiny", "'two words'")))
    assert "quota cannot be 'two words'" in result.out


def test_an_ordered_run_is_told_where_its_quota_belongs(project: Project) -> None:
    contract = 'name: m\nsteps:\n  - id: m\n    run: {map: {items: [1], compute: "burn:burn", commit: "jsonl:out"}}\n    quota: tiny\n'
    result = project("validate", burning(project, contract))
    assert result.code == 2
    assert "[tenants.local]" in result.out


def test_a_quota_that_changes_while_jobs_go_by_it_does_not_lock_the_home(project: Project) -> None:
    """PIPE-099, PIPE-100: a live job keeps the policy that it was submitted under, a new one gets the new policy."""
    configured(project, TINY + "[backoffs.later]\ndelays_ms = [3600000]\n")
    contract = (
        "name: waits\nsteps:\n  - id: wait\n    run: {python: 'tasks:wait'}\n    quota: tiny\n    backoff: later\n"
    )
    terminal = project.terminal("run", project.write("waits.yaml", contract))
    project.wait_running()
    terminal.kill()
    settings = project.home.path / "config.toml"
    settings.write_text(
        settings.read_text().replace(TINY, "\n[quotas.tiny]\ncpu_time_budget_ms = 9000\n").replace("later", "sooner")
    )
    project.write("go", "")
    assert project("run", project.write("waits.yaml", contract.replace("later", "sooner")), "-w", "1").code == 0


USED = """
import pathlib, subprocess, sys

def write(size):
    pathlib.Path("written").write_bytes(b"x" * size)

def hold(size):
    return len(bytearray(size))

def hold_below(size):
    subprocess.run([sys.executable, "-c", f"bytearray({size})"], check=True)
"""


def step(call: str, quota: str | None = None) -> str:
    """A contract of one step that uses so much."""
    name, _, size = call.partition(" ")
    text = f"name: used\nsteps:\n  - id: use\n    run: {{python: 'used:{name}', with: {{size: {size}}}}}\n"
    return text if quota is None else text + f"    quota: {quota}\n"


@pytest.mark.parametrize(
    ("call", "budget", "code"),
    [
        ("write 2000000", "io_bytes_budget = 1500000", "QUOTA_IO_BYTES"),
        ("hold 250000000", "memory_bytes_budget = 200000000", "QUOTA_MEMORY_BYTES"),
        ("hold_below 250000000", "memory_bytes_budget = 200000000", "QUOTA_MEMORY_BYTES"),
    ],
)
def test_every_budget_holds_for_a_plain_process_and_its_children(
    project: Project, call: str, budget: str, code: str
) -> None:
    """PIPE-098, PIPE-103, PIPE-106"""
    project.write("used.py", USED)
    configured(project, f"\n[quotas.tight]\n{budget}\n")
    project.run(project.write("used.yaml", step(call, "tight")), code=1)
    job = job_of(project, "use")
    assert (job["state"], job["reason_code"]) == ("failed", code)
    assert job["quota"]["verdict"] == code


def test_the_ledger_adds_up_the_attempts_and_keeps_the_largest_peak(project: Project) -> None:
    """PIPE-097, PIPE-098: two attempts write 300 KB each; nothing stays allocated."""
    project.write(
        "used.py",
        "import pathlib\n\ndef write(size):\n    pathlib.Path('written').write_bytes(b'x' * size)\n"
        "    if not pathlib.Path('again').exists():\n        pathlib.Path('again').touch()\n        raise OSError('again')\n",
    )
    configured(project, "\n[backoffs.now]\ndelays_ms = [0]\n")
    project.run(project.write("used.yaml", step("write 300000") + "    retry: 1\n    backoff: now\n"))
    job = job_of(project, "use")
    assert job["attempts"] == 2
    assert 600_000 <= job["usage"]["io_bytes_written"] < 700_000
    assert job["usage"]["bytes_allocated"] == 0 < job["usage"]["peak_bytes"]


def test_what_is_not_measured_is_not_shown_as_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """PIPE-097: without a GPU its time is unknown, not 0."""
    monkeypatch.setenv("PATH", "/bin")
    project.write("used.py", USED)
    project.run(project.write("used.yaml", step("write 1")))
    job = job_of(project, "use")
    assert job["usage"]["gpu_time_ms"] is None
    assert "GPU not measured" in " ".join(project("show", job["job_id"]).out.split())


ENDLESS = {
    "cpu": "    while True:\n        pass\n",
    "memory": "    held = b'x' * 400_000_000\n    while True:\n        pass\n",
    "io": "    while True:\n        pathlib.Path('/dev/null').write_bytes(b'x' * 1_000_000)\n",
    "below": "    subprocess.run([sys.executable, '-c', 'while True: pass'])\n",
}


@pytest.mark.parametrize(
    ("kind", "budget", "code"),
    [
        ("cpu", "cpu_time_budget_ms = 100", "QUOTA_CPU_TIME"),
        ("below", "cpu_time_budget_ms = 100", "QUOTA_CPU_TIME"),
        ("memory", "memory_bytes_budget = 300000000", "QUOTA_MEMORY_BYTES"),
        ("io", "io_bytes_budget = 50000000", "QUOTA_IO_BYTES"),
    ],
)
def test_a_task_that_never_ends_is_ended_by_its_quota(project: Project, kind: str, budget: str, code: str) -> None:
    """PIPE-101, PIPE-103, PIPE-106: it is stopped while it runs, with what it started."""
    project.write("endless.py", f"import pathlib, subprocess, sys\n\ndef go():\n{ENDLESS[kind]}")
    configured(project, f"\n[quotas.tight]\n{budget}\n")
    contract = "name: endless\nsteps:\n  - id: go\n    run: {python: 'endless:go'}\n    quota: tight\n"
    project.run(project.write("endless.yaml", contract), code=1)
    job = job_of(project, "go")
    assert (job["state"], job["reason_code"], job["quota"]["verdict"]) == ("failed", code, code)


SANDBOXED = """\
name: guest
steps:
  - id: cell
    quota: tight
    run:
      code: |
        def main():
            {body}
"""


@needs_sandbox
@pytest.mark.parametrize(
    ("body", "budget", "code"),
    [
        ("while True: pass", "cpu_time_budget_ms = 1", "QUOTA_CPU_TIME"),
        ("return len(bytearray(300_000_000))", "memory_bytes_budget = 100000000", "QUOTA_MEMORY_BYTES"),
        ("return len(open('/dev/zero', 'rb').read(9_000_000))", "io_bytes_budget = 1000000", "QUOTA_IO_BYTES"),
    ],
)
def test_a_budget_ends_a_step_in_the_sandbox(project: Project, body: str, budget: str, code: str) -> None:
    """PIPE-101, PIPE-103, PIPE-106"""
    configured(project, f"\n[quotas.tight]\n{budget}\n")
    project.run(project.write("guest.yaml", SANDBOXED.format(body=body)), code=1)
    job = job_of(project, "cell")
    assert (job["state"], job["reason_code"]) == ("failed", code)
    assert job["quota"]["verdict"] == code


@needs_sandbox
def test_a_workspace_has_a_quota_for_its_platform_jobs(project: Project) -> None:
    """PIPE-099, PIPE-103, X-032: the workspace of a payload is its tenant; another workspace is not limited."""
    configured(project, TINY + "[tenants.team-a]\nquota = 'tiny'\n")
    burn = "def main():\n    return sum(number * number for number in range(3_000_000)) > 0\n"
    payload = project.write("payload.json", json.dumps(draft(execute(burn), workspace_id="team-a")))
    assert project("submit", payload, "--wait").code == 1
    (job,) = project.json("list", "--jobs")
    shown = project.json("show", job["job_id"])
    assert (shown["reason_code"], shown["quota"]["by"]) == ("QUOTA_CPU_TIME", "by [tenants.team-a]")
    payload = project.write("payload.json", json.dumps(draft(execute(burn), workspace_id="team-b")))
    assert project("submit", payload, "--wait").code == 0


def test_a_quota_that_allows_it_retries_by_the_named_backoff_and_then_cancels(project: Project) -> None:
    """PIPE-090, PIPE-093, PIPE-104: one more attempt would start over its budget, so it is cancelled before."""
    configured(project, TINY + 'evaluation_rule_id = "LE_ALL_RETRY_v1"\n[backoffs.soon]\ndelays_ms = [3]\n')
    contract = BURNING + "    backoff: soon\n    retry: 2\n"
    project.run(burning(project, contract), code=1)
    job = job_of(project, "burn")
    assert (job["state"], job["reason_code"], job["attempts"]) == ("cancelled", "QUOTA_CPU_TIME", 1)
    moves = [record for record in job["records"] if record["kind"] == "transition"]
    assert [move["to_state"] for move in moves] == ["RUNNING", "RETRYING", "QUEUED", "RUNNING", "CANCELED"]
    assert moves[2]["tick"] - moves[1]["tick"] >= 3


GPU = """#!/bin/sh
# As the program of the driver does it: a header, then a line for every process on the GPU, again each second.
echo '# gpu         pid   type     sm    mem    enc    dec    command'
echo '# Idx           #    C/G      %      %      %      %    name'
while :; do
    for file in /proc/[0-9]*; do
        if tr '\\0' '\\n' < "$file/environ" 2>/dev/null | grep -q '^DETENT_WORKER='; then
            echo "    0     ${file#/proc/}     C     60      1      -      -    python"
        fi
    done
    echo "    0          -     -      -      -      -      -    -"
    sleep 0.05
done
"""


def test_gpu_time_is_counted_where_nvidia_smi_tells_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """PIPE-097, PIPE-103: 60 percent of each second, until the budget is spent."""
    path = project.directory / "bin"
    path.mkdir()
    program = path / "nvidia-smi"
    program.write_text(GPU)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
    project.write("endless.py", "import time\n\ndef go():\n    while True:\n        time.sleep(1)\n")
    configured(project, "\n[quotas.tight]\ngpu_time_budget_ms = 2000\n")
    contract = "name: endless\nsteps:\n  - id: go\n    run: {python: 'endless:go'}\n    quota: tight\n"
    project.run(project.write("endless.yaml", contract), code=1)
    job = job_of(project, "go")
    assert job["reason_code"] == "QUOTA_GPU_TIME"
    assert job["usage"]["gpu_time_ms"] > 2000
    assert job["usage"]["gpu_time_ms"] % 600 == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("[backoffs.slow]\ndelays_ms = []\n", "backoffs.slow: delays_ms must be a list with at least one delay"),
        ("[leases.fast]\nttl_ms = 0\nheartbeat_ms = 1\n", "leases.fast: lease_ttl_ticks must be at least 1"),
        ("[quotas.tiny]\ncpu_budget_ms = 1\n", "quotas.tiny: has no key 'cpu_budget_ms'; known: gpu_time_budget_ms"),
        ("[tenants.local]\nquota = 'tiny'\n", "tenants.local: quota 'tiny' is not configured: known: default"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_with_its_file_and_key(project: Project, settings: str, said: str) -> None:
    """PIPE-086, PIPE-092, PIPE-095, PIPE-099, X-041"""
    configured(project, "\n" + settings)
    project.checked = False
    result = project("run", burning(project))
    assert result.code == 2
    assert f"{project.home.path}/config.toml: {said}" in " ".join(result.err.split())
