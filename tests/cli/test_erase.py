"""`detent erase`."""

from __future__ import annotations

from tests.cli.conftest import Cli


def test_a_jobs_content_is_erased_and_listed(cli: Cli) -> None:
    """X-171"""
    document = cli.json("erase", "--job", "done")
    assert len(document["erased"]) == 2
    assert document["reason_code"] == "ERASED_BY_USER"
    again = cli("erase", "--job", "done").out
    assert again.startswith("nothing to erase")
    assert again.count("erased before: sha256:") == 2
    verified = cli.json("verify")
    assert any("erased" in sentence for sentence in verified["proved"])


def test_digests_are_taken_with_and_without_their_prefix(cli: Cli) -> None:
    digest = cli.json("show", "done")["payload"]["digest"]
    other = cli.json("show", "broken")["payload"]["digest"].removeprefix("sha256:")
    out = cli("erase", digest, other, "--reason", "GDPR_REQUEST").out
    assert out.startswith("erased 2 pieces of content, ")
    assert digest in out


def test_bad_requests_are_refused(cli: Cli) -> None:
    digest = "sha256:" + "0" * 64
    for arguments, said in (
        ((), "name digests, or a job"),
        ((digest, "--job", "done"), "name digests, or a job"),
        ((digest,), "no content with the digest"),
        (("abc",), "not a digest"),
        (("--job", "nix"), "there is no job"),
        (("--job", "waiting"), "still needs its payload"),
        (("--job", "done", "--reason", "because"), "reason_code"),
    ):
        result = cli("erase", *arguments)
        assert (result.code, said in result.err) == (2, True), result


def test_an_owner_at_work_records_it(cli: Cli) -> None:
    """X-172"""
    with cli.played.session():
        assert len(cli.json("erase", "--job", "done")["erased"]) == 2
