"""Bundles: whole, of one run, with content, and the ways in which writing one can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import detent
from detent.canon import decode, sha256
from detent.errors import HomeError, InvalidInput, RolledBack, StoreCorrupt, StoreUnavailable
from detent.inspect import export as export_module
from detent.inspect.export import Exported, export
from detent.kernel import EndRun, ReuseStep, StartRun
from detent.ledger.bundle import read_items
from detent.ledger.items import BatchItem, ContentItem, HeadItem, PartialItem, Readable
from detent.ledger.note import parse_head, parse_note
from detent.owner.state_directory import KeptHeads, state_directory
from detent.owner.wiring import Parts
from detent.runs.erase import erase_job
from tests.homes import OTHER_RUN, RUN, TENANT, Hand, Played, fresh


def exported(played: Played, target: Path, **options: object) -> Exported:
    return export(played.home, target, environment=played.environment, **options)  # type: ignore[arg-type]


def items(path: Path) -> list[Readable]:
    with path.open("rb") as file:
        return list(read_items(file))


def test_a_whole_ledger_verifies_with_its_root_and_with_nothing_else(tmp_path: Path) -> None:
    """X-165, X-166, X-178"""
    played = fresh(tmp_path)
    done = exported(played, tmp_path / "all.detent")
    report = detent.verify(done.path, played.root)
    assert (report.ok, report.scope, report.counts["jobs"]) == (True, "ledger", 6)
    assert (done.counts["batches"], done.counts["records"]) == (report.counts["batches"], report.counts["records"])
    unpinned = detent.verify(done.path)
    assert [finding.code for finding in unpinned.findings] == ["TRUST_UNPINNED"]


def test_a_run_is_proved_complete_and_nothing_of_other_runs_is_shown(tmp_path: Path) -> None:
    """X-166, X-167"""
    played = fresh(tmp_path)
    done = exported(played, tmp_path / "run.detent", run_id=RUN)
    report = detent.verify(done.path, played.root)
    assert (report.ok, report.scope, report.run_id, report.counts["jobs"]) == (True, "run", RUN, 5)
    assert any(f"Run {RUN} is complete" in sentence for sentence in report.proved)
    shown = [record.body for item in items(done.path) if isinstance(item, PartialItem) for record in item.records]
    assert not any(b"waiting" in body or b"run-2" in body for body in shown)
    kinds = {decode(body)["kind"] for body in shown}
    assert {"trust_changed", "owner_epoch"} <= kinds


def test_a_run_that_has_not_ended_cannot_be_proved_complete(tmp_path: Path) -> None:
    """X-167"""
    played = fresh(tmp_path)
    done = exported(played, tmp_path / "run.detent", run_id=OTHER_RUN)
    assert [finding.code for finding in detent.verify(done.path, played.root).findings] == ["RUN_NOT_ENDED"]


def test_a_run_that_reused_a_step_verifies_without_the_run_it_took_it_from(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    with played.session() as session:
        hand = Hand(played.home, session)
        hand.ask(StartRun(0, TENANT, "run-3", "third", bytes(32), bytes(32), bytes(32), "op-3"))
        hand.ask(ReuseStep(0, "run-3", "step", "done", bytes(32)))
        hand.ask(EndRun(0, "run-3", "completed"))
    done = exported(played, tmp_path / "run.detent", run_id="run-3")
    assert detent.verify(done.path, played.root).ok


@pytest.mark.parametrize("stored", ["size < 0", "size < (SELECT max(size) FROM tree_heads)"])
def test_batches_that_no_stored_tree_head_covers_get_a_fresh_one(tmp_path: Path, stored: str) -> None:
    played = fresh(tmp_path)
    played.edit(lambda database: database.execute(f"DELETE FROM tree_heads WHERE NOT ({stored})"))
    done = exported(played, tmp_path / "run.detent", run_id=RUN)
    (head,) = [item for item in items(done.path) if isinstance(item, HeadItem)]
    with Parts().open_reader(played.home.ledger) as reader:
        assert parse_head(parse_note(head.note).text).size == reader.head(0).size == done.heads[0].size
    assert detent.verify(done.path, played.root).ok


def test_a_ledger_older_than_a_kept_tree_head_gets_no_fresh_one(tmp_path: Path) -> None:
    """X-178"""
    played = fresh(tmp_path)
    keeper = KeptHeads(state_directory(played.environment), played.home.settings().origin)
    size, note = keeper.heads()[0]
    keeper.keep(0, size + 1, note)
    played.edit(lambda database: database.execute("DELETE FROM tree_heads"))
    with pytest.raises(RolledBack):
        exported(played, tmp_path / "all.detent")
    assert list(tmp_path.glob("*.detent*")) == [played.home.path]


def test_without_the_log_key_a_whole_ledger_is_exported_and_a_run_is_not(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    played.edit(lambda database: database.execute("DELETE FROM tree_heads"))
    for path in (played.home.path / "keys").glob("log-*.key"):
        path.unlink()
    done = exported(played, tmp_path / "all.detent")
    assert "tree_heads" not in done.counts
    assert detent.verify(done.path, played.root).ok
    with pytest.raises(HomeError, match="log key"):
        exported(played, tmp_path / "run.detent", run_id=RUN)


def test_content_goes_along_when_it_is_asked_for(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    erase_job(played.home, "done", environment=played.environment)
    done = exported(played, tmp_path / "run.detent", run_id=RUN, with_content=True)
    contents = [item for item in items(done.path) if isinstance(item, ContentItem)]
    # Payloads of five jobs and results of three; payload and result of one of them were erased.
    assert len(contents) == done.counts["content"] == 6
    assert all(sha256(item.data) == item.digest for item in contents)
    assert done.counts["content_erased"] == 2
    report = detent.verify(done.path, played.root)
    assert report.ok
    assert any("2 contents were erased on purpose" in sentence for sentence in report.proved)
    assert "content" not in exported(played, tmp_path / "bare.detent", run_id=RUN).counts


def test_content_too_large_for_an_item_is_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = fresh(tmp_path)
    monkeypatch.setattr(export_module, "CONTENT_BYTES_MAX", 20_000)
    done = exported(played, tmp_path / "all.detent", with_content=True)
    assert done.counts["content_too_large"] == 2
    # A payload, which a bundle may lack, and a report, which it may lack only together with all others.
    assert detent.verify(done.path, played.root).codes == {"RESULT_MISSING": 1}


def test_damaged_content_is_left_out_and_counted(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    path = next(path for path in (played.home.path / "content").rglob("*") if path.is_file())
    path.write_bytes(b"other")
    assert exported(played, tmp_path / "all.detent", with_content=True).counts["content_damaged"] == 1


def test_an_export_sees_one_moment_while_its_owner_goes_on(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    with played.session() as session:
        hand = Hand(played.home, session)
        with Parts().open_snapshot(played.home.ledger) as snapshot:
            before = snapshot.head(0).size
            hand.submit("more")
            seen = sum(1 for item in export_module.ledger_items(snapshot) if isinstance(item, BatchItem))
        assert seen == before
        done = exported(played, tmp_path / "all.detent")
    assert done.counts["batches"] == before + 1
    assert detent.verify(done.path, played.root).ok


def test_a_run_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no run 'nix'") as caught:
        exported(fresh(tmp_path), tmp_path / "run.detent", run_id="nix")
    assert caught.value.code == "UNKNOWN_RUN"


def test_a_bundle_is_not_written_into_the_home(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    before = played.home.ledger_file.read_bytes()
    with pytest.raises(InvalidInput, match="inside the home"):
        exported(played, played.home.ledger_file)
    assert played.home.ledger_file.read_bytes() == before


def test_a_file_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    with pytest.raises(StoreUnavailable, match=r"nowhere/all\.detent cannot be written"):
        exported(played, tmp_path / "nowhere" / "all.detent")
    (tmp_path / "taken.detent").mkdir()
    with pytest.raises(StoreUnavailable, match=r"taken\.detent cannot be written"):
        exported(played, tmp_path / "taken.detent")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".detent", "state", "taken.detent"]


def test_a_bundle_that_is_there_is_replaced_at_once(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    target = tmp_path / "all.detent"
    target.write_bytes(b"older")
    exported(played, target)
    assert detent.verify(target, played.root).ok


@pytest.mark.parametrize("transition_seq", [0, 1])
def test_a_run_whose_batch_has_lost_a_record_is_not_exported(tmp_path: Path, transition_seq: int) -> None:
    """The cancel batch of a queued job has two transitions; without one of them the other cannot be proved."""
    played = fresh(tmp_path)
    statement = (
        "DELETE FROM records WHERE transition_seq = ? AND job_no = (SELECT job_no FROM job_names WHERE job_id = ?)"
    )
    played.edit(lambda database: database.execute(statement, (transition_seq, "dropped")))
    with pytest.raises(StoreCorrupt, match="is not whole"):
        exported(played, tmp_path / "run.detent", run_id=RUN)


def test_several_partitions_are_exported_and_verified(tmp_path: Path) -> None:
    """PIPE-061"""
    from detent.owner.home import make_home
    from detent.owner.wiring import begin_ledger

    home = make_home(tmp_path / ".detent", begin_ledger, partitions=3)
    played = replace(fresh(tmp_path / "unused"), home=home)
    with played.session():
        pass
    done = exported(played, tmp_path / "all.detent")
    assert sorted(done.heads) == [0, 1, 2]
    assert detent.verify(done.path, played.root).ok
