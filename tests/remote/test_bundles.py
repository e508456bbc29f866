"""`export`, `verify` and `replay` with `--connect`: a server's ledger is fetched into a file and checked on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import detent
from tests.remote.sides import Project, Said, Sides, project, served_project
from tests.serve.served import Served
from tests.serve.toxic import Fault, Toxic


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Served, Toxic]]:
    made = project(tmp_path_factory.mktemp("held"))
    made.detent("run", "good.yaml")
    with Toxic() as proxy, served_project(made, "--allow-host", f"127.0.0.1:{proxy.port}") as served:
        proxy.target = served.port
        yield made, served, proxy


@pytest.fixture
def sides(
    held: tuple[Project, Served, Toxic],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Sides:
    made, served, _ = held
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of a client"))
    monkeypatch.setenv("DETENT_KEY", served.token)
    monkeypatch.delenv("DETENT_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return Sides(made, served, capsys)


def root_of(made: Project, file: Path) -> str:
    """The root as an operator reads it beside the home."""
    return str(made.detent("export", "--output", str(file), "-o", "json").document["root"])


@pytest.mark.parametrize("what", [["doubles"], []], ids=["run", "ledger"])
def test_a_bundle_is_exported_over_a_server_as_beside_the_home(sides: Sides, tmp_path: Path, what: list[str]) -> None:
    made = sides.project
    there = sides.there("export", *what, "--output", "there.detent", "-o", "json")
    assert there.code == 0, there.err
    said, near = there.document, made.detent("export", *what, "--output", str(tmp_path / "near.detent"), "-o", "json")
    assert set(said) == set(near.document)
    same = ("root", "origin", "scope", "run_id")
    assert [said[name] for name in same] == [near.document[name] for name in same]
    assert (said["file"], said["size_bytes"]) == (
        str(tmp_path / "there.detent"),
        (tmp_path / "there.detent").stat().st_size,
    )
    assert said["counts"]["reports"] == near.document["counts"]["reports"] == 4
    assert said["tree_heads"][0]["size"] <= near.document["tree_heads"][0]["size"]
    assert detent.verify(tmp_path / "there.detent", said["root"]).ok
    page = sides.there("export", *what, "--output", "there.detent", "--no-reports")
    assert page.out.startswith(f"exported  {tmp_path / 'there.detent'}\n")
    assert f"The receiver runs: detent verify there.detent --root {said['root']}" in page.out
    assert "0 pieces of content" in page.out
    assert [path.name for path in tmp_path.glob("*.new")] == []


def test_content_of_a_run_comes_with_its_bundle(sides: Sides, tmp_path: Path) -> None:
    counts = sides.there("export", "doubles", "--output", "a.detent", "--content", "-o", "json").document["counts"]
    beside = ("export", "doubles", "--output", str(tmp_path / "b.detent"), "--content", "-o", "json")
    assert counts["content"] == sides.project.detent(*beside).document["counts"]["content"] > 4
    refused = sides.there("export", "--output", "c.detent", "--content")
    assert (refused.code, "--content is for one RUN" in refused.err) == (2, True)
    unknown = sides.there("export", "absent", "--output", "c.detent", "-o", "json")
    assert (unknown.code, unknown.document["error"]["code"]) == (2, "UNKNOWN_RUN")
    assert not (tmp_path / "c.detent").exists()


def test_a_bundle_that_is_cut_off_leaves_no_file(
    sides: Sides, held: tuple[Project, Served, Toxic], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, proxy = held
    from detent.remote.address import parse_address
    from detent.remote.bundles import fetch_bundle
    from detent.remote.http import Http
    from detent.remote.problems import ServerUnreachable

    with Http(parse_address(proxy.url, key=sides.served.token)) as http, (tmp_path / "cut.detent").open("xb") as file:
        http.get("/v1/version")
        proxy.fail(Fault.CUT, 1)
        with pytest.raises(ServerUnreachable):
            fetch_bundle(http, file, None)
    (tmp_path / "cut.detent").unlink()
    proxy.fail(Fault.CUT, None)
    try:
        ended = Sides(sides.project, sides.served, capsys)._run(
            "export", "--output", "there.detent", "--connect", proxy.url
        )
    finally:
        proxy.fail(None)
    assert ended.code == 4
    assert list(tmp_path.glob("*.detent*")) == []


def test_a_server_is_verified_here_against_a_root_from_elsewhere(sides: Sides, tmp_path: Path) -> None:
    unpinned = sides.there("verify", "-o", "json")
    assert (unpinned.code, unpinned.document["codes"]) == (1, {"TRUST_UNPINNED": 1})
    said = sides.there("verify", "--run", "doubles").out
    assert "(not pinned: believe nothing of this)" in said
    assert "proved:" not in said.replace("not proved:", "")
    root = root_of(sides.project, tmp_path / "near.detent")
    wrong = sides.there("verify", "--root", "sha256:" + "0" * 64, "-o", "json")
    assert (wrong.code, "TRUST_ROOT_MISMATCH" in wrong.document["codes"]) == (1, True)
    assert sides.there("verify").code == 1, "a root that did not hold is not remembered"
    first = sides.there("verify", "--root", root)
    assert (first.code, f"{root} (pinned by you)" in first.out) == (0, True), first
    assert first.out.startswith(f"verified  {sides.served.told['url']}\n")
    assert "that was kept elsewhere" in first.out.replace("\n", " ")
    later = sides.there("verify")
    assert (later.code, f"{root} (pinned by you before)" in later.out) == (0, True)
    of_run = sides.there("verify", "--run", "doubles")
    assert (of_run.code, "scope   run doubles-" in of_run.out) == (0, True), of_run.err
    assert "that was kept here of this server" in " ".join(of_run.out.split())
    assert sides.there("verify", "--run", "doubles", "--root", "sha256:" + "0" * 64).code == 1


def test_a_key_that_may_not_export_is_told_which_one_may(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sides.project.detent("keys", "create", "ci", "--role", "operator", "-o", "json")
    monkeypatch.setenv("DETENT_KEY", made.document["secret"])
    whole = sides.there("verify")
    assert (whole.code, "lacks the scope server:audit (FORBIDDEN)" in whole.err) == (3, True), whole
    assert "it takes a key of the role server_admin: `detent keys create NAME --role server_admin`" in whole.err
    one = sides.there("verify", "--run", "doubles")
    assert "a key of the role auditor or admin or server_admin" in one.err, one


def test_a_run_is_verified_beside_the_home_as_well(sides: Sides) -> None:
    near = sides.here("verify", "--run", "doubles")
    assert (near.code, "(this home's own)" in near.out, "scope   run doubles-" in near.out) == (0, True, True)
    assert sides.here("verify", "--run", "absent").code == 2


def test_the_server_may_be_asked_for_its_own_word(sides: Sides) -> None:
    for words in ([], ["--run", "doubles"]):
        said = sides.there("verify", "--by-server", *words)
        assert (said.code, "(the server's own, by its own word)" in said.out) == (0, True), said
        assert "not proved:" in said.out
    assert sides.here("verify", "--by-server").code == 2
    assert sides.there("verify", "--by-server", "--root", "sha256:" + "0" * 64).code == 2


def test_a_ledger_that_was_changed_at_the_server_does_not_verify_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server cannot talk it away: another ledger with keys of its own, in the place of the one whose root is pinned."""
    made, other = project(tmp_path / "made"), project(tmp_path / "other")
    made.detent("run", "good.yaml")
    other.detent("run", "good.yaml")
    root = root_of(made, tmp_path / "near.detent")
    shutil.rmtree(made.home)
    shutil.copytree(other.home, made.home, symlinks=True)
    shutil.rmtree(other.home)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "client"))
    with served_project(made) as served:
        monkeypatch.setenv("DETENT_KEY", served.token)
        said: Said = Sides(made, served, capsys).there("verify", "--root", root, "-o", "json")
    assert (said.code, said.document["codes"].get("TRUST_ROOT_MISMATCH")) == (1, 1)


def test_the_ledger_of_a_server_is_replayed_here(sides: Sides) -> None:
    replayed = sides.there("replay")
    assert (replayed.code, replayed.out.startswith(f"replayed  {sides.served.told['url']}\n")) == (0, True), replayed
    assert "every byte the same" in replayed.out


def test_a_file_is_checked_here_whatever_server_is_set(
    sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = root_of(sides.project, tmp_path / "near.detent")
    monkeypatch.setenv("DETENT_URL", "http://127.0.0.1:1")
    from detent.cli.app import run

    assert run(["verify", "near.detent", "--root", root]) == 0
    assert run(["replay", "near.detent"]) == 0
    assert run(["verify", "near.detent", "--connect", "http://127.0.0.1:1"]) == 2
    assert "a FILE is checked on this machine: leave --connect out" in capsys.readouterr().err
