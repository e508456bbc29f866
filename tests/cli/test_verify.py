"""`detent verify`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def bundle(cli: Cli) -> Path:
    return Path(cli.json("export", "--output", "all.detent")["file"])


def codes(document: dict[str, object]) -> list[object]:
    findings = document["findings"]
    assert isinstance(findings, list)
    return [finding["code"] for finding in findings]


def test_a_home_is_verified_against_its_own_root_and_says_so(cli: Cli) -> None:
    """X-178"""
    document = cli.json("verify")
    assert (document["ok"], document["root"], document["root_pinned"]) == (True, cli.played.root, True)
    assert any("the root pinned here is its own" in sentence for sentence in document["not_proved"])
    out = cli("verify").out
    assert out.startswith("verified  ")
    assert "(this home's own)" in out
    assert "\nproved:\n" in out
    assert "\nnot proved:\n" in out


def test_a_root_from_elsewhere_pins_the_home_too(cli: Cli) -> None:
    assert "(pinned by you)" in cli("verify", "--root", cli.played.root).out
    assert cli("verify", "--root", "0" * 64).code == 1


@pytest.mark.parametrize("spelled", [lambda root: root, lambda root: root.removeprefix("sha256:"), str.strip])
def test_a_bundle_is_verified_with_a_root_however_it_is_written(cli: Cli, bundle: Path, spelled: object) -> None:
    assert callable(spelled)
    result = cli("verify", str(bundle), "--root", spelled(cli.played.root), "-o", "json")
    assert result.code == 0
    assert result.document["proved"]


def test_a_bundle_without_a_root_is_never_green(cli: Cli, bundle: Path) -> None:
    """X-178"""
    result = cli("verify", str(bundle), "-o", "json")
    assert result.code == 1
    assert result.document["ok"] is False
    assert codes(result.document) == ["TRUST_UNPINNED"]
    out = cli("verify", str(bundle)).out
    assert out.startswith("NOT VERIFIED")
    assert "not pinned: believe nothing of this" in out


def test_another_root_is_a_finding_and_no_root_at_all_bad_usage(cli: Cli, bundle: Path) -> None:
    wrong = cli("verify", str(bundle), "--root", "sha256:" + "0" * 64, "-o", "json")
    assert (wrong.code, codes(wrong.document)) == (1, ["TRUST_ROOT_MISMATCH"])
    for text in ("md5:abc", "sha256:xyz", ""):
        result = cli("verify", str(bundle), "--root", text)
        assert (result.code, result.out) == (2, "")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda data: data[:-1], "BUNDLE_TRUNCATED"),
        (lambda data: data[: len(data) // 2], "BUNDLE_TRUNCATED"),
        (lambda data: data + b"\x00", "BUNDLE_TRAILING_BYTES"),
        (lambda _: b"", "BUNDLE_TRUNCATED"),
        (lambda _: b"PK\x03\x04 a zip file", "BUNDLE_MALFORMED"),
        (lambda _: b"\x5a\xff\xff\xff\xff", "ITEM_TOO_LARGE"),
    ],
)
def test_a_file_that_is_cut_or_is_no_bundle_gives_findings(cli: Cli, bundle: Path, change: object, code: str) -> None:
    assert callable(change)
    data = bundle.read_bytes()
    assert change(data) != data
    bundle.write_bytes(change(data))
    result = cli("verify", str(bundle), "--root", cli.played.root, "-o", "json")
    assert result.code == 1
    assert code in codes(result.document)


def test_a_file_that_is_not_there_is_bad_usage(cli: Cli, tmp_path: Path) -> None:
    for path in (tmp_path / "nix.detent", tmp_path):
        result = cli("verify", str(path))
        assert (result.code, result.out) == (2, "")
        assert f"{path} cannot be read" in result.err


def test_a_finding_names_its_place_and_what_it_means(cli: Cli, bundle: Path) -> None:
    data = bytearray(bundle.read_bytes())
    place = data.index(b"LEASE_EXPIRED")
    data[place] ^= 1
    bundle.write_bytes(data)
    result = cli("verify", str(bundle), "--root", cli.played.root)
    assert result.code == 1
    lines = result.out.splitlines()
    finding = next(index for index, line in enumerate(lines) if "EVIDENCE_" in line)
    assert "job slow, transition 1" in lines[finding]
    assert "batch" in lines[finding]
    assert "record" in lines[finding]
    assert "LEASE_EXPIRED" in lines[finding + 1]
    assert lines[finding + 2].strip().startswith(("means: ", "likely: "))


def test_a_kept_tree_head_must_be_continued(cli: Cli, bundle: Path, tmp_path: Path) -> None:
    """X-178"""
    note = tmp_path / "kept.note"
    note.write_text(cli.json("export", "--output", "again.detent")["tree_heads"][0]["note"])
    root = ("--root", cli.played.root)
    kept = cli("verify", str(bundle), *root, "--head", str(note), "-o", "json")
    assert kept.code == 0
    assert any("kept elsewhere" in sentence for sentence in kept.document["proved"])
    with cli.played.session():
        pass
    note.write_text(cli.json("export", "--output", "again.detent")["tree_heads"][0]["note"])
    older = cli("verify", str(bundle), *root, "--head", str(note), "-o", "json")
    assert codes(older.document) == ["LEDGER_ROLLED_BACK"]
    note.write_text("nonsense")
    assert codes(cli("verify", str(bundle), *root, "--head", str(note), "-o", "json").document) == ["HEAD_INVALID"]
    assert cli("verify", str(bundle), *root, "--head", str(tmp_path / "nix")).code == 2


def test_many_findings_are_cut_on_the_page_and_counted(cli: Cli) -> None:
    cli.played.edit(lambda database: database.execute("UPDATE records SET evidence = x'00', body = x'a0'"))
    result = cli("verify")
    assert result.code == 1
    assert result.out.count("  ! ") == 50
    assert "more; -o json has more of them" in result.out
