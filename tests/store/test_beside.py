"""The index of work and the kept answers: beside the ledger, in its commits, and gone when they have to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from detent.canon import encode
from detent.errors import InvalidInput, InvariantBroken
from detent.jobs.dedupe import IDEMPOTENCY_WINDOW_MS
from detent.store.api import ANSWERS_KEPT_MS, NEVER_REUSED, JobsWanted, Store, WorkRow
from detent.store.sqlite import SqliteStore
from tests.store.rows import Writer, answer, content, digest, everything, job, note, submitted, work

DAY = ANSWERS_KEPT_MS


# The index of work


def test_work_is_found_by_its_key_in_the_order_of_submission(writer: Writer, store: Store) -> None:
    """X-148 X-149"""
    writer.append([submitted("b"), submitted("a")], [job("b"), job("a")], work=[work("a"), work("b")])
    writer.append([submitted("c")], [job("c")], work=[work("c", "other")])
    assert [row.job_id for row in store.work("here", digest("key"))] == ["b", "a"]
    assert list(store.work("here", digest("other"))) == [work("c", "other")]
    assert list(store.work("here", digest("nobody did this"))) == []


def test_work_of_several_keys_comes_with_the_jobs_in_the_order_of_submission(writer: Writer, store: Store) -> None:
    """X-148"""
    writer.append([submitted("b"), submitted("a")], [job("b"), job("a")], work=[work("a"), work("b", "other")])
    writer.append([submitted("c")], [job("c")], work=[work("c")])
    writer.append([submitted("d")], [job("d")], work=[work("d", "third")])
    found = list(store.work_of_keys("here", [digest("key"), digest("other"), digest("nobody did this")]))
    assert [row.job_id for row, _ in found] == ["b", "a", "c"]
    assert found == [(row, store.job(row.job_id)) for row, _ in found]
    assert [row for row, _ in found if row.execution_key == digest("key")] == list(store.work("here", digest("key")))
    assert list(store.work_of_keys("there", [digest("key")])) == []
    assert list(store.work_of_keys("here", [])) == []


def array(job_id: str, *keys: str | None, **changes: Any) -> WorkRow:
    """The row of an array: no key of its own, and one for each element."""
    element_keys = tuple(None if key is None else digest(key) for key in keys)
    own = digest(f"payload of {job_id}")
    return work(job_id, **changes)._replace(execution_key=own, element_keys=element_keys)


def test_work_in_an_array_is_found_by_the_key_of_its_element(writer: Writer, store: Store) -> None:
    """X-148: jobs and elements come in the order of submission; an element without a key is not found."""
    writer.append([submitted("c")], [job("c")], work=[work("c")])
    writer.append([submitted("b")], [job("b")], work=[array("b", "other", None, "key", "key")])
    writer.append([submitted("a")], [job("a")], work=[work("a")])
    found = list(store.work("here", digest("key")))
    assert [(row.job_id, row.element) for row in found] == [("c", None), ("b", 2), ("b", 3), ("a", None)]
    assert found[1] == work("b", "key", element=2)
    together = list(store.work_of_keys("here", [digest("other"), digest("key")]))
    assert [(row.job_id, row.element) for row, _ in together] == [
        ("c", None),
        ("b", 0),
        ("b", 2),
        ("b", 3),
        ("a", None),
    ]
    assert together == [(row, store.job(row.job_id)) for row, _ in together]
    assert list(store.work("there", digest("other"))) == []
    assert list(store.work_element_rows()) == [
        ("b", 0, digest("other")),
        ("b", 2, digest("key")),
        ("b", 3, digest("key")),
    ]


def test_an_array_is_one_job_under_its_label(writer: Writer, store: Store) -> None:
    writer.append([submitted("a", run_id="r")], [job("a", run_id="r")], work=[array("a", "key", "other")])
    (row,) = store.work_labelled("here", "flow/step")
    assert (row.job_id, row.element, row.execution_key) == ("a", None, digest("payload of a"))
    assert list(store.work_rows()) == [row]
    assert list(store.jobs_outside_work()) == []
    assert store.labels_of_run("r") == {"flow/step"}


def test_the_keys_of_an_array_go_with_its_payload(writer: Writer, store: Store) -> None:
    """X-171"""
    writer.append([submitted("a"), submitted("b")], [job("a"), job("b")])
    store.append_beside([array("a", "key", "other"), array("b", "key")], [])
    writer.append(erased=[digest("payload of a")])
    assert [(row.job_id, row.element) for row in store.work("here", digest("key"))] == [("b", 0)]
    assert list(store.work("here", digest("other"))) == []
    assert [row.job_id for row in store.work_labelled("here", "flow/step")] == ["b", "a"]


def test_the_first_keys_of_an_array_stay(writer: Writer, store: Store) -> None:
    writer.append([submitted("a")], [job("a")], work=[array("a", "key", "other")])
    store.append_beside([array("a", "changed", "other")], [])
    assert list(store.work_element_rows()) == [("a", 0, digest("key")), ("a", 1, digest("other"))]


def test_many_transitions_are_those_that_were_asked_for(writer: Writer, store: Store) -> None:
    writer.submit("a", "b", "ü")
    for name in ("a", "b", "ü"):
        writer.move(name, 1, "RUNNING")
    wanted = [("a", 0), ("ü", 0), ("b", 9), ("nobody", 0), ("b", 1 << 70)]
    found = {record.job_id: record for record in store.transitions(wanted)}
    assert found == {name: store.transition(name, 0) for name in ("a", "ü")}
    assert None not in found.values()
    assert list(store.transitions([])) == []


def test_the_newest_record_of_a_kind_is_found_for_a_run(writer: Writer, store: Store) -> None:
    writer.append([note("run_started", run_id="r"), note("run_started", run_id="other")])
    writer.append([note("step_reused", run_id="r"), note("step_reused", run_id="r"), note("run_ended", run_id="other")])
    found = store.record_of_run("r", "step_reused")
    assert found == [record for record in store.records_of_run("r") if record.kind == "step_reused"][-1]
    assert store.record_of_run("r", "run_ended") is None
    assert store.record_of_run("nobody", "run_started") is None


def test_many_submissions_are_those_that_were_asked_for(writer: Writer, store: Store) -> None:
    writer.submit("a", "b", "ü")
    writer.move("a", 1, "RUNNING")
    found = {record.job_id: record for record in store.submissions(["a", "ü", "a", "nobody"])}
    assert found == {name: next(store.records_of_job(name)) for name in ("a", "ü")}
    assert {record.kind for record in found.values()} == {"submitted"}
    assert list(store.submissions([])) == []


def test_many_jobs_are_those_that_were_asked_for(writer: Writer, store: Store) -> None:
    names = ["a", "b", "ü", 'with "quotes" and \\', "a line\nand a zero \x00 byte"]
    writer.submit(*names, "somebody else")
    found = {row.job_id: row for row in store.jobs_of([*names, "a", "nobody"])}
    assert found == {name: store.job(name) for name in names}
    assert None not in found.values()
    assert len(store.jobs_of(["a", "a"])) == 1
    assert store.jobs_of([]) == []


def test_many_contents_are_those_that_are_there(writer: Writer, store: Store) -> None:
    gone, kept = content("gone"), content("kept")
    writer.append(content=[gone, kept])
    writer.append(erased=[gone[0]])
    assert list(store.contents([gone[0], kept[0], digest("never stored")])) == [kept]
    assert list(store.contents([])) == []


def test_workspaces_never_share_work(writer: Writer, store: Store) -> None:
    """X-148"""
    writer.append([submitted("a")], [job("a")], work=[work("a", workspace="there")])
    assert list(store.work("here", digest("key"))) == []
    assert list(store.work_labelled("here", "flow/step")) == []
    assert [row.job_id for row in store.work("there", digest("key"))] == ["a"]


def test_work_under_a_label_comes_newest_first_and_no_more_than_asked_for(writer: Writer, store: Store) -> None:
    for number, key in enumerate(("old", "key", "new")):
        writer.append([submitted(f"{number}")], [job(f"{number}")], work=[work(f"{number}", key)])
    writer.append([submitted("z")], [job("z")], work=[work("z", label="flow/other")])
    assert [row.job_id for row in store.work_labelled("here", "flow/step")] == ["2", "1", "0"]
    assert [row.execution_key for row in store.work_labelled("here", "flow/step", 2)] == [digest("new"), digest("key")]


def test_the_whole_index_and_all_answers_can_be_read(writer: Writer, store: Store) -> None:
    """X-196: for a verification, which compares every row."""
    writer.append([submitted("b")], [job("b")], work=[work("b", workspace="there")], answers=[answer("one")])
    writer.append([submitted("a")], [job("a")], work=[work("a", "other")], answers=[answer("two", at_ms=5)])
    assert [(row.job_id, row.workspace) for row in store.work_rows()] == [("b", "there"), ("a", "here")]
    assert list(store.answer_rows()) == [answer("one"), answer("two", at_ms=5)]


def test_the_labels_of_a_run_are_those_of_its_jobs(writer: Writer, store: Store) -> None:
    writer.append([submitted("a", run_id="r")], [job("a", run_id="r")], work=[work("a")])
    writer.append([submitted("b", run_id="r")], [job("b", run_id="r")])
    writer.append([submitted("c")], [job("c")], work=[work("c", label="flow/other")])
    assert store.labels_of_run("r") == {"flow/step"}
    assert store.labels_of_run("another") == set()


def test_a_job_is_indexed_once_and_as_it_was_first(writer: Writer, store: Store) -> None:
    writer.append([submitted("a")], [job("a")], work=[work("a"), work("a", "other")])
    writer.append(work=[work("a", tick=7)])
    store.append_beside([work("a", "other", tick=8)], [])
    assert list(store.work("here", digest("key"))) == [work("a")]
    assert list(store.work("here", digest("other"))) == []


def test_a_job_submitted_before_is_indexed_outside_a_commit(writer: Writer, store: Store) -> None:
    writer.submit("a", "b")
    head = store.head(0)
    store.append_beside([work("b")], [answer("one")])
    store.append_beside([work("a")], [])
    assert [row.job_id for row in store.work("here", digest("key"))] == ["a", "b"]
    assert store.answer(digest("one")) == answer("one")
    assert store.head(0) == head


def test_work_of_a_job_that_was_never_submitted_is_a_broken_invariant(writer: Writer, store: Store) -> None:
    writer.submit("a")
    with pytest.raises(InvariantBroken):
        store.append_beside([work("a"), work("nobody")], [])
    with pytest.raises(InvalidInput):
        store.append_beside([], [answer("one", at_ms=2**63)])
    assert list(store.work("here", digest("key"))) == []


def test_the_key_of_work_goes_with_the_payload_it_was_made_from(writer: Writer, store: Store) -> None:
    """X-171: no key finds it any more; that a job of its label did it stays known, so that `explain` can say why it ran again."""
    writer.append([submitted("a"), submitted("b")], [job("a"), job("b")], content=[content("payload of a")])
    store.append_beside([work("a"), work("b")], [])
    writer.append(erased=[digest("payload of a"), digest("something else")])
    assert [row.job_id for row in store.work("here", digest("key"))] == ["b"]
    labelled = {row.job_id: row.execution_key for row in store.work_labelled("here", "flow/step")}
    assert labelled == {"b": digest("key"), "a": digest("payload of a")}


def test_erased_work_is_not_indexed_again(writer: Writer, store: Store) -> None:
    """X-171: neither by its own key nor by those of its elements."""
    row = work("a", element_keys=(digest("key"), digest("other")))
    writer.append([submitted("a")], [job("a")], work=[row])
    writer.append(erased=[row.payload_digest])
    store.append_beside([row], [])
    assert list(store.work_element_rows()) == []
    assert [found.execution_key for found in store.work_rows()] == [row.payload_digest]


def test_work_that_is_indexed_and_erased_in_one_commit_is_gone(writer: Writer, store: Store) -> None:
    writer.append([submitted("a")], [job("a")], work=[work("a")], erased=[digest("payload of a")])
    assert list(store.work("here", digest("key"))) == []


# Answers


def test_the_window_of_the_store_is_the_one_that_decides() -> None:
    assert ANSWERS_KEPT_MS == IDEMPOTENCY_WINDOW_MS


def test_an_answer_that_counts_is_never_replaced(writer: Writer, store: Store) -> None:
    """JOB-031"""
    writer.append(answers=[answer("one", response=b"first", at_ms=5)])
    writer.append(answers=[answer("one", response=b"second", at_ms=5 + DAY - 1)])
    assert store.answer(digest("one")) == answer("one", response=b"first", at_ms=5)


def test_an_answer_goes_with_the_payload_of_its_job(writer: Writer, store: Store) -> None:
    """X-171: an attacker who guesses a request can test it against the digest that the answer is kept with"""
    bodies = {name: encode({"payload_digest": digest(f"payload of {name}")}) for name in ("a", "b")}
    writer.append([submitted("a"), submitted("b")], [job(name, body=body) for name, body in bodies.items()])
    kept = [answer("one", response=b"a"), answer("again", response=b"a"), answer("two", response=b"b")]
    writer.append(answers=[*kept, answer("three", response=b"nobody"), answer("four", response=b"\xff")])
    writer.append(erased=[digest("something else"), digest("payload of a")])
    left = [name for name in ("one", "again", "two", "three", "four") if store.answer(digest(name)) is not None]
    assert left == ["two", "three", "four"]


def test_an_expired_answer_is_replaced_and_those_of_others_go(writer: Writer, store: Store) -> None:
    """JOB-030"""
    writer.append(answers=[answer("one", response=b"first"), answer("two"), answer("three", at_ms=1)])
    writer.append(answers=[answer("one", response=b"second", at_ms=DAY)])
    assert store.answer(digest("one")) == answer("one", response=b"second", at_ms=DAY)
    assert store.answer(digest("two")) is None
    assert store.answer(digest("three")) == answer("three", at_ms=1)


def test_no_answer_goes_before_its_time_however_many_come(writer: Writer, store: Store) -> None:
    """JOB-030: they used to go after the ten thousandth."""
    writer.append(answers=[answer("first", at_ms=1)])
    for start in range(0, 12_000, 2_000):
        writer.append(answers=[answer(f"{number}", at_ms=DAY) for number in range(start, start + 2_000)])
    assert store.answer(digest("first")) == answer("first", at_ms=1)
    assert store.answers_kept(0) == (12_001, 1)
    writer.append(answers=[answer("next", at_ms=DAY + 1)])
    assert store.answer(digest("first")) is None
    assert store.answers_kept(0) == (12_001, DAY)


def test_answers_are_counted_from_a_moment_on(writer: Writer, store: Store) -> None:
    """JOB-030"""
    assert store.answers_kept(0) == (0, None)
    writer.append(answers=[answer("one", at_ms=5), answer("two", at_ms=7)])
    writer.append(answers=[answer("three", at_ms=9)])
    counted = [store.answers_kept(after_ms) for after_ms in (4, 5, 8, 9)]
    assert counted == [(3, 5), (2, 7), (1, 9), (0, None)]


def test_how_long_answers_count_is_the_writers_choice(writer: Writer, store: Store) -> None:
    """JOB-030"""
    writer.append(answers=[answer("one"), answer("two", at_ms=5)], answers_kept_ms=10)
    writer.append(answers=[answer("one", response=b"early", at_ms=9)], answers_kept_ms=10)
    assert store.answer(digest("one")) == answer("one")
    store.append_beside([], [answer("one", response=b"anew", at_ms=10)], 10)
    assert store.answer(digest("one")) == answer("one", response=b"anew", at_ms=10)
    assert store.answer(digest("two")) == answer("two", at_ms=5)
    store.append_beside([], [answer("three", at_ms=15)], 10)
    assert store.answer(digest("two")) is None


def test_a_clock_that_is_ahead_ends_no_key_of_the_same_commit(writer: Writer, store: Store) -> None:
    """JOB-030: what is taken away is measured by the earliest of the commit's clocks."""
    writer.append(answers=[answer("one", at_ms=1)])
    writer.append(answers=[answer("two", at_ms=2), answer("three", at_ms=3 * DAY)])
    assert store.answer(digest("one")) == answer("one", at_ms=1)


# Labels and pools


def listed(store: Any, tenant: str = "tenant", limit: int = 10, **choice: Any) -> list[str]:
    return [row.job_id for _, row in store.jobs_page(JobsWanted(tenant, **choice), limit=limit)]


def named(job_id: str, label: str = "flow/step", pool: str | None = None, *, reused: bool = False) -> WorkRow:
    row = work(job_id, workspace="tenant", label=label, pool=pool)
    return row if reused else row._replace(execution_key=NEVER_REUSED)


def test_jobs_are_listed_by_label_and_by_pool_whether_their_work_is_reused_or_not(writer: Writer, store: Store) -> None:
    rows = [named("a"), named("b", "other", "gpu"), named("c", pool="gpu", reused=True), named("d", pool="flow/step")]
    writer.append([submitted(name) for name in "abcde"], [job(name) for name in "abcde"], work=rows)
    writer.append(
        [submitted("x")], [job("x", tenant_id="there")], work=[named("x", pool="gpu")._replace(workspace="there")]
    )
    writer.move("a", 1, "RUNNING")
    assert listed(store, label="flow/step") == ["d", "c", "a"]
    assert listed(store, label="flow/step", limit=1) == ["d"]
    (number, _), _, _ = store.jobs_page(JobsWanted("tenant", label="flow/step"), limit=3)
    assert listed(store, label="flow/step", before=number) == ["c", "a"]
    assert listed(store, label="flow/step", state="RUNNING") == ["a"]
    assert listed(store, pool="gpu") == ["c", "b"]
    assert listed(store, pool="flow/step") == ["d"]
    assert listed(store, "there", pool="gpu") == ["x"]
    assert listed(store, label="gpu") == listed(store, pool="other") == listed(store, pool="nobody's") == []
    assert [(row.job_id, row.label, row.pool) for row in store.label_rows()] == [
        ("a", "flow/step", None), ("b", "other", "gpu"), ("c", "flow/step", "gpu"), ("d", "flow/step", "flow/step"),
        ("x", "flow/step", "gpu"),
    ]  # fmt: skip


def test_work_that_is_never_reused_is_found_by_no_key(writer: Writer, store: Store) -> None:
    """X-148: two such jobs have no key in common, and no row that a search for equal work could meet."""
    writer.append([submitted("a"), submitted("b")], [job("a", run_id="r"), job("b")], work=[named("a"), named("b")])
    for key in (NEVER_REUSED, bytes(32), digest("payload of a")):
        assert list(store.work("tenant", key)) == []
        assert list(store.work_of_keys("tenant", [key])) == []
    assert list(store.work_labelled("tenant", "flow/step")) == list(store.work_rows()) == []
    assert [row.job_id for row in store.jobs_outside_work()] == ["a", "b"]
    assert store.labels_of_run("r") == set()


def test_a_label_and_a_pool_go_with_the_payload_that_named_them(writer: Writer, store: Store) -> None:
    """X-171"""
    rows = [named("a", "told", "gpu"), named("b", "told", reused=True), named("c", "told", "gpu")]
    writer.append([submitted(name) for name in "abc"], [job(name) for name in "abc"], work=rows)
    writer.append(erased=[digest("payload of a"), digest("payload of b")])
    assert listed(store, label="told") == listed(store, pool="gpu") == ["c"]
    assert [row.job_id for row in store.label_rows()] == ["c"]
    writer.append(erased=[digest("payload of c")])
    assert list(store.label_rows()) == []
    assert listed(store, label="told") == listed(store, pool="gpu") == []


def test_no_file_holds_a_label_that_was_erased(path: Path) -> None:
    """X-171"""
    store = SqliteStore.open(path)
    store.append_beside([named("a", "Jane Roe's invoice", "jane-pool"), named("b", "kept")], [])
    writer = Writer(store)
    writer.append(erased=[digest("payload of a")])
    store.close()
    found = path.read_bytes()
    assert (b"Jane" in found, b"jane-pool" in found, b"kept" in found) == (False, False, True)


@pytest.fixture
def seventh(path: Path) -> Path:
    """A ledger of the seventh schema, which had labels of reusable work alone."""
    store = SqliteStore.open(path)
    writer = Writer(store)
    writer.append([submitted("c")], [job("c")])
    store.append_beside([named("a", reused=True), named("b", "gone", reused=True), named("c")], [])
    writer.append(erased=[digest("payload of b")])
    store.close()
    connection = apsw.Connection(str(path))
    for table in ("job_labels", "names"):
        connection.execute(f"DROP TABLE {table}")
    connection.pragma("user_version", 7)
    connection.close()
    return path


def test_the_owner_of_an_older_ledger_lists_its_reusable_work_by_label(seventh: Path) -> None:
    reader = SqliteStore.open_reader(seventh)
    assert list(reader.label_rows()) == []
    assert listed(reader, label="flow/step") == listed(reader, pool="gpu") == []
    store = SqliteStore.open(seventh)
    assert store.schema_faults() == []
    assert listed(reader, label="flow/step") == listed(store, label="flow/step") == ["a"]
    assert [(row.job_id, row.label, row.pool) for row in store.label_rows()] == [("a", "flow/step", None)]
    assert [row.job_id for row in store.work_labelled("tenant", "gone")] == ["b"]
    store.append_beside([named("c", "later", "gpu")], [])
    assert listed(reader, pool="gpu") == ["c"]
    reader.close()
    store.close()
    assert b"gone" not in b"".join(row.label.encode() for row in SqliteStore.open_reader(seventh).label_rows())


# Ledgers that were made before there was any of it


@pytest.fixture
def old(path: Path) -> Path:
    """A ledger of the first schema."""
    connection = apsw.Connection(str(path))
    for table in ("job_labels", "names", "work_elements", "work", "answers", "decisions", "shapes", "signatures"):
        connection.execute(f"DROP TABLE {table}")
    for index in ("runs_open", "jobs_by_tenant", "jobs_ended_by_tenant", "runs_by_tenant", "runs_by_tenant_status"):
        connection.execute(f"DROP INDEX {index}")
    connection.pragma("user_version", 1)
    connection.close()
    return path


def test_a_ledger_of_the_first_schema_is_read_as_it_is(old: Path) -> None:
    before = old.read_bytes()
    reader = SqliteStore.open_reader(old)
    assert [row.job_id for row in reader.jobs()] == ["a", "b"]
    assert list(reader.work("here", digest("key"))) == []
    assert list(reader.work_element_rows()) == []
    assert list(reader.work_labelled("here", "flow/step")) == []
    assert list(reader.runs(status="running")) == []
    assert list(reader.decisions(0)) == []
    assert reader.answer(digest("one")) is None
    assert everything(reader)["answers"] == [None, None, None]
    reader.close()
    assert old.read_bytes() == before


def test_the_owner_of_an_old_ledger_adds_the_index_and_its_readers_find_it(old: Path) -> None:
    reader = SqliteStore.open_reader(old)
    assert list(reader.work("here", digest("key"))) == []
    store = SqliteStore.open(old)
    store.append_beside([work("a")], [answer("one")])
    assert list(reader.work("here", digest("key"))) == [work("a")]
    assert reader.answer(digest("one")) == answer("one")
    store.append_beside([array("b", "key")], [])
    assert [(row.job_id, row.element) for row in reader.work("here", digest("key"))] == [("a", None), ("b", 0)]
    reader.close()
    store.close()
