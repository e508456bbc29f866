"""`detent replay`."""

from __future__ import annotations

from pathlib import Path

from detent.kernel import Finish
from tests.cli.conftest import Cli
from tests.homes import Hand


def test_a_home_and_its_bundle_are_decided_the_same_again(cli: Cli) -> None:
    """X-165"""
    cli.json("export", "--output", "all.detent")
    at_home, bundle = cli.json("replay"), cli.json("replay", "all.detent")
    assert at_home["ok"]
    assert bundle["ok"]
    assert at_home["transition_log_hash"] == bundle["transition_log_hash"] == cli.json("verify")["transition_log_hash"]
    assert "every byte the same" in cli("replay").out


def test_stale_and_contradicting_results_are_counted(cli: Cli) -> None:
    """PIPE-007: a clean history has none; each one that was refused adds one, and the history still replays."""
    assert cli.json("replay")["ambiguous_transitions"] == 0
    assert "refused" not in cli("replay").out
    with cli.played.session() as session:
        hand = Hand(cli.played.home, session)
        grant = hand.claim()
        hand.succeed(grant)
        for number, reason in enumerate(("CRASHED", "LATE"), 1):
            (answer,) = session.ask([Finish(0, grant.job_id, grant.lease_id, ok=False, reason_code=reason)])
            assert answer.refusal is not None
            assert answer.refusal.code == "LEASE_INVALID"
            assert cli.json("replay")["ambiguous_transitions"] == number
    assert "2 requests to move a job" in cli("replay").out
    assert cli.json("verify")["ok"]
    cli.json("export", "--output", "all.detent")
    assert cli.json("replay", "all.detent")["ambiguous_transitions"] == 2
    assert "LEASE_INVALID" in cli("explain", grant.job_id).out


def test_a_difference_names_its_place(cli: Cli) -> None:
    cli.played.edit(lambda database: database.execute("UPDATE records SET evidence = x'00' WHERE record_key = 9"))
    result = cli("replay")
    assert result.code == 1
    assert result.out.startswith("NOT THE SAME")
    assert "record 9: the record's evidence differs" in result.out


def test_many_differences_are_cut_on_the_page_and_counted(cli: Cli) -> None:
    cli.played.edit(lambda database: database.execute("UPDATE records SET body = x'a0'"))
    cli.played.edit(lambda database: database.execute("UPDATE jobs SET body = x'80'"))
    result = cli("replay", "-o", "json")
    assert result.code == 1
    assert result.document["differences_total"] >= 25


def test_what_cannot_be_replayed_is_said(cli: Cli, tmp_path: Path) -> None:
    cli.json("export", "run-1", "--output", "run.detent")
    result = cli("replay", "run.detent")
    assert result.code == 1
    assert "the bundle of one run" in result.out
    assert result.out.startswith("NOT REPLAYED")
    assert cli("replay", "nix.detent").code == 2


def test_of_a_file_that_is_no_bundle_at_all_only_that_is_said(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("")
    for data in (b"nothing", b"Yet another text, which begins like an item of 25,972 bytes", b"PK\x03\x04"):
        (tmp_path / "no.detent").write_bytes(data)
        result = cli("replay", "no.detent")
        assert result.code == 1
        said = (
            "the file is not one that `detent export` wrote: another file was meant: name a bundle, or no file at all"
        )
        (head, line) = result.out.splitlines()
        assert (head, line.startswith(f"  - {said}")) == ("NOT REPLAYED  no.detent", True)
        (note,) = cli("replay", "no.detent", "-o", "json").document["notes"]
        assert note.startswith(said)
        result = cli("replay", "no.detent", "--policy", "policy.toml")
        assert result.code == 2
        assert "no.detent cannot be read: it does not begin as a bundle does" in result.err


def test_a_bundle_that_was_cut_is_still_called_one(cli: Cli, tmp_path: Path) -> None:
    cli.json("export", "--output", "all.detent")
    path = tmp_path / "all.detent"
    path.write_bytes(path.read_bytes()[:20])
    assert "the file cannot be read: " in cli("replay", "all.detent").out


POLICY = '[queue]\ncapacity_total = 2\nadmission_policy = "drop-lru"\n'


def test_another_policy_is_shown_beside_the_recorded_one(cli: Cli, tmp_path: Path) -> None:
    """Five jobs came at one tick: of two places the last two keep theirs, and one of those is cancelled."""
    (tmp_path / "policy.toml").write_text(POLICY)
    shown = cli("replay", "--policy", "policy.toml")
    assert shown.code == 0
    lines = {line.split("  ")[0].strip(): line.split()[-4:] for line in shown.out.splitlines() if line.strip()}
    assert lines["evicted"] == ["0", "0", "3", "+3"]
    assert lines["jobs"] == ["6", "6", "6", "="]
    assert lines["worker-a"] == ["worker-a", "6", "3", "-3"]
    assert "capacity_total    2560 -> 2" in shown.out
    assert "admission_policy  reject -> drop-lru" in shown.out
    assert "is not tried again" in shown.out


def test_a_comparison_is_data_of_a_home_and_of_its_bundle(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    cli.json("export", "--output", "all.detent")
    at_home = cli.json("replay", "--policy", "policy.toml")
    bundle = cli.json("replay", "all.detent", "--policy", "policy.toml")
    assert (at_home.pop("file"), bundle.pop("file")) == (str(tmp_path / ".detent" / "ledger.db"), "all.detent")
    assert at_home == bundle
    assert (at_home["before"]["evicted"], at_home["after"]["evicted"], at_home["same"]) == (0, 3, False)
    assert at_home["placements_changed"] == [{"replica_id": "worker-a", "before": 6, "after": 3}]
    assert at_home["jobs_turned"] == [
        {"before": "failed", "after": "evicted", "jobs": 1},
        {"before": "succeeded", "after": "evicted", "jobs": 2},
    ]


def test_the_recorded_policy_itself_makes_no_difference(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("")
    result = cli("replay", "--policy", "policy.toml")
    assert result.code == 0
    assert result.out.startswith("no difference")
    assert "the policy is the one the ledger ended with" in result.out


def test_a_policy_or_bundle_that_cannot_be_used_is_said(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("[queue]\nsize = 3\n")
    result = cli("replay", "--policy", "policy.toml")
    assert result.code == 2
    assert "policy.toml: unknown key queue.size" in result.err
    assert "[queue] and [scheduling]" in result.err
    (tmp_path / "policy.toml").write_text("")
    cli.json("export", "run-1", "--output", "run.detent")
    result = cli("replay", "run.detent", "--policy", "policy.toml")
    assert result.code == 2
    assert "bundle of one run; commands are not in it" in result.err
    assert cli("replay", "--policy", "nix.toml").code == 2
