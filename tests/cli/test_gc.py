"""`detent gc`."""

from __future__ import annotations

import pytest

from detent.canon import digest_text, sha256
from detent.jobs.source_tree import TreeFile, source_tree
from detent.store.trees import laid_out
from tests.cli.conftest import Cli
from tests.cli.test_app import outside

TREE = {"a.txt": b"a", "hello.yaml": b"name: hello\nsteps: [{id: hi, run: {shell: echo hi}}]\n"}


def test_garbage_is_shown_then_taken_away(cli: Cli) -> None:
    data = b"z" * 40_000
    cli.played.home.content_files().put(data)
    expected = [{"digest": digest_text(sha256(data)), "place": "file"}]
    assert cli.json("gc")["garbage"] == []
    dry = cli.json("gc", "--grace", "0", "--dry-run")
    assert (dry["garbage"], dry["dry_run"]) == (expected, True)
    out = cli("gc", "--grace", "0").out
    assert out.startswith("removed 1 piece of content that no record refers to, 39.1 KiB\n")
    assert digest_text(sha256(data)) in out
    assert cli.json("gc", "--grace", "0")["garbage"] == []
    assert cli("verify").code == 0


def test_a_source_tree_that_no_run_names_is_taken_away_after_the_grace(cli: Cli) -> None:
    home = cli.played.home
    files = [TreeFile(name, home.content_files().put(data), len(data), executable=False) for name, data in TREE.items()]
    unnamed, named = (laid_out(home.path, source_tree(files[:count]), home.content_files()) for count in (1, 2))
    assert cli("run", str(named / "hello.yaml")).code == 0
    assert cli.json("gc")["source_trees"] == [], "both are young"
    dry = cli.json("gc", "--grace", "0", "--dry-run")
    assert (dry["source_trees"], unnamed.is_dir()) == ([unnamed.name], True)
    assert cli.json("gc", "--grace", "0")["source_trees"] == [unnamed.name]
    assert (unnamed.exists(), named.is_dir()) == (False, True)


@pytest.mark.parametrize(("grace", "gone"), [("0s", 1), ("0", 1), ("0.5h", 0), ("3600", 0)])
def test_the_grace_is_a_duration_or_a_number_of_seconds(cli: Cli, grace: str, gone: int) -> None:
    cli.played.home.content_files().put(b"z" * 40_000)
    assert len(cli.json("gc", "--grace", grace)["garbage"]) == gone


@pytest.mark.parametrize("grace", ["soon", "-1", "1 day"])
def test_another_grace_is_refused_with_how_to_write_one(cli: Cli, grace: str) -> None:
    refused = cli("gc", "--grace", grace)
    assert refused.code == 2
    assert f"--grace cannot be {grace!r}: write it as 500ms, 90s, 5m" in refused.err


def test_a_home_in_use_is_left_alone(cli: Cli) -> None:
    """X-172"""
    with cli.played.session():
        result = cli("gc")
    assert result.code == 4
    assert "owns the home" in result.err


def test_the_command_ends_like_any_other(cli: Cli) -> None:
    """Its module has the name of a module of Python's, which the way out of every command uses."""
    process = outside("gc", "--dry-run", "-o", "json", home=cli.played.home.path)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b'"garbage"' in out
