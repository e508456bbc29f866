"""`detent gc`."""

from __future__ import annotations

import pytest

from detent.canon import digest_text, sha256
from tests.cli.conftest import Cli
from tests.cli.test_app import outside


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
