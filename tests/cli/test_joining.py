"""A second home for a ledger in PostgreSQL: keys of its own, which count once the root key has admitted them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from detent.cli.init import write_first_project
from detent.owner.home import Home
from tests.cli.test_postgres import Place, place
from tests.postgres_server import Server

__all__ = ["place"]
P = 3


@pytest.fixture
def joined(place: Place, postgres: Server) -> dict[str, Any]:
    """What `init` said of the second home, which is at ``b``."""
    url = postgres.store_url()
    write_first_project(place.directory)
    made = place.json("init", "--home", "a", "--store", url, "--partitions", str(P))
    document: dict[str, Any] = place.json("init", "--home", "b", "--store", url, "--join", made["root"])
    return document


def test_a_home_that_was_admitted_works_on_the_ledger_with_its_own_keys(place: Place, joined: dict[str, Any]) -> None:
    assert not list(Path("b/keys").glob("root-*"))
    assert {path.name for path in Path("a/keys").iterdir()}.isdisjoint(path.name for path in Path("b/keys").iterdir())
    early = place("run", "pipeline.yaml", "--home", "b")
    assert early.code != 0
    assert "does not trust the" in early.err
    assert "detent keys admit" in early.err
    assert place.json("keys", "admit", joined["join"], "--home", "a")["trust_version"] == 2
    for home in "bab":
        assert place.json("run", "pipeline.yaml", "--home", home)["status"] == "succeeded"
        verified = place("verify", "--home", home)
        assert verified.code == 0, verified.out
        checks = {check["name"]: check for check in place.json("doctor", "--home", home)["checks"]}
        assert checks["keys"]["status"] == "ok", checks["keys"]
    assert place("replay", "--home", "a").code == 0
    assert len(place.json("list", "--home", "b")) == 3


def test_rotating_a_key_leaves_those_of_the_other_home(place: Place, joined: dict[str, Any]) -> None:
    assert place("keys", "admit", joined["join"], "--home", "a").code == 0
    rotated = place.json("keys", "rotate", "transition", "--home", "a")
    assert len(rotated["old_key_ids"]) == 1
    for home in "ba":
        assert place.json("run", "pipeline.yaml", "--home", home)["status"] == "succeeded"
    assert place("verify", "--home", "a").code == 0


def test_joining_needs_the_root_that_the_ledger_has(place: Place, joined: dict[str, Any], postgres: Server) -> None:
    other = "sha256:" + "0" * 64
    refused = place("init", "--home", "c", "--store", joined["store"], "--join", other)
    assert refused.code != 0
    assert other in refused.err
    assert not Path("c").exists()
    assert place("init", "--home", "c", "--join", joined["root"]).code == 2
    empty = place("init", "--home", "c", "--store", postgres.store_url(), "--join", joined["root"])
    assert empty.code != 0
    assert "holds no ledger" in empty.err
    assert not Path("c").exists()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda it: it.pop("host"), "not a JSON object"),
        (lambda it: it["keys"].pop("log"), "one key for each"),
        (lambda it: it["keys"].update(root="00" * 32), "one key for each"),
        (lambda it: it["keys"].update(log="zz"), "hexadecimal"),
        (lambda it: it["keys"].update(log="00" * 32), "key"),
        (lambda it: it.update(origin="detent/0000000000000000"), "is for the ledger"),
        (lambda it: it.update(host=7), "texts"),
    ],
)
def test_a_request_that_is_not_whole_is_refused(place: Place, joined: dict[str, Any], change: Any, fault: str) -> None:
    document = json.loads(Path(joined["join"]).read_text())
    change(document)
    Path("changed.json").write_text(json.dumps(document))
    refused = place("keys", "admit", "changed.json", "--home", "a")
    assert refused.code != 0
    assert fault in refused.err
    assert place.json("keys", "--home", "a")["trust_version"] == 1


def test_a_server_is_admitted_once_and_by_the_root_key_alone(place: Place, joined: dict[str, Any]) -> None:
    Path("large.json").write_text(" " * 20_000)
    assert "not a request" in place("keys", "admit", "large.json", "--home", "a").err
    refused = place("keys", "admit", joined["join"], "--home", "b")
    assert refused.code != 0
    assert "root key" in refused.err
    assert place("keys", "admit", joined["join"], "--home", "a").code == 0
    again = place("keys", "admit", joined["join"], "--home", "a")
    assert again.code == 2
    assert "already" in again.err
    assert Home(Path("b")).join_request.exists()
