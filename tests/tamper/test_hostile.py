"""Whatever is put before it, verification and replay answer: no exception, and no green for what was changed.

The attacker here has the owner's key and writes nonsense on purpose: any value in any field, any bytes as evidence or
commands, items in any order.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from io import BytesIO
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from detent.canon import NotCanonical, decode, encode
from detent.ledger import BatchItem, PartialItem, read_items, replay_items, verify_bundle, verify_items
from tests.ledger.build import Builder, lively
from tests.tamper.forge import Remembering

LEDGER = lively()
FILE = LEDGER.bundle()
RUN = LEDGER.run_items("run-1")
ROOT = LEDGER.root
REMEMBERING = Remembering()

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 1, 2, 3, 2**63, 2**64 - 1, -1]),
    st.text(max_size=5),
    st.sampled_from(
        ["transition", "submitted", "run_ended", "RUNNING", "QUEUED", "SUCCEEDED", "CANCELED", "OK", "plain", "run-1"]
    ),
    st.binary(max_size=4),
    st.sampled_from([bytes(32), bytes(64), b"\x01\x55\x12\x02ab" + bytes(26)]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)


def changed(value: Any, data: st.DataObject) -> Any:
    """A decoded value with something in it replaced, removed or added."""
    value = deepcopy(value)
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(value)))
        action = data.draw(st.sampled_from(["replace", "deeper", "remove", "add"]))
        if action == "remove":
            del value[name]
        elif action == "add":
            value[data.draw(st.text(max_size=3))] = data.draw(values)
        else:
            value[name] = changed(value[name], data) if action == "deeper" else data.draw(values)
        return value
    if isinstance(value, list) and value and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(value) - 1))
        value[place] = changed(value[place], data)
        return value
    return data.draw(values)


def rewritten(blob: bytes | None, data: st.DataObject) -> bytes | None:
    """Other bytes: another value in them, random ones, or none."""
    choice = data.draw(st.sampled_from(["value", "value", "value", "bytes", "none"]))
    if choice == "value" and blob is not None:
        try:
            return encode(changed(decode(blob), data))
        except NotCanonical:
            return blob + b"\x00"
    return data.draw(st.binary(max_size=40)) if choice == "bytes" else None


def forged(data: st.DataObject) -> Builder:
    ledger = Builder(genesis=False)
    ledger.commits = [replace(commit, records=list(commit.records)) for commit in LEDGER.commits]
    ledger.contents, ledger.rows, ledger.runs = LEDGER.contents, LEDGER.rows, LEDGER.runs
    for _ in range(data.draw(st.integers(1, 3))):
        commit = data.draw(st.sampled_from(ledger.commits))
        action = data.draw(st.sampled_from(["body", "body", "evidence", "commands", "move", "numbers"]))
        if action == "commands":
            commit.commands = rewritten(commit.commands, data) or b""
            commit.command_count = data.draw(st.sampled_from([commit.command_count, 0, 7]))
        elif action == "numbers":
            commit.epoch = data.draw(st.integers(0, 3))
            commit.first_tick = data.draw(st.sampled_from([0, commit.first_tick]))
            commit.last_tick = data.draw(st.sampled_from([commit.last_tick, 2**64 - 1]))
        elif commit.records:
            place = data.draw(st.integers(0, len(commit.records) - 1))
            body, evidence = commit.records[place]
            if action == "body":
                commit.records[place] = (rewritten(body, data) or b"", evidence)
            elif action == "evidence":
                commit.records[place] = (body, rewritten(evidence, data))
            else:
                other = data.draw(st.sampled_from(ledger.commits))
                other.records.insert(0, commit.records.pop(place))
    return ledger


@given(st.data())
def test_nonsense_signed_by_the_owner_raises_nothing(data: st.DataObject) -> None:
    ledger = forged(data)
    items = ledger.items(rows=True)
    report = verify_items(items, root=ROOT, rows_expected=True, verify_many=REMEMBERING)
    replay = replay_items(items)
    same = [commit.records for commit in ledger.commits] == [commit.records for commit in LEDGER.commits]
    assert same or not (report.ok and replay.ok), "what fits all rules is not what the commands lead to"


@given(st.data())
def test_damaged_files_raise_nothing_and_are_never_green(data: st.DataObject) -> None:
    whole = bytearray(FILE)
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(whole) - 1))
        action = data.draw(st.sampled_from(["flip", "delete", "insert", "copy"]))
        if action == "flip":
            whole[place] ^= data.draw(st.integers(1, 255))
        elif action == "delete":
            del whole[place : place + data.draw(st.integers(1, 50))]
        elif action == "insert":
            whole[place:place] = data.draw(st.binary(min_size=1, max_size=20))
        else:
            whole[place:place] = whole[: data.draw(st.integers(1, 200))]
    report = verify_bundle(BytesIO(bytes(whole)), ROOT, verify_many=REMEMBERING)
    assert report.ok == (bytes(whole) == FILE)
    replay_items(read_items(BytesIO(bytes(whole))))


@given(st.data())
def test_items_in_any_order_and_number_raise_nothing(data: st.DataObject) -> None:
    pool = [*LEDGER.items(rows=True), *RUN]
    items = data.draw(st.lists(st.sampled_from(range(len(pool))), max_size=25))
    report = verify_items([pool[place] for place in items], root=ROOT, verify_many=REMEMBERING)
    assert report.ok == (report.findings_total == 0)


@given(st.data())
def test_hostile_parts_of_a_run_raise_nothing_and_are_never_green(data: st.DataObject) -> None:
    items = list(RUN)
    places = [place for place, item in enumerate(items) if isinstance(item, PartialItem)]
    place = data.draw(st.sampled_from(places))
    item = items[place]
    assert isinstance(item, PartialItem)
    records = list(item.records)
    at = data.draw(st.integers(0, len(records) - 1))
    action = data.draw(st.sampled_from(["body", "evidence", "index", "path", "batch"]))
    if action == "body":
        records[at] = records[at]._replace(body=rewritten(records[at].body, data) or b"")
    elif action == "evidence":
        records[at] = records[at]._replace(evidence=rewritten(records[at].evidence, data))
    elif action == "index":
        records[at] = records[at]._replace(index_in_batch=data.draw(st.integers(0, 65_535)))
    elif action == "path":
        records[at] = records[at]._replace(path=data.draw(st.lists(st.binary(min_size=32, max_size=32), max_size=4)))
    forged_item = item._replace(records=records)
    if action == "batch":
        body = rewritten(item.body, data) or b""
        forged_item = item._replace(body=body, signature=LEDGER.signer.sign(b"detent/batch/v1\x00" + body))
    items[place] = forged_item
    assert verify_items(items, root=ROOT, verify_many=REMEMBERING).ok == (forged_item == item)


def test_a_batch_of_hostile_size_is_walked_to_its_end() -> None:
    """A commit with as many records as the format allows is no way to exhaust anything."""
    item = next(item for item in LEDGER.items() if isinstance(item, BatchItem))
    report = verify_items([LEDGER.header(), item._replace(records=[(b"\xa0", None)] * 65_536)], root=ROOT)
    assert len(report.findings) == 1_000
    assert report.findings_total > 65_000
