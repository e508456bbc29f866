"""A job is submitted to one ledger: its signed manifest names it, another ledger refuses it, and `verify` finds it there (X-197)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import detent
from detent.kernel import EndRun, Submit, VerifiedManifest
from detent.ledger import verify_manifest
from detent.ledger.schema import SubmittedManifest, read_submitted
from detent.owner.wiring import Parts
from tests.cli.conftest import Cli
from tests.golden.archives import BEFORE_ORIGIN, put_in_place
from tests.homes import OTHER_RUN, Hand

ELSEWHERE = "detent/elsewhere"
PIPELINE = "name: demo\nsteps:\n  - {id: one, run: {shell: 'echo hello'}}\n"


def codes(document: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in document["findings"]]


def named_origins(home: Path) -> dict[str, str | None]:
    """The ledger that each job on a ledger was signed for, in the order in which they were submitted."""
    found: dict[str, str | None] = {}
    with Parts().open_reader(home / "ledger.db") as reader:
        for row in reader.records_of_kind(0, "submitted"):
            signed = read_submitted(row.evidence or b"")
            assert isinstance(signed, SubmittedManifest)
            found[signed.job_id] = signed.fields.get("origin")
    return found


def test_a_job_planted_with_the_owners_key_is_found_in_the_home_and_in_bundles(cli: Cli) -> None:
    """X-197, PIPE-029: past admission, as only a holder of the transition key gets: the submitter's signature is good, for another ledger."""
    with cli.played.session() as session:
        hand = Hand(cli.played.home, session)
        digest, inline = hand.stage(b"a payload of another deployment")
        planted = hand.signed("planted", digest, origin=ELSEWHERE)
        assert session.owned is not None
        session.owned.owners[0].call([lambda tick: Submit(tick, planted, OTHER_RUN)], content=inline)
        for _ in range(2):
            hand.succeed(hand.claim())
        hand.ask(EndRun(0, OTHER_RUN, "completed"))
    result = cli("verify", "-o", "json")
    assert (result.code, codes(result.document)) == (1, ["MANIFEST_ORIGIN_WRONG"])
    (finding,) = result.document["findings"]
    assert finding["job_id"] == "planted"
    assert f"signed for the ledger '{ELSEWHERE}'" in finding["message"]
    assert "planted a job that its submitter signed for another deployment" in cli("verify").out.replace("\n    ", " ")
    for arguments in ((), (OTHER_RUN,)):
        cli.json("export", *arguments, "--output", "some.detent")
        result = cli("verify", "some.detent", "--root", cli.played.root, "-o", "json")
        assert (result.code, codes(result.document)) == (1, ["MANIFEST_ORIGIN_WRONG"])


def test_admission_refuses_a_manifest_for_another_ledger_from_its_own_process_and_over_the_socket(cli: Cli) -> None:
    """X-197, PIPE-029"""
    with cli.played.session() as owner, cli.played.session() as client:
        assert (owner.owns, client.owns) == (True, False)
        for session in (owner, client):
            hand = Hand(cli.played.home, session)
            foreign = Submit(0, hand.signed("foreign", bytes(32), origin=ELSEWHERE), OTHER_RUN)
            (answer,) = session.ask([foreign])
            assert answer.refusal is not None
            assert answer.refusal.code == "MANIFEST_ORIGIN_WRONG"
            assert f"job 'foreign': the manifest was signed for the ledger '{ELSEWHERE}'" in answer.refusal.message
            assert "sign it for this ledger, or submit it to the one it names" in answer.refusal.message
    assert "MANIFEST_ORIGIN_WRONG" in cli("explain", "foreign").out
    document = cli.json("verify")
    assert (document["counts"]["jobs"], document["counts"]["submitted_without_origin"]) == (6, 0)


def test_a_new_manifest_that_names_no_ledger_is_refused_and_found_where_it_was_planted(cli: Cli) -> None:
    """Otherwise whatever a submitter signed before manifests named their ledger could be planted in every new one."""
    with cli.played.session() as session:
        hand = Hand(cli.played.home, session)
        unnamed = hand.signed("unnamed", bytes(32), origin=None)
        (answer,) = session.ask([Submit(0, unnamed)])
        assert answer.refusal is not None
        assert answer.refusal.code == "MANIFEST_ORIGIN_MISSING"
        assert "sign it again with the ledger's origin" in answer.refusal.message
        old = replace(session.owned.owners[0]._kernel.config, rules=2)  # type: ignore[union-attr]
        session.owned.owners[0]._kernel.config = old  # type: ignore[union-attr]
        session.owned.owners[0].call([lambda tick: Submit(tick, unnamed)])  # type: ignore[union-attr]
    result = cli("verify", "-o", "json")
    assert (result.code, codes(result.document)) == (1, ["MANIFEST_ORIGIN_MISSING"])
    assert result.document["findings"][0]["job_id"] == "unnamed"


def test_the_same_manifest_again_gets_the_same_job(cli: Cli, before: Path) -> None:
    """PIPE-076: what a client of before signed, too, if it is on the ledger already."""
    with Parts().open_reader(before / "ledger.db") as reader:
        envelope = next(iter(reader.records_of_kind(0, "submitted"))).evidence
    with cli.played.session() as session:
        hand = Hand(cli.played.home, session)
        signed = verify_manifest(session.owned.trust, envelope or b"", 1)  # type: ignore[union-attr]
        assert isinstance(signed, VerifiedManifest)
        assert signed.manifest.origin is None
        answer = hand.ask(Submit(0, signed))
        assert answer.job is not None
        assert answer.job.state == "SUCCEEDED"
        new = hand.signed("new", bytes(32))
        first, second = (hand.ask(Submit(0, new)) for _ in range(2))
        assert first.job == second.job
    assert cli.json("verify")["counts"]["submitted_without_origin"] == 7


@pytest.fixture
def before(cli: Cli) -> Path:
    """A home that a version of before wrote, in place of the played one."""
    put_in_place(BEFORE_ORIGIN, cli.played.home.path)
    return cli.played.home.path


def test_a_home_of_before_verifies_and_the_report_says_how_many_jobs_name_no_ledger(cli: Cli, before: Path) -> None:
    document = cli.json("verify")
    assert (document["ok"], document["counts"]["submitted_without_origin"]) == (True, 7)
    said = " ".join(cli("verify").out.partition("not proved:")[2].split())
    assert "That 7 jobs were submitted to this ledger: a manifest that names no ledger" in said
    assert "The last of them: job kept in batch" in said
    assert cli.json("replay")["ok"]


def test_a_home_of_before_goes_on_and_its_new_jobs_name_it(cli: Cli, before: Path) -> None:
    Path("pipeline.yaml").write_text(PIPELINE)
    cli.json("run", "pipeline.yaml", "-w", "1")
    names = list(named_origins(before).values())
    assert (names[:7], names[7:]) == ([None] * 7, [cli.json("keys")["origin"]])
    document = cli.json("verify")
    assert (document["ok"], document["counts"]["submitted_without_origin"]) == (True, 7)
    assert "1 job was submitted to this ledger and to no other" in " ".join(document["proved"])
    assert cli.json("replay")["ok"]


def test_equal_work_of_before_is_reused_whatever_its_manifest_names(cli: Cli, tmp_path: Path) -> None:
    """The origin is no ingredient: a copy under another name takes the results of its original."""
    project, copy = tmp_path / "project", tmp_path / "copy"
    project.mkdir()
    (project / "tasks.py").write_text("def double(x):\n    return 2 * x\n")
    (project / "pipeline.yaml").write_text(
        "name: demo\nsteps:\n  - {id: one, run: {python: 'tasks:double', args: [21]}}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        assert cli("init").code == 0
        cli.json("run", "pipeline.yaml", "-w", "1")
        original = cli.json("keys")["origin"]
        shutil.copytree(project, copy)
        patch.chdir(copy)
        own = cli.json("copy")["origin"]
        cli.json("run", "pipeline.yaml", "-w", "1")
        assert list(named_origins(copy / ".detent").values()) == [original], "the second run ran nothing"
        cli.json("run", "pipeline.yaml", "-w", "1", "--force")
        assert list(named_origins(copy / ".detent").values()) == [original, own]
        document = cli.json("verify")
        assert (document["ok"], document["counts"]["submitted_without_origin"]) == (True, 0)
        assert cli.json("replay")["ok"]


def test_a_client_signs_for_the_ledger_that_its_home_pins(cli: Cli) -> None:
    """Over the socket of another process's owner, too: it reads the pinned chain of trust instead of asking the owner."""
    with cli.played.session() as owner, detent.Client(home=cli.played.home.path) as client:
        assert owner.owns
        client.submit(len, "abc")
    *_, last = named_origins(cli.played.home.path).values()
    assert last == cli.json("keys")["origin"]
