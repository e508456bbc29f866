"""A copied home: named as one, given an identity of its own, and no longer in its original's way (X-200)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detent.errors import HomeError, RolledBack
from detent.inspect.audit import verify_home
from detent.inspect.replay import replay_home
from detent.owner.home import Home, make_home
from detent.owner.keys import adopt
from detent.owner.session import Session
from detent.owner.state_directory import KeptHeads, PlaceKeeper, state_directory
from detent.owner.wiring import Parts, begin_ledger
from detent.testing import Crash, CrashAt
from tests.cli.conftest import Cli

PIPELINE = "name: demo\nsteps:\n  - {id: one, run: {shell: 'echo hello'}}\n"


class Two:
    """A project and what it is copied to; commands are run in either."""

    def __init__(self, directory: Path, cli: Cli, chdir: Callable[[Path], None]) -> None:
        self.project, self.copy = directory / "project", directory / "copy"
        self.state = directory / "kept"
        self._cli, self._chdir = cli, chdir
        self.project.mkdir()
        (self.project / "pipeline.yaml").write_text(PIPELINE)
        (self.project / "tasks.py").write_text("def f(x):\n    return x\n")

    def run(self, place: Path, *arguments: str) -> Any:
        self._chdir(place)
        return self._cli(*arguments)

    def work(self, place: Path) -> str:
        """Run the pipeline anew; the id of its run."""
        result = self.run(place, "run", "pipeline.yaml", "-w", "1", "--force", "-o", "json")
        assert result.code == 0, result.err
        return str(result.document["run_id"])

    def json(self, place: Path, *arguments: str, code: int = 0) -> Any:
        result = self.run(place, *arguments, "-o", "json")
        assert result.code == code, result.err + result.out
        return result.document

    def cp(self) -> None:
        subprocess.run(["cp", "-r", str(self.project), str(self.copy)], check=True)

    def adopt(self) -> Any:
        return self.json(self.copy, "copy")


@pytest.fixture
def two(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Two:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "kept"))
    made = Two(tmp_path, cli, monkeypatch.chdir)
    assert made.run(made.project, "init").code == 0
    made.work(made.project)
    return made


def test_a_copy_is_named_as_one_by_every_command_that_would_write(two: Two) -> None:
    """X-200"""
    two.cp()
    before = two.json(two.copy, "verify")["trees"]
    for words in (
        ("run", "pipeline.yaml"),
        ("map", "--files", "*.yaml", "--compute", "tasks:f", "--commit", "jsonl:out.jsonl"),
        ("retry", "demo"),
        ("cancel", "demo"),
        ("gc",),
        ("erase", "sha256:" + "0" * 64),
        ("keys", "rotate", "log"),
        ("doctor", "--accept-rollback", "--yes"),
    ):
        result = two.run(two.copy, *words)
        assert result.code == 3, (words, result.err)
        assert f"{two.copy / '.detent'} is a copy of {two.project / '.detent'} (HOME_COPIED)" in result.err
        assert "`detent copy` gives it a name and keys of its own" in result.err
    assert two.json(two.copy, "verify")["trees"] == before


def test_commands_that_only_look_work_in_a_copy_and_say_that_it_is_one(two: Two) -> None:
    """X-200"""
    run_id = two.work(two.project)
    two.cp()
    two.work(two.project)
    for words in (
        ("list",),
        ("show", run_id),
        ("logs", run_id),
        ("explain", run_id),
        ("verify",),
        ("replay",),
        ("keys",),
    ):
        result = two.run(two.copy, *words)
        assert result.code == 0, (words, result.err, result.out)
        assert f"note: this home is a copy of {two.project / '.detent'}" in result.err
    assert two.json(two.copy, "list")[0]["run_id"] == run_id
    told = two.run(two.copy, "doctor")
    assert told.code == 1
    assert "is a copy of" in told.out


def test_original_and_copy_both_go_on(two: Two) -> None:
    """X-200: the complaint was that work in the copy made the original refuse with LEDGER_ROLLED_BACK"""
    shared = two.json(two.project, "list")
    two.cp()
    adopted = two.adopt()
    assert adopted["original"] == str(two.project / ".detent")
    assert adopted["origin"] != adopted["copy_of"]
    for _ in range(2):
        for place in (two.copy, two.project):
            two.work(place)
    for place in (two.copy, two.project):
        runs = two.json(place, "list")
        assert (len(runs), runs[-1]) == (3, shared[-1])
        report = two.json(place, "verify")
        assert report["ok"], report["findings"]
        assert replay_home(Home(place / ".detent")).ok
    assert two.run(two.copy, "list").err == ""
    names = [two.json(place, "keys")["origin"] for place in (two.project, two.copy)]
    assert names == [adopted["copy_of"], adopted["origin"]]


def test_the_history_of_a_copy_is_proved_under_both_names(two: Two) -> None:
    """X-200, X-178: the root that others pin stays the original's"""
    first = two.json(two.project, "list")[0]["run_id"]
    root = two.json(two.project, "keys")["root"]
    two.cp()
    adopted = two.adopt()
    second = two.work(two.copy)
    for run in ((), (first,), (second,)):
        exported = two.json(two.copy, "export", *run, "--output", f"{len(run)}{''.join(run)}.detent")
        assert exported["origin"] == adopted["origin"]
        report = two.json(two.copy, "verify", exported["file"], "--root", root)
        assert report["ok"], report["findings"]
        assert report["origin"] == adopted["origin"]
        said = {"copy_of": adopted["copy_of"], "batches": adopted["batches_shared"], "origin": adopted["origin"]}
        assert report["copies"] == [said]
        assert any("It is a copy" in sentence for sentence in report["proved"])


def test_copies_of_copies_and_two_copies_of_one_home_never_meet(two: Two) -> None:
    """X-200"""
    two.cp()
    third = two.copy.with_name("third")
    shutil.copytree(two.project, third)
    two.adopt()
    two.json(third, "copy")
    fourth = two.copy.with_name("fourth")
    shutil.copytree(two.copy, fourth)
    assert f"is a copy of {two.copy / '.detent'}" in two.run(fourth, "run", "pipeline.yaml").err
    two.json(fourth, "copy")
    places = (two.project, two.copy, third, fourth)
    for place in (*places, *places):
        two.work(place)
    assert all(two.json(place, "verify")["ok"] for place in places)
    assert len({two.json(place, "keys")["origin"] for place in places}) == 4
    assert len(two.json(fourth, "verify")["copies"]) == 2


def test_a_home_that_was_moved_or_renamed_is_no_copy(two: Two) -> None:
    """X-200"""
    two.project.rename(two.copy)
    two.work(two.copy)
    away = two.copy.with_name("away")
    shutil.copytree(two.copy, away)
    shutil.rmtree(two.copy)  # As `mv` to another disk does it.
    two.work(away)
    assert two.run(away, "list").err == ""
    refused = two.run(away, "copy")
    assert refused.code == 2
    assert "is not known to be a copy" in refused.err


def test_a_backup_restored_to_its_place_is_a_rollback_and_no_copy(two: Two) -> None:
    """X-178, X-200"""
    two.cp()
    two.work(two.project)
    shutil.rmtree(two.project)
    shutil.copytree(two.copy, two.project)
    result = two.run(two.project, "run", "pipeline.yaml")
    assert result.code == 4
    assert "LEDGER_ROLLED_BACK" in result.err
    shutil.rmtree(two.project)
    assert "LEDGER_ROLLED_BACK" in two.run(two.copy, "run", "pipeline.yaml").err, "nor when it stays where it was kept"


def test_a_copy_in_the_place_of_its_original_must_hold_what_that_held(two: Two) -> None:
    """X-178, X-200: with a name of its own, an old copy would otherwise pass for the original after a rollback"""
    two.cp()
    two.work(two.project)
    two.adopt()
    shutil.rmtree(two.project)
    two.copy.rename(two.project)
    result = two.run(two.project, "run", "pipeline.yaml")
    assert result.code == 4
    assert "LEDGER_ROLLED_BACK" in result.err
    codes = {finding["code"] for finding in two.json(two.project, "verify", code=1)["findings"]}
    assert codes & {"LEDGER_ROLLED_BACK", "LEDGER_FORKED"}
    assert two.run(two.project, "doctor", "--accept-rollback", "--yes").code in (0, 1)
    two.work(two.project)
    assert two.json(two.project, "verify")["ok"]


def test_a_tree_head_of_the_original_beyond_the_common_point_contradicts_the_copy(two: Two) -> None:
    """X-178, X-200: a kept head does not make the copy pass for the original"""
    two.cp()
    two.work(two.project)
    copied = two.adopt()
    two.work(two.copy)
    two.work(two.copy)
    heads = KeptHeads(state_directory(os.environ), copied["copy_of"]).heads()
    note = two.copy / "head"
    note.write_text(heads[0][1])
    report = two.json(two.copy, "verify", "--head", str(note), code=1)
    assert {finding["code"] for finding in report["findings"]} >= {"LEDGER_FORKED"}


def test_a_copy_from_elsewhere_gets_its_identity_by_force(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-200: on another machine nothing is known of the original"""
    two.cp()
    monkeypatch.setenv("XDG_STATE_HOME", str(two.state / "another"))
    assert two.run(two.copy, "copy").code == 2
    adopted = two.json(two.copy, "copy", "--force")
    assert adopted["original"] is None
    two.work(two.copy)
    assert two.json(two.copy, "verify")["ok"]


def test_a_copy_cut_short_between_partitions_is_carried_through(tmp_path: Path) -> None:
    """X-200: until then nothing is written in the name of the original"""
    environment = {"XDG_STATE_HOME": str(tmp_path / "kept")}
    original = make_home(tmp_path / "original", begin_ledger, partitions=3)
    with Session(original, environment=environment):
        pass
    home = Home(shutil.copytree(original.path, tmp_path / "copy"))
    with pytest.raises(Crash):
        adopt(home, environment=environment, parts=Parts(crash_point=CrashAt("decided", 2)))
    with pytest.raises(HomeError, match="in some of its partitions only"):
        Session(home, environment=environment)
    adopted = adopt(home, environment=environment)
    with Session(home, environment=environment) as session:
        assert session.owned is not None
        assert {trust.origin for trust in session.owned.trusts} == {adopted.origin}
    with Session(original, environment=environment):
        pass
    assert all(verify_home(one, environment=environment).ok for one in (home, original))


def test_the_note_of_a_place_says_where_in_plain_words(two: Two) -> None:
    origin = two.json(two.project, "keys")["origin"]
    noted = json.loads(PlaceKeeper(os.environ, origin).path.read_text())
    assert noted["path"] == str(two.project / ".detent")


def test_nothing_of_a_copy_is_written_while_a_process_works_on_it(two: Two) -> None:
    two.cp()
    two.adopt()
    with Session(Home(two.copy / ".detent")):
        result = two.run(two.copy, "copy", "--force")
    assert result.code == 4
    assert "owns the home" in result.err


def test_a_rollback_under_the_copy_s_own_name_is_found(two: Two) -> None:
    """X-178"""
    two.cp()
    two.adopt()
    kept = shutil.copytree(two.copy / ".detent", two.copy / "older")
    two.work(two.copy)
    shutil.rmtree(two.copy / ".detent")
    kept.rename(two.copy / ".detent")
    with pytest.raises(RolledBack):
        Session(Home(two.copy / ".detent"))
