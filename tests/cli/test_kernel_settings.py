"""What the settings of a home make of the kernel, and what it does when it is damaged: refuse, and change nothing."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.cli.conftest import Cli
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

QUICK = 'name: quick\nsteps: [{id: one, run: {python: "tasks:numbers", with: {count: 2}}}]\nresult: {$from: one}\n'


def append(project: Project, text: str) -> None:
    """Add lines to the home's settings."""
    path = project.home.path / "config.toml"
    path.write_text(f"{path.read_text()}\n{text}\n")


def header(project: Project) -> dict[str, Any]:
    """The first line of the newest run's trace."""
    line: dict[str, Any] = json.loads(project("trace", project.newest()).out.splitlines()[0])
    return line


def ledger_bytes(cli: Cli) -> list[tuple[Any, ...]]:
    """Every record of the home, as it is stored."""
    database = apsw.Connection(str(cli.played.home.ledger), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return database.execute("SELECT * FROM records ORDER BY 1, 2").fetchall()
    finally:
        database.close()


@pytest.mark.door("setting [kernel] seed")
@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_a_trace_names_the_six_things_that_a_replay_needs(project: Project, seed: int) -> None:
    """PIPE-011, PIPE-013, PIPE-014: seed, family of random numbers, and the four policies, directly or by hash."""
    append(project, f"[kernel]\nseed = {seed}")
    project.run(project.write("quick.yaml", QUICK))
    found = header(project)
    assert (found["seed"], found["prng_family"]) == (seed, "Philox4x32-10")
    assert found["numeric_policy_id"] == "numeric/uint64-binary64-abort/v1"
    assert found["ordering_policy_id"] == "ordering/job-id-transition-seq/v1"
    assert found["parallel_policy_id"] == "parallel/priority-then-fifo/v1"
    assert found["environment_policy_hash"].startswith("sha256:")


@pytest.mark.door("setting [kernel] seed")
@pytest.mark.parametrize("seed", ["-1", "1.5", "true", '"7"', "18446744073709551616"])
def test_a_seed_outside_64_bits_is_refused(project: Project, seed: str) -> None:
    """PIPE-013"""
    append(project, f"[kernel]\nseed = {seed}")
    result = project("run", project.write("quick.yaml", QUICK))
    assert result.code == 2
    assert "seed" in result.err
    assert project.json("list") == []


@pytest.mark.door("setting [kernel] runtime_class")
def test_the_runtime_class_is_part_of_the_environment_that_is_hashed(project: Project) -> None:
    """PIPE-031"""
    project.run(project.write("quick.yaml", QUICK))
    before = header(project)
    append(project, '[kernel]\nruntime_class = "GPU-enabled"')
    project.run("quick.yaml", "--force")
    after = header(project)
    assert after["environment_policy_hash"] != before["environment_policy_hash"]
    assert after["replay_token"] != before["replay_token"]


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("[leases.huge]", "ttl_ms = 18446744073709551616\nheartbeat_ms = 1"),
        ("[leases.back]", "ttl_ms = -1\nheartbeat_ms = 1"),
        ("[quotas.huge]", "cpu_time_budget_ms = 18446744073709551616"),
        ("[quotas.back]", "cpu_time_budget_ms = -1"),
        ("[quotas.not_a_number]", "cpu_time_budget_ms = nan"),
        ("[quotas.endless]", "cpu_time_budget_ms = inf"),
    ],
)
def test_a_number_that_does_not_fit_is_refused_and_never_clamped(project: Project, section: str, line: str) -> None:
    """PIPE-018, PIPE-023, PIPE-025: by name, before anything runs."""
    append(project, f"{section}\n{line}")
    project.checked = False  # With such settings nothing opens the home.
    result = project("run", project.write("quick.yaml", QUICK))
    assert result.code == 2
    assert section.strip("[]").partition(".")[2] in result.err
    assert project.json("list") == []


def test_without_its_trust_configuration_a_home_takes_no_job(cli: Cli, tmp_path: Path) -> None:
    """PIPE-108: trust is loaded before the log is touched."""
    before = ledger_bytes(cli)
    path = cli.played.home.path / "config.toml"
    path.write_text(path.read_text().replace(cli.played.root, f"sha256:{'0' * 64}"))
    (tmp_path / "quick.yaml").write_text('name: quick\nsteps: [{id: one, run: {shell: "true"}}]\n')
    result = cli("run", "quick.yaml", "-w", "1")
    assert result.code not in (0, 1)
    assert ledger_bytes(cli) == before


def test_a_damaged_ledger_is_refused_and_not_repaired(cli: Cli, tmp_path: Path) -> None:
    """PIPE-033, PIPE-109, X-062: the log is verified from its end before anything is added to it."""
    (tmp_path / "quick.yaml").write_text('name: quick\nsteps: [{id: one, run: {shell: "true"}}]\n')

    def change(database: Any) -> None:
        ((rowid, body),) = database.execute("SELECT rowid, body FROM batches ORDER BY rowid DESC LIMIT 1").fetchall()
        database.execute("UPDATE batches SET body = ? WHERE rowid = ?", (bytes([*body[:-1], body[-1] ^ 1]), rowid))

    cli.played.edit(change)
    before = ledger_bytes(cli)
    result = cli("run", "quick.yaml", "-w", "1")
    assert result.code not in (0, 1)
    assert "detent verify" in result.err
    assert ledger_bytes(cli) == before
    assert cli("verify").code == 1


def test_diagnostics_of_the_scheduler_decide_nothing(cli: Cli) -> None:
    """PIPE-046: without the log of refused requests the same commands are decided the same, byte for byte."""
    before = cli.json("replay")
    cli.played.edit(lambda database: database.execute("DELETE FROM refusals"))
    after = cli.json("replay")
    assert (after["ok"], after["transition_log_hash"]) == (True, before["transition_log_hash"])
    assert cli.json("verify")["ok"]


def test_the_settings_of_the_queue_are_checked_before_trust_is_loaded(cli: Cli, tmp_path: Path) -> None:
    """PIPE-107: of two faults, the policies are named."""
    path = cli.played.home.path / "config.toml"
    text = path.read_text().replace(cli.played.root, f"sha256:{'0' * 64}")
    path.write_text(text.replace('admission_policy = "reject"', 'admission_policy = "drop-all"'))
    (tmp_path / "quick.yaml").write_text('name: quick\nsteps: [{id: one, run: {shell: "true"}}]\n')
    result = cli("run", "quick.yaml", "-w", "1")
    assert result.code == 2
    assert "admission_policy" in result.err


def test_a_command_beside_an_owner_writes_through_it(cli: Cli) -> None:
    """PIPE-062: no second epoch begins, and the owner's key signs what the command asked for."""
    with cli.played.session():
        before = cli.json("verify")["counts"]
        assert cli("cancel", "waiting").code == 0
        assert cli.json("show", "waiting")["state"] == "cancelled"
        after = cli.json("verify")["counts"]
    assert after["owner_epoch"] == before["owner_epoch"]
    assert after["transitions"] == before["transitions"] + 2


def test_ticks_are_milliseconds_and_never_go_back(cli: Cli) -> None:
    """X-009: each record has its tick and the moment that it names, and the replay uses the recorded ones."""
    positions: list[tuple[int, int]] = []
    for job_id in ("done", "slow", "dropped"):
        for record in cli.json("show", job_id)["records"]:
            moment = datetime.fromisoformat(record["at"])
            assert round(moment.timestamp() * 1000) == record["tick"]
            positions.append((record["position"], record["tick"]))
    ticks = [tick for _, tick in sorted(positions)]
    assert ticks == sorted(ticks)
    assert cli.json("replay")["ok"]


def test_two_runs_of_the_same_work_have_two_hashes_and_a_replay_has_the_recorded_one(project: Project) -> None:
    """X-026, X-169: ids and ticks are in the hash, so it says that decisions are the same, not that runs are alike."""
    project.write("quick.yaml", QUICK)
    hashes = []
    for _ in range(2):
        run_id = project.run("quick.yaml", "--force")["run_id"]
        *_, end = project("trace", run_id).out.splitlines()
        hashes.append(json.loads(end)["transition_log_hash"])
    assert hashes[0] != hashes[1]
    assert project.json("replay")["transition_log_hash"] == project.json("verify")["transition_log_hash"]


def test_a_worker_is_given_no_key(project: Project) -> None:
    """X-028: neither in its environment nor on its command line."""
    project.write("look.py", "import os, sys\ndef look():\n    return [*os.environ.values(), *sys.orig_argv]\n")
    project.write("look.yaml", 'name: look\nsteps: [{id: a, run: {python: "look:look"}}]\nresult: {$from: a}\n')
    said = "\n".join(project.run("look.yaml")["result"])
    secrets = [path.read_bytes() for path in (project.home.path / "keys").iterdir() if path.is_file()]
    assert secrets
    for secret in secrets:
        assert secret.hex() not in said
        assert secret.decode("ascii", "replace").strip() not in said
