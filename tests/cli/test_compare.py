"""`detent compare`: two histories held against each other, and runs ranked by metrics."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from detent.canon import decode, encode
from detent.inspect.trace_lines import LINE_BYTES_MAX, LinesDigest, json_line, read_lines
from detent.kernel import Finish
from detent.kernel.policy import replay_token_of
from tests.cli.conftest import Cli
from tests.cli.project import Project, detent_home, project
from tests.homes import Hand, Played

__all__ = ["detent_home", "project"]


def write_all(cli: Cli) -> dict[str, list[str]]:
    """Every form of the whole ledger, and of run-1."""
    cli.json("export", "--output", "all.detent")
    cli.json("export", "run-1", "--output", "run.detent")
    for name, form in (("ndjson", "ndjson"), ("cbor", "cbor")):
        cli.json("trace", "--all", "--output", f"all.{name}", "--format", form)
        cli.json("trace", "run-1", "--output", f"run.{name}", "--format", form)
    return {
        "ledger": [".", ".detent", ".detent/ledger.db", "all.detent", "all.ndjson", "all.cbor"],
        "run": [".", "all.detent", "run.detent", "run.ndjson", "run.cbor"],
    }


def test_every_form_of_one_ledger_is_the_same(cli: Cli) -> None:
    """PIPE-114, PIPE-118, PIPE-120"""
    for left, right in product(write_all(cli)["ledger"], repeat=2):
        document = cli.json("compare", left, right)
        assert (document["same"], document["decisions"], document["log"]) == (True, "E0", "E0")
        assert document["difference"] is None
        assert document["left"]["transition_log_hash"] == document["right"]["transition_log_hash"]
        assert (document["left"]["transitions"], document["left"]["jobs"]) == (13, 6)


def test_a_side_that_holds_one_run_narrows_the_other_to_it(cli: Cli) -> None:
    """PIPE-120"""
    forms = write_all(cli)["run"]
    for left, right in product(forms, forms[2:]):
        document = cli.json("compare", left, right)
        assert document["same"]
        assert document["left"]["run_id"] == document["right"]["run_id"] == "run-1"
        assert document["left"]["jobs"] == 5
    assert cli.json("compare", ".", "all.detent", "--run", "first")["left"]["run_id"] == "run-1"
    result = cli("compare", "run.ndjson", "all.cbor")
    assert (result.code, "detent trace run-1" in result.err) == (2, True)


def test_without_a_second_side_it_is_compared_with_this_home(cli: Cli) -> None:
    write_all(cli)
    page = cli("compare", "run.cbor").out
    assert page.startswith("the same\n")
    assert "decisions  E0, identical: 13 transitions" in page


def fork(cli: Cli, tmp_path: Path) -> Played:
    """A second home with the same ledger, whose history goes on otherwise."""
    shutil.copytree(tmp_path / ".detent", tmp_path / "other" / ".detent")
    shutil.copytree(tmp_path / "state", tmp_path / "other" / "state", ignore=shutil.ignore_patterns("*.place"))
    return Played(type(cli.played.home)(tmp_path / "other" / ".detent"), tmp_path / "other" / "state")


def finish(played: Played, *, ok: bool) -> None:
    with played.session() as session:
        hand = Hand(played.home, session)
        grant = hand.claim()
        if ok:
            hand.succeed(grant)
        else:
            reason = {"reason_code": "BAD_INPUT", "category": "VALIDATION_ERROR"}
            hand.ask(Finish(0, grant.job_id, grant.lease_id, ok=False, **reason))  # type: ignore[arg-type]


def test_the_first_decision_that_differs_is_named_with_both_values(cli: Cli, tmp_path: Path) -> None:
    """PIPE-118, PIPE-120"""
    other = fork(cli, tmp_path)
    finish(cli.played, ok=True)
    finish(other, ok=False)
    result = cli("compare", ".", "other", "-o", "json")
    assert result.code == 1
    document = result.document
    assert (document["same"], document["decisions"], document["log"]) == (False, "different", "different")
    assert document["difference"] == {
        "job_id": "waiting",
        "transition_seq": 1,
        "field": "to_state",
        "left": "SUCCEEDED",
        "right": "FAILED",
        "missing": None,
    }
    cli.json("trace", "--all", "--output", "a.ndjson")
    result = cli("compare", "a.ndjson", "other")
    assert result.code == 1
    assert result.out.startswith("DIFFERENT\n")
    assert "first difference: job waiting, transition 1, field to_state\n  A  SUCCEEDED\n  B  FAILED" in result.out


def test_a_transition_that_one_side_lacks_is_named(cli: Cli, tmp_path: Path) -> None:
    """PIPE-120"""
    fork(cli, tmp_path)
    finish(cli.played, ok=True)
    result = cli("compare", "other", ".")
    assert result.code == 1
    assert "first difference: job waiting, transition 0 is missing in A" in result.out


def test_a_record_that_was_edited_is_found_by_its_field(cli: Cli, tmp_path: Path) -> None:
    """PIPE-118: the decision is the same, the record is not"""
    other = fork(cli, tmp_path)

    def edit(database: Any) -> None:
        for key, body in database.execute("SELECT record_key, body FROM records").fetchall():
            fields: Any = decode(body)
            if (fields.get("job_id"), fields.get("transition_seq")) == ("slow", 0):
                edited = encode({**fields, "evidence_ref": "sha256:" + "0" * 64})
                database.execute("UPDATE records SET body = ? WHERE record_key = ?", (edited, key))

    other.edit(edit)
    result = cli("compare", ".", "other", "-o", "json")
    assert (result.code, result.document["decisions"], result.document["log"]) == (1, "E0", "different")
    found = result.document["difference"]
    assert (found["job_id"], found["transition_seq"], found["field"]) == ("slow", 0, "evidence_ref")
    assert found["right"] == "sha256:" + "0" * 64


def test_only_the_hash_tells_a_trace_from_a_ledger_with_other_records(cli: Cli, tmp_path: Path) -> None:
    """PIPE-113, PIPE-118"""
    cli.json("trace", "--all", "--output", "a.ndjson")

    def change(line: dict[str, Any]) -> None:
        if line["kind"] == "run_end":
            line["transition_log_hash"] = bytes(32)

    rewrite(tmp_path / "a.ndjson", change)
    result = cli("compare", "a.ndjson", ".")
    assert result.code == 1
    assert "every decision is the same, but the records are not" in result.out
    document = cli("compare", "a.ndjson", ".", "-o", "json").document
    assert (document["decisions"], document["log"]) == ("E0", "different")
    assert document["difference"]["field"] == "transition_log_hash"


def test_histories_of_different_origin_are_not_compared(cli: Cli, tmp_path: Path) -> None:
    """PIPE-114: other ledgers, runs, jobs; the origin is read from the trace itself."""
    write_all(cli)
    cli("init", "--home", str(tmp_path / "second"))
    cli.json("trace", "run-2", "--output", "two.cbor", "--format", "cbor")
    with cli.played.session() as session:
        Hand(cli.played.home, session).submit("more", 7)
    for left, right, said in (
        ("second", "all.cbor", "they belong to different ledgers"),
        ("run.ndjson", "two.cbor", "they are about different runs"),
        ("all.ndjson", ".", "they have a different number of jobs (6 and 7)"),
    ):
        result = cli("compare", left, right, "-o", "json")
        assert (result.code, result.document["error"]["code"]) == (2, "NOT_COMPARABLE")
        assert said in result.document["error"]["message"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("orchestrator_version", "different versions of the orchestrator"),
        ("table_digest", "their states and transitions are not the same"),
        ("ledger", "they belong to different ledgers"),
        ("arrivals_digest", "another order of arrival"),
        ("manifest_signatures_digest", "their job manifests carry different signatures"),
        ("queue_policy_hash", "different queue policies"),
    ],
)
def test_a_trace_of_another_origin_is_refused_for_what_it_says(cli: Cli, tmp_path: Path, name: str, said: str) -> None:
    """PIPE-114: version, table, ledger, arrivals, manifests and policy, each read from the trace"""
    cli.json("trace", "--all", "--output", "a.ndjson")
    token = b""

    def change(line: dict[str, Any]) -> None:
        nonlocal token
        if name in line:
            line[name] = bytes(32) if isinstance(line[name], bytes) else "another"
        if line["kind"] == "run_header":
            ids = (line["numeric_policy_id"], line["ordering_policy_id"], line["parallel_policy_id"])
            said = (line["orchestrator_version"], line["seed"], line["prng_family"], ids)
            token = replay_token_of(*said, line["environment_policy_hash"], line["queue_policy_hash"])
        line["replay_token"] = token

    rewrite(tmp_path / "a.ndjson", change)
    result = cli("compare", "a.ndjson")
    assert (result.code, "NOT_COMPARABLE" in result.err, said in result.err) == (2, True, True)


# -- traces that are not what they should be -----------------------------------------------------------------------


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change lines of a trace as a program could that knows the format: the digest fits again."""
    with path.open("rb") as file:
        lines = list(read_lines(file))
    digest = LinesDigest()
    for line in lines:
        change(line)
        if line["kind"] == "run_end":
            line |= {"lines": digest.lines, "lines_digest": digest.digest()}
        else:
            digest.take(line)
    path.write_bytes(b"".join(map(json_line, lines)))


def test_a_trace_that_was_cut_is_refused_wherever_it_was_cut(cli: Cli, tmp_path: Path) -> None:
    cli.json("trace", "run-1", "--output", "a.ndjson")
    cli.json("trace", "run-1", "--output", "a.cbor", "--format", "cbor")
    for name in ("a.ndjson", "a.cbor"):
        data = (tmp_path / name).read_bytes()
        for size in (1, 100, len(data) // 2, len(data) - 200, len(data) - 1):
            (tmp_path / "cut").write_bytes(data[:size])
            result = cli("compare", "cut", "-o", "json")
            assert (result.code, result.document["error"]["code"]) == (2, "TRACE_INVALID"), (name, size)
    lines = (tmp_path / "a.ndjson").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut").write_bytes(b"".join(lines[:-1]))
    assert "the trace is cut off: there is no run_end" in cli("compare", "cut").err


def test_a_trace_that_was_edited_is_refused(cli: Cli, tmp_path: Path) -> None:
    cli.json("trace", "run-1", "--output", "a.ndjson")
    text = (tmp_path / "a.ndjson").read_text()
    for old, new, said in (
        ("CANCELLED_BY_USER", "CANCELLED_BY_USEL", "not those that run_end counts and digests"),
        ('"trace_version":1', '"trace_version":9', "of version 9"),
        ('"seed":0', '"seed":1', "does not follow from its fields"),
        ('"status":"COMMITTED"', '"status":"GRANTED"', "status cannot be 'GRANTED'"),
        ('"to_state":"CANCELED"', '"to_state":"QUEUED"', "which is not legal"),
        ('"t":3,', '"t":1,', "is not the next one"),
        ('"kind":"run_commit"', '"kind":"run_comment"', "unknown kind 'run_comment'"),
        ('"dispatch":true', '"dispatch":1', "dispatch cannot be 1"),
        ('"dispatch":true', '"dispatch":true,"more":1', "has the unknown field 'more'"),
        ('"dispatch":true,', "", "lacks dispatch"),
        ('"kind":"iter"', '"kind":"iter","kind":"iter"', "has the key 'kind' twice"),
        ('"job_id":"done"', '"job_id":"do\\u0000e"', "must not contain control characters"),
        ('"batch_id":"sha256:', '"batch_id":"md5:', "batch_id is not a digest"),
        ('"tick":17', '"tick":-17', "tick cannot be -17"),
        ('"tick":17', '"tick":1.7e', "tick cannot be"),
    ):
        assert old in text
        (tmp_path / "edited").write_text(text.replace(old, new, 1))
        result = cli("compare", "edited")
        assert (result.code, "TRACE_INVALID" in result.err, said in result.err) == (2, True, True), (old, result.err)
    lines = text.splitlines(keepends=True)
    for edited in ([*lines, lines[-1]], [lines[1], lines[0], *lines[2:]], lines[1:], [*lines[:3], *lines[4:]]):
        (tmp_path / "edited").write_text("".join(edited))
        assert "TRACE_INVALID" in cli("compare", "edited").err


@pytest.mark.parametrize(
    "data",
    [
        b"{" + b" " * (LINE_BYTES_MAX + 10) + b"}\n",
        b"{}\n",
        b"{\xff}\n",
        b"{" * 5_000 + b"\n",
        b"\xa0",
        b"\xbb" + b"\xff" * 8,
        b"\xa1\x64kind\x5b" + b"\xff" * 8,
        b"\xa1\x64kind\xa1\x00\x00",
        b"\xa1\x64kind\x7f",
        b"\xa1\x64kind\x78\x03abc",
        b"\xbb" + b"\xff" * 8 + b"\x60" * (3 * LINE_BYTES_MAX),
        b"\xff\xff",
    ],
)
def test_a_hostile_file_is_refused_within_its_bounds(cli: Cli, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "hostile").write_bytes(data)
    result = cli("compare", "hostile", "-o", "json")
    assert (result.code, result.document["error"]["code"]) == (2, "TRACE_INVALID")


def test_what_is_neither_a_home_nor_a_bundle_nor_a_trace_is_said(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"Yet another text")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for name in ("text", "empty", "nix", "folder"):
        result = cli("compare", name)
        assert (result.code, name in result.err, "INVALID_PARAMS" in result.err) == (2, True, True)
    cli.json("export", "--output", "all.detent")
    data = (tmp_path / "all.detent").read_bytes()
    (tmp_path / "cut.detent").write_bytes(data[:-100])
    result = cli("compare", "cut.detent")
    assert (result.code, "cannot be read" in result.err, "detent verify" in result.err) == (2, True, True)
    for arguments in (("a", "b", "c"), (".", "--by", "retries"), ("--rank", "run-1", "--run", "run-1")):
        assert cli("compare", *arguments).code == 2


# -- ranking -------------------------------------------------------------------------------------------------------


def test_runs_are_ranked_by_their_ambiguous_transitions_the_fewest_first(cli: Cli) -> None:
    """PIPE-006, PIPE-007, PIPE-008"""
    assert [(row["rank"], row["run_id"]) for row in cli.json("compare", "--rank", "run-2", "run-1")["ranking"]] == [
        (1, "run-2"),
        (1, "run-1"),
    ]
    with cli.played.session() as session:
        hand = Hand(cli.played.home, session)
        grant = hand.claim()
        hand.succeed(grant)
        session.ask([Finish(0, grant.job_id, grant.lease_id, ok=False, reason_code="LATE")])
    document = cli.json("compare", "--rank", "run-2", "run-1")
    assert (document["sense"], document["objective_type"]) == ("MINIMIZE", "Scalar")
    assert document["metrics"] == ["ambiguous_transitions"]
    assert [(row["rank"], row["run_id"], row["values"]) for row in document["ranking"]] == [
        (1, "run-1", [0]),
        (2, "run-2", [1]),
    ]
    cli.json("trace", "run-2", "--output", "two.cbor", "--format", "cbor")
    rows = cli.json("compare", "--rank", "two.cbor", "first", "--by", "ambiguous_transitions,retries")["ranking"]
    assert [(row["run_id"], row["values"]) for row in rows] == [("run-1", [0, 1]), ("run-2", [1, 0])]


def test_what_is_not_finite_ranks_last(cli: Cli) -> None:
    """PIPE-009: run-2 has not ended, and none of its jobs has"""
    rows = cli.json("compare", "--rank", "run-2", "run-1", "--by", "duration_ms")["ranking"]
    assert [(row["run_id"], row["values"]) for row in rows] == [("run-1", [40_000]), ("run-2", ["Infinity"])]
    rows = cli.json("compare", "--rank", "run-2", "run-1", "--by", "job_failure_rate,duration_ms")["ranking"]
    assert [(row["run_id"], row["values"]) for row in rows] == [
        ("run-1", [0.4, 40_000]),
        ("run-2", ["NaN", "Infinity"]),
    ]
    assert "run-2  NaN" in cli("compare", "--rank", "run-2", "run-1", "--by", "job_failure_rate").out


def test_runs_are_ranked_by_what_their_steps_returned(project: Project) -> None:
    """PIPE-006, PIPE-008, PIPE-009, PIPE-021, PIPE-022, X-053, X-054: the smallest loss first, and a run without one last.

    Values in one bucket of 1e-10 tie; two on both sides of an edge do not, however close, and that is said.
    """
    project.write("training.py", "def train(loss):\n    return {'scores': {'loss': loss}, 'text': 'x'}\n")
    runs = {}
    for name, loss in (
        ("far", "0.75"),
        ("edge", "0.50000000006"),
        ("near", "0.50000000004"),
        ("base", "0.5"),
        ("none", "x"),
    ):
        project.write(
            f"{name}.yaml",
            f"name: {name}\nsteps: [{{id: train, run: {{python: 'training:train', with: {{loss: {loss}}}}}}}]\n",
        )
        runs[project.run(f"{name}.yaml")["run_id"]] = name
    metric = "result:train.scores.loss"
    document = project.json("compare", "--rank", *runs, "--by", metric)
    assert [(row["rank"], runs[row["run_id"]], row["close_to_previous"]) for row in document["ranking"]] == [
        (1, "near", False),
        (1, "base", False),
        (3, "edge", True),
        (4, "far", False),
        (5, "none", False),
    ]
    assert document["ranking"][-1]["values"] == ["NaN"]
    assert "within 1e-10 of the run before it" in project("compare", "--rank", *runs, "--by", metric).out
    for path in ("result:nix", "result:train", "result:train.text", "result:train.scores.loss.deeper"):
        assert project.json("compare", "--rank", next(iter(runs)), "--by", path)["ranking"][0]["values"] == ["NaN"]
    tied = project.json("compare", "--rank", *runs, "--by", f"retries,{metric}")["ranking"]
    assert [runs[row["run_id"]] for row in tied] == ["near", "base", "edge", "far", "none"]
    project.json("trace", "far", "--output", "far.ndjson")
    refused = project("compare", "--rank", "far.ndjson", "--by", metric)
    assert (refused.code, "a trace, which holds no results" in refused.err) == (2, True)


def test_what_cannot_be_ranked_is_said(cli: Cli) -> None:
    cli.json("trace", "--all", "--output", "all.ndjson")
    for arguments, said in (
        (("run-1", "--by", "beauty"), "there is no metric 'beauty'"),
        (("run-1", "--by", "result:"), "there is no metric 'result:'"),
        (("run-1", "--by", "retries,retries"), "give each metric once"),
        (("nix",), "there is no run 'nix'"),
        (("all.ndjson",), "the trace of a whole ledger"),
    ):
        result = cli("compare", "--rank", *arguments)
        assert (result.code, said in result.err) == (2, True)
    cli.played.edit(lambda database: database.execute("UPDATE records SET evidence = x'00' WHERE record_key = 9"))
    assert cli("compare", "--rank", "run-1").code == 4


def test_the_lines_of_a_trace_are_one_json_object_each(cli: Cli, tmp_path: Path) -> None:
    """A job's name reaches no terminal as it is."""
    with cli.played.session() as session:
        Hand(cli.played.home, session).submit("job-\u202f\u00e9", 7)
    out = cli("trace", "--all").out
    assert out.isascii()
    assert all(isinstance(json.loads(line), dict) for line in out.splitlines())
