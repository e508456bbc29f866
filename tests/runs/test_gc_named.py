"""What a record names through content is kept: files of reports, files in values and orders; and found once that is erased."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from detent.access.changes import Change, local_principal
from detent.canon import digest_text, encode, json_digest, json_encode, sha256
from detent.errors import InvalidInput, StoreCorrupt
from detent.inspect.audit import verify_home
from detent.jobs.elements import SUCCEEDED, Elements
from detent.jobs.order import Call, Order
from detent.jobs.values import escaped
from detent.jobs.work import WorkFile, WorkStream
from detent.kernel import Finish, Grant, Operate, StartRun
from detent.ledger import sign_result
from detent.ledger.loose import written_digests
from detent.owner.content import GC_GRACE_MS, Content, referenced_digests, seal_value
from detent.owner.operating import commit, operate
from detent.owner.wiring import Parts
from detent.runs.erasable import digests_of_job
from detent.runs.erase import Collected, collect, erase, erase_job, erase_scheduled
from tests.flat_reports import flat_report
from tests.homes import TENANT, Hand, Played, fresh

ARTIFACT = b"the plot" * 5_000
MAKER = "maker"


def report_bytes(grant: Grant, **said: object) -> bytes:
    report = flat_report(
        job_id=grant.job_id,
        attempt_id=grant.attempt_id,
        lease_id=grant.lease_id,
        manifest_hash=grant.job_manifest_hash,
        status="SUCCEEDED",
        nonce=bytes(16),
        **said,
    )
    return report.body()


def finish(hand: Hand, grant: Grant, body: bytes) -> bytes:
    digest, inline = hand.stage(sign_result(body, hand._result_key).envelope())
    hand.ask(Finish(0, grant.job_id, grant.lease_id, detail_digest=digest), inline)
    return digest


def claim(hand: Hand, job_id: str) -> Grant:
    """The lease of one job; those that wait before it are finished."""
    while True:
        grant = hand.claim()
        if grant.job_id == job_id:
            return grant
        hand.succeed(grant)


def reported(played: Played, body: Callable[[Grant], bytes], payload: object = None) -> bytes:
    """Have a job done whose report is the given one; gives back the report's digest."""
    with played.session() as session:
        hand = Hand(played.home, session)
        hand.submit(MAKER, payload)
        grant = claim(hand, MAKER)
        return finish(hand, grant, body(grant))


def collected(played: Played) -> Collected:
    """What is collected when every file has passed its grace."""
    files = played.home.content_files()
    latest = max((files.path(digest).stat().st_mtime_ns for digest in files.digests()), default=0)
    return collect(played.home, now_ms=lambda: latest // 1_000_000 + GC_GRACE_MS)


def file_value(digest: bytes) -> dict[str, object]:
    return {"$file": digest_text(digest), "size": len(ARTIFACT), "name": "plot.png", "type": "image/png"}


def with_value(value: object) -> dict[str, object]:
    stored = json_encode(value)
    return {"value": stored, "value_digest": json_digest(stored)}


NAMED_BY_REPORT: dict[str, Callable[[bytes], dict[str, object]]] = {
    "file": lambda digest: {"files": (WorkFile("plot.png", digest, len(ARTIFACT)),)},
    "stdout": lambda digest: {"stdout": WorkStream(content=digest)},
    "stderr": lambda digest: {"stderr": WorkStream(content=digest, truncated=True)},
    "value": lambda digest: {"value_content": digest, "value_digest": bytes(32)},
    "file in a value": lambda digest: with_value({"plots": [file_value(digest)]}),
}


def job_digests(played: Played) -> list[bytes]:
    with Parts().open_reader(played.home.ledger) as reader:
        return list(digests_of_job(reader, MAKER))


def payload_of(played: Played) -> bytes:
    return job_digests(played)[0]


@pytest.mark.parametrize("kind", NAMED_BY_REPORT)
def test_what_a_signed_report_names_is_kept_and_goes_with_the_report_or_with_its_job(tmp_path: Path, kind: str) -> None:
    """X-171: no record holds the digest, but a record names the report that does; with the job it goes at once."""
    played = fresh(tmp_path)
    files = played.home.content_files()
    digest = files.put(ARTIFACT)
    reported(played, lambda grant: report_bytes(grant, **NAMED_BY_REPORT[kind](digest)))
    assert collected(played).garbage == ()
    assert files.get(digest) == ARTIFACT
    assert digest in erase_job(played.home, MAKER, environment=played.environment, dry_run=True).erased
    (report,) = [each for each in job_digests(played) if each != payload_of(played)]
    erase(played.home, [report], environment=played.environment)
    assert collected(played).garbage == ((digest, "file"),)
    assert not files.has(digest)
    assert verify_home(played.home, environment=played.environment).ok


@pytest.mark.parametrize("padding", [0, 900_000, 2_500_000], ids=["database", "file", "several pieces"])
def test_files_in_a_value_that_is_content_of_its_own_are_kept(tmp_path: Path, padding: int) -> None:
    played = fresh(tmp_path)
    files = played.home.content_files()
    digest = files.put(ARTIFACT)
    value = json_encode(["x" * padding, file_value(digest)])
    with played.session() as session:
        hand = Hand(played.home, session)
        hand.submit(MAKER)
        grant = claim(hand, MAKER)
        named, inline = hand.stage(value)
        body = report_bytes(grant, value_content=named, value_digest=json_digest(value))
        envelope, more = hand.stage(sign_result(body, hand._result_key).envelope())
        hand.ask(Finish(0, grant.job_id, grant.lease_id, detail_digest=envelope), (*inline, *more))
    assert collected(played).garbage == ()
    erase(played.home, [envelope], environment=played.environment)
    assert {found for found, _ in collected(played).garbage} == {digest, named}


def test_files_in_large_and_small_values_of_elements_are_kept(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    files = played.home.content_files()
    small, large = files.put(ARTIFACT), files.put(ARTIFACT + b"2")
    value = json_encode(["x" * 9000, file_value(large)])
    with played.session() as session:
        hand = Hand(played.home, session)
        hand.submit(MAKER)
        grant = claim(hand, MAKER)
        named, inline = hand.stage(value)
        elements = Elements(
            bytes([SUCCEEDED] * 2),
            [json_encode(file_value(small)), None],
            [1, 1],
            [1, 1],
            contents={1: [named, json_digest(value)]},
        )
        body = report_bytes(grant, elements=elements, elements_root=elements.root())
        envelope, more = hand.stage(sign_result(body, hand._result_key).envelope())
        hand.ask(Finish(0, grant.job_id, grant.lease_id, detail_digest=envelope), (*inline, *more))
    assert collected(played).garbage == ()
    erase(played.home, [envelope], environment=played.environment)
    assert {found for found, _ in collected(played).garbage} == {small, large, named}


def test_files_in_the_arguments_of_an_order_are_kept_while_its_payload_is(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    files = played.home.content_files()
    digests = [files.put(ARTIFACT + b"%d" % number) for number in range(3)]
    first, second, third = (file_value(digest) for digest in digests)
    call = Call(
        kind="python",
        target={"module": "m", "data": third},
        arguments=([first],),
        keywords={"deep": {"er": second}},
    )
    order = Order(call, "l")
    assert [*order.call.files()] == [digest_text(digest) for digest in digests]
    with played.session() as session:
        hand = Hand(played.home, session)
        hand.submit(MAKER, order.document())
        hand.succeed(claim(hand, MAKER))
    assert collected(played).garbage == ()
    erased = erase_job(played.home, MAKER, environment=played.environment).erased
    assert not any(map(files.has, digests))
    assert {*digests} <= {*erased}
    assert collected(played).garbage == ()
    assert verify_home(played.home, environment=played.environment).ok


def test_files_in_the_inputs_of_a_run_are_kept(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    digest = played.home.content_files().put(ARTIFACT)
    sealed = seal_value({"params": {"data": file_value(digest)}}, bytes(16))
    with played.session() as session:
        hand = Hand(played.home, session)
        inputs, inline = hand.stage(sealed)
        hand.ask(StartRun(0, TENANT, "run-3", "third", bytes(32), bytes(32), inputs, "op-3"), inline)
    assert collected(played).garbage == ()


def test_artifacts_in_a_platform_jobs_result_are_kept(tmp_path: Path) -> None:
    """They are named by digest in the result's own JSON, whatever form of report carries it."""
    played = fresh(tmp_path)
    digest = played.home.content_files().put(ARTIFACT)
    result = json_encode({"artifacts": [{"digest": digest_text(digest)}]})
    reported(played, lambda grant: encode({"version": 1, "job_id": grant.job_id, "result": result}))
    assert collected(played).garbage == ()


def test_content_that_is_neither_value_nor_report_names_nothing(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    digest = played.home.content_files().put(ARTIFACT)
    reported_plain = encode({"note": digest_text(digest), "digest": digest})
    with played.session() as session:
        hand = Hand(played.home, session)
        hand.submit_bytes(MAKER, reported_plain)
        hand.succeed(claim(hand, MAKER))
    assert collected(played).garbage == ((digest, "file"),)


def test_a_key_of_the_users_own_that_looks_like_a_file_does_no_harm(tmp_path: Path) -> None:
    """Whatever is in a value, collecting goes on; a digest in it is kept rather than lost."""
    played = fresh(tmp_path)
    reported(
        played,
        lambda grant: report_bytes(grant, **with_value(escaped({"$file": 3}))),
        payload={"$file": ["no digest"], "$result": None},
    )
    assert collected(played).garbage == ()


def test_young_files_stay_whatever_names_them(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    files = played.home.content_files()
    digest = files.put(ARTIFACT)
    moment = files.path(digest).stat().st_mtime_ns // 1_000_000 + GC_GRACE_MS
    assert collect(played.home, now_ms=lambda: moment - 1).garbage == ()
    assert collect(played.home, now_ms=lambda: moment).garbage == ((digest, "file"),)


def test_nothing_is_collected_while_a_report_is_damaged(tmp_path: Path) -> None:
    """What it named is unknown."""
    played = fresh(tmp_path)
    files = played.home.content_files()
    digest = files.put(ARTIFACT)
    streams = WorkStream(data=b"x" * 20_000)
    report = reported(
        played, lambda grant: report_bytes(grant, stdout=streams, files=(WorkFile("plot", digest, len(ARTIFACT)),))
    )
    files.path(report).write_bytes(b"damaged")
    with pytest.raises(StoreCorrupt, match="does not hold the bytes"):
        collected(played)
    assert files.has(digest)
    erase(played.home, [report], environment=played.environment)
    assert collected(played).garbage == ((digest, "file"),)


def test_an_artifact_of_any_size_is_not_read_to_see_what_it_names(tmp_path: Path) -> None:
    """A file of gigabytes may be a payload; only its size is looked at."""
    played = fresh(tmp_path)
    files = played.home.content_files()
    large = sha256(b"never read")
    path = files.path(large)
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(1 << 33)
    with Parts().open_reader(played.home.ledger) as reader:
        assert list(Content(reader, files).named_by(large)) == []


def test_an_erased_file_that_a_later_report_names_again_is_not_swept(tmp_path: Path) -> None:
    """Finishing an interrupted erasure takes only what nothing has named since."""
    played = fresh(tmp_path)
    files = played.home.content_files()
    digest = files.put(ARTIFACT)
    erase(played.home, [digest], environment=played.environment)
    files.put(ARTIFACT)
    with Parts().open_reader(played.home.ledger) as reader:
        assert Content(reader, files).sweep() == 1
    files.put(ARTIFACT)
    with played.session() as session:
        hand = Hand(played.home, session)
        files.put(ARTIFACT)  # opening the session swept it
        hand.submit(MAKER)
        grant = claim(hand, MAKER)
        finish(hand, grant, report_bytes(grant, files=(WorkFile("plot.png", digest, len(ARTIFACT)),)))
    with Parts().open_reader(played.home.ledger) as reader:
        assert Content(reader, files).sweep() == 0
        assert digest in set(referenced_digests(Content(reader, files)))
    assert files.get(digest) == ARTIFACT


def test_an_erased_file_that_only_an_earlier_report_names_is_swept(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    files = played.home.content_files()
    digest = files.put(ARTIFACT)
    reported(played, lambda grant: report_bytes(grant, files=(WorkFile("plot.png", digest, len(ARTIFACT)),)))
    erase(played.home, [digest], environment=played.environment)
    files.put(ARTIFACT)  # as if the crash had come between the record and the removal
    with Parts().open_reader(played.home.ledger) as reader:
        assert Content(reader, files).sweep() == 1


@pytest.mark.parametrize("cut", [1, 3, 40, 70, 71, 10_000])
def test_written_digests_are_found_across_pieces_and_each_once(cut: int) -> None:
    named = [sha256(b"%d" % number) for number in range(5)]
    text = b'["' + b'","'.join(digest_text(digest).encode() for digest in named) + b'","sha256:00","sha256:'
    pieces = [text[start : start + cut] for start in range(0, len(text), cut)]
    assert list(written_digests(pieces)) == named


def test_what_a_schedule_runs_is_kept_with_its_files_and_its_tree_until_it_is_deleted(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    home, files = played.home, played.home.content_files()
    artifact = files.put(ARTIFACT)
    tree = home.path / "trees" / ("ab" * 32)
    tree.mkdir(parents=True)
    os.utime(tree, (0, 0))
    inputs = {"version": 1, "base": str(tree), "params": {"plot": file_value(artifact)}, "about": {}}
    sealed = seal_value(inputs, bytes(16))
    said = {"name": "n", "schedule": {"every": "1h"}, "inputs": sha256(sealed), "options": {}, "since_ms": 0}
    who = local_principal("home", TENANT)

    def command(action: str, parameters: dict[str, object]) -> Operate:
        change = Change(f"schedule.{action}", "schedule", "sch_a", TENANT, parameters)
        return operate(who, change, request_id="req_1", route="test")

    with played.session() as session:
        commit(session, [command("create", said)], content=[(sha256(sealed), sealed)])
    assert collected(played) == Collected((), 0, 0)
    assert tree.is_dir()
    with pytest.raises(InvalidInput, match="schedule sch_a of workspace demo runs it"):
        erase(home, [sha256(sealed)], environment=played.environment)
    gone = erase_scheduled(home, sha256(sealed), environment=played.environment, behind=[command("delete", {})])
    assert gone.erased == (sha256(sealed),)
    assert [digest for digest, _ in collected(played).garbage] == [artifact]
    assert not tree.exists()
    assert verify_home(home, environment=played.environment).ok


def test_verify_misses_what_a_schedule_runs_when_it_is_gone_without_an_erasure(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    said = {"name": "n", "schedule": {"every": "1h"}, "inputs": bytes(range(32)), "options": {}, "since_ms": 0}
    change = Change("schedule.create", "schedule", "sch_a", TENANT, said)
    with played.session() as session:
        commit(session, [operate(local_principal("home", TENANT), change, request_id="req_1", route="test")])
    report = verify_home(played.home, environment=played.environment)
    assert [finding.code for finding in report.findings] == ["CONTENT_MISSING"]
