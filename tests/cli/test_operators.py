"""A home that operators acted on and workers of other machines worked for, at the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.golden.archives import put_in_place
from tests.golden.operators import ACTIONS, ARCHIVE, RUN


@pytest.fixture
def kept(cli: Cli) -> Cli:
    put_in_place(ARCHIVE, cli.played.home.path)
    return cli


def test_verify_says_how_many_actions_there_are_who_signed_them_and_which_workers_reported(kept: Cli) -> None:
    done = kept("verify")
    assert done.code == 0
    said = f"{ACTIONS} operator actions; 0 signed by the operators themselves, the rest asserted by the server."
    assert said in " ".join(done.out.split())
    document = kept.json("verify")
    assert (document["counts"]["operated"], document["counts"]["worker_enrolled"]) == (ACTIONS, 2)
    assert sorted(document["workers"].values()) == ["gpu-1", "gpu-2"]
    assert document["executors"].keys() == document["workers"].keys()
    assert any("1 by worker gpu-1" in sentence for sentence in document["proved"])
    assert any(
        "2 workers were enrolled" in sentence and "1 retired since" in sentence for sentence in document["proved"]
    )


def test_show_tells_what_operators_asked_for_about_a_job(kept: Cli) -> None:
    (action,) = kept.json("show", "unwanted")["operated"]
    assert (action["action"], action["outcome_code"], action["principal_id"]) == ("job.cancel", "OK", "p_ann")
    page = kept("show", "unwanted").out
    assert "operated: job.cancel" in page
    assert "OK, by p_ann (dtk_ann)" in page
    assert kept.json("show", "own")["operated"] == []
    raw = kept.json("show", "unwanted", "--raw")["records"][-1]
    assert (raw["kind"], raw["evidence"]["reason"]) == ("operated", "not needed")


def test_keys_shows_the_key_that_certifies_workers(kept: Cli) -> None:
    (key,) = [key for key in kept.json("keys")["keys"] if key["role"] == "enroll"]
    assert (key["state"], key["private_key"]) == ("active", "here")
    assert "certifies workers on other machines" in kept("keys", "show", key["key_id"]).out
    rotated = kept.json("keys", "rotate", "enroll")
    assert rotated["old_key_ids"] == [key["key_id"]]
    assert kept("verify").code == 0


def test_replay_trace_and_compare_take_a_ledger_with_the_new_records(kept: Cli, tmp_path: Path) -> None:
    assert kept.json("replay")["ok"]
    bundle, trace = tmp_path / "all.detent", tmp_path / "all.trace"
    kept.json("export", "--output", str(bundle))
    assert kept.json("replay", str(bundle))["ok"]
    assert kept("trace", "--all", "--output", str(trace)).code == 0
    assert kept("compare", str(bundle), str(trace)).code == 0


def test_the_bundle_of_a_run_carries_the_certificates_that_its_results_rest_on(kept: Cli, tmp_path: Path) -> None:
    bundle = tmp_path / "run.detent"
    root = kept.json("export", RUN, "--output", str(bundle))["root"]
    document = kept.json("verify", str(bundle), "--root", root)
    assert document["ok"]
    assert [*document["workers"].values()] == ["gpu-1"]
    assert (document["counts"]["worker_enrolled"], document["counts"]["worker_retired"]) == (1, 1)
