"""An ordered run from its first item to its summary: order, outcomes, policies, and what is on the ledger afterwards."""

from __future__ import annotations

import json
from uuid import RFC_4122, UUID

import pytest

from detent.canon import digest_text, json_digest, json_encode
from detent.errors import InvalidInput
from detent.jobs.order import Retries
from detent.kernel import Run
from detent.kernel.identity import id_in_run
from detent.ordered import ChunkOutcomes, ItemProof, SeqState, chunk_job_id
from detent.ordered.actions import BlockTree
from detent.ordered.digests import item_bytes
from detent.runs.ordered.notes import note, notes_of
from detent.runs.ordered.recovery import envelopes_of
from tests.homes import retry_at_once
from tests.ordered.scenes import plan_chunks
from tests.runs.ordered.rig import ListTarget, OrderedRig, lines


def test_results_are_committed_in_order_each_once(rig: OrderedRig) -> None:
    """ORD-036."""
    target = ListTarget()
    result = rig.map(range(100), "square", target, window=16, chunk=4)
    assert target.values == [x * x for x in range(100)]
    assert target.seqs == list(range(100))
    assert (result.status, result.summary.total, result.summary.success) == ("completed", 100, 100)


def test_a_chunk_is_one_kernel_job_named_by_its_seqs(rig: OrderedRig) -> None:
    """ORD-053, X-183: a job of kind ``seq`` for each chunk, its id from run and seqs."""
    result = rig.map(range(10), window=4, chunk=3)
    jobs = {row.job_id: row for row in rig.jobs(result.run_id) if "/seq-" in row.job_id}
    with rig.reader() as reader:
        partitions = reader.partitions
    planned = [chunk_job_id(result.run_id, *chunk, partitions) for chunk in plan_chunks(10, 4, 3)]
    assert sorted(jobs) == sorted(planned)
    assert {rig.job(job_id).job_kind for job_id in jobs} == {"seq"}


def test_a_run_has_an_operation_id_like_any_other(rig: OrderedRig) -> None:
    rig.map(range(2))
    rig.map(range(3))
    with rig.work() as work:
        ids = [UUID(Run.decode(row.body).operation_id) for row in work.backend.reader.runs()]
    assert len(set(ids)) == 2
    assert {(one.version, one.variant) for one in ids} == {(4, RFC_4122)}


@pytest.mark.parametrize("total", [0, 1, 2])
def test_no_item_and_few_items_are_runs_like_any_other(rig: OrderedRig, total: int) -> None:
    """ORD-008: nothing to do is done at once."""
    target = ListTarget()
    result = rig.map(range(total), "square", target)
    assert (result.status, target.values) == ("completed", [x * x for x in range(total)])


def test_equal_items_are_different_entries(rig: OrderedRig) -> None:
    target = ListTarget()
    rig.map(["a", "a", "a"], target=target)
    assert target.seqs == [0, 1, 2]


def test_a_skip_is_committed_without_a_write(rig: OrderedRig) -> None:
    """X-074, ORD-033: the verdict of the function."""
    target = ListTarget()
    result = rig.map(range(10), "odd_only", target, window=4, chunk=2)
    assert target.seqs == [1, 3, 5, 7, 9]
    assert (result.summary.success, result.summary.skip, result.ok) == (5, 5, True)


def test_a_filter_skips_before_anything_is_computed(rig: OrderedRig) -> None:
    """X-074."""
    target = ListTarget()
    result = rig.map(range(10), "thirteenth", target, filter="steps.py:is_even")
    assert (target.seqs, result.summary.skip) == ([0, 2, 4, 6, 8], 5)


def test_a_failure_that_goes_on_is_one_items_failure(rig: OrderedRig) -> None:
    """ORD-033: the rest is committed, and the failed one is told with its reason."""
    target = ListTarget()
    result = rig.map(range(20), "thirteenth", target, on_error="continue", window=8, chunk=4)
    assert target.seqs == [seq for seq in range(20) if seq != 13]
    (failure,) = result.failures
    assert (failure.seq, failure.code, failure.type, failure.message) == (
        13,
        "PYTHON_EXCEPTION",
        "ValueError",
        "thirteen",
    )
    assert 'raise ValueError("thirteen")' in (failure.traceback or "")
    assert "chunk.py" not in (failure.traceback or "")
    assert (result.status, result.summary.failures) == ("failed", {"PYTHON_EXCEPTION": 1})


def test_a_failure_that_stops_cuts_behind_the_next_window(rig: OrderedRig) -> None:
    """The boundary follows from the failed seq and the window alone: the end of the window after its own."""
    target = ListTarget()
    result = rig.map(range(100), "thirteenth", target, window=8, chunk=2)
    assert result.status == "failed"
    assert (result.summary.success, result.summary.fail, result.summary.cancel) == (23, 1, 76)
    assert target.seqs == [seq for seq in range(24) if seq != 13]
    assert (
        max(
            int(row.job_id.partition("~")[0].split("-")[-1]) for row in rig.jobs(result.run_id) if "/seq-" in row.job_id
        )
        < 24
    )


def test_the_summary_is_the_same_for_every_cut_of_the_same_items(rig: OrderedRig) -> None:
    """ORD-035, X-077: neither windows nor chunks nor the number of tries are in it."""
    digests = {
        rig.map(range(50), "odd_only", window=window, chunk=chunk).summary.digest()
        for window, chunk in ((50, 1), (7, 3), (64, 50), (1, 1))
    }
    assert len(digests) == 1


@pytest.mark.usefixtures("detent_clock")
def test_an_item_that_fails_is_tried_again_by_the_kernel(rig: OrderedRig) -> None:
    """ORD-024, ORD-013, X-072: the same seq, and the run counts the attempts that the kernel does."""
    target = ListTarget()
    rig.time_passes()
    with rig.work() as work:
        retries = Retries(3, ("USER_CODE_ERROR",))
        handle = rig.ordered(work, range(3), "once", target, chunk=1, retries=retries)
        result = handle.run()
        assert handle._driver is not None
        assert list(handle._driver.ordered.ledger.attempts) == [1, 1, 1]
    assert (result.status, target.values) == ("completed", [0, 1, 2])
    assert {rig.job(row.job_id).attempt_id for row in rig.jobs(result.run_id) if "/seq-" in row.job_id} == {1}


def test_a_failure_stays_one_when_the_tries_are_used_up(rig: OrderedRig) -> None:
    """ORD-026: the last attempt says which item it was; the others of its chunk succeed."""
    target = ListTarget()
    retry_at_once(rig.home.home)
    with rig.pool() as work:
        retries = Retries(2, ("USER_CODE_ERROR",))
        said = {"chunk": 6, "retries": retries, "on_error": "continue"}
        result = rig.ordered(work, range(10, 16), "thirteenth", target, **said).run()
    assert (target.values, result.summary.fail) == ([10, 11, 12, 14, 15], 1)
    with rig.reader() as reader:
        job_id = id_in_run(result.run_id, "seq-0-5", reader.partitions)
    assert rig.job(job_id).attempt_id == 2


@pytest.mark.parametrize(
    ("compute", "code"), [("leaves", "EXITED"), ("not_json", "RESULT_NOT_JSON"), ("no_such", "IMPORT_FAILED")]
)
def test_what_a_function_may_do_wrong_has_a_code(rig: OrderedRig, compute: str, code: str) -> None:
    with rig.pool() as work:
        result = rig.ordered(work, range(2), compute, ListTarget(), on_error="continue").run()
    assert [one.code for one in result.failures] == [code, code]


def test_a_coroutine_is_awaited(rig: OrderedRig) -> None:
    target = ListTarget()
    rig.map(range(3), "later", target)
    assert target.values == [1, 2, 3]


# -- what is on the ledger ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compute", ["odd_only", "same"])
def test_every_item_is_provable_against_the_root_of_its_chunk(rig: OrderedRig, compute: str) -> None:
    """X-183: one root for a chunk, and each item still by itself; the worker's leaves are those of `ChunkOutcomes`."""
    with rig.work() as work:
        result = rig.ordered(work, range(10), compute, ListTarget(), window=10, chunk=5).run()
        for chunk in plan_chunks(10, 10, 5):
            ended = envelopes_of(work.backend, result.run_id, chunk)
            found = work.backend.report_of(chunk_job_id(result.run_id, *chunk, work.backend.partitions))
            assert found is not None
            root = bytes.fromhex(json.loads(work.backend.value_bytes(found[1]) or b"")["root"])
            outcomes = ChunkOutcomes(chunk.first, [(one.outcome, one.payload_digest) for one in ended])
            assert outcomes.root() == root
            proof = outcomes.prove(chunk.last)
            assert proof.proves(root)
            assert not ItemProof(proof.seq, SeqState.TERMINAL_FAIL, None, proof.index, proof.size, proof.path).proves(
                root
            )
            assert ended[1 - chunk.first % 2].payload_digest == json_digest(
                json_encode(chunk.first + 1 - chunk.first % 2)
            )


def test_the_notes_tile_the_run_and_name_what_was_committed(rig: OrderedRig) -> None:
    """ORD-052: a stranger reads off the ledger which items were committed, in which order, and to which root."""
    with rig.work() as work:
        result = rig.ordered(work, range(40), "odd_only", ListTarget(), window=8, chunk=4).run()
        names = [name for name in notes_of(work.backend.reader, result.run_id) if name.kind == "commit"]
        names.sort(key=lambda name: name.first)
        assert [name.first for name in names] == [0, *(name.last + 1 for name in names[:-1])]
        assert names[-1].last == 39
        tree = BlockTree()
        for name in names:
            said = note(work.backend, result.run_id, f"commit-{name.first}-{name.last}")
            for chunk in plan_chunks(40, 8, 4):
                if name.first <= chunk.first <= name.last:
                    ended = envelopes_of(work.backend, result.run_id, chunk)
                    tree.extend(
                        [item_bytes(seq, one.outcome, one.payload_digest) for seq, one in enumerate(ended, chunk.first)]
                    )
            assert said["root"] == tree.root().hex()
            assert said["mark"] == {"next_seq": name.last + 1}
        summary = note(work.backend, result.run_id, "summary")
    assert tree.root() == result.summary.root
    assert summary["digest"] == result.summary.digest().hex()
    assert (summary["total"], summary["success"], summary["skip"]) == (40, 20, 20)


def test_a_note_is_one_commit_and_never_waits_in_the_queue(rig: OrderedRig) -> None:
    """Submitted, begun and finished together, by the commit lane itself."""
    with rig.work() as work:
        result = rig.ordered(work, range(4), "same", ListTarget(), chunk=4).run()
        job_id = id_in_run(result.run_id, "commit-0-3", work.backend.partitions)
        records = [work.backend.reader.transition(job_id, seq) for seq in range(2)]
        assert work.backend.reader.transition(job_id, 2) is None
    assert len({record.batch_no for record in records if record is not None}) == 1
    assert "commit" not in rig.calls()


def test_a_file_travels_by_digest(rig: OrderedRig) -> None:
    """X-170."""
    target = ListTarget()
    with rig.work() as work:
        digest = digest_text(work.backend.files.put(b"abc" * 10))
        item = {"$file": digest, "size": 30, "name": "a.bin", "type": "application/octet-stream"}
        result = rig.ordered(work, [item], "copied", target).run()
        assert result.ok, result.failures
        (value,) = target.values
        assert work.backend.files.get(bytes.fromhex(value["$file"][7:])) == b"abc" * 20


def test_a_large_result_is_held_by_reference(rig: OrderedRig) -> None:
    """ORD-015: what is above the bound is read from content when its turn comes."""
    target = ListTarget()
    values = ["x" * 20_000, "y", "z" * 20_000]
    result = rig.map(values, "same", target, chunk=3)
    assert (target.values, result.view.buffered_bytes) == (values, 0)


def test_options_that_make_no_sense_are_refused(rig: OrderedRig) -> None:
    for said in ({"window": 0}, {"chunk": 0}, {"chunk": 10_000}, {"on_error": "maybe"}):
        with pytest.raises(InvalidInput):
            rig.spec(**said)


def test_a_run_appends_to_a_file(rig: OrderedRig) -> None:
    with rig.work() as work:
        target = rig.target("jsonl:out.jsonl", work)
        rig.ordered(work, range(30), "square", target, window=4, chunk=2).run()
    assert lines(rig.project / "out.jsonl") == [x * x for x in range(30)]
