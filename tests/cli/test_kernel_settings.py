"""What the settings of a home make of the kernel, and what it does when it is damaged: refuse, and change nothing."""

from __future__ import annotations

import json
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
