"""`detent export`."""

from __future__ import annotations

from pathlib import Path

import detent
from tests.cli.conftest import Cli


def test_the_document_has_what_the_receiver_needs(cli: Cli, tmp_path: Path) -> None:
    """X-178"""
    document = cli.json("export", "run-1", "--output", "run.detent")
    assert document["file"] == str(tmp_path / "run.detent")
    assert document["root"] == cli.played.root
    assert (document["scope"], document["run_id"]) == ("run", "run-1")
    assert document["size_bytes"] == (tmp_path / "run.detent").stat().st_size
    assert detent.verify(document["file"], document["root"]).ok
    note = document["tree_heads"][0]["note"]
    assert note.startswith(f"{document['origin']}/p0\n{document['tree_heads'][0]['size']}\n")


def test_the_page_says_how_to_verify_it(cli: Cli) -> None:
    out = cli("export", "--output", "all.detent", "--content").out
    assert "whole ledger" in out
    assert " 19 pieces of content;" in out
    assert f"detent verify all.detent --root {cli.played.root}" in out


def test_what_was_left_out_is_said(cli: Cli) -> None:
    cli("erase", "--job", "done")
    out = cli("export", "run-1", "--output", "run.detent", "--content").out
    assert "left out: 2 pieces of content, erased" in out
    assert "left out: 1 piece of content, not stored here" in out


def test_a_run_is_named_as_everywhere_else(cli: Cli) -> None:
    """By the beginning of its id, or by its workflow's name; a job is no run, and says whose it is."""
    named = {run["name"]: run["run_id"] for run in reversed(cli.json("list"))}
    for name, run_id in named.items():
        assert cli.json("export", name, "--output", "run.detent")["run_id"] == run_id
    result = cli("export", "run-", "--output", "run.detent")
    assert (result.code, "more than one id begins with 'run-'" in result.err) == (2, True)
    result = cli("export", "done", "--output", "run.detent")
    assert (result.code, "'done' is not a run" in result.err, "it belongs to run run-1" in result.err) == (
        2,
        True,
        True,
    )


def test_a_run_or_a_place_that_is_not_there_is_refused(cli: Cli) -> None:
    result = cli("export", "nix", "--output", "run.detent")
    assert (result.code, "there is no run 'nix'" in result.err) == (2, True)
    result = cli("export", "--output", "no/where.detent")
    assert (result.code, "cannot be written" in result.err) == (4, True)
