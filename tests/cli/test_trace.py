"""`detent trace`: the decisions of a run or of the whole ledger, as lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import cbor2
import pytest

from detent.kernel import Finish
from detent.kernel.outcome import STATUSES
from tests.cli.conftest import Cli
from tests.homes import Hand


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def items_of(data: bytes) -> Iterator[dict[str, Any]]:
    stream = BytesIO(data)
    while stream.tell() < len(data):
        yield cbor2.load(stream)


def refuse_one(cli: Cli) -> None:
    """Finish a job of run-2, then contradict the result: a request that is refused."""
    with cli.played.session() as session:
        hand = Hand(cli.played.home, session)
        grant = hand.claim()
        hand.succeed(grant)
        session.ask([Finish(0, grant.job_id, grant.lease_id, ok=False, reason_code="LATE")])


def test_a_trace_has_a_header_an_event_for_each_transition_and_an_end(cli: Cli) -> None:
    """PIPE-001, PIPE-012, PIPE-110, PIPE-111, PIPE-112, PIPE-113, X-060"""
    header, *events, commit, end = lines_of(cli("trace", "--all").out)
    assert (header["kind"], commit["kind"], end["kind"]) == ("run_header", "run_commit", "run_end")
    assert header["orchestrator_version"] == "UML_OS.Pipeline.Orchestrator_v1"
    assert header["queue_policy_hash"].startswith("sha256:")
    assert len(events) == cli.json("verify")["counts"]["transitions"]
    assert [event["t"] for event in events] == list(range(len(events)))
    assert {(event["kind"], event["status"]) for event in events} == {("iter", "COMMITTED")}
    assert (events[0]["job_id"], events[0]["from_state"], events[0]["to_state"]) == ("done", "QUEUED", "RUNNING")
    assert end["transition_log_hash"] == cli.json("verify")["transition_log_hash"]
    assert {line["replay_token"] for line in (header, *events, commit, end)} == {header["replay_token"]}


def test_the_header_has_the_six_things_that_a_replay_needs_and_the_token_that_follows_from_them(cli: Cli) -> None:
    """PIPE-011, PIPE-012, PIPE-014, X-051"""
    header = lines_of(cli("trace", "--all").out)[0]
    six = ("seed", "prng_family", "numeric_policy_id", "ordering_policy_id", "parallel_policy_id")
    assert [header[name] for name in six] == [
        0,
        "Philox4x32-10",
        "numeric/uint64-binary64-abort/v1",
        "ordering/job-id-transition-seq/v1",
        "parallel/priority-then-fifo/v1",
    ]
    hashes = [bytes.fromhex(header[f"{name}_policy_hash"].removeprefix("sha256:")) for name in ("environment", "queue")]
    parts = ["UML_OS.ReplayToken_v1", header["orchestrator_version"], *(header[name] for name in six), *hashes]
    assert header["replay_token"] == "sha256:" + sha256(cbor2.dumps(parts, canonical=True)).hexdigest()


def test_the_log_hash_is_that_of_the_jobs_heads_in_the_order_of_their_ids(cli: Cli) -> None:
    """PIPE-027, X-050: recomputed from what `detent show` says of each job"""
    jobs = [cli.json("show", job["job_id"]) for job in cli.json("list", "--jobs")]
    heads = [
        [job["job_id"], job["transition_seq"], bytes.fromhex(job["head"].removeprefix("sha256:"))]
        for job in sorted(jobs, key=lambda job: str(job["job_id"]).encode())
    ]
    expected = "sha256:" + sha256(cbor2.dumps(["log/v1", heads], canonical=True)).hexdigest()
    assert lines_of(cli("trace", "--all").out)[-1]["transition_log_hash"] == expected


def test_the_trace_of_a_run_names_its_commit_record(cli: Cli) -> None:
    """PIPE-113, X-059: by the hash over its four fields; a run that goes on has none."""
    *_, commit, end = lines_of(cli("trace", "run-1").out)
    bound = {
        name: bytes.fromhex(value.removeprefix("sha256:")) if str(value).startswith("sha256:") else value
        for name, value in commit.items()
        if name != "kind"
    }
    assert (bound["run_id"], bound["job_count"]) == ("run-1", 5)
    assert end["run_commit_record_hash"] == "sha256:" + sha256(cbor2.dumps(bound, canonical=True)).hexdigest()
    header, end = lines_of(cli("trace", "run-2").out)
    assert header["run_id"] == "run-2"
    assert "run_commit_record_hash" not in end


def test_the_trace_of_a_run_holds_its_own_jobs_alone(cli: Cli) -> None:
    refuse_one(cli)
    first, second = (lines_of(cli("trace", run).out) for run in ("first", "run-2"))
    assert {line["job_id"] for line in first if line["kind"] == "iter"} == {
        "done", "large", "broken", "slow", "dropped",
    }  # fmt: skip
    assert {line["job_id"] for line in second if line["kind"] == "iter"} == {"waiting"}
    assert {line["t"] for line in (*first, *second) if line["kind"] == "iter"} == set(range(16))


def test_a_refused_request_leaves_its_line_too(cli: Cli) -> None:
    """PIPE-110, X-058"""
    refuse_one(cli)
    events = [line for line in lines_of(cli("trace", "--all").out) if line["kind"] == "iter"]
    assert {event["status"] for event in events} <= set(STATUSES)
    assert [(event["job_id"], event["status"], event["reason_code"]) for event in events[-3:]] == [
        ("waiting", "COMMITTED", "DISPATCHED"),
        ("waiting", "COMMITTED", "COMPLETED"),
        ("waiting", "REFUSED", "LEASE_INVALID"),
    ]


def test_another_configuration_begins_with_a_header_of_its_own(cli: Cli) -> None:
    """PIPE-012, PIPE-111: an event stands under the policy that decided it."""
    path = cli.played.home.path / "config.toml"
    path.write_text(path.read_text().replace("capacity_total = 2560", "capacity_total = 2000"))
    refuse_one(cli)
    lines = lines_of(cli("trace", "--all").out)
    headers = [line for line in lines if line["kind"] == "run_header"]
    assert len({header["queue_policy_hash"] for header in headers}) == len(headers) == 2
    token = ""
    for line in lines:
        token = line["replay_token"] if line["kind"] == "run_header" else token
        assert line["replay_token"] == token
    assert [header["t"] for header in headers] == [0, 13]
    assert cli.json("compare", "--rank", "run-2")["ranking"][0]["values"] == [1]


def test_both_formats_hold_the_same_lines(cli: Cli, tmp_path: Path) -> None:
    """PIPE-110, X-047: the items are canonical CBOR"""
    cli.json("trace", "--all", "--output", "a.ndjson")
    document = cli.json("trace", "--all", "--output", "a.cbor", "--format", "cbor")
    data = (tmp_path / "a.cbor").read_bytes()
    items = list(items_of(data))
    assert data == b"".join(cbor2.dumps(item, canonical=True) for item in items)
    plain = [
        {name: f"sha256:{value.hex()}" if isinstance(value, bytes) else value for name, value in item.items()}
        for item in items
    ]
    assert plain == lines_of((tmp_path / "a.ndjson").read_text())
    assert document["size_bytes"] == len(data)
    assert (document["events"], document["committed"], document["jobs"]) == (13, 13, 6)


def test_a_file_that_exists_is_replaced_only_by_force(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text("mine")
    result = cli("trace", "--all", "--output", "a.ndjson")
    assert (result.code, "a.ndjson exists" in result.err, "--force" in result.err) == (2, True, True)
    assert (tmp_path / "a.ndjson").read_text() == "mine"
    assert "traced" in cli("trace", "--all", "--output", "a.ndjson", "--force").out
    assert (tmp_path / "a.ndjson").read_text().startswith('{"kind":"run_header"')
    assert cli("trace", "--all", "--output", "no/where").code == 4
    assert cli("trace", "--all", "--output", ".detent/a.ndjson").code == 2


def test_a_ledger_that_was_changed_has_no_trace(cli: Cli, tmp_path: Path) -> None:
    cli.played.edit(lambda database: database.execute("UPDATE records SET evidence = x'00' WHERE record_key = 9"))
    result = cli("trace", "--all", "--output", "a.ndjson")
    assert (result.code, "STORE_CORRUPT" in result.err, "detent replay" in result.err) == (4, True, True)
    assert not (tmp_path / "a.ndjson").exists()
    assert list(tmp_path.glob("*.new")) == []
    assert '"run_end"' not in cli("trace", "--all").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give either a RUN or --all"),
        (("run-1", "--all"), "give either a RUN or --all"),
        (("run-1", "-o", "json"), "--output"),
        (("nix",), "there is no run 'nix'"),
    ],
)
def test_what_cannot_be_traced_is_said(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    result = cli("trace", *arguments)
    assert (result.code, said in result.err) == (2, True)
