"""`detent keys`."""

from __future__ import annotations

from tests.cli.conftest import Cli


def test_keys_are_listed_with_role_range_and_private_half(cli: Cli) -> None:
    document = cli.json("keys")
    assert document["root"] == cli.played.root
    assert [(key["role"], key["state"], key["private_key"]) for key in document["keys"]] == [
        (role, "active", "here") for role in ("root", "manifest", "transition", "result", "log")
    ]
    assert cli.json("keys", "list") == document
    out = cli("keys").out
    assert cli.played.root in out
    assert out.count("0 on") == 5


def test_a_key_is_shown_by_the_beginning_of_its_id(cli: Cli) -> None:
    key_id = cli.json("keys")["keys"][0]["key_id"]
    document = cli.json("keys", "show", key_id[:10])
    assert (document["key_id"], document["role"], document["trust_versions"]) == (key_id, "root", [1])
    assert "root: signs who may sign" in cli("keys", "show", key_id.upper()).out
    for wrong in ("zz", ""):
        assert cli("keys", "show", wrong).code == 2


def test_a_rotation_is_shown_in_both_keys(cli: Cli) -> None:
    document = cli.json("keys", "rotate", "log")
    assert document["trust_version"] == 2
    keys = [key for key in cli.json("keys")["keys"] if key["role"] == "log"]
    assert [(key["state"], key["from_position"], key["to_position"]) for key in keys] == [
        ("active", document["from_position"], None),
        ("ended", 0, document["from_position"]),
    ]
    assert keys[0]["key_id"] == document["new_key_id"]
    out = cli("keys", "rotate", "root").out
    assert "rotated the root key; recorded on the ledger as trust version 3" in out
    assert cli("verify").code == 0
    assert cli.json("keys")["root"] == cli.played.root


def test_a_role_that_is_none_is_refused(cli: Cli) -> None:
    assert cli("keys", "rotate", "witness").code == 2


def test_a_home_in_use_is_not_rotated(cli: Cli) -> None:
    """X-172"""
    with cli.played.session():
        result = cli("keys", "rotate", "log")
    assert result.code == 4
    assert "owns the home" in result.err


def test_private_keys_that_are_missing_or_unusable_are_said(cli: Cli) -> None:
    keys = cli.played.home.path / "keys"
    next(keys.glob("result-*.key")).unlink()
    next(keys.glob("log-*.key")).chmod(0o644)
    next(keys.glob("manifest-*.key")).write_text("nonsense\n")
    (keys / "log-0123456789abcdef.key").write_text("00" * 32)
    document = cli.json("keys")
    private = {key["role"]: key["private_key"] for key in document["keys"]}
    assert private == {
        "root": "here",
        "manifest": "unusable",
        "transition": "here",
        "result": "missing",
        "log": "unusable",
    }
    assert document["unused_files"] == [{"role": "log", "key_id_begins": "0123456789abcdef"}]
    out = cli("keys").out
    assert "readable by others (mode 644)" in out
    assert "log-0123456789abcdef.key is not known to the ledger" in out
