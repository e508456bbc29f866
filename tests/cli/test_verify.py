"""`detent verify`."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from detent.canon import SigningKey, sha256
from detent.cli.page import Page
from detent.cli.verify import Checked
from detent.cli.verify import _draw as draw_report
from detent.kernel import EndRun, Finish
from detent.ledger import SignedResult
from detent.ledger.findings import Finding, Report
from tests.cli.conftest import Cli
from tests.homes import OTHER_RUN, RUN, Hand, report


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


def test_verify_says_which_executor_keys_signed_how_many_results(cli: Cli) -> None:
    """JOB-083: of a home, of the whole ledger's bundle, and of a run's."""
    document = cli.json("verify")
    ((executor, results),) = document["executors"].items()
    assert (results, document["counts"]["results_signed"]) == (3, 3)
    assert executor in {key["key_id"] for key in cli.json("keys")["keys"] if key["role"] == "result"}
    for arguments in ((), (RUN,)):
        cli.json("export", *arguments, "--output", "some.detent")
        exported = cli.json("verify", "some.detent", "--root", cli.played.root)
        assert exported["executors"] == {executor: 3}
    out = " ".join(cli("verify").out.split())
    assert "3 results are signed by executor keys that were allowed to sign them there" in out
    assert f"3 by {executor[:16]}" in out


@pytest.mark.parametrize("signer", ["a stranger", "manifest"])
def test_a_result_that_no_executor_signed_makes_verify_red(cli: Cli, signer: str) -> None:
    """JOB-083: the owner recorded it, and its signature is not an executor's; in the home and in bundles."""
    with cli.played.session() as session:
        hand = Hand(cli.played.home, session)
        grant = hand.claim()
        hand._result_key = SigningKey(sha256(b"a stranger")) if signer == "a stranger" else hand._manifest_key
        hand.succeed(grant)
        hand.ask(EndRun(0, OTHER_RUN, "completed"))
    expected = "KEY_UNKNOWN" if signer == "a stranger" else "KEY_WRONG_ROLE"
    result = cli("verify", "-o", "json")
    assert (result.code, codes(result.document)) == (1, [expected])
    for arguments in ((), (OTHER_RUN,)):
        cli.json("export", *arguments, "--output", "some.detent")
        result = cli("verify", "some.detent", "--root", cli.played.root, "-o", "json")
        assert (result.code, codes(result.document)) == (1, [expected])


def test_a_changed_signature_of_a_result_makes_verify_red(cli: Cli) -> None:
    """JOB-083"""
    with cli.played.session() as session:
        hand = Hand(cli.played.home, session)
        grant = hand.claim()
        digest, inline = hand.stage(
            SignedResult(report(grant, None, 1).body(), hand._result_key.key_id, bytes(64)).envelope()
        )
        hand.ask(Finish(0, grant.job_id, grant.lease_id, detail_digest=digest), inline)
    result = cli("verify", "-o", "json")
    assert (result.code, codes(result.document)) == (1, ["RESULT_SIGNATURE_INVALID"])
    assert result.document["findings"][0]["job_id"] == "waiting"
    assert sum(result.document["executors"].values()) == 3, "only signatures that verify are counted"


def test_erased_reports_are_said_to_be_erased(cli: Cli) -> None:
    """X-171: nothing is wrong with a history whose content was erased."""
    cli.json("erase", "--job", "done")
    document = cli.json("verify")
    assert document["counts"]["reports_erased"] == 1
    assert any("1 result whose report was erased on purpose" in sentence for sentence in document["not_proved"])
    cli.json("export", RUN, "--output", "run.detent")
    exported = cli.json("verify", "run.detent", "--root", cli.played.root)
    assert (exported["counts"]["reports_erased"], exported["counts"]["results_signed"]) == (1, 2)


def test_a_report_that_is_gone_without_an_erasure_makes_verify_red(cli: Cli) -> None:
    """X-178: a lost report looks like one that was removed to hide its signature."""
    reports = [path for path in (cli.played.home.path / "content").rglob("*") if b"manifest_hash" in _bytes(path)]
    assert len(reports) == 1
    reports[0].unlink()
    result = cli("verify", "-o", "json")
    assert (result.code, codes(result.document)) == (1, ["RESULT_MISSING"])


def test_a_bundle_without_reports_verifies_and_says_what_it_does_not_show(cli: Cli) -> None:
    """As every bundle did that was exported before reports went along."""
    document = cli.json("export", "--output", "bare.detent", "--no-reports")
    assert "reports" not in document["counts"]
    exported = cli.json("verify", "bare.detent", "--root", cli.played.root)
    assert exported["executors"] == {}
    assert any("exported without their reports" in sentence for sentence in exported["not_proved"])
    assert cli("export", "--output", "x.detent", "--no-reports", "--content").code == 2


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


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
        (lambda _: b"\x5a\xff\xff\xff\xff", "ITEM_TOO_LARGE"),
    ],
)
def test_a_file_that_is_cut_or_has_more_gives_findings(cli: Cli, bundle: Path, change: object, code: str) -> None:
    assert callable(change)
    data = bundle.read_bytes()
    assert change(data) != data
    bundle.write_bytes(change(data))
    result = cli("verify", str(bundle), "--root", cli.played.root, "-o", "json")
    assert result.code == 1
    assert code in codes(result.document)


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04 a zip file",
        b"name: demo\nsteps: []\n",
        b"{}",
        b"\x7fELF\x02\x01\x01",
        b"Yet another text, which begins like an item of 25,972 bytes",
        b"I am short",
        "Ünicode".encode(),
    ],
)
def test_of_a_file_that_is_no_bundle_at_all_only_that_is_said(cli: Cli, bundle: Path, data: bytes) -> None:
    """Neither cut nor changed: there is nothing to be said of a ledger that is not there, pinned or not."""
    bundle.write_bytes(data)
    for pinned in ((), ("--root", cli.played.root)):
        result = cli("verify", str(bundle), *pinned, "-o", "json")
        document = result.document
        assert (result.code, document["ok"], codes(document)) == (1, False, ["NOT_A_BUNDLE"])
        assert (document["findings_total"], document["codes"]) == (1, {"NOT_A_BUNDLE": 1})
        assert (document["proved"], document["not_proved"]) == ([], [])
    out = cli("verify", str(bundle)).out
    assert out.splitlines()[:3] == [f"NOT VERIFIED  {bundle}", "", "1 finding:"]
    assert "the file is not one that `detent export` wrote" in out
    assert "name a bundle" in out


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


def test_findings_that_are_alike_are_counted_on_the_page_and_all_there_as_data(cli: Cli) -> None:
    cli.played.edit(lambda database: database.execute("UPDATE records SET evidence = x'00', body = x'a0'"))
    result, data = cli("verify"), cli("verify", "-o", "json").document
    assert result.code == 1
    lines, times = result.out.splitlines(), Counter(codes(data))
    assert len(data["findings"]) == data["findings_total"] == times.total()
    code, many = times.most_common(1)[0]
    assert many > 3
    heads = [line.split()[1] for line in lines if line.startswith("  ! ")]
    assert sorted(heads) == sorted(str(code) for code in times), "every code once"
    start = lines.index(f"  ! {code}  {many} findings")
    first = [finding for finding in data["findings"] if finding["code"] == code][:3]
    assert [line.endswith(one["message"]) for line, one in zip(lines[start + 1 :], first, strict=False)] == [True] * 3
    assert lines[start + 4] == f"    ... and {many - 3} more: `-o json` lists all"
    assert lines[start + 5].startswith("    means: ")
    assert lines[start + 6].startswith("    likely: ")
    (once,) = [str(code) for code, number in times.items() if number == 1][:1]
    assert any(line.startswith(f"  ! {once}") and "finding" not in line for line in lines)


def test_the_page_says_when_the_data_has_not_every_finding_either(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    counted = {"FOLD_ROW_MISSING": 1_500, "ITEM_UNKNOWN": 1, "HEAD_INVALID": 2}
    kept = tuple(Finding("FOLD_ROW_MISSING", f"row {number}") for number in range(1_000))
    report = Report(
        ok=False, findings=kept, findings_total=1_503, proved=(), not_proved=(), counts={}, codes=counted
    )  # fmt: skip
    draw_report(Page(), Checked(report, "ledger.db", "this home's own", own_root=True))
    lines = capsys.readouterr().out.splitlines()
    assert "1,503 findings:" in lines
    assert "    ... and 1,497 more: `-o json` lists 1,000 of all findings" in lines
    assert "  ! ITEM_UNKNOWN  1 finding" in lines
    assert "    ... and 2 more: `-o json` lists 1,000 of all findings" in lines


@pytest.mark.parametrize("option", [(), ("--head",)], ids=["bundle", "head"])
def test_a_pipe_is_refused_before_it_is_opened(cli: Cli, tmp_path: Path, option: tuple[str, ...]) -> None:
    """A named pipe without a writer used to keep `verify` waiting for ever."""
    os.mkfifo(tmp_path / "pipe")
    result = cli("verify", *option, str(tmp_path / "pipe"))
    assert (result.code, "is not a plain file" in result.err) == (2, True), result
