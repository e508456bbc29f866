"""`detent replay`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli


def test_a_home_and_its_bundle_are_decided_the_same_again(cli: Cli) -> None:
    """X-165"""
    cli.json("export", "--output", "all.detent")
    at_home, bundle = cli.json("replay"), cli.json("replay", "all.detent")
    assert at_home["ok"]
    assert bundle["ok"]
    assert at_home["transition_log_hash"] == bundle["transition_log_hash"] == cli.json("verify")["transition_log_hash"]
    assert "every byte the same" in cli("replay").out


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
    (tmp_path / "no.detent").write_bytes(b"nothing")
    assert cli("replay", "no.detent").code == 1
    assert cli("replay", "nix.detent").code == 2
